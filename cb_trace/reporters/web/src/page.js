// The frame of the page: head, controls, sections, keys.

import { h, name, replace } from "./dom.js";
import { known, percent, range, times, us } from "./format.js";

export function head(report) {
  const { run } = report;
  const facts = [run.device_name, run.dtype, run.mode && `recorded ${run.mode}`, run.torch_version && `torch ${run.torch_version}`, run.created_at?.slice(0, 10)];
  return h("div", { class: "title" },
    h("h1", {}, name(run.workload ?? report.raw.profile)),
    h("p", {}, h("bdi", {}, facts.filter(Boolean).join(" · "))));
}

// Four figures that a reader wants first.
export function keyFigures(element, { report, view }) {
  const { run } = report;
  const root = report.roots[0];
  const busy = view.numbers("busy_us")[root], step = view.stepUs, alone = view.numbers("isolated_us")[root];
  const figures = [
    known(step) && [view.stepBare ? "Bare step" : "Step, profiled", us(step), "µs", range(view.stepLowUs, view.stepHighUs) || `${view.deployment} deployment`],
    known(busy) && ["Device busy", us(busy), "µs", known(step) && step > 0 ? `${percent(busy / step)} of the step` : "a step"],
    known(alone) && ["Whole model alone", us(alone), "µs", "back to back, bare"],
    known(run.dilation) && ["Dilation", times(run.dilation), "", "profiled over bare step"],
  ].filter(Boolean);
  replace(element, figures.map(([title, value, unit, note]) => h("div", {},
    h("dt", {}, title), h("dd", {}, h("span", { class: "big" }, value), unit && h("span", { class: "unit" }, ` ${unit}`), h("span", { class: "range" }, note)))));
}

export function choice(legend, options, chosen, choose) {
  const id = `choice-${legend.toLowerCase()}`;
  return h("fieldset", { class: "segments", role: "radiogroup", "aria-label": legend },
    options.map((option) => h("label", {},
      h("input", { type: "radio", name: id, value: option, checked: option === chosen, onchange: () => choose(option) }),
      h("span", {}, option))));
}

export function picker(label, options, chosen, choose) {
  const select = h("select", { onchange: (event) => choose(event.target.value) },
    options.map(([value, title]) => h("option", { value, selected: value === chosen }, title)));
  return h("label", { class: "picker" }, h("span", {}, label), select);
}

export function section(id, title, ...content) {
  return h("section", { id, "aria-labelledby": `${id}-title` }, h("h2", { id: `${id}-title` }, h("span", { class: "number", "aria-hidden": "true" }), title), content);
}

const KEYS = [
  ["/", "search; regular expressions work"],
  ["↑ ↓", "module before, after (in the table)"],
  ["→ ←", "open, close; then child, parent"],
  ["Home End", "first, last module"],
  ["Enter", "zoom the icicle to the module"],
  ["Esc", "clear the search, else zoom out"],
  ["0", "zoom out all the way"],
  ["d", "next deployment"],
  ["1 … 9", "section of that number"],
  ["?", "this help"],
];

export function help() {
  return h("dialog", { class: "help", "aria-labelledby": "help-title" },
    h("h2", { id: "help-title" }, "Keys"),
    h("dl", {}, KEYS.map(([key, does]) => h("div", {}, h("dt", {}, key.split(" ").map((one) => (one === "…" ? " … " : h("kbd", {}, one)))), h("dd", {}, does)))),
    h("form", { method: "dialog" }, h("button", { class: "act" }, "Close")));
}
