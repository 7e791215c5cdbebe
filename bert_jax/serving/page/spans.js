// Parts of a text that are highlighted where they stand.
import { make } from "./elements.js";

/**
 * A text with marks.
 *
 * @param {string} text
 * @param {{start: number, end: number, label?: string}[]} spans which do not overlap, in their
 *   order; numbers of code points, as Python counts, where an emoji is one.
 */
export function highlighted(text, spans) {
  const characters = [...text];
  const part = (start, end) => characters.slice(start, end).join("");
  const element = make("p", { className: "text", dir: "auto" });
  let last = 0;
  for (const { start, end, label } of spans) {
    const mark = make("mark", {}, part(start, end));
    if (label) mark.append(make("bdi", { className: "label" }, label));
    element.append(part(last, start), mark);
    last = end;
  }
  element.append(part(last));
  return element;
}
