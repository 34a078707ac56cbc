"""A Kineto file becomes typed event tables: decoded natively, repaired where needed, linked.

``load_trace`` is the whole interface. It reads any container (plain, gzip, zstd, zip), cuts the
text into blocks at event boundaries, lets DuckDB decode them in parallel, and mends what it
cannot; no Python object is made for a sound event.

Names are imported when first used: a file is unpacked while the rest is imported.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cb_trace.imports import lazily

if TYPE_CHECKING:
    from cb_trace.trace.load import load_trace
    from cb_trace.trace.options import LoadOptions
    from cb_trace.trace.results import Drop, Header, LoadReport
    from cb_trace.trace.unpacked import Unpacked

__all__ = ["Drop", "Header", "LoadOptions", "LoadReport", "Unpacked", "load_trace"]

__getattr__ = lazily(
    __name__,
    {
        "Drop": "cb_trace.trace.results.Drop",
        "Header": "cb_trace.trace.results.Header",
        "LoadOptions": "cb_trace.trace.options.LoadOptions",
        "LoadReport": "cb_trace.trace.results.LoadReport",
        "Unpacked": "cb_trace.trace.unpacked.Unpacked",
        "load_trace": "cb_trace.trace.load.load_trace",
    },
)
