"""Runs of the `lora` experiment on tiny real models: every task, every kind of model, and each mistake turns red."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import torch
from experiment_runs import Ran, run_in_turns
from lora_given import LINES, learn, made, on_disk, params, ran

from lab.events import Event, Progress, Proof, decode_line, encode_line
from lab.events.decoding import PromptEncoded
from lab.events.evaluation import TextsChosen
from lab.events.lora import (
    AdapterFacts,
    MergeFigures,
    OtherText,
    SwapRow,
    Trained,
    TrainingData,
    TrainStep,
    UpdateMap,
    UpdateSpectrum,
)
from lab.events.words import Variant, WordsCompared, WordToken
from lab.experiments.base import RunContext
from lab.experiments.lora.run import make_runner
from lab.lora.adapter import misfit
from lab.lora.peft_files import read_adapter

if TYPE_CHECKING:
    from lab.models.loading import LoadedModel

Tiny = Callable[..., "LoadedModel"]
TARGETS = {"llama": ("q_proj", "v_proj", "down_proj"), "gpt2": ("c_attn", "mlp.c_proj"), "qwen2": ("k_proj", "up_proj")}


def kinds(run: Ran) -> list[type[Event]]:
    """The classes of a run's events in order, each stretch once, progress left out."""
    found: list[type[Event]] = []
    for event in run.events:
        if not isinstance(event, Progress) and (not found or found[-1] is not type(event)):
            found.append(type(event))
    return found


@pytest.fixture
def llama(tiny: Tiny) -> LoadedModel:
    return tiny("llama")


@pytest.fixture
def given(tmp_path: Path, llama: LoadedModel) -> str:
    """An adapter of the tiny llama on disk."""
    return on_disk(tmp_path, made(llama))


def test_training_tells_every_step_and_the_words_before_and_after(llama: LoadedModel) -> None:
    run = learn(llama, targets="q_v", learning_rate=0.02)
    assert kinds(run) == [
        PromptEncoded, TrainingData, Variant, WordToken, TrainStep, Trained, AdapterFacts, UpdateMap, UpdateSpectrum,
        Variant, WordToken, WordsCompared, WordToken, Variant, WordToken, WordsCompared, WordToken, Proof,
    ]  # fmt: skip
    (data,) = run.of(TrainingData)
    assert (data.task, data.train_examples, data.heldout_examples) == ("own", 12, 2)
    assert data.examples[0] == ("the cache a", "keeps a now")
    steps = run.of(TrainStep)
    assert [step.step for step in steps] == [0, 1, 2, 3, 4, 5, 6]
    assert math.isnan(steps[0].loss)
    assert all(math.isfinite(step.loss) and step.tokens > 0 for step in steps[1:])
    assert all(step.heldout_loss is not None for step in steps)
    (trained,) = run.of(Trained)
    assert trained.base_untouched
    assert (trained.steps, trained.stopped) == (6, "")
    assert trained.heldout_before == steps[0].heldout_loss
    assert trained.heldout_after == min(s.heldout_loss for s in steps if s.heldout_loss is not None)
    assert trained.heldout_after < trained.heldout_before
    assert steps[trained.best_step].best
    assert trained.loss_before == steps[1].loss
    (facts,) = run.of(AdapterFacts)
    # q_proj 32 x 32 and v_proj 16 x 32, rank 4, two layers
    assert facts.parameters == 2 * (4 * 64 + 4 * 48)
    assert facts.matrix_parameters == 2 * (32 * 32 + 16 * 32)
    assert (facts.rank, facts.scale, facts.modules) == (4, 4.0, 4)
    assert facts.base_parameters == llama.facts.parameters
    assert (facts.matches, facts.effectless) == ("", "")
    (where,) = run.of(UpdateMap)
    assert where.projections == ("q_proj", "v_proj")
    assert where.norms.shape == (2, 2)
    assert (where.norms.numpy() > 0).all()
    assert run.proof.verdict == "equal"
    assert run.proof.compared == 4 * 8


@pytest.mark.parametrize(
    ("kind", "dtype"),
    [("llama", "float32"), ("gpt2", "float32"), ("qwen2", "float32"), ("llama", "bfloat16")],
)
@pytest.mark.parametrize("task", ["compare", "swap", "merge"])
def test_every_task_is_proven_on_every_kind_of_model(
    tiny: Tiny, tmp_path: Path, kind: str, dtype: str, task: str
) -> None:
    model = tiny(kind, dtype=dtype)
    path = on_disk(tmp_path, made(model, targets=TARGETS[kind]))
    run = ran(model, task=task, adapter=path)
    assert run.proof.verdict == "equal", run.proof.explanation
    assert run.proof.detail["dense_tokens"] == run.proof.detail["dense_tokens_equal"] > 0
    for event in run.events:
        assert encode_line(decode_line(encode_line(event))) == encode_line(event)


