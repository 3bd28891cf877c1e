/** How a number of an attention came about, worked out from the recorded tensors where no server is there to ask. */

import { plainName } from "./store.js";

const MOST_TERMS = 32;

/** The number of head `head` at (row, column); tensors without heads have one for all. */
function pick(tensor, head, row, column) {
  const [rows, columns] = tensor.shape.slice(-2);
  const of = tensor.shape.length === 3 ? Math.min(head, tensor.shape[0] - 1) : 0;
  return tensor.data[(of * rows + row) * columns + column];
}

/** log Σ exp of scores, none of them −∞. @param {number[]} scores */
function logSumExp(scores) {
  const most = Math.max(...scores);
  return most + Math.log(scores.reduce((sum, score) => sum + Math.exp(score - most), 0));
}

/** How terms make a number: which of them are large, and what others come to as one. */
const WAYS = {
  sum: { size: Math.abs, together: (values) => values.reduce((sum, value) => sum + value, 0) },
  softmax: { size: (score) => score, together: logSumExp },
};

/** The largest terms by themselves, the own one of a softmax first; the others as one. */
function shorten(combine, terms) {
  if (terms.length <= MOST_TERMS) return { combine, terms };
  const { size, together } = WAYS[combine];
  const own = combine === "softmax" ? 1 : 0;
  const order = [...terms.slice(0, own), ...terms.slice(own).sort((a, b) => size(b.value) - size(a.value))];
  const others = order.slice(MOST_TERMS).map(({ value }) => value);
  return { combine, terms: order.slice(0, MOST_TERMS), rest: { count: others.length, value: together(others) } };
}

/** Slots of memory that an attention learned, by name: its keys and values begin with them. */
export function slotNames({ memory = 0 }) {
  return Array.from({ length: memory }, (_, at) => `memory ${at + 1}`);
}

/**
 * What the server answers to `cell`, for scores, scaled, masked, weights and heads; null for any other tensor, and
 * where weights of the model would be needed, which are not recorded: slots of memory are such, and their keys, values.
 * @param {import("./source.js").Place} place
 * @param {(tap: string) => Promise<import("./source.js").Tensor>} tensor
 */
export async function deriveCell(place, tensor, run) {
  const { tap, head, row, column } = place;
  const [, part, what] = tap.match(/^(.*)\.(\w+)$/);
  const attention = run.attentions.find(({ name }) => name === part);
  const make = attention ? STEPS_BACK[what] : null;
  if (!make) return null;
  const own = await tensor(tap);
  const made = await make({
    head,
    row,
    column,
    part,
    attention,
    slots: attention.memory ?? 0,
    keys: [...slotNames(attention), ...run.sides[attention.keys].tokens],
    off: (run.off[plainName(part)] ?? []).includes(head),
    tensor: (name) => tensor(`${part}.${name}`),
  });
  return made && { ...place, value: pick(own, head, row, column), rest: null, ...made };
}

/** For each tensor: its formula, and the terms with the cells that they were made of. */
const STEPS_BACK = {
  async scores({ head, row, column, part, attention, slots, tensor }) {
    if (!attention.dot || column < slots) return null;
    const key = column - slots;
    const [q, k] = [await tensor("q"), await tensor("k")];
    const group = Math.floor((head * k.shape[0]) / attention.heads);
    const terms = Array.from({ length: q.shape[2] }, (_, at) => {
      const factors = [pick(q, head, row, at), pick(k, group, key, at)];
      return {
        label: `q${at} · k${at}`,
        factors,
        value: factors[0] * factors[1],
        from: [
          { tap: `${part}.q`, head, row, column: at },
          { tap: `${part}.k`, head: group, row: key, column: at },
        ],
      };
    });
    return { says: "the query times the key", formula: "Σ q_i · k_i", ...shorten("sum", terms) };
  },

  async scaled({ head, row, column, part, attention, tensor }) {
    const score = pick(await tensor("scores"), head, row, column);
    return {
      says: "the score, scaled",
      formula: attention.dot ? "scale · (q · k)" : "scale · score(q, k)",
      combine: "sum",
      terms: [
        {
          label: "scale · score",
          factors: [attention.scale, score],
          value: attention.scale * score,
          from: [null, { tap: `${part}.scores`, head, row, column }],
        },
      ],
    };
  },

  async masked({ head, row, column, part, slots, tensor }) {
    const own = pick(await tensor("masked"), head, row, column);
    if (own === -Infinity) {
      return { says: "this key may not be seen from here", formula: "−∞ where masked", combine: "sum", terms: [] };
    }
    const terms = [];
    for (const [name, at] of [
      ["scaled", column],
      ["bias", column - slots],
    ]) {
      const found = at < 0 ? null : await tensor(name).catch(() => null);
      if (!found) continue;
      const value = pick(found, head, row, at);
      terms.push({ label: name, factors: [value], value, from: [{ tap: `${part}.${name}`, head, row, column: at }] });
    }
    return {
      says: "the score that goes into the softmax",
      formula: terms.map((t) => t.label).join(" + "),
      combine: "sum",
      terms,
    };
  },

  async weights({ head, row, column, part, keys, tensor }) {
    const masked = await tensor("masked");
    const term = (at) => {
      const value = pick(masked, head, row, at);
      return { label: keys[at], factors: [value], value, from: [{ tap: `${part}.masked`, head, row, column: at }] };
    };
    const own = term(column);
    if (own.value === -Infinity) {
      return { says: "this key may not be seen from here", formula: "exp(−∞) = 0", combine: "sum", terms: [] };
    }
    const others = [...keys.keys()].filter((at) => at !== column).map(term);
    const terms = [own, ...others.filter(({ value }) => value !== -Infinity)];
    return { says: "softmax over the row", formula: "exp(s_j) / Σ exp(s)", ...shorten("softmax", terms) };
  },

  async heads({ head, row, column, part, attention, slots, keys, off, tensor }) {
    if (off) return { says: "this head is switched off", formula: "0", combine: "sum", terms: [] };
    if (attention.placed_values || slots) return null;
    const [weights, v] = [await tensor("weights"), await tensor("v")];
    const group = Math.floor((head * v.shape[0]) / attention.heads);
    const terms = keys.map((token, at) => {
      const factors = [pick(weights, head, row, at), pick(v, group, at, column)];
      return {
        label: token,
        factors,
        value: factors[0] * factors[1],
        from: [
          { tap: `${part}.weights`, head, row, column: at },
          { tap: `${part}.v`, head: group, row: at, column },
        ],
      };
    });
    return { says: "the weighted sum of the values", formula: "Σ w_j · v_j", ...shorten("sum", terms) };
  },
};
