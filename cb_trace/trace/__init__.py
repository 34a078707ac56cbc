"""A Kineto file becomes typed event tables: decoded natively, repaired where needed, linked.

``load_trace`` is the whole interface. It reads any container (plain, gzip, zstd, zip), cuts the
text into blocks at event boundaries, lets DuckDB decode them in parallel, and mends what it
cannot; no Python object is made for a sound event.
"""

from cb_trace.trace.load import load_trace
from cb_trace.trace.options import Drop, Header, LoadOptions, LoadReport
from cb_trace.trace.unpacked import Unpacked

__all__ = ["Drop", "Header", "LoadOptions", "LoadReport", "Unpacked", "load_trace"]
