// What a width, a colour or a column can be: only what this profile holds is offered.

import { boundColour, errorColour, shareColour } from "./colour.js";
import { bytes, count, known, large, percent, percentSigned, us } from "./format.js";

// [column, name, how to print it, what it means]
const FIGURES = [
  ["cost_us", "Cost in the step", us, "part of the bare step that the module owns, µs"],
  ["busy_us", "Busy in the step", us, "time with a kernel of the module running, µs"],
  ["isolated_us", "Alone", us, "replayed alone, back to back, bare wall, µs"],
  ["marginal_us", "Marginal", us, "what the step would lose without it, predicted, µs"],
  ["knockout_us", "Knock-out", us, "what the step loses without it, measured, µs"],
  ["flops_extended", "FLOPs", large, "counted work a step"],
  ["peak_context_bytes", "Peak memory", bytes, "most bytes in use during its call"],
  ["parameter_bytes", "Parameters", bytes, "bytes of its parameters"],
];

export function widths(report, view) {
  return FIGURES.filter(([column]) => figures(report, view, column).some((v) => v > 0))
    .map(([column, title, print, meaning]) => ({ column, title, print, meaning }));
}

export function figures(report, view, column) {
  if (column === "parameter_bytes") return report.raw.modules.parameter_bytes;
  return view.numbers(column);
}

export const defaultWidth = (view) => (view.has("cost_us") ? "cost_us" : "busy_us");

export function colours(view) {
  const all = [
    { key: "error", title: "Error of the isolated figure", there: true },
    { key: "mfu_ratio", title: "MFU", there: view.has("mfu_ratio") },
    { key: "bound", title: "Bound", there: view.has("bound") },
  ];
  return all.filter((one) => one.there);
}

// The error as it is printed everywhere: text, and whether it may colour anything.
export function errorText(view, i) {
  const { ratio, noise, partial, skipped } = view.error(i);
  if (skipped && !known(view.numbers("isolated_us")[i])) return { text: "skipped", kind: "failed" };
  if (!known(ratio) || partial) return { text: "–", kind: "unmeasured" };
  if (noise) return { text: "~0", kind: "noise", ratio: 0 };
  return { text: percentSigned(ratio), kind: "measured", ratio };
}

// Fill, and the text to print in the box.
export function paint(view, key, i) {
  if (key === "mfu_ratio") {
    const value = view.numbers("mfu_ratio")[i];
    return known(value)
      ? { fill: shareColour(value), text: percent(value) } : { hatch: "unmeasured", text: "" };
  }
  if (key === "bound") {
    const bound = view.workText("bound", i);
    return bound ? { fill: boundColour(bound), text: bound } : { hatch: "unmeasured", text: "" };
  }
  const error = errorText(view, i);
  if (error.ratio === undefined) return { hatch: error.kind, text: error.text };
  return { fill: errorColour(error.ratio), text: error.text };
}

export function columnsOf(view) {
  const all = [
    ["cost_us", "Cost", us], ["share", "Share", percent], ["isolated_us", "Alone", us],
    ["error", "Error", null], ["marginal_us", "Marginal", us], ["knockout_us", "Knock-out", us],
    ["busy_us", "Busy", us], ["kernels", "Kernels", count], ["calls", "Calls", count],
    ["mfu_ratio", "MFU", percent],
  ];
  return all.filter(([column]) => column === "share" || column === "error" || view.has(column));
}
