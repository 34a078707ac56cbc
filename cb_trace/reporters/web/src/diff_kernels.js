// Kernels of the selected module that changed, matched by name; and memory in both.

import { h, name, replace, table } from "./dom.js";
import { operator } from "./kernels.js";
import { bytes, count, kernelName, known, us, usSigned } from "./format.js";

const MOST = 60;
const UNCHANGED = 0.02; // of its time, with as many runs: left out

export function drawDiffKernels(element, { report, pair, view, state }) {
  const i = state.get("selected");
  const rows = matched(pair, view, i);
  const changed = rows.filter((row) => row.base.runs !== row.new.runs || Math.abs(row.delta) > UNCHANGED * Math.max(row.base.us, row.new.us));
  const still = rows.filter((row) => !changed.includes(row));
  const title = h("p", { class: "lead" }, "Of ", name(report.path(i) || report.label(i)), ", modules below it included, a step.");
  if (rows.length === 0) return replace(element, title, h("p", { class: "note" }, "No kernel of it was recorded in this phase."));
  const sum = (list, side) => list.reduce((total, row) => total + row[side].us, 0);
  return replace(element, title,
    changed.length > 0 && changedTable(changed.slice(0, MOST)),
    h("p", { class: "note" }, `Sum of kernel durations: ${us(sum(rows, "base"))} µs in the base, ${us(sum(rows, "new"))} µs in the new one, both under the profiler; mean over the recorded steps, no interval.`,
      still.length > 0 && ` Left out: ${count(still.length)} kernels with as many runs and less than 2 % between them (${us(sum(still, "base"))} → ${us(sum(still, "new"))} µs).`,
      changed.length > MOST && ` The ${MOST} largest changes of ${changed.length} are shown.`,
      (pair.base.raw.kernels.cut || pair.new.raw.kernels.cut) && " A profile has more kernels than the page holds; its smallest are left out."));
}

// Kernels by module, name and operator: first of each module, then summed over the module's tree.
function matched(pair, view, selected) {
  const found = new Map();
  for (const side of ["base", "new"]) {
    const report = pair[side], at = pair.at[side][selected];
    if (at < 0) continue;
    const { module, phase, kernel, op, kernels, us: time } = report.raw.kernels.own;
    module.forEach((i, row) => {
      if (i === null || !report.within(i, at)) return;
      if (view.phase !== "step" && report.word(phase[row]) !== view.phase) return;
      const key = `${report.word(kernel[row])}\n${report.word(op[row])}`;
      const one = found.get(key) ?? { kernel: report.word(kernel[row]), op: report.word(op[row]),
        base: { runs: 0, us: 0, modules: 0 }, new: { runs: 0, us: 0, modules: 0 } };
      one[side].runs += kernels[row];
      one[side].us += time[row];
      one[side].modules += 1;
      found.set(key, one);
    });
  }
  for (const row of found.values()) {
    row.delta = row.new.us - row.base.us;
    for (const side of ["base", "new"]) row[side].runs = Math.round(row[side].runs * 1e3) / 1e3;
  }
  return [...found.values()].sort((a, b) => Math.abs(b.delta) - Math.abs(a.delta));
}

function status({ base, new: new_ }) {
  if (base.runs === 0) return "only in the new";
  if (new_.runs === 0) return "only in the base";
  return base.runs === new_.runs ? "as often" : new_.runs > base.runs ? "more often" : "less often";
}

function changedTable(rows) {
  return table("Kernels that changed", [
    ["Kernel", (row) => h("bdi", { class: "kernel", title: row.kernel }, kernelName(row.kernel ?? "–"))],
    ["Operator", (row) => operator(row.op)],
    ["Runs", status],
    ["Runs, base", (row) => count(row.base.runs), "number"], ["new", (row) => count(row.new.runs), "number"],
    ["Base, µs", (row) => us(row.base.us), "number"], ["New, µs", (row) => us(row.new.us), "number"],
    ["Change, µs", (row) => usSigned(row.delta), "number"],
  ], rows);
}

const MEMORY = [["parameter_bytes", "Parameters"], ["peak_context_bytes", "Peak in the step"], ["saved_context_bytes", "Saved for backward"], ["output_bytes", "Outputs"]];

export function drawDiffMemory(element, { report, view, state }) {
  const keys = MEMORY.filter(([key]) => view.has(key));
  if (!keys.some(([key]) => key === "peak_context_bytes")) return false;
  const size = (i) => Math.max(...keys.map(([key]) => Math.abs(view.change(key, i).delta) || 0));
  const rows = Array.from({ length: report.size }, (_, i) => i).filter((i) => size(i) > 0).sort((a, b) => size(b) - size(a));
  if (rows.length === 0) return replace(element, h("p", { class: "note" }, "No module holds another number of bytes than before."));
  const cell = (key) => (i) => {
    const { base, new: new_, delta } = view.change(key, i);
    return delta === 0 || (!known(base.value) && !known(new_.value)) ? h("span", { class: "soft" }, bytes(new_.value)) : `${bytes(base.value)} → ${bytes(new_.value)}`;
  };
  return replace(element, table("Memory that changed", [
    ["Module", (i) => h("button", { type: "button", class: "link", onclick: () => state.set({ selected: i }) }, name(report.path(i) || report.label(i)))],
    ...keys.map(([key, title]) => [title, cell(key), "number"]),
  ], rows.slice(0, 40)), rows.length > 40 && h("p", { class: "note" }, `The largest 40 changes of ${rows.length} are shown.`));
}