@pytest.mark.parametrize("kind", ["gpt2", "qwen2", "mistral"])
@pytest.mark.parametrize("targets", ["attention", "q_v", "mlp", "all"])
def test_other_models_learn_too(tiny: Tiny, kind: str, targets: str) -> None:
    run = learn(tiny(kind), targets=targets, steps=2)
    assert run.of(Trained)[0].base_untouched
    assert run.proof.verdict == "equal"
    assert run.of(AdapterFacts)[0].modules == len(run.of(UpdateSpectrum)[0].modules)


def test_three_rows_stand_on_one_axis(llama: LoadedModel, given: str) -> None:
    run = ran(llama, adapter=given)
    assert [v.name for v in run.of(Variant)] == ["dense", "adapter", "merged"]
    adapter, merged = run.of(WordsCompared)
    assert [w.token_id for w in adapter.words] == [t.token_id for t in run.of(WordToken) if t.variant == "dense"]
    assert adapter.mean_kl > 0.01
    for one, other in zip(adapter.words, merged.words, strict=True):
        assert one.q == pytest.approx(other.q, abs=1e-5)
    kl = [adapter.words[i].kl for i in adapter.order]
    assert kl == sorted(kl, reverse=True)
    (other_text,) = run.of(OtherText)
    assert other_text.divergence.kl > 0
    assert other_text.divergence.text_hash == run.of(TextsChosen)[0].texts[0].hash


def test_the_spectrum_says_what_is_lost(llama: LoadedModel, given: str) -> None:
    spectrum = ran(llama, adapter=given).of(UpdateSpectrum)[0]
    adapter = read_adapter(Path(given))
    assert spectrum.modules == tuple((n, p) for n in (0, 1) for p in ("q_proj", "v_proj", "down_proj"))
    names = {"q_proj": "self_attn.q_proj", "v_proj": "self_attn.v_proj", "down_proj": "mlp.down_proj"}
    for row, (layer, projection) in enumerate(spectrum.modules):
        delta = adapter.delta(f"model.layers.{layer}.{names[projection]}")
        u, s, v = torch.linalg.svd(delta, full_matrices=False)
        assert torch.tensor(spectrum.values.numpy()[row].copy()) == pytest.approx(s[:4], rel=1e-4)
        for k in range(5):
            kept = (u[:, :k] * s[:k]) @ v[:k]
            error = float((delta - kept).norm() / delta.norm())
            assert float(spectrum.kept_error.numpy()[row, k]) == pytest.approx(error, abs=1e-5)


def test_factor_zero_is_the_base_and_fewer_values_change_less(llama: LoadedModel, given: str) -> None:
    off = ran(llama, adapter=given, factor=0.0)
    assert all(c.mean_kl < 1e-6 for c in off.of(WordsCompared))
    full, cut = (ran(llama, adapter=given, keep_rank=k).of(WordsCompared)[0] for k in (0, 1))
    assert full.mean_kl != cut.mean_kl
    assert ran(llama, adapter=given, keep_rank=4).of(WordsCompared)[0].mean_kl == full.mean_kl


def test_swapping_goes_there_and_back(llama: LoadedModel, tmp_path: Path, given: str) -> None:
    other = on_disk(tmp_path, made(llama, targets=("o_proj",), rank=2, seed=5, name="other"))
    run = ran(llama, task="swap", adapter=given, second=other)
    rows = run.of(SwapRow)
    assert [row.adapter for row in rows[:4]] == ["", "made", "other", "made"]
    assert [row.index for row in rows] == list(range(8)) == list(range(rows[0].total))
    assert [row.same_again for row in rows] == [None, None, None, True] * 2
    assert rows[1].text == rows[3].text
    assert rows[0].text != rows[1].text
    assert {row.adapter: row.bytes for row in rows} == {"": 0, "made": made(llama).bytes, "other": 4 * 2 * 2 * 64}
    assert run.proof.detail["adapters_max_logit_difference"] > 0.1
    reversed_ = ran(llama, task="swap", adapter=given)
    assert [facts.alpha for facts in reversed_.of(AdapterFacts)] == [8.0, -8.0]


