// The page of one profile.

import { Report } from "./data.js";
import { drawDetail } from "./detail.js";
import { h, name, replace } from "./dom.js";
import { count, percent, us } from "./format.js";
import { errorLegend } from "./legend.js";
import { drawFused, drawKernels } from "./kernels.js";
import { drawMeasured } from "./measured.js";
import { colours, columnsOf, defaultWidth, errorText, figures, paint, widths } from "./metrics.js";
import { head, keyFigures } from "./page.js";
import { perfettoLink, Shell } from "./shell.js";
import { drawStep, drawWorst } from "./step.js";
import { drawMemory, drawRoofline, rooflineAt } from "./work.js";

export class ReportPage extends Shell {
  widthLabel = "Width";

  constructor(raw) {
    super();
    const report = new Report(raw);
    const first = report.view(report.deployments[0], report.phases[0]);
    this.start(report, { width: defaultWidth(first), colour: colours(first)[0].key });
  }

  viewOf(deployment, phase) { return this.report.view(deployment, phase); }
  widthChoices() { return widths(this.report, this.view); }
  colourChoices() { return colours(this.view); }
  head() { return head(this.report); }
  columns() { return columnsOf(this.view); }
  paint(i) { return paint(this.view, this.state.get("colour"), i); }
  legend() { return errorLegend(this.state.get("colour")); }
  widthFigures() { return figures(this.report, this.view, this.state.get("width")); }
  drawKeyFigures(element) { keyFigures(element, this); }
  drawDetail(element) { drawDetail(element, this); }
  perfetto(i) { return perfettoLink(this.report, i); }

  rooflinePoints() {
    const { report, view } = this;
    const at = (column, i) => view.numbers(column)[i];
    return report.name.map((_, i) => ({ i, cost: at("cost_us", i), bound: view.workText("bound", i), ...rooflineAt(report, at, i) })).filter((p) => p.x);
  }

  widthMeaning() {
    const chosen = this.widths.find((one) => one.key === this.state.get("width"));
    return chosen ? `Width: ${chosen.meaning}. ` : "";
  }

  // In the order of the page. One that draws nothing is not shown; `absent` says why.
  parts() {
    return [
      { id: "step", title: "The step", draw: drawStep, first: true },
      this.modulesSection(),
      { id: "kernels", title: "Kernels", draw: drawKernels, follows: true },
      { id: "worst", title: "Furthest off", draw: drawWorst, absent: "No module was replayed alone, so none can be off." },
      { id: "fused", title: "Fused kernels", draw: drawFused, absent: "No kernel belongs to several modules." },
      { id: "roofline", title: "Roofline", draw: drawRoofline, follows: true, absent: "No work was counted, so there is no roofline." },
      { id: "memory", title: "Memory", draw: drawMemory, absent: "Memory was not measured." },
      { id: "measured", title: "How it was measured", draw: drawMeasured },
      this.sqlSection(),
    ];
  }

  foot() {
    return h("footer", {}, h("p", { class: "note" }, "Made by cb-trace ", this.report.raw.tool_version, " from ", h("bdi", {}, this.report.raw.profile), ". Every figure is in the profile: ", h("code", {}, "SELECT * FROM compare"), "."));
  }

  showFound() {
    if (this.matches === null) return replace(this.found);
    const values = figures(this.report, this.view, defaultWidth(this.view));
    const sum = this.foundSum(values);
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
}
