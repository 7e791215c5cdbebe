// Attention weights of texts: all heads as small pictures, one in large with lines between tokens.
import { make, moveByKeys } from "./elements.js";

// Weights below this have no line.
const LEAST = 0.02;
const MEAN = -1;
const STRONGEST = 5;
const STEPS = 65535;
const NO_TOKEN = { side: "", token: -1 };
const HELP =
  "A line is the weight of a token at the right for the one at the left; weights below " +
  `${LEAST} have none. Choose a token to see its lines alone, and a head among the small ` +
  "pictures, where rows attend to columns. In both, the largest weight of a head has the " +
  "full colour.";

/**
 * The weights of one kind of attention, as `AttentionMap` in Python writes them.
 * @typedef {{name: string, queries: string[], keys: string[], layers: number[], heads: number,
 *   weights: string}} AttentionMap
 */

export class AttentionPicture {
  #maps;
  #weights;
  #chosen = { text: 0, map: 0, layer: 0, head: MEAN, ...NO_TOKEN };

  /** @param {{title: string, maps: () => AttentionMap[]}[]} texts; maps are read when chosen. */
  constructor(texts) {
    this.texts = texts;
    this.textChoice = this.#choice("text");
    this.mapChoice = this.#choice("map");
    this.title = make("bdi");
    this.heads = make("div", { className: "wide" });
    this.status = make("p", { className: "status", ariaLive: "polite" });
    this.large = make("div");
    const headings = ["Layers (rows) and heads", "One head"].map((text) => make("h2", {}, text));
    this.element = make("div", {},
      make("div", { className: "controls" },
        make("label", {}, "text ", this.textChoice),
        make("label", {}, "attention ", this.mapChoice)),
      make("p", {}, this.title),
      make("div", { className: "parts" },
        make("section", {}, headings[0], this.heads),
        make("section", {}, headings[1], this.status, this.large)),
      make("p", {}, HELP));
    this.element.addEventListener("keydown", (event) => {
      if (event.key === "Escape") this.#choose(NO_TOKEN);
    });
    fill(this.textChoice, texts.map(({ title }, number) => `${number + 1}: ${title}`));
    if (texts.length) this.#choose({ text: 0 });
  }

