/** Attention as lines between two columns of tokens. */

import { Card, matrixTable } from "./card.js";
import { checkbox, element, slider } from "./dom.js";
import { Fan } from "./fan.js";
import { headColour } from "./panel.js";
import { SvgPen, fitted, screenTheme } from "./pen.js";
import { Reads } from "./reads.js";
import { ofHead } from "./source.js";
import { capital, number, widthOf } from "./text.js";

const MANY = 40;

/** @typedef {{side: number, at: number}} Token   side 0 reads, side 1 is read */

export class Lines {
  /** @param {import("./session.js").Session} session */
  constructor(session) {
    this.session = session;
    this.card = new Card(session, "lines", "Who reads whom");
    this.mass = slider({
      label: "Keep the top",
      min: 10,
      max: 100,
      step: 5,
      say: (value) => `${value}% of each row`,
      choose: (mass) => session.set({ mass }),
    });
    this.dim = checkbox("Dim special tokens and sinks", (dim) => session.set({ dim }));
    this.card.controls.append(this.mass.root, this.dim.root);
    this.stage = element("div", {
      class: "lines",
      tabindex: 0,
      role: "application",
      "aria-roledescription": "attention lines",
      "aria-label":
        "Attention lines. Up and down choose the token that reads, left and right the one that is read, Enter locks.",
      pointermove: (event) => this.#hover(this.#token(event)),
      pointerleave: () => this.#hover(null),
      click: (event) => this.#click(event),
      keydown: (event) => this.#key(event),
    });
    this.fan = new Fan(session);
    /** @type {Token | null} */
    this.hovered = null;
  }

  get root() {
    return this.card.root;
  }

  async update() {
    const { session } = this;
    const { attention, state } = session;
    const shown = state.shown ? state.shown.split(",").map(Number) : [...Array(attention.heads).keys()];
    const name = `${attention.name}.weights`;
    const tensors =
      shown.length === 1
        ? [await session.tensor(name, shown[0])]
        : await session.tensor(name).then((whole) => shown.map((head) => ofHead(whole, head)));
    if (attention !== session.attention || session.state.shown !== state.shown) return;
    this.reads = new Reads(session, shown, tensors);
    const { queries, keys, who } = this.reads;
    this.mass.set(state.mass);
    this.dim.input.checked = state.dim;
    this.card.hint.textContent = capital(
      `${who}. Lines hold the top ${state.mass}% of each row; the thicker, the more.`,
    );
    this.many = Math.max(queries.length, keys.length) > MANY;
    if (this.many) this.#showMany();
    else this.#showFew();
    this.card.keep({
      title: `${attention.name}: who reads whom`,
      width: this.width,
      height: this.height,
      paint: (pen) => (this.many ? this.fan.paint(pen) : this.#paint(pen)),
      table: (whole) =>
        matrixTable(
          {
            caption: `Weights, ${who}; each row sums to 1`,
            rowNames: queries,
            columnNames: keys,
            at: (i, j) => this.reads.mean(i, j),
            corner: "reads ↓",
            row: state.row,
          },
          whole,
        ),
    });
  }

  #showMany() {
    this.card.body.replaceChildren(this.fan.root);
    this.fan.show(this.reads, this.card.width);
    [this.width, this.height] = [this.fan.width, this.fan.height];
  }

