/** The three attentions of an encoder–decoder in one square: each side reads itself, the answer reads the source. */

import { Board } from "./board.js";
import { Card } from "./card.js";
import { checkbox } from "./dom.js";
import { aboveColumns, besideRows } from "./panel.js";
import { legendHeight, paintLegend, sharesOf } from "./scale.js";
import { ofHead, reader } from "./source.js";
import { capital, fit, number, partName, visible } from "./text.js";

export class Square {
  /** @param {import("./session.js").Session} session */
  constructor(session) {
    this.session = session;
    this.card = new Card(session, "square", "Three attentions in one square");
    this.mean = checkbox("Mean of all heads", (mean) => session.set({ mean }));
    this.card.controls.append(this.mean.root);
    this.board = new Board(
      "One square",
      {
        says: (cell) => this.#says(cell),
        picked: ({ panel, i, j }) => session.look({ part: panel.id, row: i, column: panel.slots + j, pinned: true }),
      },
      session,
    );
  }

  get root() {
    return this.card.root;
  }

  key(event) {
    this.board.key(event);
  }

  #says({ panel, i, j }) {
    if (panel.masked?.(i, j)) return "masked: a word may not read the words after it";
    const key = panel.slots + j;
    if (!this.session.state.mean) return this.session.reading(panel.attention, panel.head, i, key, panel.whole);
    const [queries, keys] = this.session.names(panel.attention);
    const who = `${partName(panel.id)}, mean of all heads`;
    return `${who}: “${queries[i]}” reads “${keys[key]}”, ${number(panel.at(i, j))}`;
  }

  /** The attention of a kind in the layer that is looked at, or in the nearest one that there is. */
  #nearest(kind) {
    const { attention, run } = this.session;
    const alike = (wanted) => run.attentions.filter((one) => one.kind === wanted);
    const own = alike(kind);
    return own[Math.min(alike(attention.kind).indexOf(attention), own.length - 1)];
  }

  async #panel(attention) {
    const { session } = this;
    const { mean, head: wanted } = session.state;
    const head = Math.min(wanted, attention.heads - 1);
    if (!mean) return { attention, head, tensor: await session.tensor(`${attention.name}.weights`, head) };
    const all = await session.tensor(`${attention.name}.weights`);
    const data = new Float32Array(all.shape[1] * all.shape[2]);
    for (let at = 0; at < all.shape[0]; at++) {
      const one = ofHead(all, at).data;
      for (let to = 0; to < data.length; to++) data[to] += one[to] / all.shape[0];
    }
    return { attention, head, tensor: { shape: all.shape.slice(1), axes: "LM", data } };
  }

  async update() {
    const { session } = this;
    const parts = ["self", "cross", "masked"].map((kind) => this.#nearest(kind));
    if (parts.some((part) => !part)) {
      this.card.say("One square holds the three attentions of an encoder–decoder; this model has one kind.");
      return;
    }
    const { state } = session;
    this.mean.input.checked = state.mean;
    const made = await Promise.all(parts.map((part) => this.#panel(part)));
    const causal = await session.mask(parts[2], made[2].head);
    if (state.head !== session.state.head || state.part !== session.state.part || state.mean !== session.state.mean)
      return;
    const [source, target] = ["source", "target"].map((side) => session.tokens(side).map(visible));
    const names = [...source, ...target];
    const beside = besideRows(names) + 22;
    const gap = 8;
    const room = this.card.width - beside - gap - 8 - aboveColumns(names, 10).behind;
    const cell = Math.max(1, Math.min(40, room / names.length));
    const above = aboveColumns(names, cell);
    const [x, y] = [beside, above.height + 24];
    const [x2, y2] = [x + source.length * cell + gap, y + source.length * cell + gap];
    const remembers = parts.some(({ memory }) => memory);
    const sums = `each row sums to 1${remembers ? " with what is read of memory" : ""}`;
    const scale = sharesOf(
      (function* all() {
        for (const { tensor } of made) yield* tensor.data;
      })(),
      names.length,
      sums,
    );
    const places = [
      [x, y, source, source],
      [x, y2, target, source],
      [x2, y2, target, target],
    ];
    const panels = made.map(({ attention, head, tensor }, at) => {
      const [left, top, rowNames, columnNames] = places[at];
      const [slots, whole] = [attention.memory ?? 0, reader(tensor)];
      return {
        id: attention.name,
        attention,
        head,
        x: left,
        y: top,
        cell: [cell, cell],
        rows: rowNames.length,
        columns: columnNames.length,
        slots,
        whole,
        at: (i, j) => whole(i, slots + j),
        scale,
        masked: at === 2 ? (i, j) => causal(i, slots + j) : undefined,
        rowNames: at === 2 ? undefined : rowNames,
        columnNames: at === 0 ? columnNames : undefined,
      };
    });
    const width = Math.ceil(Math.max(x2 + target.length * cell + above.behind + 8, Math.min(this.card.width, 430)));
    const height = Math.ceil(y2 + target.length * cell + legendHeight(width - 4, scale, { masked: true }));
    const layer = partName(parts[2].name.replace(/\.\w+$/, "")).replace("decoder", "layer");
    const who = state.mean ? "mean of all heads" : `head ${state.head + 1} of each attention`;
    this.card.hint.textContent = capital(
      `${layer}, ${who}. The encoder never sees the answer: that corner stays empty.` +
        (remembers ? " What is read of memory is left out." : ""),
    );
    this.card.body.replaceChildren(this.board.root);
    this.board.show({
      key: `${session.run.id}|${parts.map((part) => part.name)}|${state.mean ? "all" : state.head}`,
      width,
      height,
      panels,
      decorate: (pen) => this.#decorate(pen, { x, y, x2, y2, cell, source, target, width, scale }),
    });
    this.card.keep({
      title: `one square: ${layer}`,
      width,
      height,
      paint: (pen) => this.board.paint(pen),
      table: () => ({
        caption: `The three attentions, ${who}; ${sums}`,
        columns: ["attention", "reads", "is read", "weight"],
        rows: panels.flatMap((panel, at) =>
          places[at][2].flatMap((query, i) => places[at][3].map((key, j) => [panel.id, query, key, panel.at(i, j)])),
        ),
      }),
    });
  }

  #decorate(pen, { x, y, x2, y2, cell, source, target, width, scale }) {
    const { faint } = pen.theme;
    const wide = target.length * cell;
    const title = (words, left, top, turn = 0) =>
      pen.text(left, top, words, { size: 11, anchor: "middle", fill: faint, turn });
    title("encoder", 9, y + (source.length * cell) / 2, -90);
    title("decoder", 9, y2 + (target.length * cell) / 2, -90);
    pen.rect(x2, y, wide, source.length * cell, { stroke: faint, dash: [2, 4], width: 0.7 });
    if (wide > 90 && cell > 12) title("never seen", x2 + wide / 2, y + (source.length * cell) / 2);
    target.forEach((name, j) => {
      if (cell >= 13) pen.text(x2 + (j + 0.5) * cell, y - 8, fit(name, 112), { size: 12, turn: -45 });
    });
    paintLegend(pen, 4, y2 + target.length * cell, width, scale, { masked: true });
  }
}
