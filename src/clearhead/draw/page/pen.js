/** Two pens with the same strokes: one paints on a canvas, the other writes SVG with real text. */

import { element, svgElement } from "./dom.js";
import { PALETTE } from "./palette.js";
import { FONT, fit, widthOf } from "./text.js";

/**
 * @typedef {{fill?: string, stroke?: string, width?: number, dash?: number[], radius?: number,
 *            opacity?: number}} Stroke
 * @typedef {{size?: number, anchor?: "start" | "middle" | "end", weight?: number, fill?: string,
 *            turn?: number}} Letters
 * @typedef {{paper: string, ink: string, faint: string, fill: string}} Theme
 * @typedef {CanvasPen | SvgPen} Pen
 */

/** The ground and the ink of what is on the screen now. @returns {Theme} */
export function screenTheme() {
  if (matchMedia("(forced-colors: active)").matches) {
    return { paper: "Canvas", ink: "CanvasText", faint: "GrayText", fill: "Canvas" };
  }
  const chosen = document.documentElement.dataset.theme;
  const dark = chosen ? chosen === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  return dark ? PALETTE.dark : PALETTE.light;
}

/** A picture's size on a canvas, at the resolution of the screen. @param {HTMLCanvasElement} canvas */
export function sizeCanvas(canvas, width, height, density = window.devicePixelRatio || 1) {
  canvas.width = Math.max(1, Math.round(width * density));
  canvas.height = Math.max(1, Math.round(height * density));
  canvas.style.width = `${width}px`;
  canvas.style.height = `${height}px`;
  const context = canvas.getContext("2d");
  context.setTransform(density, 0, 0, density, 0, 0);
  return context;
}

function onCanvas(image) {
  const canvas = document.createElement("canvas");
  canvas.width = image.width;
  canvas.height = image.height;
  canvas.getContext("2d").putImageData(image, 0, 0);
  return canvas;
}

/** Paints on a canvas. */
export class CanvasPen {
  /** @param {CanvasRenderingContext2D} context  @param {Theme} theme */
  constructor(context, theme) {
    this.context = context;
    this.theme = theme;
  }

  widthOf(words, size = 12, weight = 400) {
    return widthOf(words, size, weight);
  }

  /** @param {Stroke} stroke */
  #finish({ fill, stroke, width = 1, dash = [], opacity = 1 }) {
    const { context } = this;
    context.globalAlpha = opacity;
    if (fill) {
      context.fillStyle = fill;
      context.fill();
    }
    if (stroke) {
      context.strokeStyle = stroke;
      context.lineWidth = width;
      context.setLineDash(dash);
      context.stroke();
    }
    context.globalAlpha = 1;
  }

  /** @param {Stroke} stroke */
  rect(x, y, width, height, stroke) {
    this.context.beginPath();
    this.context.roundRect(x, y, width, height, stroke.radius ?? 0);
    this.#finish(stroke);
  }

  /** @param {Stroke} stroke */
  circle(x, y, radius, stroke) {
    this.context.beginPath();
    this.context.arc(x, y, radius, 0, 2 * Math.PI);
    this.#finish(stroke);
  }

  /** @param {[number, number][]} points  @param {Stroke} stroke */
  line(points, stroke) {
    this.context.beginPath();
    points.forEach(([x, y], at) => (at ? this.context.lineTo(x, y) : this.context.moveTo(x, y)));
    this.#finish(stroke);
  }

  /** An S from left to right, or with `upright` from below to above. @param {Stroke & {upright?: boolean}} stroke */
  curve(x1, y1, x2, y2, stroke) {
    const [a, b, c, d] = bends(x1, y1, x2, y2, stroke.upright);
    this.context.beginPath();
    this.context.moveTo(x1, y1);
    this.context.bezierCurveTo(a, b, c, d, x2, y2);
    this.#finish(stroke);
  }

  /** @param {Letters} letters */
  text(x, y, words, { size = 12, anchor = "start", weight = 400, fill, turn = 0 } = {}) {
    const { context } = this;
    context.save();
    context.translate(x, y);
    context.rotate((turn * Math.PI) / 180);
    context.font = `${weight} ${size}px ${FONT}`;
    context.textAlign = anchor === "middle" ? "center" : anchor;
    context.textBaseline = "middle";
    context.fillStyle = fill ?? this.theme.ink;
    context.fillText(words, 0, 0);
    context.restore();
  }

  /** The sign for what is masked. */
  hatch(x, y, width, height) {
    const { context } = this;
    context.save();
    context.beginPath();
    context.rect(x, y, width, height);
    context.clip();
    context.fillStyle = this.theme.fill;
    context.fillRect(x, y, width, height);
    context.beginPath();
    for (let at = x - height - ((x - height) % 6); at < x + width; at += 6) {
      context.moveTo(at, y + height);
      context.lineTo(at + height, y);
    }
    context.strokeStyle = this.theme.faint;
    context.lineWidth = 0.7;
    context.setLineDash([]);
    context.stroke();
    context.restore();
  }

  /** @param {ImageData} image  each of its pixels becomes a rectangle with sharp edges */
  image(x, y, width, height, image) {
    this.context.imageSmoothingEnabled = false;
    this.context.drawImage(onCanvas(image), x, y, width, height);
  }
}

