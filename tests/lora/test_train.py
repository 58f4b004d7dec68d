"""Training against peft with a plain loop, what it must never touch, and what is left when it ends early."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from benchmarks.lora import PlainLoop
from lab.errors import BadInput, ModelError
from lab.lora.adamw import AdamW, rate_at
from lab.lora.adapter import Adapter, Factors, LoraConfig, new_adapter
from lab.lora.batches import Tokenized, encode_examples
from lab.lora.task_files import parse_lines
from lab.lora.train import Training, training
from lab.lora.trained import TrainingData, TrainSettings, TrainStep
from lab.lora.training_pass import LowRank
from lab.models.loading import LoadedModel
from lab.steps import finished

LINES = parse_lines("\n".join(f"the key {i} => values {'so far ' * (i % 3)}{i % 5}" for i in range(14)))
SETTINGS = TrainSettings(steps=8, learning_rate=5e-3, warmup=2, batch=4, measure_every=4)
TARGETS = {
    "llama": ("q_proj", "v_proj", "down_proj"),
    "gpt2": ("c_attn", "mlp.c_proj"),
    "mistral": ("k_proj", "lm_head"),
    "gemma2": ("v_proj",),
}
FILE = Path(__file__).parent / "golden" / "train.json"
FROZEN: dict[str, Any] = json.loads(FILE.read_text()) if FILE.is_file() else {}
"""Of peft 0.21.2 with a plain torch loop; made by `golden/make_train.py`."""
QUIET = pytest.mark.filterwarnings(
    "ignore:.*is_gradient_checkpointing.*:FutureWarning", "ignore:fan_in_fan_out is set to False:UserWarning"
)


def data_of(loaded: LoadedModel) -> TrainingData:
    return TrainingData(encode_examples(loaded, LINES[:10]), encode_examples(loaded, LINES[10:]))


def fresh(loaded: LoadedModel, kind: str = "llama", *, alpha: float = 8, seed: int = 0) -> Adapter:
    return new_adapter(loaded.model, LoraConfig(4, alpha, TARGETS[kind]), seed)


def all_steps(run: Training) -> list[TrainStep]:
    return [step for step in run.steps() if step is not None]


def equal(first: Adapter, second: Adapter) -> bool:
    return all(
        torch.equal(x, y)
        for name in first.tensors
        for x, y in zip(first.tensors[name], second.tensors[name], strict=True)
    )


@pytest.mark.parametrize(("kind", "packed"), [("llama", True), ("gpt2", True), ("mistral", False), ("gemma2", False)])
def test_losses_are_those_of_peft_and_a_plain_loop(
    tiny: Callable[..., LoadedModel], kind: str, *, packed: bool
) -> None:
    loaded = tiny(kind)
    start, theirs = fresh(loaded, kind), FROZEN[kind]["losses"]
    run = Training(loaded.model, start, data_of(loaded), SETTINGS)
    ours = [step.loss for step in all_steps(run) if step.loss is not None]
    assert run.trained().packed is packed  # a window of 8 or a capped kernel does not take the tree
    assert ours == pytest.approx(theirs, abs=2e-4)
    assert FROZEN[kind]["trainable"] == start.parameters
    assert theirs[-1] < theirs[0]


@QUIET
@pytest.mark.parametrize("kind", ["llama", "gpt2", "mistral", "gemma2"])
def test_the_frozen_losses_are_those_of_the_library_itself(tiny: Callable[..., LoadedModel], kind: str) -> None:
    pytest.importorskip("peft", reason="the extra `oracles` is not installed")
    loaded = tiny(kind)
    plain = PlainLoop(loaded, fresh(loaded, kind), data_of(loaded).train, SETTINGS)
    assert [plain.step() for _ in range(SETTINGS.steps)] == pytest.approx(FROZEN[kind]["losses"], abs=2e-4)
    assert plain.trainable == FROZEN[kind]["trainable"]


def test_another_rate_gives_other_losses(tiny: Callable[..., LoadedModel]) -> None:
    """The mutation of the tests above: the comparison sees a learning rate that is 5% off."""
    loaded = tiny("llama")
    wrong = TrainSettings(**{**vars(SETTINGS), "learning_rate": SETTINGS.learning_rate * 1.05})
    run = Training(loaded.model, fresh(loaded), data_of(loaded), wrong)
    ours = [step.loss for step in all_steps(run) if step.loss is not None]
    assert ours != pytest.approx(FROZEN["llama"]["losses"], abs=2e-4)


def gradients(run: Training, examples: tuple[Tokenized, ...], *, tree: bool, blind: bool = False) -> Tensor:
    from lab.lora.batches import in_rows

    rows = in_rows(examples, torch.device("cpu"), tree=tree)
    if blind:
        rows = [replace(part, mask=None) for part in rows]
    finished(run._gradient(rows))
    return run._pass.gradient.clone()


def test_a_tree_has_the_gradient_of_its_examples_one_by_one(tiny: Callable[..., LoadedModel]) -> None:
    loaded = tiny("llama")
    data = data_of(loaded)
    run = Training(loaded.model, fresh(loaded), data, SETTINGS)
    finished(run.steps())  # so that B is not zero
    tree, rows = (gradients(run, data.train, tree=way) for way in (True, False))
    assert (tree - rows).norm() < 1e-5 * rows.norm()
    assert (gradients(run, data.train, tree=True, blind=True) - rows).norm() > 1e-2 * rows.norm()


@pytest.mark.parametrize("kind", ["llama", "gpt2", "mistral"])
def test_the_base_stays_as_it_was_to_the_bit(tiny: Callable[..., LoadedModel], kind: str) -> None:
    loaded = tiny(kind)
    before = {name: p.clone() for name, p in loaded.model.state_dict().items()}
    modules = [type(m) for m in loaded.model.modules()]
    run = Training(loaded.model, fresh(loaded, kind), data_of(loaded), SETTINGS)
    finished(run.steps())
    after = loaded.model.state_dict()
    assert all(torch.equal(before[name], after[name]) for name in before)
    assert [type(m) for m in loaded.model.modules()] == modules
    assert all(p.grad is None and not p.requires_grad for p in loaded.model.parameters())


def test_only_a_and_b_get_gradients(tiny: Callable[..., LoadedModel]) -> None:
    loaded = tiny("llama")
    start = fresh(loaded)
    run = Training(loaded.model, start, data_of(loaded), SETTINGS)
    next(step for step in run.steps() if step is not None and step.step == 2)
    wrapped = [m for m in run._pass._shell.modules() if isinstance(m, LowRank)]
    learned = {id(p) for m in wrapped for p in (m.a, m.b)}
    assert len(wrapped) == len(start.tensors) == 6
    for parameter in run._pass._shell.parameters():
        assert parameter.requires_grad is (id(parameter) in learned)
        assert (parameter.grad is not None) is (id(parameter) in learned)
    assert all(bool(m.b.grad.any()) for m in wrapped if m.b.grad is not None)
    assert sum(p.numel() for m in wrapped for p in (m.a, m.b)) == start.parameters


def test_below_the_lowest_target_nothing_is_kept(tiny: Callable[..., LoadedModel]) -> None:
    from lab.lora.batches import in_rows

    loaded = tiny("llama")
    start = new_adapter(loaded.model, LoraConfig(2, 4, ("layers.1.mlp.up_proj",)), 0)
    run = Training(loaded.model, start, data_of(loaded), SETTINGS)
    (rows,) = in_rows(data_of(loaded).train[:2], torch.device("cpu"), tree=True)
    _, kept = finished(run._pass.forward(rows, learn=True))
    assert [layer is None for layer in kept] == [True, False]
    assert kept[1] is not None
    assert not kept[1].before.requires_grad
    assert all_steps(run)[-1].loss is not None


def test_memory_is_taken_slice_by_slice(tiny: Callable[..., LoadedModel], monkeypatch: pytest.MonkeyPatch) -> None:
    from lab.lora import train

    loaded = tiny("llama")
    taken: list[int] = []

    def counted(values: Tensor, *, weight_decay: float) -> AdamW:
        taken.append(values.numel())
        return AdamW(values, weight_decay=weight_decay)

    monkeypatch.setattr(train, "AdamW", counted)
    start = fresh(loaded)
    run = Training(loaded.model, start, data_of(loaded), SETTINGS)
    assert taken == []
    work = run._work()
    assert next(work) is None
    assert taken == [start.parameters]
    assert not hasattr(run, "_sound")
    assert next(work) is None
    assert torch.equal(run._sound, run._pass.values)
    assert run._sound.data_ptr() != run._pass.values.data_ptr()
    work.close()
    a = next(iter(start.tensors.values())).a
    run._pass.values.zero_()
    assert bool(a.any())  # what it began with is not written into


def test_the_same_seed_gives_the_same_adapter_and_another_another(tiny: Callable[..., LoadedModel]) -> None:
    loaded = tiny("llama")
    made = [
        finished(training(loaded.model, fresh(loaded), data_of(loaded), TrainSettings(**{**vars(SETTINGS), "seed": s})))
        for s in (0, 0, 1)
    ]
    assert equal(made[0].adapter, made[1].adapter)
    assert not equal(made[0].adapter, made[2].adapter)


def test_two_trainings_that_take_turns_equal_each_alone(tiny: Callable[..., LoadedModel]) -> None:
    loaded = tiny("llama")
    alone = [finished(training(loaded.model, fresh(loaded, seed=s), data_of(loaded), SETTINGS)) for s in (0, 1)]
    runs = [Training(loaded.model, fresh(loaded, seed=s), data_of(loaded), SETTINGS) for s in (0, 1)]
    works = [run._work() for run in runs]  # every pause, not only those after 30 ms
    open_ = list(works)
    while open_:
        open_ = [work for work in open_ if next(work, "end") != "end"]
    assert all(equal(one.adapter, run.trained().adapter) for one, run in zip(alone, runs, strict=True))


def test_gradients_are_on_or_off_outside_as_they_were(tiny: Callable[..., LoadedModel]) -> None:
    loaded = tiny("llama")
    with torch.no_grad():
        for _ in Training(loaded.model, fresh(loaded), data_of(loaded), SETTINGS)._work():
            assert not torch.is_grad_enabled()
    for _ in Training(loaded.model, fresh(loaded), data_of(loaded), SETTINGS)._work():
        assert torch.is_grad_enabled()
        assert not torch.is_inference_mode_enabled()


def test_the_best_by_held_out_loss_is_kept(tiny: Callable[..., LoadedModel]) -> None:
    loaded = tiny("llama")
    wild = TrainSettings(steps=40, learning_rate=1.0, warmup=40, batch=4, measure_every=1, max_gradient_norm=None)
    run = Training(loaded.model, fresh(loaded), data_of(loaded), wild)
    steps = all_steps(run)
    measured = {step.step: step.held_out_loss for step in steps if step.held_out_loss is not None}
    best = min(measured, key=lambda step: measured[step])
    made = run.trained()
    assert set(measured) == set(range(41))
    assert 0 < best < 40
    assert (made.step, made.held_out_loss) == (best, measured[best])
    assert made.held_out_before == measured[0]
    assert [step.step for step in steps if step.best][-1] == best
    again = Training(loaded.model, made.adapter, data_of(loaded), SETTINGS)
    first = next(step for step in again.steps() if step is not None)
    assert first.held_out_loss == pytest.approx(measured[best], abs=1e-5)


def test_where_the_base_is_better_the_best_of_the_trained_is_kept(tiny: Callable[..., LoadedModel]) -> None:
    loaded = tiny("llama")
    said = loaded.model.generate(torch.tensor([[5, 9, 17]]), max_new_tokens=12, do_sample=False)[0].tolist()
    data = TrainingData(data_of(loaded).train, (Tokenized(tuple(said), 3),))  # nobody says that better than the base
    wild = TrainSettings(steps=12, learning_rate=0.3, warmup=0, batch=4, measure_every=1, max_gradient_norm=None)
    run = Training(loaded.model, fresh(loaded), data, wild)
    steps = all_steps(run)
    measured = {step.step: step.held_out_loss for step in steps if step.held_out_loss is not None}
    base, best = measured.pop(0), min(measured, key=lambda step: measured[step])
    made = run.trained()
    assert base < measured[best] < measured[12]
    assert best < 12
    assert (made.step, made.held_out_loss, made.held_out_before) == (best, measured[best], base)
    assert made.base_better
    assert [step.step for step in steps if step.best] == [0]
    again = next(step for step in Training(loaded.model, made.adapter, data, wild).steps() if step is not None)
    assert again.held_out_loss == pytest.approx(measured[best], abs=1e-5)


def test_a_stopped_run_keeps_the_best_so_far(tiny: Callable[..., LoadedModel]) -> None:
    loaded = tiny("llama")
    run = Training(loaded.model, fresh(loaded), data_of(loaded), SETTINGS)
    steps = run.steps()
    next(step for step in steps if step is not None and step.step == 6)
    steps.close()
    made = run.trained()
    assert (made.ended, made.step, made.steps) == ("stopped", 4, 6)
    assert made.held_out_loss is not None
    assert made.held_out_before is not None
    assert made.held_out_loss < made.held_out_before
    assert not made.base_better


def test_a_run_stopped_before_its_first_measure_keeps_what_it_learnt(tiny: Callable[..., LoadedModel]) -> None:
    loaded = tiny("llama")
    run = Training(loaded.model, fresh(loaded), data_of(loaded), SETTINGS)
    steps = run.steps()
    next(step for step in steps if step is not None and step.step == 2)
    steps.close()
    made = run.trained()
    assert (made.ended, made.step, made.held_out_loss) == ("stopped", 2, None)
    assert not equal(made.adapter, fresh(loaded))


def test_a_run_stopped_at_once_has_what_it_was_given(tiny: Callable[..., LoadedModel]) -> None:
    loaded = tiny("llama")
    made = Training(loaded.model, fresh(loaded), data_of(loaded), SETTINGS).trained()
    assert (made.step, made.loss) == (0, None)
    assert equal(made.adapter, fresh(loaded))


@pytest.mark.parametrize("held_out", [True, False])
def test_a_loss_that_is_no_number_ends_the_run_with_finite_factors(
    tiny: Callable[..., LoadedModel], *, held_out: bool
) -> None:
    loaded = tiny("llama")
    data = data_of(loaded)
    data = data if held_out else TrainingData(data.train)
    wild = TrainSettings(steps=8, learning_rate=1.0, warmup=0, batch=4, measure_every=1)
    start = fresh(loaded, alpha=1e6)
    large = {name: Factors(a * 1e32, b) for name, (a, b) in start.tensors.items()}
    run = Training(loaded.model, replace(start, tensors=large), data, wild)
    steps, made = all_steps(run), run.trained()
    last = steps[-1]
    assert made.ended == "not_finite"
    assert last.step < 8
    assert not all(math.isfinite(x) for x in (last.loss, last.held_out_loss, last.gradient_norm) if x is not None)
    assert all(bool(t.isfinite().all()) for pair in made.adapter.tensors.values() for t in pair)


def test_without_held_out_examples_the_latest_is_kept(tiny: Callable[..., LoadedModel]) -> None:
    loaded = tiny("llama")
    run = Training(loaded.model, fresh(loaded), TrainingData(data_of(loaded).train[:1]), SETTINGS)
    steps, made = all_steps(run), run.trained()
    assert [step.step for step in steps] == list(range(1, 9))
    assert (made.step, made.held_out_loss, made.ended) == (8, None, "steps")


@pytest.mark.parametrize("kind", ["llama", "gpt2"])
def test_a_bfloat16_model_is_trained_with_factors_in_fp32(tiny: Callable[..., LoadedModel], kind: str) -> None:
    loaded = tiny(kind, dtype="bfloat16")
    run = Training(loaded.model, fresh(loaded, kind), data_of(loaded), SETTINGS)
    steps, made = all_steps(run), run.trained()
    assert made.packed
    assert steps[-1].held_out_loss is not None
    assert made.held_out_before is not None
    assert steps[-1].held_out_loss < made.held_out_before
    assert {t.dtype for pair in made.adapter.tensors.values() for t in pair} == {torch.float32}


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"steps": 0}, "number of steps 0 is not a whole number from 1 to 5,000"),
        ({"steps": 5001}, "number of steps 5001"),
        ({"steps": True}, "number of steps True"),
        ({"warmup": 61, "steps": 60}, "warm-up 61 is not a whole number from 0 to 60"),
        ({"batch": 65}, "batch 65"),
        ({"seed": -1}, "seed -1"),
        ({"measure_every": 0}, "measures 0"),
        ({"learning_rate": 0.0}, "learning rate 0.0 is not above 0 and at most 1"),
        ({"learning_rate": math.nan}, "learning rate nan"),
        ({"learning_rate": "1"}, "learning rate '1'"),
        ({"weight_decay": -0.1}, "weight decay -0.1"),
        ({"max_gradient_norm": 0}, "longest gradient 0"),
        ({"max_gradient_norm": 10**400}, "longest gradient 1000"),
        ({"learning_rate": math.inf}, "learning rate inf"),
    ],
)
def test_bad_settings_are_refused(wrong: dict[str, object], message: str) -> None:
    with pytest.raises(BadInput, match=message) as caught:
        TrainSettings(**wrong)  # type: ignore[arg-type]
    assert caught.value.remedy


@pytest.mark.parametrize(
    ("train", "message"),
    [
        ((), "0 examples"),
        ((Tokenized((1, 2), 2),), "2 tokens has its answer from token 2"),
        ((Tokenized((1, 2), 0),), "answer from token 0"),
        ((Tokenized((1, 320), 1),), "outside the vocabulary of 320"),
        ((Tokenized((1, -1), 1),), "outside the vocabulary"),
    ],
)
def test_bad_examples_are_refused(tiny: Callable[..., LoadedModel], train: tuple[Tokenized, ...], message: str) -> None:
    loaded = tiny("llama")
    with pytest.raises(BadInput, match=message):
        Training(loaded.model, fresh(loaded), TrainingData(train), SETTINGS)


def test_a_target_outside_the_layers_is_refused(tiny: Callable[..., LoadedModel]) -> None:
    loaded = tiny("llama")
    start = fresh(loaded)
    outside = Adapter("x", start.config, {"model.other": Factors(torch.zeros(1, 32), torch.zeros(32, 1))}, start.base)
    with pytest.raises(ModelError, match=r"'model\.other' lies outside"):
        Training(loaded.model, outside, data_of(loaded), SETTINGS)


@pytest.mark.parametrize("decay", [0.0, 0.1])
def test_our_adamw_is_that_of_torch(decay: float) -> None:
    draw = torch.Generator().manual_seed(0)
    ours, theirs = torch.ones(50), torch.nn.Parameter(torch.ones(50))
    optimizer = torch.optim.AdamW([theirs], lr=0.01, weight_decay=decay)
    mine, mutated = AdamW(ours, weight_decay=decay), torch.ones(50)
    other = AdamW(mutated, weight_decay=decay + 0.01)
    for step in range(1, 30):
        gradient = torch.randn(50, generator=draw)
        rate = rate_at(step, peak=0.02, warmup=3, steps=30)
        optimizer.param_groups[0]["lr"] = rate
        theirs.grad = gradient.clone()
        optimizer.step()
        mine.step(gradient, rate)
        other.step(gradient, rate)
    torch.testing.assert_close(ours, theirs.detach(), rtol=1e-5, atol=1e-6)
    assert not torch.allclose(mutated, theirs.detach(), rtol=1e-5, atol=1e-6)


def test_the_rate_rises_to_its_peak_and_falls_towards_zero() -> None:
    rates = [rate_at(step, peak=1.0, warmup=4, steps=10) for step in range(1, 11)]
    assert rates[:5] == [0.25, 0.5, 0.75, 1.0, 1.0]
    assert all(first > second > 0 for first, second in pairwise(rates[4:]))
    assert rate_at(1, peak=1.0, warmup=0, steps=1) == 1.0
