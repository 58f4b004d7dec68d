"""What a figure of a `quantization` run says is what was measured: windows, mixed products, axes, words."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import torch
from experiment_runs import Ran, run_experiment

from lab.backend.local import LocalBackend
from lab.backend.protocol import RunRequest
from lab.backend.store import RunStore
from lab.evaluation.tokens import Tokens
from lab.events import RunFinished, RunStarted
from lab.events.evaluation import TextsChosen
from lab.events.quantization import Coverage, ErrorHistogram, LayerErrors, MapCells, ModelErrors
from lab.events.quantization_methods import OutlierFeatures, ScaleSearch
from lab.events.quantization_words import PackedToken
from lab.events.words import Variant, WordsCompared
from lab.experiments.base import RunContext
from lab.experiments.compared import texts
from lab.experiments.compared.texts import WINDOW, cut
from lab.experiments.quantization import map, packed, voices  # noqa: A004 - a task's own name
from lab.experiments.quantization.packed_proof import OUTPUT_TOLERANCE, PRODUCT_TOLERANCE, product_error
from lab.experiments.quantization.params import QuantizationParams
from lab.experiments.quantization.run import make_runner
from lab.experiments.quantization.settings import Scheme
from lab.experiments.quantization.setup import Setup
from lab.quantization.activations import calibrate_ranges
from lab.quantization.packed.int8 import quantize_int8
from lab.quantization.packed.modules import PackedLinear
from lab.steps import finished

if TYPE_CHECKING:
    from lab.models.loading import LoadedModel

Tiny = Callable[..., "LoadedModel"]


def params(**values: Any) -> QuantizationParams:
    small = {"group_size": "16", "calibration_tokens": 64, "heldout_tokens": 48, "max_new_tokens": 4}
    return QuantizationParams(**{**small, **values})


def ran(model: LoadedModel, **values: Any) -> Ran:
    return run_experiment(make_runner(), model, params(**values))


def tokens(count: int, prefix: tuple[int, ...] = ()) -> Tokens:
    return Tokens(tuple(range(count)), (1,) * count, prefix, "0" * 12, "a text")


@pytest.mark.parametrize("prefix", [(), (7,)])
@pytest.mark.parametrize("count", [1, WINDOW - 1, WINDOW, WINDOW + 20, 4 * WINDOW])
def test_windows_hold_the_whole_text_each_behind_the_prefix(count: int, prefix: tuple[int, ...]) -> None:
    windows = cut(tokens(count, prefix))
    assert all(tuple(w[: len(prefix)]) == prefix for w in windows)
    assert [t for w in windows for t in w[len(prefix) :]] == list(range(count))
    assert all(len(w) == WINDOW for w in windows[:-1])
    assert len(windows[-1]) < WINDOW + WINDOW // 8


@pytest.mark.parametrize(("task", "gathers"), [("layer", texts), ("map", map)])
def test_held_out_inputs_are_gathered_window_by_window(
    tiny: Tiny, task: str, gathers: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[list[int]] = []

    def watched(model: Any, windows: list[list[int]], names: Any, **options: Any) -> Any:
        seen.append([len(w) for w in windows])
        return original(model, windows, names, **options)

    original = gathers.calibrating
    monkeypatch.setattr(gathers, "calibrating", watched)
    monkeypatch.setattr("lab.experiments.compared.texts.WINDOW", 32)
    ran(tiny(), task=task, heldout_tokens=96)
    assert seen[-1] == [32, 32, 32]


def test_the_threshold_of_llm_int8_moves_its_errors(tiny: Tiny) -> None:
    model = tiny()
    none, all_apart = (ran(model, method="llm_int8", threshold=t) for t in (0.0, 1e-6))
    for event, name in ((LayerErrors, "heldout_error"), (ModelErrors, "mean_output_error")):
        worse, better = (getattr(run.of(event)[0], name) for run in (none, all_apart))
        assert better < worse / 100
    worse, better = (run.of(ModelErrors)[0].divergence.kl for run in (none, all_apart))
    assert better < worse / 100
    worse, better = (
        ran(model, method="llm_int8", threshold=t, task="map").of(MapCells)[0].cells[0].output_error for t in (0, 1e-6)
    )
    assert better < worse / 100


def test_the_words_of_llm_int8_without_a_threshold_promise_nothing(tiny: Tiny) -> None:
    found = ran(tiny(), method="llm_int8", threshold=0.0).of(OutlierFeatures)
    assert all("nothing is taken apart" in one.words and "saves" not in one.words for one in found)


def test_llm_int8_and_rounded_inputs_together_are_not_the_weights_alone(tiny: Tiny) -> None:
    run = ran(tiny(), task="words", method="llm_int8", activations="dynamic_tensor", activation_bits=3)
    kl = {c.variant: c.mean_kl for c in run.of(WordsCompared)}
    assert kl["everything"] > 5 * kl["weights"]


def test_awq_with_static_ranges_is_calibrated_on_what_its_modules_read(
    tiny: Tiny, monkeypatch: pytest.MonkeyPatch
) -> None:
    models: list[Any] = []
    original = calibrate_ranges

    def watched(model: Any, *others: Any) -> Any:
        models.append(model)
        return original(model, *others)

    monkeypatch.setattr(voices, "calibrate_ranges", watched)
    loaded = tiny()
    for method, wanted in (("awq", 2), ("nearest", 1)):
        models.clear()
        ran(loaded, task="words", method=method, activations="static_max")
        assert len(models) == wanted
        assert models[0] is loaded.model
        assert models[-1] is loaded.model or method == "awq"


def test_the_map_of_awq_is_measured_on_held_out_text(tiny: Tiny) -> None:
    """One layer's matrices by plain arithmetic on the dense model's held-out inputs."""
    run = ran(tiny(), task="map", method="awq")
    cells = [cell for event in run.of(MapCells) for cell in event.cells]
    assert all(0 < c.output_error < 1 and 0 < c.max_error < 1 for c in cells)
    other = ran(tiny(), task="map", method="awq", heldout_tokens=24)
    again = [cell for event in other.of(MapCells) for cell in event.cells]
    assert [c.weight_error for c in again] == [c.weight_error for c in cells]
    assert all(a.output_error != b.output_error for a, b in zip(cells, again, strict=True))


@pytest.mark.parametrize("method", ["gptq", "awq"])
def test_methods_that_move_weights_claim_no_bound(tiny: Tiny, method: str) -> None:
    chosen = next(h for h in ran(tiny(), method=method).of(ErrorHistogram) if h.chosen)
    assert math.isnan(chosen.half_step)
    assert chosen.clipped is None


@pytest.mark.parametrize("method", ["nf4", "fp8_e5m2", "float16"])
def test_the_common_axis_holds_the_largest_error_of_all(tiny: Tiny, method: str) -> None:
    found = ran(tiny(), method=method).of(ErrorHistogram)
    assert len({h.high for h in found}) == 1
    assert max(h.max_error for h in found) <= found[0].high
    assert all(h.below == h.above == 0 for h in found)


def test_awq_does_not_clip_queries_and_keys(tiny: Tiny) -> None:
    def plain(values: dict[str, Any]) -> list[float]:
        return [e.weight_error for e in ran(tiny(), method="awq", bits=3, **values).of(LayerErrors)]

    assert plain({"projection": "q_proj"}) == plain({"projection": "q_proj", "awq_clip": False})
    assert plain({"projection": "down_proj"}) != plain({"projection": "down_proj", "awq_clip": False})
    assert ran(tiny(), method="awq").of(ScaleSearch)


def test_a_packed_tied_head_leaves_the_embedding_a_row_of_its_own(tiny: Tiny) -> None:
    rows = {row.name: row for row in ran(tiny(), task="packed", group_size="32").of(Coverage)[0].rows}
    assert rows["embedding"].reason == "looked up; the head is packed by itself"
    assert rows["head"].quantized


def test_one_wrong_scale_turns_the_packed_proof_red(tiny: Tiny, monkeypatch: pytest.MonkeyPatch) -> None:
    original = packed.PackedRun._packed

    def swapped(self: Any, *args: Any) -> Any:
        made = yield from original(self, *args)
        assert not isinstance(made, str)
        modules = [m for m in made.shell.modules() if isinstance(m, PackedLinear)]
        weight: Any = modules[3].weight_codes
        scales = weight.scales.clone()
        if weight.bits == 8:
            low, high = int(scales.argmin()), int(scales.argmax())
            scales[[low, high]] = scales[[high, low]]
            modules[3].weight_codes = replace(weight, scales=scales)
        return made

    assert ran(tiny(), task="packed", group_size="32").proof.verdict == "equal"
    monkeypatch.setattr(packed.PackedRun, "_packed", swapped)
    proof = ran(tiny(), task="packed", group_size="32").proof
    assert proof.verdict == "different"
    assert "a product of 1 row is off" in proof.explanation


def test_other_group_sizes_than_the_kernel_has_are_named(tiny: Tiny) -> None:
    for size, told in (("row", True), ("16", True), ("32", False)):
        notes = [n for v in ran(tiny(), task="packed", group_size=size).of(Variant) for n in v.notes]
        assert any(f"not {size!r}" in note for note in notes) is told


def test_the_last_packed_token_holds_what_is_left_of_a_character(tiny: Tiny) -> None:
    model = tiny()
    run = ran(model, task="packed", group_size="32", max_new_tokens=7)
    tokenizer: Any = model.tokenizer
    for name in {t.variant for t in run.of(PackedToken)}:
        mine = [t for t in run.of(PackedToken) if t.variant == name]
        whole = tokenizer.decode([t.token_id for t in mine], skip_special_tokens=False)
        assert "".join(t.text for t in mine).strip() == whole.strip()


def test_the_label_speaks_of_mixed_bits_only_where_they_are_used() -> None:
    labels = {task: Scheme.of(params(task=task, layer_bits="0:8")).setting.label for task in ("layer", "map")}
    assert "some layers otherwise" not in labels["layer"]
    assert "some layers otherwise" in labels["map"]


def test_the_plot_ranks_by_weight_error_too(tiny: Tiny, monkeypatch: pytest.MonkeyPatch) -> None:
    from lab.experiments.quantization import pareto
    from lab.experiments.quantization.ranking import Ranked

    seen: list[Ranked] = []
    monkeypatch.setattr(pareto, "disagreement", lambda ranked: seen.extend(ranked))
    ran(tiny(), task="pareto")
    assert len(seen) > 2
    assert all(one.weight_error is not None and 0 < one.weight_error < 1 for one in seen)


def test_a_run_with_a_prefix_reads_calibration_text_behind_it(tiny: Tiny, monkeypatch: pytest.MonkeyPatch) -> None:
    setup = Setup(RunContext(model=tiny()), params())
    monkeypatch.setattr("lab.evaluation.tokens._prefix", lambda _: (5,))
    choosing = setup.texts.choose(calibration=True)
    while True:
        try:
            next(choosing)
        except StopIteration as end:
            windows = end.value
            break
    assert [w[0] for w in windows] == [5] * len(windows)
    assert torch.tensor(windows[0]).numel() == 65


def test_a_changed_text_file_is_another_run(tiny_directory: Callable[..., Path], tmp_path: Path) -> None:
    text = tmp_path / "mine.txt"
    backend = LocalBackend(store=RunStore(tmp_path, 10**8))

    def asked() -> tuple[RunStarted, TextsChosen]:
        values = params(text=str(text)).model_dump(mode="json")
        request = RunRequest(experiment="quantization", model=str(tiny_directory("llama")), device="cpu", params=values)
        events = list(backend.run(request))
        assert isinstance(events[-1], RunFinished), events[-1]
        return next(e for e in events if isinstance(e, RunStarted)), next(
            e for e in events if isinstance(e, TextsChosen)
        )

    try:
        text.write_text("".join(f"One line of words and figures, 1 to {i}.\n" for i in range(60)))
        first, old = asked()
        again, _ = asked()
        assert again.recorded
        assert again.card == first.card
        text.write_text("".join(f"Quite another line, number {i}, of other words alone.\n" for i in range(60)))
        other, new = asked()
    finally:
        backend.close()
    assert not other.recorded
    assert other.card.files.keys() == {str(text)}
    assert [t.hash for t in old.texts] != [t.hash for t in new.texts]


def test_a_run_without_a_file_keeps_its_identity() -> None:
    assert params().file_hashes() == params(text="topics").file_hashes() == {}
    assert params(text="/no/such/file").file_hashes() == {"/no/such/file": ""}
    assert params(text="/dev/null").file_hashes() != params(text="/dev/null").file_hashes()


@pytest.mark.parametrize("few", [True, False])
def test_one_wrong_row_of_a_tall_matrix_is_seen(few: bool) -> None:
    weight = torch.randn(49_152, 64, generator=torch.Generator().manual_seed(0)) / 8
    made = quantize_int8(weight)
    values, rows = made.dense(0, len(weight)), 1 if few else made.few + 1
    share, _, off = finished(product_error(PackedLinear(made, None), values, rows, 0, torch.float32))
    assert share <= PRODUCT_TOLERANCE
    assert off <= OUTPUT_TOLERANCE
    scales = made.scales.clone()
    scales[40_000] *= 1.25
    broken = PackedLinear(replace(made, scales=scales), None)
    share, output, off = finished(product_error(broken, values, rows, 0, torch.float32))
    assert share <= PRODUCT_TOLERANCE  # the norm of the whole product does not tell
    assert output == 40_000
    assert off > OUTPUT_TOLERANCE


def test_a_row_of_zeros_is_no_wrong_row() -> None:
    weight = torch.randn(64, 64, generator=torch.Generator().manual_seed(0))
    weight[3] = 0
    made = quantize_int8(weight)
    _, _, off = finished(product_error(PackedLinear(made, None), made.dense(0, 64), 1, 0, torch.float32))
    assert off <= OUTPUT_TOLERANCE
