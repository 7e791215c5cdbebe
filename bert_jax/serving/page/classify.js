// Labels of a text, or of a pair of texts.
import { textField } from "./fields.js";
import { scoreTable } from "./tables.js";

export const classify = {
  name: "classify",
  title: "Classify",
  button: "Classify",
  suits: (model) => model.tasks.includes("classification"),
  fields: [
    textField(() => "The plot is thin, but the actors are a joy to watch."),
    { name: "pair", label: "Second text", kind: "text", optional: true },
  ],
  request: ({ text, pair }, model) => ({
    path: "predict",
    body: { inputs: [pair ? [text, pair] : [text]], model },
  }),
  show: ([labels]) => [scoreTable(labels.map(({ label, score }) => [label, score]), "Scores")],
};
