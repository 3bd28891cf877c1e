/** All queries at once, laid out as the formula: keys on top, queries left, values below, the result right. */

import { Board } from "./board.js";
import { Card, matrixTable } from "./card.js";
import { PALETTE } from "./palette.js";
import { aboveColumns, besideRows } from "./panel.js";
import { aroundZero, legendHeight, paintLegend, sharesOf } from "./scale.js";
import { reader } from "./source.js";
import { number } from "./text.js";

const MIDDLES = ["weights", "masked", "bias", "scaled", "scores"];
const GAP = 14;

/** @typedef {import("./steps.js").HeadView} HeadView */

export class Formula {
  /** @param {import("./session.js").Session} session */
  constructor(session, hooks) {
    this.session = session;
    this.card = new Card(session, "formula", "All queries at once");
    this.card.hint.textContent =
      "Keys on top, queries at the left, values below, the result at the right: the layout is the formula.";
    this.board = new Board("The formula of attention", hooks, session);
  }

  /** Where everything stands. @param {HeadView} of */
  #layout({ tensors: { q }, queries, keys }) {
    const deep = q.shape[1];
    const room = this.card.width - 4;
    const left = besideRows(queries);
    const inner = Math.max(1.5, Math.min(7, (room * 0.2) / deep));
    const cell = Math.max(1, Math.min(46, (room - left - 2 * inner * deep - 2 * GAP - 30) / keys.length));
    const above = aboveColumns(keys, cell);
    const thin = Math.max(1.5, Math.min(6, 150 / deep));
    const x = left + inner * deep + GAP;
    const top = above.height + 22;
    const y = top + thin * deep + GAP;
    const right = x + cell * keys.length + GAP;
    const below = y + cell * queries.length + GAP;
    const width = Math.ceil(Math.max(right + inner * deep + 26, right + above.behind));
    return { deep, left, inner, cell, thin, x, top, y, right, below, width, low: below + thin * deep };
  }

  /** The scores or weights in the middle, as far as they have come. @param {HeadView} of */
  #square({ attention, head, tensors, queries, keys, reached }, { x, y, cell }) {
    const spot = { id: "middle", x, y, cell: [cell, cell], rows: queries.length, columns: keys.length };
    const name = MIDDLES.find((one) => tensors[one] && reached(one));
    if (!name) return { ...spot, empty: true };
    const at = reader(tensors[name]);
    const masked = reader(tensors.masked);
    return {
      ...spot,
      name,
      at,
      masked: (i, j) => reached("masked") && masked(i, j) === -Infinity,
      scale:
        name === "weights" ? sharesOf(tensors[name].data, keys.length) : aroundZero(tensors[name].data, "around zero"),
      place: (i, j) => ({ tap: `${attention.name}.${name}`, head, row: i, column: j - (tensors[name].before ?? 0) }),
      looks: (i, j) => ({ row: i, column: j }),
      tells: (i, j) =>
        name === "weights"
          ? this.session.reading(attention, head, i, j, at)
          : `${name} of “${queries[i]}” and “${keys[j]}”: ${number(at(i, j))}`,
    };
  }

  /**
   * Queries or results, a row for each; or keys or values, `turned` so that each is a column.
   * @param {HeadView} of  @param {{name: string, role: string, turned?: boolean, x: number, y: number,
   *   cell: [number, number]}} spot
   */
  #vectors({ attention, head, tensors, queries, keys }, { name, role, turned = false, ...spot }) {
    const tensor = tensors[name];
    const [count, deep] = tensor.shape;
    const straight = reader(tensor);
    const at = turned ? (i, j) => straight(j, i) : straight;
    const tokens = turned ? keys : queries;
    return {
      id: name,
      ...spot,
      rows: turned ? deep : count,
      columns: turned ? count : deep,
      at,
      scale: aroundZero(tensor.data, "around zero"),
      colour: PALETTE.roles[role].colour,
      place: (i, j) => {
        const [row, column] = turned ? [j - (tensor.slots ?? 0), i] : [i, j];
        return { tap: `${attention.name}.${name}`, head: tensor.group ?? head, row, column };
      },
      looks: (i, j) => (turned ? { column: j } : { row: i }),
      tells: (i, j) => {
        const [token, dimension] = turned ? [j, i] : [i, j];
        return `${role} of “${tokens[token]}”, number ${dimension + 1} of ${deep}: ${number(at(i, j))}`;
      },
    };
  }

  /** @param {HeadView} of */
  update(of) {
    const { attention, head, tensors, queries, keys, row, column, reached } = of;
    const layout = this.#layout(of);
    const { deep, left, inner, cell, thin, x, top, y, right, below, width, low } = layout;
    const S = this.#square(of, layout);
    const Q = {
      ...this.#vectors(of, { name: "q", role: "query", x: left, y, cell: [inner, cell] }),
      rowNames: queries,
    };
    const K = {
      ...this.#vectors(of, { name: "k", role: "key", turned: true, x, y: top, cell: [cell, thin] }),
      columnNames: keys,
    };
    const V = this.#vectors(of, { name: "v", role: "value", turned: true, x, y: below, cell: [cell, thin] });
    const Z = {
      ...this.#vectors(of, { name: "heads", role: "output", x: right, y, cell: [inner, cell] }),
      empty: !reached("heads"),
    };
    const options = { masked: attention.kind === "masked" && reached("masked"), what: S.name };
    const height = Math.ceil(low + (S.empty ? 10 : legendHeight(width - 4, S.scale, options)));
    this.card.body.replaceChildren(this.board.root);
    this.board.show({
      key: of.key,
      width,
      height,
      panels: [S, Q, K, V, Z],
      cursor: S.empty ? null : { panel: S, i: row, j: column },
      related: ({ panel, i, j }) => this.#related([S, Q, K, V, Z], panel, i, j),
      decorate: (pen) => {
        this.#letters(pen, [Q, K, V, Z]);
        if (!S.empty) paintLegend(pen, 4, low, width, S.scale, options);
      },
    });
    const shown = S.empty
      ? { caption: "queries", columnNames: Array.from({ length: deep }, (_, at) => String(at + 1)), at: Q.at }
      : { caption: `${S.name}, ${S.scale.says}`, columnNames: keys, at: S.at };
    this.card.keep({
      title: `${attention.name}, head ${head + 1}: the formula`,
      width,
      height,
      paint: (pen) => this.board.paint(pen),
      table: (whole) => matrixTable({ ...shown, rowNames: queries, corner: "query ↓", row }, whole),
    });
  }

  /** Whatever goes into a cell of the middle, or is made of it. */
  #related([S, Q, K, V, Z], panel, i, j) {
    const row = (of) => [of, i, null];
    const column = (of) => [of, null, j];
    if (panel === S) return [row(Q), column(K), column(V), row(Z)];
    return panel === Q || panel === Z ? [row(S), row(panel)] : [column(S), column(panel)];
  }

  #letters(pen, [Q, K, V, Z]) {
    const dark = pen.theme.paper === PALETTE.dark.paper;
    const big = (role) => ({
      size: 14,
      weight: 700,
      fill: dark ? `color-mix(in srgb, ${PALETTE.roles[role].colour} 60%, white)` : PALETTE.roles[role].colour,
    });
    const under = (panel) => [panel.x + (panel.columns * panel.cell[0]) / 2, panel.y + panel.rows * panel.cell[1] + 12];
    pen.text(...under(Q), "Q", { ...big("query"), anchor: "middle" });
    pen.text(...under(Z), "Z", { ...big("output"), anchor: "middle" });
    pen.text(K.x - 8, K.y + 10, "Kᵀ", { ...big("key"), anchor: "end" });
    pen.text(V.x - 8, V.y + 10, "Vᵀ", { ...big("value"), anchor: "end" });
  }
}
