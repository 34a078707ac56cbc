"""One DuckDB file a profile: create it, append to it, open it, and the named queries over it."""

from cb_trace.store.amend import amend
from cb_trace.store.draft import Draft, Writer, append, beside, check_target, create, writing_ahead
from cb_trace.store.opening import open_profile
from cb_trace.store.queries import Query, named_queries, named_query

__all__ = [
    "Draft",
    "Query",
    "Writer",
    "amend",
    "append",
    "beside",
    "check_target",
    "create",
    "named_queries",
    "named_query",
    "open_profile",
    "writing_ahead",
]
