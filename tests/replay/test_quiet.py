"""Kineto prints nothing of its own, and the environment is the user's again."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from cb_trace.replay.quiet import quiet_kineto

SCRIPT = """
import os
import torch
from torch.profiler import ProfilerActivity, profile
from cb_trace.replay.profiler import warming

for _ in range(2):
    with warming(profile(activities=[ProfilerActivity.CPU], acc_events=True)) as state:
        state.start()
        torch.ones(3).add(1)
print(os.environ.get("KINETO_LOG_LEVEL"))
"""


def test_a_profiler_of_ours_is_silent_outside_the_command_line_too() -> None:
    bare = {name: value for name, value in os.environ.items() if name != "KINETO_LOG_LEVEL"}
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT], env=bare, capture_output=True, text=True, check=True
    )
    assert (done.stdout, done.stderr) == ("None\n", "")


def test_a_level_that_is_set_stands(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KINETO_LOG_LEVEL", "1")
    with quiet_kineto():
        assert os.environ["KINETO_LOG_LEVEL"] == "1"
    assert os.environ["KINETO_LOG_LEVEL"] == "1"