function bends(x1, y1, x2, y2, upright = false) {
  return upright ? [x1, (y1 + y2) / 2, x2, (y1 + y2) / 2] : [(x1 + x2) / 2, y1, (x1 + x2) / 2, y2];
}

const LARGEST_IN_RECTANGLES = 2000;

/** Writes SVG. Every stroke returns its element, for those who want to listen to it. */
export class SvgPen {
  /** @param {number} width  @param {number} height  @param {Theme} theme */
  constructor(width, height, theme) {
    this.theme = theme;
    this.root = svgElement("svg", { viewBox: `0 0 ${width} ${height}`, width, height });
    this.hatches = 0;
  }

  widthOf(words, size = 12, weight = 400) {
    return widthOf(words, size, weight);
  }

  /** @param {Stroke} stroke */
  #put(tag, attributes, { fill = "none", stroke, width = 1, dash, opacity } = {}) {
    const node = svgElement(tag, {
      ...attributes,
      fill,
      stroke,
      "stroke-width": stroke ? width : null,
      "stroke-dasharray": dash?.join(" "),
      opacity,
    });
    this.root.append(node);
    return node;
  }

  /** @param {Stroke} stroke */
  rect(x, y, width, height, stroke) {
    return this.#put("rect", { x, y, width, height, rx: stroke.radius }, stroke);
  }

  /** @param {Stroke} stroke */
  circle(x, y, radius, stroke) {
    return this.#put("circle", { cx: x, cy: y, r: radius }, stroke);
  }

  /** @param {[number, number][]} points  @param {Stroke} stroke */
  line(points, stroke) {
    return this.#put("polyline", { points: points.join(" ") }, stroke);
  }

  /** @param {Stroke & {upright?: boolean}} stroke */
  curve(x1, y1, x2, y2, stroke) {
    const [a, b, c, d] = bends(x1, y1, x2, y2, stroke.upright);
    return this.#put("path", { d: `M${x1} ${y1}C${a} ${b} ${c} ${d} ${x2} ${y2}` }, stroke);
  }

  /** @param {Letters} letters */
  text(x, y, words, { size = 12, anchor = "start", weight = 400, fill, turn = 0 } = {}) {
    const node = svgElement(
      "text",
      {
        x,
        y,
        "font-size": size,
        "font-family": FONT,
        "font-weight": weight === 400 ? null : weight,
        "text-anchor": anchor === "start" ? null : anchor,
        "dominant-baseline": "central",
        fill: fill ?? this.theme.ink,
        transform: turn ? `rotate(${turn} ${x} ${y})` : null,
      },
      words,
    );
    this.root.append(node);
    return node;
  }

  hatch(x, y, width, height) {
    const id = `hatch-${this.hatches++}`;
    const { fill, faint } = this.theme;
    this.root.append(
      svgElement(
        "pattern",
        { id, width: 6, height: 6, patternUnits: "userSpaceOnUse" },
        svgElement("rect", { width: 6, height: 6, fill }),
        svgElement("path", { d: "M-1 1L1 -1M0 6L6 0M5 7L7 5", stroke: faint, "stroke-width": 0.7 }),
      ),
    );
    return this.#put("rect", { x, y, width, height }, { fill: `url(#${id})` });
  }

  /** Few cells are rectangles, which print sharply at any size; many are one image. */
  image(x, y, width, height, image) {
    if (image.width * image.height > LARGEST_IN_RECTANGLES) {
      const href = onCanvas(image).toDataURL();
      const node = svgElement("image", {
        x,
        y,
        width,
        height,
        href,
        preserveAspectRatio: "none",
        "image-rendering": "pixelated",
      });
      this.root.append(node);
      return node;
    }
    const group = svgElement("g", { "shape-rendering": "crispEdges" });
    const [w, h] = [width / image.width, height / image.height];
    for (let at = 0; at < image.width * image.height; at++) {
      const [red, green, blue, alpha] = image.data.subarray(4 * at, 4 * at + 4);
      if (!alpha) continue;
      const [i, j] = [Math.floor(at / image.width), at % image.width];
      group.append(
        svgElement("rect", {
          x: x + j * w,
          y: y + i * h,
          width: w,
          height: h,
          fill: `rgb(${red},${green},${blue})`,
        }),
      );
    }
    this.root.append(group);
    return group;
  }
}

/** A picture as a PNG, three pixels for each of its own. @param {import("./card.js").Figure} figure */
export function asPng(figure) {
  const canvas = element("canvas");
  const context = sizeCanvas(canvas, figure.width, figure.height, 3);
  context.fillStyle = PALETTE.light.paper;
  context.fillRect(0, 0, figure.width, figure.height);
  figure.paint(new CanvasPen(context, PALETTE.light));
  return new Promise((done) => canvas.toBlob(done, "image/png"));
}

/** A picture as SVG text, on white paper. @param {import("./card.js").Figure} figure */
export function asSvg(figure) {
  const pen = new SvgPen(figure.width, figure.height, PALETTE.light);
  pen.rect(0, 0, figure.width, figure.height, { fill: PALETTE.light.paper });
  figure.paint(pen);
  pen.root.prepend(svgElement("title", {}, figure.title));
  return new XMLSerializer().serializeToString(pen.root);
}

/** Words cut to the room that there is. @param {Pen} pen  @param {Letters} letters */
export function fitted(pen, x, y, room, words, letters = {}) {
  return pen.text(x, y, fit(words, room, letters.size, letters.weight), letters);
}
