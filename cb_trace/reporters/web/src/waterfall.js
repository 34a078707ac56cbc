// A waterfall as a table: a row a bar, from one figure to another.

import { scaleLinear } from "d3-scale";
import { h, s } from "./dom.js";
import { known } from "./format.js";

// bars: { title, from, to, whole, low, high, text, extra, tip }. `cut`: the axis need not start at 0,
// so that small changes of a large whole show.
export function waterfallOf(caption, bars, { cut = false, note = null } = {}) {
  return h("figure", { class: "waterfall" }, h("table", {}, h("caption", {}, caption),
    h("thead", { class: "hidden" }, h("tr", {}, ["Part", "Bar", "µs"].map((t) => h("th", { scope: "col" }, t)))),
    h("tbody", {}, rows(bars, cut))), note && h("p", { class: "note" }, note));
}

function rows(bars, cut) {
  const ends = bars.flatMap((bar) => [bar.whole ? bar.to : bar.from, bar.to, bar.low, bar.high]).filter(known);
  const most = Math.max(...ends, 1e-9), least = Math.min(...ends);
  // Cut where the changes would take less than a third of the room.
  const from = cut && least > 0 && most - least < most / 3 ? Math.max(0, least - (most - least) * 0.35) : Math.min(0, least);
  const scale = scaleLinear([from, most], [0, 100]);
  return bars.map((bar) => {
    const start = bar.whole ? Math.max(from, Math.min(bar.from, bar.to)) : bar.from;
    const x = Math.min(scale(start), scale(bar.to));
    const width = Math.max(Math.abs(scale(bar.to) - scale(start)), 0.4);
    const sort = bar.whole ? "whole" : bar.to >= bar.from ? "more" : "less";
    return h("tr", { class: bar.whole ? "whole" : null },
      h("th", { scope: "row" }, bar.title),
      h("td", {}, s("svg", { width: "100%", height: 16, "aria-hidden": "true", preserveAspectRatio: "none", viewBox: "0 0 100 16" },
        bar.tip && s("title", {}, bar.tip),
        s("rect", { x, width, y: 2, height: 12, class: sort }),
        bar.whole && from > 0 && s("path", { d: "M1.2,1 L0.6,15", class: "torn" }),
        known(bar.low) && known(bar.high) && s("line", { x1: scale(bar.low), x2: scale(bar.high), y1: 8, y2: 8, class: "whisker" }))),
      h("td", { class: "number" }, bar.text, bar.extra && h("span", { class: "range" }, bar.extra)));
  });
}
