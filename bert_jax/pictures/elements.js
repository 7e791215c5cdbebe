// Elements of a page. What a user wrote becomes text and never markup.

/**
 * @param {string} name of the element.
 * @param {object} properties of the element, as `className`.
 * @param {...(Node|string)} children
 */
export function make(name, properties = {}, ...children) {
  const element = Object.assign(document.createElement(name), properties);
  element.append(...children);
  return element;
}

/** Arrow keys move inside of a group of buttons, of which one is reached by the tabulator. */
export function moveByKeys(group, columns) {
  group.addEventListener("keydown", (event) => {
    const steps = { ArrowLeft: -1, ArrowRight: 1, ArrowUp: -columns, ArrowDown: columns };
    const buttons = [...group.querySelectorAll("button")];
    const next = buttons[buttons.indexOf(document.activeElement) + (steps[event.key] ?? NaN)];
    if (!next) return;
    event.preventDefault();
    buttons.forEach((button) => (button.tabIndex = button === next ? 0 : -1));
    next.focus();
  });
}
