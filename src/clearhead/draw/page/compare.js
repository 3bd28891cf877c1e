/** Before and after: what switching heads off does to the text, the loss and each layer's guess. */

import { Board } from "./board.js";
import { Card } from "./card.js";
import { element } from "./dom.js";
import { aboveColumns, besideRows } from "./panel.js";
import { fromZero, legendHeight, paintLegend } from "./scale.js";
import { Refusal } from "./source.js";
import { number, partName, plural, quoted, visible } from "./text.js";

export class Compare {
  /** @param {import("./session.js").Session} session */
  constructor(session) {
    this.session = session;
    this.card = new Card(session, "compare", "Before and after");
    this.board = new Board(
      "Each layer's guess, before and after",
      {
        says: ({ panel, i, j }) => panel.tells(i, j),
        picked: ({ panel, i, j }) => session.hooks.said(panel.tells(i, j)),
      },
      session,
    );
    this.texts = element("div", { class: "before-after" });
  }

  get root() {
    return this.card.root;
  }

  /** The text that a run gives: a translation, or for a language model what it would write on. */
  async #text(run, off, layersOff) {
    if (run.answer !== null) return run.answer;
    if (!this.session.model.writes) return null;
    const decoded = await this.session.source.decode({
      text: run.text,
      forced: [],
      longest: 16,
      temperature: 1,
      top_k: 0,
      top_p: 1,
      min_p: 0,
      off,
      layers_off: layersOff,
      beams: 1,
    });
    return decoded.answer;
  }

  async #lens(run) {
    try {
      return await this.session.ask((id) => this.session.source.lens(id), run);
    } catch (error) {
      if (error instanceof Refusal) return null;
      throw error;
    }
  }

  async update() {
    const { session } = this;
    this.root.hidden = !session.switched || session.run === session.base;
    if (this.root.hidden) return;
    const { run, base } = session;
    const [before, after] = await Promise.all([this.#text(base, {}, []), this.#text(run, run.off, run.layers_off)]);
    const lenses = await Promise.all([this.#lens(base), this.#lens(run)]);
    if (run !== session.run || base !== session.base) return;
    const heads = Object.values(run.off).reduce((sum, list) => sum + list.length, 0);
    const what = [
      heads ? `${plural(heads, "head")} off` : "",
      run.layers_off.length ? `${plural(run.layers_off.length, "layer")} off` : "",
    ];
    const name = what.filter(Boolean).join(", ");
    this.card.hint.textContent = [
      ...Object.entries(run.off).map(([part, list]) => `${partName(part)}: ${list.map((head) => head + 1).join(", ")}`),
      ...run.layers_off.map(partName),
    ].join(" · ");
    this.texts.replaceChildren(
      this.#column("Everything on", base, before, null),
      this.#column(name, run, after, before),
    );
    this.card.body.replaceChildren(this.texts);
    const boards = this.#panels(lenses, ["everything on", name]);
    if (boards) this.card.body.append(this.board.root);
    const rows = [
      ["text", before ?? "", after ?? ""],
      ["loss", base.predicts?.loss ?? "", run.predicts?.loss ?? ""],
    ];
    this.card.keep({
      title: `before and after: ${name}`,
      width: boards?.width ?? 400,
      height: boards?.height ?? 40,
      paint: (pen) => this.board.paint(pen),
      table: () => ({ caption: "Before and after", columns: ["", "everything on", name], rows }),
    });
  }

  /** One text with its loss; words that differ from the other's are marked. */
  #column(name, run, text, other) {
    const words = (text ?? "").split(" ");
    const old = (other ?? text ?? "").split(" ");
    const said = words.flatMap((word, at) => [at ? " " : "", word === old[at] ? word : element("mark", {}, word)]);
    const known = typeof run.predicts?.loss === "number";
    const loss = known ? `loss ${number(run.predicts.loss)}` : "";
    return element(
      "div",
      {},
      element("h3", {}, name),
      text === null ? null : element("p", { class: "said" }, ...said),
      element("p", { class: "hint" }, loss),
    );
  }

  #panels(lenses, titles) {
    if (lenses.some((lens) => !lens)) return null;
    const sides = lenses.map((lens, at) =>
      (at ? this.session.run : this.session.base).sides[lens.side].tokens.map(visible),
    );
    const layers = lenses[0].layers.map(partName).reverse();
    const label = besideRows(layers);
    const beside = this.card.width > 700;
    const longest = Math.max(...sides.map((side) => side.length));
    const room = (beside ? (this.card.width - 24) / 2 : this.card.width) - label - 60;
    const w = Math.max(3, Math.min(76, room / longest));
    const above = aboveColumns(sides.flat(), w);
    const [h, top] = [22, above.height + 22];
    const tall = top + layers.length * h + 10;
    const panels = lenses.map((lens, at) => {
      const best = (i, j) => lens.best[layers.length - 1 - i][j][0];
      const [across, down] = beside ? [(this.card.width - 24) / 2 + 24, 0] : [0, tall];
      return {
        id: titles[at],
        x: label + at * across,
        y: top + at * down,
        cell: [w, h],
        rows: layers.length,
        columns: sides[at].length,
        rowNames: layers,
        columnNames: sides[at],
        at: (i, j) => best(i, j).probability,
        scale: fromZero([1], "probability of each layer's best word"),
        words: (i, j) => visible(best(i, j).token),
        tells: (i, j) => {
          const { token, probability } = best(i, j);
          return `${titles[at]}, ${layers[i]}, at “${sides[at][j]}”: ${quoted(token)} ${number(probability)}`;
        },
      };
    });
    const width = this.card.width;
    const low = beside ? tall : 2 * tall;
    const height = low + legendHeight(width - 4, panels[0].scale);
    this.board.show({
      key: `${this.session.base.id}|${this.session.run.id}`,
      width,
      height,
      panels,
      decorate: (pen) => {
        panels.forEach((panel, at) => pen.text(panel.x, panel.y - top + 10, titles[at], { weight: 700, size: 12 }));
        paintLegend(pen, 4, low - 10, width, panels[0].scale);
      },
    });
    return { width, height };
  }
}
