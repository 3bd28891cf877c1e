/** The six steps of one head, on real numbers: a stepper, the formula, one query by hand, all heads together. */

import { element } from "./dom.js";
import { Formula } from "./formula.js";
import { OneRow } from "./row.js";
import { ofHead, placeWord } from "./source.js";
import { Stepper } from "./stages.js";
import { Together } from "./together.js";

/**
 * @typedef {object} HeadView         what the pictures of the six steps are told
 * @property {import("./session.js").Attention} attention
 * @property {number} head
 * @property {Record<string, import("./source.js").Tensor & {group?: number, slots?: number, before?: number}>} tensors
 * @property {string[]} queries
 * @property {string[]} keys
 * @property {number} row
 * @property {number} column
 * @property {(id: string) => boolean} reached   whether that stage has been shown
 * @property {string} key            another one means that everything is painted anew
 */

/** Where a model learned slots of memory, keys and values begin with them, and their numbers are not recorded. */
function behindSlots(tensor, slots) {
  if (!slots) return tensor;
  const columns = tensor.shape[1];
  const data = new Float32Array((tensor.shape[0] + slots) * columns).fill(NaN);
  data.set(tensor.data, slots * columns);
  return { ...tensor, shape: [tensor.shape[0] + slots, columns], data, slots };
}

/** What positions add to the scores; to slots of memory, which have no position, it is nothing. */
function besideSlots(tensor, slots) {
  if (!tensor || !slots) return tensor;
  const [rows, columns] = tensor.shape;
  const data = new Float32Array(rows * (slots + columns));
  for (let row = 0; row < rows; row++) {
    data.set(tensor.data.subarray(row * columns, (row + 1) * columns), row * (slots + columns) + slots);
  }
  return { ...tensor, shape: [rows, slots + columns], data, before: slots };
}

export class Steps {
  /** @param {import("./session.js").Session} session */
  constructor(session) {
    this.session = session;
    const hooks = {
      says: ({ panel, i, j }) => panel.tells(i, j),
      picked: ({ panel, i, j }) => {
        session.look({ ...panel.looks?.(i, j), cell: placeWord(panel.place(i, j)), pinned: true });
      },
      moved: ({ panel, i, j }) => {
        if (panel.looks) session.look(panel.looks(i, j));
      },
    };
    this.stepper = new Stepper(session);
    this.formula = new Formula(session, hooks);
    this.row = new OneRow(session, hooks);
    this.together = new Together(session, hooks);
    const cards = [this.formula, this.row, this.together].map(({ card }) => card.root);
    this.root = element("div", { class: "stack" }, this.stepper.root, ...cards);
  }

  key(event) {
    this.formula.board.key(event);
  }

  /** Every tensor of the head; keys and values of a group where heads share them. */
  async #load({ attention, state: { head } }) {
    const { session } = this;
    const own = (name) => session.tensor(`${attention.name}.${name}`, head);
    const shared = async (name) => {
      const whole = await session.tensor(`${attention.name}.${name}`);
      const group = whole.shape.length === 3 ? Math.floor((head * whole.shape[0]) / attention.heads) : 0;
      return behindSlots({ ...ofHead(whole, group), group }, attention.memory);
    };
    const bias = async () => besideSlots(await session.tensorIfAny(`${attention.name}.bias`, head), attention.memory);
    const asked = {
      ...Object.fromEntries(["q", "scores", "scaled", "masked", "weights", "heads"].map((name) => [name, own(name)])),
      ...Object.fromEntries(["k", "v"].map((name) => [name, shared(name)])),
      bias: session.biased(attention) ? bias() : null,
      all: session.tensor(`${attention.name}.heads`),
      output: session.tensor(`${attention.name}.output`),
    };
    const answers = await Promise.all(Object.values(asked));
    return Object.fromEntries(Object.keys(asked).map((name, at) => [name, answers[at]]));
  }

  async update() {
    const { session } = this;
    const { attention, state } = session;
    const tensors = await this.#load(session);
    if (attention !== session.attention || state.head !== session.state.head) return;
    const { row, column, head } = session.state;
    const stage = this.stepper.reach(attention, Boolean(tensors.bias));
    const { stages } = this.stepper;
    const [queries, keys] = session.names(attention);
    const reached = (id) => stages.findIndex((one) => one.id === id) <= stage;
    const key = `${session.run.id}|${attention.name}|${head}|${stage}`;
    /** @type {HeadView} */
    const of = { attention, head, tensors, queries, keys, row, column, reached, key };
    this.stepper.update(stage, of);
    this.formula.update(of);
    this.row.update(of);
    this.together.update(of);
  }
}
