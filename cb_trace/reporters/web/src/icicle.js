// The module tree as an icicle. Only what shows is drawn; the table below holds the same modules
// for the keyboard and for screen readers.

import { inkOn } from "./colour.js";
import { h, replace, s } from "./dom.js";
import { layout } from "./layout.js";

const ROW = 28;
const SMALLEST = 0.6;
const LETTER = 6.6; // px, about; a label that does not fit is cut

export class Icicle {
  constructor(context) {
    this.context = context;
    this.svg = s("svg", { class: "icicle", "aria-hidden": "true", focusable: "false" });
    this.tip = h("div", { class: "tip", "aria-hidden": "true" });
    this.legend = h("div", { class: "legend" });
    this.trail = h("nav", { class: "trail", "aria-label": "Zoom" });
    this.element = h("div", { class: "icicle-frame" }, this.trail, this.svg, this.legend, this.tip);
    this.svg.addEventListener("click", (event) => this.click(event));
    this.svg.addEventListener("dblclick", (event) => this.zoom(event));
    this.svg.addEventListener("pointermove", (event) => this.hover(event));
    this.svg.addEventListener("pointerleave", () => this.tip.classList.remove("shown"));
    new ResizeObserver(() => this.resized()).observe(this.element);
  }

  draw() {
    const { report, state } = this.context;
    const width = this.element.clientWidth || 960;
    this.drawnWidth = width;
    const root = state.get("root");
    const above = report.lineage(root).slice(0, -1);
    const boxes = layout(report, this.context.widthFigures(), root, width, SMALLEST);
    const shift = above.length;
    const deepest = boxes.reduce((most, box) => Math.max(most, box.depth), 0) + shift;
    const height = (deepest + 1) * ROW;
    this.svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
    this.svg.setAttribute("width", width);
    this.svg.setAttribute("height", height);
    const drawn = above.map((i, depth) => this.box({ i, x: 0, w: width, depth }, "above"));
    for (const box of boxes) drawn.push(this.box({ ...box, depth: box.depth + shift }, ""));
    replace(this.svg, hatches(), drawn);
    this.mark();
    this.drawTrail(above.concat(root));
    this.drawLegend();
  }

  box({ i, x, w, depth }, kind) {
    const { report } = this.context;
    const { fill, hatch, text } = this.context.paint(i);
    const gap = w > 3 ? 1 : 0;
    const group = s("g", { "data-i": i, class: kind || null });
    group.append(s("rect", {
      x, y: depth * ROW, width: Math.max(w - gap, SMALLEST), height: ROW - 1, rx: w > 8 ? 2 : 0,
      fill: hatch ? `url(#hatch-${hatch})` : fill,
    }));
    if (w > 30) this.label(group, { x, w, depth }, report.label(i), text, hatch ? null : inkOn(fill));
    return group;
  }

  label(group, { x, w, depth }, name, text, ink) {
    const room = Math.floor((w - 12) / LETTER);
    const y = depth * ROW + ROW / 2 + 4;
    const both = name.length + text.length + 2 <= room;
    const shown = name.length <= room ? name : `${name.slice(0, Math.max(room - 1, 1))}…`;
    group.append(s("text", { x: x + 6, y, fill: ink }, shown));
    if (both && text) {
      group.append(s("text", { x: x + w - 7, y, fill: ink, class: "figure" }, text));
    }
  }

  // Selection and search change classes only.
  mark() {
    const { state, matches } = this.context;
    const selected = String(state.get("selected"));
    for (const group of this.svg.querySelectorAll("g[data-i]")) {
      group.classList.toggle("selected", group.dataset.i === selected);
      group.classList.toggle("dim", matches !== null && !matches.has(Number(group.dataset.i)));
    }
    const last = this.svg.querySelector("g.selected");
    if (last) this.svg.append(last); // its outline lies over its neighbours
  }

  drawTrail(line) {
    const { report, state } = this.context;
    const links = line.map((i, place) => place === line.length - 1
      ? h("bdi", { "aria-current": "true" }, report.label(i))
      : h("button", { type: "button", onclick: () => state.set({ root: i, selected: i }) },
        h("bdi", {}, report.label(i))));
    this.trail.hidden = line.length < 2;
    replace(this.trail, links);
  }

  drawLegend() {
    replace(this.legend, this.context.legend(),
      h("span", { class: "note" }, this.context.widthMeaning(), "Click selects, click again zooms."));
  }

  at(event) {
    const group = event.target.closest("g[data-i]");
    return group ? Number(group.dataset.i) : null;
  }

  click(event) {
    const i = this.at(event);
    if (i === null) return;
    const { state } = this.context;
    if (state.get("selected") === i || event.target.closest("g.above")) state.set({ root: i, selected: i });
    else state.set({ selected: i });
  }

  zoom(event) {
    const i = this.at(event);
    if (i !== null) this.context.state.set({ root: i, selected: i });
  }

  hover(event) {
    const i = this.at(event);
    this.tip.classList.toggle("shown", i !== null);
    if (i === null) return;
    if (this.tipped !== i) {
      this.tipped = i;
      replace(this.tip, this.context.summary(i));
    }
    const frame = this.element.getBoundingClientRect();
    const x = Math.min(event.clientX - frame.left + 14, frame.width - this.tip.offsetWidth);
    this.tip.style.transform = `translate(${Math.max(x, 0)}px, ${event.clientY - frame.top + 18}px)`;
  }

  resized() {
    if (Math.abs(this.element.clientWidth - (this.drawnWidth ?? 0)) > 1) this.draw();
  }
}

function hatches() {
  const hatch = (id, lines) => s("pattern", { id, width: 7, height: 7, patternUnits: "userSpaceOnUse" },
    s("rect", { width: 7, height: 7, class: "hatch-ground" }),
    lines.map((d) => s("path", { d, class: "hatch-line" })));
  const up = "M-1,1 l2,-2 M0,7 l7,-7 M6,8 l2,-2";
  const down = "M-1,6 l2,2 M0,0 l7,7 M6,-1 l2,2";
  return s("defs", {}, hatch("hatch-unmeasured", [up]), hatch("hatch-failed", [up, down]));
}
