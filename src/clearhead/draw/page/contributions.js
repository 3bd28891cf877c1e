/** Attention beside what it brings: the length of what was moved from each token to each other. */

import { Board } from "./board.js";
import { Card, matrixTable, orSay } from "./card.js";
import { button } from "./dom.js";
import { aboveColumns, besideRows } from "./panel.js";
import { legendHeight, paintLegend, sharesOf } from "./scale.js";
import { number, partName } from "./text.js";

const MANY_TOKENS = 160;
const TITLE = 200; // pixels of the longer title

/** The run whose contributions were asked for in spite of its length. */
let wanted = "";

/**
 * What moved from token to token in the whole model; of a long text only when the reader asks for it.
 * @param {import("./session.js").Session} session  @param {Card} card
 */
export async function contributionsOf(session, card) {
  const tokens = Math.max(...Object.values(session.run.sides).map((side) => side.tokens.length));
  if (tokens > MANY_TOKENS && wanted !== session.run.id && session.source.live) {
    const compute = button(`Compute it for ${tokens} tokens`, () => {
      wanted = session.run.id;
      session.hooks.redraw();
    });
    card.say("This moves many numbers: the whole model's, for every pair of tokens.");
    card.body.append(compute);
    return null;
  }
  return orSay(session, card, () => session.ask((id) => session.source.contributions(id)));
}

export class Contributions {
  /** @param {import("./session.js").Session} session */
  constructor(session) {
    this.session = session;
    this.card = new Card(session, "contributions", "What is read, and what it brings");
    this.card.hint.textContent =
      "A token may be read much and bring little: its value vector is small. Both maps have rows that sum to 1.";
    this.board = new Board(
      "Attention and contribution",
      {
        says: ({ panel, i, j }) => panel.tells(i, j),
        picked: ({ i, j }) => session.look({ row: i, column: j }),
      },
      session,
    );
  }

  async update() {
    const { session } = this;
    const { attention } = session;
    const answer = await contributionsOf(session, this.card);
    const norms = answer?.norms[attention.name];
    if (answer && !norms) this.card.say(`Nothing was recorded of what ${partName(attention.name)} brings.`);
    if (!norms) return;
    const all = await session.tensor(`${attention.name}.weights`);
    const [count, rows, columns] = all.shape;
    const mean = (i, j) => {
      let sum = 0;
      for (let head = 0; head < count; head++) sum += all.data[(head * rows + i) * columns + j];
      return sum / count;
    };
    const totals = norms.map((row) => row.reduce((sum, value) => sum + value, 0) || 1);
    const brings = (i, j) => norms[i][j] / totals[i];
    const [queries, keys] = session.names(attention);
    const beside = besideRows(queries);
    const apart = this.card.width > 640;
    const half = apart ? (this.card.width - beside - 40) / 2 : this.card.width - beside - 8;
    const cell = Math.max(1, Math.min(34, (half - aboveColumns(keys, 10).behind) / keys.length));
    const above = aboveColumns(keys, cell);
    const top = above.height + 24;
    const tall = top + cell * rows + 8;
    const flat = (at) => queries.flatMap((_, i) => keys.map((__, j) => at(i, j)));
    const make = (id, title, at, x, y, rowNames) => ({
      id,
      x,
      y,
      cell: [cell, cell],
      rows,
      columns,
      at,
      scale: sharesOf(flat(at), columns),
      rowNames,
      columnNames: keys,
      title,
      tells: (i, j) => `${title}: “${queries[i]}” from “${keys[j]}”, ${number(at(i, j))}`,
    });
    const first = Math.max(cell * keys.length + above.behind, TITLE); // wide enough for what stands above it
    const second = apart ? [beside + first + 30, top] : [beside, tall + top];
    const panels = [
      make("attention", "attention, mean of the heads", mean, beside, top, queries),
      make("brings", "contribution", brings, ...second, apart ? undefined : queries),
    ];
    const width = Math.ceil(
      Math.max(second[0] + cell * keys.length + above.behind + 8, Math.min(this.card.width, 420)),
    );
    const low = apart ? tall : 2 * tall;
    const height = Math.ceil(low + legendHeight(width - 4, panels[0].scale));
    this.card.title.textContent = `What is read, and what it brings: ${partName(attention.name)}`;
    this.card.body.replaceChildren(this.board.root);
    this.board.show({
      key: `${session.run.id}|${attention.name}`,
      width,
      height,
      panels,
      related: ({ i, j }) =>
        panels.flatMap((panel) => [
          [panel, i, null],
          [panel, null, j],
        ]),
      decorate: (pen) => {
        for (const panel of panels) pen.text(panel.x, panel.y - top + 10, panel.title, { weight: 700, size: 12 });
        paintLegend(pen, 4, low - 8, width, panels[0].scale);
      },
    });
    this.card.keep({
      title: `contribution of ${attention.name}`,
      width,
      height,
      paint: (pen) => this.board.paint(pen),
      table: (whole) =>
        matrixTable(
          {
            caption: `Contribution, ${partName(attention.name)}; each row sums to 1`,
            rowNames: queries,
            columnNames: keys,
            at: brings,
            corner: "to ↓",
            row: session.state.row,
          },
          whole,
        ),
    });
  }
}
