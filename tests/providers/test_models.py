"""The models that ship: their module names, their arithmetic, their inputs."""

from __future__ import annotations

import pytest
import torch

from cb_trace.providers import dlrm, load, provider
from cb_trace.providers.deepfm import Config, FactorizationMachine


def test_nanogpt_has_the_names_and_sizes_of_gpt2() -> None:
    with torch.device("meta"):
        config = provider("nanogpt").presets["gpt2"]
        model, (ids,), _ = provider("nanogpt").build(config, "meta")
    block = 2 * 2 * 768 + 768 * 2304 + 2304 + 768 * 768 + 768 + 2 * 768 * 3072 + 3072 + 768
    tables = 50_304 * 768 + 1024 * 768  # the head shares the first
    assert sum(p.numel() for p in model.parameters()) == tables + 12 * block + 2 * 768
    assert ids.shape == (8, 1024)
    names = dict(model.named_modules())
    parts = ("ln_1", "attn", "attn.c_attn", "attn.c_proj", "ln_2", "mlp", "mlp.c_fc", "mlp.gelu")
    assert {f"h.11.{part}" for part in (*parts, "mlp.c_proj")} <= names.keys()
    assert model.lm_head.weight is model.wte.weight


def test_nanogpt_is_causal_and_answers_every_position() -> None:
    workload = load("nanogpt")
    (ids,) = workload.args
    changed = ids.clone()
    changed[:, 40] = (ids[:, 40] + 1) % 1024
    with torch.no_grad():
        before, after = workload.model(ids), workload.model(changed)
    assert before.shape == (4, 64, 1024)
    assert torch.allclose(before[:, :40], after[:, :40], atol=1e-6)
    assert not torch.allclose(before[:, 40:], after[:, 40:], atol=1e-3)


def test_factorisation_machine_is_the_sum_over_pairs() -> None:
    features = torch.tensor([[1.0, 2.0, 3.0], [0.0, -1.0, 5.0]])
    # 1·2 + 1·3 + 2·3 and 0·−1 + 0·5 + −1·5
    assert FactorizationMachine()(features).tolist() == [[11.0], [-5.0]]


def test_deepfm_has_the_names_of_the_published_model() -> None:
    workload = load("deepfm")
    names = dict(workload.model.named_modules())
    wanted = {"dense_arch", "sparse_arch", "inter_arch", "inter_arch.deep_fm", "inter_arch.fm"}
    assert wanted | {"over_arch", "sparse_arch.embedding_bags.t_3"} <= names.keys()
    with torch.no_grad():
        out = workload.model(*workload.args)
    assert out.shape == (64, 1)
    assert bool(((out > 0) & (out < 1)).all())


def test_paper_preset_has_the_published_shape() -> None:
    config: Config = provider("deepfm").presets["paper"]
    assert (config.dense, config.hidden, config.width, config.tables) == (1024, 4096, 512, 26)
    rows = [config.rows(table) for table in range(config.tables)]
    assert (rows[0], rows[-1]) == (100_000, 1_000_000)
    assert rows == sorted(rows)
    assert sum(rows) * config.width * 4 < 30e9  # bytes: the tables fit one device


def test_ids_are_skewed_in_range_and_in_uneven_bags() -> None:
    config: Config = provider("deepfm").presets["tiny"]
    workload = load("deepfm", settings={"batch": 2048})
    for table, (ids, offsets) in enumerate(workload.args[1]):
        rows = config.rows(table)
        assert int(ids.min()) >= 0
        assert int(ids.max()) < rows
        counts = ids.bincount(minlength=rows).sort(descending=True).values
        assert int(counts[: rows // 100].sum()) > 0.3 * len(ids)  # uniform would give 1 %
        lengths = offsets.diff()
        assert (int(lengths.min()), int(lengths.max())) == (0, 2 * config.pooling)
        assert int(offsets[-1]) == len(ids)


def test_dlrm_crosses_every_pair_of_features_once() -> None:
    dense = torch.tensor([[1.0, 2.0]])
    sparse = torch.tensor([[[3.0, 0.0], [0.0, 5.0]]])
    crossed = dlrm.InteractionArch(3)(dense, sparse)
    assert crossed.tolist() == [[1.0, 2.0, 3.0, 10.0, 0.0]]  # dense, then 1·2, 1·3, 2·3


@pytest.mark.parametrize(
    ("preset", "tables", "crosses", "mega_flops", "bytes_per_sample"),
    [("default", 8, 100, 5.00, 204_800), ("ddp", 8, 164, 1.60, 40_960),
     ("mlperf", 26, 479, 4.92, 13_312)],
)  # fmt: skip
def test_dlrm_presets_have_the_published_shapes(
    preset: str, tables: int, crosses: int, mega_flops: float, bytes_per_sample: int
) -> None:
    config: dlrm.Config = provider("dlrm").presets[preset]
    assert len(config.tables) == tables
    assert tables * config.pooling * config.width * 4 == bytes_per_sample
    with torch.device("meta"):
        model = dlrm.DLRM(config)
    linear = [module for module in model.modules() if isinstance(module, torch.nn.Linear)]
    assert model.over_arch.model[0].in_features == crosses
    dots = 2 * (tables + 1) ** 2 * config.width
    flops = dots + sum(2 * layer.in_features * layer.out_features for layer in linear)
    assert round(flops / 1e6, 2) == mega_flops
    assert isinstance(model.over_arch.model[-1], torch.nn.Linear)


def test_dlrm_runs_the_same_with_and_without_overlap_on_a_cpu() -> None:
    plain, beside = (load("dlrm", settings={"overlap": overlap}) for overlap in (False, True))
    assert beside.settings["overlap"] is True
    assert beside.settings["rows"] == "500x3,2000"
    with torch.no_grad():
        outputs = [workload.model(*workload.args) for workload in (plain, beside)]
    assert outputs[0].shape == (64, 1)
    assert torch.equal(*outputs)


def test_dlrm_cuts_tables_that_do_not_fit() -> None:
    config = provider("dlrm").presets["mlperf"]
    assert max(config.tables) == 40_000_000
    capped = load("dlrm", settings={"rows": "3,5000", "rows_cap": "1000"})
    tables = capped.model.get_submodule("sparse_arch.embedding_bags").children()
    assert [table.num_embeddings for table in tables] == [3, 1000]
