/** The beam as a tree: every word that was tried, the winner thick, what died grey with the reason. */

import { Card } from "./card.js";
import { element } from "./dom.js";
import { SvgPen, screenTheme } from "./pen.js";
import { fit, number, visible } from "./text.js";

/**
 * @typedef {{id: number, parent: number | null, token: string, score: number, alive: boolean, reason: string,
 *            winner: boolean}} Node
 */

const LINE = 34;

/** Where each node stands: depth to the right, leaves downwards, the winner's line first. @param {Node[]} nodes */
function place(nodes) {
  const children = new Map();
  for (const node of nodes) children.set(node.parent, [...(children.get(node.parent) ?? []), node]);
  const spots = new Map();
  let line = 0;
  const visit = (node, depth) => {
    const own = [...(children.get(node.id) ?? [])].sort(
      (a, b) => Number(b.winner) - Number(a.winner) || b.score - a.score,
    );
    const first = line;
    own.forEach((child) => visit(child, depth + 1));
    if (!own.length) line++;
    spots.set(node.id, { depth, line: own.length ? spots.get(own[0].id).line : first });
  };
  [...(children.get(null) ?? [])]
    .sort((a, b) => Number(b.winner) - Number(a.winner) || b.score - a.score)
    .forEach((node) => visit(node, 0));
  return { spots, lines: line, depth: Math.max(0, ...[...spots.values()].map((spot) => spot.depth)) };
}

export class BeamTree {
  /** @param {import("./session.js").Session} session */
  constructor(session) {
    this.card = new Card(session, "beam", "The beam as a tree");
    this.card.hint.textContent =
      "Scores are sums of log-probabilities. The winner is thick; what died is grey, with the reason.";
    this.scroll = element("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": "The beam as a tree" });
  }

  /** @param {{nodes: Node[]} | null} beam */
  update(beam) {
    this.card.root.hidden = !beam;
    if (!beam) return;
    const { nodes } = beam;
    const { spots, lines, depth } = place(nodes);
    const step = Math.max(104, Math.min(150, (this.card.width - 130) / (depth + 1)));
    const parents = new Set(nodes.map((node) => node.parent));
    const [width, height] = [step * (depth + 1) + 110, lines * LINE + 24];
    const by = new Map(nodes.map((node) => [node.id, node]));
    const at = ({ id }) => [12 + spots.get(id).depth * step, 20 + spots.get(id).line * LINE];
    const paint = (pen) => {
      const { ink, faint } = pen.theme;
      for (const node of [...nodes].sort((a, b) => Number(a.winner) - Number(b.winner))) {
        const [x, y] = at(node);
        const parent = by.get(node.parent);
        if (parent) {
          const [from, level] = at(parent);
          const colour = node.winner || node.alive ? ink : faint;
          const start =
            from +
            Math.min(
              step - 22,
              Math.max(
                pen.widthOf(fit(visible(parent.token), step - 30, 13), 13, 700),
                pen.widthOf(number(parent.score, 3), 10),
              ) + 8,
            );
          pen.curve(start, level, x - 5, y, {
            stroke: colour,
            width: node.winner ? 3 : 1,
            opacity: node.winner || node.alive ? 1 : 0.6,
          });
        }
      }
      for (const node of nodes) {
        const [x, y] = at(node);
        const fill = node.alive || node.winner ? ink : faint;
        pen.text(x, y, fit(visible(node.token), step - 30, 13, node.winner ? 700 : 400), {
          size: 13,
          weight: node.winner ? 700 : 400,
          fill,
        });
        const below = node.alive || !node.reason ? number(node.score, 3) : `${number(node.score, 3)} ${node.reason}`;
        pen.text(x, y + 14, parents.has(node.id) ? fit(below, step - 14, 10) : below, { size: 10, fill: faint });
      }
    };
    const pen = new SvgPen(width, height, screenTheme());
    paint(pen);
    pen.root.setAttribute("role", "img");
    pen.root.setAttribute(
      "aria-label",
      `Beam: ${nodes
        .filter((node) => node.winner)
        .map((node) => visible(node.token))
        .join(" ")} wins`,
    );
    this.scroll.replaceChildren(pen.root);
    this.card.body.replaceChildren(this.scroll);
    this.card.keep({
      title: "the beam as a tree",
      width,
      height,
      paint,
      table: () => ({
        caption: "Every word that the beam tried",
        columns: ["number", "follows", "word", "score", "fate"],
        rows: nodes.map((node) => [
          node.id,
          node.parent ?? "",
          visible(node.token),
          node.score,
          node.winner ? "winner" : node.alive ? "alive" : node.reason || "dropped",
        ]),
      }),
    });
  }
}
