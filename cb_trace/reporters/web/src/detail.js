// The selected module: verdict, figures, the error as a waterfall, and where to look further.

import { h, name, replace } from "./dom.js";
import { bytes, count, known, large, percent, range, us, usSigned } from "./format.js";
import { errorText } from "./metrics.js";
import { waterfallOf } from "./waterfall.js";

export const TERM_NAMES = { launch: "launch latency", cache: "cache state", kernel_choice: "kernel choice",
  fusion: "fusion", overlap: "overlap", contention: "contention", idle: "idle in the step", residual: "residual" };

export function drawDetail(element, context) {
  const { report, view, state } = context;
  const i = state.get("selected");
  const verdict = view.texts("verdict")[i];
  const skipped = view.texts("skipped")[i];
  replace(element,
    h("h3", {}, name(report.path(i) || report.label(i)), h("bdi", { class: "class" }, report.path(i) ? report.className(i) : "root")),
    verdict ? h("p", { class: "verdict" }, verdict) : h("p", { class: "note" }, "No verdict: nothing to compare."),
    skipped && !known(view.numbers("isolated_us")[i]) && !verdict?.includes(skipped) ? h("p", { class: "note" }, "Not replayed: ", h("bdi", {}, skipped)) : null,
    waterfall(context, i), list(context, i), further(context, i));
}

function list({ report, view }, i) {
  const at = (column) => view.numbers(column)[i];
  const with_ = (value, low, high) => [us(value), known(low) && h("span", { class: "range" }, range(low, high))];
  const rows = [
    ["Cost in the step", known(at("cost_us")) && with_(at("cost_us"), at("cost_low_us"), at("cost_high_us"))],
    ["Knock-out, measured", known(at("knockout_us")) && with_(at("knockout_us"), at("knockout_low_us"), at("knockout_high_us"))],
    ["Marginal, predicted", known(at("marginal_us")) && us(at("marginal_us"))],
    ["Alone, device time", known(at("isolated_gpu_us")) && us(at("isolated_gpu_us"))],
    ["Alone, cold cache", known(at("isolated_cold_us")) && us(at("isolated_cold_us"))],
    ["Device busy in the step", known(at("busy_us")) && us(at("busy_us"))],
    ["of that, nothing else running", known(at("exposed_us")) && us(at("exposed_us"))],
    ["Kernels, calls a step", `${count(at("kernels"))}, ${count(at("calls"))}`, ""],
    ["Parameters", known(report.raw.modules.parameters[i]) && `${large(report.raw.modules.parameters[i])}, ${bytes(report.raw.modules.parameter_bytes[i])}`, ""],
    ["FLOPs a step", known(at("flops_extended")) && large(at("flops_extended")), ""],
    ["MFU", known(at("mfu_ratio")) && percent(at("mfu_ratio")), ""],
    ["Bound", view.workText("bound", i) && `${view.workText("bound", i)}: ${view.workText("bound_why", i)}`, ""],
    ["Flag", view.workText("flag", i), ""],
    ["Peak memory in the step", known(at("peak_context_bytes")) && bytes(at("peak_context_bytes")), ""],
  ].filter(([, value]) => value);
  return h("dl", { class: "figures" }, rows.map(([title, value, unit = "µs"]) =>
    h("div", {}, h("dt", {}, title), h("dd", {}, value, unit && h("span", { class: "unit" }, ` ${unit}`)))));
}

// From the cost in the step, term by term, to the figure alone.
function waterfall({ report, view }, i) {
  const cost = view.numbers("cost_us")[i], alone = view.numbers("isolated_us")[i];
  if (!known(cost) || !known(alone)) return null;
  const terms = report.terms.map((kind) => ({ kind,
    us: view.numbers(`${kind}_us`)[i], low: view.numbers(`${kind}_low_us`)[i], high: view.numbers(`${kind}_high_us`)[i] }));
  const measured = terms.filter((term) => known(term.us));
  const absent = terms.filter((term) => !known(term.us)).map((term) => TERM_NAMES[term.kind]);
  const bars = [{ title: "Cost in the step", from: 0, to: cost, whole: true, text: us(cost) }];
  let sum = cost;
  for (const term of measured) {
    const range = known(term.low) ? `${usSigned(term.low)} to ${usSigned(term.high)}` : null;
    const noise = known(term.low) && term.low <= 0 && term.high >= 0;
    bars.push({ title: TERM_NAMES[term.kind], from: sum, to: sum + term.us, low: sum + term.low, high: sum + term.high,
      text: noise ? "~0" : usSigned(term.us), extra: noise && term.low < term.high && range, tip: range && `${range} µs` });
    sum += term.us;
  }
  bars.push({ title: "Alone", from: 0, to: alone, whole: true, text: us(alone), low: view.numbers("isolated_low_us")[i],
    high: view.numbers("isolated_high_us")[i], extra: errorText(view, i).text });
  return waterfallOf("From the step to alone, µs", bars, {
    note: measured.length === 0 ? "The difference has no measured terms here." : absent.length > 0 && `Not measured: ${absent.join(", ")}.` });
}

function further(page, i) {
  const { report, view } = page;
  if (!report.exact(i)) return null;
  const path = report.path(i);
  const quoted = (text) => `'${text.replaceAll("'", "'\\''")}'`;
  const profile = quoted(report.raw.profile);
  const link = page.perfetto(i);
  const sql = `SELECT * FROM compare WHERE path = '${path.replaceAll("'", "''")}' AND phase = '${view.phase}' AND deployment = '${view.deployment}'`;
  return h("div", { class: "further" },
    link && h("p", {}, h("a", { href: link, target: "_blank", rel: "noopener noreferrer" }, "Open in Perfetto"),
      report.live ? null : h("span", { class: "note" }, " once this serves the trace:")),
    !report.live && link && command(`cb-trace perfetto ${profile} -m ${quoted(path || "<root>")} --open`, "command for Perfetto"),
    h("p", { class: "note" }, "The same figures in SQL:"), command(sql, "SQL"));
}

export function command(text, what) {
  const button = h("button", { type: "button", class: "copy", "aria-label": `Copy the ${what}` }, "Copy");
  button.addEventListener("click", async () => {
    try {
      await navigator.clipboard.writeText(text);
      button.textContent = "Copied";
    } catch {
      getSelection().selectAllChildren(button.previousSibling);
    }
  });
  return h("div", { class: "command" }, h("code", { tabindex: 0 }, text), button);
}
