"""``cb-trace query``: names, SQL, variables, read-only."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from cb_trace.store import named_queries
from tests.bundles import module_record, write_net_bundle
from tests.commands.running import Cli


def test_without_a_query_the_names_are_listed(cli: Cli, small: Path) -> None:
    document = json.loads(cli("query", small, "--format", "json").out)
    names = [row["name"] for row in document["rows"]]
    assert names == [query.name for query in named_queries()]
    assert "top_modules" in names


@pytest.mark.parametrize("query", [query.name for query in named_queries()])
def test_every_named_query_runs(cli: Cli, small: Path, query: str) -> None:
    outcome = cli("query", small, query)
    assert outcome.status == 0
    empty = outcome.out.splitlines()[-1] == "0 rows"
    told = {q.name: q.no_rows for q in named_queries()}[query]
    assert outcome.err == (f"note: no rows: {told}\n" if empty else "")


def test_counts_are_whole_and_small_figures_keep_their_digits(cli: Cli, small: Path) -> None:
    sql = (
        "SELECT * FROM (VALUES (2.0::DOUBLE, 2.0::DOUBLE, 0.00031::DOUBLE, 1e300::DOUBLE), "
        "(1234.0, 3.0, 0.5, 0.0)) AS t(calls, cost_us, share, most)"
    )
    assert [line.split() for line in cli("query", small, sql).out.splitlines()[3:5]] == [
        ["2", "2.000", "0.00031", "1e+300"],
        ["1,234", "3.000", "0.500", "0.000"],
    ]


def test_sql(cli: Cli, small: Path) -> None:
    sql = "SELECT path, cost_us, isolated_us FROM compare WHERE path IN ('h.0.attn', 'head')"
    outcome = cli("query", small, sql, "--format", "csv")
    assert outcome.out == "path,cost_us,isolated_us\nh.0.attn,300.0,600.0\nhead,100.0,\n"
    document = json.loads(cli("query", small, sql, "--format", "json").out)
    assert document["columns"] == ["path", "cost_us", "isolated_us"]
    assert document["rows"][1] == {"path": "head", "cost_us": 100.0, "isolated_us": None}
    table = cli("query", small, sql).out
    assert table.splitlines()[3:] == [
        "h.0.attn   300.000       600.000",
        "head       100.000             –",
        "",
        "2 rows",
    ]


def test_variables(cli: Cli, small: Path) -> None:
    document = json.loads(
        cli("query", small, "top_modules", "--set", "n=2", "--format", "json").out
    )
    assert [row["path"] for row in document["rows"]] == ["h.0.mlp", "h.0.attn"]
    sql = "SELECT getvariable('word') AS word, getvariable('n') + 1 AS n"
    document = json.loads(
        cli("query", small, sql, "--set", "word=it's", "--set", "n=4", "--format", "json").out
    )
    assert document["rows"] == [{"word": "it's", "n": 5}]


def test_a_module_may_be_called_by_a_number(cli: Cli, tmp_path: Path) -> None:
    modules = [module_record("", "Sequential", None, 0), module_record("0", "Linear", "", 1)]
    bundle = write_net_bundle(tmp_path / "net", modules=modules, replays=[])
    assert cli("ingest", bundle, "-o", tmp_path / "p.duckdb").status == 0
    outcome = cli(
        "query", tmp_path / "p.duckdb", "kernels_of_module", "--set", "module=0", "--format", "csv"
    )
    assert outcome.status == 0
    assert outcome.err.startswith("note: no rows: the module was not replayed itself")


def test_every_kind_of_value_has_a_json_form(cli: Cli, small: Path) -> None:
    sql = (
        "SELECT 1.5::DECIMAL(9, 2) AS a, 7::DECIMAL(9, 2) AS b, 'nan'::DOUBLE AS c, "
        "DATE '2026-01-02' AS d, [1, NULL] AS e, {'k': 1} AS f, 170141183460469231731::HUGEINT AS g"
    )
    document = json.loads(cli("query", small, sql, "--format", "json").out)
    assert document["rows"] == [
        {
            "a": 1.5, "b": 7, "c": None, "d": "2026-01-02", "e": [1, None], "f": {"k": 1},
            "g": 170141183460469231731,
        }
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["SELECT pth FROM compare"], 'SQL: Binder Error: Referenced column "pth" not found'),
        (["SELCT 1"], "SQL: Parser Error: syntax error"),
        (["DROP TABLE run"], "read-only"),
        (["COPY run TO '{folder}/out.csv'"], "file system operations are disabled"),
        (["SELECT * FROM read_text('/etc/passwd')"], "file system operations are disabled"),
        (["top_module"], "no query named 'top_module'"),
        (["top_modules", "--set", "limit=3"], "top_modules has no variable 'limit'"),
        (["top_modules", "--set", "n"], "--set wants KEY=VALUE"),
        (["kernels_of_module", "--set", "module=h.0.att"], "no module 'h.0.att'"),
        (["top_modules", "--set", "n); DROP=1"], "--set wants KEY=VALUE"),
    ],
)
def test_mistakes_are_one_line(
    cli: Cli,
    small: Path,
    arguments: list[str],
    message: str,
    tmp_path: Path,
) -> None:
    outcome = cli("query", small, *(text.replace("{folder}", str(tmp_path)) for text in arguments))
    assert (outcome.status, outcome.out) == (2, "")
    lines = outcome.err.splitlines()
    assert message in lines[0]
    assert len(lines) <= 2
    assert list(tmp_path.iterdir()) == []


SLOW = {
    "join": "SELECT max(a.range * b.range) FROM range(900000) a, range(900000) b",
    "sort": "SELECT a.range FROM range(90000) a, range(90000) b ORDER BY md5(a.range || b.range)",
    "rows": "SELECT a.range, b.range FROM range(90000) a, range(90000) b",
}
# A job in the background ignores Ctrl-C, and so would its children.
INTERRUPTED_CHILD = """
import os, signal, sys, threading
signal.signal(signal.SIGINT, signal.default_int_handler)
from cb_trace.cli import run
threading.Timer(1.5, os.kill, (os.getpid(), signal.SIGINT)).start()
sys.exit(run(sys.argv[1:]))
"""


@pytest.mark.skipif(os.name != "posix", reason="signals of POSIX")
@pytest.mark.parametrize("query", SLOW)
def test_ctrl_c_ends_a_query_at_once(traced: Path, query: str) -> None:
    """One join or sort can be one task of DuckDB, which looks for signals between tasks."""
    done = subprocess.run(
        [sys.executable, "-c", INTERRUPTED_CHILD, "query", str(traced), SLOW[query]],
        capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (130, "")
    assert done.stderr.strip() == "cb-trace: interrupted"
