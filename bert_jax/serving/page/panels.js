// All panels, in the order of their tabs. A new one is a module like these, and a line here.
import { answer } from "./answer.js";
import { attention } from "./attention_panel.js";
import { classify } from "./classify.js";
import { entities } from "./entities.js";
import { fillMask } from "./fill_mask.js";
import { generate } from "./generate.js";
import { search } from "./search.js";
import { similarity } from "./similarity.js";
import { tokens } from "./tokens.js";

/** @type {import("./panel_view.js").Panel[]} */
export const PANELS = [
  fillMask,
  classify,
  entities,
  answer,
  generate,
  similarity,
  search,
  attention,
  tokens,
];
