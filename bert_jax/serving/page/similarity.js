// How similar texts are to each other, as a heat map.
import { make } from "./elements.js";
import { number, table } from "./tables.js";

// With full colour, the number in a cell could not be read.
const STRONGEST = 0.85;

export const similarity = {
  name: "similarity",
  title: "Similarity of texts",
  button: "Compare",
  suits: (model) => model.tasks.includes("embed"),
  fields: [
    {
      name: "texts",
      label: "Texts, one a line",
      kind: "text",
      example: () =>
        [
          "A man is eating food.",
          "Someone has a meal.",
          "The stock market fell today.",
          "Shares lost a tenth of their value.",
        ].join("\n"),
    },
  ],
  request: ({ texts }, model) => ({
    path: "page/similarities",
    body: { texts: lines(texts), model },
  }),
  show: ({ similarity: name, scores }, { texts }) => [heatMap(lines(texts), scores, name)],
};

const lines = (texts) => texts.split("\n").filter((line) => line.trim());

function heatMap(texts, scores, name) {
  const all = scores.flat();
  const least = all.reduce((a, b) => Math.min(a, b));
  const most = all.reduce((a, b) => Math.max(a, b));
  const share = (score) => (most > least ? (score - least) / (most - least) : 1);
  const cell = (score, row, column) => {
    const title = `${texts[row]} / ${texts[column]}`;
    const element = make("td", { title }, number(score));
    element.style.background = `rgb(61 133 224 / ${(STRONGEST * share(score)).toFixed(3)})`;
    return element;
  };
  const rows = scores.map((row, place) =>
    make("tr", {},
      make("th", { scope: "row" }, `${place + 1} `, make("bdi", {}, texts[place])),
      ...row.map((score, column) => cell(score, place, column))));
  const head = texts.map((text, place) => make("th", { scope: "col", title: text }, place + 1));
  const caption = `${name}; the lowest, ${number(least)}, is without colour`;
  const element = table(
    make("caption", {}, caption),
    make("thead", {}, make("tr", {}, make("td"), ...head)),
    make("tbody", {}, ...rows));
  element.classList.add("heat");
  return element;
}
