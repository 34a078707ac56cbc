// The page of two profiles: what the new one changed.

import { drawChanged } from "./diff_changed.js";
import { drawDiffDetail } from "./diff_detail.js";
import { changeColumns, figureChoices, paintChange } from "./diff_metrics.js";
import { banner, diffHead, diffKeyFigures, drawDiffMeasured, drawDiffStep } from "./diff_parts.js";
import { drawDiffKernels, drawDiffMemory } from "./diff_kernels.js";
import { h, name, replace } from "./dom.js";
import { count, usSigned } from "./format.js";
import { changeLegend } from "./legend.js";
import { Pair } from "./pair.js";
import { perfettoLink, Shell } from "./shell.js";
import { drawRoofline, rooflineAt } from "./work.js";

export class DiffPage extends Shell {
  widthLabel = "Figure";
  widthIsFigure = true;

  constructor(raw) {
    super();
    this.pair = new Pair(raw);
    const { report } = this.pair;
    const [deployment] = report.deployments, [phase] = report.phases;
    const [first] = figureChoices(this.pair.view(deployment, phase));
    this.start(report, { width: first.key, colour: "ratio" });
  }

  viewOf(deployment, phase) { return this.pair.view(deployment, phase); }
  widthChoices() { return figureChoices(this.view); }
  colourChoices() {
    return [{ key: "ratio", title: "Change of the module" }, this.view.stepUs > 0 && { key: "share", title: "Change as part of the step" }].filter(Boolean);
  }
  head() { return diffHead(this.pair); }
  banner() { return banner(this.pair.raw.differs); }
  figure() { return this.widths.find((one) => one.key === this.state.get("width")) ?? this.widths[0]; }
  columns() { return changeColumns(this); }
  paint(i) { return paintChange(this, i); }
  legend() { return changeLegend(this.state.get("colour")); }
  widthMeaning() { return `Width: ${this.figure().title.toLowerCase()}, the larger of base and new. `; }
  drawKeyFigures(element) { diffKeyFigures(element, this); }
  drawDetail(element) { drawDiffDetail(element, this); }

  // The larger of the two, so that what is gone shows too.
  widthFigures() {
    const { view } = this, { key } = this.figure();
    return view.kept(`larger ${key}`, () => {
      const base = view.numbers("base", key), new_ = view.numbers("new", key);
      return base.map((value, i) => Math.max(value || 0, new_[i] || 0));
    });
  }

  rooflinePoints() {
    const { report, view, pair } = this;
    const place = (side, i) => rooflineAt(report, (column) => view.numbers(side, column)[i], i);
    return report.name.map((_, i) => ({ i, cost: view.numbers("new", "cost_us")[i], from: place("base", i), ...place("new", i),
      bound: pair.at.new[i] < 0 ? null : view.new.workText("bound", pair.at.new[i]) })).filter((p) => p.x);
  }

  perfetto(side, i) {
    const at = this.pair.at[side][i];
    return at < 0 ? null : perfettoLink(this.pair[side], at);
  }

  parts() {
    return [
      { id: "step", title: "The step", draw: drawDiffStep, first: true },
      { id: "changed", title: "What changed it", draw: drawChanged, absent: "The steps were not both timed, so their change is not split." },
      this.modulesSection(),
      { id: "kernels", title: "Kernels that changed", draw: drawDiffKernels, follows: true },
      { id: "roofline", title: "Roofline", draw: drawRoofline, follows: true, absent: "No work was counted, so there is no roofline." },
      { id: "memory", title: "Memory", draw: drawDiffMemory, absent: "Memory was not measured in both." },
      { id: "measured", title: "How they were measured", draw: drawDiffMeasured },
    ];
  }

  foot() {
    return h("footer", {}, h("p", { class: "note" }, "Made by cb-trace ", this.pair.raw.tool_version, " from ", h("bdi", {}, this.pair.raw.profile), ". The same as text: ", h("code", {}, "cb-trace diff BASE NEW"), "."));
  }

  showFound() {
    if (this.matches === null) return replace(this.found);
    const delta = (side) => this.foundSum(this.view.numbers(side, "cost_us"));
    return replace(this.found, `${count(this.matches.size)} found`, this.matches.size > 0 && this.view.stepUs > 0 ? `, ${usSigned(delta("new") - delta("base"))} µs` : "");
  }

  summary(i) {
    const { report, view } = this, { print, signed, unit, title } = this.figure();
    const { base, new: new_, delta } = view.change(this.figure().key, i);
    return [h("div", {}, name(report.path(i) || report.label(i)), h("bdi", { class: "class" }, report.className(i))),
      h("div", { class: "tip-figures" }, `${title.toLowerCase()} ${print(base.value)} → ${print(new_.value)}${unit} · ${signed(delta)} · ${paintChange(this, i).text}`)];
  }
}
