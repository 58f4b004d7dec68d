"""Two runs of one experiment set against each other. Pure: events in, a `Comparison` out, no widget.

Times, rates and sizes are compared as B / A, all else as B − A. What only one of the runs has is named, never guessed.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any, Protocol, TypeVar

from lab.errors import BadInput, NotFound
from lab.events import Event, RunCancelled, RunFailed, RunFinished, RunStarted
from widgets.comparison.cards import differences, setting, version_words
from widgets.comparison.data import Comparison, FigurePair, SharedPlot, SharedText, Side
from widgets.comparison.told import Line, Measure, Quantity, Text, Token, Told
from widgets.format import NOTHING, format_number, format_ratio
from widgets.run_state import RunState

A, B = "A", "B"


class Experiment(Protocol):
    """What `widgets/NAME/compare.py` offers."""

    STATE: type[RunState]

    def told(self, state: Any) -> Told: ...


@dataclass(frozen=True)
class Run:
    """One of the two runs, living or ended.

    Attributes:
        filed: it was read from a recording's file, whether or not that says when it was made.
    """

    started: RunStarted
    end: RunFinished | RunCancelled | RunFailed | None
    told: Told
    filed: bool = False


def module_of(experiment: str) -> Experiment:
    """The `compare.py` of an experiment.

    Raises:
        NotFound: it has none.
    """
    try:
        found: Any = import_module(f"widgets.{experiment}.compare")
    except ModuleNotFoundError:
        raise NotFound(f"Runs of {experiment!r} cannot be compared here.", remedy="Update the lab.") from None
    return found  # type: ignore[no-any-return]


def run_of_state(state: RunState, *, filed: bool = False) -> Run | None:
    """The run that a state tells so far; None before it has begun."""
    started = state.started
    return Run(started, state.end, module_of(started.card.experiment).told(state), filed) if started else None


def run_of(events: Sequence[Event], *, filed: bool = False) -> Run:
    """The run of these events.

    Args:
        filed: as in `Run`.

    Raises:
        BadInput: they do not begin with `run_started`.
    """
    first = events[0] if events else None
    if not isinstance(first, RunStarted):
        raise BadInput("A run begins with run_started; this one does not.", remedy="Compare whole runs.")
    state = module_of(first.card.experiment).STATE()
    for event in events:
        state.fold(event)
    return Run(first, state.end, module_of(first.card.experiment).told(state), filed)


def same_run(a: RunStarted, b: RunStarted) -> bool:
    """Whether both are one run: live, or in two files."""
    return a.run_id == b.run_id and a.card == b.card


def compare(a: Run, b: Run) -> Comparison:
    """Run `b` set against run `a`.

    Raises:
        BadInput: runs of different experiments.
    """
    of_a, of_b = a.started.card.experiment, b.started.card.experiment
    if of_a != of_b:
        raise BadInput(
            f"A is a run of {of_a}, B one of {of_b}: they have no figure in common.",
            remedy="Compare two runs of one experiment.",
        )
    sides = _side(a), _side(b)
    load = _load(*sides)
    other_task = a.told.task != b.told.task
    figures = [_figure(p, q, load) for p, q in _pairs(a.told.figures, b.told.figures) if (p and q) or not other_task]
    lines = [(p, q) for p, q in _pairs(a.told.lines, b.told.lines) if p and q and _makes_a_picture(p, q)]
    plots = [_plot(p, q, load) for p, q in lines if p.basis == q.basis]
    apart = [_apart(p, q) for p, q in lines if p.basis != q.basis]
    alike = a.started.card.weight_hash == b.started.card.weight_hash
    texts = [_shared_text(p, q, by_id=alike) for p, q in _pairs(a.told.texts, b.told.texts) if p and q]
    return Comparison(
        of_a,
        *sides,
        differences(a.started.card, b.started.card),
        tuple(figures),
        tuple(plots),
        tuple(texts),
        (*_cannot(a, b, shared=bool(figures or plots or texts)), *apart),
        tuple(note for note in _notes(a, b, sides, texts=bool(texts)) if note),
    )


def _side(run: Run) -> Side:
    match run.end:
        case None:
            end = "running"
        case RunFinished():
            end = "finished"
        case RunCancelled(reason=reason):
            end = "stopped" if reason in ("", "stopped") else f"stopped: {reason}"
        case RunFailed(message=message):
            end = f"failed: {message}"
    beside = run.end.ran_beside if isinstance(run.end, RunFinished) else None
    recorded = run.started.recorded
    return Side(run.started.facts.name, recorded, end, beside, live=not (run.filed or recorded))


def _load(a: Side, b: Side) -> str:
    """Why a comparison of times is one under load; "" if both ran alone."""
    found = [
        f"{who} ran beside {side.beside} other run{'s' if side.beside != 1 else ''}"
        for who, side in ((A, a), (B, b))
        if side.beside
    ]
    if found:
        return f"under load: {', '.join(found)}"
    unknown = [who for who, side in ((A, a), (B, b)) if side.beside is None]
    return f"what ran beside {' and '.join(unknown)} is not known" if unknown else ""


class _Named(Protocol):
    @property
    def id(self) -> str: ...


N = TypeVar("N", bound=_Named)


def _pairs(a: Iterable[N], b: Iterable[N]) -> list[tuple[N | None, N | None]]:
    """What bears the same id together, in an order that does not depend on which is A."""
    of_a = {item.id: (i, item) for i, item in enumerate(a)}
    of_b = {item.id: (i, item) for i, item in enumerate(b)}

    def place(name: str) -> tuple[int, str]:
        return max(found[name][0] for found in (of_a, of_b) if name in found), name

    names = sorted(of_a.keys() | of_b.keys(), key=place)
    return [(of_a[n][1] if n in of_a else None, of_b[n][1] if n in of_b else None) for n in names]


def _figure(a: Quantity | None, b: Quantity | None, load: str) -> FigurePair:
    known = a or b
    if known is None:  # `_pairs` gives none such
        raise ValueError("a figure of neither run")
    measure = known.measure
    unlike = _unlike(a, b) if a and b else ""
    against, words = _against(a.value, b.value, measure) if a and b and not unlike else (None, NOTHING)
    note = unlike or (load if measure.timed and a and b else "")
    return FigurePair(
        known.id,
        known.name,
        a.value if a else None,
        b.value if b else None,
        a.measure.write(a.value) if a else NOTHING,
        b.measure.write(b.value) if b else NOTHING,
        measure.ratio,
        against,
        words,
        a.badge if a else "",
        b.badge if b else "",
        note,
    )


def _unlike(a: Quantity, b: Quantity) -> str:
    """Why two figures are not set against each other; "" if they are."""
    matrices = f"different matrices: {a.matrices} and {b.matrices}" if a.matrices != b.matrices else ""
    bases = f"not comparable: A {a.basis}, B {b.basis}" if a.basis != b.basis else ""
    return "; ".join(filter(None, (matrices, bases)))


def _against(a: float, b: float, measure: Measure) -> tuple[float | None, str]:
    """B / A or B − A, and how it is written."""
    if measure.ratio:
        ratio = b / a if a else math.nan
        if a == b:
            return (ratio if a else None), "the same"
        return (ratio, format_ratio(ratio)) if math.isfinite(ratio) and ratio > 0 else (None, NOTHING)
    difference = b - a
    if not math.isfinite(difference):  # of two finite numbers at the ends of what a float holds
        return None, NOTHING
    if difference == 0:
        return 0.0, "the same"
    if measure.points:
        return difference, f"{signed(format_number(abs(difference) * 100), difference)} points"
    return difference, signed(measure.write(abs(difference)), difference)


def signed(size: str, value: float) -> str:
    """A size with the sign of its value."""
    return f"{'+' if value > 0 else '−'}{size}"


def _makes_a_picture(a: Line, b: Line) -> bool:
    """A single point of each is no line; its value is a figure."""
    return max(len(a.points), len(b.points)) > 1 or isinstance(a.points[0][0], str)


def _apart(a: Line, b: Line) -> str:
    return f"No picture of “{_small(a.title)}”: A {a.basis}, B {b.basis}."


def _plot(a: Line, b: Line, load: str) -> SharedPlot:
    note = load if a.timed else ""
    return SharedPlot(a.id, a.title, a.x, a.y, a.points, b.points, (a.badge, b.badge), a.joined, note)


def _shared_text(a: Text, b: Text, *, by_id: bool) -> SharedText:
    def key(token: Token) -> int | str:
        return token.id if by_id else token.text

    first = next((i for i, (x, y) in enumerate(zip(a.tokens, b.tokens, strict=False)) if key(x) != key(y)), None)
    if first is None and len(a.tokens) != len(b.tokens):
        first = min(len(a.tokens), len(b.tokens))
    return SharedText(a.id, a.title, a.tokens, b.tokens, first)


def _cannot(a: Run, b: Run, *, shared: bool) -> list[str]:
    """What has no counterpart, and why."""
    found = []
    if a.told.task != b.told.task:
        some = "Only what both measured stands below." if shared else "Nothing that one measured was measured by both."
        tasks = [setting(run.started.card, "task") for run in (a, b)]
        found.append(f"A is of the task “{tasks[0]}”, B of “{tasks[1]}”. {some}")
    for who, run in ((A, a), (B, b)):
        if not (run.told.figures or run.told.lines or run.told.texts):
            found.append(f"{who} ended before it had measured anything." if run.end else f"{who} has not measured yet.")
    if found:
        return found
    for who, own, other in ((A, a, b), (B, b, a)):
        there = {line.id for line in other.told.lines} | {text.id for text in other.told.texts}
        mine = {item.id: item.title for item in own.told.lines} | {item.id: item.title for item in own.told.texts}
        alone = [title for name, title in mine.items() if name not in there]
        if alone:
            found.append(f"Only {who} has: {', '.join(_small(title) for title in alone)}.")
    return found


def _small(title: str) -> str:
    """A title within a sentence; abbreviations stay."""
    return title if title[1:2].isupper() else title[:1].lower() + title[1:]


def _notes(a: Run, b: Run, sides: tuple[Side, Side], *, texts: bool) -> Iterable[str]:
    for who, side in zip((A, B), sides, strict=True):
        if side.end == "running":
            yield f"{who} still runs: its figures are those so far."
        elif side.end != "finished":
            yield f"{who} did not come to its end ({side.end}): its figures are those up to there."
    if not (sides[0].live and sides[1].live) and _timed(a) and _timed(b):
        yield "Times of a recording are those of the machine that made it."
    if texts and a.started.facts.vocab != b.started.facts.vocab:
        yield "The models have different vocabularies: the same place in both texts is not the same word."
    yield version_words(a.started.card, b.started.card)


def _timed(run: Run) -> bool:
    return any(figure.measure.timed for figure in run.told.figures)
