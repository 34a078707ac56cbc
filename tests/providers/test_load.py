"""Loading a workload: presets, settings, a user's own provider, and every way to get it wrong."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest
import torch

from cb_trace.errors import CbTraceError
from cb_trace.providers import load, names, provider

USER = """
import torch
from torch import nn
from cb_trace.providers.workload import Workload

def pair(width: int = 4, name: str = "a"):
    return nn.Linear(width, 2), (torch.ones(3, width),)

def keywords():
    return nn.Identity(), (), {"input": torch.ones(2)}

def stepping(device, seed):
    model = nn.Linear(2, 2)
    return model, (), {}, lambda: (device, seed)

def whole():
    return Workload("own name", nn.Identity(), (torch.ones(1),))

def anything(**settings):
    return nn.Identity(), (settings,)

def single():
    return nn.Identity(), torch.ones(1)

def raising():
    raise KeyError("no data")

def wrong():
    return 3

value = 3
"""


@pytest.fixture
def user_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A module of a user in the working folder."""
    (tmp_path / "my_models.py").write_text(USER)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [p for p in sys.path if p != str(tmp_path)])
    yield "my_models"
    sys.modules.pop("my_models", None)


def test_shipped_providers_are_listed() -> None:
    assert {"deepfm", "dlrm", "nanogpt"} <= set(names())
    assert list(provider("nanogpt").presets) == ["tiny", "gpt2"]
    assert list(provider("deepfm").presets) == ["tiny", "paper"]
    assert list(provider("dlrm").presets) == ["tiny", "default", "ddp", "mlperf"]


def test_settings_are_complete_so_that_a_manifest_rebuilds_the_workload() -> None:
    first = load("nanogpt", settings={"batch": "2", "bias": "false", "dropout": "0.5"}, seed=3)
    assert first.settings == {
        "preset": "tiny", "batch": 2, "seq": 64, "layers": 2, "width": 128, "heads": 4,
        "vocab": 1024, "bias": False, "dropout": 0.5,
    }  # fmt: skip
    again = load("nanogpt", settings=first.settings, seed=3)
    assert again.settings == first.settings
    state, other = first.model.state_dict(), again.model.state_dict()
    assert state.keys() == other.keys()
    assert all(torch.equal(state[key], other[key]) for key in state)
    assert torch.equal(first.args[0], again.args[0])


def test_another_seed_is_another_model() -> None:
    first, second = (load("deepfm", seed=seed).args[0] for seed in (0, 1))
    assert not torch.equal(first, second)


@pytest.mark.parametrize(
    ("name", "arguments", "words"),
    [
        ("nanogtp", {}, "unknown provider 'nanogtp' (one of deepfm, dlrm, nanogpt"),
        ("nanogpt", {"preset": "huge"}, "nanogpt has no preset 'huge' (one of tiny, gpt2)"),
        ("nanogpt", {"settings": {"depth": "2"}}, "no setting 'depth' (it has: batch, seq"),
        ("nanogpt", {"settings": {"batch": "two"}}, "batch='two' is not a whole number"),
        ("nanogpt", {"settings": {"batch": "1.5"}}, "batch='1.5' is not a whole number"),
        ("nanogpt", {"settings": {"batch": True}}, "batch=True is not a whole number"),
        ("nanogpt", {"settings": {"dropout": "nan"}}, "dropout='nan' is not a number"),
        ("nanogpt", {"settings": {"bias": "maybe"}}, "bias='maybe' is not true or false"),
        ("nanogpt", {"settings": {"heads": "3"}}, "width 128 is no multiple of 3 heads"),
        ("nanogpt", {"settings": {"batch": "0"}}, "batch must be at least 1"),
        ("deepfm", {"settings": {"skew": "1"}}, "skew must be 0 or more, and not exactly 1"),
        ("deepfm", {"settings": {"rows_max": "9"}}, "rows_max must be at least rows_min"),
        ("dlrm", {"settings": {"rows": "0x3"}}, "rows must be at least 1 and below"),
        ("dlrm", {"settings": {"rows": "many"}}, "dlrm: invalid literal for int"),
        ("dlrm", {"settings": {"bottom": "16"}}, "bottom needs two widths or more, top one"),
        ("dlrm", {"settings": {"top": "32-0-1"}}, "widths must be at least 1, not 32-0-1"),
        ("no_such_module:f", {}, "cannot import no_such_module: ModuleNotFoundError"),
        ("my_models:f", {}, "my_models has no 'f'"),
        ("my_models:value", {}, "my_models:value is no function"),
        ("my_models:raising", {}, "provider my_models:raising raised KeyError: 'no data'"),
        ("my_models:wrong", {}, "returned int (return a Workload, (model, args)"),
        (
            "my_models:pair",
            {"settings": {"x": "1"}},
            "takes no setting 'x' (it takes: width, name)",
        ),
        ("my_models:pair", {"settings": {"width": "w"}}, "width='w' is not a whole number"),
        ("my_models:pair", {"preset": "tiny"}, "has no presets"),
    ],
)
def test_mistakes_are_one_line(
    user_module: str, name: str, arguments: dict[str, object], words: str
) -> None:
    with pytest.raises(CbTraceError) as caught:
        load(name, **arguments)  # type: ignore[arg-type]
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


def test_an_installed_provider_is_found_by_its_entry_point(
    user_module: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    entry = EntryPoint("mine", f"{user_module}:pair", "cb_trace.providers")
    monkeypatch.setattr("importlib.metadata.entry_points", lambda group: [entry])
    assert "mine" in names()
    workload = load("mine", settings={"width": 3})
    assert workload.name == "mine"
    assert workload.args[0].shape == (3, 3)


def test_no_such_device_is_one_line() -> None:
    with pytest.raises(CbTraceError, match="nanogpt cannot be built on"):
        load("nanogpt", device="cuda:99")


def test_user_settings_take_their_types_from_the_function(user_module: str) -> None:
    workload = load(f"{user_module}:pair", settings={"width": "8", "name": "7"})
    assert workload.args[0].shape == (3, 8)
    assert workload.settings == {"width": 8, "name": "7"}


def test_untyped_user_settings_are_read_plainly(user_module: str) -> None:
    workload = load(
        f"{user_module}:anything",
        settings={"a": "1", "b": "0.5", "c": "true", "d": "x", "e": "nan", "f": "inf"},
    )
    typed = {"a": 1, "b": 0.5, "c": True, "d": "x", "e": "nan", "f": "inf"}
    assert workload.args == (typed,)
    assert workload.settings == typed


def test_what_a_user_provider_may_return(user_module: str) -> None:
    keywords = load(f"{user_module}:keywords")
    assert keywords.args == ()
    assert keywords.kwargs["input"].shape == (2,)
    stepping = load(f"{user_module}:stepping", device="cpu", seed=7)
    assert stepping.step is not None
    assert stepping.step() == ("cpu", 7)
    assert load(f"{user_module}:whole").name == "my_models:whole"
    assert load(f"{user_module}:single").args[0].shape == (1,)
