/** The residual stream: what attention moves from token to token, and what the feed-forward layers add. */

import { Card } from "./card.js";
import { contributionsOf } from "./contributions.js";
import { element, slider } from "./dom.js";
import { PALETTE } from "./palette.js";
import { SvgPen, fitted, screenTheme } from "./pen.js";
import { fit, visible } from "./text.js";

const MOST_EDGES = 1500;
const WINDOW = 40;

export class Flow {
  /** @param {import("./session.js").Session} session */
  constructor(session) {
    this.session = session;
    this.card = new Card(session, "flow", "The stream");
    this.card.hint.textContent =
      "Layers upwards, tokens across. A line is what attention moves from one token to another, " +
      "by its share of all that the row receives; a disc is what the feed-forward layer adds, " +
      "by its share of the stream.";
    this.edges = slider({
      label: "Lines above",
      min: 1,
      max: 60,
      step: 1,
      say: (value) => `${value}% of a row`,
      choose: (edges) => session.set({ edges }),
    });
    this.card.controls.append(this.edges.root);
    this.scroll = element("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": "The stream" });
  }

  async update(position) {
    const { session } = this;
    this.edges.set(session.state.edges);
    const answer = await contributionsOf(session, this.card);
    if (!answer) return;
    const scene = this.#scene(answer, position);
    const paint = (pen) => this.#paint(pen, scene);
    const pen = new SvgPen(scene.width, scene.height, screenTheme());
    paint(pen);
    pen.root.setAttribute("role", "img");
    pen.root.setAttribute(
      "aria-label",
      `${scene.edges.length} lines above ${session.state.edges}%; the table has them`,
    );
    this.scroll.replaceChildren(pen.root);
    this.card.body.replaceChildren(this.scroll);
    this.card.keep({
      title: "the stream",
      width: scene.width,
      height: scene.height,
      paint,
      table: () => ({
        caption: "What attention moves, as a share of the row",
        columns: ["attention", "to", "from", "share"],
        rows: scene.edges.map(({ name, to, from, share }) => [name, to, from, share]).sort((a, b) => b[3] - a[3]),
      }),
    });
  }

  /** A column for each token of each stack, a row for each layer; lines between them. */
  #scene(answer, position) {
    const { session } = this;
    const stacks = session.model.stacks;
    const step = Math.max(
      34,
      Math.min(
        84,
        (this.card.width - 170) /
          Math.min(
            2 * WINDOW,
            stacks.reduce((sum, { reads }) => sum + session.tokens(reads).length, 0),
          ),
      ),
    );
    const deep = Math.max(...stacks.map(({ layers }) => layers.length));
    const rise = Math.max(40, Math.min(74, 380 / (deep + 1)));
    const height = deep * rise + 82;
    let left = 76;
    const blocks = {};
    for (const stack of stacks) {
      const tokens = session.tokens(stack.reads).map(visible);
      const from = Math.max(0, Math.min(position - WINDOW / 2, tokens.length - WINDOW));
      blocks[stack.name] = { stack, tokens, from, count: Math.min(WINDOW, tokens.length), left };
      left += Math.min(WINDOW, tokens.length) * step + 30;
    }
    const spot = (block, at, level) => [block.left + (at - block.from + 0.5) * step, height - 40 - level * rise];
    const inside = (block, at) => at >= block.from && at < block.from + block.count;
    const edges = [];
    for (const attention of session.run.attentions) {
      const norms = answer.norms[attention.name];
      const own = Object.values(blocks).find(({ stack }) => attention.name.startsWith(`${stack.name}.`));
      if (!norms || !own) continue;
      const layer = own.stack.layers.findIndex(({ name }) => attention.name.startsWith(`${name}.`));
      const reads = attention.kind === "cross" ? blocks[stacks[0].name] : own;
      norms.forEach((row, i) => {
        const total = row.reduce((sum, value) => sum + value, 0) || 1;
        // Slots of memory come first: they are no tokens, and have no place in the picture.
        row.slice(attention.memory ?? 0).forEach((value, j) => {
          if ((100 * value) / total < session.state.edges || !inside(own, i) || !inside(reads, j)) return;
          const level = attention.kind === "cross" ? reads.stack.layers.length : layer;
          edges.push({
            name: attention.name,
            to: own.tokens[i],
            from: reads.tokens[j],
            share: value / total,
            cross: attention.kind === "cross",
            start: spot(reads, j, level),
            end: spot(own, i, layer + 1),
          });
        });
      });
    }
    edges.sort((a, b) => a.share - b.share);
    return {
      edges: edges.slice(-MOST_EDGES),
      blocks: Object.values(blocks),
      spot,
      answer,
      step,
      width: Math.ceil(left + 44),
      height,
    };
  }

  #paint(pen, { edges, blocks, spot, answer, step, height }) {
    const { ink, faint, paper } = pen.theme;
    for (const { start, end, share, cross } of edges) {
      pen.curve(...start, ...end, {
        stroke: cross ? PALETTE.heads[4] : ink,
        width: 0.5 + 3.5 * share,
        opacity: 0.2 + 0.8 * share,
        upright: !cross,
      });
    }
    for (const block of blocks) {
      for (let level = 0; level <= block.stack.layers.length; level++) {
        const name = level ? `${block.stack.name} ${level}` : "embedding";
        const [x, y] = spot(block, block.from, level);
        const behind = block === blocks[0] ? x - 16 : x + (block.count - 1) * step + 16;
        pen.text(behind, y, fit(name, 74, 11), {
          size: 11,
          anchor: block === blocks[0] ? "end" : "start",
          fill: faint,
        });
        for (let at = block.from; at < block.from + block.count; at++) {
          const layer = level ? block.stack.layers[level - 1].name : "";
          const share = answer.feedforward[`${layer}.feedforward`]?.[at] / answer.stream[layer]?.[at];
          if (share > 0)
            pen.circle(...spot(block, at, level), 3 + 9 * Math.min(1, share), { fill: PALETTE.heads[5], opacity: 0.6 });
          pen.circle(...spot(block, at, level), 3, { fill: paper, stroke: ink, width: 1.2 });
        }
      }
      for (let at = block.from; at < block.from + block.count; at++) {
        const [x, y] = spot(block, at, 0);
        fitted(pen, x, y + 18, step - 4, block.tokens[at], { size: 12, anchor: "middle" });
      }
    }
    this.#legend(pen, height - 8);
  }

  #legend(pen, y) {
    const { ink, faint } = pen.theme;
    const named = (words, x) => pen.text(x, y, words, { size: 11, fill: faint });
    const stroke = (x, colour) => pen.rect(x, y - 1, 18, 2, { fill: colour });
    stroke(4, ink);
    named("self-attention", 27);
    stroke(116, PALETTE.heads[4]);
    named("cross-attention", 139);
    pen.circle(240, y, 5, { fill: PALETTE.heads[5], opacity: 0.6 });
    named("feed-forward", 250);
  }
}
