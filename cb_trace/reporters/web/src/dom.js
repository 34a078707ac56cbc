// Elements from plain calls. Text always goes in as a text node: names come from strangers.

const SVG = "http://www.w3.org/2000/svg";

export function h(tag, attributes = {}, ...children) {
  return filled(document.createElement(tag), attributes, children);
}

export function s(tag, attributes = {}, ...children) {
  return filled(document.createElementNS(SVG, tag), attributes, children);
}

function filled(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else element.setAttribute(name, value === true ? "" : value);
  }
  for (const child of children.flat(3)) {
    if (child !== null && child !== undefined && child !== false) element.append(child);
  }
  return element;
}

// A name from a model or trace: isolated, so that right-to-left text moves nothing around it.
export function name(text, attributes = {}) {
  return h("bdi", { class: "name", ...attributes }, text);
}

// A table of text cells. A column: [head, cell maker, "number" or ""].
export function table(caption, columns, rows, attributes = {}) {
  const head = columns.map(([title, , kind]) => h("th", { scope: "col", class: kind }, title));
  const body = rows.map((row) =>
    h("tr", {}, columns.map(([, cell, kind], place) =>
      h(place === 0 ? "th" : "td", { scope: place === 0 ? "row" : null, class: kind }, cell(row)))));
  return h("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": `${caption}, table` },
    h("table", { class: "plain", ...attributes },
      h("caption", { class: "hidden" }, caption),
      h("thead", {}, h("tr", {}, head)), h("tbody", {}, body)));
}

export function replace(element, ...children) {
  element.replaceChildren(...children.flat(3).filter((c) => c !== null && c !== undefined && c !== false));
}
