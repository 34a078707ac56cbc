"""An ingest that is killed, interrupted or out of room leaves the old profile, or a whole one."""

from __future__ import annotations

import os
import random
import resource
import signal
import subprocess
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path

import duckdb
import pytest

from cb_trace import conduct
from cb_trace.store import create, open_profile
from tests.bundles import write_net_bundle
from tests.commands.conftest import cli  # noqa: F401  (a fixture)
from tests.commands.running import Cli
from tests.kineto import annotation, kernel, launch, module_slice, op, write_trace

pytestmark = pytest.mark.skipif(os.name != "posix", reason="signals and limits of POSIX")

# Sends itself a signal at the given call that cb_trace makes, Python's or of C (a query, say), or
# when it renames the profile; without one it says how many calls there are before that.
CHILD = """
import os, signal, sys
where, sign, *arguments = sys.argv[1:]
from cb_trace.cli import run
calls = renamed = 0
def watch(frame, event, _):
    global calls, renamed
    if "/cb_trace/" in frame.f_code.co_filename:
        # DuckDB asks for what is appended in this thread or in one of its own
        calls += event in ("call", "c_call") and frame.f_code.co_name != "__arrow_c_stream__"
    elif frame.f_code.co_name == "replace" and "pathlib" in frame.f_code.co_filename:
        renamed = calls
        calls = {"call": "before rename", "return": "after rename"}.get(event, calls)
    if str(calls) == where:
        os.kill(os.getpid(), int(sign))
    calls = renamed if isinstance(calls, str) else calls
sys.setprofile(watch)
status = run(arguments)
sys.setprofile(None)
print(renamed)
sys.exit(status)
"""
WHOLE = [("gemm", "Net_0.Linear_0"), ("norm", "Net_0")]


def trace(folder: Path) -> Path:
    events = [
        annotation("ProfilerStep#0", 0, 900),
        module_slice("Net_0", 0, 500, 1, None), module_slice("Linear_0", 100, 50, 2, 1),
        op("aten::linear", 105, 30), launch(110, 5, 1), kernel("gemm", 120, 30, 1),
        launch(210, 5, 2), kernel("norm", 220, 20, 2),
    ]  # fmt: skip
    return write_trace(folder / "trace.json", events)


