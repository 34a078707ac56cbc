"""cb-trace: what each nn.Module of a PyTorch model costs, in the full pass and alone.

    profile = cb_trace.profile(model, (batch,), path="run.duckdb")
    profile.compare()

Names are imported when first used: reading a profile never imports torch, recording a bundle
never imports polars or DuckDB.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cb_trace.imports import lazily
from cb_trace.version import VERSION

if TYPE_CHECKING:
    from cb_trace.errors import CbTraceError
    from cb_trace.reading import Profile, ingest
    from cb_trace.reading import open_path as open  # noqa: A004
    from cb_trace.recording import profile, record

__version__ = VERSION

__all__ = ["CbTraceError", "Profile", "__version__", "ingest", "open", "profile", "record"]

__getattr__ = lazily(
    __name__,
    {
        "CbTraceError": "cb_trace.errors.CbTraceError",
        "Profile": "cb_trace.reading.Profile",
        "ingest": "cb_trace.reading.ingest",
        "open": "cb_trace.reading.open_path",
        "profile": "cb_trace.recording.profile",
        "record": "cb_trace.recording.record",
    },
)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
