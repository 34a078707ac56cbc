// What a width, a colour or a column can be: only what this profile holds is offered.

import { boundColour, errorColour, shareColour } from "./colour.js";
import { h } from "./dom.js";
import { bytes, count, known, large, percent, percentSigned, us } from "./format.js";
import { hatchSwatch, swatch } from "./legend.js";

// [column, name, how to print it, what it means]
export const FIGURES = [
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
    .map(([key, title, print, meaning]) => ({ key, title, print, meaning }));
}

export function figures(report, view, column) {
  if (column === "parameter_bytes") return report.raw.modules.parameter_bytes;
  return view.numbers(column);
}

export const defaultWidth = (view) => (view.has("cost_us") ? "cost_us" : "busy_us");

export function colours(view) {
  const all = [
    { key: "error", title: "Error of the isolated figure", there: view.has("error_ratio") },
    { key: "share", title: "Share of the step", there: view.has("cost_us") && view.stepUs > 0 },
    { key: "mfu_ratio", title: "MFU", there: view.has("mfu_ratio") },
    { key: "bound", title: "Bound", there: view.has("bound") },
  ];
  const there = all.filter((one) => one.there);
  return there.length ? there : [all[0]];
}

// The error as it is printed everywhere: text, and whether it may colour anything.
export function errorText(view, i) {
  const { ratio, noise, partial, skipped } = view.error(i);
  if (skipped && !known(view.numbers("isolated_us")[i])) return { text: "skipped", kind: "failed" };
  if (!known(ratio) || partial) return { text: "–", kind: "unmeasured" };
  if (noise) return { text: "~0", kind: "noise", ratio: 0 };
  return { get text() { return percentSigned(ratio); }, kind: "measured", ratio }; // few are read
}

// Fill, and the text to print in the box.
export function paint(view, key, i) {
  if (key === "mfu_ratio") {
    const value = view.numbers("mfu_ratio")[i];
    return known(value)
      ? { fill: shareColour(value), text: percent(value) } : { hatch: "unmeasured", text: "" };
  }
  if (key === "share") {
    const share = view.numbers("cost_us")[i] / view.stepUs;
    return known(share) ? { fill: shareColour(share), text: percent(share) } : { hatch: "unmeasured", text: "" };
  }
  if (key === "bound") {
    const bound = view.workText("bound", i);
    return bound ? { fill: boundColour(bound), text: bound } : { hatch: "unmeasured", text: "" };
  }
  const error = errorText(view, i);
  if (error.ratio === undefined) return { hatch: error.kind, text: error.text };
  return { fill: errorColour(error.ratio), get text() { return error.text; } };
}

// Of the table: how a figure sorts, and what its cell shows.
export function columnsOf(view) {
  const figure = (key, title, print) => ({ key, title, unit: print === us ? " µs" : "", there: view.has(key),
    value: (i) => view.numbers(key)[i], cell: (i) => print(view.numbers(key)[i]) });
  const share = (i) => view.numbers("cost_us")[i] / view.stepUs;
  return [
    figure("cost_us", "Cost", us),
    { key: "share", title: "Share", there: view.has("cost_us"), value: share, cell: (i) => [shareBar(share(i)), h("span", {}, percent(share(i)))] },
    figure("isolated_us", "Alone", us),
    { key: "error", title: "Error", there: view.has("error_ratio") || view.texts("skipped").some(Boolean), value: (i) => Math.abs(view.numbers("error_ratio")[i]), cell: (i) => errorCell(view, i) },
    figure("marginal_us", "Marginal", us), figure("knockout_us", "Knock-out", us), figure("busy_us", "Busy", us),
    figure("kernels", "Kernels", count), figure("calls", "Calls", count), figure("mfu_ratio", "MFU", percent),
  ].filter((one) => one.there);
}

function errorCell(view, i) {
  const { fill, hatch, text } = paint(view, "error", i);
  return [text, hatch ? hatchSwatch(hatch) : swatch(fill)];
}

export function shareBar(share) {
  const bar = h("span", { class: "bar", "aria-hidden": "true" });
  bar.style.width = `${Math.min(Math.max(share || 0, 0), 1) * 100}%`;
  return bar;
}
