// What is shown, kept in the address so that a link leads back to it.

const KEYS = { deployment: "d", phase: "p", width: "w", colour: "c", selected: "m", root: "z",
  search: "q", sort: "s", order: "o" };

export class State {
  constructor(report, defaults) {
    this.report = report;
    this.defaults = defaults;
    this.values = { ...defaults };
    this.listeners = [];
    this.read();
    window.addEventListener("hashchange", () => { if (this.read()) this.tell(new Set(Object.keys(KEYS))); });
  }

  get(key) { return this.values[key]; }

  set(changes) {
    const changed = new Set(Object.keys(changes).filter((key) => changes[key] !== this.values[key]));
    if (changed.size === 0) return;
    Object.assign(this.values, changes);
    this.write();
    this.tell(changed);
  }

  onChange(listener) { this.listeners.push(listener); }
  tell(changed) { for (const listener of this.listeners) listener(changed); }

  read() {
    const given = new URLSearchParams(location.hash.slice(1));
    if (given.toString() === this.written) return false;
    const { report } = this;
    const next = { ...this.defaults };
    for (const [key, short] of Object.entries(KEYS)) {
      if (!given.has(short)) continue;
      const text = given.get(short);
      if (key === "selected" || key === "root") {
        const found = report.find(text);
        if (found >= 0) next[key] = found;
      } else if (key === "deployment" || key === "phase") {
        if (report[`${key}s`].includes(text)) next[key] = text;
      } else next[key] = text;
    }
    this.values = next;
    return true;
  }

  write() {
    const given = new URLSearchParams();
    for (const [key, short] of Object.entries(KEYS)) {
      const value = this.values[key];
      if (value === this.defaults[key]) continue;
      given.set(short, key === "selected" || key === "root" ? this.report.path(value) : value);
    }
    this.written = given.toString();
    try {
      history.replaceState(null, "", this.written ? `#${this.written}` : "#");
    } catch {
      // A page inside a notebook has no address of its own.
    }
  }
}
