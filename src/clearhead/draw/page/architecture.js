/** The model as the way in: encoder left, decoder right, every part a button. */

import { element, svgElement } from "./dom.js";
import { fit, partName, visible } from "./text.js";

const NAMES = {
  self: "self-attention",
  masked: "masked attention",
  cross: "cross-attention",
  feedforward: "feed-forward",
};
const [BOX, GAP_BETWEEN, FOLDED] = [25, 7, 22];
const UNFOLDED_LAYERS = 6;

export class Architecture {
  /** @param {import("./session.js").Session} session  @param {HTMLElement} root */
  constructor(session, root) {
    this.session = session;
    this.root = root;
  }

  /** A box that can be pressed. */
  #button({ x, y, width, height, words, label, kind, pressed, press, size = 12 }) {
    const node = svgElement(
      "g",
      {
        class: `part ${kind}`,
        role: "button",
        tabindex: 0,
        "aria-label": label,
        "aria-pressed": String(Boolean(pressed)),
        click: press,
        keydown: (event) => {
          if (event.key !== "Enter" && event.key !== " ") return;
          event.preventDefault();
          press();
        },
      },
      svgElement("title", {}, label),
      svgElement("rect", { x, y, width, height, rx: 5 }),
      svgElement(
        "text",
        {
          x: x + width / 2,
          y: y + height / 2,
          "text-anchor": "middle",
          "dominant-baseline": "central",
          "font-size": size,
        },
        fit(words, width - 6, size),
      ),
    );
    this.svg.append(node);
    return node;
  }

  update() {
    const { model, state } = this.session;
    const focused = document.activeElement?.closest?.("#architecture [role=button]")?.getAttribute("aria-label");
    const towers = model.stacks.length;
    const width = towers > 1 ? 272 : 230;
    const wide = towers > 1 ? 108 : 180;
    const current = state.part.replace(/\.\w+$/, "");
    const folded = model.stacks.some(({ layers }) => layers.length > UNFOLDED_LAYERS);
    const heights = model.stacks.map((stack) => this.#height(stack, folded ? current : null));
    const height = Math.max(...heights) + 8;
    this.svg = svgElement("svg", {
      viewBox: `0 0 ${width} ${height}`,
      width,
      height,
      role: "group",
      "aria-label": "Architecture",
    });
    this.crossings = [];
    const tops = model.stacks.map((stack, at) =>
      this.#tower(stack, {
        x: towers > 1 ? 18 + at * (wide + 32) : 30,
        wide,
        bottom: height - 4,
        current,
        folded,
        last: at === towers - 1,
      }),
    );
    if (towers > 1) this.#context(tops[0], 18 + wide);
    this.root.replaceChildren(this.#about(), this.svg);
    if (focused) this.svg.querySelector(`[aria-label="${CSS.escape(focused)}"]`)?.focus();
  }

  #about() {
    const { model } = this.session;
    const formula = model.diagram?.[0]?.blocks?.[0]?.sublayers?.[0]?.formula;
    return element(
      "p",
      { class: "hint" },
      "Press a part to look into it.",
      formula ? element("code", {}, `x ← ${formula}`) : null,
    );
  }

  /** @param {string | null} open  the only layer that is unfolded; null means all */
  #height(stack, open) {
    const layers = stack.layers.reduce((sum, layer) => sum + this.#layerHeight(layer, open) + GAP_BETWEEN, 0);
    return layers + 2 * BOX + 2 * GAP_BETWEEN + 22;
  }

  #layerHeight(layer, open) {
    if (open !== null && layer.name !== open) return FOLDED;
    const heads = layer.parts.some(({ name }) => name === this.session.state.part) ? this.#headRows(layer) * 20 + 4 : 0;
    return layer.parts.length * (BOX + GAP_BETWEEN) + GAP_BETWEEN + heads;
  }

  #headRows(layer) {
    const part = layer.parts.find(({ name }) => name === this.session.state.part);
    return Math.ceil(part.heads / this.#headsPerRow());
  }

  #headsPerRow() {
    return this.session.model.stacks.length > 1 ? 5 : 8;
  }

  #stream(x, from, to) {
    this.svg.append(svgElement("line", { x1: x, y1: from, x2: x, y2: to, class: "stream" }));
  }

  /** From the embedding up to the words; returns the height at which it ends. */
  #tower(stack, { x, wide, bottom, current, folded, last }) {
    const { session } = this;
    const middle = x + wide / 2;
    this.svg.append(
      svgElement(
        "text",
        { x: middle, y: bottom - 6, "text-anchor": "middle", "font-size": 11, class: "caption" },
        stack.name === "encoder" || stack.name === "decoder" ? `${stack.name} · ${stack.reads}` : stack.name,
      ),
    );
    let y = bottom - 20 - BOX;
    this.#button({
      x,
      y,
      width: wide,
      height: BOX,
      words: "embedding",
      label: `${visible(stack.embed)}: tokens become vectors; shows the positions`,
      kind: "embed",
      pressed: session.state.view === "positions",
      press: () => session.set({ view: "positions" }),
    });
    for (const [number, layer] of stack.layers.entries()) {
      this.#stream(middle, y, y - GAP_BETWEEN);
      y -= GAP_BETWEEN + this.#layerHeight(layer, folded ? current : null);
      if (folded && layer.name !== current) this.#foldedLayer(layer, x, y, wide);
      else this.#layer(layer, number + 1, x, y, wide);
    }
    if (last) {
      this.#stream(middle, y, y - 2 * GAP_BETWEEN);
      y -= 2 * GAP_BETWEEN + BOX;
      this.#button({
        x,
        y,
        width: wide,
        height: BOX,
        words: session.model.writes ? "words" : "head",
        label: "What comes out: each layer's guess, and what made the word",
        kind: "head",
        pressed: session.state.view === "lens",
        press: () => session.set({ view: "lens" }),
      });
    }
    return y;
  }

  #foldedLayer(layer, x, y, width) {
    const first = layer.parts.find(({ kind }) => kind !== "feedforward") ?? layer.parts[0];
    this.#button({
      x,
      y,
      width,
      height: FOLDED,
      words: partName(layer.name),
      label: `Open ${partName(layer.name)}`,
      kind: "layer",
      press: () => this.#open(first),
      size: 11,
    });
  }

  #layer(layer, number, x, y, wide) {
    const { state } = this.session;
    const high = this.#layerHeight(layer, null);
    this.svg.append(svgElement("rect", { x: x - 5, y, width: wide + 10, height: high, rx: 7, class: "frame" }));
    this.svg.append(
      svgElement(
        "text",
        { x: x - 9, y: y + 12, "text-anchor": "end", "font-size": 11, class: "caption" },
        String(number),
      ),
    );
    let at = y + high - GAP_BETWEEN;
    for (const part of layer.parts) {
      at -= BOX;
      const chosen = part.name === state.part;
      const label = `${partName(part.name)}${part.heads ? `, ${part.heads} heads` : `, ${part.neurons} neurons`}`;
      this.#stream(x + wide / 2, at + BOX + GAP_BETWEEN, at + BOX);
      this.#button({
        x,
        y: at,
        width: wide,
        height: BOX,
        words: NAMES[part.kind] ?? part.kind,
        label,
        kind: part.kind === "feedforward" ? "feedforward" : "attention",
        pressed: chosen && state.view !== "positions" && state.view !== "decoding",
        press: () => this.#open(part),
      });
      if (part.kind === "cross") this.crossings.push([x, at + BOX / 2]);
      if (chosen && part.heads) at -= this.#heads(part, x, at - 2, wide);
      at -= GAP_BETWEEN;
    }
  }

  /** The heads of the part that is looked at. */
  #heads(part, x, bottom, wide) {
    const per = this.#headsPerRow();
    const rows = Math.ceil(part.heads / per);
    const { state } = this.session;
    for (let head = 0; head < part.heads; head++) {
      const row = Math.floor(head / per);
      const width = (wide - 4) / Math.min(per, part.heads);
      const off = this.session.offIn(part.name).includes(head);
      this.#button({
        x: x + 2 + (head % per) * width + 1,
        y: bottom - 20 * (rows - row),
        width: width - 2,
        height: 18,
        words: off ? "off" : String(head + 1),
        size: 11,
        label: `${partName(part.name)}, head ${head + 1}${off ? ", off" : ""}: the six steps`,
        kind: "one-head",
        pressed: state.head === head,
        press: () => this.session.look({ part: part.name, head, shown: String(head), view: "steps" }),
      });
    }
    return rows * 20 + 4;
  }

  #open(part) {
    if (part.kind === "feedforward") this.session.set({ view: "lens" });
    else
      this.session.look({
        part: part.name,
        shown: "",
        view: ["attention", "steps"].includes(this.session.state.view) ? this.session.state.view : "attention",
      });
  }

  /** What the encoder made of the source goes into every cross-attention. */
  #context(top, x) {
    if (!this.crossings.length) return;
    const lane = x + 11;
    const highest = Math.min(...this.crossings.map(([, y]) => y), top);
    const lowest = Math.max(...this.crossings.map(([, y]) => y));
    const middle = 18 + (x - 18) / 2;
    this.svg.append(
      svgElement("path", {
        d: `M${middle} ${top}V${Math.max(6, Math.min(top - 10, highest))}H${lane}V${lowest}`,
        class: "stream",
      }),
    );
    for (const [left, y] of this.crossings)
      this.svg.append(svgElement("path", { d: `M${lane} ${y}H${left - 1}m-5 -3l5 3l-5 3`, class: "stream" }));
  }
}
