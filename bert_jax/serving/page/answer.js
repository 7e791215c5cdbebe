// Answers, highlighted in their passage one at a time.
import { make, moveByKeys } from "./elements.js";
import { highlighted } from "./spans.js";
import { number } from "./tables.js";

export const answer = {
  name: "answer",
  title: "Answer from a passage",
  button: "Answer",
  suits: (model) => model.tasks.includes("question_answering"),
  fields: [
    {
      name: "question",
      label: "Question",
      kind: "line",
      example: () => "Where did the cat sleep?",
    },
    {
      name: "passage",
      label: "Passage",
      kind: "text",
      example: () => "It rained all night. The dog stayed outside, and the cat slept on the sofa.",
    },
  ],
  request: ({ question, passage }, model) => ({
    path: "answer",
    body: { records: [{ question, context: passage }], model, options: { top_k: 5 } },
  }),
  show: ({ predictions: [best] }, { passage }) => choosable(best.n_best ?? [best], passage),
};

// The answers as buttons, and the passage with the chosen one.
function choosable(answers, passage) {
  const shown = make("div");
  const list = make("ol", { className: "answers" });
  const buttons = answers.map((each, place) => {
    const label = make("bdi", {}, each.answer || "no answer");
    const button = make("button", { type: "button", tabIndex: place ? -1 : 0 }, label);
    button.append(` ${number(each.score)}`);
    button.addEventListener("click", () => choose(each, button));
    list.append(make("li", {}, button));
    return button;
  });
  const choose = (chosen, pressed) => {
    shown.replaceChildren(highlighted(passage, chosen.answer ? [chosen] : []));
    buttons.forEach((button) => (button.ariaPressed = button === pressed));
  };
  moveByKeys(list, 1);
  choose(answers[0], buttons[0]);
  return [shown, make("h3", {}, "Best answers, with their scores"), list];
}
