/** Puts the page together: header, tabs, views, keys; and draws anew what a change of the state concerns. */

import { Architecture } from "./architecture.js";
import { AttentionView, PlaceBar } from "./attention.js";
import { Decoding } from "./decoding.js";
import { button, element } from "./dom.js";
import { Lens } from "./lens.js";
import { Origin } from "./origin.js";
import { Positions } from "./positions.js";
import { Session } from "./session.js";
import { Steps } from "./steps.js";
import { readLayers, readOff } from "./store.js";
import { number, plural } from "./text.js";
import { Tour } from "./tour.js";

const TABS = [
  ["attention", "Attention", AttentionView],
  ["steps", "Six steps", Steps],
  ["decoding", "Decoding", Decoding],
  ["lens", "Lens & stream", Lens],
  ["positions", "Positions", Positions],
];
const RUNS_ANEW = ["text", "answer", "off", "layersOff", "sort"];
const PATIENCE = 120;
const KEYS = [
  ["← ↑ ↓ →", "move the cell"],
  ["Enter", "pin the cell, or lock the row"],
  ["[ ]", "the head before, the head after"],
  ["{ }", "the layer below, the layer above"],
  ["Space", "in the atlas: switch the head off or on"],
  ["?", "this help"],
  ["Esc", "close what is open"],
];

class App {
  constructor() {
    this.session = new Session();
    this.views = new Map();
    this.working = 0;
    this.byId = (id) => document.getElementById(id);
    this.session.hooks = {
      redraw: () => this.#work(() => this.refresh()),
      refused: (sentence) => this.#refuse(sentence),
      read: (sentence) => {
        this.byId("reading").textContent = sentence;
      },
      said: (sentence) => {
        this.byId("reading").textContent = sentence;
        this.byId("live").textContent = sentence;
      },
    };
  }

