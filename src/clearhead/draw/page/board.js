/** A board of heat maps on one canvas: painted once, pointed at through a second canvas that lies above it. */

import { element } from "./dom.js";
import { LABEL, LONGEST, every, paintPanel } from "./panel.js";
import { CanvasPen, screenTheme, sizeCanvas } from "./pen.js";
import { colourOf } from "./scale.js";
import { fit, widthOf } from "./text.js";

/**
 * @typedef {import("./panel.js").Panel} Panel
 * @typedef {{panel: Panel, i: number, j: number, u?: number, v?: number}} Cell   u, v: where in the cell, 0 to 1
 */

export class Board {
  /**
   * @param {string} label   what a screen reader calls it
   * @param {{says: (cell: Cell) => string, picked: (cell: Cell) => void, moved?: (cell: Cell) => void,
   *          left?: () => void, entered?: (cell: Cell) => void}} hooks
   * @param {import("./session.js").Session} session
   */
  constructor(label, hooks, session) {
    this.hooks = hooks;
    this.session = session;
    this.base = element("canvas", { "aria-hidden": "true" });
    this.over = element("canvas", { "aria-hidden": "true", class: "over" });
    this.root = element(
      "div",
      {
        class: "board",
        tabindex: 0,
        role: "application",
        "aria-roledescription": "heat map",
        "aria-label": `${label}. Arrow keys move the cell, Enter pins it.`,
        pointermove: (event) => this.#point(event),
        pointerleave: () => this.#hover(null),
        click: (event) => this.#click(event),
        keydown: (event) => this.key(event),
        focus: () => this.#outline(),
      },
      this.base,
      this.over,
    );
    this.panels = [];
    this.size = [0, 0];
    this.painted = "";
    /** @type {Cell | null} */
    this.cursor = null;
    /** @type {Cell | null} */
    this.hovered = null;
  }

  /**
   * @param {{key: string, width: number, height: number, panels: Panel[], decorate?: (pen: any) => void,
   *          related?: (cell: Cell) => [Panel, number | null, number | null][], cursor?: Cell | null}} what
   */
  show({ key, width, height, panels, decorate, related, cursor = null }) {
    const theme = screenTheme();
    const whole = `${key}|${width}|${height}|${theme.paper}`;
    Object.assign(this, { panels, decorate, related, cursor });
    if (this.hovered) this.hovered = this.#same(this.hovered);
    if (whole !== this.painted) {
      this.painted = whole;
      this.size = [width, height];
      this.paint(new CanvasPen(sizeCanvas(this.base, width, height), theme));
      sizeCanvas(this.over, width, height);
    }
    this.#outline();
  }

  /** Everything but the pointer. @param {import("./pen.js").Pen} pen */
  paint(pen) {
    for (const panel of this.panels) paintPanel(pen, panel);
    this.decorate?.(pen);
  }

