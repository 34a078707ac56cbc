"""Which kernel of the step is which kernel of the module alone.

Within a module, phase and step, kernels are paired in three passes, each in order of execution:

1. same operator, kernel name, grid and block: *matched*;
2. kernels of the step without an operator (graph replay) by name, grid and block: *matched*;
3. same operator among what is left, where it left kernels on both sides: another *choice*. All of
   them, since a choice may bring more of them along or fewer (a memset before a matmul, the
   reduction after one that is split).

What stays alone ran on one side *only*. So does every kernel of the step that the module, its
children included, owns in part.
"""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl

MATCHED, CHOICE, ONLY = "matched", "choice", "only"

_SAME = ["name", "grid", "block"]
GROUP = ["module_id", "phase"]


def pair(context: pl.DataFrame, alone: pl.DataFrame) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Both sides with a column ``match``: matched, choice or only.

    Either side has one row a kernel of a step: ``module_id, phase, op, name, grid, block,
    position`` (order of execution; ``op`` "" where unknown); the context also ``whole`` (owned
    entirely).
    """
    left = context.with_row_index("row").with_columns(match=pl.lit(ONLY))
    right = alone.with_row_index("row").with_columns(match=pl.lit(ONLY))
    has_op = pl.col("op") != ""
    passes: Sequence[tuple[list[str], pl.Expr]] = (
        (["op", *_SAME], pl.lit(value=True)),
        (_SAME, ~has_op),
    )
    for key, eligible in passes:
        mine = left.filter(pl.col("whole") & eligible & (pl.col("match") == ONLY))
        theirs = right.filter(pl.col("match") == ONLY)
        pairs = _numbered(mine, key).join(_numbered(theirs, key), on=[*GROUP, *key, "number"])
        left = _mark(left, pairs["row"], MATCHED)
        right = _mark(right, pairs["row_right"], MATCHED)
    mine = left.filter(pl.col("whole") & has_op & (pl.col("match") == ONLY))
    theirs = right.filter(has_op & (pl.col("match") == ONLY))
    operator = [*GROUP, "op"]
    left = _mark(left, mine.join(theirs, on=operator, how="semi")["row"], CHOICE)
    right = _mark(right, theirs.join(mine, on=operator, how="semi")["row"], CHOICE)
    return left.drop("row"), right.drop("row")


def _numbered(rows: pl.DataFrame, key: list[str]) -> pl.DataFrame:
    """Number the kernels of equal key in order of execution."""
    return rows.sort("position").select(
        *GROUP, *key, "row", number=pl.col("row").cum_count().over([*GROUP, *key])
    )


def _mark(rows: pl.DataFrame, which: pl.Series, match: str) -> pl.DataFrame:
    chosen = pl.col("row").is_in(which.implode())
    return rows.with_columns(match=pl.when(chosen).then(pl.lit(match)).otherwise("match"))
