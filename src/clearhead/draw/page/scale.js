/** Scales: from numbers to colours, with the words that say how. */

import { PALETTE } from "./palette.js";
import { number, widthOf } from "./text.js";

/**
 * @typedef {object} Scale
 * @property {number} low
 * @property {number} high
 * @property {boolean} diverging
 * @property {string} says      the normalisation, for the legend
 * @property {boolean} [rooted]  colours go by the square root, so that many small shares can be told apart
 */

/** @typedef {[number, number, number]} Rgb */

const STEPS = 512;
const TABLES = {
  sequential: spread(PALETTE.sequential),
  diverging: spread(PALETTE.diverging),
};

/** @param {string} hex @returns {Rgb} */
function rgbOf(hex) {
  return [1, 3, 5].map((at) => parseInt(hex.slice(at, at + 2), 16));
}

/** Colours at equal steps -> a table fine enough to be looked up. @param {string[]} colours */
function spread(colours) {
  const stops = colours.map(rgbOf);
  const table = new Uint8ClampedArray(3 * STEPS);
  for (let step = 0; step < STEPS; step++) {
    const at = (step / (STEPS - 1)) * (stops.length - 1);
    const below = Math.min(Math.floor(at), stops.length - 2);
    for (let part = 0; part < 3; part++) {
      table[3 * step + part] = stops[below][part] + (at - below) * (stops[below + 1][part] - stops[below][part]);
    }
  }
  return table;
}

/** The largest finite size among some numbers. @param {Iterable<number>} values */
function largest(values) {
  let most = 0;
  for (const value of values) {
    const size = Math.abs(value);
    if (size > most && size < Infinity) most = size;
  }
  return most || 1;
}

/** From zero to the largest. @param {Iterable<number>} values @returns {Scale} */
export function fromZero(values, says) {
  return { low: 0, high: largest(values), diverging: false, says };
}

const MANY_SHARES = 64;

/**
 * For weights: rows of many are small, and are told apart by the square root.
 * @param {Iterable<number>} values  @param {number} columns
 */
export function sharesOf(values, columns, says = "each row sums to 1") {
  const rooted = columns > MANY_SHARES;
  return { ...fromZero(values, rooted ? `${says}; colour by square root` : says), rooted };
}

/** As far below zero as above it. @param {Iterable<number>} values @returns {Scale} */
export function aroundZero(values, says) {
  const most = largest(values);
  return { low: -most, high: most, diverging: true, says };
}

/** The place of a number in the table of its scale, or -1 for what is no number. */
function placeOf(scale, value) {
  if (!Number.isFinite(value)) return -1;
  const part = (value - scale.low) / (scale.high - scale.low);
  const within = Math.min(1, Math.max(0, part));
  return 3 * Math.round((scale.rooted ? Math.sqrt(within) : within) * (STEPS - 1));
}

/** @param {Scale} scale  @param {number} value */
export function colourOf(scale, value) {
  const table = scale.diverging ? TABLES.diverging : TABLES.sequential;
  const at = placeOf(scale, value);
  return at < 0 ? "transparent" : `rgb(${table[at]}, ${table[at + 1]}, ${table[at + 2]})`;
}

/** Black or white, whichever is read better on a number's colour. @param {Scale} scale  @param {number} value */
export function inkOn(scale, value) {
  const table = scale.diverging ? TABLES.diverging : TABLES.sequential;
  const at = placeOf(scale, value);
  const light = at < 0 ? 255 : 0.299 * table[at] + 0.587 * table[at + 1] + 0.114 * table[at + 2];
  return light > 135 ? "#000000" : "#FFFFFF";
}

/**
 * One pixel for each number; what is masked or no number is clear.
 * @param {Scale} scale  @param {number} rows  @param {number} columns  @param {(i: number, j: number) => number} at
 * @param {(i: number, j: number) => boolean} [masked]
 */
export function pixels(scale, rows, columns, at, masked) {
  const image = new ImageData(columns, rows);
  const table = scale.diverging ? TABLES.diverging : TABLES.sequential;
  for (let i = 0, to = 0; i < rows; i++) {
    for (let j = 0; j < columns; j++, to += 4) {
      const place = placeOf(scale, at(i, j));
      if (place < 0 || masked?.(i, j)) continue;
      image.data[to] = table[place];
      image.data[to + 1] = table[place + 1];
      image.data[to + 2] = table[place + 2];
      image.data[to + 3] = 255;
    }
  }
  return image;
}

/** @typedef {{masked?: boolean, what?: string}} LegendOptions */

const RAMP = 120;

/** How wide the first line of a legend is. @param {Scale} scale  @param {LegendOptions} options */
function legendWidth(scale, { masked = false, what = "" }) {
  const ends = widthOf(number(scale.low, 2), 11) + widthOf(number(scale.high, 2), 11) + 10;
  return RAMP + ends + (what ? widthOf(what, 11) + 10 : 0) + (masked ? 33 + widthOf("masked", 11) : 0);
}

/** The height that a legend needs, with air around it. @param {number} room  @param {Scale} scale */
export function legendHeight(room, scale, options = {}) {
  return legendWidth(scale, options) + widthOf(scale.says, 11) + 24 <= room ? 38 : 54;
}

/**
 * The legend: the scale with its ends, what it means, and the signs for what is not on it; in two lines where one is
 * too narrow.
 * @param {import("./pen.js").Pen} pen  @param {number} y  the lower edge of the picture  @param {number} room
 * @param {Scale} scale  @param {LegendOptions} options
 */
export function paintLegend(pen, x, y, room, scale, { masked = false, what = "" } = {}) {
  const { theme } = pen;
  const top = y + 20;
  const said = (words, to, at = top) => {
    pen.text(to, at + 5, words, { size: 11, fill: theme.faint });
    return to + widthOf(words, 11);
  };
  let at = what ? said(what, x) + 10 : x;
  at = said(number(scale.low, 2), at) + 5;
  const ramp = pixels({ ...scale, low: 0, high: 63 }, 1, 64, (i, j) => j);
  pen.image(at, top, RAMP, 10, ramp);
  pen.rect(at, top, RAMP, 10, { stroke: theme.faint, width: 0.5 });
  at = said(number(scale.high, 2), at + RAMP + 5) + 14;
  if (masked) {
    pen.hatch(at, top, 14, 10);
    pen.rect(at, top, 14, 10, { stroke: theme.faint, width: 0.5 });
    at = said("masked", at + 19) + 14;
  }
  if (legendHeight(room - x, scale, { masked, what }) > 38) said(scale.says, x, top + 16);
  else said(scale.says, at);
}
