/** The whole state of the page, kept in the address behind the #, so that a reload or a link shows the same. */

/**
 * @typedef {object} State
 * @property {string} text      what the model was given
 * @property {string} answer    what it is forced to say, or nothing
 * @property {string} off       heads that are switched off: `decoder.0.cross:1,3;…`
 * @property {string} layersOff
 * @property {string} view      the tab
 * @property {string} mode      how attention is shown
 * @property {string} part      the attention that is looked at
 * @property {number} head
 * @property {string} shown     the heads whose lines are drawn: `0,2`; nothing means all
 * @property {number} row       the query
 * @property {number} column    the key
 * @property {boolean} pinned   the row stays whatever the pointer does
 */

const DEFAULTS = {
  text: "",
  answer: "",
  off: "",
  layersOff: "",
  view: "attention",
  mode: "lines",
  part: "",
  head: 0,
  shown: "",
  row: 0,
  column: 0,
  pinned: false,
  mass: 80,
  dim: true,
  sort: "model",
  stage: -1,
  mean: false,
  cell: "",
  step: 0,
  forced: "",
  temperature: 1,
  topK: 0,
  topP: 1,
  minP: 0,
  beams: 1,
  layer: -1,
  position: -1,
  word: "",
  against: "",
  edges: 15,
  positionHead: 0,
  tables: "",
  theme: "",
};

/** @param {string} hash @returns {State & typeof DEFAULTS} */
function parse(hash) {
  const given = new URLSearchParams(hash.replace(/^#/, ""));
  const state = { ...DEFAULTS };
  for (const [name, usual] of Object.entries(DEFAULTS)) {
    const words = given.get(name);
    if (words === null) continue;
    if (typeof usual === "number") state[name] = Number.isFinite(Number(words)) ? Number(words) : usual;
    else state[name] = typeof usual === "boolean" ? words === "1" : words;
  }
  return state;
}

function write(state) {
  const said = new URLSearchParams();
  for (const [name, usual] of Object.entries(DEFAULTS)) {
    if (state[name] !== usual) said.set(name, typeof usual === "boolean" ? (state[name] ? "1" : "0") : state[name]);
  }
  return `#${said}`;
}

export class Store {
  constructor() {
    this.state = parse(location.hash);
    /** @type {((changed: Set<string>) => void)[]} */
    this.listeners = [];
    addEventListener("hashchange", () => this.#become(parse(location.hash)));
  }

  /** @param {(changed: Set<string>) => void} listener */
  listen(listener) {
    this.listeners.push(listener);
  }

  /** @param {Partial<typeof DEFAULTS>} changes */
  set(changes) {
    const state = { ...this.state, ...changes };
    try {
      history.replaceState(null, "", write(state));
    } catch {
      // A frame without an address of its own, as notebooks have: the state lives here alone.
    }
    this.#become(state);
  }

  #become(state) {
    const changed = new Set(Object.keys(DEFAULTS).filter((name) => state[name] !== this.state[name]));
    this.state = state;
    if (changed.size) this.listeners.forEach((listener) => listener(changed));
  }
}

/** Of a part, or a layer, that runs in several rounds, the name that all of them share. @param {string} name */
export function plainName(name) {
  return name.replace(/@\d+/, "");
}

/** `decoder.0.cross:1,3` -> {"decoder.0.cross": [1, 3]}. @param {string} words @returns {Record<string, number[]>} */
export function readOff(words) {
  const off = {};
  for (const entry of words.split(";")) {
    const [part, heads] = entry.split(":");
    if (heads) off[part] = heads.split(",").map(Number);
  }
  return off;
}

/** `encoder.0;decoder.1` -> ["encoder.0", "decoder.1"]. @param {string} words */
export function readLayers(words) {
  return words.split(";").filter(Boolean);
}

/** @param {Record<string, number[]>} off */
export function writeOff(off) {
  return Object.keys(off)
    .sort()
    .filter((part) => off[part].length)
    .map((part) => `${part}:${[...off[part]].sort((a, b) => a - b).join(",")}`)
    .join(";");
}
