"""Workloads made to fit a device: smaller tables, repeated batches."""

from __future__ import annotations

import warnings
from typing import Any

import pytest
import torch
from torch import nn

from cb_trace.capture.options import RecordOptions
from cb_trace.capture.record import record
from cb_trace.errors import CbTraceError
from cb_trace.providers import Workload, load
from cb_trace.providers.preprocess import Preprocessing, _small_tables
from cb_trace.providers.replicate import Replication

DEEPFM = {"batch": 4, "dense": 8, "hidden": 8, "width": 4, "tables": 3, "rows_min": 10}


class Sparse(nn.Module):
    """One table fed from an input's column, one from ids that are computed."""

    def __init__(self) -> None:
        super().__init__()
        self.given = nn.Embedding(1000, 2, padding_idx=999)
        self.hashed = nn.EmbeddingBag(1000, 2, mode="sum")
        self.small = nn.Embedding(5, 2)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        small = self.small(ids[:, 1] % 5)
        made: torch.Tensor = small + self.given(ids[:, 0]) + self.hashed((ids * 7) % 1000)
        return made


def sparse() -> Workload:
    return Workload("sparse", Sparse(), (torch.tensor([[999, 3], [14, 998]]),))


def prepared(build: Any = sparse, **what: int) -> Workload:
    return Preprocessing(**what).built(build, "cpu")


def test_tables_are_built_small_and_say_so() -> None:
    workload = prepared(table_rows=10)
    model: Any = workload.model
    assert [t.num_embeddings for t in (model.given, model.hashed, model.small)] == [10, 10, 5]
    assert model.given.weight.shape == (10, 2)
    assert model.given.padding_idx == 9
    assert {note.path: note.detail.partition(";")[0] for note in workload.notes} == {
        "given": "1,000 rows to 10",
        "hashed": "1,000 rows to 10",
    }
    assert workload.settings["shrink_tables"] == 10


@pytest.mark.parametrize("kind", [nn.Embedding, nn.EmbeddingBag])
def test_the_padding_row_is_where_its_id_is_folded_to(kind: Any) -> None:
    def made(*args: Any, **kwargs: Any) -> Any:
        with _small_tables(100):
            return kind(1005, 2, *args, **kwargs)

    assert made(padding_idx=1004).padding_idx == made(padding_idx=-1).padding_idx == 4
    if kind is nn.Embedding:
        assert made(1004).padding_idx == 4


def test_ids_of_an_input_are_folded_once_and_computed_ones_in_every_call() -> None:
    workload = prepared(table_rows=10)
    model: Any = workload.model
    # The column of the first table alone was folded: the other keeps what it held.
    assert workload.args[0].tolist() == [[9, 3], [4, 998]]
    assert (len(model.given._forward_pre_hooks), len(model.hashed._forward_pre_hooks)) == (0, 1)
    details = {note.path: note.detail for note in workload.notes}
    assert "ids in the inputs folded" in details["given"]
    assert "in every call, which adds an operator" in details["hashed"]
    ids = workload.args[0]
    wanted = model.small(ids[:, 1] % 5) + model.given.weight[ids[:, 0]]
    assert torch.equal(model(ids), wanted + model.hashed.weight[(ids * 7) % 1000 % 10].sum(1))


def test_embedding_is_itself_again_afterwards() -> None:
    prepared(table_rows=10)
    assert nn.Embedding(1000, 2).weight.shape == (1000, 2)


def test_a_provider_that_ships_takes_both_and_is_built_again_from_its_settings() -> None:
    settings = {**DEEPFM, "rows_max": 5000, "shrink_tables": 50, "full_batch": 12}
    workload = load("deepfm", settings=settings)
    tables: Any = workload.model.get_submodule("sparse_arch.embedding_bags")
    assert [table.num_embeddings for table in tables.values()] == [10, 50, 50]
    assert [note.reason for note in workload.notes] == [
        *("table shrunk", "table shrunk", "batch replicated")
    ]
    assert workload.model(*workload.args, **workload.kwargs).shape[0] == 12
    again = load("deepfm", settings=workload.settings)
    assert again.settings == workload.settings
    same = zip(workload.model.state_dict().values(), again.model.state_dict().values(), strict=True)
    assert all(torch.equal(a, b) for a, b in same)


