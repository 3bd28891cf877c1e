/** The stages of the six steps, in words, and the stepper that goes through them. */

import { button, element } from "./dom.js";
import { reader } from "./source.js";
import { number, partName } from "./text.js";

/**
 * @typedef {{query: string, key: string, kind: string, scale: number, at: (name: string) => number}} Told
 * @typedef {{id: string, step: number, name: string, formula: string, dot?: boolean, says: (of: Told) => string}} Stage
 */

/** What happens, in order; `says` is told of one query and one key by their words. @type {Stage[]} */
const STAGES = [
  {
    id: "qkv",
    step: 1,
    name: "q, k, v",
    formula: "q = x Wᵠ   k = x Wᵏ   v = x Wᵛ",
    says: ({ query }) =>
      `Every token is turned into a question (q), a label (k) and a content (v). ${query} asks with its q.`,
  },
  {
    id: "product",
    step: 2,
    name: "q ⊙ k",
    formula: "qᵢ ⊙ kⱼ",
    dot: true,
    says: ({ query, key }) => `The question of ${query} is laid on the label of ${key}, number by number.`,
  },
  {
    id: "scores",
    step: 2,
    name: "q · k",
    formula: "s = Σ q ⊙ k",
    dot: true,
    says: ({ query, key, at }) =>
      `The sum of these products is the score: ${query} and ${key} match by ${number(at("scores"))}.`,
  },
  {
    id: "scores",
    step: 2,
    name: "score",
    formula: "s = score(q, k)",
    dot: false,
    says: ({ query, key, at }) =>
      "This model compares question and label in a way of its own, which is no plain q · k: " +
      `${query} and ${key} match by ${number(at("scores"))}.`,
  },
  {
    id: "scaled",
    step: 3,
    name: "scale",
    formula: "s · scale",
    says: ({ scale, at }) =>
      `Scores are multiplied by ${number(scale)} (1/√d in most models), so that the softmax stays soft: ` +
      `${number(at("scaled"))}.`,
  },
  {
    id: "bias",
    step: 3,
    name: "+ position",
    formula: "s + b",
    says: ({ at }) => `This model adds a term for the distance of the two: ${number(at("bias"))}.`,
  },
  {
    id: "masked",
    step: 3,
    name: "mask",
    formula: "−∞ where masked",
    says: ({ kind }) =>
      kind === "masked"
        ? "What comes later may not be seen: its score becomes −∞."
        : "Nothing is hidden here; a decoder would hide what comes later.",
  },
  {
    id: "weights",
    step: 4,
    name: "softmax",
    formula: "w = exp(s) / Σ exp(s)",
    says: ({ query, key, at }) =>
      `Each row becomes shares of one: ${query} spends ${number(at("weights"))} of its attention on ${key}.`,
  },
  {
    id: "weighted",
    step: 5,
    name: "w · v",
    formula: "wᵢⱼ vⱼ",
    says: ({ key }) => `The content of ${key} is taken in that share, and so is that of every other token.`,
  },
  {
    id: "heads",
    step: 6,
    name: "sum",
    formula: "z = Σ w v",
    says: ({ query }) => `Added up, they are what this head tells ${query}.`,
  },
  {
    id: "output",
    step: 6,
    name: "all heads, Wᴼ",
    formula: "[z₁ … z_h] Wᴼ",
    says: () =>
      "The answers of all heads are laid side by side, and Wᴼ turns them into one vector of the model's width.",
  },
];

/**
 * The stages of an attention: few add a term for positions, and few have a score that is no dot product.
 * @param {import("./session.js").Attention} attention  @param {boolean} biased
 */
export function stagesOf(attention, biased) {
  return STAGES.filter(({ id, dot = attention.dot }) => dot === attention.dot && (biased || id !== "bias"));
}

export class Stepper {
  /** @param {import("./session.js").Session} session */
  constructor(session) {
    this.session = session;
    this.stages = STAGES;
    this.list = element("ol", { class: "stages" });
    this.says = element("p", { class: "stage-says" });
    this.back = button("Back", () => this.#go(-1));
    this.next = button("Next", () => this.#go(1), { class: "primary" });
    this.all = button("All steps", () => session.set({ stage: -1 }));
    const buttons = element("div", { class: "buttons" }, this.back, this.next, this.all);
    this.root = element(
      "section",
      { class: "card stepper", "aria-label": "The six steps" },
      this.list,
      element("div", { class: "stepper-row" }, this.says, buttons),
    );
  }

  #go(by) {
    const { stage } = this.session.state;
    const last = this.stages.length - 1;
    const to = stage < 0 ? (by > 0 ? 0 : last) : stage + by;
    this.session.set({ stage: Math.max(0, Math.min(to, last)) });
  }

  /**
   * The stage that the state names; behind the last one all of them are shown.
   * @param {import("./session.js").Attention} attention  @param {boolean} biased
   */
  reach(attention, biased) {
    this.stages = stagesOf(attention, biased);
    const { stage } = this.session.state;
    return stage < 0 ? this.stages.length : Math.min(stage, this.stages.length - 1);
  }

  /** @param {number} stage  @param {import("./steps.js").HeadView} of */
  update(stage, { attention, head, tensors, queries, keys, row, column }) {
    this.list.replaceChildren(...this.stages.map((one, at) => this.#pill(one, at, stage)));
    this.back.disabled = stage === 0;
    this.next.disabled = stage === this.stages.length - 1;
    this.all.setAttribute("aria-pressed", String(stage === this.stages.length));
    const { formula, says } = this.stages[stage] ?? {
      formula: `Z = softmax(${attention.dot ? "Q Kᵀ" : "score(Q, K)"} · scale) V`,
      says: () =>
        `${partName(attention.name)}, head ${head + 1}. ` +
        "Click any number to see where it comes from, or go step by step.",
    };
    const at = (name) => reader(tensors[name])(row, column);
    const told = {
      query: `“${queries[row]}”`,
      key: `“${keys[column]}”`,
      kind: attention.kind,
      scale: attention.scale,
      at,
    };
    const sentence = says(told);
    if (stage < this.stages.length && sentence !== this.said) this.session.hooks.said(sentence);
    this.said = sentence;
    this.says.replaceChildren(element("code", {}, formula), element("span", {}, sentence));
  }

  /** @param {Stage} one */
  #pill({ step, name }, at, stage) {
    const pill = button("", () => this.session.set({ stage: at }), {
      class: at < stage ? "done" : "",
      "aria-current": at === stage ? "step" : null,
    });
    pill.append(element("b", {}, String(step)), ` ${name}`);
    return element("li", {}, pill);
  }
}
