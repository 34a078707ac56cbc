// Under `cb-trace serve`: SQL over the profile, read-only.

import { h, replace, table } from "./dom.js";

export function liveSection() {
  const output = h("div", { "aria-live": "polite" });
  const input = h("textarea", { rows: 4, spellcheck: "false", "aria-label": "SQL" });
  input.value = "SELECT path, phase, cost_us, isolated_us, error_ratio\nFROM compare\nORDER BY cost_us DESC\nLIMIT 20";
  const run = async () => {
    replace(output, h("p", { class: "note" }, "…"));
    try {
      const answer = await fetch("sql", { method: "POST", headers: { "content-type": "application/json" }, body: JSON.stringify({ sql: input.value }) });
      show(output, await answer.json());
    } catch (error) {
      show(output, { error: `the server does not answer: ${error.message}` });
    }
  };
  input.addEventListener("keydown", (event) => {
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) run();
  });
  return [input, h("p", {}, h("button", { type: "button", class: "act", onclick: run }, "Run"), h("span", { class: "note" }, " Ctrl-Enter. The profile is read-only.")), output];
}

function show(output, { error, columns, rows, cut }) {
  if (error) return replace(output, h("p", { class: "failure", role: "alert" }, error));
  const numeric = columns.map((_, n) => rows.some((r) => typeof r[n] === "number") && rows.every((r) => r[n] === null || typeof r[n] === "number"));
  return replace(output, table("Rows", columns.map((title, n) => [title, (row) => (row[n] === null ? "–" : String(row[n])), numeric[n] ? "number" : ""]), rows),
    h("p", { class: "note" }, `${rows.length} rows${cut ? ", cut here" : ""}`));
}
