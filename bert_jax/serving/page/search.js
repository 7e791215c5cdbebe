// Documents of the server's index.
import { make } from "./elements.js";
import { number } from "./tables.js";

export const search = {
  name: "search",
  title: "Search the index",
  button: "Search",
  suits: (model, info) => info.index,
  fields: [
    { name: "query", label: "Query", kind: "line", example: () => "Someone has a meal." },
    { name: "count", label: "Most hits", kind: "number", example: () => "10" },
  ],
  request: ({ query, count }) => ({
    path: "search",
    body: { queries: [query], top_k: Number(count) },
  }),
  show: ({ results: [{ hits }] }) =>
    hits.length
      ? [make("ol", { className: "hits" }, ...hits.map(hitElement))]
      : [make("p", {}, "There is no hit.")],
};

function hitElement({ id, score, title, text }) {
  return make("li", {},
    ...(title ? [make("p", { className: "title", dir: "auto" }, title)] : []),
    make("p", { className: "text", dir: "auto" }, text),
    make("p", { className: "note" }, `${number(score)}, `, make("bdi", {}, id)));
}
