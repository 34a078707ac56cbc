// Kernels of the selected module, in the step beside alone; and kernels of several modules.

import { h, name, replace, table } from "./dom.js";
import { count, kernelName, known, percent, us, usSigned } from "./format.js";
import { shareColour, inkOn } from "./colour.js";

const MOST = 60;
const STATUS = { same: "same", changed: "changed", "only here": "only in the step", "only there": "only alone" };

export function drawKernels(element, context) {
  const { report, view, state } = context;
  const i = state.get("selected");
  const both = beside(report, view, i);
  const title = h("p", { class: "lead" }, "Of ", name(report.path(i) || report.label(i)), ", modules below it included, a step.");
  const cut = report.raw.kernels.cut && h("p", { class: "note" }, "This profile has more kernels than the page holds; the smallest are left out. See the view kernel_diff.");
  if (both.length) return replace(element, title, besideTable(report, both), remark(both), cut);
  const own = alone(report, view, i);
  if (own.length === 0) return replace(element, title, h("p", { class: "note" }, "No kernel of it was recorded in this phase."));
  return replace(element, title, ownTable(report, own), h("p", { class: "note" }, "It was not replayed, so these are its kernels in the step."), cut);
}

function beside(report, view, i) {
  const all = report.raw.kernels.both;
  const rows = [];
  all.module.forEach((module, at) => {
    if (module !== i || report.word(all.phase[at]) !== view.phase) return;
    rows.push(Object.fromEntries(Object.keys(all).map((key) => [key, all[key][at]])));
  });
  return rows;
}

function besideTable(report, rows) {
  const kernel = (row) => report.word(row.context_kernel ?? row.isolated_kernel);
  return table("Kernels in the step and alone", [
    ["Kernel", (row) => kernelCell(kernel(row), row.status, report, row)],
    ["Operator", (row) => operator(report.word(row.op))],
    ["Match", (row) => STATUS[report.word(row.status)] ?? report.word(row.status)],
    ["Runs", (row) => count(row.context_kernels), "number"],
    ["In the step, µs", (row) => us(row.context_us), "number"],
    ["Runs alone", (row) => count(row.isolated_kernels), "number"],
    ["Alone, µs", (row) => us(row.isolated_us), "number"],
    ["Difference, µs", (row) => usSigned(row.isolated_us - row.context_us), "number"],
  ], rows.slice(0, MOST));
}

function kernelCell(text, status, report, row) {
  const other = report.word(status) === "changed" && report.word(row.isolated_kernel);
  return [h("bdi", { class: "kernel", title: text }, kernelName(text ?? "–")),
    other && h("bdi", { class: "kernel other", title: other }, `alone: ${kernelName(other)}`)];
}

function remark(rows) {
  const sum = (column) => rows.reduce((total, row) => total + (row[column] ?? 0), 0);
  const rest = rows.length > MOST ? ` The largest ${MOST} of ${rows.length} rows are shown.` : "";
  return h("p", { class: "note" }, `Sum of kernel durations: ${us(sum("context_us"))} µs in the step, ${us(sum("isolated_us"))} µs alone, both under the profiler.${rest}`);
}

// What a module and those below it ran, by kernel.
function alone(report, view, i) {
  const all = report.raw.kernels.own;
  const sums = new Map();
  all.module.forEach((module, at) => {
    const phase = report.word(all.phase[at]);
    if (module === null || (view.phase !== "step" && phase !== view.phase) || !report.within(module, i)) return;
    const key = `${all.kernel[at]} ${all.op[at]}`;
    const row = sums.get(key) ?? { kernel: all.kernel[at], op: all.op[at], kernels: 0, us: 0 };
    row.kernels += all.kernels[at];
    row.us += all.us[at];
    sums.set(key, row);
  });
  return [...sums.values()].sort((a, b) => b.us - a.us);
}

function ownTable(report, rows) {
  return table("Kernels in the step", [
    ["Kernel", (row) => h("bdi", { class: "kernel", title: report.word(row.kernel) }, kernelName(report.word(row.kernel)))],
    ["Operator", (row) => operator(report.word(row.op))],
    ["Runs", (row) => count(row.kernels), "number"],
    ["In the step, µs", (row) => us(row.us), "number"],
  ], rows.slice(0, MOST));
}

// Compiled code names an operator as long as its kernel.
export const operator = (text) => h("bdi", { class: "op", title: text }, text ?? "–");

const MOST_MODULES = 24;

// A matrix: kernels down, modules across, each cell the module's share.
export function drawFused(element, context) {
  const { report, state } = context;
  const { kernel, module, share, us: time, most } = report.raw.fused;
  if (kernel.length === 0) return false;
  const kernels = [...new Set(kernel)];
  const weight = new Map();
  module.forEach((i, at) => weight.set(i, (weight.get(i) ?? 0) + time[at]));
  const heaviest = [...weight].filter(([i]) => i !== null).sort((a, b) => b[1] - a[1]).slice(0, MOST_MODULES);
  const shown = heaviest.map(([i]) => i).sort((a, b) => a - b);
  const cell = new Map(kernel.map((code, at) => [`${code} ${module[at]}`, at]));
  const total = (code) => kernel.reduce((sum, other, at) => sum + (other === code ? time[at] : 0), 0);
  const columns = [
    ["Kernel", (code) => h("bdi", { class: "kernel", title: report.word(code) }, kernelName(report.word(code)))],
    ["µs", (code) => us(total(code)), "number"],
    ...shown.map((i) => [
      h("button", { type: "button", title: report.path(i), onclick: () => state.set({ selected: i }) }, h("bdi", {}, report.path(i) || report.label(i))),
      (code) => matrixCell(cell.get(`${code} ${i}`), share), "number matrix"]),
  ];
  const cuts = [kernels.length === most && `the ${most} longest kernels`, weight.size > shown.length && `the ${shown.length} modules with most of them, of ${weight.size}`].filter(Boolean);
  replace(element, table("Fused kernels", columns, kernels, { class: "plain fused" }),
    h("p", { class: "note" }, "A cell is the module's share of the kernel.", cuts.length ? ` Shown: ${cuts.join(" and ")}.` : ""));
  return true;
}

function matrixCell(at, share) {
  if (at === undefined) return "";
  const fill = shareColour(share[at]);
  const element = h("span", { class: "fill" }, known(share[at]) ? percent(share[at]) : "–");
  element.style.background = fill;
  element.style.color = inkOn(fill);
  return element;
}
