/** The model, the text that went through it, and what the reader looks at; every view asks here. */

import { slotNames } from "./derive.js";
import { Store, plainName, readLayers, readOff, writeOff } from "./store.js";
import { Refusal, openSource } from "./source.js";
import { number, ordinal, partName, visible } from "./text.js";

const BIASED = new Set(["alibi", "t5", "shaw", "transformer_xl"]);

/**
 * @typedef {{name: string, kind: string, queries: string, keys: string, heads: number, scale: number,
 *            memory?: number, dot: boolean, placed_values: boolean, stats: Record<string, number[] | null>}} Attention
 */

export class Session {
  constructor() {
    this.source = openSource();
    this.store = new Store();
    this.model = null;
    /** What went through the model as it is switched now, and with everything on. */
    this.run = null;
    this.base = null;
    this.failed = "";
    /** @type {Map<string, Promise<any>>} answers to POST api/runs, by what was asked */
    this.runs = new Map();
    /** @type {WeakMap<Attention, [string[], string[]]>} */
    this.named = new WeakMap();
    this.asked = 0;
    this.hooks = { refused: () => {}, read: () => {}, said: () => {}, redraw: () => {} };
  }

  get state() {
    return this.store.state;
  }

  set(changes) {
    this.store.set(changes);
  }

  async open() {
    this.model = await this.source.model();
  }

