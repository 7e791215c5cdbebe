// Words for the masks of a text.
import { scoreTable } from "./tables.js";

export const fillMask = {
  name: "fill",
  title: "Fill a mask",
  button: "Fill",
  suits: (model) => model.tasks.includes("fill_mask"),
  fields: [
    {
      name: "text",
      label: "Text with masks",
      kind: "text",
      example: (model) => `Paris is the ${model.mask_token} of France.`,
    },
  ],
  request: ({ text }, model) => ({
    path: "fill_mask",
    body: { records: [{ text }], model, options: { top_k: 8 } },
  }),
  show: ({ predictions: [{ fillings }] }) =>
    fillings.map((words, place) =>
      scoreTable(words.map((word) => [word.token, word.score]), `Mask ${place + 1}`)),
};
