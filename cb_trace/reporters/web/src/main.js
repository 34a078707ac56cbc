// The report page: reads the document inside it, draws, and redraws what a change concerns.

import { useTheme } from "./colour.js";
import { Report } from "./data.js";
import { drawDetail } from "./detail.js";
import { h, name, replace } from "./dom.js";
import { count, percent, us } from "./format.js";
import { Icicle } from "./icicle.js";
import { drawFused, drawKernels } from "./kernels.js";
import { liveSection } from "./live.js";
import { drawMeasured } from "./measured.js";
import { colours, defaultWidth, errorText, figures, widths } from "./metrics.js";
import { choice, head, help, keyFigures, picker, section } from "./page.js";
import { State } from "./state.js";
import { drawStep, drawWorst } from "./step.js";
import { Tree } from "./tree.js";
import { drawMemory, drawRoofline } from "./work.js";

const began = performance.now();

class Page {
  constructor(raw) {
    useTheme(this.theme());
    this.shown = [];
    this.report = new Report(raw);
    const first = this.report.view(this.report.deployments[0], this.report.phases[0]);
    this.state = new State(this.report, {
      deployment: this.report.deployments[0], phase: this.report.phases[0], width: defaultWidth(first),
      colour: "error", selected: this.report.roots[0], root: this.report.roots[0], search: "", sort: "", order: "desc" });
    this.readView();
    this.search();
    this.icicle = new Icicle(this);
    this.tree = new Tree(this);
    this.build();
    this.watch();
    this.drawFirst();
    document.documentElement.dataset.drawnMs = (performance.now() - began).toFixed(1);
    setTimeout(() => this.drawRest()); // after the first paint
  }

  readView() {
    this.view = this.report.view(this.state.get("deployment"), this.state.get("phase"));
    this.widths = widths(this.report, this.view);
    if (!this.widths.some((one) => one.column === this.state.get("width")) && this.widths.length) {
      this.state.values.width = this.widths[0].column;
    }
    if (!colours(this.view).some((one) => one.key === this.state.get("colour"))) this.state.values.colour = "error";
  }

  build() {
    this.controls = h("div", { class: "controls" });
    this.figures = h("dl", { class: "key-figures" });
    this.detail = h("div", { class: "detail", role: "region", "aria-label": "Selected module", "aria-live": "polite" });
    this.found = h("span", { class: "found", "aria-live": "polite" });
    this.input = h("input", { type: "search", placeholder: "Search modules", "aria-label": "Search modules", autocomplete: "off", spellcheck: "false",
      oninput: (event) => this.state.set({ search: event.target.value }) });
    this.help = help();
    this.sections = this.parts().map((part) => {
      const body = h("div");
      if (part.content) replace(body, part.content);
      return { ...part, body, element: section(part.id, part.title, body) };
    });
    replace(document.getElementById("page"),
      h("header", {}, head(this.report), this.figures),
      h("div", { class: "bar-top", role: "region", "aria-label": "Controls" }, this.controls, h("div", { class: "search" }, this.found, this.input, h("button", { type: "button", class: "act", "aria-label": "Keys", onclick: () => this.help.showModal() }, "?"))),
      h("main", {}, this.sections.map((one) => one.element)), this.foot(), this.help);
  }

  // In the order of the page. One that draws nothing is not shown; `absent` says why.
  parts() {
    return [
      { id: "step", title: "The step", draw: drawStep, first: true },
      { id: "modules", title: "Modules", content: [this.icicle.element, h("div", { class: "split" }, this.tree.element, this.detail)] },
      { id: "kernels", title: "Kernels", draw: drawKernels, follows: true },
      { id: "worst", title: "Furthest off", draw: drawWorst, absent: "No module was replayed alone, so none can be off." },
      { id: "fused", title: "Fused kernels", draw: drawFused, absent: "No kernel belongs to several modules." },
      { id: "roofline", title: "Roofline", draw: drawRoofline, follows: true, absent: "No work was counted, so there is no roofline." },
      { id: "memory", title: "Memory", draw: drawMemory, absent: "Memory was not measured." },
      { id: "measured", title: "How it was measured", draw: drawMeasured },
      this.report.live && { id: "sql", title: "SQL", content: liveSection() },
    ].filter(Boolean);
  }

  foot() {
    return h("footer", {}, h("p", { class: "note" }, "Made by cb-trace ", this.report.raw.tool_version, " from ", h("bdi", {}, this.report.raw.profile), ". Every figure is in the profile: ", h("code", {}, "SELECT * FROM compare"), "."));
  }

  drawAll() {
    this.drawFirst();
    this.drawRest();
  }

  // What is in sight when the page opens.
  drawFirst() {
    useTheme(this.theme());
    this.drawControls();
    keyFigures(this.figures, this);
    this.icicle.draw();
    this.tree.draw();
    drawDetail(this.detail, this);
    this.drawSections((one) => one.first);
    this.showFound();
  }

  drawRest() {
    this.drawSections((one) => one.draw && !one.first);
    const absent = this.sections.filter((one) => one.element.hidden).map((one) => one.absent);
    const measured = this.sections.find((one) => one.id === "measured");
    measured.body.append(...absent.map((text) => h("p", { class: "note" }, text)));
    this.shown = this.sections.filter((one) => !one.element.hidden);
    this.shown.forEach((one, n) => replace(one.element.querySelector("h2 .number"), String(n + 1)));
    document.documentElement.dataset.ready = "";
  }

  drawSections(chosen) {
    for (const one of this.sections.filter(chosen)) one.element.hidden = one.draw(one.body, this) === false;
  }