  #refuse(sentence) {
    const node = this.byId("error");
    node.hidden = !sentence;
    node.textContent = sentence;
  }

  async start() {
    const { session } = this;
    try {
      await session.open();
    } catch (error) {
      session.explain(error);
      return;
    }
    this.#furnish();
    this.origin = new Origin(session, this.byId("cell"));
    this.architecture = new Architecture(session, this.byId("architecture"));
    this.place = new PlaceBar(session, this.byId("place"));
    this.tour = new Tour(session, this.byId("tour"), this.byId("tour-button"));
    session.store.listen((changed) => this.#changed(changed));
    document.addEventListener("keydown", (event) => this.#key(event));
    for (const query of ["(prefers-color-scheme: dark)", "(forced-colors: active)"]) {
      matchMedia(query).addEventListener("change", () => this.#work(() => this.refresh()));
    }
    let width = 0;
    new ResizeObserver(([{ contentRect }]) => {
      if (contentRect.width !== width) this.#work(() => this.refresh());
      width = contentRect.width;
    }).observe(this.byId("view"));
    await this.#work(async () => {
      await session.ensure();
      await this.refresh();
    });
  }

  /** What depends on the model alone. */
  #furnish() {
    const { session } = this;
    const { model, source } = session;
    document.title = `${model.name} · clearhead`;
    this.byId("model-name").textContent = model.name;
    const size =
      model.parameters >= 1e6
        ? `${number(model.parameters / 1e6, 3)} M`
        : model.parameters >= 1e3
          ? `${number(model.parameters / 1e3, 3)} k`
          : String(model.parameters);
    this.byId("model-facts").textContent = [
      model.task.replace(/_/g, " "),
      model.languages?.length ? model.languages.join(" → ") : "",
      `${size} parameters`,
      `width ${model.width}`,
      model.residual.replace(/_/g, "-"),
    ]
      .filter(Boolean)
      .join(" · ");
    this.byId("only-file").hidden = source.live;
    this.byId("examples").hidden = !source.live;
    for (const id of ["text", "answer", "run"]) this.byId(id).disabled = !source.live;
    const forced = model.mode === "encoder-decoder" && source.live;
    for (const id of ["answer", "answer-label"]) this.byId(id).hidden = !forced;
    this.byId("examples").append(
      ...[...new Set(model.examples ?? [])].map((text) => button(text, () => this.#run(text, ""))),
    );
    this.byId("ask").addEventListener("submit", (event) => {
      event.preventDefault();
      this.#run(this.byId("text").value, this.byId("answer").value);
    });
    this.byId("skip").addEventListener("click", () => this.byId("main").focus());
    this.byId("theme-button").addEventListener("click", () =>
      session.set({ theme: { "": "light", light: "dark", dark: "" }[session.state.theme] }),
    );
    this.byId("help-button").addEventListener("click", () => this.#help());
    this.#furnishTabs();
  }

  #furnishTabs() {
    const { session } = this;
    const tabs = TABS.map(([id, label]) =>
      button(label, () => session.set({ view: id }), { role: "tab", id: `tab-${id}`, "aria-controls": "view" }),
    );
    const list = this.byId("tabs");
    list.append(...tabs);
    list.addEventListener("keydown", (event) => {
      const by = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
      if (!by) return;
      event.preventDefault();
      event.stopPropagation();
      const at = (TABS.findIndex(([id]) => id === session.state.view) + by + TABS.length) % TABS.length;
      session.set({ view: TABS[at][0] });
      tabs[at].focus();
    });
  }

  #run(text, answer) {
    if (text.trim())
      this.session.set({ text, answer, forced: "", step: 0, cell: "", position: -1, word: "", against: "" });
  }

  #changed(changed) {
    return this.#work(async () => {
      if (RUNS_ANEW.some((name) => changed.has(name))) await this.session.ensure();
      await this.refresh();
    });
  }

  /** Whatever takes time says so: at once to assistive technology, after a moment to the eye. */
  async #work(task) {
    this.working += 1;
    document.body.setAttribute("aria-busy", "true");
    const slow = setTimeout(() => (this.byId("busy").hidden = false), PATIENCE);
    try {
      await task();
    } finally {
      clearTimeout(slow);
      this.working -= 1;
      if (!this.working) {
        this.byId("busy").hidden = true;
        document.body.setAttribute("aria-busy", "false");
      }
    }
  }

  get #view() {
    const [id, , Kind] = TABS.find(([name]) => name === this.session.state.view) ?? TABS[0];
    if (!this.views.has(id)) this.views.set(id, new Kind(this.session));
    return this.views.get(id);
  }

  /** Draws what is seen; while it is at it, further wishes become one more round. */
  async refresh() {
    this.again = true;
    if (this.drawing) return;
    this.drawing = true;
    try {
      while (this.again) {
        this.again = false;
        await this.#draw().catch((error) => this.session.explain(error));
      }
    } finally {
      this.drawing = false;
    }
  }

  async #draw() {
    const { session } = this;
    const { state, run } = session;
    if (state.theme) document.documentElement.dataset.theme = state.theme;
    else delete document.documentElement.dataset.theme;
    this.byId("theme-button").textContent = `Theme: ${state.theme || "auto"}`;
    for (const name of ["text", "answer"])
      if (document.activeElement !== this.byId(name)) this.byId(name).value = state[name];
    for (const [id] of TABS) {
      const tab = this.byId(`tab-${id}`);
      tab.setAttribute("aria-selected", String(id === state.view));
      tab.tabIndex = id === state.view ? 0 : -1;
    }
    if (!run) return;
    session.settle();
    if (!session.failed) this.#refuse("");
    this.byId("view").setAttribute("aria-labelledby", `tab-${state.view}`);
    this.#showSwitched();
    this.architecture.update();
    this.place.update();
    const view = this.#view;
    if (this.byId("view").firstElementChild !== view.root) this.byId("view").replaceChildren(view.root);
    await Promise.all([view.update(), this.origin.update()]);
  }

  /** While something is off, every view says so. */
  #showSwitched() {
    const { session } = this;
    const node = this.byId("switched");
    node.hidden = !session.switched;
    if (node.hidden) return;
    const heads = Object.values(readOff(session.state.off)).flat().length;
    const layers = readLayers(session.state.layersOff).length;
    const what = [heads ? plural(heads, "head") : "", layers ? plural(layers, "layer") : ""]
      .filter(Boolean)
      .join(" and ");
    const buttons = [
      button("Before and after", () => session.set({ view: "attention", mode: "atlas" })),
      button("All on again", () => session.set({ off: "", layersOff: "" })),
    ];
    node.replaceChildren(element("span", {}, `${what} switched off.`), ...(session.source.live ? buttons : []));
  }

  #help() {
    const dialog = this.byId("help");
    dialog.replaceChildren(
      element("h2", { id: "help-title" }, "Keys"),
      element(
        "dl",
        {},
        ...KEYS.flatMap(([key, what]) => [element("dt", {}, element("kbd", {}, key)), element("dd", {}, what)]),
      ),
      element(
        "p",
        { class: "hint" },
        "Every picture can be shown as a table and saved as SVG, PNG or CSV; the address holds the whole state. " +
          "Layers and heads are counted from 1 here, from 0 in Python.",
      ),
      button("Close", () => dialog.close(), { class: "primary" }),
    );
    dialog.showModal();
  }

  /** @param {KeyboardEvent} event */
  #key(event) {
    if (event.defaultPrevented || event.ctrlKey || event.metaKey || event.altKey || !this.session.run) return;
    if (event.target.closest?.("input, select, textarea, dialog")) return;
    const by = { "[": -1, "]": 1, "{": -1, "}": 1 }[event.key];
    if (event.key === "?") this.#help();
    else if (event.key === "Escape" && this.session.state.cell) this.session.set({ cell: "" });
    else if (event.key === "[" || event.key === "]") this.#head(by);
    else if (event.key === "{" || event.key === "}") this.#layer(by);
    else if (/^Arrow|^Enter$/.test(event.key) && event.target === document.body) this.#view.key?.(event);
    else return;
    event.preventDefault();
  }

  #head(by) {
    const { attention, state } = this.session;
    const head = (state.head + by + attention.heads) % attention.heads;
    this.session.look({ head, shown: String(head) });
    this.session.hooks.said(`Head ${head + 1} of ${attention.heads}`);
  }

  /** The same kind of attention one layer up or down. */
  #layer(by) {
    const { attention, run } = this.session;
    const stack = attention.name.split(".")[0];
    const own = run.attentions.filter(({ name, kind }) => kind === attention.kind && name.startsWith(`${stack}.`));
    const at = own.indexOf(attention) + by;
    if (!own[at]) return;
    this.session.look({ part: own[at].name });
    this.session.hooks.said(`${own[at].name}, layer ${at + 1} of ${own.length}`);
  }
}

new App().start();
