"""Questions to the `lora` experiment, during a run, after it and after a stop."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from experiment_runs import Ran
from lora_given import LINES, learn, made, on_disk, params, ran

from lab.backend.kept import size_of
from lab.errors import BadInput, Unavailable
from lab.events import Event
from lab.events.lora import Trained, TrainStep, UpdateSpectrum
from lab.events.words import WordsCompared, WordToken
from lab.experiments.base import Outcome, RunContext
from lab.experiments.lora.choices import LEARN
from lab.experiments.lora.kept import kept_of
from lab.experiments.lora.run import make_runner
from lab.lora import tasks
from lab.lora.peft_files import read_adapter

if TYPE_CHECKING:
    from lab.models.loading import LoadedModel

Tiny = Callable[..., "LoadedModel"]


@pytest.fixture
def llama(tiny: Tiny) -> LoadedModel:
    return tiny("llama")


@pytest.fixture
def run(tmp_path: Path, llama: LoadedModel) -> Ran:
    return ran(llama, adapter=on_disk(tmp_path, made(llama)))


def ask(context: RunContext | None, question: str, /, **values: Any) -> dict[str, Any]:
    runner = make_runner()
    return runner.inspect(context, None, question, runner.inspections[question](**values))  # type: ignore[arg-type]


def test_a_slider_reads_the_row_again_at_any_scale(run: Ran) -> None:
    compared = run.of(WordsCompared)[0]
    base, on, twice = (run.ask("scale", factor=factor) for factor in (0.0, 1.0, 2.0))
    assert [t["token_id"] for t in base["tokens"]] == [w.token_id for w in compared.words]
    for word, without, with_it in zip(compared.words, base["tokens"], on["tokens"], strict=True):
        assert without["p"] == pytest.approx(word.p, abs=1e-5)
        assert with_it["p"] == pytest.approx(word.q, abs=1e-5)
        assert with_it["top"][0]["token_id"] == word.top[0].token_id
    assert [t["p"] for t in twice["tokens"]] != [t["p"] for t in on["tokens"]]
    own = run.ask("scale", factor=1.0, row="adapter")
    said = [t.token_id for t in run.of(WordToken) if t.variant == "adapter"]
    assert [t["token_id"] for t in own["tokens"]] == said
    assert all(t["top"][0]["token_id"] == t["token_id"] for t in own["tokens"])


def test_a_scale_takes_one_pass_and_no_new_reader(run: Ran, monkeypatch: pytest.MonkeyPatch) -> None:
    from lab.decoding.llama import LlamaPass

    run.ask("scale", factor=1.0)
    seen: list[tuple[int, int]] = []
    real = LlamaPass._chunk_layer

    def counted(self: LlamaPass, index: int, hidden: Any, *given: Any, **named: Any) -> Any:
        seen.append((index, hidden.shape[1]))
        return real(self, index, hidden, *given, **named)

    monkeypatch.setattr(LlamaPass, "_chunk_layer", counted)
    monkeypatch.setattr("lab.decoding.choose_pass.LlamaPass", None)
    long = kept_of(run.context).prompt
    monkeypatch.setattr(kept_of(run.context), "prompt", long * 4)  # enough for the path of many rows
    first, again = run.ask("scale", factor=0.5), run.ask("scale", factor=0.5)
    positions = 4 * len(long) + len(first["tokens"]) - 1
    assert seen == [(0, positions), (1, positions)] * 2
    assert first["tokens"] == again["tokens"]


def test_fewer_ranks_from_the_spectrum(run: Ran) -> None:
    spectrum = run.of(UpdateSpectrum)[0]
    answer = run.ask("truncate", rank=2)
    found = [module["error"] for module in answer["modules"]]
    assert found == pytest.approx([float(row[2]) for row in spectrum.kept_error.numpy()], abs=1e-6)
    assert (answer["highest"], answer["parameters"]) == (4, made(run.context.model).parameters // 2)
    assert run.ask("truncate", rank=0)["error"] == 1
    assert run.ask("truncate", rank=4)["error"] == 0


def test_the_lessons_figures() -> None:
    count = ask(None, "count")
    assert (count["parameters"], count["of"]) == (65_536, 16_777_216)
    assert count["words"].endswith("65,536 of 16,777,216: 0.4%")
    assert "no fewer" in ask(None, "count", rows=8, columns=8, rank=8)["words"]
    example = ask(None, "worked_example")
    assert example["merged_output"] == example["unmerged_output"] == (5.0, 7.0)
    assert ask(None, "worked_example", factor=0.0)["merged_output"] == (4.0, 6.0)


def test_the_tasks_are_those_of_the_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LAB_CACHE_DIR", str(tmp_path))
    answer = ask(None, "tasks")
    assert tuple(task["name"] for task in answer["tasks"]) == tasks.NAMES == tuple(LEARN)[:-1]
    assert all(task["train"] > task["heldout"] > 0 and len(task["examples"]) == 4 for task in answer["tasks"])
    assert answer["adapters"] == ["packaged"]


def test_without_a_run_there_is_nothing_to_ask(llama: LoadedModel) -> None:
    for name in ("scale", "truncate", "enough"):
        with pytest.raises(Unavailable):
            ask(RunContext(model=llama), name)


def started(model: LoadedModel, steps: int) -> tuple[RunContext, Any]:
    """A training after its second step."""
    context = RunContext(model=model)
    values = params(model, task="train", learn="lines", lines=LINES, steps=steps, batch=4, rank=2)
    running = make_runner().run(context, values)
    for event in running:
        if isinstance(event, TrainStep) and event.step == 2:
            return context, running
    raise AssertionError("the training ended early")


def test_enough_ends_the_training_and_the_run_goes_on(llama: LoadedModel) -> None:
    context, running = started(llama, 500)  # measured every 41st step
    assert ask(context, "enough") == {"training": True}
    events = list(running)
    (trained,) = [event for event in events if isinstance(event, Trained)]
    assert (trained.stopped, trained.steps, trained.best_step) == ("stopped", 2, 2)
    (measured,) = [event for event in events if isinstance(event, TrainStep)]
    assert (measured.step, measured.heldout_loss) == (2, trained.heldout_after)
    assert math.isnan(measured.loss)
    assert trained.base_untouched
    assert len([event for event in events if isinstance(event, WordsCompared)]) == 2
    assert ask(context, "enough") == {"training": False}


def test_enough_before_the_first_step_lets_it_be_taken(llama: LoadedModel) -> None:
    context = RunContext(model=llama)
    values = params(llama, task="train", learn="lines", lines=LINES, steps=500, batch=4, rank=2)
    running = make_runner().run(context, values)
    next(event for event in running if isinstance(event, TrainStep) and event.step == 0)
    assert ask(context, "enough") == {"training": True}
    (trained,) = [event for event in running if isinstance(event, Trained)]
    assert (trained.stopped, trained.steps, trained.best_step) == ("stopped", 1, 1)
    assert math.isfinite(trained.heldout_after)


def test_in_the_middle_of_a_training_the_best_so_far_answers(
    llama: LoadedModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LAB_CACHE_DIR", str(tmp_path))
    context = RunContext(model=llama)
    values = params(llama, task="train", learn="lines", lines=LINES, steps=24, batch=4, rank=2, learning_rate=0.02)
    running = make_runner().run(context, values)  # measured every second step
    asked, events = {}, list[Event]()
    for event in running:
        events += [] if event is None else [event]
        if isinstance(event, TrainStep) and event.step == 0:
            with pytest.raises(Unavailable, match="no adapter yet"):
                ask(context, "scale")
        if isinstance(event, TrainStep) and event.step in (1, 5):
            asked[event.step] = ask(context, "scale", factor=1.0)
            words = ask(context, "save", name=f"after-{event.step}")["words"]
            at, loss = (1, "not measured on held-out lines:") if event.step == 1 else (_best(events), "held-out loss")
            assert f"after step {at}, {loss}" in words
            with pytest.raises(Unavailable, match="at its end"):
                ask(context, "truncate", rank=1)
    assert asked[1]["tokens"] != asked[5]["tokens"]
    # what was kept on the way says the same afterwards
    for step, answer in asked.items():
        later = ran(llama, adapter=f"after-{step}").ask("scale", factor=1.0)
        assert [t["p"] for t in later["tokens"]] == pytest.approx([t["p"] for t in answer["tokens"]], abs=1e-6)
    # and asking changed nothing
    alone = [event for event in make_runner().run(RunContext(model=llama), values) if isinstance(event, TrainStep)]
    assert [(s.step, s.loss, s.heldout_loss) for s in alone[1:]] == [
        (e.step, e.loss, e.heldout_loss) for e in events if isinstance(e, TrainStep) and e.step
    ]
    assert [e for e in events if isinstance(e, Trained)]


def _best(events: list[Event]) -> int:
    """The step after the first with the least held-out loss so far."""
    measured = {
        e.step: e.heldout_loss for e in events if isinstance(e, TrainStep) and e.step and e.heldout_loss is not None
    }
    return min(measured, key=lambda at: measured[at])


def test_a_stopped_run_keeps_the_best_so_far(
    llama: LoadedModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LAB_CACHE_DIR", str(tmp_path))
    context, running = started(llama, 500)
    running.close()
    answer = ask(context, "scale", factor=1.0)
    assert answer["tokens"]
    assert ask(context, "save", name="half")["parameters"] > 0
    assert read_adapter(tmp_path / "adapters" / "half").config.rank == 2
    assert ask(None, "tasks")["adapters"] == ["packaged", "half"]
    with pytest.raises(BadInput, match="already"):
        ask(context, "save", name="half")


def test_what_is_kept_is_small(run: Ran, llama: LoadedModel) -> None:
    run.ask("scale", factor=0.5)
    size = size_of(run.context.kept, apart_from=llama)
    assert made(llama).bytes < size < made(llama).bytes + 40_000


def test_a_training_keeps_its_adapter_for_questions(llama: LoadedModel) -> None:
    run = learn(llama)
    assert run.ask("truncate", rank=4)["error"] == 0
    assert isinstance(run.outcome, Outcome)
    assert run.ask("scale", row="merged")["tokens"]