  drawControls() {
    const { report, state } = this;
    replace(this.controls,
      report.deployments.length > 1 && choice("Deployment", report.deployments, state.get("deployment"), (deployment) => state.set({ deployment })),
      report.phases.length > 1 && choice("Phase", report.phases, state.get("phase"), (phase) => state.set({ phase })),
      this.widths.length > 1 && picker("Width", this.widths.map((one) => [one.column, one.title]), state.get("width"), (width) => state.set({ width })),
      colours(this.view).length > 1 && picker("Colour", colours(this.view).map((one) => [one.key, one.title]), state.get("colour"), (colour) => state.set({ colour })));
    if (this.input.value !== state.get("search")) this.input.value = state.get("search");
  }

  theme() {
    return !this.printing && matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light";
  }

  watch() {
    this.state.onChange((changed) => this.changed(changed));
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.drawAll());
    for (const [event, printing] of [["beforeprint", true], ["afterprint", false]]) {
      window.addEventListener(event, () => { this.printing = printing; this.drawAll(); });
    }
    document.addEventListener("keydown", (event) => this.key(event));
  }

  changed(changed) {
    if (changed.has("deployment") || changed.has("phase")) {
      this.readView();
      this.search();
      this.drawAll();
      return;
    }
    const any = (...keys) => keys.some((key) => changed.has(key));
    if (any("search")) this.search();
    if (any("width", "colour", "root")) { this.icicle.draw(); this.drawControls(); }
    if (any("search", "sort", "order")) this.tree.draw();
    if (any("selected")) {
      this.tree.reveal(this.state.get("selected"));
      drawDetail(this.detail, this);
      this.drawSections((one) => one.follows);
    }
    if (any("selected", "search")) this.icicle.mark();
    if (any("search")) { this.showFound(); this.drawControls(); }
  }

  // Modules whose path or class fits; text that is no regular expression is taken as it is.
  search() {
    const text = this.state.get("search");
    this.matches = null;
    if (text === "") return;
    const { report, view } = this;
    let fits;
    try {
      const pattern = new RegExp(text, "i");
      fits = (name_) => pattern.test(name_);
    } catch {
      fits = (name_) => name_.toLowerCase().includes(text.toLowerCase());
    }
    this.matches = new Set();
    for (let i = 0; i < report.size; i += 1) {
      if (view.present[i] && (fits(report.path(i)) || fits(report.className(i)))) this.matches.add(i);
    }
  }

  showFound() {
    if (this.matches === null) return replace(this.found);
    const values = figures(this.report, this.view, defaultWidth(this.view));
    let sum = 0;
    for (const i of this.matches) {
      const above = this.report.lineage(i).slice(0, -1);
      if (!above.some((at) => this.matches.has(at))) sum += values[i] || 0;
    }
    const whole = this.view.stepUs || values[this.report.roots[0]];
    return replace(this.found, `${count(this.matches.size)} found`, this.matches.size > 0 && whole > 0 ? `, ${percent(sum / whole)} of the step` : "");
  }

  // What the pointer sees beside it.
  summary(i) {
    const { report, view } = this;
    const cost = view.numbers("cost_us")[i];
    return [h("div", {}, name(report.path(i) || report.label(i)), h("bdi", { class: "class" }, report.className(i))),
      h("div", { class: "tip-figures" }, `cost ${us(cost)} µs`, view.stepUs > 0 && ` (${percent(cost / view.stepUs)})`, ` · alone ${us(view.numbers("isolated_us")[i])} µs · error ${errorText(view, i).text}`)];
  }

  // Only an address of the web: the profile may be a stranger's.
  perfetto = (i) => {
    const { prefix, rest } = this.report.raw.links;
    const link = rest[i] === null ? null : (this.report.raw.perfetto ?? prefix) + rest[i];
    return link && /^(https?:\/\/|\/perfetto\/)/.test(link) ? link : null;
  };

  key(event) {
    if (event.ctrlKey || event.metaKey || event.altKey || this.help.open) return;
    const typing = /^(INPUT|TEXTAREA|SELECT)$/.test(event.target.tagName) && event.target.type !== "radio";
    if (event.key === "Escape") { this.escape(); return; }
    if (typing) {
      if (event.key === "Enter" && event.target === this.input) this.firstMatch();
      return;
    }
    const act = { "/": () => this.input.select(), "?": () => this.help.showModal(), 0: () => this.zoom(this.report.roots[0]), d: () => this.nextDeployment(), Backspace: () => this.escape() }[event.key];
    const place = Number(event.key);
    if (act) act();
    else if (place >= 1 && place <= this.shown.length) this.shown[place - 1].element.scrollIntoView();
    else return;
    event.preventDefault();
  }

  escape() {
    const { state, report } = this;
    if (state.get("search")) { state.set({ search: "" }); this.input.blur(); return; }
    const above = report.parent[state.get("root")];
    if (above >= 0) this.zoom(above);
  }

  zoom(i) { this.state.set({ root: i, selected: i }); }

  firstMatch() {
    if (!this.matches?.size) return;
    const row = this.tree.rows.find((one) => this.matches.has(one.i));
    if (row) { this.state.set({ selected: row.i }); this.tree.focus(); }
  }

  nextDeployment() {
    const all = this.report.deployments;
    this.state.set({ deployment: all[(all.indexOf(this.state.get("deployment")) + 1) % all.length] });
  }
}

window.page = new Page(JSON.parse(document.getElementById("data").textContent));
