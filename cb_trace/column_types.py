"""What a schema is made of, for the files that :mod:`cb_trace.columns` puts together."""

from __future__ import annotations

from typing import Literal

SqlType = Literal["BIGINT", "INTEGER", "DOUBLE", "VARCHAR", "BOOLEAN", "TIMESTAMP"]
Schema = dict[str, SqlType]
