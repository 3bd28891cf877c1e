/** Attention of many tokens: a map of all rows, and beside it the lines of one. */

import { Board } from "./board.js";
import { element } from "./dom.js";
import { besideRows, headColour } from "./panel.js";
import { CanvasPen, screenTheme, sizeCanvas } from "./pen.js";
import { legendHeight, paintLegend, sharesOf } from "./scale.js";
import { fit, number } from "./text.js";

const FAN = 240;
const LARGEST = 14;
const TALLEST = 620;
const TOP = 34;

export class Fan {
  /** @param {import("./session.js").Session} session */
  constructor(session) {
    this.session = session;
    this.board = new Board(
      "Attention of all rows",
      {
        says: ({ i, j }) => this.reads.says(i, j),
        entered: ({ i }) => this.#draw(session.state.pinned ? session.state.row : i),
        left: () => this.#draw(session.state.row),
        moved: ({ i, j }) => session.look({ row: i, column: j }),
        picked: ({ i, j }) => session.look({ row: i, column: j, pinned: true }),
      },
      session,
    );
    this.lines = element("canvas", { "aria-hidden": "true" });
    this.root = element("div", { class: "side-by-side" }, this.board.root, this.lines);
  }

  key(event) {
    this.board.key(event);
  }

  /** @param {import("./pen.js").Pen} pen */
  paint(pen) {
    this.board.paint(pen);
  }

  /** @param {import("./reads.js").Reads} reads  @param {number} room */
  show(reads, room) {
    const { state, run } = this.session;
    const [rows, columns] = [reads.queries.length, reads.keys.length];
    const beside = besideRows(reads.queries);
    this.reads = reads;
    this.lines.hidden = room <= TALLEST;
    const w = Math.max(1, Math.min(LARGEST, (room - beside - (this.lines.hidden ? 0 : FAN) - 8) / columns));
    const h = Math.max(1, Math.min(LARGEST, TALLEST / rows, (w * columns) / rows));
    this.tall = h * rows;
    const panel = {
      id: "rows",
      x: beside,
      y: TOP,
      cell: [w, h],
      rows,
      columns,
      at: (i, j) => reads.mean(i, j),
      rowNames: reads.queries,
      scale: sharesOf(this.#all(reads), columns, `each row sums to 1, ${reads.who}`),
    };
    this.width = Math.ceil(Math.max(beside + w * columns + 8, Math.min(room, 420)));
    this.height = Math.ceil(TOP + this.tall + legendHeight(this.width - beside, panel.scale));
    this.board.show({
      key: `${run.id}|${reads.attention.name}|${reads.shown}`,
      width: this.width,
      height: this.height,
      panels: [panel],
      decorate: (pen) => paintLegend(pen, beside, TOP + this.tall, this.width, panel.scale),
      cursor: { panel, i: state.row, j: state.column },
    });
    this.#draw(state.row);
  }

  *#all(reads) {
    for (let i = 0; i < reads.queries.length; i++) for (let j = 0; j < reads.keys.length; j++) yield reads.mean(i, j);
  }

  /** The lines of one row, its keys spread over the height of the map; names where there is room for them. */
  #draw(row) {
    if (this.lines.hidden) return;
    const { reads } = this;
    const pen = new CanvasPen(sizeCanvas(this.lines, FAN, this.height), screenTheme());
    const y = (at, count) => TOP + ((at + 0.5) * this.tall) / count;
    const edges = reads.edges(row);
    for (const { head, j, weight, dim } of edges) {
      pen.curve(2, y(row, reads.queries.length), 120, y(j, reads.keys.length), {
        stroke: headColour(reads.shown[head]),
        width: 0.6 + 4 * weight,
        opacity: (0.3 + 0.7 * weight) * (dim ? 0.25 : 1),
      });
    }
    const taken = [];
    for (const { j } of edges.reverse()) {
      if (taken.length > this.tall / 15) break;
      const at = y(j, reads.keys.length);
      if (taken.some((other) => Math.abs(other - at) < 13)) continue;
      taken.push(at);
      pen.text(128, at, fit(reads.keys[j], 74));
      pen.text(FAN - 2, at, number(reads.mean(row, j), 2), { size: 11, anchor: "end", fill: pen.theme.faint });
    }
  }
}
