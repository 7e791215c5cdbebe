// The page: asks which models there are, and shows the panels of the chosen one.
import { make, moveByKeys } from "./elements.js";
import { PanelView } from "./panel_view.js";
import { PANELS } from "./panels.js";
import { ask, useKey } from "./server.js";

const UNAUTHORIZED = 401;
const element = (id) => document.getElementById(id);
const views = new Map(PANELS.map((panel) => [panel.name, new PanelView(panel)]));

function start(info) {
  const select = element("model");
  select.replaceChildren(...info.models.map(({ name }) => new Option(name, name)));
  element("panels").replaceChildren(...[...views.values()].map((view) => view.element));
  const useModel = () => showModel(info.models[select.selectedIndex], info);
  select.addEventListener("change", useModel);
  window.addEventListener("hashchange", () => showPanel(location.hash.slice(1)));
  moveByKeys(element("tabs"), 1);
  element("choice").hidden = false;
  useModel();
}

function showModel(model, info) {
  element("about").textContent =
    `${model.class}, width ${model.width}, at most ${model.max_length} tokens, ${model.dtype}`;
  views.forEach((view) => view.useModel(model));
  const able = PANELS.filter((panel) => panel.suits(model, info));
  element("tabs").replaceChildren(...able.map(tabOf));
  const [first] = able;
  const asked = location.hash.slice(1);
  showPanel(able.some(({ name }) => name === asked) ? asked : first.name);
}

function tabOf({ name, title }) {
  const tab = make("button", { type: "button", role: "tab" }, title);
  tab.setAttribute("aria-controls", name);
  tab.addEventListener("click", () => (location.hash = name));
  return tab;
}

// Another address: the panel is shown if the model has it.
function showPanel(name) {
  const tabs = [...element("tabs").children];
  const ofPanel = (tab) => tab.getAttribute("aria-controls") === name;
  if (!tabs.some(ofPanel)) return;
  for (const tab of tabs) {
    tab.ariaSelected = ofPanel(tab);
    tab.tabIndex = ofPanel(tab) ? 0 : -1;
  }
  views.forEach((view, ofView) => (view.element.hidden = ofView !== name));
}

async function begin() {
  element("problem").textContent = "";
  try {
    const { content } = await ask("info");
    element("key").hidden = true;
    start(content);
  } catch (error) {
    element("key").hidden = error.status !== UNAUTHORIZED;
    element("problem").textContent = error.message;
  }
}

element("key").addEventListener("submit", (event) => {
  event.preventDefault();
  useKey(element("key-value").value);
  begin();
});
begin();
