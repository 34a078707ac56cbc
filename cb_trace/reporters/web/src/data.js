// The document inside the page, as arrays over the modules. NaN stands for "not measured".

import { known } from "./format.js";

export class Report {
  constructor(raw) {
    this.raw = raw;
    this.run = raw.run;
    this.live = raw.live;
    this.words = raw.words;
    this.terms = raw.terms;
    const { name, parent } = raw.modules;
    this.name = name;
    this.parent = parent;
    this.size = name.length;
    this.children = Array.from({ length: this.size }, () => []);
    this.roots = [];
    this.depth = new Uint16Array(this.size);
    for (let i = 0; i < this.size; i += 1) {
      const above = parent[i];
      (above < 0 ? this.roots : this.children[above]).push(i);
      this.depth[i] = above < 0 ? 0 : this.depth[above] + 1;
    }
    this._paths = new Array(this.size);
    this._altered = new Set(raw.modules.altered);
    this._views = new Map();
    this.deployments = [...new Set(raw.views.map((v) => v.deployment))];
    this.phases = [...new Set(raw.views.map((v) => v.phase))];
  }

  path(i) {
    if (this._paths[i] === undefined) {
      const above = this.parent[i];
      const head = above < 0 || i in this.raw.modules.whole ? "" : this.path(above);
      const own = this.raw.modules.whole[i] ?? this.name[i];
      this._paths[i] = head ? `${head}.${own}` : own;
    }
    return this._paths[i];
  }

  // Whether the path as shown is the path as stored: only then can a command or SQL name it.
  exact(i) {
    for (let at = i; at >= 0; at = this.parent[at]) if (this._altered.has(at)) return false;
    return true;
  }

  find(path) {
    for (let i = 0; i < this.size; i += 1) if (this.path(i) === path) return i;
    return -1;
  }

  className(i) { return this.word(this.raw.modules.class[i]) ?? ""; }
  label(i) { return this.name[i] || this.className(i) || "(root)"; }
  word(code) { return code === null || code === undefined ? null : this.words[code]; }

  below(i, visit) {
    visit(i);
    for (const child of this.children[i]) this.below(child, visit);
  }

  within(i, ancestor) {
    for (let at = i; at >= 0; at = this.parent[at]) if (at === ancestor) return true;
    return false;
  }

  lineage(i) {
    const line = [];
    for (let at = i; at >= 0; at = this.parent[at]) line.unshift(at);
    return line;
  }

  view(deployment, phase) {
    const key = `${deployment} ${phase}`;
    if (!this._views.has(key)) {
      const raw = this.raw.views.find((v) => v.deployment === deployment && v.phase === phase);
      this._views.set(key, new View(this, raw ?? { deployment, phase, columns: {} }));
    }
    return this._views.get(key);
  }
}

// The figures of one deployment and phase.
export class View {
  constructor(report, raw) {
    this.report = report;
    this.deployment = raw.deployment;
    this.phase = raw.phase;
    this.stepUs = raw.step_us ?? NaN;
    this.stepBare = raw.step_bare ?? false;
    this.stepLowUs = raw.step_low_us ?? NaN;
    this.stepHighUs = raw.step_high_us ?? NaN;
    this.raw = raw;
    this._places = raw.columns.module === undefined ? [] : report.raw.columns[raw.columns.module];
    this._dense = new Map();
    this.present = new Uint8Array(report.size);
    for (const i of this._places) this.present[i] = 1;
  }

  numbers(column) {
    return this._cached(column, () => this._spread(column, new Float64Array(this.report.size).fill(NaN)));
  }

  texts(column) {
    return this._cached(column, () => this._spread(column, new Array(this.report.size).fill(null)));
  }

  has(column) {
    return this._cached(`has ${column}`, () => this.numbers(column).some(known));
  }

  _cached(key, make) {
    if (!this._dense.has(key)) this._dense.set(key, make());
    return this._dense.get(key);
  }

  _spread(column, dense) {
    const source = this.raw.columns[column];
    if (source !== undefined) {
      this.report.raw.columns[source].forEach((value, place) => {
        if (value !== null) dense[this._places[place]] = value;
      });
    } else {
      this._other(column, dense);
    }
    return dense;
  }

  // Work and memory come in tables of their own.
  _other(column, dense) {
    const { work, memory } = this.report.raw;
    const fill = (table, fits) => table.module.forEach((i, row) => {
      const value = table[column]?.[row];
      if (i !== null && known(value) && fits(row)) dense[i] = value;
    });
    const phase = (table, row) => this.report.word(table.phase[row]);
    if (work && column in work) {
      fill(work, (row) => phase(work, row) === this.phase
        && this.report.word(work.deployment[row]) === this.deployment);
    } else if (memory && column in memory) {
      fill(memory, (row) => [null, this.phase, "forward"].includes(phase(memory, row)));
    }
  }

  workText(column, i) {
    const code = this.numbers(column)[i];
    return known(code) ? this.report.word(code) : null;
  }

  // In words as `cb-trace compare` has them: ~0 is a difference inside the noise.
  error(i) {
    const low = this.numbers("error_low")[i], high = this.numbers("error_high")[i];
    return {
      ratio: this.numbers("error_ratio")[i],
      noise: low <= 0 && high >= 0,
      partial: this.texts("isolated_from")[i] === "partial",
      skipped: this.texts("skipped")[i],
    };
  }
}