def test_merging_says_what_each_kind_of_base_loses(llama: LoadedModel, tmp_path: Path) -> None:
    given = on_disk(tmp_path, made(llama, size=0.02))
    run = ran(llama, task="merge", adapter=given)
    figures = {one.kind: one for one in run.of(MergeFigures)}
    assert list(figures) == ["float32", "bfloat16", "int4 dequantized", "int4 re-quantized"]
    plain, half, open_, again = figures.values()
    assert plain.lost < 1e-10 < half.lost < again.lost
    assert open_.lost < 1e-10
    assert plain.vanished == 0 <= half.vanished < again.vanished
    assert plain.max_logit_difference < half.max_logit_difference < again.max_logit_difference
    assert all(one.same_form for one in figures.values())
    assert plain.restored
    assert open_.restored
    assert not again.restored
    assert plain.decode_ms > 0
    assert plain.unmerged_decode_ms > 0
    assert plain.base_decode_ms > 0
    assert math.isnan(half.decode_ms)
    assert all(one.divergence is not None for one in figures.values())
    assert plain.divergence is not None
    assert again.divergence is not None
    assert plain.divergence.kl < 1e-6 < again.divergence.kl
    assert "int4" in again.base
    assert "MiB" in open_.base
    assert [one.kind for one in ran(llama, task="merge", adapter=given, base="int8").of(MergeFigures)][2:] == [
        "int8 dequantized",
        "int8 re-quantized",
    ]


@pytest.mark.parametrize("mistake", ["scale_of_another_rank", "merged_twice", "transposed"])
@pytest.mark.parametrize("task", ["compare", "swap", "merge"])
def test_each_mistake_turns_the_proof_red(llama: LoadedModel, given: str, mistake: str, task: str) -> None:
    proof = ran(llama, adapter=given, task=task, break_run=mistake).proof
    assert proof.verdict == "different"
    assert proof.matched < proof.compared
    assert "runs" in proof.explanation
    assert "between merged and unmerged" in proof.explanation


@pytest.mark.parametrize("mistake", ["scale_of_another_rank", "merged_twice", "transposed"])
def test_mistakes_show_in_bfloat16_and_in_transposed_weights(tiny: Tiny, tmp_path: Path, mistake: str) -> None:
    for kind, dtype in (("llama", "bfloat16"), ("gpt2", "float32")):
        model = tiny(kind, dtype=dtype)
        path = on_disk(tmp_path, made(model, targets=TARGETS[kind], name=f"{kind}-{dtype}"))
        assert ran(model, adapter=path, break_run=mistake).proof.verdict == "different"


def test_a_trained_base_is_seen(llama: LoadedModel) -> None:
    run = learn(llama, break_run="base_trained")
    assert not run.of(Trained)[0].base_untouched
    assert run.proof.verdict == "different"
    assert "not the one that the run began with" in run.proof.explanation
    # the shared model itself was spared
    assert run.proof.detail["model_sha256_before"] == run.proof.detail["model_sha256_after"]
    assert learn(llama).proof.verdict == "equal"


def test_training_is_the_same_again_and_beside_other_runs(llama: LoadedModel, given: str) -> None:
    settings = [
        params(llama, task="train", learn="lines", lines=LINES, steps=4, batch=4, rank=2),
        params(llama, adapter=given),
        params(llama, adapter=given, task="swap"),
    ]
    together = run_in_turns(make_runner(), llama, settings)
    for run, setting in zip(together, settings, strict=True):
        alone = run_in_turns(make_runner(), llama, [setting])[0]
        assert _plain(run.events) == _plain(alone.events)


def _plain(events: Iterable[Event]) -> list[str]:
    """What was found: without times, and without how often progress was told, which is a matter of time too."""
    timed = ("ms", "seconds", "switch_ms")
    lines = [encode_line(event) for event in events if not isinstance(event, Progress)]
    return [",".join(p for p in line.split(",") if not any(f'"{n}":' in p for n in timed)) for line in lines]


