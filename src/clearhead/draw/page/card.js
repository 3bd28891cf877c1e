/** A card holds one picture, and keeps it: as SVG, PNG or CSV, or shown as a table. */

import { button, download, element } from "./dom.js";
import { asPng, asSvg } from "./pen.js";
import { number } from "./text.js";

/**
 * @typedef {{caption: string, columns: string[], rows: (string | number)[][]}} Table
 * @typedef {object} Figure
 * @property {string} title
 * @property {number} width
 * @property {number} height
 * @property {(pen: import("./pen.js").Pen) => void} paint
 * @property {(whole: boolean) => Table} table   `whole`: every number, however many
 */

/** @param {string | number} value */
function quoteCsv(value) {
  // A cell that begins like a formula is a formula to spreadsheets, whoever wrote it.
  const words = typeof value === "string" && /^[=+\-@\t\r]/.test(value) ? `'${value}` : String(value);
  return /[",\n\r]/.test(words) ? `"${words.replace(/"/g, '""')}"` : words;
}

/** @param {Table} table */
function asCsv({ columns, rows }) {
  return [columns, ...rows].map((row) => row.map(quoteCsv).join(",")).join("\r\n") + "\r\n";
}

const MOST_CELLS = 3000;

/** The table as far as a page bears it; files have all of it. @param {Table} table */
function tableElement({ caption, columns, rows }) {
  const shown = rows.slice(0, Math.ceil(MOST_CELLS / columns.length));
  const note =
    shown.length < rows.length ? ` (the first ${shown.length} of ${rows.length} rows; the CSV file has them all)` : "";
  const cell = (value) => element("td", {}, typeof value === "number" ? number(value, 6) : value);
  const line = ([name, ...values]) =>
    element("tr", {}, element("th", { scope: "row" }, String(name)), ...values.map(cell));
  const titles = columns.map((name) => element("th", { scope: "col" }, name));
  return element(
    "div",
    { class: "as-table", tabindex: 0, role: "region", "aria-label": caption },
    element(
      "table",
      {},
      element("caption", {}, caption + note),
      element("thead", {}, element("tr", {}, ...titles)),
      element("tbody", {}, ...shown.map(line)),
    ),
  );
}

const LARGEST_TABLE = 900;

/**
 * A matrix as a table: all of it where it is small, and otherwise the row that is looked at.
 * @param {{caption: string, rowNames: string[], columnNames: string[], at: (i: number, j: number) => number,
 *          corner: string, row: number}} of
 */
export function matrixTable({ caption, rowNames, columnNames, at, corner, row }, whole) {
  if (whole || rowNames.length * columnNames.length <= LARGEST_TABLE) {
    const rows = rowNames.map((name, i) => [name, ...columnNames.map((_, j) => at(i, j))]);
    return { caption, columns: [corner, ...columnNames], rows };
  }
  const note = `the row of “${rowNames[row]}” (number ${row + 1} of ${rowNames.length}); the CSV file has them all`;
  return {
    caption: `${caption}: ${note}`,
    columns: ["number", "key", "value"],
    rows: columnNames.map((name, j) => [j + 1, name, at(row, j)]),
  };
}

export class Card {
  /**
   * @param {import("./session.js").Session} session
   * @param {string} name  of the files that are saved, and of the card in the address
   */
  constructor(session, name, title) {
    this.session = session;
    this.name = name;
    /** @type {Figure | null} */
    this.figure = null;
    this.title = element("h2", {}, title);
    this.hint = element("p", { class: "hint" });
    this.controls = element("div", { class: "controls" });
    this.body = element("div", { class: "body" });
    this.table = element("div", { hidden: true });
    this.tableButton = button("Table", () => this.#toggle(), {
      "aria-pressed": "false",
      title: "Show the numbers as a table",
    });
    this.tools = element(
      "div",
      { class: "tools", role: "group", "aria-label": `Keep “${title}”` },
      this.tableButton,
      button("SVG", () => this.#save("svg"), { title: "Save as SVG, with real text" }),
      button("PNG", () => this.#save("png"), { title: "Save as PNG" }),
      button("CSV", () => this.#save("csv"), { title: "Save the numbers as CSV" }),
    );
    for (const tool of this.tools.children) tool.disabled = true;
    this.root = element(
      "section",
      { class: "card", id: `card-${name}`, "aria-label": title },
      element("header", {}, element("div", {}, this.title, this.hint), this.tools),
      this.controls,
      this.body,
      this.table,
    );
  }

  get #shown() {
    return this.session.state.tables.split(",").includes(this.name);
  }

  #toggle() {
    const shown = new Set(this.session.state.tables.split(",").filter(Boolean));
    if (!shown.delete(this.name)) shown.add(this.name);
    this.session.set({ tables: [...shown].sort().join(",") });
    this.refresh();
  }

  /** @param {Figure | null} figure  what is shown from now on */
  keep(figure) {
    this.figure = figure;
    for (const tool of this.tools.children) tool.disabled = !figure;
    this.refresh();
  }

  /** A sentence in place of the picture. @param {string} sentence */
  say(sentence) {
    this.body.replaceChildren(element("p", { class: "empty" }, sentence));
    this.keep(null);
  }

  refresh() {
    const asTable = this.#shown && this.figure !== null;
    this.tableButton.setAttribute("aria-pressed", String(asTable));
    this.body.hidden = asTable;
    this.table.hidden = !asTable;
    this.table.replaceChildren(...(asTable ? [tableElement(this.figure.table(false))] : []));
  }

  async #save(kind) {
    const { figure } = this;
    const name = `${this.session.model.name}-${this.name}`.replace(/[^\w.-]+/g, "-");
    const made = {
      svg: () => new Blob([asSvg(figure)], { type: "image/svg+xml" }),
      png: () => asPng(figure),
      csv: () => new Blob([asCsv(figure.table(true))], { type: "text/csv" }),
    };
    download(await made[kind](), `${name}.${kind}`);
    this.session.hooks.said(`${name}.${kind} was saved.`);
  }

  /** The room for a picture. */
  get width() {
    return Math.max(240, Math.floor(this.body.clientWidth || this.root.clientWidth - 32));
  }
}

/** Fails softly: a sentence in the card instead of the picture. */
export async function orSay(session, card, ask) {
  try {
    return await ask();
  } catch (error) {
    card.say(session.explain(error));
    return null;
  }
}
