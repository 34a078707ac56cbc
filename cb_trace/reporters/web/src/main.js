// The page reads the document inside it: of one profile, or of two.

import { DiffPage } from "./diff_page.js";
import { ReportPage } from "./report_page.js";

const raw = JSON.parse(document.getElementById("data").textContent);
window.page = raw.kind === "diff" ? new DiffPage(raw) : new ReportPage(raw);
