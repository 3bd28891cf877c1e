/** Where the numbers come from: a server that computes them, or a recording inside this very file. */

import { deriveCell } from "./derive.js";

/**
 * @typedef {{shape: number[], axes: string, data: Float32Array | Uint8Array}} Tensor
 * @typedef {{tap: string, head: number | null, row: number, column: number}} Place   one number of one tensor
 */

const KEPT_BYTES = 128 * 2 ** 20;
const BEYOND = "This page is a recording: start `clearhead explore` to";

/** What the server, or a recording, cannot give; its message is a sentence for the reader. */
export class Refusal extends Error {
  /** @param {string} sentence  @param {number} status */
  constructor(sentence, status = 0) {
    super(sentence);
    this.status = status;
  }
}

/** The part of a tensor that belongs to one head. @param {Tensor} tensor  @param {number} head @returns {Tensor} */
export function ofHead(tensor, head) {
  if (tensor.shape.length === 2) return tensor;
  const [, rows, columns] = tensor.shape;
  const from = head * rows * columns;
  return {
    shape: [rows, columns],
    axes: tensor.axes.slice(1),
    data: tensor.data.subarray(from, from + rows * columns),
  };
}

/** Looks numbers of a matrix up. @param {Tensor} tensor */
export function reader({ data, shape }) {
  const columns = shape.at(-1);
  return (i, j) => data[i * columns + j];
}

/** A cell of a tensor, as the address has it. @param {Place} place */
export function placeWord({ tap, head, row, column }) {
  return [tap, head ?? "", row, column].join(":");
}

/** Asks the server, and remembers what never changes: all that is known of a run. */
export class LiveSource {
  constructor() {
    this.live = true;
    /** @type {Map<string, {answer: Promise<any>, bytes: number}>} what was asked before, the oldest first */
    this.kept = new Map();
  }

  async #fetch(address, options) {
    let response;
    try {
      response = await fetch(`api/${address}`, options);
    } catch {
      throw new Refusal("The server does not answer; start `clearhead explore` again and reload this page.");
    }
    if (response.ok) return response;
    const said = await response.json().catch(() => null);
    throw new Refusal(said?.error?.message ?? `The server answered ${response.status} to ${address}.`, response.status);
  }

  /**
   * What never changes is asked for once.
   * @param {string} address  @param {(response: Response) => Promise<{value: any, bytes: number}>} read
   */
  #once(address, read) {
    const kept = this.kept.get(address);
    if (kept) return kept.answer;
    const entry = {
      bytes: 0,
      answer: this.#fetch(address)
        .then(read)
        .then(({ value, bytes }) => {
          entry.bytes = bytes;
          this.#forget();
          return value;
        }),
    };
    entry.answer.catch(() => this.kept.delete(address));
    this.kept.set(address, entry);
    return entry.answer;
  }

  #json(address) {
    return this.#once(address, async (response) => {
      const words = await response.text();
      return { value: JSON.parse(words), bytes: words.length };
    });
  }

  async #post(address, body) {
    const headers = { "Content-Type": "application/json" };
    return (await this.#fetch(address, { method: "POST", headers, body: JSON.stringify(body) })).json();
  }

  /** @returns {Promise<Tensor>} */
  #tensor(address, Kind = Float32Array) {
    return this.#once(address, async (response) => {
      const buffer = await response.arrayBuffer();
      const shape = response.headers.get("X-Shape").split(",").map(Number);
      return {
        value: { shape, axes: response.headers.get("X-Axes") ?? "", data: new Kind(buffer) },
        bytes: buffer.byteLength,
      };
    });
  }

  /** The oldest answers go when there are too many. */
  #forget() {
    let bytes = [...this.kept.values()].reduce((sum, entry) => sum + entry.bytes, 0);
    for (const [address, entry] of this.kept) {
      if (bytes <= KEPT_BYTES) return;
      bytes -= entry.bytes;
      this.kept.delete(address);
    }
  }

  model() {
    return this.#json("model");
  }

  run(request) {
    return this.#post("runs", request);
  }

  decode(request) {
    return this.#post("decode", request);
  }

  /** @param {string} run  @param {string} tap  @param {number} [head]  that head alone */
  async tensor(run, tap, head) {
    const address = `runs/${run}/tensors/${tap}`;
    if (head === undefined) return this.#tensor(address);
    const whole = this.kept.get(address);
    return ofHead(await (whole ? whole.answer : this.#tensor(`${address}?head=${head}`)), whole ? head : 0);
  }

  thumbnails(run) {
    return this.#tensor(`runs/${run}/thumbnails?side=32`, Uint8Array);
  }

  lens(run) {
    return this.#json(`runs/${run}/lens?top=10`);
  }

  contributions(run) {
    return this.#json(`runs/${run}/contributions`);
  }

  shares(run, position, word, against) {
    const asked = Object.entries({ position, word, against }).filter(([, value]) => value !== "");
    return this.#json(`runs/${run}/shares?${new URLSearchParams(asked)}`);
  }

  /** @param {string} run  @param {Place} place */
  cell(run, place) {
    const asked = Object.entries(place).filter(([, value]) => value !== null && value !== undefined);
    return this.#json(`runs/${run}/cell?${new URLSearchParams(asked)}`);
  }

  async positions(count) {
    const about = await this.#json(`positions?count=${count}`);
    return { about, tensor: about.what === "none" ? null : await this.#tensor(`positions/tensor?count=${count}`) };
  }
}

function unpack({ shape, axes, dtype, data }) {
  const bytes = Uint8Array.from(atob(data), (letter) => letter.charCodeAt(0));
  return { shape, axes, data: dtype === "uint8" ? bytes : new Float32Array(bytes.buffer) };
}

/** Reads the recording that `page_file` wrote into the page. */
export class FileSource {
  /** @param {Record<string, any>} recording */
  constructor(recording) {
    this.live = false;
    this.recording = recording;
    this.unpacked = new Map();
  }

  async model() {
    return this.recording.model;
  }

  async run() {
    return this.recording.run;
  }

  async decode() {
    return this.#there(this.recording.decode, "decode");
  }

  #there(value, what) {
    if (value === null || value === undefined) throw new Refusal(`${BEYOND} ${what}; it is not in this file.`, 404);
    return value;
  }

  #tensor(name, packed) {
    if (!this.unpacked.has(name)) this.unpacked.set(name, unpack(this.#there(packed, `see ${name}`)));
    return this.unpacked.get(name);
  }

  async tensor(run, tap, head) {
    const whole = this.#tensor(tap, this.recording.tensors[tap]);
    return head === undefined ? whole : ofHead(whole, head);
  }

  async thumbnails() {
    return this.#tensor("thumbnails", this.recording.thumbnails);
  }

  async lens() {
    return this.#there(this.recording.lens, "see each layer's guess");
  }

  async contributions() {
    return this.#there(this.recording.contributions, "see contributions");
  }

  async shares(run, position, word, against) {
    if (word !== "" || against !== "") throw new Refusal(`${BEYOND} split the logit of another word.`, 404);
    return this.#there(this.recording.shares?.[position], "split this logit");
  }

  async cell(run, place) {
    const cell = await deriveCell(place, (tap) => this.tensor(run, tap), this.recording.run);
    return this.#there(cell, "walk further back");
  }

  async positions() {
    const { about, tensor } = this.#there(this.recording.positions, "see the positions");
    return { about, tensor: tensor ? this.#tensor("positions", tensor) : null };
  }
}

/** The recording in this page, or else the server that sent it. */
export function openSource() {
  const script = document.getElementById("recording");
  return script ? new FileSource(JSON.parse(script.textContent)) : new LiveSource();
}
