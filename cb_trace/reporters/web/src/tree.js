// The module tree as a table: a treegrid in the sense of WAI-ARIA, rows windowed when many.

import { h, replace, name } from "./dom.js";
import { known } from "./format.js";

const ROW = 29; // px, as in the style sheet
const WINDOWED = 300; // rows; below, all are there
const OPEN_ROWS = 24; // opened at first, about

export class Tree {
  constructor(context) {
    this.context = context;
    this.open = new Set();
    this.openFirst();
    this.openTo(context.state.get("selected"));
    this.head = h("thead");
    this.body = h("tbody");
    this.table = h("table", { role: "treegrid", "aria-label": "Modules", class: "tree" }, this.head, this.body);
    this.element = h("div", { class: "tree-frame" }, this.table);
    this.element.addEventListener("scroll", () => this.scrolled());
    this.body.addEventListener("click", (event) => this.click(event));
    this.body.addEventListener("dblclick", (event) => this.zoom(event));
    this.body.addEventListener("keydown", (event) => this.key(event));
    window.addEventListener("beforeprint", () => { this.printing = true; this.draw(); });
    window.addEventListener("afterprint", () => { this.printing = false; this.draw(); });
  }

  // Levels from the top as long as they stay readable.
  openFirst() {
    const { report } = this.context;
    let level = [...report.roots], rows = level.length;
    while (level.length) {
      const next = level.flatMap((i) => report.children[i]);
      if (rows + next.length > OPEN_ROWS && level[0] !== report.roots[0]) break;
      for (const i of level) this.open.add(i);
      rows += next.length;
      level = next;
    }
  }

  openTo(i) {
    for (const at of this.context.report.lineage(i).slice(0, -1)) this.open.add(at);
  }

  draw() {
    this.columns = this.context.columns();
    this.rows = this.visible();
    this.table.setAttribute("aria-rowcount", this.rows.length + 1);
    this.drawHead();
    this.drawRows();
  }

  // Rows in order: siblings sorted, closed modules and those off the search left out.
  visible() {
    const { report, matches } = this.context;
    const kept = matches === null ? null : new Set();
    if (kept) for (const i of matches) for (const at of report.lineage(i)) kept.add(at);
    const order = this.order();
    const rows = [];
    const walk = (siblings, level) => {
      const shown = siblings.filter((i) => this.context.view.present[i] && (!kept || kept.has(i)));
      const sorted = order ? [...shown].sort(order) : shown;
      sorted.forEach((i, place) => {
        const inner = report.children[i].some((c) => this.context.view.present[c] && (!kept || kept.has(c)));
        const open = inner && (kept !== null || this.open.has(i));
        rows.push({ i, level, inner, open, place, of: sorted.length });
        if (open) walk(report.children[i], level + 1);
      });
    };
    walk(report.roots, 1);
    return rows;
  }

  order() {
    const { state, report } = this.context;
    const sort = state.get("sort");
    const sign = state.get("order") === "asc" ? 1 : -1;
    if (sort === "name") return (a, b) => sign * report.label(a).localeCompare(report.label(b), "en", { numeric: true });
    const column = this.columns.find((one) => one.key === sort);
    if (!column) return null;
    return (a, b) => {
      const x = column.value(a), y = column.value(b);
      if (!known(x) || !known(y)) return Number(known(y)) - Number(known(x));
      return sign * (x - y);
    };
  }

  drawHead() {
    const { state } = this.context;
    const cell = (key, title, kind, unit) => {
      const chosen = state.get("sort") === key;
      const down = state.get("order") !== "asc";
      return h("th", { role: "columnheader", class: kind,
        "aria-sort": chosen ? (down ? "descending" : "ascending") : null },
      h("button", { type: "button", onclick: () => this.sort(key) }, title, unit && h("span", { class: "unit" }, unit),
        h("span", { class: "arrow", "aria-hidden": "true" }, chosen ? (down ? "↓" : "↑") : "")));
    };
    replace(this.head, h("tr", { role: "row", "aria-rowindex": 1 },
      cell("name", "Module", "module"), this.columns.map(({ key, title, unit }) => cell(key, title, `number ${key}`, unit))));
  }

  // Once by size, once the other way, then as in the model.
  sort(key) {
    const { state } = this.context;
    if (state.get("sort") !== key) state.set({ sort: key, order: "desc" });
    else if (state.get("order") !== "asc") state.set({ order: "asc" });
    else state.set({ sort: "", order: "desc" });
  }