  #showFew() {
    const longest = Math.max(this.reads.queries.length, this.reads.keys.length);
    this.pitch = longest > 24 ? 21 : Math.max(28, Math.min(46, 420 / longest));
    this.width = Math.min(this.card.width, 720);
    this.height = longest * this.pitch + 64;
    this.room = Math.min(150, this.width * 0.28);
    this.ends = [this.room + 10, this.width - this.room - 10];
    this.edges = this.reads.edges();
    this.card.body.replaceChildren(this.stage);
    this.#draw();
  }

  #draw() {
    const pen = new SvgPen(this.width, this.height, screenTheme());
    this.#paint(pen);
    pen.root.setAttribute("aria-hidden", "true");
    this.stage.replaceChildren(pen.root);
  }

  /** The middle of a token; the shorter column stands in the middle of the longer one. */
  #y(side, at) {
    const { queries, keys } = this.reads;
    const [own, other] = side ? [keys.length, queries.length] : [queries.length, keys.length];
    return 40 + this.pitch * (at + 0.5 + Math.max(0, other - own) / 2);
  }

  /** @param {import("./pen.js").Pen} pen */
  #paint(pen) {
    const { theme } = pen;
    const { state } = this.session;
    const [left, right] = this.ends;
    const focus = this.hovered ?? (state.pinned ? { side: 0, at: state.row } : null);
    const lit = (edge) => !focus || (focus.side ? edge.j : edge.i) === focus.at;
    const last = this.reads.shown.length - 1;
    const aside = (head) => (last ? (head / last - 0.5) * this.pitch * 0.5 : 0);
    pen.text(left - 12, 16, "reads", { size: 11, anchor: "end", fill: theme.faint });
    pen.text(right + 12, 16, "is read", { size: 11, fill: theme.faint });
    for (const edge of [...this.edges.filter((one) => !lit(one)), ...this.edges.filter(lit)]) {
      const faded = (edge.dim ? 0.25 : 1) * (lit(edge) ? 1 : 0.08);
      pen.curve(left, this.#y(0, edge.i) + aside(edge.head), right, this.#y(1, edge.j) + aside(edge.head), {
        stroke: headColour(this.reads.shown[edge.head]),
        width: 0.6 + 5 * edge.weight,
        opacity: (0.3 + 0.7 * edge.weight) * faded,
      });
    }
    this.#paintTokens(pen, 0, this.reads.queries, focus);
    this.#paintTokens(pen, 1, this.reads.keys, focus);
  }

  /** Tokens; beside those at the other ends of a chosen one's lines, their weights. @param {Token | null} focus */
  #paintTokens(pen, side, names, focus) {
    const { faint, fill, ink } = pen.theme;
    const x = this.ends[side] + (side ? 12 : -12);
    const anchor = side ? "start" : "end";
    const special = side ? this.reads.special : this.session.special(this.reads.attention.queries);
    names.forEach((name, at) => {
      const y = this.#y(side, at);
      const chosen = focus?.side === side && focus.at === at;
      const weight = chosen ? 700 : 400;
      const wide = Math.min(this.room - 8, widthOf(name, 14, weight));
      if (chosen) pen.rect(side ? x - 6 : x - wide - 6, y - 11, wide + 12, 22, { fill, radius: 5 });
      const dimmed = special[at] && this.session.state.dim && !chosen;
      fitted(pen, x, y, this.room - 8, name, { size: 14, anchor, weight, fill: dimmed ? faint : ink });
      if (!focus || focus.side === side || wide > this.room - 42) return;
      const share = side ? this.reads.mean(focus.at, at) : this.reads.mean(at, focus.at);
      const beside = side ? x + wide + 8 : x - wide - 8;
      if (share >= 0.005) pen.text(beside, y, number(share, 2), { size: 11, anchor, fill: faint });
    });
  }

  /** @param {Token | null} token  under the pointer */
  #hover(token) {
    const wanted = this.session.state.pinned ? null : token;
    if (wanted?.side === this.hovered?.side && wanted?.at === this.hovered?.at) return;
    this.hovered = wanted;
    this.#draw();
    if (wanted) this.session.hooks.read(this.reads.summary(wanted));
  }

  /** @returns {Token | null} */
  #token(event) {
    const box = this.stage.firstElementChild.getBoundingClientRect();
    const scale = this.width / box.width;
    const [x, y] = [(event.clientX - box.left) * scale, (event.clientY - box.top) * scale];
    const side = x < this.ends[0] ? 0 : x > this.ends[1] ? 1 : -1;
    if (side < 0) return null;
    const at = Math.floor((y - this.#y(side, 0)) / this.pitch + 0.5);
    return at >= 0 && at < (side ? this.reads.keys : this.reads.queries).length ? { side, at } : null;
  }

  #click(event) {
    const token = this.#token(event);
    const { row, pinned } = this.session.state;
    if (!token || (pinned && token.side === 0 && token.at === row)) this.session.set({ pinned: false });
    else this.session.look(token.side ? { column: token.at } : { row: token.at, pinned: true });
  }

  #key(event) {
    const { row, column, pinned } = this.session.state;
    const moves = {
      ArrowUp: { row: row - 1 },
      ArrowDown: { row: row + 1 },
      ArrowLeft: { column: column - 1 },
      ArrowRight: { column: column + 1 },
    };
    if (event.key === "Enter") this.session.set({ pinned: !pinned });
    else if (moves[event.key]) {
      this.session.look({ ...moves[event.key], pinned: true });
      this.session.hooks.said(this.reads.says(this.session.state.row, this.session.state.column));
    } else return;
    event.preventDefault();
    event.stopPropagation();
  }

  /** @param {KeyboardEvent} event  one that nobody else wanted */
  key(event) {
    if (this.many) this.fan.key(event);
    else this.#key(event);
  }
}