  #same(cell) {
    const panel = this.panels.find(({ id }) => id === cell.panel.id);
    return panel && cell.i < panel.rows && cell.j < panel.columns ? { ...cell, panel } : null;
  }

  /** The cell at a point, by arithmetic. @returns {Cell | null} */
  hit(x, y) {
    for (const panel of this.panels) {
      const [down, right] = [(y - panel.y) / panel.cell[1], (x - panel.x) / panel.cell[0]];
      const [i, j] = [Math.floor(down), Math.floor(right)];
      if (!panel.empty && i >= 0 && j >= 0 && i < panel.rows && j < panel.columns) {
        return { panel, i, j, u: right - j, v: down - i };
      }
    }
    return null;
  }

  #at(event) {
    const box = this.base.getBoundingClientRect();
    return this.hit(event.clientX - box.left, event.clientY - box.top);
  }

  #point(event) {
    const cell = this.#at(event);
    const old = this.hovered;
    if (cell?.panel.id === old?.panel.id && cell?.i === old?.i && cell?.j === old?.j) return;
    this.#hover(cell);
  }

  #hover(cell) {
    this.hovered = cell;
    this.#outline();
    const read = cell ?? this.cursor;
    this.session.hooks.read(read ? this.hooks.says(read) : "");
    if (cell) this.hooks.entered?.(cell);
    else this.hooks.left?.();
  }

  #click(event) {
    const cell = this.#at(event);
    if (!cell) return;
    this.cursor = cell;
    this.#outline();
    this.hooks.picked(cell);
  }

  /** @param {KeyboardEvent} event */
  key(event) {
    const step = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0] }[event.key];
    const first = this.panels.find((panel) => !panel.empty);
    if (!first || event.ctrlKey || event.metaKey || event.altKey || (!step && event.key !== "Enter")) return;
    event.preventDefault();
    event.stopPropagation();
    const from = this.cursor ?? { panel: first, i: 0, j: 0 };
    if (!step) {
      this.hooks.picked(from);
      return;
    }
    this.cursor = this.cursor ? this.#beside(from, step) : from;
    this.hovered = null;
    this.#outline();
    this.session.hooks.said(this.hooks.says(this.cursor));
    this.hooks.moved?.(this.cursor);
  }

  /** The next cell in a direction; beyond the edge of a map, that of its neighbour. */
  #beside({ panel, i, j }, [down, right]) {
    const [to, across] = [i + down, j + right];
    if (to >= 0 && across >= 0 && to < panel.rows && across < panel.columns) return { panel, i: to, j: across };
    const x = panel.x + (j + 0.5) * panel.cell[0];
    const y = panel.y + (i + 0.5) * panel.cell[1];
    for (let far = 2; far < Math.max(...this.size); far += 2) {
      const cell = this.hit(x + right * far, y + down * far);
      if (cell && cell.panel !== panel) return cell;
    }
    return { panel, i, j };
  }

  /** The second canvas: where the pointer and the cursor are. Nothing else is painted when the pointer moves. */
  #outline() {
    const context = this.over.getContext("2d");
    context.clearRect(0, 0, this.size[0], this.size[1]);
    const pen = new CanvasPen(context, screenTheme());
    if (this.cursor) this.#mark(pen, this.cursor, true);
    if (this.hovered) this.#mark(pen, this.hovered, false);
  }

  /** @param {Cell} cell */
  #mark(pen, cell, strong) {
    const { ink, paper } = pen.theme;
    const others = this.related?.(cell) ?? [
      [cell.panel, cell.i, null],
      [cell.panel, null, cell.j],
    ];
    for (const [panel, i, j] of others) this.#band(pen, panel, i, j);
    const {
      panel: {
        x,
        y,
        cell: [w, h],
        at,
        scale,
      },
      i,
      j,
    } = cell;
    const [left, top] = [x + j * w, y + i * h];
    const [wide, high] = [Math.max(w, 3), Math.max(h, 3)];
    pen.rect(left - 1, top - 1, wide + 2, high + 2, { stroke: paper, width: strong ? 5 : 3.5 });
    pen.rect(left - 1, top - 1, wide + 2, high + 2, { stroke: ink, width: strong ? 2.5 : 1.5 });
    if (w < 5) pen.rect(left, top, wide, high, { fill: colourOf(scale, at(i, j)) });
  }

  /** A whole row or column, with its name where names are thinned out. @param {Panel} panel */
  #band(pen, panel, i, j) {
    const {
      x,
      y,
      cell: [w, h],
      rows,
      columns,
      rowNames,
      columnNames,
    } = panel;
    const { ink, paper } = pen.theme;
    if (panel.empty) return;
    const box =
      i === null
        ? [x + j * w, y, w, rows * h]
        : j === null
          ? [x, y + i * h, columns * w, h]
          : [x + j * w, y + i * h, w, h];
    pen.rect(...box, { stroke: paper, width: 2, opacity: 0.8 });
    pen.rect(...box, { stroke: ink, width: 1, opacity: 0.8 });
    if (i !== null && rowNames && every(h) > 1) this.#tag(pen, x - 6, y + (i + 0.5) * h, rowNames[i], "end");
    if (j !== null && columnNames && every(w, 20) > 1)
      this.#tag(pen, x + (j + 0.5) * w, y - 10, columnNames[j], "middle");
  }

  #tag(pen, x, y, name, anchor) {
    const words = fit(name, LONGEST, LABEL, 700);
    const wide = widthOf(words, LABEL, 700) + 8;
    const from = Math.max(0, anchor === "end" ? x - wide + 4 : x - wide / 2);
    pen.rect(from, y - 9, wide, 18, { fill: pen.theme.paper, stroke: pen.theme.faint, width: 0.7, radius: 4 });
    pen.text(from + 4, y, words, { size: LABEL, weight: 700 });
  }
}
