// The selected module in both profiles: verdicts, figures, and its change taken apart.

import { command, TERM_NAMES } from "./detail.js";
import { changeText, figureChoices, intervalText } from "./diff_metrics.js";
import { h, name, replace, table } from "./dom.js";
import { known, range, us, usSigned } from "./format.js";
import { waterfallOf } from "./waterfall.js";

const PRESENCE = { added: "Only in the new one: the base ran no module of this path.",
  removed: "Only in the base: the new one ran no module of this path." };
const MOST = 8;
const SMALLEST = 0.005; // µs; what would print as 0

export function drawDiffDetail(element, page) {
  const { report, view, pair, state } = page;
  const i = state.get("selected");
  const presence = pair.presence(view, i);
  const was = pair.at.base[i] >= 0 ? pair.base.className(pair.at.base[i]) : null;
  const renamed = presence === "both" && was !== report.className(i);
  replace(element,
    h("h3", {}, name(report.path(i) || report.label(i)), h("bdi", { class: "class" }, report.path(i) ? report.className(i) : "root"), renamed && [" (was ", h("bdi", {}, was), ")"]),
    h("p", { class: "verdict" }, presence === "both" ? sentence(page, i) : PRESENCE[presence]),
    ["base", "new"].map((side) => verdictOf(page, side, i)),
    figuresTable(page, i), byChild(page, i), byTerm(page, i), further(page, i));
}

function sentence(page, i) {
  const { base, new: new_, delta, bounded, noise, ...rest } = page.view.change("cost_us", i);
  if (!known(delta)) return "Its part of the step is not known in both.";
  const from = `${us(base.value)} → ${us(new_.value)} µs of the step`;
  if (delta === 0) return `${from}: no change.`;
  const interval = bounded ? `, between ${intervalText({ bounded, ...rest })}` : ", interval not known";
  return noise ? `${from}: a change of ${usSigned(delta)} µs is within noise (${intervalText({ bounded, ...rest })}).`
    : `${from}: ${usSigned(delta)} µs, ${changeText(page, i, "cost_us").text}${interval}.`;
}

function verdictOf({ view }, side, i) {
  const text = view.text(side, "verdict", i);
  return text && h("p", { class: "note side" }, h("b", {}, side === "base" ? "Base: " : "New: "), text);
}

function figuresTable(page, i) {
  const { view } = page;
  const rows = figureChoices(view).concat(EXTRA.filter(([key]) => view.has(key)).map(([key, title]) => ({ key, title, print: us, signed: usSigned })))
    .map((one) => ({ ...one, change: view.change(one.key, i) }))
    .filter(({ change }) => known(change.base.value) || known(change.new.value));
  const cell = (side) => ({ print, change }) => [print(change[side].value), h("span", { class: "range under" }, range(change[side].low, change[side].high))];
  return h("div", { class: "sides" }, table("Figures in both", [
    ["µs unless said", ({ title }) => title], ["Base", cell("base"), "number"], ["New", cell("new"), "number"],
    ["Change", ({ signed, key, change }) => [change.delta === 0 ? "0" : signed(change.delta), change.delta !== 0 && h("span", { class: "range under" }, changeText(page, i, key).text)], "number"],
  ], rows));
}

const EXTRA = [["isolated_gpu_us", "Alone, device time"], ["isolated_cold_us", "Alone, cold cache"], ["exposed_us", "Busy, nothing else running"]];