  /** @param {boolean} [plain]  with every head on, whatever is switched off now */
  #request(plain = false) {
    const { text, answer, off, layersOff, sort } = this.state;
    return {
      text,
      answer: answer || null,
      off: plain ? {} : readOff(off),
      layers_off: plain ? [] : readLayers(layersOff),
      ...(sort === "importance" ? { importance: true } : {}),
    };
  }

  /** Asks for a run once, however often it is wanted. */
  #ran(request) {
    const key = JSON.stringify(request);
    if (!this.runs.has(key)) {
      const answer = this.source.run(request);
      answer.catch(() => this.runs.delete(key));
      this.runs.set(key, answer);
    }
    return this.runs.get(key);
  }

  /** A recording has one text, and is switched as it was; a live page without one begins with an example. */
  async #fill() {
    const { live } = this.source;
    if (!live) {
      const { text, off, layers_off } = await this.source.run();
      this.set({ text, off: writeOff(off), layersOff: layers_off.join(";"), answer: "" });
    } else if (!this.state.text) this.set({ text: this.model.examples?.[0] ?? "hello world" });
  }

  /** Runs what the state says, unless it was run before; an answer that a newer question has overtaken is dropped. */
  async ensure() {
    await this.#fill();
    const mine = ++this.asked;
    try {
      const [base, run] = [await this.#ran(this.#request(true)), await this.#ran(this.#request())];
      if (mine !== this.asked) return false;
      Object.assign(this, { base, run, failed: "" });
      this.hooks.refused("");
      return true;
    } catch (error) {
      if (mine !== this.asked) return false;
      this.failed = this.explain(error);
      return false;
    }
  }

  /** Says what went wrong. @param {unknown} error */
  explain(error) {
    if (!(error instanceof Refusal)) throw error;
    this.hooks.refused(error.message);
    return error.message;
  }

  /**
   * Something about the run that is shown; a recording that the server has dropped is made once more.
   * @template T @param {(id: string) => Promise<T>} ask  @param {any} [of] the run, if not the one that is shown
   */
  async ask(ask, of = this.run) {
    try {
      return await ask(of.id);
    } catch (error) {
      if (!(error instanceof Refusal) || error.status !== 404 || !this.source.live) throw error;
      const plain = of === this.base;
      this.runs.delete(JSON.stringify(this.#request(plain)));
      const again = await this.#ran(this.#request(plain));
      if (of === this.run) this.run = again;
      if (plain) this.base = again;
      return ask(again.id);
    }
  }

  /** A tensor of the run, of one head if one is named. */
  tensor(tap, head) {
    return this.ask((id) => this.source.tensor(id, tap, head));
  }

  /** The same where a model may have none: null then. */
  async tensorIfAny(tap, head) {
    try {
      return await this.source.tensor(this.run.id, tap, head);
    } catch (error) {
      if (error instanceof Refusal && error.status === 404) return null;
      throw error;
    }
  }

  /** Which keys may not be seen: from the recorded scores, or from the kind of attention where they are not there. */
  async mask(attention, head) {
    const scores = await this.tensorIfAny(`${attention.name}.masked`, head);
    if (!scores) return attention.kind === "masked" ? (i, j) => j - (attention.memory ?? 0) > i : () => false;
    const columns = scores.shape[1];
    return (i, j) => scores.data[i * columns + j] === -Infinity;
  }

  /** What is looked at must be there: another text has fewer tokens, another layer fewer heads. */
  settle() {
    const known = this.run.attentions.find(({ name }) => name === this.state.part);
    const favourite = this.run.attentions.findLast(({ kind }) => kind === "cross") ?? this.run.attentions[0];
    const attention = known ?? favourite;
    this.look({ part: attention.name });
  }

  /** @type {Attention} */
  get attention() {
    return this.run.attentions.find(({ name }) => name === this.state.part);
  }

  /** Changes the place that is looked at, within what there is. */
  look(changes) {
    const part = changes.part ?? this.state.part;
    const attention = this.run.attentions.find(({ name }) => name === part);
    const within = (value, count) => Math.max(0, Math.min(value, count - 1));
    const wanted = { ...this.state, ...changes };
    this.set({
      ...changes,
      part,
      head: within(wanted.head, attention.heads),
      row: within(wanted.row, this.tokens(attention.queries).length),
      column: within(wanted.column, this.names(attention)[1].length),
      shown: wanted.shown
        .split(",")
        .filter((head) => head !== "" && Number(head) < attention.heads)
        .join(","),
    });
  }

  tokens(side) {
    return this.run.sides[side].tokens;
  }

  /** Queries and keys of an attention by name; slots of memory that it learned stand before the tokens. */
  names(attention) {
    if (!this.named.has(attention)) {
      const [queries, keys] = [attention.queries, attention.keys].map((side) => this.tokens(side).map(visible));
      this.named.set(attention, [queries, [...slotNames(attention), ...keys]]);
    }
    return this.named.get(attention);
  }

  /** Keys that are no words of the text. @returns {boolean[]} */
  specialKeys(attention) {
    return [...Array(attention.memory ?? 0).fill(true), ...this.special(attention.keys)];
  }

  /** Whether positions add a term to the scores of an attention. */
  biased(attention) {
    return BIASED.has(this.model.positions) && attention.kind !== "cross";
  }

  special(side) {
    return this.run.sides[side].special;
  }

  /** The side on which the model speaks, or the only one. */
  get side() {
    return this.run.predicts?.side ?? (this.run.sides.target ? "target" : Object.keys(this.run.sides)[0]);
  }

  /** Heads by number that are switched off in an attention, which means in all rounds of it. */
  offIn(part) {
    return readOff(this.state.off)[plainName(part)] ?? [];
  }

  layerOff(layer) {
    return readLayers(this.state.layersOff).includes(plainName(layer));
  }

  get switched() {
    return this.state.off !== "" || this.state.layersOff !== "";
  }

  /** Turns one head off, or on again. */
  toggle(part, head) {
    const heads = new Set(this.offIn(part));
    if (!heads.delete(head)) heads.add(head);
    this.set({ off: writeOff({ ...readOff(this.state.off), [plainName(part)]: [...heads] }) });
  }

  /** Turns a whole layer off, or on again. */
  toggleLayer(layer) {
    const layers = new Set(readLayers(this.state.layersOff));
    if (!layers.delete(plainName(layer))) layers.add(plainName(layer));
    this.set({ layersOff: [...layers].sort().join(";") });
  }

  /** “it” reads “animal”, 0.42, first of 11. @param {(i: number, j: number) => number} at */
  reading(attention, head, i, j, at) {
    const [queries, keys] = this.names(attention);
    const value = at(i, j);
    const rank = 1 + keys.reduce((above, _, other) => above + (at(i, other) > value), 0);
    return (
      `${partName(attention.name)}, head ${head + 1}: “${queries[i]}” reads ` +
      `“${keys[j]}”, ${number(value)}, ${ordinal(rank)} of ${keys.length}`
    );
  }
}
