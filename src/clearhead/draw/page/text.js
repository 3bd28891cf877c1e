/** Numbers and tokens as words. */

import { PALETTE } from "./palette.js";

export const FONT = '-apple-system, "Segoe UI", Roboto, "Helvetica Neue", Arial, sans-serif';

const measuring = document.createElement("canvas").getContext("2d");
const widths = new Map();

/** A number as people read it: NaN and the infinities have signs of their own. @param {number} value */
export function number(value, digits = 3) {
  if (value === null || value === undefined || Number.isNaN(value)) return PALETTE.glyphs.nan;
  if (!Number.isFinite(value)) return value > 0 ? PALETTE.glyphs["+inf"] : PALETTE.glyphs["-inf"];
  if (value === 0) return "0";
  const size = Math.abs(value);
  const words =
    size >= 1e6 || size < 1e-4
      ? value.toExponential(digits - 1)
      : size >= 10 ** digits
        ? value.toFixed(0)
        : value.toPrecision(digits);
  return words.replace(/-/g, "−");
}

/** Two decimals without the leading zero, for the inside of a cell. @param {number} value */
export function short(value) {
  if (!Number.isFinite(value)) return number(value);
  const words =
    Math.abs(value) >= 9.95 ? value.toFixed(0) : Math.abs(value) < 0.995 ? value.toFixed(2) : value.toFixed(1);
  return words.replace(/^(-?)0\./, "$1.").replace("-", "−");
}

/** A share of one as per cent. @param {number} value */
export function percent(value) {
  return value >= 0.0995 || value === 0 ? `${(100 * value).toFixed(0)}%` : `${(100 * value).toPrecision(2)}%`;
}

/** A token with its white space seen. @param {string} token */
export function visible(token) {
  const seen = token.replace(/\n/g, "↵").replace(/\t/g, "⇥").replace(/ /g, "·");
  return seen === "" ? "∅" : seen;
}

/** @param {string} token */
export function quoted(token) {
  return `“${visible(token)}”`;
}

/** @param {string} sentence */
export function capital(sentence) {
  return sentence.slice(0, 1).toUpperCase() + sentence.slice(1);
}

const ORDINALS = new Intl.PluralRules("en", { type: "ordinal" });
const ENDINGS = { one: "st", two: "nd", few: "rd", other: "th" };

/** 1 -> first, 2 -> second, 3 -> third, 4 -> 4th, 22 -> 22nd. @param {number} rank */
export function ordinal(rank) {
  const words = ["first", "second", "third"];
  return words[rank - 1] ?? `${rank}${ENDINGS[ORDINALS.select(rank)]}`;
}

/** @param {number} count  @param {string} noun */
export function plural(count, noun) {
  return `${count} ${noun}${count === 1 ? "" : "s"}`;
}

/** The width in pixels of a text. @param {string} words */
export function widthOf(words, size = 12, weight = 400) {
  const key = `${size} ${weight} ${words}`;
  let width = widths.get(key);
  if (width === undefined) {
    if (widths.size > 20_000) widths.clear();
    measuring.font = `${weight} ${size}px ${FONT}`;
    width = measuring.measureText(words).width;
    widths.set(key, width);
  }
  return width;
}

/** As much of a text as there is room for. @param {string} words  @param {number} room */
export function fit(words, room, size = 12, weight = 400) {
  if (widthOf(words, size, weight) <= room) return words;
  const letters = [...words];
  let low = 0;
  let high = letters.length;
  while (low < high) {
    const middle = (low + high + 1) >> 1;
    if (widthOf(`${letters.slice(0, middle).join("")}…`, size, weight) <= room) low = middle;
    else high = middle - 1;
  }
  return low ? `${letters.slice(0, low).join("")}…` : "";
}

/** `decoder.0.cross.head.1` -> `decoder 1 · cross-attention · head 2`; people count from one. @param {string} name */
export function partName(name) {
  const words = { attention: "self-attention", cross: "cross-attention", feedforward: "feed-forward" };
  const [, stack, layer, round, rest] = name.match(/^([a-z_]+)\.(\d+)(?:@(\d+))?(?:\.(.*))?$/) ?? [
    null,
    name.replace(/\./g, " · "),
  ];
  const place =
    layer === undefined
      ? stack.replace(/_/g, " ")
      : `${stack} ${Number(layer) + 1}${round ? `, round ${Number(round) + 1}` : ""}`;
  const parts = (rest ?? "")
    .replace(/head\.(\d+)/, (_, head) => `head ${Number(head) + 1}`)
    .split(".")
    .filter(Boolean);
  return [place, ...parts.map((part) => words[part] ?? part.replace(/_/g, " "))].join(" · ");
}
