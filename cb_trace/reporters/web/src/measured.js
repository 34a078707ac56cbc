// How it was measured: device, clocks, samples, dilation, coverage, and what was left out.

import { h, replace, table } from "./dom.js";
import { count, known, percent, times, us } from "./format.js";

const SAMPLE_KINDS = { bare: "bare", bare_one_stream: "bare, all on one stream", bare_after: "bare, after the profile (a check)", profiled: "under the profiler", sequence: "kernels in sequence, one graph" };

export function drawMeasured(element, { report }) {
  const { run, raw } = report, { measured } = raw;
  replace(element, factList(report),
    h("div", { class: "columns" },
      measured.samples.length > 0 && block("Timings of the step", samples(measured.samples)),
      measured.replays.length > 0 && block("Replays", replays(measured.replays)),
      block("Device time", coverage(measured.coverage)),
      block("Trace files", traces(measured.traces))),
    block("Left out", leftOut(measured)),
    measured.notes.length > 0 && block("Notes", notes(measured)),
    run.settings && h("p", { class: "note" }, "Settings: ", h("code", {}, run.settings)));
}

const block = (title, ...content) => h("div", { class: "block" }, h("h3", {}, title), content);

// What is known of a recording: [title, values].
export function facts({ run, raw }) {
  const software = [run.torch_version && `torch ${run.torch_version}`, run.cuda_version && `CUDA ${run.cuda_version}`, run.driver_version && `driver ${run.driver_version}`];
  return [
    ["Device", [run.device_name ?? run.device_type, known(run.l2_bytes) && `L2 ${count(Math.round(run.l2_bytes / 2 ** 20))} MiB`]],
    ["SM clock", [clockFact(run, raw.measured.samples)]],
    ["Software", software],
    ["Recorded", [run.created_at && `${run.created_at} UTC`, run.mode, run.dtype, run.phases]],
    ["Bare step", [known(run.step_bare_ns) && `${us(run.step_bare_ns / 1000)} µs`, known(run.step_bare_low_ns) && `${us(run.step_bare_low_ns / 1000)} to ${us(run.step_bare_high_ns / 1000)} µs`]],
    ["Dilation", [known(run.dilation) && `${times(run.dilation)} under the profiler; idle time is scaled back to the bare step`]],
    ["Seed", [known(run.seed) && String(run.seed)]],
    ["Rank", [known(raw.rank) && String(raw.rank)]],
    ["Run", [run.run_id]],
    ["cb-trace", [`recorded by ${run.tool_version ?? "another tool"}`, `page by ${raw.tool_version}`, `schema ${raw.schema_version}`]],
  ].map(([title, values]) => [title, values.filter(Boolean)]).filter(([, values]) => values.length);
}

// The clock right after the bare steps, where it was read there; else as it was read once.
function clockFact(run, samples) {
  const read = samples.filter((r) => r.kind === "bare" && known(r.clock_low_mhz));
  if (read.length === 0) return known(run.sm_clock_mhz) && `${count(run.sm_clock_mhz)} MHz, read once`;
  const range = { clock_low_mhz: Math.min(...read.map((r) => r.clock_low_mhz)), clock_high_mhz: Math.max(...read.map((r) => r.clock_high_mhz)) };
  return `${clock(range)} MHz after bare steps`;
}

const factList = (report) => h("dl", { class: "facts" }, facts(report).map(([title, values]) => h("div", {}, h("dt", {}, title), h("dd", {}, h("bdi", {}, values.join(", "))))));

const samples = (rows) => table("Timings of the step", [
  ["Step", (r) => SAMPLE_KINDS[r.kind] ?? r.kind], ["Deployment", (r) => r.deployment ?? "–"], ["Samples", (r) => count(r.samples), "number"],
  ["Median, µs", (r) => us(r.median_us), "number"], ["5 to 95 %, µs", (r) => `${us(r.p5_us)} to ${us(r.p95_us)}`, "number"],
  ...(rows.some((r) => known(r.clock_low_mhz)) ? [["SM clock, MHz", clock, "number"]] : []),
  ...(rows.some((r) => known(r.temperature_c)) ? [["Hottest, °C", (r) => count(r.temperature_c), "number"]] : []),
], rows);

const clock = ({ clock_low_mhz: low, clock_high_mhz: high }) => (low === high ? count(low) : `${count(low)} to ${count(high)}`);

const CONDITIONS = { hot: "hot, back to back", cold: "cold, L2 flushed", graph: "captured alone" };

const replays = (rows) => table("Replays", [
  ["Condition", (r) => CONDITIONS[r.condition] ?? r.condition], ["Measured", (r) => count(r.measured), "number"],
  ["Shared with an identical module", (r) => count(r.shared), "number"], ["Skipped", (r) => count(r.skipped), "number"], ["Samples", (r) => count(r.samples), "number"],
  ...(rows.some((r) => r.throttled > 0) ? [["Samples left out, throttled", (r) => count(r.throttled), "number"]] : []),
], rows);

function coverage(rows) {
  const placed = rows.filter((r) => r.status !== "noted");
  return table("Device time by trace", [
    ["Trace", (r) => (r.rank ? `${r.role}, rank ${r.rank}` : r.role)], ["Where it went", (r) => [r.status, r.phase, r.method !== "none" && r.method].filter(Boolean).join(", ")],
    ["Reason", (r) => r.reason ?? ""], ["Activities", (r) => count(r.events), "number"], ["µs", (r) => us(r.us), "number"], ["Share", (r) => percent(r.share), "number"],
  ], placed);
}

const traces = (rows) => table("Trace files", [
  ["File", (r) => h("bdi", { class: "wrap" }, r.path)], ["Slices", (r) => count(r.slices), "number"], ["Repaired", (r) => count(r.repaired), "number"],
  ["Dropped", (r) => count(r.dropped), "number"], ["No launch", (r) => count(r.kernels_without_launch), "number"],
], rows);

export function leftOut({ coverage: rows, skipped }) {
  const noted = rows.filter((r) => r.status === "noted").map((r) => `${r.reason}: ${count(r.events)} events in the ${r.role} trace`);
  const absent = skipped.map((one) => [h("bdi", {}, one.reason), `: ${count(one.modules)} ${one.modules === 1 ? "module" : "modules"} (`, h("bdi", {}, one.some.join(", ")), one.modules > one.some.length ? ", …)" : ")"]);
  if (noted.length + absent.length === 0) return h("p", { class: "note" }, "Nothing was dropped or repaired on reading, and no module was skipped.");
  return h("ul", {}, [...noted, ...absent].map((line) => h("li", {}, line)));
}

export function notes({ notes: rows, notes_cut: cut }) {
  return [h("ul", {}, rows.map((note) => h("li", {}, note.path && [h("bdi", { class: "name" }, note.path), ": "], h("bdi", {}, note.reason), note.detail && [": ", h("bdi", {}, note.detail)]))),
    cut > 0 && h("p", { class: "note" }, `and ${count(cut)} more: table note`)];
}
