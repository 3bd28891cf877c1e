/** Who reads whom among the heads that are shown: weights, the lines worth drawing, and both in words. */

import { number, plural } from "./text.js";

const MOST_LINES = 2000;
const SINK = 0.5;

/** @typedef {{head: number, i: number, j: number, weight: number, dim: boolean}} Edge   head: its place in `shown` */

/** The keys that hold the top share of a row's mass, the heaviest first. @param {Float32Array} row */
function topOf(row, share) {
  const order = [...row.keys()].sort((a, b) => row[b] - row[a]);
  const total = row.reduce((sum, weight) => sum + weight, 0);
  let mass = 0;
  const end = order.findIndex((j) => (mass += row[j]) >= share * total - 1e-6);
  return order.slice(0, end + 1).filter((j) => row[j] > 0);
}

/** Keys that half of all attention of a head falls into, whoever asks. @param {import("./source.js").Tensor} tensor */
function sinksOf({ data, shape: [rows, columns] }) {
  return Array.from({ length: columns }, (_, j) => {
    let mass = 0;
    for (let i = 0; i < rows; i++) mass += data[i * columns + j];
    return rows > 3 && mass / rows >= SINK;
  });
}

export class Reads {
  /**
   * @param {import("./session.js").Session} session
   * @param {number[]} shown  heads
   * @param {import("./source.js").Tensor[]} tensors  the weights of each of them
   */
  constructor(session, shown, tensors) {
    this.session = session;
    this.attention = session.attention;
    this.shown = shown;
    this.tensors = tensors;
    [this.queries, this.keys] = session.names(this.attention);
    this.special = session.specialKeys(this.attention);
    this.sinks = tensors.map(sinksOf);
  }

  /** `head 2`, or `mean of 4 heads`. */
  get who() {
    return this.shown.length === 1 ? `head ${this.shown[0] + 1}` : `mean of ${this.shown.length} heads`;
  }

  mean(i, j) {
    const at = i * this.keys.length + j;
    let sum = 0;
    for (const { data } of this.tensors) sum += data[at];
    return sum / this.tensors.length;
  }

  /** @param {number} [only]  the lines of that row alone  @returns {Edge[]} the strongest last: they lie on top */
  edges(only) {
    const { mass, dim } = this.session.state;
    const columns = this.keys.length;
    const edges = [];
    this.tensors.forEach(({ data }, head) => {
      for (let i = only ?? 0; i <= (only ?? this.queries.length - 1); i++) {
        const row = data.subarray(i * columns, (i + 1) * columns);
        for (const j of topOf(row, mass / 100)) {
          edges.push({ head, i, j, weight: row[j], dim: dim && (this.special[j] || this.sinks[head][j]) });
        }
      }
    });
    return edges.sort((a, b) => a.weight - b.weight).slice(-MOST_LINES);
  }

  /** One cell in words. */
  says(i, j) {
    if (this.shown.length === 1) {
      return this.session.reading(this.attention, this.shown[0], i, j, (a, b) => this.mean(a, b));
    }
    const heads = this.tensors.map(({ data }, at) => [this.shown[at], data[i * this.keys.length + j]]);
    const best = heads.reduce((most, one) => (one[1] > most[1] ? one : most));
    return (
      `“${this.queries[i]}” reads “${this.keys[j]}”: ${number(this.mean(i, j))} on the mean of ` +
      `${plural(this.shown.length, "head")}, most in head ${best[0] + 1} (${number(best[1])})`
    );
  }

  /** What one token reads, or who reads it, in words. @param {{side: number, at: number}} token */
  summary({ side, at }) {
    const others = side ? this.queries : this.keys;
    const best = others
      .map((name, other) => [name, side ? this.mean(other, at) : this.mean(at, other)])
      .sort((a, b) => b[1] - a[1])
      .slice(0, 3)
      .map(([name, weight]) => `“${name}” ${number(weight, 2)}`)
      .join(", ");
    return side ? `“${this.keys[at]}” is read by ${best}` : `“${this.queries[at]}” reads ${best}`;
  }
}
