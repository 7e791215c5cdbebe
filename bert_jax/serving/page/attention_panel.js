// The attention weights of a text.
import { AttentionPicture } from "./attention.js";
import { textField } from "./fields.js";

export const attention = {
  name: "attention",
  title: "Attention",
  button: "Show",
  suits: (model) => model.tasks.includes("attentions"),
  fields: [
    textField(() => "The cat did not cross the street because it was too tired."),
    { name: "pair", label: "Second text", kind: "text", optional: true },
    { name: "layers", label: "Layers, as 1, 2, -1", kind: "line", optional: true },
  ],
  request: ({ text, pair, layers }, model) => ({
    path: "page/attentions",
    body: {
      text,
      model,
      ...(pair && { pair }),
      ...(layers.trim() && { layers: layers.split(",").map(Number) }),
    },
  }),
  show: ({ maps }) => [new AttentionPicture([{ title: "", maps: () => maps }]).element],
};
