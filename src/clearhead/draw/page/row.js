/** One query worked out by hand, key by key. */

import { Board } from "./board.js";
import { Card } from "./card.js";
import { PALETTE } from "./palette.js";
import { besideRows } from "./panel.js";
import { aroundZero, fromZero, paintLegend } from "./scale.js";
import { reader } from "./source.js";
import { fit, number } from "./text.js";

const MOST_KEYS = 40;
const NUMBERS = { scores: "q · k", scaled: "scaled", bias: "+ position", masked: "masked", weights: "softmax" };
const STEP_GAP = 16;

function heading(name, { dot }) {
  return name === "scores" && !dot ? "score" : NUMBERS[name];
}

function multiplied(a, b) {
  return `${number(a)} × ${number(b)} = ${number(a * b)}`;
}

export class OneRow {
  /** @param {import("./session.js").Session} session */
  constructor(session, hooks) {
    this.session = session;
    this.card = new Card(session, "row", "One query by hand");
    this.board = new Board("One query by hand", hooks, session);
  }

  /** The keys that are worked out: all of them, or the heaviest. */
  #keys({ tensors: { weights }, keys, row }) {
    const all = [...keys.keys()];
    if (all.length <= MOST_KEYS) return all;
    const at = reader(weights);
    return all
      .sort((a, b) => at(row, b) - at(row, a))
      .slice(0, MOST_KEYS)
      .sort((a, b) => a - b);
  }

  update(of) {
    const { attention, head, tensors, queries, keys, row, column, reached } = of;
    const { q, k, v, heads } = tensors;
    const chosen = this.#keys(of);
    const names = chosen.map((j) => keys[j]);
    const deep = q.shape[1];
    const numbers = Object.keys(NUMBERS).filter((name) => tensors[name]);
    const label = Math.max(besideRows(names), 40);
    const wide = 58;
    const h = names.length > 18 ? 16 : 20;
    const room = this.card.width - label - numbers.length * (wide + 6) - 4 * STEP_GAP;
    const strips = attention.dot ? 3 : 2; // other scores are no sum of products
    const c = Math.max(1.2, Math.min(11, room / (strips * deep)));
    const top = 30;
    const y = top + h + STEP_GAP;
    const low = y + names.length * h + STEP_GAP;
    const strip = c * deep;
    const xs = { k: label, product: label + strip + STEP_GAP };
    let x = label + (strips - 1) * (strip + STEP_GAP);
    for (const name of numbers) {
      xs[name] = x;
      x += wide + 6;
    }
    xs.weighted = x + STEP_GAP - 6;
    const [atQ, atK, atV, atW] = [q, k, v, tensors.weights].map(reader);
    const vector = aroundZero(
      (function* all() {
        yield* q.data;
        yield* k.data;
      })(),
      "around zero",
    );
    const place = (name, j, at) => ({
      tap: `${attention.name}.${name}`,
      head: tensors[name].group ?? head,
      row: j - (tensors[name].slots ?? 0),
      column: at - (tensors[name].before ?? 0),
    });
    const part = (id, given) => ({
      id,
      scale: vector,
      cell: [c, h],
      rows: names.length,
      columns: deep,
      y,
      x: xs[id],
      ...given,
    });
    const product = (i, at) => atQ(row, at) * atK(chosen[i], at);
    const weighted = (i, at) => atW(row, chosen[i]) * atV(chosen[i], at);
    const looks = (i) => ({ column: chosen[i] });
    const productPanel = part("product", {
      at: product,
      looks,
      empty: !reached("product"),
      scale: this.#span(names.length, deep, product),
      place: (i) => place("scores", row, chosen[i]),
      tells: (i, at) => `q × k, number ${at + 1}: ${multiplied(atQ(row, at), atK(chosen[i], at))}`,
    });
    const panels = [
      part("q", {
        y: top,
        x: label,
        rows: 1,
        at: (_, at) => atQ(row, at),
        colour: PALETTE.roles.query.colour,
        rowNames: ["q"],
        place: (_, at) => place("q", row, at),
        tells: (_, at) => `query of “${queries[row]}”, number ${at + 1}: ${number(atQ(row, at))}`,
      }),
      part("k", {
        at: (i, at) => atK(chosen[i], at),
        colour: PALETTE.roles.key.colour,
        rowNames: names,
        looks,
        place: (i, at) => place("k", chosen[i], at),
        tells: (i, at) => `key of “${names[i]}”, number ${at + 1}: ${number(atK(chosen[i], at))}`,
      }),
      ...(attention.dot ? [productPanel] : []),
      ...numbers.map((name) =>
        this.#column(of, name, { x: xs[name], y, cell: [wide, h], rows: names.length, chosen, looks, place }),
      ),
      part("weighted", {
        at: weighted,
        looks,
        empty: !reached("weighted"),
        scale: this.#span(names.length, deep, weighted),
        colour: PALETTE.roles.value.colour,
        place: (i, at) => place("v", chosen[i], at),
        tells: (i, at) => `w × v, number ${at + 1}: ${multiplied(atW(row, chosen[i]), atV(chosen[i], at))}`,
      }),
      part("z", {
        y: low,
        x: xs.weighted,
        rows: 1,
        at: (_, at) => reader(heads)(row, at),
        colour: PALETTE.roles.output.colour,
        empty: !reached("heads"),
        scale: aroundZero(heads.data, "around zero"),
        place: (_, at) => place("heads", row, at),
        tells: (_, at) => `z of “${queries[row]}”, number ${at + 1}: ${number(reader(heads)(row, at))}`,
      }),
    ];
    const width = Math.ceil(xs.weighted + strip + 24);
    const height = Math.ceil(low + h + 38);
    const left = keys.length - names.length;
    this.card.title.textContent = `“${queries[row]}” by hand`;
    this.card.hint.textContent = left
      ? `Each line is one key: the ${names.length} heaviest of ${keys.length}. ` +
        "Read from left to right; the last strip is the sum over all keys."
      : "Each line is one key. Read from left to right; the last strip is the sum of those above it.";
    this.card.body.replaceChildren(this.board.root);
    this.board.show({
      key: `${of.key}|${row}`,
      width,
      height,
      panels,
      cursor: this.#cursor(panels, chosen.indexOf(column)),
      decorate: (pen) => this.#decorate(pen, { attention, y, low, xs, strip, numbers, wide, h, vector }),
    });
    this.card.keep({
      title: `“${queries[row]}” by hand`,
      width,
      height,
      paint: (pen) => this.board.paint(pen),
      table: () => ({
        caption: `What “${queries[row]}” reads, step by step`,
        columns: ["key", ...numbers.map((name) => heading(name, attention))],
        rows: chosen.map((j) => [keys[j], ...numbers.map((name) => reader(tensors[name])(row, j))]),
      }),
    });
  }

  #cursor(panels, i) {
    const panel = panels.findLast(({ columns, empty }) => columns === 1 && !empty);
    return panel && i >= 0 ? { panel, i, j: 0 } : null;
  }

  #span(rows, columns, at) {
    const values = [];
    for (let i = 0; i < rows; i++) for (let j = 0; j < columns; j++) values.push(at(i, j));
    return aroundZero(values, "around zero");
  }

  /** One number for each key. */
  #column({ tensors, queries, keys, row, reached, attention }, name, { chosen, looks, place, ...spot }) {
    const all = reader(tensors[name]);
    const at = (i) => all(row, chosen[i]);
    const hidden = (i) => name === "masked" && at(i) === -Infinity;
    const values = chosen.map((_, i) => at(i));
    return {
      id: name,
      ...spot,
      columns: 1,
      at,
      looks,
      empty: !reached(name),
      masked: attention.kind === "masked" ? hidden : undefined,
      scale: name === "weights" ? fromZero(values, "each row sums to 1") : aroundZero(values, "around zero"),
      words: (i) => number(at(i)),
      place: (i) => place(name, row, chosen[i]),
      tells: (i) => `${heading(name, attention)}: “${queries[row]}” and “${keys[chosen[i]]}”, ${number(at(i))}`,
    };
  }

  #decorate(pen, { attention, y, low, xs, strip, numbers, wide, h, vector }) {
    const { faint } = pen.theme;
    const title = (words, x, room) =>
      pen.text(x + room / 2, 14, fit(words, room + 8, 12, 700), { anchor: "middle", weight: 700 });
    title("k", xs.k, strip);
    for (const name of numbers) title(heading(name, attention), xs[name], wide);
    title("w · v", xs.weighted, strip);
    pen.text(xs.weighted - 8, low + h / 2, "z = Σ", { anchor: "end", weight: 700 });
    if (attention.dot) {
      title("q ⊙ k", xs.product, strip);
      const sign = (words, x) => pen.text(x, y + h / 2, words, { size: 12, anchor: "middle", fill: faint });
      sign("⊙", xs.product - STEP_GAP / 2);
      sign("Σ", xs[numbers[0]] - STEP_GAP / 2);
    }
    pen.line(
      [
        [xs.weighted, low - STEP_GAP / 2],
        [xs.weighted + strip, low - STEP_GAP / 2],
      ],
      { stroke: faint, width: 0.7 },
    );
    paintLegend(pen, 4, low + h, Infinity, vector, { what: "q, k" });
  }
}
