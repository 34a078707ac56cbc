// What the colours of an icicle say.

import { boundColour, bounds, changeColour, changeTicks, errorColour, errorTicks, shareChangeColour, shareChangeTicks, shareColour, tickPlace } from "./colour.js";
import { h, s } from "./dom.js";
import { percent, percentSigned } from "./format.js";

export function errorLegend(key) {
  if (key === "bound") {
    return bounds().map((bound) => h("span", { class: "key" }, swatch(boundColour(bound)), bound));
  }
  const scale = key === "error"
    ? { colour: (place) => errorColour(2 ** ((place * 2 - 1) * 3) - 1),
      ticks: errorTicks.map((r) => [tickPlace(r), r === 0 ? "0" : percentSigned(r)]),
      ends: ["alone takes less", "alone takes more"] }
    : { colour: shareColour, ticks: [0, 0.5, 1].map((r) => [r, percent(r)]), ends: ["", ""] };
  return [...ramped(scale),
    h("span", { class: "key" }, hatchSwatch("unmeasured"), "not measured"),
    key === "error" && h("span", { class: "key" }, hatchSwatch("failed"), "skipped")];
}

export function changeLegend(key) {
  const [colour, ticks] = key === "share" ? [shareChangeColour, shareChangeTicks] : [changeColour, changeTicks];
  const scale = { colour: colour.at, ticks: ticks.map(([place, r]) => [place, r === 0 ? "~0" : percentSigned(r)]),
    ends: ["new takes less", "new takes more"] };
  return [...ramped(scale),
    h("span", { class: "key" }, hatchSwatch("unmeasured"), "not measured in both")];
}

const ramped = (scale) => [
  h("span", { class: "end" }, scale.ends[0]), ramp(scale), h("span", { class: "end" }, scale.ends[1])];

function ramp({ colour, ticks }) {
  const steps = 48, width = 264;
  const parts = Array.from({ length: steps }, (_, n) => s("rect", {
    x: (n * width) / steps, width: width / steps + 0.5, height: 9, fill: colour((n + 0.5) / steps) }));
  const marks = ticks.map(([place, text]) => s("text", {
    x: place * width, y: 22, "text-anchor": place < 0.02 ? "start" : place > 0.98 ? "end" : "middle" }, text));
  return s("svg", { class: "ramp", width, height: 25, viewBox: `0 0 ${width} 25`, "aria-hidden": "true" }, parts, marks);
}

export function swatch(colour) {
  return s("svg", { class: "swatch", width: 11, height: 11, "aria-hidden": "true" },
    s("rect", { width: 11, height: 11, rx: 2, fill: colour }));
}

export function hatchSwatch(kind) {
  return s("svg", { class: "swatch", width: 11, height: 11, "aria-hidden": "true" },
    s("rect", { width: 11, height: 11, rx: 2, fill: `url(#hatch-${kind})` }));
}
