/** The attention view: lines, one matrix, one square, or the atlas; and the bar that says where one is. */

import { Atlas } from "./atlas.js";
import { Compare } from "./compare.js";
import { button, choices, dropdown, element } from "./dom.js";
import { Lines } from "./lines.js";
import { Matrix } from "./matrix.js";
import { headColour } from "./panel.js";
import { Square } from "./square.js";
import { partName } from "./text.js";

export class AttentionView {
  /** @param {import("./session.js").Session} session */
  constructor(session) {
    this.session = session;
    this.modes = {
      lines: new Lines(session),
      matrix: new Matrix(session),
      square: new Square(session),
      atlas: new Atlas(session),
    };
    this.compare = new Compare(session);
    this.mode = choices(
      "mode",
      "How attention is shown",
      [
        ["lines", "Lines"],
        ["matrix", "Matrix"],
        ["square", "One square"],
        ["atlas", "Atlas"],
      ],
      (mode) => session.set({ mode }),
    );
    this.stage = element("div", { class: "stack" });
    this.root = element("div", { class: "stack" }, this.mode.root, this.stage);
  }

  get #current() {
    return this.modes[this.session.state.mode] ?? this.modes.lines;
  }

  key(event) {
    this.#current.key(event);
  }

  async update() {
    const { session } = this;
    this.mode.set(session.state.mode, session.model.mode === "encoder-decoder" ? [] : ["square"]);
    const shown = session.state.mode === "atlas" ? [this.compare, this.#current] : [this.#current];
    const roots = shown.map(({ root }) => root);
    if (roots.length !== this.stage.children.length || roots.some((root, at) => root !== this.stage.children[at]))
      this.stage.replaceChildren(...roots);
    for (const part of shown) await part.update();
  }
}

/** Where one is: model, layer, part, head, cell; and the way to another. */
export class PlaceBar {
  /** @param {import("./session.js").Session} session  @param {HTMLElement} root */
  constructor(session, root) {
    this.session = session;
    this.crumbs = element("ol", { class: "crumbs" });
    this.part = dropdown("Attention", (part) => session.look({ part, shown: "" }));
    this.chips = element("div", { class: "chips", role: "group", "aria-label": "Heads" });
    root.append(
      element("nav", { "aria-label": "Where you are" }, this.crumbs),
      element("div", { class: "chooser" }, this.part.root, this.chips),
    );
    this.root = root;
  }

  update() {
    const { session } = this;
    const { state, attention, model, run } = session;
    this.root.hidden = state.view === "positions" || state.view === "decoding";
    const [layer, name] = partName(attention.name).split(" · ");
    const words = session.names(attention).map((names, at) => names[at ? state.column : state.row]);
    const stops = [
      [model.name, "All heads of the model", { view: "attention", mode: "atlas" }],
      [layer, "This layer in the atlas", { view: "attention", mode: "atlas", sort: "model" }],
      [name ?? layer, "All heads of this attention", { view: "attention", mode: "lines", shown: "" }],
      [
        `head ${state.head + 1}`,
        "This head as a matrix",
        { view: "attention", mode: "matrix", shown: String(state.head) },
      ],
      [`${words[0]} → ${words[1]}`, "This cell in the six steps", { view: "steps", shown: String(state.head) }],
    ];
    this.crumbs.replaceChildren(
      ...stops.map(([label, title, to]) =>
        element(
          "li",
          {},
          button(label, () => session.look(to), { title }),
        ),
      ),
    );
    this.part.set(
      run.attentions.map((one) => [one.name, partName(one.name)]),
      attention.name,
    );
    this.#showChips(state.view === "attention" && state.mode === "lines");
  }

  #showChips(many) {
    const { session } = this;
    const { attention, state } = session;
    const shown = state.shown ? state.shown.split(",").map(Number) : [...Array(attention.heads).keys()];
    const off = session.offIn(attention.name);
    const chips = Array.from({ length: attention.heads }, (_, head) => {
      const pressed = many ? shown.includes(head) : head === state.head;
      const dot = element("i", { class: "dot" });
      dot.style.background = headColour(head);
      const chip = button("", () => this.#press(head, many, shown), {
        class: `chip${off.includes(head) ? " off" : ""}`,
        "aria-pressed": String(pressed),
        "aria-label": `Head ${head + 1}${off.includes(head) ? ", switched off" : ""}`,
      });
      chip.append(dot, String(head + 1));
      return chip;
    });
    const all = button("All", () => session.look({ shown: "" }), {
      class: "chip",
      "aria-pressed": String(state.shown === ""),
      "aria-label": "All heads",
    });
    this.chips.replaceChildren(...(many ? [all] : []), ...chips);
  }

  /** Among all, a press picks one; after that presses add and take away. */
  #press(head, many, shown) {
    if (!many || this.session.state.shown === "") {
      this.session.look({ head, shown: String(head) });
      return;
    }
    const next = shown.includes(head) ? shown.filter((one) => one !== head) : [...shown, head].sort((a, b) => a - b);
    this.session.look(
      next.length ? { head: next.includes(head) ? head : next[0], shown: next.join(",") } : { shown: "" },
    );
  }
}
