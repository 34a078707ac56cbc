// Where each module lies in the icicle: x by its figure, y by its depth.

import { known } from "./format.js";

// A child's width is to its parent's as its figure is to the parent's, or to the sum of the
// children where that is larger (alone, parts may take more than the whole). What the children
// leave free is the parent's own work. A parent whose figure is not known is as wide as its children.
export function layout(report, figures, root, width, smallest) {
  const boxes = [], sizes = sizesOf(report, figures);
  const place = (i, x, w, depth) => {
    if (w < smallest) return;
    boxes.push({ i, x, w, depth });
    const value = sizes[i];
    let sum = 0;
    for (const child of report.children[i]) sum += sizes[child];
    const whole = Math.max(value, sum);
    if (whole <= 0) return;
    let at = x;
    for (const child of report.children[i]) {
      const part = (w * sizes[child]) / whole;
      if (part > 0) place(child, at, part, depth + 1);
      at += part;
    }
  };
  place(root, 0, width, 0);
  return boxes;
}

function sizesOf(report, figures) {
  const sizes = new Float64Array(report.children.length);
  for (let i = sizes.length - 1; i >= 0; i--) { // parents come before their children
    sizes[i] = positive(figures[i]);
    if (!known(figures[i])) for (const child of report.children[i]) sizes[i] += sizes[child];
  }
  return sizes;
}

const positive = (value) => (value > 0 ? value : 0); // NaN is not
