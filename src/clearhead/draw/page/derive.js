/** How a number of an attention came about, worked out from the recorded tensors where no server is there to ask. */

const MOST_TERMS = 32;

/** The number of head `head` at (row, column); tensors without heads have one for all. */
function pick(tensor, head, row, column) {
  const [rows, columns] = tensor.shape.slice(-2);
  const of = tensor.shape.length === 3 ? Math.min(head, tensor.shape[0] - 1) : 0;
  return tensor.data[(of * rows + row) * columns + column];
}

/** The largest terms by themselves, the others summed up. */
function shorten(terms) {
  const order = [...terms].sort((a, b) => Math.abs(b.value) - Math.abs(a.value));
  const others = order.slice(MOST_TERMS);
  const value = others.reduce((sum, term) => sum + term.value, 0);
  return { terms: order.slice(0, MOST_TERMS), rest: others.length ? { count: others.length, value } : null };
}

/**
 * What the server answers to `cell`, for scores, scaled, masked, weights and heads; null for any other tensor.
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
  const about = { head, row, column, part, attention, sides: run.sides, tensor: (name) => tensor(`${part}.${name}`) };
  return { ...place, value: pick(own, head, row, column), rest: null, ...(await make(about)) };
}

/** For each tensor: its formula, and the terms with the cells that they were made of. */
const STEPS_BACK = {
  async scores({ head, row, column, part, attention, tensor }) {
    const [q, k] = [await tensor("q"), await tensor("k")];
    const group = Math.floor((head * k.shape[0]) / attention.heads);
    const terms = Array.from({ length: q.shape[2] }, (_, at) => {
      const factors = [pick(q, head, row, at), pick(k, group, column, at)];
      return {
        label: `q${at} · k${at}`,
        factors,
        value: factors[0] * factors[1],
        from: [
          { tap: `${part}.q`, head, row, column: at },
          { tap: `${part}.k`, head: group, row: column, column: at },
        ],
      };
    });
    return { says: "the query times the key", formula: "Σ q_i · k_i", combine: "sum", ...shorten(terms) };
  },

  async scaled({ head, row, column, part, attention, tensor }) {
    const score = pick(await tensor("scores"), head, row, column);
    return {
      says: "the score, scaled",
      formula: "scale · (q · k)",
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

  async masked({ head, row, column, part, tensor }) {
    const own = pick(await tensor("masked"), head, row, column);
    if (own === -Infinity) {
      return { says: "this key may not be seen from here", formula: "−∞ where masked", combine: "sum", terms: [] };
    }
    const terms = [];
    for (const name of ["scaled", "bias"]) {
      const found = await tensor(name).catch(() => null);
      const value = found && pick(found, head, row, column);
      if (found)
        terms.push({ label: name, factors: [value], value, from: [{ tap: `${part}.${name}`, head, row, column }] });
    }
    return {
      says: "the score that goes into the softmax",
      formula: terms.map((t) => t.label).join(" + "),
      combine: "sum",
      terms,
    };
  },

  async weights({ head, row, part, attention, sides, tensor }) {
    const masked = await tensor("masked");
    const terms = sides[attention.keys].tokens
      .map((token, at) => {
        const value = pick(masked, head, row, at);
        return { label: token, factors: [value], value, from: [{ tap: `${part}.masked`, head, row, column: at }] };
      })
      .filter((term) => term.value !== -Infinity);
    return { says: "softmax over the row", formula: "exp(s_j) / Σ exp(s)", combine: "softmax", ...shorten(terms) };
  },

  async heads({ head, row, column, part, attention, sides, tensor }) {
    const [weights, v] = [await tensor("weights"), await tensor("v")];
    const group = Math.floor((head * v.shape[0]) / attention.heads);
    const terms = sides[attention.keys].tokens.map((token, at) => {
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
    return { says: "the weighted sum of the values", formula: "Σ w_j · v_j", combine: "sum", ...shorten(terms) };
  },
};
