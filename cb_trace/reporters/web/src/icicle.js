// The module tree as an icicle. Only what shows is drawn; the table below holds the same modules
// for the keyboard and for screen readers.

import { inkOn } from "./colour.js";
import { h, replace, s } from "./dom.js";
import { layout } from "./layout.js";

const ROW = 28;
const SMALLEST = 0.6;
const LABELLED = 30; // px; a narrower box has no room for a name
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
    const width = (this.drawnWidth === undefined ? this.context.roomAtFirst : this.element.clientWidth) || 960;
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
    const drawn = above.map((i, depth) => ({ i, x: 0, w: width, depth, above: true }));
    for (const box of boxes) drawn.push({ ...box, depth: box.depth + shift });
    this.drawBoxes(drawn);
    this.drawTrail(above.concat(root));
    this.drawLegend();
  }

  // Thousands of boxes: as text for the parser, which takes half the time of one call an attribute.
  // Only numbers and colours of ours go into it; names are put in below, as text nodes.
  drawBoxes(boxes) {
    const { matches, report, state } = this.context, chosen = state.get("selected");
    const last = boxes.findIndex((box) => box.i === chosen);
    if (last >= 0) boxes.push(...boxes.splice(last, 1)); // its outline lies over its neighbours
    const painted = boxes.map((box) => this.context.paint(box.i));
    this.svg.innerHTML = boxes.map((box, n) => boxText(box, painted[n], [
      box.above && "above", box.i === chosen && "selected", matches !== null && !matches.has(box.i) && "dim"])).join("");
    const groups = this.svg.children;
    boxes.forEach((box, n) => {
      if (box.w <= LABELLED) return;
      const { fill, hatch, text } = painted[n];
      this.label(groups[n], box, report.label(box.i), text, hatch ? null : inkOn(fill));
    });
    this.svg.prepend(hatches());
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

function boxText({ i, x, w, depth }, { fill, hatch }, classes) {
  const kind = classes.filter(Boolean).join(" ");
  return `<g data-i="${i}"${kind && ` class="${kind}"`}><rect x="${x.toFixed(2)}" y="${depth * ROW}" width="${Math.max(w - (w > 3 ? 1 : 0), SMALLEST).toFixed(2)}"`
    + ` height="${ROW - 1}"${w > 8 ? ' rx="2"' : ""} fill="${hatch ? `url(#hatch-${hatch})` : fill}"/></g>`;
}

function hatches() {
  const hatch = (id, lines) => s("pattern", { id, width: 7, height: 7, patternUnits: "userSpaceOnUse" },
    s("rect", { width: 7, height: 7, class: "hatch-ground" }),
    lines.map((d) => s("path", { d, class: "hatch-line" })));
  const up = "M-1,1 l2,-2 M0,7 l7,-7 M6,8 l2,-2";
  const down = "M-1,6 l2,2 M0,0 l7,7 M6,-1 l2,2";
  return s("defs", {}, hatch("hatch-unmeasured", [up]), hatch("hatch-failed", [up, down]));
}
