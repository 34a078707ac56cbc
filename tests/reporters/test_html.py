"""The page as text, the exports, and the server: without a browser."""

from __future__ import annotations

import base64
import hashlib
import html
import json
import re
import threading
import xml.etree.ElementTree as ET
from collections.abc import Iterator
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import duckdb
import pytest

import cb_trace
from cb_trace.errors import CbTraceError
from cb_trace.reporters import icicle_svg, speedscope
from cb_trace.reporters.comparison import Selection, Unattributed, read_comparison
from cb_trace.reporters.html import render_report
from cb_trace.reporters.html_columns import Interned, figure, micro, script_json
from cb_trace.reporters.html_data import read_report
from cb_trace.reporters.html_serve import ReportServer, Site, open_report_server
from cb_trace.store import open_profile
from tests.reporters.profiles import write_profile


@pytest.fixture(scope="module")
def profile(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_profile(tmp_path_factory.mktemp("html") / "small.duckdb")


@pytest.fixture(scope="module")
def document(profile: Path) -> dict[str, Any]:
    with open_profile(profile) as connection:
        return read_report(connection, profile)


def test_columns_hold_the_figures_of_compare(document: dict[str, Any]) -> None:
    (view,) = document["views"]
    columns = {name: document["columns"][at] for name, at in view["columns"].items()}
    assert document["modules"]["name"] == ["", "h", "0", "attn", "mlp", "head"]
    assert document["modules"]["parent"] == [-1, 0, 1, 2, 2, 0]
    assert columns["cost_us"] == [970, 720, 720, 300, 400, 100]
    assert columns["isolated_us"] == [900, 1000, 1000, 600, 402, None]
    assert (view["step_us"], view["step_bare"]) == (1000, True)
    assert document["measured"]["skipped"] == [
        {"reason": "RuntimeError: boom", "modules": 1, "some": ["head"]}
    ]
    assert document["work"] is None
    assert document["memory"] is None


def test_a_fused_kernel_is_a_mean_over_all_steps(tmp_path: Path) -> None:
    """It ran in one step of the two; what ran before the first is in no mean. One part of it is
    nobody's, twice over: one kernel without a module.
    """
    parts = [(1, 3, 0.5, None), (1, 4, 0.25, None), (1, None, 0.125, "c"), (1, None, 0.125, "c")]
    with open_profile(_with_kernels(tmp_path / "p.duckdb", parts)) as connection:
        document = read_report(connection, tmp_path)
        unattributed = read_comparison(connection, Selection()).unattributed
    fused = document["fused"]
    assert (fused["us"], fused["kernels"]) == ([2.0, 1.0], [0.5, 0.5])
    assert unattributed == [Unattributed("c", 1, 2_000)]


def test_a_recording_without_steps_is_one(tmp_path: Path) -> None:
    parts: list[tuple[int, int | None, float, str | None]] = [(0, 4, 0.25, None)]
    profile = _with_kernels(tmp_path / "p.duckdb", parts)
    with duckdb.connect(profile) as connection:
        connection.execute("DELETE FROM step; UPDATE kernel SET step = NULL")
    with open_profile(profile) as connection:
        fused = read_report(connection, tmp_path)["fused"]
    assert (fused["us"], fused["kernels"]) == ([6.0, 4.0], [1, 1])


def _with_kernels(path: Path, parts: list[tuple[int, int | None, float, str | None]]) -> Path:
    """Two steps; kernel 1 of 8 µs in the second has these parts, kernel 0 is in no step."""
    rows = [*parts, *((0, module, 0.5, None) for module in (3, 4))]
    return write_profile(
        path,
        step=[{"trace_id": 0, "step": 0}, {"trace_id": 0, "step": 1}],
        kernel=[
            {"kernel_id": 0, "trace_id": 0, "name": "fused", "dur_ns": 8_000},
            {"kernel_id": 1, "trace_id": 0, "name": "fused", "dur_ns": 8_000, "step": 1},
        ],
        kernel_module=[
            {"kernel_id": kernel, "module_id": module, "phase": "forward", "share": share,
             "ns": round(8_000 * share), "method": "inductor", "reason": reason}
            for kernel, module, share, reason in rows
        ],
    )  # fmt: skip


def test_a_page_runs_its_own_script_only_and_asks_nothing(document: dict[str, Any]) -> None:
    page = render_report(document)
    policy = html.unescape(re.search('Policy" content="([^"]*)"', page)[1])  # type: ignore[index]
    script, style = (
        re.search(f"<{tag}>(.*?)</{tag}>", page, re.S)[1]  # type: ignore[index]
        for tag in ("script", "style")
    )
    for kind, text in (("script", script), ("style", style)):
        digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
        assert f"{kind}-src 'sha256-{digest}'" in policy
    assert "default-src 'none'" in policy
    assert "connect-src" not in policy
    assert not re.search(r"(src|href)=[\"']?https?:", page)


def test_data_cannot_leave_its_element(document: dict[str, Any]) -> None:
    text = script_json({"a": "</script><!--\u2028", "b": [1.5, None]})
    assert text == '{"a":"\\u003c/script>\\u003c!--\\u2028","b":[1.5,null]}'
    assert json.loads(text) == {"a": "</script><!--\u2028", "b": [1.5, None]}
    page = render_report({**document, "profile": "</script><b>"})
    assert page.count("</script>") == 2


def test_figures_lose_no_nanosecond_and_hold_no_nan() -> None:
    assert micro(5_833.984) == 5833.984
    assert micro(5_833.0) == 5833
    assert micro(float("nan")) is None
    assert figure(124_439_808) == 124_439_808
    assert figure(1.23456789e15) == 1.23457e15
    interned = Interned()
    assert [interned.add(column) for column in ([1], [2], [1])] == [0, 1, 0]


def test_a_notebook_shows_the_page_sealed(profile: Path) -> None:
    with cb_trace.open(profile) as opened:
        shown = opened._repr_html_()
    assert shown.startswith('<iframe sandbox="allow-scripts allow-popups"')
    assert shown.count('"') == shown.count('="') * 2  # the page inside is one attribute
    assert "&lt;!doctype html&gt;" in shown


def test_speedscope_weighs_each_module_by_its_own_part(document: dict[str, Any]) -> None:
    content = json.loads(speedscope.render(document))
    names = [frame["name"] for frame in content["shared"]["frames"]]
    assert names == ["GPT", "h", "h.0", "h.0.attn", "h.0.mlp", "head"]
    cost = content["profiles"][0]
    assert cost["name"] == "cost in the step, eager, forward"
    assert dict(zip(map(tuple, cost["samples"]), cost["weights"], strict=True)) == {
        (0,): 150_000,
        (0, 1, 2): 20_000,
        (0, 1, 2, 3): 300_000,
        (0, 1, 2, 4): 400_000,
        (0, 5): 100_000,
    }
    assert cost["endValue"] == 970_000


def test_the_icicle_for_slides(document: dict[str, Any]) -> None:
    root = ET.fromstring(icicle_svg.render(document))
    space = "{http://www.w3.org/2000/svg}"
    boxes = {}
    for group in root.findall(f"{space}g"):
        title, rect = group.find(f"{space}title"), group.find(f"{space}rect")
        assert title is not None
        assert rect is not None
        boxes[title.text] = (float(rect.get("width", "")), rect.get("fill"))
    assert boxes["GPT −7.2 %"][0] == 1599
    assert boxes["h.0.attn +100 %"][0] == pytest.approx(1600 * 300 / 970 - 1, abs=0.01)
    assert boxes["h.0.mlp ~0"][1] == "#f1f1ef"
    assert boxes["head "][1] == "url(#hatch)"
    texts = [text.text for text in root.findall(f"{space}text")]
    assert "width: cost in the step, µs, eager deployment" in texts
    with pytest.raises(CbTraceError, match="no deployment 'graph'"):
        icicle_svg.render(document, deployment="graph")


def test_the_icicle_says_what_its_width_is_without_costs(document: dict[str, Any]) -> None:
    (view,) = document["views"]
    columns = {name: at for name, at in view["columns"].items() if name != "cost_us"}
    drawn = icicle_svg.render({**document, "views": [{**view, "columns": columns}]})
    assert ">width: time busy in the step, µs, eager deployment<" in drawn


@pytest.fixture
def server(profile: Path, tmp_path: Path) -> Iterator[ReportServer]:
    def trace() -> Path:
        raise CbTraceError("the trace is gone")

    (tmp_path / "ui").mkdir()
    (tmp_path / "ui" / "index.html").write_text("the UI")
    (tmp_path / "secret").write_text("secret")
    with open_profile(profile) as connection:
        site = Site(page="the page", connection=connection, trace=trace, perfetto=tmp_path / "ui")
        with open_report_server(0, site) as opened:
            thread = threading.Thread(target=opened.serve_forever, daemon=True)
            thread.start()
            yield opened
            opened.shutdown()
            thread.join()


def ask(
    server: ReportServer, path: str, *, sql: str | None = None, **headers: str
) -> tuple[int, str]:
    connection = HTTPConnection("127.0.0.1", server.server_port, timeout=30)
    given = {name.replace("_", "-"): value for name, value in headers.items()}
    if sql is None:
        connection.request("GET", path, headers=given)
    else:
        kind = {"Content-Type": "application/json", **given}
        connection.request("POST", path, body=json.dumps({"sql": sql}), headers=kind)
    response = connection.getresponse()
    text = response.read().decode()
    connection.close()
    return response.status, text


def test_the_server_gives_the_page_the_trace_and_the_ui(server: ReportServer) -> None:
    assert ask(server, "/") == (200, "the page")
    assert ask(server, "/perfetto/") == (200, "the UI")
    assert ask(server, "/perfetto/../secret")[0] == 404
    assert ask(server, "/perfetto/%2e%2e/secret")[0] == 404
    status, text = ask(server, "/trace/annotated.json.gz")
    assert status == 404
    assert "the trace is gone" in text


def test_sql_is_read_only_and_reaches_no_file(server: ReportServer, tmp_path: Path) -> None:
    status, text = ask(server, "/sql", sql="SELECT path, cost_us FROM compare ORDER BY 2 LIMIT 1")
    assert (status, json.loads(text)) == (
        200,
        {"columns": ["path", "cost_us"], "rows": [["head", 100]], "cut": False},
    )
    for statement in (
        "DELETE FROM run",
        f"SELECT * FROM read_text('{tmp_path / 'secret'}')",
        f"COPY run TO '{tmp_path / 'out'}'",
        "SET enable_external_access = true",
        "SELEC",
    ):
        assert "error" in json.loads(ask(server, "/sql", sql=statement)[1])
    many = json.loads(ask(server, "/sql", sql="SELECT * FROM range(5000)")[1])
    assert (len(many["rows"]), many["cut"]) == (1000, True)


def test_other_pages_are_refused(server: ReportServer) -> None:
    assert ask(server, "/", Host="evil.example")[0] == 403
    assert ask(server, "/sql", sql="SELECT 1", Origin="https://evil.example")[0] == 403
    assert ask(server, "/sql", sql="SELECT 1", Content_Type="text/plain")[0] == 403
