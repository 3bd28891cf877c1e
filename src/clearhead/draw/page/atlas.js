/** Every head of the model as a thumbnail on one canvas: sorted, opened, switched off. */

import { Board } from "./board.js";
import { Card } from "./card.js";
import { button, dropdown, element } from "./dom.js";
import { headColour } from "./panel.js";
import { fromZero, legendHeight, paintLegend, pixels } from "./scale.js";
import { fit, number, partName, plural } from "./text.js";

/** @typedef {{at: number, attention: import("./session.js").Attention, head: number}} Tile */

const ORDERS = [
  ["model", "by layer"],
  ["entropy", "by entropy (bits)"],
  ["distance", "by mean distance"],
  ["importance", "by importance"],
  ["previous", "by weight on the previous token"],
  ["duplicate", "by weight on equal tokens"],
  ["induction", "by induction score"],
];
const LABELS = { self: "self", masked: "masked", cross: "cross" };
const SWITCH = 16;

export class Atlas {
  /** @param {import("./session.js").Session} session */
  constructor(session) {
    this.session = session;
    this.card = new Card(session, "atlas", "Atlas of all heads");
    this.sort = dropdown("Order of the heads", (sort) => session.set({ sort }));
    this.card.controls.append(element("label", { class: "field" }, element("span", {}, "Order"), this.sort.root));
    this.board = new Board(
      "Atlas of heads",
      {
        says: ({ i, j }) => this.#says(this.#tile(i, j)),
        moved: ({ i, j }) => this.#choose(this.#tile(i, j)),
        picked: (cell) => this.#picked(cell),
      },
      session,
    );
    this.board.root.addEventListener("keydown", (event) => {
      const { cursor } = this.board;
      const tile = cursor && this.#tile(cursor.i, cursor.j);
      if (event.key === " " && tile && session.source.live) {
        event.preventDefault();
        session.toggle(tile.attention.name, tile.head);
      }
    });
    this.about = element("div", { class: "about" });
  }

  get root() {
    return this.card.root;
  }

  key(event) {
    this.board.key(event);
  }

