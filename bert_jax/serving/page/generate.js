// A text that a model writes.
import { make } from "./elements.js";
import { textField } from "./fields.js";
import { number } from "./tables.js";

export const generate = {
  name: "generate",
  title: "Generate",
  button: "Generate",
  suits: (model) => model.tasks.includes("generate"),
  fields: [
    textField(
      () => "The sun was setting, and the boats", "Text to continue, or to translate or shorten"),
    { name: "count", label: "Most new tokens", kind: "number", optional: true },
  ],
  request: ({ text, count }, model) => ({
    path: "generate",
    body: { records: [{ text }], model, options: count ? { max_new_tokens: Number(count) } : {} },
  }),
  show: ({ predictions: [{ generations }] }) =>
    generations.flatMap(({ text, score, token_ids: ids }) => [
      make("p", { className: "text", dir: "auto" }, text || "(no text)"),
      make("p", { className: "note" }, `${ids.length} tokens, log-probability ${number(score)}`),
    ]),
};
