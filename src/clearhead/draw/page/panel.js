/** One heat map: its numbers as colours, the names of its rows and columns, and the signs for what is no number. */

import { PALETTE } from "./palette.js";
import { inkOn, pixels } from "./scale.js";
import { fit, number, short, widthOf } from "./text.js";

/**
 * @typedef {object} Panel         one heat map
 * @property {string} id
 * @property {number} x            left and upper edge of its first cell
 * @property {number} y
 * @property {[number, number]} cell   width and height of a cell
 * @property {number} rows
 * @property {number} columns
 * @property {(i: number, j: number) => number} at
 * @property {import("./scale.js").Scale} scale
 * @property {(i: number, j: number) => boolean} [masked]
 * @property {(i: number, j: number) => string} [words]     written into the cells instead of their numbers
 * @property {string[]} [rowNames]
 * @property {string[]} [columnNames]
 * @property {boolean[]} [rowDim]     names of less weight
 * @property {boolean[]} [columnDim]
 * @property {string} [title]
 * @property {string} [colour]     of the frame and the title
 * @property {boolean} [empty]     not yet computed: a frame and no number
 * @property {ImageData} [image]   what was painted before
 * @property {(pen: import("./pen.js").Pen) => void} [draw]   paints the cells in a way of its own
 */

export const LABEL = 12;
export const LONGEST = 112;
const TURNED = -45;

/** The room that names need beside rows. @param {string[]} names */
export function besideRows(names) {
  return Math.ceil(
    Math.min(
      LONGEST,
      names.reduce((most, name) => Math.max(most, widthOf(name, LABEL)), 0),
    ) + 8,
  );
}

/** The room above columns and behind the last of them, where names may have to be turned. @param {string[]} names */
export function aboveColumns(names, cell) {
  const most = Math.min(
    LONGEST,
    names.reduce((width, name) => Math.max(width, widthOf(name, LABEL)), 0),
  );
  return most <= cell - 4
    ? { height: 20, behind: 0 }
    : { height: Math.ceil(0.72 * most + 16), behind: Math.ceil(0.72 * most) };
}

/** Of so many names one is written, where cells are small. */
export const every = (size, pitch = LABEL + 1) => Math.max(1, Math.ceil(pitch / size));

/** @param {import("./pen.js").Pen} pen  @param {Panel} panel */
function paintNames(pen, panel) {
  const {
    x,
    y,
    cell: [w, h],
    rowNames,
    columnNames,
    rowDim,
    columnDim,
  } = panel;
  const { ink, faint } = pen.theme;
  rowNames?.forEach((name, i) => {
    if (i % every(h)) return;
    const fill = rowDim?.[i] ? faint : ink;
    pen.text(x - 6, y + (i + 0.5) * h, fit(name, LONGEST, LABEL), { size: LABEL, anchor: "end", fill });
  });
  const turned = columnNames?.some((name) => widthOf(name, LABEL) > w - 4);
  columnNames?.forEach((name, j) => {
    if (j % every(w, turned ? 20 : LABEL + 1)) return;
    const letters = turned ? { turn: TURNED } : { anchor: "middle" };
    const fill = columnDim?.[j] ? faint : ink;
    pen.text(x + (j + 0.5) * w, y - (turned ? 8 : 10), fit(name, LONGEST, LABEL), { size: LABEL, fill, ...letters });
  });
}

/** Numbers or words, and the signs for what is no number. @param {Panel} panel */
function paintWords(pen, panel) {
  const {
    x,
    y,
    cell: [w, h],
    rows,
    columns,
    at,
    scale,
    masked,
    words,
  } = panel;
  const roomy = words ? w >= 24 && h >= 13 : w >= 27 && h >= 14;
  if (rows * columns > 4000 && !roomy) return;
  for (let i = 0; i < rows; i++) {
    for (let j = 0; j < columns; j++) {
      const value = at(i, j);
      if (masked?.(i, j) || (!roomy && Number.isFinite(value))) continue;
      const room = Math.min(w, 110) - 8;
      const said = words ? fit(words(i, j), room, 11) : Number.isFinite(value) ? short(value) : number(value);
      const fill = Number.isFinite(value) ? inkOn(scale, value) : pen.theme.ink;
      if (Math.min(w, h) >= 8)
        pen.text(x + (j + 0.5) * w, y + (i + 0.5) * h, said, { size: 11, anchor: "middle", fill });
    }
  }
}

/** @param {import("./pen.js").Pen} pen  @param {Panel} panel */
export function paintPanel(pen, panel) {
  const {
    x,
    y,
    cell: [w, h],
    rows,
    columns,
  } = panel;
  const { faint, paper } = pen.theme;
  const [wide, high] = [columns * w, rows * h];
  const frame = panel.colour ?? faint;
  if (panel.draw) {
    panel.draw(pen);
  } else if (panel.empty) {
    pen.rect(x, y, wide, high, { stroke: faint, dash: [3, 3], width: 0.7 });
  } else {
    if (panel.masked) pen.hatch(x, y, wide, high);
    panel.image ??= pixels(panel.scale, rows, columns, panel.at, panel.masked);
    pen.image(x, y, wide, high, panel.image);
    if (Math.min(w, h) >= 9) {
      for (let j = 1; j < columns; j++)
        pen.line(
          [
            [x + j * w, y],
            [x + j * w, y + high],
          ],
          { stroke: paper, width: 1 },
        );
      for (let i = 1; i < rows; i++)
        pen.line(
          [
            [x, y + i * h],
            [x + wide, y + i * h],
          ],
          { stroke: paper, width: 1 },
        );
    }
    paintWords(pen, panel);
    pen.rect(x, y, wide, high, { stroke: frame, width: panel.colour ? 2 : 0.7 });
  }
  paintNames(pen, panel);
}

/** The colour of a head; numbers beyond the palette begin again, and always stand beside the colour. */
export function headColour(head) {
  return PALETTE.heads[head % PALETTE.heads.length];
}
