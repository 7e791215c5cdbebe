// Entities, highlighted in their text.
import { make } from "./elements.js";
import { textField } from "./fields.js";
import { highlighted } from "./spans.js";
import { scoreTable } from "./tables.js";

export const entities = {
  name: "entities",
  title: "Entities",
  button: "Find",
  suits: (model) => model.tasks.includes("tagging"),
  fields: [textField(() => "Ada Lovelace worked with Charles Babbage in London.")],
  request: ({ text }, model) => ({ path: "tag", body: { records: [{ text }], model } }),
  show: ({ predictions: [{ entities: found }] }, { text }) => {
    if (!found.length) return [make("p", {}, "The model found no entity.")];
    const spans = found.map(({ start, end, type }) => ({ start, end, label: type }));
    const rows = found.map((each) => [`${each.text} (${each.type})`, each.score]);
    return [highlighted(text, spans), scoreTable(rows, "Entities")];
  },
};
