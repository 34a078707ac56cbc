// What the page of one profile and the page of two have in common: state, sections, search, keys.

import { useTheme } from "./colour.js";
import { h, replace } from "./dom.js";
import { Icicle } from "./icicle.js";
import { liveSection } from "./live.js";
import { choice, help, picker, section } from "./page.js";
import { State } from "./state.js";
import { Tree } from "./tree.js";

export const began = performance.now();

export class Shell {
  // `defaults` is the state that needs no address.
  start(report, defaults) {
    useTheme(this.theme());
    this.roomAtFirst = roomIn(document.getElementById("page"));
    this.shown = [];
    this.report = report;
    this.state = new State(report, {
      deployment: report.deployments[0], phase: report.phases[0], colour: "", width: "",
      selected: report.roots[0], root: report.roots[0], search: "", sort: "", order: "desc", ...defaults });
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

  // What an address may say and this profile lacks becomes the first of what it has.
  readView() {
    this.view = this.viewOf(this.state.get("deployment"), this.state.get("phase"));
    this.widths = this.widthChoices();
    this.colours = this.colourChoices();
    for (const [key, choices] of [["width", this.widths], ["colour", this.colours]]) {
      if (choices.length && !choices.some((one) => one.key === this.state.get(key))) {
        this.state.values[key] = choices[0].key;
      }
    }
  }

  build() {
    this.controls = h("div", { class: "controls" });
    this.figures = h("dl", { class: "key-figures" });
    this.detail = h("div", { class: "detail", role: "region", "aria-label": "Selected module", "aria-live": "polite", tabindex: 0 });
    this.found = h("span", { class: "found", "aria-live": "polite" });
    this.input = h("input", { type: "search", placeholder: "Search modules", "aria-label": "Search modules", autocomplete: "off", spellcheck: "false",
      oninput: (event) => this.state.set({ search: event.target.value }) });
    this.help = help();
    this.sections = this.parts().filter(Boolean).map((part) => {
      const body = h("div");
      if (part.content) replace(body, part.content);
      return { ...part, body, element: section(part.id, part.title, body) };
    });
    replace(document.getElementById("page"),
      h("header", {}, this.head(), this.figures, this.banner()),
      h("div", { class: "bar-top", role: "region", "aria-label": "Controls" }, this.controls, h("div", { class: "search" }, this.found, this.input, h("button", { type: "button", class: "act", "aria-label": "Keys", onclick: () => this.help.showModal() }, "?"))),
      h("main", {}, this.sections.map((one) => one.element)), this.foot(), this.help);
  }

  banner() { return null; }

  modulesSection() {
    return { id: "modules", title: "Modules", content: [this.icicle.element, h("div", { class: "split" }, this.tree.element, this.detail)] };
  }

  sqlSection() {
    return this.report.live && { id: "sql", title: "SQL", content: liveSection() };
  }

  drawAll() {
    this.drawFirst();
    this.drawRest();
  }

  // What is in sight when the page opens.
  drawFirst() {
    useTheme(this.theme());
    this.drawControls();
    this.drawKeyFigures(this.figures);
    this.icicle.draw();
    this.tree.draw();
    this.drawDetail(this.detail);
    this.drawSections((one) => one.first);
    this.showFound();
  }

  drawRest() {
    this.drawSections((one) => one.draw && !one.first);
    const absent = this.sections.filter((one) => one.element.hidden).map((one) => one.absent);
    const measured = this.sections.find((one) => one.id === "measured");
    measured.body.append(...absent.filter(Boolean).map((text) => h("p", { class: "note" }, text)));
    this.shown = this.sections.filter((one) => !one.element.hidden);
    this.shown.forEach((one, n) => replace(one.element.querySelector("h2 .number"), String(n + 1)));
    document.documentElement.dataset.ready = "";
  }

  drawSections(chosen) {
    for (const one of this.sections.filter(chosen)) one.element.hidden = one.draw(one.body, this) === false;
  }

  drawControls() {
    const { report, state } = this;
    const pick = (label, key, choices) => choices.length > 1
      && picker(label, choices.map((one) => [one.key, one.title]), state.get(key), (value) => state.set({ [key]: value }));
    replace(this.controls,
      report.deployments.length > 1 && choice("Deployment", report.deployments, state.get("deployment"), (deployment) => state.set({ deployment })),
      report.phases.length > 1 && choice("Phase", report.phases, state.get("phase"), (phase) => state.set({ phase })),
      pick(this.widthLabel, "width", this.widths), pick("Colour", "colour", this.colours));
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
    const any = (...keys) => keys.some((key) => changed.has(key));
    if (any("deployment", "phase") || (any("width") && this.widthIsFigure)) {
      this.readView();
      this.search();
      this.tree.openTo(this.state.get("selected"));
      this.drawAll();
      return;
    }
    if (any("search")) this.search();
    if (any("width", "colour", "root")) { this.icicle.draw(); this.drawControls(); }
    if (any("search", "sort", "order")) this.tree.draw();
    if (any("selected")) {
      this.tree.reveal(this.state.get("selected"));
      this.drawDetail(this.detail);
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
      fits = (name) => pattern.test(name);
    } catch {
      fits = (name) => name.toLowerCase().includes(text.toLowerCase());
    }
    this.matches = new Set();
    for (let i = 0; i < report.size; i += 1) {
      if (view.present[i] && (fits(report.path(i)) || fits(report.className(i)))) this.matches.add(i);
    }
  }

  // The sum of a figure over what was found; a module below another counts with that one.
  foundSum(values) {
    let sum = 0;
    for (const i of this.matches) {
      const above = this.report.lineage(i).slice(0, -1);
      if (!above.some((at) => this.matches.has(at))) sum += values[i] || 0;
    }
    return sum;
  }

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

// How wide the page's content is: asked while it is empty, when the answer costs no layout of it.
function roomIn(element) {
  const { paddingLeft, paddingRight } = getComputedStyle(element);
  return element.clientWidth - parseFloat(paddingLeft) - parseFloat(paddingRight);
}

// Only an address of the web: a profile may be a stranger's. Under `cb-trace serve` UI and trace come
// from its own address; the UI takes a whole one only.
export function perfettoLink(report, i) {
  const { links: { prefix, rest }, perfetto } = report.raw;
  if (rest[i] === null || rest[i] === undefined) return null;
  if (perfetto) return `${perfetto.ui}#!/?url=${encodeURIComponent(location.origin + perfetto.trace)}${rest[i]}`;
  return /^https?:\/\//.test(prefix) ? prefix + rest[i] : null;
}
