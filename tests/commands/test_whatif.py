"""What ``whatif`` prints: figures with their bounds, and none where there is only noise."""

from __future__ import annotations

import json
from pathlib import Path

from tests.commands.running import Cli

CHANGE = ("--overlap", "h.0.mlp", "--remove", "h.1.mlp")
OVERLAP = ("overlap h.0.mlp", "graph")


def test_a_gain_that_may_be_none_is_not_printed_as_one(cli: Cli, sample_traces: Path) -> None:
    profile = sample_traces / "nanogpt_gpt2_b1_s64_bf16.duckdb"

    def printed(form: str) -> str:
        return cli("whatif", profile, *CHANGE, "--format", form).out

    rows = {(row["change"], row["deployment"]): row for row in json.loads(printed("json"))["rows"]}
    row = rows[OVERLAP]
    assert row["saved_low_us"] == 0 < row["saved_us"] <= row["saved_high_us"]
    for form in ("table", "markdown"):
        noise = [line for line in printed(form).splitlines() if "~0" in line]
        assert len(noise) == sum(r["saved_low_us"] <= 0 < r["saved_high_us"] for r in rows.values())
        assert any(all(word in line for word in OVERLAP) for line in noise)
