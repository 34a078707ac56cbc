// What a change is of, its colour, and its columns of the table.

import { changeColour, shareChangeColour } from "./colour.js";
import { h } from "./dom.js";
import { bytes, count, known, large, percentSigned, us, usSigned } from "./format.js";
import { hatchSwatch, swatch } from "./legend.js";
import { FIGURES } from "./metrics.js";

const signedBy = (print) => (value) => (known(value) ? (value > 0 ? "+" : value < 0 ? "−" : "") + print(Math.abs(value)) : "–");
const PRINTS = new Map([[us, { unit: " µs", signed: usSigned }], [large, { unit: "", signed: signedBy(large) }],
  [bytes, { unit: "", signed: signedBy(bytes) }]]);

export function figureChoices(view) {
  const found = FIGURES.filter(([key]) => view.has(key));
  const shown = found.length ? found : FIGURES.filter(([key]) => key === "busy_us");
  return shown.map(([key, title, print, meaning]) => ({ key, title, print, meaning, ...PRINTS.get(print) }));
}

// The change in words: percent where there is a base, `within noise` where the intervals meet.
export function changeText(page, i, key = page.figure().key) {
  const { pair, view } = page;
  const presence = pair.presence(view, i);
  if (presence !== "both") return { text: presence, kind: presence };
  const change = view.change(key, i);
  if (!known(change.delta)) return { text: "–", kind: "unmeasured" };
  if (change.delta === 0) return { text: "0", kind: "noise" };
  if (change.noise) return { text: "within noise", kind: "noise" };
  if (!known(change.ratio)) return { text: "from 0", kind: "measured" };
  return { get text() { return percentSigned(change.ratio); }, kind: "measured" };
}

export function paintChange(page, i) {
  const { view, state } = page;
  const change = changeText(page, i), { kind } = change;
  if (kind === "unmeasured") return { hatch: "unmeasured", text: "" };
  if (kind === "noise") return { fill: changeColour(0), text: "~0" };
  const { delta, ratio } = view.change(page.figure().key, i);
  const fill = state.get("colour") === "share" ? shareChangeColour(delta / view.base.stepUs)
    : changeColour(kind === "removed" ? -1 : known(ratio) ? ratio : 1);
  return { fill, get text() { return change.text; } };
}

export function changeColumns(page) {
  const { view, pair } = page, { key, print, unit, signed } = page.figure();
  const at = (i) => view.change(key, i);
  const there = (side, i) => pair.presence(view, i) !== (side === "base" ? "added" : "removed");
  const side = (which) => ({ key: which, title: which === "base" ? "Base" : "New", unit, value: (i) => at(i)[which].value,
    cell: (i) => (there(which, i) ? print(at(i)[which].value) : "–") });
  return [
    side("base"), side("new"),
    { key: "delta", title: "Change", unit, value: (i) => Math.abs(at(i).delta), cell: (i) => h("span", { class: changeText(page, i).kind === "noise" ? "soft" : null }, signed(at(i).delta)) },
    { key: "ratio", title: "Change, %", value: (i) => Math.abs(at(i).ratio), cell: (i) => ratioCell(page, i) },
    { key: "interval", title: "Interval", unit, value: (i) => at(i).high - at(i).low,
      cell: (i) => h("span", { class: "soft" }, intervalText(at(i), signed)) },
    { key: "kernels", title: "Kernels", value: (i) => Math.abs(view.change("kernels", i).delta), cell: (i) => kernels(view.change("kernels", i)) },
  ].filter((one) => one.key !== "interval" || rows(page).some((i) => at(i).bounded));
}

const rows = ({ report, view }) => Array.from({ length: report.size }, (_, i) => i).filter((i) => view.present[i]);

export const intervalText = ({ bounded, low, high }, signed = usSigned) =>
  (bounded ? `${signed(low)} to ${signed(high)}` : "–");

function ratioCell(page, i) {
  const { fill, hatch } = paintChange(page, i);
  const { text, kind } = changeText(page, i);
  return [h("span", { class: kind === "noise" ? "soft" : null }, text), hatch ? hatchSwatch(hatch) : swatch(fill)];
}

function kernels({ base, new: new_, delta }) {
  if (!known(delta)) return count(known(new_.value) ? new_.value : base.value);
  return delta === 0 ? count(new_.value) : `${count(base.value)} → ${count(new_.value)}`;
}
