/** Decoding word by word: what was likely, what the filters left, and what another word would have led to. */

import { BeamTree } from "./beam.js";
import { Card } from "./card.js";
import { button, element, slider } from "./dom.js";
import { readLayers, readOff } from "./store.js";
import { number, percent, plural, visible } from "./text.js";

const RIVALS = 4;
const MOST_WORDS = 60;

export class Decoding {
  /** @param {import("./session.js").Session} session */
  constructor(session) {
    this.session = session;
    this.card = new Card(session, "decoding", "Word by word");
    this.tree = new BeamTree(session);
    const part = (name, options) => slider({ ...options, choose: (value) => session.set({ [name]: value }) });
    this.sliders = {
      temperature: part("temperature", {
        label: "Temperature",
        min: 0.1,
        max: 2,
        step: 0.1,
        say: (value) => value.toFixed(1),
      }),
      topK: part("topK", { label: "Top-k", min: 0, max: 20, step: 1, say: (value) => (value ? String(value) : "all") }),
      topP: part("topP", { label: "Top-p", min: 0.05, max: 1, step: 0.05, say: (value) => value.toFixed(2) }),
      minP: part("minP", { label: "Min-p", min: 0, max: 0.5, step: 0.01, say: (value) => value.toFixed(2) }),
      beams: part("beams", {
        label: "Beams",
        min: 1,
        max: 6,
        step: 1,
        say: (value) => (value === 1 ? "1 (greedy)" : String(value)),
      }),
    };
    this.card.controls.append(...Object.values(this.sliders).map(({ root }) => root));
    this.words = element("div", { class: "words", role: "group", "aria-label": "The answer, word by word" });
    this.detail = element("div", { class: "detail" });
    this.back = button("Back", () => this.#go(-1));
    this.next = button("Next", () => this.#go(1), { class: "primary" });
    this.free = button("Forget forced words", () => session.set({ forced: "" }));
    this.buttons = element("div", { class: "buttons" }, this.back, this.next, this.free);
    this.sentence = element("p", { class: "hint" });
    this.card.body.append(this.buttons, this.words, this.detail, this.sentence);
    this.root = element("div", { class: "stack" }, this.card.root, this.tree.card.root);
    this.asked = 0;
  }

  key(event) {
    const by = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (by) this.#go(by);
  }

  #request() {
    const { text, forced, temperature, topK, topP, minP, off, layersOff, beams } = this.session.state;
    return {
      text,
      forced: forced.split(",").filter(Boolean).map(Number),
      longest: 40,
      temperature,
      top_k: topK,
      top_p: topP,
      min_p: minP,
      off: readOff(off),
      layers_off: readLayers(layersOff),
      beams,
    };
  }

  async update() {
    const { session } = this;
    const { live } = session.source;
    if (!session.model.writes) {
      this.tree.card.root.hidden = true;
      this.card.controls.hidden = true;
      this.card.say("This model reads and does not write: an encoder has no words to decode.");
      return;
    }
    for (const [name, { input, set }] of Object.entries(this.sliders)) {
      set(session.state[name]);
      input.disabled = !live;
    }
    const mine = ++this.asked;
    const request = this.#request();
    const key = JSON.stringify(request);
    if (key !== this.shown) {
      const answer = await session.source.decode(request);
      if (mine !== this.asked) return;
      this.answer = answer;
      this.shown = key;
    }
    this.#show(live);
  }

  #go(by) {
    const step = Math.max(0, Math.min(this.session.state.step + by, this.answer.steps.length - 1));
    this.session.set({ step });
    this.session.hooks.said(`Word ${step + 1}: ${this.#summary(this.answer.steps[step])}`);
  }

