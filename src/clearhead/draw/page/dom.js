/** Elements made without any HTML text: what a model or a user wrote only ever becomes a text node. */

const SVG_SPACE = "http://www.w3.org/2000/svg";

/**
 * @param {Element} node
 * @param {Record<string, any>} attributes  functions become listeners, true an empty attribute, false and null nothing
 * @param {(Node | string | null | undefined)[]} children
 */
function furnish(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (typeof value === "function") node.addEventListener(name, value);
    else if (value !== false && value !== null && value !== undefined) {
      node.setAttribute(name, value === true ? "" : String(value));
    }
  }
  node.append(...children.filter((child) => child !== null && child !== undefined));
  return node;
}

/** @returns {HTMLElement & Record<string, any>} */
export function element(tag, attributes = {}, ...children) {
  return furnish(document.createElement(tag), attributes, children);
}

/** @returns {SVGElement} */
export function svgElement(tag, attributes = {}, ...children) {
  return furnish(document.createElementNS(SVG_SPACE, tag), attributes, children);
}

/** @param {string} label  @param {() => void} click */
export function button(label, click, attributes = {}) {
  return element("button", { type: "button", click, ...attributes }, label);
}

/**
 * A choice of one among few, as radio buttons that look like one bar.
 * @param {string} name  @param {string} label  @param {[string, string][]} options  value and words of each
 * @param {(value: string) => void} choose
 */
export function choices(name, label, options, choose) {
  const inputs = options.map(([value]) =>
    element("input", { type: "radio", name, value, change: () => choose(value) }),
  );
  const root = element(
    "div",
    { class: "choices", role: "radiogroup", "aria-label": label },
    ...options.map(([, words], at) => element("label", {}, inputs[at], element("span", {}, words))),
  );
  return {
    root,
    /** @param {string} value  @param {string[]} [disabled] */
    set(value, disabled = []) {
      for (const input of inputs) {
        input.checked = input.value === value;
        input.disabled = disabled.includes(input.value);
      }
    },
  };
}

/**
 * A slider that says its value in words.
 * @param {{label: string, min: number, max: number, step: number, say: (value: number) => string,
 *          choose: (value: number) => void}} options
 */
export function slider({ label, min, max, step, say, choose }) {
  const output = element("output");
  const input = element("input", {
    type: "range",
    min,
    max,
    step,
    input: () => {
      output.textContent = say(Number(input.value));
    },
    change: () => choose(Number(input.value)),
  });
  const name = element("span", {}, label);
  return {
    root: element("label", { class: "slider" }, name, input, output),
    input,
    /** @param {number} value */
    set(value) {
      input.value = String(value);
      output.textContent = say(value);
    },
  };
}

/** @param {string} label  @param {(on: boolean) => void} choose */
export function checkbox(label, choose) {
  const input = element("input", { type: "checkbox", change: () => choose(input.checked) });
  return { root: element("label", { class: "check" }, input, label), input };
}

/** @param {string} label  @param {(value: string) => void} choose */
export function dropdown(label, choose) {
  const select = element("select", { "aria-label": label, change: () => choose(select.value) });
  return {
    root: select,
    /** @param {[string, string][]} options  @param {string} value */
    set(options, value) {
      select.replaceChildren(...options.map(([key, words]) => element("option", { value: key }, words)));
      select.value = value;
    },
  };
}

/** Offers a file to be kept. @param {Blob} blob  @param {string} name */
export function download(blob, name) {
  const address = URL.createObjectURL(blob);
  const link = element("a", { href: address, download: name, class: "unseen" });
  document.body.append(link);
  link.click();
  link.remove();
  setTimeout(() => URL.revokeObjectURL(address), 10_000);
}
