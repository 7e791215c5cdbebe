// The fields of a panel's form.
import { make } from "./elements.js";

/**
 * @typedef {object} Field
 * @property {string} name
 * @property {string} label
 * @property {"text"|"line"|"number"} kind several lines, one line, or a whole number.
 * @property {(model: object) => string} [example] what it has at first.
 * @property {boolean} [optional]
 */

/** The field of the text that a panel is about. */
export const textField = (example, label = "Text") =>
  ({ name: "text", label, kind: "text", example });

/** The input of a field, inside of its label. */
export class FieldInput {
  #field;
  #example = "";

  /** @param {Field} field */
  constructor(field) {
    this.#field = field;
    const isText = field.kind === "text";
    this.input = make(isText ? "textarea" : "input", {
      name: field.name,
      required: !field.optional,
      dir: "auto",
      spellcheck: false,
      autocomplete: "off",
      ...(isText ? { rows: 3 } : { type: field.kind === "number" ? "number" : "text" }),
    });
    if (field.kind === "number") Object.assign(this.input, { min: 1, step: 1 });
    const label = field.label + (field.optional ? " (optional)" : "");
    this.element = make("label", { className: "field" }, label, this.input);
  }

  /** Shows the example for a model, unless the user wrote something. */
  useModel(model) {
    const isUntouched = this.input.value === this.#example;
    this.#example = this.#field.example?.(model) ?? "";
    if (isUntouched) this.input.value = this.#example;
  }

  get value() {
    return this.input.value;
  }
}