  #summary({ token, rivals }) {
    return `“${visible(token)}”, before ${rivals
      .filter((rival) => rival.token !== token)
      .slice(0, 2)
      .map((rival) => `“${visible(rival.token)}” ${percent(rival.probability)}`)
      .join(", ")}`;
  }

  #force(step, id) {
    const before = this.answer.steps.slice(0, step).map((one) => one.id);
    this.session.set({ forced: [...before, id].join(","), step });
  }

  #show(live) {
    const { steps, answer, ended } = this.answer;
    const at = Math.min(this.session.state.step, steps.length - 1);
    this.card.hint.textContent = live
      ? "Under each word its rivals. Choose one to force it, and the model writes on from there."
      : "Under each word its rivals. To force another word, start `clearhead explore`.";
    this.back.disabled = at <= 0;
    this.next.disabled = at >= steps.length - 1;
    this.free.hidden = !this.session.state.forced;
    const first = Math.max(0, Math.min(at - MOST_WORDS / 2, steps.length - MOST_WORDS));
    const shown = steps.slice(first, first + MOST_WORDS);
    this.words.replaceChildren(
      ...shown.map((step, place) => this.#column(step, first + place, first + place === at, live)),
    );
    this.detail.replaceChildren(...(steps[at] ? this.#table(steps[at], at) : []));
    this.sentence.textContent = `${answer} ${ended ? "" : "… (stopped at the longest length)"}`;
    this.words.children[at - first]?.scrollIntoView({ block: "nearest", inline: "nearest" });
    this.card.keep(this.#figure(steps));
    this.tree.update(this.answer.beam);
  }

  /** One word and, below it, what else might have stood there. */
  #column(step, at, current, live) {
    const rivals = step.rivals.slice(0, RIVALS).map((rival) => {
      const chosen = rival.id === step.id;
      const node = button("", () => this.#force(at, rival.id), {
        class: `rival${chosen ? " taken" : ""}${rival.kept ? "" : " dropped"}`,
        disabled: !live,
        "aria-pressed": String(chosen),
        "aria-label": `${chosen ? "taken" : "force"} ${visible(rival.token)}, ${percent(rival.probability)}`,
      });
      const bar = element("i", { class: "share" });
      bar.style.width = `${100 * rival.probability}%`;
      node.append(element("span", {}, visible(rival.token)), element("small", {}, percent(rival.probability)), bar);
      return node;
    });
    const word = button(visible(step.token), () => this.session.set({ step: at }), {
      class: `word${step.forced ? " forced" : ""}`,
      "aria-current": current ? "step" : null,
      title: step.forced ? "forced" : "chosen by the model",
    });
    return element("div", { class: `column${current ? " current" : ""}` }, word, ...rivals);
  }

  /** logit -> ÷ temperature -> filter -> softmax, for one step. */
  #table(step, at) {
    const { temperature } = this.session.state;
    const rows = step.rivals.map((rival) => {
      const bar = element("i", { class: "share" });
      bar.style.width = `${100 * rival.probability}%`;
      return element(
        "tr",
        { class: rival.kept ? "" : "dropped" },
        element("th", { scope: "row" }, visible(rival.token)),
        element("td", {}, number(rival.logit)),
        element("td", {}, number(rival.scaled)),
        element("td", {}, rival.kept ? "kept" : "dropped"),
        element("td", {}, number(rival.probability)),
        element("td", { class: "wide" }, element("span", { class: "track" }, bar)),
      );
    });
    const heads = ["word", "logit", `÷ ${temperature.toFixed(1)}`, "filter", "softmax", ""];
    return [
      element("h3", {}, `Word ${at + 1}: ${step.forced ? "forced to be" : "chosen as"} “${visible(step.token)}”`),
      element(
        "table",
        { class: "rivals" },
        element("thead", {}, element("tr", {}, ...heads.map((name) => element("th", { scope: "col" }, name)))),
        element("tbody", {}, ...rows),
      ),
    ];
  }

  /** The same as a picture for paper. */
  #figure(steps) {
    const wide = 104;
    const columns = Math.max(1, Math.min(steps.length, 8));
    const lines = Math.ceil(steps.length / columns);
    const high = 40 + 26 * RIVALS;
    return {
      title: "decoding, word by word",
      width: columns * wide + 8,
      height: lines * high + 20,
      paint: (pen) =>
        steps.forEach((step, at) => {
          const [x, y] = [8 + (at % columns) * wide, 14 + Math.floor(at / columns) * high];
          pen.text(x, y, visible(step.token), { size: 14, weight: 700 });
          step.rivals.slice(0, RIVALS).forEach((rival, line) => {
            const top = y + 16 + 26 * line;
            pen.rect(x, top + 17, (wide - 14) * rival.probability, 3, { fill: pen.theme.ink });
            pen.text(x, top + 8, `${visible(rival.token)}  ${percent(rival.probability)}`, {
              size: 11,
              fill: rival.kept ? pen.theme.ink : pen.theme.faint,
            });
          });
        }),
      table: () => ({
        caption: `${plural(steps.length, "word")} and the rivals of each`,
        columns: ["step", "taken", "rival", "logit", "logit ÷ temperature", "filter", "probability"],
        rows: steps.flatMap((step, at) =>
          step.rivals.map((rival) => [
            at + 1,
            visible(step.token),
            visible(rival.token),
            rival.logit,
            rival.scaled,
            rival.kept ? "kept" : "dropped",
            rival.probability,
          ]),
        ),
      }),
    };
  }
}
