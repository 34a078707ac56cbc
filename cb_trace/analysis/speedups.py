"""What a faster module is predicted to gain, beside what the step did gain."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import polars as pl

from cb_trace.analysis.changes import Answer, Change
from cb_trace.bundle import Deployment
from cb_trace.columns import polars_schema

_PREDICTED = ["predicted_ns", "predicted_low_ns", "predicted_high_ns"]


def predicted_speedups(
    speedup: pl.DataFrame, steps: Mapping[Deployment, Callable[[Change], Answer]]
) -> pl.DataFrame:
    """The ``speedup`` frame with its predictions: the module's time over its factor.

    The same that ``cb-trace whatif --set PATH=0.5x`` says for a factor of 2.

    :param steps: what each deployment's step is under a change.
    """
    rows = []
    for row in speedup.iter_rows(named=True):
        changed = steps.get(row["deployment"])
        if changed is None:
            continue
        found = changed(Change("set", row["module_id"], 1 / row["factor"]))
        gained = (found.saved_ns, found.saved_low_ns, found.saved_high_ns)
        rows.append((row["module_id"], row["deployment"], row["factor"], *gained))
    schema = polars_schema("speedup")
    key = ["module_id", "deployment", "factor"]
    predicted = pl.DataFrame(
        rows, schema={name: schema[name] for name in (*key, *_PREDICTED)}, orient="row"
    )
    return speedup.drop(_PREDICTED).join(predicted, on=key, how="left").select(*schema)
