// Tables of scores.
import { make } from "./elements.js";

export const number = (value) => value.toFixed(3);

/** A table that scrolls by itself where it is too wide, also by keys. */
export function table(...children) {
  return make("div", { className: "wide", tabIndex: 0 }, make("table", {}, ...children));
}

/**
 * Names with their scores, and bars where all are from 0 to 1.
 *
 * @param {[string, number][]} rows
 * @param {string} caption
 */
export function scoreTable(rows, caption) {
  const hasBars = rows.every(([, score]) => score >= 0 && score <= 1);
  const lines = rows.map(([name, score]) => {
    const bar = make("div", { className: "bar" });
    bar.style.inlineSize = `${100 * score}%`;
    return make("tr", {},
      make("td", {}, make("bdi", {}, name)),
      make("td", {}, number(score)),
      ...(hasBars ? [make("td", { className: "bars" }, bar)] : []));
  });
  return table(make("caption", {}, caption), make("tbody", {}, ...lines));
}
