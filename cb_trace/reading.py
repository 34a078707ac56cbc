"""A profile as Python users see it: polars frames from views, SQL and named queries."""

from __future__ import annotations

from os import PathLike
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Self

from cb_trace.bundle import Bundle, is_bundle, located_path, open_bundle
from cb_trace.errors import CbTraceError
from cb_trace.reporters.modules import find_module
from cb_trace.store import named_query, open_profile

if TYPE_CHECKING:
    import polars as pl
    from duckdb import DuckDBPyConnection

Value = str | int | float | bool | None


class Profile:
    """An open profile, read-only. Close it, or use it as a context manager.

    >>> with cb_trace.open("run.duckdb") as profile:
    ...     eager = profile.compare().filter(deployment="eager")
    ...     eager.sort("cost_us", descending=True)
    """

    def __init__(self, path: str | PathLike[str]) -> None:
        self.path = Path(path)
        self._connection = open_profile(self.path)

    def compare(self) -> pl.DataFrame:
        """The view ``compare``: per run, deployment, module path and phase, a row.

        Columns that end in ``_us`` are microseconds a step; a column whose figure was not
        measured is null.
        """
        return self.sql("SELECT * FROM compare")

    def sql(self, text: str, /, **params: Value) -> pl.DataFrame:
        """The rows of one SQL statement; ``$name`` in it stands for ``params["name"]``.

        :raises CbTraceError: the statement is wrong, or gives no rows by its nature.
        """
        return _fetch(self._connection, text, params)

    def query(self, name: str, /, **variables: Value) -> pl.DataFrame:
        """The rows of a query that ships (``queries/NAME.sql``), its variables set by name.

        :raises CbTraceError: there is no such query, no such variable of it, or no such module.
        """
        query = named_query(name)
        if unknown := variables.keys() - set(query.variables):
            known = ", ".join(query.variables) or "none"
            raise CbTraceError(f"{name} has no variable {min(unknown)!r}", hint=f"it has: {known}")
        if isinstance(module := variables.get("module"), str):
            paths = self._connection.execute("SELECT DISTINCT path FROM module").fetchall()
            variables["module"] = find_module(module, {path for (path,) in paths})
        for variable in query.variables:  # its own names, so safe in the text
            self._connection.execute(f"SET VARIABLE {variable} = ?", [variables.get(variable)])
        return _fetch(self._connection, query.sql, {})

    @property
    def bundle(self) -> Bundle | None:
        """The bundle this profile was made from; None where it was a trace of someone else's.

        :raises CbTraceError: the bundle is no longer where it was.
        """
        stored = self._connection.execute(
            "SELECT path FROM trace WHERE role <> 'foreign' ORDER BY trace_id LIMIT 1"
        ).fetchall()
        if not stored:
            return None
        file = located_path(stored[0][0], self.path)
        found = next((folder for folder in file.parents if folder.exists()), file.parent)
        if not is_bundle(found):
            raise CbTraceError(
                f"the bundle of {self.path} is gone: {file.parent}", hint="put it back beside it"
            )
        return open_bundle(found)

    def close(self) -> None:
        """Close the file; frames taken from it stay."""
        self._connection.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _repr_html_(self) -> str:
        """The report, for a notebook."""
        from cb_trace.reporters.html import inline_frame, render_report
        from cb_trace.reporters.html_data import read_report

        return inline_frame(render_report(read_report(self._connection, self.path)))

    def __repr__(self) -> str:
        return f"Profile({str(self.path)!r})"


def open_path(path: str | PathLike[str]) -> Profile:
    """Open a profile.

    :raises CbTraceError: it is missing, no profile, or from a newer version.
    """
    return Profile(path)


def ingest(
    source: str | PathLike[str], path: str | PathLike[str], *, force: bool = False
) -> Profile:
    """Make a profile at ``path`` from a bundle, a Kineto trace, or a folder of one trace a rank.

    :raises CbTraceError: the source cannot be read; ``path`` exists and ``force`` is off.
    """
    from cb_trace.conduct import ingest as conduct_ingest

    conduct_ingest(Path(source), Path(path), force=force)
    return Profile(path)


def _fetch(connection: DuckDBPyConnection, text: str, params: dict[str, Value]) -> pl.DataFrame:
    import duckdb
    import polars as pl

    try:
        relation = connection.sql(text, params=params or None)
        if relation is None:
            raise CbTraceError("the statement gives no rows", hint="a profile is read-only")
        kinds = [str(kind) for kind in relation.types]
        if "INTERVAL" in kinds:  # polars cannot hold one and aborts
            raise CbTraceError("a column is an INTERVAL", hint="cast it to VARCHAR, say")
        frame = pl.DataFrame(relation)
        sums = [n for n, t in zip(frame.columns, kinds, strict=True) if t == "HUGEINT"]
        return frame.with_columns(pl.col(sums).cast(pl.Int128))  # else Decimal
    except duckdb.Error as error:
        raise CbTraceError(f"the query failed: {str(error).split('LINE 1')[0]}") from error
