// What changed the step, as a waterfall from the base's step to the new one's, by kind of module.

import { h, replace } from "./dom.js";
import { known, us, usSigned } from "./format.js";
import { waterfallOf } from "./waterfall.js";
import { pattern, parts } from "./step.js";

const MOST = 12;
const SMALLEST = 0.005; // µs; what would print as 0

export function drawChanged(element, page) {
  const { pair, view } = page;
  const step = view.step();
  if (!known(step.delta)) return false;
  const rows = byKind(page).filter((row) => Math.abs(row.delta) >= SMALLEST);
  const shown = rows.slice(0, MOST), rest = rows.slice(MOST);
  const bars = [{ title: "Base step", from: 0, to: step.base.value, whole: true, text: us(step.base.value) }];
  let at = step.base.value;
  const add = (title, delta, pick) => {
    if (!known(delta) || Math.abs(delta) < SMALLEST) return;
    bars.push({ title: pick === undefined ? title : h("button", { type: "button", class: "link", onclick: () => page.state.set({ selected: pick }) }, h("bdi", { class: "name" }, title)),
      from: at, to: at + delta, text: usSigned(delta) });
    at += delta;
  };
  for (const row of shown) add(row.members > 1 ? `${row.title} (${row.members})` : row.title, row.delta, row.largest);
  add(`${rest.length} more kinds of modules`, rest.reduce((sum, row) => sum + row.delta, 0));
  const sums = { base: parts(pair.base, view.base), new: parts(pair.new, view.new) };
  for (const [kind, title] of [["unattributed", "unattributed"], ["profiled_excess", "profiled excess"]]) {
    add(title, (sums.new.get(kind) ?? 0) - (sums.base.get(kind) ?? 0));
  }
  add("on no module of the tree", step.new.value - at);
  if (bars.length === 1) return replace(element, h("p", { class: "note" }, "No part of the step changed."));
  bars.push({ title: "New step", from: 0, to: step.new.value, whole: true, text: us(step.new.value) });
  replace(element, waterfallOf("From the base step to the new one, µs; each module by its own part, without what it holds", bars, { cut: true }),
    h("p", { class: "note" }, "Modules whose paths differ in numbers only stand together. A part is busy time and the idle time that the module owns.",
      step.noise ? " The step as a whole changed within noise." : ""));
  return undefined;
}

// Own parts of the step by kind of module, the largest change first.
function byKind({ report, view }) {
  const cost = { base: view.numbers("base", "cost_us"), new: view.numbers("new", "cost_us") };
  const own = (side, i) => (cost[side][i] || 0) - report.children[i].reduce((sum, child) => sum + (cost[side][child] || 0), 0);
  const groups = new Map();
  for (let i = 0; i < report.size; i += 1) {
    if (!view.present[i]) continue;
    const delta = own("new", i) - own("base", i);
    const key = pattern(report, i);
    const group = groups.get(key) ?? { title: key, members: 0, delta: 0, largest: i, most: 0 };
    group.members += 1;
    group.delta += delta;
    if (Math.abs(delta) > group.most) Object.assign(group, { most: Math.abs(delta), largest: i });
    groups.set(key, group);
  }
  for (const group of groups.values()) if (group.members === 1) group.title = report.path(group.largest) || report.label(group.largest);
  return [...groups.values()].sort((a, b) => Math.abs(b.delta) - Math.abs(a.delta));
}
