/** What made a word: the share of each part in its logit. */

import { Card, orSay } from "./card.js";
import { dropdown, element } from "./dom.js";
import { PALETTE } from "./palette.js";
import { SvgPen, fitted, screenTheme } from "./pen.js";
import { number, partName, quoted, visible } from "./text.js";

const MOST_BARS = 18;

/** `decoder 2 · cross-attention · head 1` -> `decoder 2 cross 1`, where there is little room. */
function brief(name) {
  return name.replace(/-attention|feed-|head /g, "").replace(/ ·/g, "");
}

export class Shares {
  /** @param {import("./session.js").Session} session */
  constructor(session) {
    this.session = session;
    this.card = new Card(session, "shares", "What made this word");
    this.word = dropdown("Word", (word) => session.set({ word }));
    this.against = dropdown("Against", (against) => session.set({ against }));
    this.card.controls.append(
      element("label", { class: "field" }, element("span", {}, "Word"), this.word.root),
      element("label", { class: "field" }, element("span", {}, "Against"), this.against.root),
    );
    this.asked = 0;
  }

  async update(lens, position) {
    const { session } = this;
    const mine = ++this.asked;
    const { word, against } = session.state;
    const answer = await orSay(session, this.card, () =>
      session.ask((id) => session.source.shares(id, position, word, against)),
    );
    if (!answer || mine !== this.asked) return;
    const words = new Map([
      [answer.word.id, answer.word.token],
      ...lens.best.at(-1)[position].map(({ id, token }) => [id, token]),
    ]);
    const options = [...words].map(([id, token]) => [String(id), visible(token)]);
    this.word.set(options, String(answer.word.id));
    this.against.set([["", "nothing"], ...options], answer.against ? String(answer.against.id) : "");
    for (const { root } of [this.word, this.against]) root.disabled = !session.source.live;
    const order = [...answer.shares].sort((a, b) => Math.abs(b.value) - Math.abs(a.value));
    const rest = order.slice(MOST_BARS);
    const bars = order
      .slice(0, MOST_BARS)
      .sort((a, b) => b.value - a.value)
      .map(({ name, value }) => [this.card.width > 560 ? partName(name) : brief(partName(name)), value]);
    if (rest.length) bars.push([`${rest.length} others`, rest.reduce((sum, { value }) => sum + value, 0)]);
    const what = answer.against
      ? `“${visible(answer.word.token)}” minus “${visible(answer.against.token)}”`
      : `“${visible(answer.word.token)}”`;
    this.card.hint.textContent =
      `The logit of ${what} after ${quoted(session.tokens(answer.side)[position])} is ${number(answer.logit, 4)}: ` +
      "the sum of these shares. " +
      "Blue promotes, orange suppresses.";
    this.#draw(bars, answer, what);
  }

  #draw(bars, answer, what) {
    const width = Math.min(this.card.width, 760);
    const label = Math.min(260, width * 0.42);
    const most = Math.max(...bars.map(([, value]) => Math.abs(value)), 1e-9);
    const low = Math.min(0, ...bars.map(([, value]) => value));
    const high = Math.max(0, ...bars.map(([, value]) => value));
    const room = width - label - 120;
    const zero = label + 60 + room * (-low / (high - low || 1));
    const unit = room / (high - low || most);
    const height = bars.length * 20 + 40;
    const paint = (pen) => {
      const { ink, faint } = pen.theme;
      bars.forEach(([name, value], at) => {
        const y = 12 + at * 20;
        fitted(pen, label, y, label - 4, name, { size: 12, anchor: "end" });
        const colour = value < 0 ? PALETTE.diverging[2] : PALETTE.diverging[0];
        pen.rect(value < 0 ? zero + value * unit : zero, y - 7, Math.abs(value) * unit, 14, { fill: colour });
        const out = value < 0 ? zero + value * unit - 5 : zero + value * unit + 5;
        pen.text(out, y, number(value, 3), { size: 11, anchor: value < 0 ? "end" : "start", fill: faint });
      });
      pen.line(
        [
          [zero, 2],
          [zero, bars.length * 20 + 4],
        ],
        { stroke: ink, width: 1 },
      );
      pen.text(label, bars.length * 20 + 22, "sum", { size: 12, anchor: "end", weight: 700 });
      pen.text(zero, bars.length * 20 + 22, number(answer.logit, 4), { size: 12, anchor: "middle", weight: 700 });
    };
    const pen = new SvgPen(width, height, screenTheme());
    paint(pen);
    pen.root.setAttribute("role", "img");
    pen.root.setAttribute("aria-label", `Shares of the logit of ${what}; the table has the numbers`);
    this.card.body.replaceChildren(pen.root);
    this.card.keep({
      title: `shares of the logit of ${what}`,
      width,
      height,
      paint,
      table: () => ({
        caption: `Shares of the logit of ${what}: they add up to ${number(answer.logit, 6)}`,
        columns: ["part", "share"],
        rows: answer.shares.map(({ name, value }) => [name, value]),
      }),
    });
  }
}
