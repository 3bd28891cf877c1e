/** One head as a matrix: rows read, columns are read. */

import { Board } from "./board.js";
import { Card, matrixTable } from "./card.js";
import { element } from "./dom.js";
import { aboveColumns, besideRows } from "./panel.js";
import { legendHeight, paintLegend, sharesOf } from "./scale.js";
import { placeWord, reader } from "./source.js";
import { number, partName } from "./text.js";

const LARGEST_CELL = 60;
const MOST_READ = 10;

export class Matrix {
  /** @param {import("./session.js").Session} session */
  constructor(session) {
    this.session = session;
    this.card = new Card(session, "matrix", "One head as a matrix");
    this.board = new Board(
      "Attention matrix",
      {
        says: ({ i, j }) => this.#says(i, j),
        entered: ({ i }) => this.#showRow(i),
        left: () => this.#showRow(session.state.row),
        moved: ({ i, j }) => session.look({ row: i, column: j }),
        picked: ({ i, j }) => {
          const place = { tap: `${this.attention.name}.weights`, head: this.head, row: i, column: j };
          session.look({ row: i, column: j, pinned: true, cell: placeWord(place) });
        },
      },
      session,
    );
    this.row = element("div", { class: "guesses", "aria-hidden": "true" });
  }

  get root() {
    return this.card.root;
  }

  key(event) {
    this.board.key(event);
  }

  /** The row under the pointer, the heaviest keys first. */
  #showRow(i) {
    if (i === this.rowShown?.i && this.at === this.rowShown.at) return;
    this.rowShown = { i, at: this.at };
    const order = [...this.keys.keys()].filter((j) => !this.masked(i, j)).sort((a, b) => this.at(i, b) - this.at(i, a));
    this.row.replaceChildren(
      element("h3", {}, `“${this.queries[i]}” reads`),
      element(
        "ol",
        { class: "ranked" },
        ...order.slice(0, MOST_READ).map((j) => {
          const bar = element("i", { class: "share" });
          bar.style.width = `${100 * this.at(i, j)}%`;
          return element("li", {}, element("span", {}, this.keys[j]), element("small", {}, number(this.at(i, j))), bar);
        }),
      ),
    );
  }

  #says(i, j) {
    if (this.masked(i, j)) {
      return `“${this.queries[i]}” may not read “${this.keys[j]}”: masked`;
    }
    return this.session.reading(this.attention, this.head, i, j, this.at);
  }

  async update() {
    const { session } = this;
    const { attention, state } = session;
    const weights = await session.tensor(`${attention.name}.weights`, state.head);
    const masked = await session.mask(attention, state.head);
    if (attention !== session.attention || state.head !== session.state.head) return;
    const [queries, keys] = session.names(attention);
    Object.assign(this, { attention, head: state.head, queries, keys, masked, at: reader(weights) });
    this.#showRow(session.state.row);
    this.card.hint.textContent =
      `${partName(attention.name)}, head ${state.head + 1}. Rows read, columns are read; ` +
      "click a cell to see where it comes from.";
    const beside = besideRows(queries);
    const whole = this.card.width - (innerWidth > 1060 ? 236 : 0);
    const room = whole - beside - 8;
    const cell = Math.max(1, Math.min(LARGEST_CELL, (room - aboveColumns(keys, 10).behind) / keys.length));
    const above = aboveColumns(keys, cell);
    const hidden = attention.kind === "masked" || queries.some((_, i) => masked(i, keys.length - 1));
    const panel = {
      id: "weights",
      x: beside,
      y: above.height + 4,
      cell: [cell, cell],
      rows: queries.length,
      columns: keys.length,
      at: this.at,
      scale: sharesOf(weights.data, keys.length),
      masked: hidden ? masked : undefined,
      rowNames: queries,
      columnNames: keys,
      rowDim: session.special(attention.queries),
      columnDim: session.specialKeys(attention),
    };
    const width = Math.ceil(Math.max(beside + cell * keys.length + above.behind + 8, Math.min(whole, 400)));
    const legend = Math.min(beside, 24);
    const height = Math.ceil(
      panel.y + cell * queries.length + legendHeight(width - legend, panel.scale, { masked: hidden }),
    );
    this.card.body.replaceChildren(element("div", { class: "with-aside" }, this.board.root, this.row));
    this.board.show({
      key: `${session.run.id}|${attention.name}|${state.head}`,
      width,
      height,
      panels: [panel],
      cursor: { panel, i: state.row, j: state.column },
      decorate: (pen) =>
        paintLegend(pen, legend, panel.y + cell * queries.length, width, panel.scale, { masked: hidden }),
    });
    this.card.keep({
      title: `${attention.name}, head ${state.head + 1}`,
      width,
      height,
      paint: (pen) => this.board.paint(pen),
      table: (whole) =>
        matrixTable(
          {
            caption: `${partName(attention.name)}, head ${state.head + 1}: weights, each row sums to 1`,
            rowNames: queries,
            columnNames: keys,
            at: this.at,
            corner: "reads ↓",
            row: state.row,
          },
          whole,
        ),
    });
  }
}