  /** @returns {Tile | undefined} */
  #tile(i, j) {
    return this.rows[i]?.[j];
  }

  #off({ attention, head }) {
    return this.session.offIn(attention.name).includes(head);
  }

  /** Whether nothing of a head is heard: it is off, or its whole layer is. */
  #silent(tile) {
    return this.#off(tile) || this.session.layerOff(tile.attention.name.replace(/\.\w+$/, ""));
  }

  #choose(tile) {
    if (tile) this.session.look({ part: tile.attention.name, head: tile.head, shown: String(tile.head) });
  }

  #picked({ i, j, u, v, panel }) {
    const tile = this.#tile(i, j);
    if (!tile) return;
    const onSwitch = u !== undefined && (1 - u) * panel.cell[0] < SWITCH + 6 && v * panel.cell[1] < SWITCH + 4;
    if (onSwitch && this.session.source.live) this.session.toggle(tile.attention.name, tile.head);
    else this.session.look({ part: tile.attention.name, head: tile.head, shown: String(tile.head), mode: "matrix" });
  }

  #says(tile) {
    if (!tile) return "";
    const { stats } = tile.attention;
    const told = Object.entries(stats)
      .filter(([, values]) => values)
      .map(([name, values]) => `${name} ${number(values[tile.head], 2)}`);
    const off = this.#silent(tile) ? " (off)" : "";
    return `${partName(tile.attention.name)}, head ${tile.head + 1}${off}: ${told.join(", ")}`;
  }

  async update() {
    const { session } = this;
    const { run, state } = session;
    const thumbnails = await session.ask((id) => session.source.thumbnails(id));
    if (run !== session.run) return;
    // Importance takes a backward pass: the server computes it when it is asked for.
    const known = ([name]) =>
      name === "model" ||
      (name === "importance" && session.source.live) ||
      run.attentions.some(({ stats }) => stats[name]);
    this.sort.set(ORDERS.filter(known), state.sort);
    let at = 0;
    const layered = run.attentions.map((attention) =>
      Array.from({ length: attention.heads }, (_, head) => ({ at: at++, attention, head })),
    );
    const most = Math.max(...layered.map((row) => row.length));
    const byLayer = state.sort === "model";
    const label = byLayer ? 124 : 4;
    const room = this.card.width - label - 4;
    const columns = byLayer ? most : Math.max(2, Math.min(12, Math.floor(room / 92)));
    const side = Math.max(26, Math.min(96, Math.floor(room / columns)));
    const under = byLayer ? 4 : 34;
    this.rows = byLayer ? layered : this.#sorted(layered.flat(), state.sort, columns);
    const image = this.#images(thumbnails);
    const top = byLayer ? 24 : 4;
    const panel = {
      id: "atlas",
      x: label,
      y: top,
      cell: [side, side + under - 4],
      rows: this.rows.length,
      columns,
      at: () => 0,
      scale: fromZero([1], "each row of a head sums to 1; the largest weight of each patch"),
      draw: (pen) =>
        this.rows.forEach((row, i) => row.forEach((tile, j) => this.#paintTile(pen, panel, tile, i, j, image, side))),
      rowNames: byLayer
        ? run.attentions.map(({ name, kind }) => `${partName(name).replace(/ ·.*/, "")} ${LABELS[kind] ?? kind}`)
        : undefined,
    };
    const width = Math.ceil(Math.max(label + side * columns + 4, Math.min(this.card.width, 430)));
    const low = top + panel.cell[1] * this.rows.length;
    const height = low + legendHeight(width - 4, panel.scale);
    const i = this.rows.findIndex((row) => row.some((tile) => this.#isChosen(tile)));
    const j = i < 0 ? 0 : this.rows[i].findIndex((tile) => this.#isChosen(tile));
    const count = plural(layered.flat().length, "head");
    const switches = session.source.live ? "; its switch, or the space bar, turns it off" : "";
    this.card.hint.textContent = `${count}. Click one to open it${switches}.`;
    this.card.body.replaceChildren(this.about, this.board.root);
    this.board.show({
      key: `${run.id}|${state.sort}|${state.off}|${state.layersOff}`,
      width,
      height,
      panels: [panel],
      cursor: i < 0 ? null : { panel, i, j },
      related: () => [],
      decorate: (pen) => {
        if (byLayer)
          for (let head = 0; head < most; head++)
            pen.text(label + (head + 0.5) * side, 12, String(head + 1), {
              anchor: "middle",
              size: 11,
              fill: pen.theme.faint,
            });
        paintLegend(pen, 4, low, width, panel.scale);
      },
    });
    this.#showAbout();
    this.card.keep({
      title: "atlas of all heads",
      width,
      height,
      paint: (pen) => this.board.paint(pen),
      table: () => ({
        caption: "Every head and what is known of it",
        columns: ["attention", "head", "on", ...ORDERS.slice(1).map(([name]) => name)],
        rows: this.rows
          .flat()
          .map((tile) => [
            tile.attention.name,
            tile.head + 1,
            this.#silent(tile) ? "off" : "on",
            ...ORDERS.slice(1).map(([name]) => tile.attention.stats[name]?.[tile.head] ?? ""),
          ]),
      }),
    });
  }

  #isChosen({ attention, head }) {
    return attention.name === this.session.state.part && head === this.session.state.head;
  }

  /** Heads in the order of a statistic, the largest first, in lines of equal length. @param {Tile[]} tiles */
  #sorted(tiles, name, columns) {
    const value = ({ attention, head }) => attention.stats[name]?.[head] ?? -Infinity;
    const order = [...tiles].sort((a, b) => value(b) - value(a));
    return Array.from({ length: Math.ceil(order.length / columns) }, (_, at) =>
      order.slice(at * columns, (at + 1) * columns),
    );
  }

  /** The picture of each head, made once. @param {import("./source.js").Tensor} thumbnails */
  #images({ data, shape: [, rows, columns] }) {
    const scale = { low: 0, high: 255, diverging: false, says: "" };
    const made = new Map();
    return (at) => {
      if (!made.has(at))
        made.set(
          at,
          pixels(scale, rows, columns, (i, j) => data[(at * rows + i) * columns + j]),
        );
      return made.get(at);
    };
  }

  /** @param {Tile} tile */
  #paintTile(pen, panel, tile, i, j, image, side) {
    const { ink, paper, faint, fill } = pen.theme;
    const [x, y] = [panel.x + j * panel.cell[0] + 3, panel.y + i * panel.cell[1] + 1];
    const inner = side - 6;
    const off = this.#silent(tile);
    if (off) pen.hatch(x, y, inner, inner);
    else pen.image(x, y, inner, inner, image(tile.at));
    pen.rect(x, y, inner, inner, { stroke: faint, width: 0.7 });
    if (off && inner > 34) {
      pen.rect(x + inner / 2 - 14, y + inner / 2 - 9, 28, 18, { fill: paper, radius: 4 });
      pen.text(x + inner / 2, y + inner / 2, "off", { anchor: "middle", size: 12, weight: 700 });
    }
    if (this.session.source.live && inner > 44) {
      const [left, up] = [x + inner - 23, y + 4];
      pen.rect(left, up, 19, 11, { fill: off ? fill : ink, stroke: paper, radius: 5.5, width: 1.2 });
      pen.circle(left + (off ? 5.5 : 13.5), up + 5.5, 3.6, { fill: off ? faint : paper });
    }
    if (this.session.state.sort === "model") return;
    const value = tile.attention.stats[this.session.state.sort]?.[tile.head];
    pen.circle(x + 4, y + inner + 9, 3.5, { fill: headColour(tile.head) });
    const name = `${partName(tile.attention.name).replace(/(\w)\w* (\d+) · (\w+).*/, "$1$2 $3")} · ${tile.head + 1}`;
    pen.text(x + 11, y + inner + 9, fit(name, inner - 11, 11), { size: 11 });
    pen.text(x, y + inner + 22, number(value, 2), { size: 11, fill: faint });
  }

  /** The head that is chosen, with its switches as real buttons. */
  #showAbout() {
    const { session } = this;
    const { attention, state } = session;
    const tile = { attention, head: state.head, at: 0 };
    const layer = attention.name.replace(/\.\w+$/, "");
    const disabled = session.source.live ? null : true;
    const why = disabled ? "A recording cannot compute anew: start `clearhead explore` to switch heads off." : null;
    this.about.replaceChildren(
      element("p", {}, this.#says(tile)),
      button("Open", () => session.look({ mode: "matrix" })),
      button("Head on", () => session.toggle(attention.name, state.head), {
        role: "switch",
        "aria-checked": String(!this.#off(tile)),
        class: "switch",
        disabled,
        title: why,
        "aria-label": `${partName(attention.name)}, head ${state.head + 1}`,
      }),
      button("Layer on", () => session.toggleLayer(layer), {
        role: "switch",
        "aria-checked": String(!session.layerOff(layer)),
        class: "switch",
        disabled,
        title: why,
        "aria-label": `${partName(layer)}, the whole layer`,
      }),
      why
        ? element("p", { class: "hint" }, why)
        : button("All on again", () => session.set({ off: "", layersOff: "" }), {
            disabled: !session.switched,
            class: "all-on",
          }),
    );
  }
}
