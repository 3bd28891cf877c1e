/** The guided tour: the six steps, taught with the reader's own sentence and its real numbers. */

import { button, element } from "./dom.js";
import { stagesOf } from "./stages.js";
import { number, partName, quoted } from "./text.js";

/** @typedef {{title: string, go: object, target: string, says: (of: any) => string}} Stop */

/** @type {Stop[]} */
const STOPS = [
  {
    title: "Your text, in pieces",
    go: { view: "attention", mode: "lines", shown: "" },
    target: "#ask",
    says: ({ text, tokens }) => {
      const some = tokens.slice(0, 12).map(quoted).join(", ");
      const more = tokens.length > 12 ? " …" : "";
      return `“${text}” becomes ${tokens.length} tokens: ${some}${more}. Each is a row of numbers from here on.`;
    },
  },
  {
    title: "The model",
    go: {},
    target: "#architecture",
    says: ({ layers, part }) =>
      `They go upwards through ${layers} layers. Each attention lets tokens read one another; we look into ${part}.`,
  },
  {
    title: "Who reads whom",
    go: { view: "attention", mode: "lines" },
    target: "#view",
    says: ({ query, key, weight, head }) =>
      `In head ${head}, ${query} reads ${key} the most: ${weight} of all its attention. ` +
      "Where does that number come from? Six steps.",
  },
  {
    title: "Step 1: question, label, content",
    go: { view: "steps", until: "qkv" },
    target: "#view",
    says: ({ query, key }) =>
      "Three matrices turn each token into a query q, a key k and a value v. " +
      `${query} asks with its q; ${key} answers to its k.`,
  },
  {
    title: "Step 2: compare",
    go: { view: "steps", until: "scores" },
    target: "#view",
    says: ({ query, key, score, dot }) =>
      `${dot ? "Multiply q and k number by number and add up" : "Compare q and k as this model does"}: ` +
      `${query} and ${key} score ${score}.`,
  },
  {
    title: "Step 3: scale and mask",
    go: { view: "steps", until: "masked" },
    target: "#view",
    says: ({ scale, scaled, masked }) =>
      `Times ${scale} that is ${scaled}: scores stay small. ` +
      (masked ? "What comes later is hidden behind −∞." : "Here nothing is hidden; in a decoder the future is."),
  },
  {
    title: "Step 4: softmax",
    go: { view: "steps", until: "weights" },
    target: "#view",
    says: ({ query, key, weight }) =>
      `exp of each score, divided by their sum: now the row of ${query} adds up to 1, and ${key} holds ${weight}.`,
  },
  {
    title: "Step 5: weigh the values",
    go: { view: "steps", until: "weighted" },
    target: "#view",
    says: ({ key, weight }) =>
      `Each value vector is multiplied by its weight: ${weight} of ${key}, less of the others.`,
  },
  {
    title: "Step 6: add up, join the heads",
    go: { view: "steps", until: "output" },
    target: "#view",
    says: ({ query, heads }) =>
      `The sum is what this head tells ${query}. ${heads} heads speak side by side, and Wᴼ makes one vector of them.`,
  },
  {
    title: "And out comes a word",
    go: { view: "lens" },
    target: "#view",
    says: ({ writes }) =>
      writes
        ? "After the last layer the vector is compared with every word. Each layer's best guess stands here, " +
          "from the bottom up; under “Decoding” you can force another word."
        : "After the last layer the vectors are what the model knows of the text. " +
          "Each layer's state stands here, from the bottom up.",
  },
];

export class Tour {
  /** @param {import("./session.js").Session} session  @param {HTMLElement} root  @param {HTMLElement} opener */
  constructor(session, root, opener) {
    Object.assign(this, { session, root, opener, at: -1 });
    opener.addEventListener("click", () => this.start());
    document.addEventListener("keydown", (event) => this.#key(event));
  }

  get open() {
    return this.at >= 0;
  }

  async start() {
    const { session } = this;
    const { attention, state } = session;
    const head = state.head;
    const weights = await session.tensor(`${attention.name}.weights`, head);
    const special = session.special(attention.queries);
    const row = Math.max(
      0,
      special.findIndex((is, at) => !is && at > 0),
    );
    const columns = weights.shape[1];
    const line = weights.data.subarray(row * columns, (row + 1) * columns);
    const column = line.indexOf(Math.max(...line));
    session.look({ row, column, pinned: true, cell: "", tables: "" });
    await this.#show(0);
  }

  leave() {
    this.at = -1;
    this.root.hidden = true;
    document.querySelectorAll(".toured").forEach((node) => node.classList.remove("toured"));
    this.opener.focus();
  }

  async #facts() {
    const { session } = this;
    const { attention, state, model } = session;
    const cell = async (name) => {
      const { data, shape } = await session.tensor(`${attention.name}.${name}`, state.head);
      return number(data[state.row * shape[1] + state.column]);
    };
    const side = Object.keys(session.run.sides)[0];
    return {
      text: session.run.text,
      tokens: session.tokens(side),
      layers: model.stacks.map((stack) => stack.layers.length).join(" + "),
      part: partName(attention.name),
      query: quoted(session.tokens(attention.queries)[state.row]),
      key: quoted(session.names(attention)[1][state.column]),
      head: state.head + 1,
      weight: await cell("weights"),
      score: await cell("scores"),
      scaled: await cell("scaled"),
      scale: number(attention.scale),
      dot: attention.dot,
      masked: attention.kind === "masked",
      heads: attention.heads,
      writes: model.writes,
    };
  }

  async #show(at) {
    const { session } = this;
    const { until, ...go } = STOPS[at].go;
    if (until) {
      const { attention } = session;
      go.stage = stagesOf(attention, session.biased(attention)).findIndex(({ id }) => id === until);
    }
    this.at = at;
    const facts = await this.#facts();
    if (at === 2) go.shown = String(session.state.head);
    session.set(go);
    document.querySelectorAll(".toured").forEach((node) => node.classList.remove("toured"));
    const target = document.querySelector(STOPS[at].target);
    target.classList.add("toured");
    const title = element("h2", { id: "tour-title", tabindex: -1 }, STOPS[at].title);
    const last = at === STOPS.length - 1;
    this.root.replaceChildren(
      element("p", { class: "hint" }, `${at + 1} of ${STOPS.length}`),
      title,
      element("p", {}, STOPS[at].says(facts)),
      element(
        "div",
        { class: "buttons" },
        button("Back", () => this.#show(at - 1), { disabled: at === 0 }),
        button(last ? "Done" : "Next", () => (last ? this.leave() : this.#show(at + 1)), { class: "primary" }),
        button("Leave", () => this.leave(), { class: "quiet" }),
      ),
    );
    this.root.hidden = false;
    target.scrollIntoView({ block: "start" });
    title.focus({ preventScroll: true });
  }

  #key(event) {
    if (!this.open || event.defaultPrevented) return;
    if (event.key === "Escape") this.leave();
    else if (this.root.contains(document.activeElement) && event.key === "ArrowRight" && this.at < STOPS.length - 1)
      this.#show(this.at + 1);
    else if (this.root.contains(document.activeElement) && event.key === "ArrowLeft" && this.at > 0)
      this.#show(this.at - 1);
    else return;
    event.preventDefault();
  }
}
