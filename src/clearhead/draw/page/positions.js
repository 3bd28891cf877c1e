/** Where a token stands, as this model knows it: its own table, bias or rotation. */

import { Board } from "./board.js";
import { Card, matrixTable } from "./card.js";
import { dropdown, element } from "./dom.js";
import { besideRows } from "./panel.js";
import { aroundZero, legendHeight, paintLegend } from "./scale.js";
import { ofHead, reader } from "./source.js";
import { number } from "./text.js";

const COUNT = 64;
const SAYS = {
  table: "One row for each position, added to the token's vector.",
  bias: "Added to the score of a query (row) and a key (column), for each head.",
  rotation: "The angle by which queries and keys are turned at each position.",
};

export class Positions {
  /** @param {import("./session.js").Session} session */
  constructor(session) {
    this.session = session;
    this.card = new Card(session, "positions", "Positions");
    this.head = dropdown("Head", (value) => session.set({ positionHead: Number(value) }));
    this.field = element("label", { class: "field" }, element("span", {}, "Head"), this.head.root);
    this.card.controls.append(this.field);
    this.board = new Board(
      "Positions",
      {
        says: ({ i, j }) => this.says(i, j),
        picked: ({ i, j }) => session.hooks.said(this.says(i, j)),
      },
      session,
    );
    this.root = element("div", { class: "stack" }, this.card.root);
  }

  key(event) {
    this.board.key(event);
  }

  async update() {
    const { session } = this;
    const { about, tensor } = await session.source.positions(Math.min(COUNT, session.model.longest));
    const kind = about.kind.replace(/_/g, " ");
    this.card.title.textContent = `Positions: ${kind}`;
    this.field.hidden = tensor?.shape.length !== 3;
    if (!tensor) {
      this.card.hint.textContent = "";
      this.card.say("This model is not told where a token stands.");
      return;
    }
    const heads = tensor.shape.length === 3 ? tensor.shape[0] : 1;
    const head = Math.min(session.state.positionHead, heads - 1);
    this.head.set(
      Array.from({ length: heads }, (_, at) => [String(at), String(at + 1)]),
      String(head),
    );
    const own = ofHead(tensor, head);
    const at = reader(own);
    const [rows, columns] = own.shape;
    const across = about.axes.endsWith("M") ? "key" : "dimension";
    this.says = (i, j) => `position ${i}, ${across} ${j}: ${number(at(i, j))}`;
    const names = Array.from({ length: rows }, (_, i) => String(i));
    const label = besideRows(names) + 14;
    const w = Math.max(0.5, Math.min(16, (this.card.width - label - 6) / columns));
    const h = Math.max(2, Math.min(16, 560 / rows));
    const panel = {
      id: "positions",
      x: label,
      y: 26,
      cell: [w, h],
      rows,
      columns,
      at,
      rowNames: names,
      scale: aroundZero(own.data, "the model's own values, around zero"),
    };
    const width = Math.ceil(Math.max(label + w * columns + 6, Math.min(this.card.width, 400)));
    const height = Math.ceil(26 + h * rows + legendHeight(width - 4, panel.scale));
    this.card.hint.textContent = SAYS[about.what] ?? "";
    this.card.body.replaceChildren(this.board.root);
    this.board.show({
      key: `${about.kind}|${head}|${rows}|${columns}`,
      width,
      height,
      panels: [panel],
      decorate: (pen) => {
        const { faint } = pen.theme;
        pen.text(label, 13, `${across} 0 … ${columns - 1}`, { size: 11, fill: faint });
        pen.text(8, 26 + (h * rows) / 2, "position", { size: 11, anchor: "middle", fill: faint, turn: -90 });
        paintLegend(pen, 4, 26 + h * rows, width, panel.scale);
      },
    });
    this.card.keep({
      title: `positions: ${kind}`,
      width,
      height,
      paint: (pen) => this.board.paint(pen),
      table: (whole) =>
        matrixTable(
          {
            caption: `Positions: ${kind}`,
            rowNames: names,
            columnNames: Array.from({ length: columns }, (_, j) => String(j)),
            at,
            corner: "position",
            row: this.board.cursor?.i ?? 0,
          },
          whole,
        ),
    });
  }
}
