// The tokens of a text, with their ids and characters.
import { make } from "./elements.js";
import { textField } from "./fields.js";

export const tokens = {
  name: "tokens",
  title: "Tokens",
  button: "Tokenize",
  suits: () => true,
  fields: [textField(() => "Unforgettable: naïve café, 東京, 😀")],
  request: ({ text }, model) => ({ path: "tokenize", body: { inputs: text, model } }),
  show: ([found]) => [
    make("p", { className: "note" }, `${found.length} tokens: text, id, characters`),
    make("ol", { className: "pieces" }, ...found.map(tokenElement)),
  ],
};

function tokenElement({ id, text, special, start, stop }) {
  const characters = special ? "special" : `${start}–${stop}`;
  return make("li", { className: special ? "special" : "" },
    make("bdi", {}, text),
    make("span", {}, id),
    make("span", {}, characters));
}
