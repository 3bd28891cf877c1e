/** The results of all heads side by side, which W^O makes one vector of. */

import { Board } from "./board.js";
import { Card, matrixTable } from "./card.js";
import { PALETTE } from "./palette.js";
import { besideRows, headColour } from "./panel.js";
import { aroundZero, paintLegend } from "./scale.js";
import { number, widthOf } from "./text.js";

const MOST_QUERIES = 40;

export class Together {
  /** @param {import("./session.js").Session} session */
  constructor(session, hooks) {
    this.card = new Card(session, "together", "All heads together");
    this.card.hint.textContent = "The results of all heads side by side, and what Wᴼ makes of them.";
    this.board = new Board("All heads together", hooks, session);
  }

  update({ attention, head, tensors: { all, output }, queries, row, reached, key }) {
    const [count, length, deep] = all.shape;
    const rows = length > MOST_QUERIES ? [row] : [...queries.keys()];
    const names = rows.map((i) => queries[i]);
    const label = besideRows(names);
    const size = output.shape.at(-1);
    const room = this.card.width - label - 60;
    const c = Math.max(0.6, Math.min(6, room / (count * deep + size)));
    const h = rows.length > 1 ? 18 : 26;
    const right = label + c * count * deep + 50;
    const atAll = (i, j) => all.data[(Math.floor(j / deep) * length + rows[i]) * deep + (j % deep)];
    const atOut = (i, j) => output.data[rows[i] * size + j];
    const look = (i) => ({ row: rows[i] });
    const shared = { y: 30, cell: [c, h], rows: rows.length, empty: !reached("output"), looks: look };
    const panels = [
      {
        ...shared,
        id: "heads",
        x: label,
        columns: count * deep,
        at: atAll,
        scale: aroundZero(all.data, "around zero"),
        rowNames: names,
        place: (i, j) => ({
          tap: `${attention.name}.heads`,
          head: Math.floor(j / deep),
          row: rows[i],
          column: j % deep,
        }),
        tells: (i, j) =>
          `z of head ${Math.floor(j / deep) + 1} for “${names[i]}”, ` +
          `number ${(j % deep) + 1}: ${number(atAll(i, j))}`,
      },
      {
        ...shared,
        id: "output",
        x: right,
        columns: size,
        at: atOut,
        scale: aroundZero(output.data, "around zero"),
        colour: PALETTE.roles.output.colour,
        place: (i, j) => ({ tap: `${attention.name}.output`, head: null, row: rows[i], column: j }),
        tells: (i, j) => `output for “${names[i]}”, number ${j + 1} of ${size}: ${number(atOut(i, j))}`,
      },
    ];
    const width = Math.ceil(right + c * size + 8);
    const low = 30 + h * rows.length;
    const height = low + 38;
    this.card.body.replaceChildren(this.board.root);
    this.board.show({
      key: `${key}|${rows.length === 1 ? row : ""}`,
      width,
      height,
      panels,
      decorate: (pen) => {
        for (let at = 0; at < count; at++) {
          const x = label + at * deep * c;
          pen.rect(x, 24, deep * c - 1.5, 3, { fill: headColour(at) });
          const words = deep * c > 48 ? `head ${at + 1}` : String(at + 1);
          if (widthOf(words, 11) < deep * c)
            pen.text(x + (deep * c) / 2, 13, words, { size: 11, anchor: "middle", weight: at === head ? 700 : 400 });
        }
        pen.text(right - 25, 30 + (h * rows.length) / 2, "Wᴼ →", { anchor: "middle", size: 13, weight: 700 });
        pen.text(right, 13, "output", { size: 11, weight: 700 });
        paintLegend(pen, 4, low, Infinity, panels[0].scale, { what: "heads" });
      },
    });
    this.card.keep({
      title: `${attention.name}: all heads together`,
      width,
      height,
      paint: (pen) => this.board.paint(pen),
      table: (whole) =>
        matrixTable(
          {
            caption: "Output of the attention",
            rowNames: names,
            columnNames: Array.from({ length: size }, (_, at) => String(at + 1)),
            at: atOut,
            corner: "token",
            row: 0,
          },
          whole,
        ),
    });
  }
}
