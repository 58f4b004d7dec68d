"""Whole runs of the `pruning` experiment on tiny models: events in order, honest proofs, mistakes turned red."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest
from pydantic import ValidationError
from small_pruning import SMALL

from lab.errors import BadInput
from lab.events import Event, Proof
from lab.events.pruning import (
    CurvePoint,
    LayersPruned,
    MaskMade,
    PrunedCoverage,
    PruneErrors,
    Recovered,
    RecoveryStep,
    SparseGptReplay,
    StoredBytes,
    TimedFigures,
    TimedToken,
)
from lab.events.words import WordsCompared
from lab.experiments.base import RunContext
from lab.experiments.pruning.params import PruningParams
from lab.experiments.pruning.run import make_runner

if TYPE_CHECKING:
    from lab.models.loading import LoadedModel

Tiny = Callable[..., "LoadedModel"]


def events_of(loaded: LoadedModel, **given: Any) -> list[Event]:
    params = PruningParams.model_validate({**SMALL, **given})
    runner = make_runner()
    runner.prepare(loaded.facts, params)
    return [event for event in runner.run(RunContext(loaded), params) if event is not None]


def of(events: list[Event], kind: type[Any]) -> list[Any]:
    return [event for event in events if isinstance(event, kind)]


def proof(events: list[Event]) -> Proof:
    found: Proof = of(events, Proof)[-1]
    return found


@pytest.mark.parametrize("pattern", ["none", "2:4"])
@pytest.mark.parametrize("method", ["random", "magnitude", "global_magnitude", "wanda", "sparsegpt"])
def test_masks_are_told_counted_and_proved(tiny: Tiny, method: str, pattern: str) -> None:
    events = events_of(tiny("llama"), task="masks", method=method, pattern=pattern, layers=(0, 1))
    made = of(events, MaskMade)
    chosen = [m for m in made if m.chosen]
    assert [m.layer for m in chosen] == [0, 1]
    assert {m.setting.method for m in made} == {method, "random", "magnitude", "wanda", "sparsegpt"}
    for mask in made:
        assert mask.kept == int(mask.row_kept.numpy().sum())
        if mask.setting.method != "global_magnitude":
            assert mask.kept == mask.rows * mask.columns // 2
    if pattern != "none" and method != "global_magnitude":
        assert all(m.offending == 0 and m.setting.pattern == "2:4" for m in made)
    errors = of(events, PruneErrors)
    assert Counter(e.to_magnitude is None for e in errors)[True] == 2  # magnitude itself, in each layer
    assert len(of(events, SparseGptReplay)) == (2 if method == "sparsegpt" else 0)
    assert len(of(events, StoredBytes)) == 2
    assert proof(events).verdict == "equal", proof(events)
    assert proof(events).compared > 20


def test_a_curve_has_a_point_for_each_setting_and_its_own_first(tiny: Tiny) -> None:
    events = events_of(tiny("llama"), task="curve", method="wanda", sparsity=0.45, compare="all")
    points = of(events, CurvePoint)
    assert [p.chosen for p in points] == [True] + [False] * (len(points) - 1)
    assert len(points) == points[0].total
    assert points[0].sparsity == pytest.approx(0.45, abs=0.01)
    assert {p.setting.method for p in points} == {
        "random", "magnitude", "global_magnitude", "wanda", "sparsegpt", "rows",
    }  # fmt: skip
    assert all(p.divergence is not None for p in points if not p.skipped)
    assert all(p.divergence.kl > 0 for p in points if p.divergence is not None)
    assert proof(events).verdict == "equal", proof(events)


@pytest.mark.parametrize("kind", ["llama", "gpt2"])
@pytest.mark.parametrize("method", ["magnitude", "wanda", "sparsegpt", "global_magnitude", "rows"])
def test_words_beside_words(tiny: Tiny, kind: str, method: str) -> None:
    events = events_of(tiny(kind), task="words", method=method, sparsity=0.5)
    assert len(of(events, WordsCompared)) == 1
    told = of(events, LayersPruned)
    assert len(told) == (1 if method == "rows" else 2)  # layer by layer, as they are done
    cells = [cell for one in told for cell in one.cells]
    assert {cell.layer for cell in cells} == {0, 1}
    assert all(0 <= cell.kept <= cell.weights for cell in cells)
    covered: PrunedCoverage = of(events, PrunedCoverage)[0]
    assert covered.parameters == sum(p.numel() for p in tiny(kind).model.parameters())
    assert covered.pruned == sum(cell.weights - cell.kept for cell in cells)
    assert covered.truth == ("dense, smaller" if method == "rows" else "simulated")
    assert proof(events).verdict == "equal", proof(events)


def test_savings_are_measured_in_turn(tiny: Tiny) -> None:
    events = events_of(tiny("llama"), task="savings", method="magnitude", prompt="cache")
    figures = {f.variant: f for f in of(events, TimedFigures)}
    assert set(figures) == {"dense", "zeros", "rows", "2:4"}
    assert figures["zeros"].parameters == figures["dense"].parameters
    assert figures["rows"].parameters < figures["dense"].parameters
    assert figures["rows"].resident_bytes < figures["dense"].resident_bytes
    assert figures["2:4"].words.startswith("not here: ")
    assert figures["2:4"].steps == 0
    order = [t.variant for t in of(events, TimedToken)]
    assert order[:6] == ["dense", "zeros", "rows"] * 2
    stored: StoredBytes = of(events, StoredBytes)[0]
    assert stored.scope == "all layers"
    assert {form.name for form in stored.forms} >= {"dense", "bitmap + values", "CSR"}
    assert proof(events).verdict == "equal", proof(events)


@pytest.mark.parametrize("method", ["magnitude", "sparsegpt", "global_magnitude"])
def test_recovery_keeps_zeros_zero(tiny: Tiny, method: str) -> None:
    events = events_of(tiny("llama"), task="recover", method=method)
    steps = of(events, RecoveryStep)
    assert [s.step for s in steps] == [0, 1, 2, 3]
    done: Recovered = of(events, Recovered)[0]
    assert done.revived == 0
    assert done.sparsity_after >= done.sparsity_before == pytest.approx(0.5, abs=0.01)
    assert done.stopped == ""
    assert proof(events).detail["fine_tuned_steps"] == 3
    assert proof(events).verdict == "equal", proof(events)


@pytest.mark.parametrize("task", ["masks", "words", "recover"])
@pytest.mark.parametrize("method", ["magnitude", "wanda", "sparsegpt"])
@pytest.mark.parametrize("mistake", ["revived", "wrong_axis", "one_too_many", "mask_of_neighbour"])
def test_every_mistake_turns_the_proof_red(tiny: Tiny, task: str, method: str, mistake: str) -> None:
    pattern = "2:4" if mistake == "wrong_axis" else "none"
    events = events_of(tiny("llama"), task=task, method=method, break_run=mistake, pattern=pattern)
    assert proof(events).verdict == "different", proof(events)
    assert proof(events).explanation


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"task": "masks", "layers": (7,)}, "Layer 7 does not exist"),
        ({"task": "masks", "method": "rows"}, "no mask of single weights"),
        ({"task": "recover", "method": "rows"}, "no mask of single weights"),
        ({"task": "words", "method": "rows", "sparsity": 1.0}, "All rows cannot be removed"),
        ({"task": "recover", "sparsity": 1.0}, "No weight is left"),
        ({"break_run": "wrong_axis"}, "Only N:M has an axis"),
        ({"break_run": "revived", "sparsity": 0.0}, "Nothing is pruned"),
        ({"break_run": "one_too_many", "sparsity": 1.0}, "Everything is pruned"),
        ({"task": "words", "method": "rows", "break_run": "revived"}, "needs a mask"),
    ],
)
def test_what_cannot_be_is_refused_before_the_run(tiny: Tiny, given: dict[str, Any], words: str) -> None:
    loaded = tiny("llama")
    with pytest.raises(BadInput, match=words):
        make_runner().prepare(loaded.facts, PruningParams.model_validate(given))


@pytest.mark.parametrize("given", [{"sparsity": 1.5}, {"sparsity": float("nan")}, {"pattern": "3:4"}, {"steps": 0}])
def test_bad_values_are_refused(given: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        PruningParams.model_validate(given)


@pytest.mark.parametrize("sparsity", [0.0, 1.0])
@pytest.mark.parametrize("task", ["masks", "words", "curve"])
def test_none_and_all_are_valid(tiny: Tiny, task: str, sparsity: float) -> None:
    events = events_of(tiny("llama"), task=task, method="magnitude", sparsity=sparsity)
    assert proof(events).verdict == "equal", proof(events)