  get #map() {
    return this.#maps[this.#chosen.map];
  }

  #choice(name) {
    const select = make("select", { dir: "auto" });
    select.addEventListener("change", () => this.#choose({ [name]: Number(select.value) }));
    return select;
  }

  #choose(changes) {
    Object.assign(this.#chosen, changes);
    if ("text" in changes) {
      const text = this.texts[this.#chosen.text];
      this.#maps = text.maps();
      this.#chosen.map = 0;
      fill(this.mapChoice, this.#maps.map((map) => map.name));
      this.title.textContent = text.title;
    }
    if ("text" in changes || "map" in changes) {
      this.#weights = decode(this.#map.weights);
      Object.assign(this.#chosen, { layer: this.#map.layers.length - 1, head: MEAN, ...NO_TOKEN });
      this.#showHeads();
      this.#showLarge();
    } else this.#showLines();
    for (const button of this.heads.querySelectorAll("button")) {
      const isChosen = button.dataset.place === `${this.#chosen.layer},${this.#chosen.head}`;
      button.ariaPressed = isChosen;
      if (!("token" in changes)) button.tabIndex = isChosen ? 0 : -1;
    }
  }

  // The weights of a head, or of the mean of all heads, of a layer: row after row.
  #weightsOf(layer, head) {
    const { queries, keys, heads } = this.#map;
    const size = queries.length * keys.length;
    const first = layer * heads * size;
    const of = (number) => this.#weights.subarray(first + number * size).subarray(0, size);
    if (head !== MEAN) return of(head);
    const mean = new Float32Array(size);
    for (let number = 0; number < heads; number++) {
      of(number).forEach((value, place) => (mean[place] += value / heads));
    }
    return mean;
  }

  #nameOf(layer, head) {
    const name = head === MEAN ? "mean of the heads" : `head ${head + 1}`;
    return `layer ${this.#map.layers[layer]}, ${name}`;
  }

  #showHeads() {
    const { layers, heads } = this.#map;
    const order = [...Array(heads).keys(), MEAN];
    const grid = make("div", { className: "heads" }, make("span"));
    grid.style.setProperty("--columns", order.length);
    grid.append(...order.map((head) => make("span", {}, head === MEAN ? "mean" : head + 1)));
    layers.forEach((number, layer) => {
      grid.append(make("span", { title: `layer ${number}` }, number));
      grid.append(...order.map((head) => this.#headButton(layer, head)));
    });
    moveByKeys(grid, order.length);
    this.heads.replaceChildren(grid);
  }

  #headButton(layer, head) {
    const { queries, keys } = this.#map;
    const title = this.#nameOf(layer, head);
    const properties = { type: "button", tabIndex: -1, title, ariaLabel: title };
    const picture = canvas(this.#weightsOf(layer, head), keys.length, queries.length);
    const button = make("button", properties, picture);
    button.dataset.place = `${layer},${head}`;
    button.addEventListener("click", () => this.#choose({ layer, head }));
    return button;
  }

  #showLarge() {
    const { queries, keys } = this.#map;
    const viewBox = `0 0 100 ${Math.max(queries.length, keys.length)}`;
    const attributes = { viewBox, preserveAspectRatio: "none", "aria-hidden": "true" };
    this.lines = makeSvg("svg", attributes);
    this.lists = { from: this.#tokenList("from", queries), to: this.#tokenList("to", keys) };
    const parts = [this.lists.from, this.lines, this.lists.to];
    this.large.replaceChildren(make("div", { className: "lines" }, ...parts));
    this.#showLines();
  }

  #tokenList(side, tokens) {
    const ariaLabel = side === "from" ? "tokens that attend" : "tokens attended to";
    const list = make("ol", { className: `tokens ${side}`, ariaLabel });
    tokens.forEach((token, number) => {
      const button = make("button", { type: "button", title: token, tabIndex: number ? -1 : 0 });
      button.append(make("bdi", {}, token));
      const see = () => this.#showLines(side, number);
      button.addEventListener("pointerenter", (event) => event.pointerType === "mouse" && see());
      button.addEventListener("focus", see);
      button.addEventListener("click", () => {
        const again = this.#chosen.side === side && this.#chosen.token === number;
        this.#choose(again ? NO_TOKEN : { side, token: number });
      });
      list.append(make("li", {}, button));
    });
    moveByKeys(list, 1);
    list.addEventListener("pointerleave", () => this.#showLines());
    list.addEventListener("focusout", () => this.#showLines());
    return list;
  }

  // The lines of a token, or of all; tokens at their other ends are shaded by the weight.
  #showLines(side = this.#chosen.side, token = this.#chosen.token) {
    const { queries, keys } = this.#map;
    const values = this.#weightsOf(this.#chosen.layer, this.#chosen.head);
    const most = largest(values);
    const lines = [];
    const [seen, others] = side === "from" ? [queries, keys] : [keys, queries];
    const shades = new Float32Array(others.length);
    values.forEach((value, place) => {
      const [query, key] = [Math.floor(place / keys.length), place % keys.length];
      if (side && (side === "from" ? query : key) !== token) return;
      if (side) shades[side === "from" ? key : query] = value;
      if (value >= LEAST) lines.push(line(query, key, value / most));
    });
    this.lines.replaceChildren(...lines);
    for (const [other, list] of Object.entries(this.lists)) {
      list.querySelectorAll("button").forEach((button, number) => {
        const shade = side && other !== side ? shades[number] : 0;
        button.style.background = shade ? `rgb(61 133 224 / ${(shade / most).toFixed(3)})` : "";
        button.ariaPressed = this.#chosen.side === other && this.#chosen.token === number;
      });
    }
    this.#tell(side && { side, token: seen[token], others, shades });
  }

  // What the lines show, in words.
  #tell(of) {
    const { layer, head } = this.#chosen;
    this.status.replaceChildren(`${this.#map.name}, ${this.#nameOf(layer, head)}`);
    if (!of) return;
    const order = [...of.shades.keys()].sort((a, b) => of.shades[b] - of.shades[a]);
    const arrow = of.side === "from" ? " attends to " : " is attended to by ";
    this.status.append(": ", make("bdi", {}, of.token), arrow);
    order.slice(0, STRONGEST).forEach((number, place) => {
      this.status.append(place ? ", " : "", make("bdi", {}, of.others[number]));
      this.status.append(` ${of.shades[number].toFixed(3)}`);
    });
  }
}

function fill(select, options) {
  select.replaceChildren(...options.map((label, value) => new Option(label, value)));
  select.parentElement.hidden = options.length < 2;
}

function decode(base64) {
  const bytes = Uint8Array.from(atob(base64), (character) => character.charCodeAt(0));
  const view = new DataView(bytes.buffer);
  const weight = (_, place) => view.getUint16(2 * place, true) / STEPS;
  return Float32Array.from({ length: bytes.length / 2 }, weight);
}

const largest = (values) => values.reduce((a, b) => Math.max(a, b), LEAST);

// The colour of the page shows through where a weight is small, in light and dark.
function canvas(values, width, height) {
  const element = make("canvas", { width, height });
  const most = largest(values);
  const image = new ImageData(width, height);
  values.forEach((value, place) => {
    image.data.set([61, 133, 224, Math.round((255 * value) / most)], 4 * place);
  });
  element.getContext("2d").putImageData(image, 0, 0);
  return element;
}

function makeSvg(name, attributes) {
  const element = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  return element;
}

function line(query, key, opacity) {
  const ends = { x1: 0, x2: 100, y1: query + 0.5, y2: key + 0.5 };
  return makeSvg("line", { ...ends, "stroke-opacity": opacity.toFixed(3) });
}
