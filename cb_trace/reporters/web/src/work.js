// Roofline and memory, where the profile has them.

import { scaleLog } from "d3-scale";
import { h, name, replace, s, table } from "./dom.js";
import { bytes, known, large } from "./format.js";
import { boundColour, bounds } from "./colour.js";
import { swatch } from "./legend.js";

const WIDTH = 760, HEIGHT = 380, LEFT = 64, BOTTOM = 40;

// A dot a module; in the page of two a line leads to it from where the base was.
export function drawRoofline(element, context) {
  const points = context.rooflinePoints();
  if (points.length === 0) return false;
  const ceilings = ceilingsOf(context.report);
  replace(element, chart(context, points, ceilings),
    h("div", { class: "legend" }, bounds().map((bound) => h("span", { class: "key" }, swatch(boundColour(bound)), bound)),
      h("span", { class: "note" }, "Modules that hold no other. Work over bytes that must move, against work over busy time. Size: cost.", points.some((p) => p.from) ? " A line leads from the base to the new one." : "", " Click selects.")),
    ceilings.length ? null : h("p", { class: "note" }, "No ceiling of this device is known."));
  return true;
}

// Where the modules that hold no other lie; `at(column, i)` gives a figure.
export function rooflineAt(report, at, i) {
  const x = at("intensity", i), y = at("flops_extended_per_s", i);
  return report.children[i].length === 0 && x > 0 && y > 0 ? { x, y } : null;
}

function ceilingsOf(report) {
  const { ceilings, dtype } = report.raw.work;
  const usual = report.word(dtype.find((code) => code !== null));
  const matrix = ceilings.filter((c) => c.kind === "matmul" && (c.dtype === usual || !usual));
  const moved = ceilings.filter((c) => ["copy", "triad", "memory"].includes(c.kind));
  const best = (rows, source) => Math.max(...rows.filter((c) => (c.source === "measured") === source).map((c) => c.value));
  return [["measured", true], ["datasheet", false]]
    .map(([title, source]) => ({ title, flops: best(matrix, source), bytes: best(moved, source) }))
    .filter((c) => Number.isFinite(c.flops) && Number.isFinite(c.bytes));
}

function chart({ report, state }, points, ceilings) {
  const knees = ceilings.map((c) => c.flops / c.bytes);
  const ends = points.flatMap((p) => (p.from ? [p, p.from] : [p]));
  const xs = [...ends.map((p) => p.x), ...knees], ys = [...ends.map((p) => p.y), ...ceilings.map((c) => c.flops)];
  const x = scaleLog([Math.min(...xs) / 3, Math.max(...xs) * 4], [LEFT, WIDTH - 12]);
  const y = scaleLog([Math.min(...ys) / 3, Math.max(...ys) * 3], [HEIGHT - BOTTOM, 10]);
  const most = Math.max(...points.map((p) => p.cost || 0), 1e-9);
  const moves = points.filter((p) => p.from).map((p) => s("line", { x1: x(p.from.x), y1: y(p.from.y), x2: x(p.x), y2: y(p.y), class: "move" }));
  const dots = points.map((p) => s("circle", {
    cx: x(p.x), cy: y(p.y), r: 3 + 9 * Math.sqrt((p.cost || 0) / most),
    fill: boundColour(p.bound) ?? "none", class: `point${state.get("selected") === p.i ? " selected" : ""}`,
    onclick: () => state.set({ selected: p.i }),
  }, s("title", {}, `${report.path(p.i)}: ${where(p)}${p.from ? `, base ${where(p.from)}` : ""}`)));
  return s("svg", { class: "roofline", viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "img", "aria-label": "Roofline" },
    axes(x, y), ceilings.map((c) => roof(c, x, y)), moves, dots);
}

const where = ({ x, y }) => `${large(y)}FLOP/s at ${large(x)} FLOP/byte`;

function axes(x, y) {
  const ticksX = x.ticks(8).filter((t) => Number.isInteger(Math.log10(t))), ticksY = y.ticks(8).filter((t) => Number.isInteger(Math.log10(t)));
  return s("g", { class: "axes" },
    ticksX.map((t) => [s("line", { x1: x(t), x2: x(t), y1: 10, y2: HEIGHT - BOTTOM }), s("text", { x: x(t), y: HEIGHT - BOTTOM + 16, "text-anchor": "middle" }, large(t))]),
    ticksY.map((t) => [s("line", { x1: LEFT, x2: WIDTH - 12, y1: y(t), y2: y(t) }), s("text", { x: LEFT - 8, y: y(t) + 4, "text-anchor": "end" }, large(t))]),
    s("text", { x: WIDTH - 12, y: HEIGHT - 6, "text-anchor": "end" }, "FLOP/byte"), s("text", { x: LEFT + 6, y: 20 }, "FLOP/s"));
}

function roof({ title, flops, bytes: rate }, x, y) {
  const [low, high] = x.domain(), knee = flops / rate;
  const start = Math.max(low, y.domain()[0] / rate);
  return s("g", { class: `roof ${title}` },
    s("path", { d: `M${x(start)},${y(start * rate)} L${x(knee)},${y(flops)} L${x(high)},${y(flops)}` }),
    s("text", { x: x(high) - 4, y: y(flops) + (title === "measured" ? 14 : -6), "text-anchor": "end" }, `${title}: ${large(flops)}FLOP/s, ${large(rate)}B/s`));
}

export function drawMemory(element, { report, state }) {
  const { memory } = report.raw;
  if (!memory) return false;
  const keys = [["parameter_bytes", "Parameters"], ["buffer_bytes", "Buffers"], ["peak_context_bytes", "Peak in the step"], ["peak_isolated_bytes", "Peak alone"],
    ["saved_context_bytes", "Saved for backward"], ["output_bytes", "Outputs"]].filter(([key]) => memory[key].some((v) => v > 0));
  const size = (at) => Math.max(memory.peak_context_bytes[at] ?? 0, memory.peak_isolated_bytes[at] ?? 0, memory.output_bytes[at] ?? 0);
  const rows = memory.module.map((i, at) => ({ i, at })).filter(({ at }) => size(at) > 0).sort((a, b) => size(b.at) - size(a.at) || a.i - b.i);
  replace(element, table("Memory by module", [
    ["Module", ({ i }) => h("button", { type: "button", class: "link", onclick: () => state.set({ selected: i }) }, name(report.path(i) || report.label(i)))],
    ["Phase", ({ at }) => report.word(memory.phase[at]) ?? "–"],
    ...keys.map(([key, title]) => [title, ({ at }) => (known(memory[key][at]) ? bytes(memory[key][at]) : "–"), "number"]),
  ], rows.slice(0, 40)), rows.length > 40 && h("p", { class: "note" }, `The largest 40 of ${rows.length} are shown; the view memory_by_module has all.`));
  return true;
}
