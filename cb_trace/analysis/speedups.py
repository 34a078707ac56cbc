"""What a faster module is predicted to gain, beside what the step did gain."""

from __future__ import annotations

from collections.abc import Mapping

import polars as pl

from cb_trace.analysis.changes import Change, changed_step
from cb_trace.analysis.marginal import Scaled
from cb_trace.bundle import Deployment
from cb_trace.columns import polars_schema

_PREDICTED = ["predicted_ns", "predicted_low_ns", "predicted_high_ns"]


def predicted_speedups(
    speedup: pl.DataFrame, steps: Mapping[Deployment, Scaled], module: pl.DataFrame
) -> pl.DataFrame:
    """The ``speedup`` frame with its predictions: the module's time over its factor.

    The same that ``cb-trace whatif --set PATH=0.5x`` says for a factor of 2.
    """
    rows = []
    for row in speedup.iter_rows(named=True):
        scaled = steps.get(row["deployment"])
        if scaled is None:
            continue
        change = Change("set", row["module_id"], 1 / row["factor"])
        found = changed_step(scaled, [change], module)
        gained = [found.now_ns - ns for ns in (found.then_ns, found.high_ns, found.low_ns)]
        rows.append((row["module_id"], row["deployment"], row["factor"], *gained))
    schema = polars_schema("speedup")
    key = ["module_id", "deployment", "factor"]
    predicted = pl.DataFrame(
        rows, schema={name: schema[name] for name in (*key, *_PREDICTED)}, orient="row"
    )
    return speedup.drop(_PREDICTED).join(predicted, on=key, how="left").select(*schema)