// Its cost from base to new, by the modules below it. Its own part is what they leave.
function byChild({ report, view, state }, i) {
  const cost = view.change("cost_us", i);
  const inner = report.children[i].filter((child) => view.present[child]);
  if (!known(cost.delta) || inner.length === 0) return null;
  const rows = inner.map((child) => ({ child, ...view.change("cost_us", child) })).sort((a, b) => Math.abs(b.delta) - Math.abs(a.delta));
  const bars = [{ title: "Cost, base", from: 0, to: cost.base.value, whole: true, text: us(cost.base.value) }];
  let at = cost.base.value;
  const add = (title, delta, change) => {
    if (!known(delta) || Math.abs(delta) < SMALLEST) return;
    bars.push({ title, from: at, to: at + delta, low: change?.bounded ? at + change.low : NaN, high: change?.bounded ? at + change.high : NaN, text: usSigned(delta), extra: change?.noise && "noise" });
    at += delta;
  };
  for (const row of rows.slice(0, MOST)) {
    add(h("button", { type: "button", class: "link", onclick: () => state.set({ selected: row.child }) }, h("bdi", { class: "name" }, report.label(row.child))), row.delta, row);
  }
  add(`${rows.length - MOST} more`, rows.slice(MOST).reduce((sum, row) => sum + row.delta, 0));
  add("its own work and idle", cost.new.value - at);
  if (bars.length === 1) return null;
  bars.push({ title: "Cost, new", from: 0, to: cost.new.value, whole: true, text: us(cost.new.value) });
  return waterfallOf("Its change by what it holds, µs", bars, { cut: true });
}

// cost = alone − the sum of the terms, in each; so the changes of these add up to that of the cost.
// A term that one side did not measure stands in its cache term; the three are then taken together.
const TOGETHER = ["cache", "contention", "residual"];

function byTerm({ report, view }, i) {
  const cost = view.change("cost_us", i), alone = view.change("isolated_us", i);
  if (!known(cost.delta) || !known(alone.delta)) return null;
  const has = (side, kind) => known(view.numbers(side, `${kind}_us`)[i]);
  if (!["base", "new"].every((side) => report.terms.some((kind) => has(side, kind)))) return null;
  const mixed = TOGETHER.some((kind) => has("base", kind) !== has("new", kind));
  const value = (kind) => view.change(`${kind}_us`, i).delta;
  const sum = (kinds) => kinds.reduce((total, kind) =>
    total + ((view.numbers("new", `${kind}_us`)[i] || 0) - (view.numbers("base", `${kind}_us`)[i] || 0)), 0);
  const terms = report.terms.filter((kind) => !(mixed && TOGETHER.includes(kind))).map((kind) => [TERM_NAMES[kind], value(kind)]);
  if (mixed) terms.push([TOGETHER.map((kind) => TERM_NAMES[kind]).join(", "), sum(TOGETHER)]);
  const bars = [{ title: "Cost, base", from: 0, to: cost.base.value, whole: true, text: us(cost.base.value) }];
  let at = cost.base.value;
  for (const [title, delta] of [["alone", alone.delta], ...terms.map(([title, delta]) => [`less ${title}`, -delta])]) {
    if (!known(delta) || Math.abs(delta) < SMALLEST) continue;
    bars.push({ title, from: at, to: at + delta, text: usSigned(delta) });
    at += delta;
  }
  if (bars.length === 1) return null;
  bars.push({ title: "Cost, new", from: 0, to: cost.new.value, whole: true, text: us(cost.new.value) });
  return waterfallOf("Its change by term, µs: cost is the figure alone less the terms of its error", bars, {
    cut: true, note: mixed && "One of the two has no sequence run: its cache state holds contention and residual as well." });
}

function further(page, i) {
  const { report, pair } = page;
  if (!report.exact(i)) return null;
  const quoted = (text) => `'${text.replaceAll("'", "'\\''")}'`;
  const links = ["base", "new"].map((side) => [side, page.perfetto(side, i), pair[side].raw.profile]).filter(([, link]) => link);
  return h("div", { class: "further" }, links.map(([side, link, profile]) => [
    h("p", {}, h("a", { href: link, target: "_blank", rel: "noopener noreferrer" }, `Open the ${side === "base" ? "base" : "new one"} in Perfetto`), h("span", { class: "note" }, " once this serves the trace:")),
    command(`cb-trace perfetto ${quoted(profile)} -m ${quoted(report.path(i) || "<root>")} --open`, `command for Perfetto, ${side}`)]));
}
