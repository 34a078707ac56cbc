// Where each module lies in the icicle: x by its figure, y by its depth.

// A child's width is to its parent's as its figure is to the parent's, or to the sum of the
// children where that is larger (alone, parts may take more than the whole). What the children
// leave free is the parent's own work.
export function layout(report, figures, root, width, smallest) {
  const boxes = [];
  const place = (i, x, w, depth) => {
    if (w < smallest) return;
    boxes.push({ i, x, w, depth });
    const value = positive(figures[i]);
    let sum = 0;
    for (const child of report.children[i]) sum += positive(figures[child]);
    const whole = Math.max(value, sum);
    if (whole <= 0) return;
    let at = x;
    for (const child of report.children[i]) {
      const part = (w * positive(figures[child])) / whole;
      if (part > 0) place(child, at, part, depth + 1);
      at += part;
    }
  };
  place(root, 0, width, 0);
  return boxes;
}

const positive = (value) => (value > 0 ? value : 0); // NaN is not
