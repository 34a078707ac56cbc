// The page of two profiles: head, banner, the step in both, and how each was measured.

import { h, name, replace, s, table } from "./dom.js";
import { known, percent, percentSigned, range, us, usSigned } from "./format.js";
import { facts, leftOut, notes } from "./measured.js";
import { intervalText } from "./diff_metrics.js";
import { KINDS, parts, predictions } from "./step.js";

export function diffHead({ base, new: new_ }) {
  const title = (report) => name(report.run.workload ?? report.raw.profile);
  const line = (side, { run, raw }) => h("p", {}, h("b", {}, side), " ", h("bdi", {}, [raw.profile, run.device_name, run.dtype, run.mode && `recorded ${run.mode}`,
    run.torch_version && `torch ${run.torch_version}`, run.created_at?.slice(0, 16)].filter(Boolean).join(" · ")));
  const same = base.run.workload === new_.run.workload;
  return h("div", { class: "title" },
    h("h1", {}, same ? [title(new_), ": what changed"] : [title(base), " → ", title(new_)]),
    line("Base", base), line("New", new_));
}

const LOUD = {
  work: ["These two did not do the same work.", "Every change below holds this difference as well."],
  hardware: ["These two did not run on the same hardware, or not at the same clock.", "Every change below holds this difference as well."],
};

export function banner(differs) {
  const of = (kind) => differs.filter((one) => one.kind === kind);
  const list = (rows) => rows.map((one, n) => [n > 0 && "; ", h("bdi", {}, one.what), " ", h("bdi", { class: "name" }, one.base), " → ", h("bdi", { class: "name" }, one.new)]);
  const loud = Object.entries(LOUD).filter(([kind]) => of(kind).length).map(([kind, [head, tail]]) =>
    h("p", { class: "loud", role: "note" }, h("b", {}, head), " ", list(of(kind)), ". ", tail));
  const rest = of("other");
  return h("div", { class: "banner" }, loud, rest.length > 0 && h("p", { class: "note" }, "Also not the same: ", list(rest), "."));
}

export function diffKeyFigures(element, { view }) {
  const step = view.step();
  const timed = (side) => view[side].stepBare ? "Bare step" : "Step, profiled";
  const figures = ["base", "new"].filter((side) => known(step[side].value)).map((side) =>
    [`${timed(side)}, ${side}`, us(step[side].value), "µs", range(step[side].low, step[side].high)]);
  if (known(step.delta)) {
    figures.push(["Change", step.noise ? "within noise" : percentSigned(step.ratio), "", `${usSigned(step.delta)} µs${step.bounded ? ` (${intervalText(step)})` : ""}`]);
  }
  replace(element, figures.map(([title, value, unit, note]) => h("div", {},
    h("dt", {}, title), h("dd", {}, h("span", { class: "big" }, value), unit && h("span", { class: "unit" }, ` ${unit}`), h("span", { class: "range" }, note)))));
}

// Two bars on one scale, and the parts as figures.
export function drawDiffStep(element, { pair, view }) {
  const sums = { base: parts(pair.base, view.base), new: parts(pair.new, view.new) };
  const whole = (side) => [...sums[side].values()].reduce((sum, value) => sum + value, 0);
  const longest = Math.max(...["base", "new"].map((side) => [...sums[side].values()].reduce((sum, v) => sum + Math.max(v, 0), 0)));
  if (!known(view.base.stepUs) || !known(view.new.stepUs) || longest <= 0) {
    return replace(element, h("p", { class: "note" }, "The step was not timed in both, so it is not split. Figures are device time."));
  }
  const shown = KINDS.filter(([kind]) => sums.base.get(kind) || sums.new.get(kind));
  const bar = (side) => {
    let x = 0;
    const rects = shown.filter(([kind]) => sums[side].get(kind) > 0).map(([kind, title]) => {
      const width = (sums[side].get(kind) / longest) * 1000;
      const rect = s("rect", { x, y: 0, width, height: 22, class: `part ${kind}` }, s("title", {}, `${title}: ${us(sums[side].get(kind))} µs`));
      x += width;
      return rect;
    });
    return h("div", { class: "twobar" }, h("span", {}, side === "base" ? "Base" : "New"),
      s("svg", { class: "stepbar", viewBox: "0 0 1000 22", preserveAspectRatio: "none", "aria-hidden": "true" }, rects),
      h("span", { class: "number" }, `${us(whole(side))} µs`));
  };
  const at = (side, kind) => sums[side].get(kind) ?? 0;
  const alike = pair.raw.steps_alike;
  return replace(element, bar("base"), bar("new"), table("The step in both", [
    ["Part", ([kind, title]) => [h("span", { class: `dot ${kind}`, "aria-hidden": "true" }), title]],
    ["Base, µs", ([kind]) => us(at("base", kind)), "number"], ["of its step", ([kind]) => percent(at("base", kind) / whole("base")), "number"],
    ["New, µs", ([kind]) => us(at("new", kind)), "number"], ["of its step", ([kind]) => percent(at("new", kind) / whole("new")), "number"],
    alike && ["Change, µs", ([kind]) => usSigned(at("new", kind) - at("base", kind)), "number"],
  ].filter(Boolean), shown), !alike && h("p", { class: "note" }, "Steps of other phases, or of which one was timed under the profiler: no change of one."), foretold(view, alike));
}

function foretold(view, alike) {
  const rows = predictions(view.base).map((one, n) => ({ ...one, new: predictions(view.new)[n] }))
    .filter((one) => known(one.us) || known(one.new.us));
  if (rows.length < 2) return null;
  return h("div", { class: "block" }, h("h3", {}, "The step, as its parts would have it"), table("The step from its parts", [
    ["Figure", (row) => row.title], ["Base, µs", (row) => us(row.us), "number"], ["off by", (row) => percentSigned(row.off), "number"],
    ["New, µs", (row) => us(row.new.us), "number"], ["off by", (row) => percentSigned(row.new.off), "number"],
    alike && ["Change, µs", (row) => usSigned(row.new.us - row.us), "number"],
  ].filter(Boolean), rows));
}

export function drawDiffMeasured(element, { pair }) {
  const sides = [["Base", pair.base], ["New", pair.new]];
  const rows = new Map(sides.map(([side, report]) => [side, new Map(facts(report))]));
  const titles = [...new Set(sides.flatMap(([side]) => [...rows.get(side).keys()]))];
  const cell = (side) => (title) => h("bdi", {}, rows.get(side).get(title)?.join(", ") ?? "–");
  replace(element, table("Both recordings", [["Fact", (title) => title], ["Base", cell("Base")], ["New", cell("New")]], titles),
    h("div", { class: "columns" }, sides.map(([side, report]) => h("div", { class: "block" }, h("h3", {}, `Left out of the ${side.toLowerCase()}`), leftOut(report.raw.measured),
      report.raw.measured.notes.length > 0 && [h("h3", { class: "later" }, "Notes"), notes(report.raw.measured)]))));
}
