// A panel on the page: its form, its request, and what the server answered.
import { make } from "./elements.js";
import { FieldInput } from "./fields.js";
import { ask } from "./server.js";

/**
 * What a panel is; see panels.js.
 *
 * @typedef {object} Panel
 * @property {string} name part of the page's address, behind #.
 * @property {string} title
 * @property {string} button
 * @property {(model: object, info: object) => boolean} suits whether the model can do it.
 * @property {import("./fields.js").Field[]} fields
 * @property {(values: object, model: string) => {path: string, body: object}} request
 * @property {(content: any, values: object) => (Node|string)[]} show the answer.
 */

export class PanelView {
  #panel;
  #model = "";
  #fields;
  #pending = null;

  /** @param {Panel} panel */
  constructor(panel) {
    this.#panel = panel;
    this.#fields = panel.fields.map((field) => new FieldInput(field));
    this.button = make("button", { type: "submit" }, panel.button);
    this.status = make("p", { className: "answered", role: "status" });
    this.output = make("div", { className: "output" });
    this.form = make("form", {}, ...this.#fields.map((field) => field.element), this.button);
    this.form.addEventListener("submit", (event) => {
      event.preventDefault();
      if (!this.#pending) this.#send();
    });
    this.form.addEventListener("keydown", (event) => {
      if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) this.form.requestSubmit();
    });
    this.element = make("section",
      { id: panel.name, role: "tabpanel", ariaLabel: panel.title, hidden: true },
      make("h2", {}, panel.title), this.form, this.status, this.output);
  }

  /** Another model: what the last one answered is gone, and its work is given up. */
  useModel(model) {
    this.#pending?.abort();
    this.#model = model.name;
    this.#fields.forEach((field) => field.useModel(model));
    this.#say("");
    this.output.replaceChildren();
  }

  async #send() {
    const pending = (this.#pending = new AbortController());
    const values = Object.fromEntries(this.#fields.map((field) => [field.input.name, field.value]));
    this.#setBusy(true);
    this.#say("Waiting for the answer …");
    const begun = performance.now();
    try {
      const { path, body } = this.#panel.request(values, this.#model);
      const { content, cut } = await ask(path, body, pending.signal);
      this.output.replaceChildren(...this.#panel.show(content, values));
      const time = `Answered in ${Math.round(performance.now() - begun)} ms.`;
      this.#say(cut ? `${time} ${cut} text(s) were too long for the model, and were cut.` : time);
    } catch (error) {
      if (pending.signal.aborted) return;
      this.output.replaceChildren();
      this.#say(error.message, true);
    } finally {
      if (this.#pending === pending) {
        this.#pending = null;
        this.#setBusy(false);
      }
    }
  }

  // The button keeps the focus; further presses do nothing.
  #setBusy(isBusy) {
    this.button.ariaDisabled = this.element.ariaBusy = isBusy;
  }

  #say(message, isError = false) {
    this.status.textContent = message;
    this.status.classList.toggle("error", isError);
  }
}