def test_a_kept_adapter_can_be_chosen(llama: LoadedModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LAB_CACHE_DIR", str(tmp_path))
    run = learn(llama, save="mine", learning_rate=0.02)
    assert "mine" in run.of(AdapterFacts)[0].notes[0]
    stored = read_adapter(tmp_path / "adapters" / "mine")
    assert stored.name == "mine"
    assert misfit(stored, llama.model) == ""
    after = ran(llama, adapter="mine")
    assert [t.token_id for t in after.of(WordToken) if t.variant == "adapter"] == [
        t.token_id for t in run.of(WordToken) if t.variant == "adapter"
    ]


def test_without_held_out_lines_the_last_step_is_kept(llama: LoadedModel) -> None:
    run = learn(llama, lines="\n".join(LINES.splitlines()[:6]), steps=3)
    (trained,) = run.of(Trained)
    assert math.isnan(trained.heldout_before)
    assert trained.best_step == 3
    assert all(step.heldout_loss is None and not step.best for step in run.of(TrainStep))


def test_a_loss_that_is_no_number_is_told(llama: LoadedModel, monkeypatch: pytest.MonkeyPatch) -> None:
    from lab.lora.train import Training

    real = Training._gradient

    def broken(self: Any, rows: Any) -> Any:
        loss = yield from real(self, rows)
        return math.nan if self._done == 2 else loss

    monkeypatch.setattr(Training, "_gradient", broken)
    (trained,) = learn(llama).of(Trained)
    assert trained.stopped == "the loss was no number"
    assert trained.steps == 2


def test_time_that_is_over_ends_a_training_with_what_it_has(
    llama: LoadedModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    from lab.experiments.compared import ending

    monkeypatch.setattr(ending, "MOST_SECONDS", 0.0)
    run = learn(llama, steps=500)
    (trained,) = run.of(Trained)
    assert (trained.steps, trained.stopped) == (1, "0 minutes were over")
    assert run.proof.verdict == "equal"


@pytest.mark.parametrize("mistake", ["scale_of_another_rank", "merged_twice", "transposed"])
def test_mistakes_show_after_training_too(llama: LoadedModel, mistake: str) -> None:
    run = learn(llama, break_run=mistake, learning_rate=0.02)
    assert run.proof.verdict == "different"
    assert run.of(Trained)[0].base_untouched


@pytest.mark.parametrize("task", ["compare", "merge"])
def test_a_tied_head_is_adapted_apart_from_the_embedding(llama: LoadedModel, tmp_path: Path, task: str) -> None:
    assert llama.facts.tied
    path = on_disk(tmp_path, made(llama, targets=("lm_head", "q_proj")))
    run = ran(llama, task=task, adapter=path)
    assert run.proof.verdict == "equal", run.proof.explanation
    assert "lm_head" in run.of(AdapterFacts)[0].notes[0]
    assert run.of(UpdateSpectrum)[0].modules[-1] == (-1, "lm_head")
    assert run.of(UpdateMap)[0].projections == ("q_proj",)
    assert run.proof.detail["tied"]


def test_no_mode_is_held_across_a_pause(llama: LoadedModel, given: str) -> None:
    settings = [params(llama, adapter=given, task=task) for task in ("compare", "swap", "merge")]
    settings.append(params(llama, task="train", learn="lines", lines=LINES, steps=2, batch=4, rank=2))
    for setting in settings:
        for _ in make_runner().run(RunContext(model=llama), setting):
            assert not torch.is_inference_mode_enabled()
            assert torch.is_grad_enabled()


def test_a_cut_adapter_says_how_much_is_gone(llama: LoadedModel, given: str) -> None:
    run = ran(llama, adapter=given, keep_rank=1)
    (note,) = next(v for v in run.of(Variant) if v.name == "adapter").notes
    error = run.ask("truncate", rank=1)["error"]
    assert f"{error:.0%} of it is cut" in note
    answer = run.ask("scale", factor=1.0)
    for word, token in zip(run.of(WordsCompared)[0].words, answer["tokens"], strict=True):
        assert token["p"] == pytest.approx(word.q, abs=1e-5)


@pytest.mark.parametrize(("before", "better"), [(1.25, True), (1.5, True), (2.0, False), (None, False)])
def test_where_the_base_is_better_that_is_told(llama: LoadedModel, before: float | None, *, better: bool) -> None:
    from lab.experiments.lora import learn as task
    from lab.lora.trained import Trained as Kept

    kept = Kept(made(llama), 4, 6, 0.5, 1.5, before, "steps", True, 1.0)
    told = task._ended(kept, [3.0], "", untouched=True)
    assert (told.best_step, told.heldout_after) == (4, 1.5)
    notes = task._notes(kept)
    assert bool(notes) is better
    assert all(f"better: {before:.4g} nats" in note and "trained: 1.5" in note for note in notes)
