"""Method ``range``: our own annotations, one around each module call, named by the module path."""

from __future__ import annotations

import json

import polars as pl

from cb_trace.attribution.calls import COLUMNS, Calls, calls_of
from cb_trace.range_names import RANGE_PREFIX, path_of_range


def range_calls(annotation: pl.DataFrame, module: pl.DataFrame) -> Calls:
    """Calls from the ``cb:`` annotations of the host.

    User annotations are a layer of their own: never nested under, or clipped to, Python frames,
    which half-overlap them (traces.md row 21, M1). A range that names no module of the tree is
    passed over, so its work falls to the module around it.
    """
    ranges = module_ranges(annotation)
    known = module_by_path(module)
    names = ranges.select("name").unique()
    found = [known.get(path_of_range(name) or "") for name in names["name"]]
    owner = names.with_columns(pl.Series("module_id", found, dtype=pl.Int32)).drop_nulls()
    frame = ranges.join(owner, on="name", maintain_order="left")
    return calls_of("range", frame.select(COLUMNS))


def module_ranges(annotation: pl.DataFrame) -> pl.DataFrame:
    """The annotations of module calls, in order of start, the longer first."""
    ours = (pl.col("layer") == "user") & pl.col("name").str.starts_with(RANGE_PREFIX)
    return annotation.filter(ours).sort("start_ns", -pl.col("dur_ns"), maintain_order=True)


def module_by_path(module: pl.DataFrame) -> dict[str, int]:
    """Module ids by path, the further paths of shared modules included."""
    known = dict(zip(module["path"], module["module_id"], strict=True))
    for number, aliases in module.select("module_id", "aliases").drop_nulls().iter_rows():
        for path in json.loads(aliases):
            known.setdefault(path, number)
    return known
