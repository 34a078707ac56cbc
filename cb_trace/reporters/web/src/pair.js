// Two reports as one: the modules of both by their path, and their figures side by side.
// A change is new less base. It is within noise where the intervals of the two figures meet.

import { Report } from "./data.js";
import { known } from "./format.js";

const NOTHING_RAN = new Set(["cost_us", "busy_us", "kernels", "calls"]); // 0 where a module is not
const BOUNDS = { cost_us: ["cost_low_us", "cost_high_us"], isolated_us: ["isolated_low_us", "isolated_high_us"],
  knockout_us: ["knockout_low_us", "knockout_high_us"] };

export class Pair {
  constructor(raw) {
    this.raw = raw;
    this.base = new Report(raw.base);
    this.new = new Report(raw.new);
    this.report = new Report(this.union());
    const places = (side) => Int32Array.from({ length: this.report.size }, (_, i) => side.find(this.report.path(i)));
    this.at = { base: places(this.base), new: places(this.new) };
    this._views = new Map();
  }

  // The new model's modules, then those that only the base has, each below its parent.
  union() {
    const { base } = this;
    const { modules } = this.raw.new;
    const words = [...this.raw.new.words];
    const copy = { name: [...modules.name], parent: [...modules.parent], class: [...modules.class],
      whole: { ...modules.whole }, altered: [...modules.altered] };
    const place = new Map(copy.name.map((_, i) => [this.new.path(i), i]));
    for (let i = 0; i < base.size; i += 1) {
      const path = base.path(i);
      if (place.has(path)) continue;
      const at = copy.name.length;
      const above = base.parent[i] < 0 ? -1 : place.get(base.path(base.parent[i]));
      place.set(path, at);
      copy.name.push(base.name[i]);
      copy.parent.push(above);
      words.push(base.className(i));
      copy.class.push(words.length - 1);
      if (i in this.raw.base.modules.whole) copy.whole[at] = this.raw.base.modules.whole[i];
      if (!base.exact(i)) copy.altered.push(at);
    }
    return { ...this.raw.new, modules: copy, words, live: this.raw.live };
  }

  view(deployment, phase) {
    const key = `${deployment} ${phase}`;
    if (!this._views.has(key)) this._views.set(key, new PairView(this, deployment, phase));
    return this._views.get(key);
  }

  presence(view, i) {
    const there = (side) => this.at[side][i] >= 0 && view[side].present[this.at[side][i]];
    return there("new") ? (there("base") ? "both" : "added") : "removed";
  }
}

// The figures of one deployment and phase in both.
export class PairView {
  constructor(pair, deployment, phase) {
    this.pair = pair;
    this.deployment = deployment;
    this.phase = phase;
    this.base = pair.base.view(deployment, phase);
    this.new = pair.new.view(deployment, phase);
    this.stepUs = this.new.stepUs;
    this._kept = new Map();
    const { at, report } = pair;
    this.present = Uint8Array.from({ length: report.size }, (_, i) =>
      Number(["base", "new"].some((side) => at[side][i] >= 0 && this[side].present[at[side][i]])));
  }

  // A figure of a side over the modules of both.
  numbers(side, column) {
    return this.kept(`${side} ${column}`, () => {
      const own = column === "parameter_bytes"
        ? this.pair[side].raw.modules.parameter_bytes : this[side].numbers(column);
      return Float64Array.from(this.pair.at[side], (at) => {
        if (at < 0 || !this[side].present[at]) return NOTHING_RAN.has(column) ? 0 : NaN;
        if (column === "isolated_us" && this[side].error(at).partial) return NaN;
        return own[at] ?? NaN;
      });
    });
  }

  text(side, column, i) {
    const at = this.pair.at[side][i];
    return at < 0 ? null : this[side].texts(column)[at];
  }

  has(column) {
    return this.kept(`has ${column}`, () => ["base", "new"].every((side) => this.numbers(side, column).some((v) => v > 0)));
  }

  // The change of a figure, with its bounds where both figures have theirs.
  change(column, i) {
    return changeOf(this.figure("base", column, i), this.figure("new", column, i));
  }

  figure(side, column, i) {
    const value = this.numbers(side, column)[i];
    const at = this.pair.at[side][i];
    const absent = value === 0 && (at < 0 || !this[side].present[at]);
    const [low, high] = BOUNDS[column]?.map((name) => (absent ? 0 : this.numbers(side, name)[i])) ?? [NaN, NaN];
    return { value, low, high };
  }

  // Steps that are not alike have no change.
  step() {
    const side = ({ stepUs, stepLowUs, stepHighUs }) => ({ value: stepUs, low: stepLowUs, high: stepHighUs });
    const found = changeOf(side(this.base), side(this.new));
    return this.pair.raw.steps_alike ? found
      : { ...found, delta: NaN, low: NaN, high: NaN, ratio: NaN, bounded: false, noise: false };
  }

  kept(key, make) {
    if (!this._kept.has(key)) this._kept.set(key, make());
    return this._kept.get(key);
  }
}

export function changeOf(base, new_) {
  const delta = new_.value - base.value;
  const low = new_.low - base.high, high = new_.high - base.low;
  return { base, new: new_, delta, low, high, ratio: base.value > 0 ? delta / base.value : NaN,
    bounded: known(low) && known(high), noise: low <= 0 && high >= 0 };
}
