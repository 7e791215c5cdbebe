// Words for the masks of a text.
import { textField } from "./fields.js";
import { scoreTable } from "./tables.js";

export const fillMask = {
  name: "fill",
  title: "Fill a mask",
  button: "Fill",
  suits: (model) => model.tasks.includes("fill_mask"),
  fields: [textField((model) => `Paris is the ${model.mask_token} of France.`, "Text with masks")],
  request: ({ text }, model) => ({
    path: "fill_mask",
    body: { records: [{ text }], model, options: { top_k: 8 } },
  }),
  show: ({ predictions: [{ fillings }] }) =>
    fillings.map((words, place) =>
      scoreTable(words.map((word) => [word.token, word.score]), `Mask ${place + 1}`)),
};
