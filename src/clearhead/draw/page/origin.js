/** Where a number comes from: its formula with the numbers in it, and from factor to factor back to the embedding. */

import { button, element } from "./dom.js";
import { placeWord } from "./source.js";
import { capital, number, partName, quoted } from "./text.js";

/** @param {string} words @returns {import("./source.js").Place[]} the way that was walked, the last one being shown */
function readTrail(words) {
  return words
    .split("~")
    .filter(Boolean)
    .map((entry) => {
      const [tap, head, row, column] = entry.split(":");
      return { tap, head: head === "" ? null : Number(head), row: Number(row), column: Number(column) };
    });
}

const COMBINED = {
  sum: "The terms add up to it.",
  softmax: "exp of the first, divided by the sum of exp over the row.",
  norm: "Centred and scaled over the whole vector.",
};

export class Origin {
  /** @param {import("./session.js").Session} session  @param {HTMLElement} root */
  constructor(session, root) {
    this.session = session;
    this.root = root;
    this.asked = 0;
    root.addEventListener("keydown", (event) => {
      if (event.key !== "Escape") return;
      event.stopPropagation();
      this.close();
    });
  }

  close() {
    this.session.set({ cell: "" });
    document.querySelector("#view .board")?.focus();
  }

  /** A cell of a tensor in words. @param {import("./source.js").Place} place */
  #name({ tap, head, row }) {
    const what = tap.replace(/^.*\.(\w+)$/, "$1");
    const attention = this.session.run.attentions.find(({ name }) => tap === `${name}.${what}`);
    const reads = attention ? (what === "k" || what === "v" ? attention.keys : attention.queries) : this.#sideOf(tap);
    const token = this.session.run.sides[reads]?.tokens[row];
    const of = attention && head !== null ? `, head ${head + 1}` : "";
    const whose = token === undefined ? `row ${row + 1}` : quoted(token);
    return `${what} of ${whose} · ${partName(tap.replace(/\.\w+$/, ""))}${of}`;
  }

  #sideOf(tap) {
    const stack = this.session.model.stacks.find(
      ({ name, embed }) => tap.startsWith(`${name}.`) || tap.startsWith(`${embed}.`),
    );
    return stack?.reads;
  }

  async update() {
    const words = this.session.state.cell;
    const mine = ++this.asked;
    this.root.hidden = !words || !this.session.run;
    document.body.classList.toggle("with-cell", !this.root.hidden);
    if (this.root.hidden) return;
    const trail = readTrail(words);
    const head = element(
      "header",
      {},
      element("h2", {}, "Where it comes from"),
      button("Close", () => this.close(), { class: "quiet" }),
    );
    try {
      const cell = await this.session.ask((id) => this.session.source.cell(id, trail.at(-1)));
      if (mine === this.asked) this.root.replaceChildren(head, this.#trail(trail), ...this.#explanation(cell, trail));
    } catch (error) {
      if (mine === this.asked)
        this.root.replaceChildren(
          head,
          this.#trail(trail),
          element("p", { class: "empty" }, this.session.explain(error)),
        );
    }
  }

  /** The way so far; any of its stops can be gone back to. */
  #trail(trail) {
    return element(
      "nav",
      { "aria-label": "The way back" },
      element(
        "ol",
        { class: "trail" },
        ...trail.map((place, at) =>
          element(
            "li",
            {},
            button(this.#name(place), () => this.#go(trail.slice(0, at + 1)), {
              "aria-current": at === trail.length - 1 ? "location" : null,
            }),
          ),
        ),
      ),
    );
  }

  #go(trail) {
    this.session.set({ cell: trail.map(placeWord).join("~") });
  }

  #explanation(cell, trail) {
    const most = Math.max(
      ...cell.terms.map(({ value }) => Math.abs(value)).filter(Number.isFinite),
      Math.abs(cell.rest?.value ?? 0),
      1e-12,
    );
    const line = (label, factors, value) =>
      element(
        "tr",
        {},
        element("th", { scope: "row" }, label),
        element("td", {}, ...factors),
        element("td", { class: "value" }, number(value)),
        element("td", {}, this.#bar(value / most)),
      );
    const lines = cell.terms.map((term) => line(term.label, this.#factors(term, trail), term.value));
    if (cell.rest) lines.push(line(`${cell.rest.count} others`, [], cell.rest.value));
    // JSON has no infinities: the server leaves the number out, and the formula says which.
    const value = cell.value ?? (cell.formula.includes("−∞") ? -Infinity : NaN);
    const ends = !cell.terms.some(({ from }) => from?.some(Boolean));
    const titles = ["term", "factors", "value", ""].map((name) => element("th", { scope: "col" }, name));
    const table = [
      element("p", { class: "hint" }, COMBINED[cell.combine] ?? ""),
      element(
        "table",
        { class: "terms" },
        element("thead", {}, element("tr", {}, ...titles)),
        element("tbody", {}, ...lines),
      ),
    ];
    return [
      element("p", { class: "figure-value" }, number(value, 5)),
      element("p", {}, capital(`${cell.says}.`)),
      ...(cell.formula ? [element("p", {}, element("code", {}, cell.formula))] : []),
      ...(lines.length ? table : []),
      ...(ends ? [element("p", { class: "hint" }, "Here the walk ends: nothing before this was computed.")] : []),
    ];
  }

  #factors(term, trail) {
    return term.factors.flatMap((factor, at) => {
      const from = term.from?.[at];
      const sign = at ? [" × "] : [];
      if (!from) return [...sign, number(factor)];
      return [
        ...sign,
        button(number(factor), () => this.#go([...trail, from]), { class: "factor", title: this.#name(from) }),
      ];
    });
  }

  /** To the left what takes away, to the right what adds. */
  #bar(share) {
    const bar = element("span", { class: share < 0 ? "bar minus" : "bar" });
    bar.style.width = `${Math.min(50, 50 * Math.abs(share)) || 0}%`;
    return element("span", { class: "bars" }, bar);
  }
}