def test_a_training_loss_follows_the_batch(tmp_path: Any) -> None:
    workload = load("deepfm", settings={**DEEPFM, "rows_max": 20, "full_batch": 8})
    options = RecordOptions(
        phase="train", replay=False, warmup=1, steps=1, bare_samples=1, bare_seconds=0.0
    )
    manifest = record(workload, tmp_path, options)
    (note,) = [n for n in manifest.notes if n.reason == "batch replicated"]
    assert "from 4 to 8" in note.detail
    assert manifest.run.settings["full_batch"] == 8


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"shrink_tables": "none"}, "shrink_tables must be a number of at least 1, not 'none'"),
        ({"full_batch": 0}, "full_batch must be a number of at least 1, not 0"),
        ({**DEEPFM, "rows_max": 20, "full_batch": 6}, "a batch of 4 cannot be replicated to 6"),
    ],
)
def test_what_cannot_be_is_refused(settings: Any, message: str) -> None:
    with pytest.raises(CbTraceError, match=message):
        load("deepfm", settings=settings)


def test_a_step_of_ones_own_cannot_be_replicated() -> None:
    def build() -> Workload:
        model = nn.Linear(2, 2)
        return Workload("own", model, (torch.ones(1, 2),), step=lambda: model(torch.ones(1, 2)))

    with pytest.raises(CbTraceError, match="has a step of its own"):
        prepared(build, batch=4)


def repeated(inputs: Any, batch: int) -> tuple[Any, str]:
    work = Replication("net", inputs, batch)
    return work.value(inputs), work.note("batch replicated").detail


def test_tensors_are_repeated_along_the_batch_and_others_left() -> None:
    x, mask = torch.tensor([[1.0], [2.0]]), torch.ones(3)
    out, detail = repeated({"x": x, "parts": [mask, x.int()], "scale": 2.0}, 4)
    assert out["x"].tolist() == [[1.0], [2.0], [1.0], [2.0]]
    assert out["parts"][0] is mask
    assert out["parts"][1].tolist() == [[1], [2], [1], [2]]
    assert out["scale"] == 2.0
    assert detail == (
        "2 inputs repeated 2 times, from 2 to 4; 1 without a batch dimension left as they are: "
        "caches meet the same rows again"
    )


@pytest.mark.parametrize(
    ("offsets", "wanted"),
    [([0, 2, 3], [0, 2, 3, 5, 6]), ([0, 2], [0, 2, 3, 5])],
)
def test_offsets_of_bags_go_on_counting(offsets: list[int], wanted: list[int]) -> None:
    bag = (torch.tensor([7, 8, 9]), torch.tensor(offsets))
    (ids, made), _ = repeated(([bag], torch.ones(2, 1)), 4)[0][0][0], None
    assert ids.tolist() == [7, 8, 9, 7, 8, 9]
    assert made.tolist() == wanted


def test_jagged_inputs_are_repeated_whole() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        parts = [torch.ones(2), torch.ones(3)]
        jagged = torch.nested.nested_tensor(parts, layout=torch.jagged)
    out, _ = repeated((jagged, torch.ones(2, 1)), 4)
    assert [len(part) for part in out[0].unbind()] == [2, 3, 2, 3]


class Keyed:
    """As a KeyedJaggedTensor: values by key, then by row."""

    def __init__(self, keys: Any, values: Any, weights: Any = None, lengths: Any = None) -> None:
        self._parts = (keys, values, weights, lengths)

    def keys(self) -> Any:
        return self._parts[0]

    def values(self) -> Any:
        return self._parts[1]

    def weights_or_none(self) -> Any:
        return self._parts[2]

    def lengths(self) -> Any:
        return self._parts[3]

    def stride(self) -> int:
        return len(self._parts[3]) // len(self._parts[0])


def test_keyed_inputs_are_repeated_key_by_key() -> None:
    keyed = Keyed(["a", "b"], torch.tensor([1, 2, 3, 4]), lengths=torch.tensor([2, 0, 1, 1]))
    out, _ = repeated((torch.ones(2, 1), keyed), 4)
    assert out[1].values().tolist() == [1, 2, 1, 2, 3, 4, 3, 4]
    assert out[1].lengths().tolist() == [2, 0, 2, 0, 1, 1, 1, 1]
    assert out[1].keys() == ["a", "b"]
