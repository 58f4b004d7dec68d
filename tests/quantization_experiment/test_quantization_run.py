"""Runs of the `quantization` experiment on tiny real models: every task, every method, and each mistake turns red."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import torch
from experiment_runs import Ran, run_experiment, run_in_turns

from lab.errors import BadInput
from lab.events import Event, Progress, Proof, decode_line, encode_line
from lab.events.evaluation import TextsChosen
from lab.events.quantization import (
    Coverage,
    ErrorHistogram,
    GridNote,
    LayerErrors,
    MapCells,
    ModelErrors,
    ParetoPoint,
    Sensitivity,
    WorstWeights,
)
from lab.events.quantization_methods import (
    ActivationRanges,
    FormatsTable,
    GptqReplay,
    LevelsShown,
    OutlierFeatures,
    ScaleSearch,
)
from lab.events.quantization_words import PackedFigures, PackedToken, QuantizedCache
from lab.events.words import Variant, WordsCompared, WordToken
from lab.experiments.quantization.extras import PLANTED_FEATURES
from lab.experiments.quantization.params import QuantizationParams
from lab.experiments.quantization.run import QuantizationRunner, make_runner

if TYPE_CHECKING:
    from lab.models.loading import LoadedModel

Tiny = Callable[..., "LoadedModel"]


def params(**values: Any) -> QuantizationParams:
    small = {"group_size": "16", "calibration_tokens": 64, "heldout_tokens": 48, "max_new_tokens": 10}
    return QuantizationParams(**{**small, **values})


def ran(model: LoadedModel, **values: Any) -> Ran:
    return run_experiment(make_runner(), model, params(**values))


def plain(event: Event) -> str:
    """An event without its times."""
    body = encode_line(event)
    times = ("ms", "decode_ms", "prefill_ms", "tokens_per_s", "speedup", "prefill_speedup")
    return ",".join(part for part in body.split(",") if not any(f'"{name}":' in part for name in times))


def test_a_layer_is_studied_at_every_group_size_that_fits(tiny: Tiny) -> None:
    run = ran(tiny(), layers=[0, 1], projection="down_proj", group_size="32")
    for layer in (0, 1):
        here = [h for h in run.of(ErrorHistogram) if h.layer == layer]
        assert [h.setting.share for h in here] == ["row", "32", "16"]  # rows of 64: "64" is "row"
        assert [h.chosen for h in here] == [False, True, False]
        assert len({(h.low, h.high) for h in here}) == 1
        for h in here:
            assert int(h.counts.numpy().sum()) + h.below + h.above == h.rows * h.columns == 32 * 64
            assert h.max_error <= h.half_step * (1 + 1e-5)
            assert h.clipped == 0
        assert [h.mean_square for h in here] == sorted((h.mean_square for h in here), reverse=True)
        assert [h.bits_per_weight for h in here] == [4 + 16 / 64, 4 + 16 / 32, 5]
    worst = run.of(WorstWeights)[0]
    chosen = next(h for h in run.of(ErrorHistogram) if h.chosen)
    errors = [abs(w.before - w.after) for w in worst.weights]
    assert errors == sorted(errors, reverse=True)
    assert errors[0] == pytest.approx(chosen.max_error, rel=1e-6)
    assert run.proof.verdict == "equal"
    assert run.proof.matched == run.proof.compared > 0


def test_the_three_errors_stand_together(tiny: Tiny) -> None:
    run = ran(tiny(), method="gptq", bits=3, projection="o_proj")
    errors = {e.setting.label: e for e in run.of(LayerErrors)}
    chosen = errors["GPTQ, 3 bits, groups of 16"]
    nearest = errors["round to nearest, 3 bits, groups of 16"]
    assert chosen.calibration_error is not None
    assert nearest.calibration_error is not None
    assert chosen.to_nearest == chosen.calibration_error / nearest.calibration_error < 1
    assert chosen.weight_error > nearest.weight_error
    measured = run.of(ModelErrors)
    assert {m.setting.label for m in measured} >= errors.keys() - {""} or len(measured) >= 2
    for m in measured:
        assert m.scope == "layer 0 o_proj alone"
        assert m.divergence.positions == 47
        assert 0 < m.divergence.kl <= m.divergence.worst_kl
        assert m.divergence.text_hash == run.of(TextsChosen)[0].texts[-1].hash
    calibration, held_out = run.of(TextsChosen)[0].texts
    assert (calibration.tokens, held_out.tokens) == (64, 48)
    assert calibration.hash != held_out.hash


@pytest.mark.parametrize(
    ("values", "event"),
    [
        ({"method": "nf4"}, LevelsShown),
        ({"method": "nf4", "double_quant": True}, LevelsShown),
        ({"method": "gptq"}, GptqReplay),
        ({"method": "gptq", "static_groups": False}, GptqReplay),
        ({"method": "awq"}, ScaleSearch),
        ({"method": "llm_int8"}, OutlierFeatures),
        ({"activations": "static_max"}, ActivationRanges),
        ({"method": "fp8_e4m3"}, FormatsTable),
        ({"method": "fp8_e5m2"}, FormatsTable),
        ({"method": "int8"}, FormatsTable),
        ({"method": "bfloat16"}, FormatsTable),
        ({"clip": "percentile"}, LevelsShown),
        ({"clip": "least_output_error"}, LevelsShown),
        ({"group_size": "tensor"}, LevelsShown),
        ({"kind": "asymmetric"}, FormatsTable),
    ],
)
def test_each_method_is_proved_and_shows_itself(tiny: Tiny, values: dict[str, Any], event: type[Event]) -> None:
    run = ran(tiny(), **values)
    assert run.proof.verdict == "equal", run.proof.explanation
    assert run.of(event)
    assert run.proof.matched == run.proof.compared > 0
    for one in run.events:
        assert encode_line(decode_line(encode_line(one))) == encode_line(one)
        assert len(encode_line(one)) < 256 * 1024


def test_the_replay_can_be_drawn_from_its_arrays(tiny: Tiny) -> None:
    replay = ran(tiny(), method="gptq", bits=3, projection="down_proj").of(GptqReplay)[0]
    original, turn, error = replay.original.numpy(), replay.at_turn.numpy(), replay.error.numpy()
    spread = replay.spread.numpy()
    assert replay.start == 0
    for k in range(len(replay.columns)):
        now = original[:, k] - error[:, :k] @ spread[:k, k]
        assert abs(now - turn[:, k]).max() < 1e-4
    assert abs(turn - replay.values.numpy() - error).max() == 0
    assert replay.final_loss.numpy().sum() < replay.nearest_loss.numpy().sum()


def test_under_grouped_queries_awq_says_that_it_cannot_fold(tiny: Tiny) -> None:
    refused = ran(tiny(), method="awq", projection="o_proj").of(ScaleSearch)[0]
    folded = ran(tiny(), method="awq", projection="q_proj").of(ScaleSearch)[0]
    assert "grouped queries" in refused.refused
    assert (refused.folded_into, folded.folded_into, folded.refused) == ("", "input_layernorm", "")
    assert min(folded.losses) <= folded.losses[0]


def test_planted_outliers_are_what_taking_apart_saves(tiny: Tiny) -> None:
    own, planted = ran(tiny(), method="llm_int8").of(OutlierFeatures)
    assert own.planted == 0 < planted.planted
    assert planted.count >= PLANTED_FEATURES
    assert planted.mixed_error < planted.pure_error / 3


@pytest.mark.parametrize("mistake", ["neighbour_scales", "codes_off_by_one", "nibbles_swapped", "missing_abs"])
@pytest.mark.parametrize("task", ["layer", "map", "words"])
def test_each_mistake_turns_the_proof_red(tiny: Tiny, task: str, mistake: str) -> None:
    run = ran(tiny(), task=task, break_run=mistake, max_new_tokens=3)
    assert run.proof.verdict == "different"
    assert "layer 0" in run.proof.explanation


@pytest.mark.parametrize("mistake", ["neighbour_scales", "codes_off_by_one", "nibbles_swapped"])
def test_each_mistake_of_packed_kernels_turns_the_proof_red(tiny: Tiny, mistake: str) -> None:
    run = ran(tiny(), task="packed", group_size="32", break_run=mistake, max_new_tokens=3)
    assert run.proof.verdict == "different"


@pytest.mark.parametrize("method", ["nearest", "gptq", "awq", "nf4", "llm_int8"])
def test_the_map_has_a_cell_for_each_matrix_and_a_point_for_each_layer(tiny: Tiny, method: str) -> None:
    model = tiny()
    run = ran(model, task="map", method=method)
    cells = [cell for event in run.of(MapCells) for cell in event.cells]
    assert len(cells) == len({(c.layer, c.projection) for c in cells}) == 14
    assert all(0 < c.weight_error < 1 and 0 < c.output_error < 1 for c in cells)
    assert [(s.layer, s.index, s.total) for s in run.of(Sensitivity)] == [(0, 0, 2), (1, 1, 2)]
    whole = run.of(ModelErrors)[0]
    assert whole.whole
    assert all(s.divergence.kl < whole.divergence.kl * 2 for s in run.of(Sensitivity))
    assert run.proof.verdict == "equal", run.proof.explanation
    assert run.proof.compared >= 84


def test_coverage_counts_every_parameter_once(tiny: Tiny) -> None:
    for kind in ("llama", "gpt2", "qwen2"):
        model = tiny(kind)
        coverage = ran(model, task="map").of(Coverage)[0]
        total = sum(p.numel() for p in {id(p): p for p in model.model.parameters()}.values())
        assert coverage.parameters == sum(row.parameters for row in coverage.rows) == total
        assert coverage.quantized_parameters == sum(row.parameters for row in coverage.rows if row.quantized)
        assert all(bool(row.reason) is not row.quantized for row in coverage.rows)
        assert coverage.dense_bytes == 4 * total
        assert coverage.model_bytes == sum(row.bytes for row in coverage.rows)
        assert sum(coverage.layer_bytes) * 8 / coverage.quantized_parameters == pytest.approx(5.0)
        assert coverage.layer_bits == (4.0, 4.0)
        assert coverage.truth == "simulated"


def test_mixed_precision_by_hand(tiny: Tiny) -> None:
    run = ran(tiny(), task="map", layer_bits="0:8,1:16")
    coverage = run.of(Coverage)[0]
    assert coverage.layer_bits == (8.0, 0.0)
    assert coverage.layer_bytes[1] == 0
    assert any("asked to stay dense" in row.reason for row in coverage.rows)
    assert [s.layer for s in run.of(Sensitivity)] == [0]


def test_pareto_comes_point_by_point(tiny: Tiny) -> None:
    run = ran(tiny(), task="pareto", methods="all", bits=4)
    points = run.of(ParetoPoint)
    assert [p.index for p in points] == list(range(points[0].total))
    assert points[0].chosen
    assert not any(p.chosen for p in points[1:])
    assert len({p.setting.label for p in points}) == len(points)
    assert {p.setting.method for p in points} == {"nearest", "nf4", "fp8_e4m3", "gptq", "awq"}
    by_label = {p.setting.label: p for p in points}
    eight, two = (
        by_label["round to nearest, 8 bits, one scale a row"],
        by_label["round to nearest, 2 bits, groups of 16"],
    )
    assert eight.divergence is not None
    assert two.divergence is not None
    assert eight.divergence.kl < two.divergence.kl
    assert eight.model_bytes > two.model_bytes
    progress = [e.done for e in run.of(Progress) if e.stage in by_label]
    assert progress == sorted(progress)


def test_words_stand_beside_words(tiny: Tiny) -> None:
    run = ran(tiny(), task="words", bits=2, cache_bits="2", residual=0, activations="dynamic_token", activation_bits=4)
    assert [v.name for v in run.of(Variant)] == ["dense", "weights", "activations", "cache", "everything"]
    rows = {v.name: [t for t in run.of(WordToken) if t.variant == v.name] for v in run.of(Variant)}
    for row in rows.values():
        assert [t.index for t in row] == list(range(len(row)))
        assert all(0 < t.p <= 1 and t.top[0].token_id == t.token_id for t in row)
    dense = [t.token_id for t in rows["dense"]]
    assert run.outcome.token_ids == tuple(dense)
    for compared in run.of(WordsCompared):
        assert [w.token_id for w in compared.words] == dense
        shown = [compared.words[i].kl for i in compared.order]
        assert shown == sorted(shown, reverse=True)
        own = [t.token_id for t in rows[compared.variant]]
        first = next((i for i, (a, b) in enumerate(zip(dense, own, strict=False)) if a != b), -1)
        assert compared.first_difference == first
        assert compared.words[0].flipped is (own[0] != dense[0])
    cache = run.of(QuantizedCache)[0]
    assert cache.code_bytes + cache.scale_bytes + cache.dense_bytes == sum(cache.layer_bytes)
    assert run.proof.verdict == "equal"
    assert "generate()" in run.proof.claim


def test_nothing_changed_is_no_difference(tiny: Tiny) -> None:
    compared = ran(tiny(), task="words", method="float16").of(WordsCompared)[0]
    assert compared.first_difference == -1
    assert compared.mean_kl < 1e-4


def test_packed_kernels_run_beside_the_dense_model(tiny: Tiny) -> None:
    run = ran(tiny(), task="packed", group_size="32")
    figures = {f.variant: f for f in run.of(PackedFigures)}
    assert list(figures) == ["dense", "int8", "int8_dense_head", "int4", "int4_dense_head"]
    for name, one in figures.items():
        assert one.of == 10
        assert one.steps == 9
        assert one.decode_ms > 0
        if name != "dense":
            assert one.reloaded is True
            assert one.disk_bytes > 0
            assert one.resident_bytes < figures["dense"].resident_bytes
    assert figures["dense"].speedup == 1
    tokens = run.of(PackedToken)
    assert [t.variant for t in tokens[:5]] == list(figures)  # by turns
    truths = {c.truth for c in run.of(Coverage)}
    assert truths == {"packed"}
    assert run.proof.verdict == "equal", run.proof.explanation


def test_the_models_own_grid_is_named_and_a_random_model_has_none(tiny: Tiny) -> None:
    note = ran(tiny()).of(GridNote)[0]
    assert (note.grid, note.words) == ("", "")
    assert note.changed > 0.5


def test_runs_that_take_turns_equal_each_alone(tiny: Tiny) -> None:
    model = tiny()
    settings = [params(method="gptq", bits=3), params(task="words"), params(task="map", method="awq")]
    alone = [run_experiment(make_runner(), model, one) for one in settings]
    together = run_in_turns(QuantizationRunner(), model, settings)
    for one, other in zip(alone, together, strict=True):
        kinds = (Progress, Coverage)
        ours, theirs = ([plain(e) for e in run.events if not isinstance(e, kinds)] for run in (one, other))
        assert ours == theirs


def test_the_shared_model_is_never_written(tiny: Tiny) -> None:
    model = tiny()
    before = {name: p.detach().clone() for name, p in model.model.named_parameters()}
    for task in ("layer", "map", "words", "packed"):
        proof = ran(model, task=task, group_size="32", max_new_tokens=3).proof
        assert proof.detail["model_sha256_before"] == proof.detail["model_sha256_after"] != ""
    after = dict(model.model.named_parameters())
    assert all(torch.equal(p, after[name]) for name, p in before.items())
    assert model.model.lm_head.weight is model.model.model.embed_tokens.weight  # type: ignore[union-attr]


def test_a_model_that_was_written_meanwhile_is_seen(tiny_directory: Callable[..., Any]) -> None:
    from lab.models.registry import load_model

    model = load_model(str(tiny_directory("llama", seed=5)), dtype="float32", device="cpu")
    runner = make_runner()
    from lab.experiments.base import RunContext

    run = runner.run(RunContext(model=model), params())
    proof: Proof | None = None
    for index, event in enumerate(run):
        if index == 5:
            with torch.no_grad():
                next(model.model.parameters()).view(-1)[7] += 1
        proof = event if isinstance(event, Proof) else proof
    assert proof is not None
    assert proof.verdict == "different"
    assert "not those that the run began with" in proof.explanation


def test_what_a_matrix_cannot_do_is_said_with_what_it_can(tiny: Tiny) -> None:
    with pytest.raises(BadInput, match=r"Groups of 64 do not fit rows of 32.*Choose 16, 32 or row"):
        ran(tiny(), group_size="64")
    with pytest.raises(BadInput, match=r"Groups of 128 do not divide rows of 64 weights. Choose 16, 32, 64 or 'row'\."):
        ran(tiny(), projection="down_proj", group_size="128")
    with pytest.raises(BadInput, match=r"Layer 0 of tiny-.* has no matrix 'c_attn'. It has q_proj"):
        ran(tiny(), projection="c_attn")
    with pytest.raises(BadInput, match="cannot be read"):
        ran(tiny(), text="/no/such/text.txt")


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("", "is empty"),
        ("A few words.", "has 12 characters; at least 200"),
        ("Said once, in words enough to be divided in three, and then said again. \n" * 6, "which are held out, stand"),
    ],
)
def test_a_text_that_cannot_serve_is_refused_before_the_run(
    tiny: Tiny, tmp_path: Path, body: str, message: str
) -> None:
    text, runner, facts = tmp_path / "mine.txt", make_runner(), tiny().facts
    text.write_text(body)
    learned = params(task="words", method="gptq", text=str(text))
    for asked in (*(params(task=task, text=str(text)) for task in ("layer", "map", "pareto")), learned):
        with pytest.raises(BadInput, match=message) as refused:
            runner.prepare(facts, asked)
        assert "mine.txt" in refused.value.message
        assert refused.value.remedy
        assert asked.file_hashes().keys() == {str(text)}
    for unread in (params(task="packed", text=str(text)), params(task="words", text=str(text))):
        runner.prepare(facts, unread)
        assert unread.file_hashes() == {}
    text.write_text("".join(f"Line {i} of a text that goes on.\n" for i in range(60)))
    runner.prepare(facts, learned)


def test_gpt2_keeps_its_matrices_the_other_way_round(tiny: Tiny) -> None:
    run = ran(tiny("gpt2"), projection="c_attn")
    histogram = run.of(ErrorHistogram)[0]
    assert (histogram.rows, histogram.columns) == (96, 32)
    assert run.proof.verdict == "equal"
    whole = ran(tiny("gpt2"), task="map").of(ModelErrors)[0]
    assert math.isfinite(whole.divergence.kl)
