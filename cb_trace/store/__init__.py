"""One DuckDB file a profile: create it, append to it, open it, and the named queries over it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cb_trace.imports import lazily
from cb_trace.store.amend import amend
from cb_trace.store.draft import Draft, Writer, append, beside, create, writing_ahead
from cb_trace.store.opening import open_profile

if TYPE_CHECKING:
    from cb_trace.store.queries import Query, named_queries, named_query

__all__ = [
    "Draft",
    "Query",
    "Writer",
    "amend",
    "append",
    "beside",
    "create",
    "named_queries",
    "named_query",
    "open_profile",
    "writing_ahead",
]

# of no use to an ingest
__getattr__ = lazily(
    __name__,
    {name: f"cb_trace.store.queries.{name}" for name in ("Query", "named_queries", "named_query")},
)
