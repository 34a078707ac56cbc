// The step once over, and the kinds of modules whose isolated figure is furthest off.

import { h, name, replace, s, table } from "./dom.js";
import { count, known, percent, percentSigned, us, usSigned } from "./format.js";

export const KINDS = [
  ["modules", "Busy in modules"],
  ["glue", "Busy in glue of parents"],
  ["idle_host", "Idle: waiting for the host"],
  ["idle_gap", "Idle: gap between kernels"],
  ["idle_sync", "Idle: synchronisation"],
  ["idle_copy", "Idle: waiting for a copy"],
  ["unattributed", "Unattributed"],
  ["profiled_excess", "Profiled excess"],
];

export function drawStep(element, { report, view }) {
  const sums = parts(report, view);
  const whole = [...sums.values()].reduce((sum, value) => sum + value, 0);
  if (!known(view.stepUs) || whole <= 0) {
    return replace(element, h("p", { class: "note" }, "No bare step was timed, so the step is not split. Figures are device time."));
  }
  const shown = KINDS.filter(([kind]) => sums.get(kind));
  const positive = shown.filter(([kind]) => sums.get(kind) > 0);
  const scale = 1000 / positive.reduce((sum, [kind]) => sum + sums.get(kind), 0);
  let x = 0;
  const bars = positive.map(([kind, title]) => {
    const width = sums.get(kind) * scale;
    const bar = s("rect", { x, y: 0, width, height: 22, class: `part ${kind}` }, s("title", {}, `${title}: ${us(sums.get(kind))} µs`));
    x += width;
    return bar;
  });
  replace(element,
    s("svg", { class: "stepbar", viewBox: "0 0 1000 22", preserveAspectRatio: "none", "aria-hidden": "true" }, bars),
    h("dl", { class: "parts" }, shown.map(([kind, title]) => h("div", {},
      h("dt", {}, h("span", { class: `dot ${kind}`, "aria-hidden": "true" }), title),
      h("dd", {}, us(sums.get(kind)), h("span", { class: "unit" }, " µs"), h("span", { class: "share" }, percent(sums.get(kind) / whole)))))),
    foretold(view));
}

// Four bars on one scale: what ran, and three ways to tell it without having run it.
function foretold(view) {
  const rows = predictions(view).filter((row) => known(row.us));
  if (!view.stepBare || rows.length < 2) return null;
  const most = Math.max(...rows.map((row) => row.us));
  return h("figure", { class: "waterfall foretold" }, h("table", {}, h("caption", {}, "The step as measured, as predicted, and as plain sums would have it, µs"),
    h("tbody", {}, rows.map((row, n) => h("tr", { class: n === 0 ? "whole" : null }, h("th", { scope: "row" }, row.title),
      h("td", {}, s("svg", { width: "100%", height: 16, viewBox: "0 0 100 16", preserveAspectRatio: "none", "aria-hidden": "true" },
        s("rect", { x: 0, y: 2, height: 12, width: Math.max((row.us / most) * 100, 0.4), class: n === 0 ? "whole" : "part glue" }))),
      h("td", { class: "number" }, us(row.us), h("span", { class: "range" }, n === 0 ? "" : percentSigned(row.off))))))));
}

export function parts(report, view) {
  const { deployment, kind, module, us: time } = report.raw.partition;
  const sums = new Map();
  kind.forEach((code, at) => {
    if (report.word(deployment[at]) !== view.deployment) return;
    let name_ = report.word(code);
    if (name_ === "busy") name_ = report.children[module[at]]?.length ? "glue" : "modules";
    sums.set(name_, (sums.get(name_) ?? 0) + time[at]);
  });
  return sums;
}

// A path with its numbers taken for any: h.0.mlp and h.1.mlp are of one kind.
export const pattern = (report, i) => report.path(i).replace(/(^|\.)\d+(?=\.|$)/g, "$1*") || report.label(i);

// What the parts alone would have said of the step, and how far off that is.
export function predictions(view) {
  const { predicted_us: ours, isolation_sum_us: alone, kernel_sum_us: kernels } = view.raw;
  const off = (value) => (known(value) && view.stepUs > 0 ? value / view.stepUs - 1 : NaN);
  return [["Bare step, measured", view.stepBare ? view.stepUs : NaN], ["Predicted from its parts", ours], ["Innermost modules alone, added up", alone], ["All kernels, added up", kernels]]
    .map(([title, value], n) => ({ title, us: value ?? NaN, off: n === 0 ? NaN : off(value) }));
}

const MOST = 10;

// Modules that hold no other, alike ones (numbers in the path aside) together.
export function drawWorst(element, { report, view, state }) {
  const groups = new Map();
  const cost = view.numbers("cost_us"), alone = view.numbers("isolated_us"), source = view.texts("isolated_from");
  for (let i = 0; i < report.size; i += 1) {
    if (!view.present[i] || report.children[i].length || !known(cost[i]) || !known(alone[i])) continue;
    if (source[i] === "partial") continue;
    const key = `${pattern(report, i)}\n${report.className(i)}`;
    const group = groups.get(key) ?? { pattern: pattern(report, i), class: report.className(i), members: [], cost: 0, alone: 0 };
    group.members.push(i);
    group.cost += cost[i];
    group.alone += alone[i];
    groups.set(key, group);
  }
  const far = (i) => Math.abs(alone[i] - cost[i]);
  const rows = [...groups.values()].sort((a, b) => Math.abs(b.alone - b.cost) - Math.abs(a.alone - a.cost)).slice(0, MOST);
  if (rows.length === 0) return false;
  for (const row of rows) if (row.members.length === 1) row.pattern = report.path(row.members[0]) || row.pattern;
  for (const row of rows) row.worst = row.members.reduce((most, i) => (far(i) > far(most) ? i : most));
  replace(element, table("Where the isolated figure is furthest off", [
    ["Modules", (row) => [h("button", { type: "button", class: "link", onclick: () => state.set({ selected: row.worst }) }, name(row.pattern)), h("bdi", { class: "class" }, row.class)]],
    ["Count", (row) => count(row.members.length), "number"],
    ["Cost, µs", (row) => us(row.cost), "number"],
    ["Alone, µs", (row) => us(row.alone), "number"],
    ["Off by, µs", (row) => usSigned(row.alone - row.cost), "number"],
    ["Error", (row) => (row.cost > 0 ? percentSigned(row.alone / row.cost - 1) : "–"), "number"],
    ["The one furthest off", (row) => h("span", { class: "sentence" }, view.texts("verdict")[row.worst] ?? "–")],
  ], rows));
  return true;
}
