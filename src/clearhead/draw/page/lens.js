/** Each layer's guess: what the model would say if that layer were the last. */

import { Board } from "./board.js";
import { Card, orSay } from "./card.js";
import { Contributions } from "./contributions.js";
import { element } from "./dom.js";
import { besideRows } from "./panel.js";
import { fitted } from "./pen.js";
import { fromZero, legendHeight, paintLegend } from "./scale.js";
import { Shares } from "./shares.js";
import { Flow } from "./stream.js";
import { number, ordinal, partName, percent, quoted, visible } from "./text.js";

const SHORTEST_WORD = 24;

export class Lens {
  /** @param {import("./session.js").Session} session */
  constructor(session) {
    this.session = session;
    this.card = new Card(session, "lens", "Each layer's guess");
    this.card.hint.textContent =
      "Layers upwards, tokens across: the best word of each layer, with the final norm computed anew. " +
      "Click a cell to follow it.";
    this.board = new Board(
      "Each layer's guess",
      {
        says: ({ i, j }) => this.#says(this.#layer(i), j),
        moved: ({ i, j }) => session.set({ layer: this.#layer(i), position: j, word: "", against: "" }),
        picked: ({ i, j }) => session.set({ layer: this.#layer(i), position: j, word: "", against: "" }),
      },
      session,
    );
    this.guesses = element("div", { class: "guesses" });
    this.shares = new Shares(session);
    this.flow = new Flow(session);
    this.contributions = new Contributions(session);
    this.root = element(
      "div",
      { class: "stack" },
      this.card.root,
      this.shares.card.root,
      this.flow.card.root,
      this.contributions.card.root,
    );
  }

  key(event) {
    this.board.key(event);
  }

  #layer(i) {
    return this.lens.layers.length - 1 - i;
  }

  #says(layer, j) {
    const { best, rank, layers } = this.lens;
    const [first] = best[layer][j];
    const place = rank && this.wanted ? `; ${quoted(this.wanted[j])} is ${ordinal(rank[layer][j] + 1)}` : "";
    const guess = `${quoted(first.token)} ${number(first.probability)}`;
    return `${partName(layers[layer])}, at “${this.tokens[j]}”: ${guess}${place}`;
  }

  async update() {
    const { session } = this;
    const { run } = session;
    const lens = await orSay(session, this.card, () => session.ask((id) => session.source.lens(id)));
    if (run.id !== session.run.id && run !== session.run) return;
    this.tokens = session.tokens(lens?.side ?? session.side).map(visible);
    const position = this.#position();
    if (lens) this.#show(lens, position);
    else this.shares.card.say("Without a guess above there is no word to take apart.");
    await Promise.all([
      lens && this.shares.update(lens, position),
      this.flow.update(position),
      this.contributions.update(),
    ]);
  }

  #show(lens, position) {
    const { session } = this;
    this.lens = lens;
    this.wanted = session.run.predicts?.tokens;
    const layer =
      session.state.layer < 0 ? lens.layers.length - 1 : Math.min(session.state.layer, lens.layers.length - 1);
    this.#showBoard(layer, position);
    this.#showGuesses(layer, position);
  }

  /** Beside the map stand the words of one cell, where there is room for both. */
  get #room() {
    return this.card.width - (innerWidth > 1060 ? 236 : 0);
  }

  #position() {
    const { position } = this.session.state;
    return position < 0 ? this.tokens.length - 1 : Math.min(position, this.tokens.length - 1);
  }

  #showBoard(layer, position) {
    const { lens, tokens, wanted } = this;
    const names = lens.layers.map(partName).reverse();
    const label = Math.max(besideRows(names), 76);
    const w = Math.max(2, Math.min(110, (this.#room - label - 4) / tokens.length));
    const h = 34;
    const top = wanted ? 30 : 6;
    const at = (i, j) => lens.best[this.#layer(i)][j][0];
    const panel = {
      id: "lens",
      x: label,
      y: top,
      cell: [w, h],
      rows: names.length,
      columns: tokens.length,
      rowNames: names,
      at: (i, j) => at(i, j).probability,
      words: w >= SHORTEST_WORD ? (i, j) => visible(at(i, j).token) : undefined,
      scale: fromZero([1], "probability of the best word; each cell's words sum to 1"),
    };
    const low = top + h * names.length;
    const width = Math.ceil(Math.max(label + w * tokens.length + 4, Math.min(this.#room, 420)));
    const height = low + 24 + legendHeight(width - 4, panel.scale);
    this.card.body.replaceChildren(element("div", { class: "with-aside" }, this.board.root, this.guesses));
    this.board.show({
      key: `${this.session.run.id}`,
      width,
      height,
      panels: [panel],
      cursor: { panel, i: names.length - 1 - layer, j: position },
      decorate: (pen) => {
        const { faint } = pen.theme;
        const row = (list, y) =>
          list.forEach((token, j) =>
            fitted(pen, label + (j + 0.5) * w, y, w - 4, visible(token), { anchor: "middle" }),
          );
        paintLegend(pen, 4, low + 22, width, panel.scale);
        if (w < SHORTEST_WORD) return;
        row(tokens, low + 14);
        pen.text(label - 6, low + 14, "reads", { size: 11, anchor: "end", fill: faint });
        if (wanted) {
          row(wanted, 14);
          pen.text(label - 6, 14, "to say", { size: 11, anchor: "end", fill: faint });
        }
      },
    });
    this.card.keep({
      title: "each layer's guess",
      width,
      height,
      paint: (pen) => this.board.paint(pen),
      table: () => ({
        caption: "The best word of each layer at each token, with its probability",
        columns: ["layer", "token", "best word", "probability", "rank of what is to be said"],
        rows: lens.layers.flatMap((name, l) =>
          tokens.map((token, j) => [
            name,
            token,
            visible(lens.best[l][j][0].token),
            lens.best[l][j][0].probability,
            lens.rank ? lens.rank[l][j] + 1 : "",
          ]),
        ),
      }),
    });
  }

  /** The words of one cell, and how the layer changed them. */
  #showGuesses(layer, j) {
    const { best, moved, layers } = this.lens;
    const here = best[layer][j];
    const moves = moved[layer]?.[j];
    const list = (words) =>
      element(
        "ul",
        {},
        ...words.map(({ token, by }) =>
          element(
            "li",
            {},
            element("span", {}, visible(token)),
            element("small", {}, `${by > 0 ? "+" : "−"}${percent(Math.abs(by))}`),
          ),
        ),
      );
    const bars = here.slice(0, 6).map(({ token, probability }) => {
      const bar = element("i", { class: "share" });
      bar.style.width = `${100 * probability}%`;
      return element("li", {}, element("span", {}, visible(token)), element("small", {}, percent(probability)), bar);
    });
    this.guesses.replaceChildren(
      element("h3", {}, `${partName(layers[layer])} at “${this.tokens[j]}”`),
      element("ol", { class: "ranked" }, ...bars),
      ...(moves
        ? [
            element("h4", {}, "Promoted here"),
            list(moves.promoted),
            element("h4", {}, "Suppressed here"),
            list(moves.suppressed),
          ]
        : []),
    );
  }
}