  drawRows() {
    const { first, last } = this.window();
    this.first = first;
    const focused = this.body.contains(document.activeElement);
    const space = (rows) => rows > 0 && h("tr", { role: "presentation", class: "space" },
      h("td", { role: "presentation", colspan: this.columns.length + 1 }));
    const before = space(first), after = space(this.rows.length - last);
    if (before) before.firstChild.style.height = `${first * ROW}px`;
    if (after) after.firstChild.style.height = `${(this.rows.length - last) * ROW}px`;
    const rows = this.rows.slice(first, last).map((row, n) => this.row(row, first + n));
    replace(this.body, before, rows, after);
    if (focused) this.focus(false);
  }

  window() {
    const all = this.rows.length;
    if (all <= WINDOWED || this.printing) return { first: 0, last: all };
    const top = Math.floor(this.element.scrollTop / ROW) - 20;
    const first = Math.min(Math.max(0, top), Math.max(0, all - 80));
    return { first, last: Math.min(all, first + 80) };
  }

  scrolled() {
    if (this.rows.length > WINDOWED && this.window().first !== this.first) this.drawRows();
  }

  row({ i, level, inner, open, place, of }, number) {
    const { report, state, matches } = this.context;
    const selected = state.get("selected") === i;
    const first = h("th", { role: "rowheader", scope: "row", class: "module" },
      h("span", { class: "indent" }),
      h("span", { class: `twist${inner ? (open ? " open" : " closed") : ""}`, "aria-hidden": "true" }),
      name(report.label(i), { class: matches?.has(i) ? "name hit" : "name", title: report.path(i) || report.label(i) }),
      report.label(i) === report.className(i) ? null : h("bdi", { class: "class" }, report.className(i)));
    first.firstChild.style.width = `${(level - 1) * 16}px`;
    return h("tr", { role: "row", "data-i": i, tabindex: selected ? 0 : -1, "aria-level": level,
      "aria-posinset": place + 1, "aria-setsize": of, "aria-rowindex": number + 2,
      "aria-expanded": inner ? String(open) : null, "aria-selected": String(selected) },
    first, this.columns.map(({ key, cell }) => h("td", { role: "gridcell", class: `number ${key}` }, cell(i))));
  }

  // Selection from elsewhere: open what hides it, and bring it into sight.
  reveal(i) {
    this.openTo(i);
    this.draw();
    this.show(i);
  }

  show(i) {
    const place = this.rows.findIndex((row) => row.i === i);
    if (place < 0) return;
    const top = place * ROW, frame = this.element;
    const height = frame.clientHeight - ROW * 2;
    if (top < frame.scrollTop || top > frame.scrollTop + height) {
      frame.scrollTop = Math.max(0, top - height / 2);
      this.scrolled();
    }
  }

  focus(showing = true) {
    const selected = this.context.state.get("selected");
    if (showing) this.show(selected);
    this.body.querySelector(`tr[data-i="${selected}"]`)?.focus({ preventScroll: !showing });
  }

  at(event) {
    const row = event.target.closest("tr[data-i]");
    return row ? this.rows.find((one) => one.i === Number(row.dataset.i)) : null;
  }

  click(event) {
    const row = this.at(event);
    if (!row) return;
    if (event.target.closest(".twist") && row.inner) this.toggle(row.i);
    this.context.state.set({ selected: row.i });
    this.focus(false);
  }

  zoom(event) {
    const row = this.at(event);
    if (row && !event.target.closest(".twist")) this.context.state.set({ root: row.i, selected: row.i });
  }

  toggle(i) {
    if (!this.open.delete(i)) this.open.add(i);
    this.draw();
  }

  key(event) {
    const row = this.at(event);
    if (!row || event.ctrlKey || event.metaKey || event.altKey) return;
    const place = this.rows.indexOf(row);
    const steps = { ArrowDown: place + 1, ArrowUp: place - 1, Home: 0, End: this.rows.length - 1,
      PageDown: Math.min(place + 12, this.rows.length - 1), PageUp: Math.max(place - 12, 0) };
    if (event.key in steps) this.go(steps[event.key]);
    else if (event.key === "ArrowRight") this.right(row, place);
    else if (event.key === "ArrowLeft") this.left(row);
    else if (event.key === "Enter") this.context.state.set({ root: row.i, selected: row.i });
    else return;
    event.preventDefault();
    event.stopPropagation();
  }

  go(place) {
    const row = this.rows[place];
    if (!row) return;
    this.context.state.set({ selected: row.i });
    this.focus();
  }

  right(row, place) {
    if (row.inner && !row.open) { this.toggle(row.i); this.focus(); }
    else if (row.inner) this.go(place + 1);
  }

  left(row) {
    if (row.open && this.context.matches === null) { this.toggle(row.i); this.focus(); return; }
    const parent = this.context.report.parent[row.i];
    if (parent >= 0) this.go(this.rows.findIndex((one) => one.i === parent));
  }
}