def ended(at: int | str, sign: int, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", CHILD, str(at), str(int(sign)), "ingest", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def kernels(profile: Path) -> list[tuple[str, str]]:
    query = """
        SELECT kernel.name, module.path
        FROM kernel JOIN kernel_module USING (kernel_id) JOIN module USING (module_id) ORDER BY ALL
    """
    with open_profile(profile) as connection:
        assert connection.execute("SELECT count(*) FROM compare").fetchall() == [(3,)]
        return connection.execute(query).fetchall()


def figures(profile: Path) -> list[tuple[str, int, float]]:
    with open_profile(profile) as connection:
        return connection.execute(
            "SELECT path, dur_ns, context_us FROM compare ORDER BY ALL"
        ).fetchall()


@pytest.fixture(scope="module")
def calls(tmp_path_factory: pytest.TempPathFactory) -> int:
    """How many calls an ingest of the trace makes before its rename."""
    folder = tmp_path_factory.mktemp("counted")
    before = int(ended(0, 0, trace(folder), "-o", folder / "p.duckdb").stdout)
    assert kernels(folder / "p.duckdb") == WHOLE
    assert before > 500
    return before


def test_a_kill_leaves_the_old_profile_or_the_whole_new_one(tmp_path: Path, calls: int) -> None:
    source, target = trace(tmp_path), tmp_path / "p.duckdb"
    with create(target):
        pass
    old = target.read_bytes()
    # Waiting for threads takes more calls in one run than in the next: the last ones counted may
    # come after the rename, or not at all.
    anywhere = random.Random(0).sample(range(1, calls * 3 // 4), 3)
    surely: list[int | str] = [*anywhere, "before rename"]
    for at in [*surely, calls - 8, calls - 2]:
        done = ended(at, signal.SIGKILL, source, "-o", target, "--force")
        kept = target.read_bytes() == old
        assert (done.returncode, kept) == (-signal.SIGKILL, True) or at not in surely
        assert {p for p in tmp_path.iterdir() if p.name[0] != "."} == {source, target}
        if not kept:
            assert kernels(target) == WHOLE
            target.write_bytes(old)
    done = ended("after rename", signal.SIGKILL, source, "-o", target, "--force")
    assert (done.returncode, kernels(target)) == (-signal.SIGKILL, WHOLE)
    # the next one has cleared away what the others left
    assert set(tmp_path.iterdir()) == {source, target}


@pytest.mark.parametrize("kind", ["bundle", "ranks"])
def test_a_kill_at_any_moment_leaves_the_old_profile_or_the_whole_new_one(
    tmp_path: Path, kind: str
) -> None:
    """By the clock, from outside: also inside DuckDB, which Python's own points never meet."""
    if kind == "bundle":
        source = write_net_bundle(tmp_path / "bundle")
    else:
        source = tmp_path / "ranks"
        source.mkdir()
        for rank in range(2):
            trace(source).rename(source / f"rank{rank}.json")
    target = tmp_path / "p.duckdb"
    given = [str(source), "-o", str(target), "--force"]
    command = [sys.executable, "-m", "cb_trace", "ingest", *given]
    begun = time.monotonic()
    subprocess.run(command, capture_output=True, check=True)
    whole_s = time.monotonic() - begun
    whole = figures(target)
    assert len(whole) > 1
    for _ in range(3):
        wait_s = random.uniform(0.2, 1.1) * whole_s
        child = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        with suppress(subprocess.TimeoutExpired):
            child.wait(wait_s)
        child.kill()
        child.communicate()
        assert figures(target) == whole, f"killed after {wait_s} s"
    subprocess.run(command, capture_output=True, check=True)
    assert {p.name for p in tmp_path.iterdir()} == {source.name, target.name}


def test_a_kill_leaves_no_profile_where_there_was_none(tmp_path: Path) -> None:
    source, target = trace(tmp_path), tmp_path / "p.duckdb"
    assert (
        ended("before rename", signal.SIGKILL, source, "-o", target).returncode == -signal.SIGKILL
    )
    assert not target.exists()


def test_what_a_living_process_writes_stays(tmp_path: Path) -> None:
    target = tmp_path / "p.duckdb"
    with create(target) as first:
        with create(target) as second:
            assert first.target == second.target
        assert len([p for p in tmp_path.iterdir() if p.suffix == ".part"]) == 1
        target.unlink()
    assert list(tmp_path.iterdir()) == [target]


@pytest.mark.parametrize(
    ("sign", "status"),
    [
        (signal.SIGINT, (130, "cb-trace: interrupted")),
        (signal.SIGTERM, (143, "cb-trace: terminated")),
    ],
)
@pytest.mark.parametrize("part", [0.5, 0.9, None])
def test_ctrl_c_and_sigterm_leave_nothing(  # noqa: PLR0917 - fixtures
    tmp_path: Path,
    calls: int,
    part: float | None,
    sign: int,
    status: tuple[int, str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    source, target, temporary = trace(tmp_path), tmp_path / "p.duckdb", tmp_path / "tmp"
    temporary.mkdir()
    monkeypatch.setenv("TMPDIR", str(temporary))
    at = "before rename" if part is None else int(calls * part)
    done = ended(at, sign, source, "-o", target)
    assert (done.returncode, done.stderr.strip()) == status
    assert set(tmp_path.iterdir()) == {source, temporary}
    assert list(temporary.iterdir()) == []


def test_ctrl_c_while_duckdb_works_is_an_interruption_too(
    cli: Cli,  # noqa: F811
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def endless(*_: object, **__: object) -> None:
        threading.Timer(0.1, os.kill, (os.getpid(), signal.SIGINT)).start()
        with duckdb.connect(config={"threads": 1}) as connection:
            connection.execute("SELECT max(sqrt(range)) FROM range(1000000000000)")

    monkeypatch.setattr(conduct, "ingest", endless)
    before = signal.signal(
        signal.SIGINT, signal.default_int_handler
    )  # a job in the background has none
    try:
        outcome = cli("ingest", trace(tmp_path))
    finally:
        signal.signal(signal.SIGINT, before)
    assert (outcome.status, outcome.out, outcome.err) == (130, "", "cb-trace: interrupted\n")


def test_a_full_disk_is_one_line_and_leaves_the_old_profile(tmp_path: Path) -> None:
    source, target = trace(tmp_path), tmp_path / "p.duckdb"
    with create(target):
        pass
    old = target.read_bytes()

    def no_room() -> None:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (len(old) + 4096, len(old) + 4096))

    command = [
        sys.executable,
        "-m",
        "cb_trace",
        "ingest",
        str(source),
        "-o",
        str(target),
        "--force",
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False, preexec_fn=no_room)
    assert done.returncode == 2
    assert len(done.stderr.strip().splitlines()) <= 2
    assert done.stderr.startswith("cb-trace: cannot write")
    assert target.read_bytes() == old
    assert set(tmp_path.iterdir()) == {source, target}
