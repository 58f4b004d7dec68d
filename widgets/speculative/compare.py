"""What two runs of `speculative` have to compare, for each of its tasks."""

from __future__ import annotations

from itertools import accumulate

from lab.events.speculative import SpeculativeFigures
from widgets.comparison.told import (
    BYTES,
    COUNT,
    DERIVED,
    MEASURED,
    NUMBER,
    RATE,
    SHARE,
    SPEEDUP,
    Line,
    Text,
    Token,
    Told,
    collect,
    figure,
)
from widgets.speculative.state import SpeculativeState

STATE = SpeculativeState


def told(state: SpeculativeState) -> Told:
    """Figures and lines of the run's task."""
    match state.task:
        case "sweep":
            return _sweep(state)
        case "drafts":
            return _drafts(state)
        case "trial":
            return _trial(state)
        case _:
            return _decode(state)


def _decode(state: SpeculativeState) -> Told:
    last = len(state.rounds) - 1
    counts, figures = state.counts(last), state.figures
    ms = figures.speculative_ms if figures else None
    plain = state.plain_ms()
    emitted = list(accumulate(r.emitted for r in state.rounds))
    time = list(accumulate(r.draft_ms + r.verify_ms + r.judge_ms for r in state.rounds))
    alpha = figures.alpha if figures else counts.alpha[0] / counts.alpha[1] if counts.alpha[1] else None
    return collect(
        task="decode",
        figures=(
            figure("measured", "faster than plain decoding", figures.measured if figures else None, SPEEDUP),
            figure("rate", "new tokens a second, speculative", 1000 / ms if ms else None, RATE),
            figure("plain_rate", "new tokens a second, plain", 1000 / plain if plain else None, RATE),
            figure("per_pass", "tokens a target pass", _share(counts.emitted, counts.rounds), NUMBER),
            figure("accepted", "accepted of judged", _share(counts.accepted, counts.judged), SHARE),
            figure("drafted", "accepted of drafted", _share(counts.accepted, counts.drafted), SHARE),
            figure("alpha", "α: what p and q share", alpha, SHARE),
            figure("predicted", "faster, as predicted", figures.predicted if figures else None, SPEEDUP, DERIVED),
            figure("passes", "target passes", counts.rounds or None, COUNT),
            figure("memory", "memory of the draft", state.ready.bytes if state.ready else None, BYTES),
        ),
        lines=(
            Line(
                "emitted",
                "New tokens by target pass",
                "target pass",
                "new tokens",
                tuple((i + 1, n) for i, n in enumerate(emitted)),
            ),
            Line(
                "by_depth",
                "Accepted by place in the round",
                "place of the proposed token",
                "accepted of judged, %",
                tuple((i + 1, 100 * hit / of) for i, (of, hit) in enumerate(counts.by_depth) if of),
            ),
            Line(
                "race",
                "New tokens by time",
                "time of all rounds, ms",
                "new tokens",
                tuple(zip(time, emitted, strict=True)),
                timed=True,
            ),
        ),
        texts=(Text("new", "New tokens", _text(state)),),
    )


def _share(part: int, whole: int) -> float | None:
    return part / whole if whole else None


def _text(state: SpeculativeState) -> tuple[Token, ...]:
    """The tokens that stand, in reading order."""
    first = state.first
    found = [Token(first.token_id, first.text)] if first else []
    for spot in state.spots(len(state.rounds) - 1, dropped=False):
        token = state.token(spot)
        found += [Token(token.token_id, token.text)] if token else []
    return tuple(found)


def _sweep(state: SpeculativeState) -> Told:
    points = {p.gamma: p.figures for p in state.sweep}
    best = max((f.measured for f in points.values() if f.measured is not None), default=None)
    at = next((g for g, f in sorted(points.items()) if best is not None and f.measured == best), None)

    def line(name: str, title: str, y: str, badge: str = MEASURED, timed: bool = True) -> Line:
        values = ((gamma, getattr(figures, name)) for gamma, figures in sorted(points.items()))
        return Line(
            name, title, "γ: tokens proposed", y, tuple((g, v) for g, v in values if v is not None), badge, timed=timed
        )

    return collect(
        task="sweep",
        figures=(
            figure("best", "faster than plain decoding at the best γ", best, SPEEDUP),
            figure("best_gamma", "the best γ", at, COUNT),
        ),
        lines=(
            line("measured", "Faster than plain decoding", "× plain decoding"),
            line("predicted", "Faster, as predicted", "× plain decoding", DERIVED),
            line("tokens_per_pass", "Tokens a target pass", "tokens a pass", timed=False),
        ),
    )


def _drafts(state: SpeculativeState) -> Told:
    ranked = [(d.title, d.figures) for d in state.ranked() if d.figures is not None and not d.skipped]
    best = next((f.measured for _, f in ranked), None)

    def line(name: str, title: str, y: str, factor: float = 1.0, timed: bool = False) -> Line:
        values = [(who, _value(figures, name)) for who, figures in ranked]
        points = tuple((who, v * factor) for who, v in values if v is not None)
        return Line(name, title, "draft", y, points, timed=timed)

    return collect(
        task="drafts",
        figures=(figure("best", "faster than plain decoding, the best draft", best, SPEEDUP),),
        lines=(
            line("measured", "Each draft's speed", "× plain decoding", timed=True),
            line("accept_judged", "Accepted of judged", "%", 100.0),
        ),
    )


def _value(figures: SpeculativeFigures, name: str) -> float | None:
    value: float | None = getattr(figures, name)
    return value


def _trial(state: SpeculativeState) -> Told:
    last = state.trial[-1] if state.trial else None
    return collect(
        task="trial",
        figures=(
            figure("p_value", "p of the chi-square test", last.p_value if last else None, NUMBER),
            figure("variation", "from the pairs to p", last.total_variation if last else None, NUMBER),
            figure("expected", "as far by chance alone", last.expected_variation if last else None, NUMBER, DERIVED),
            figure("power", "power", last.power if last else None, NUMBER, DERIVED),
            figure("runs", "pairs drawn", last.runs if last else None, COUNT),
        ),
        lines=(
            Line(
                "variation",
                "From the pairs to p",
                "pairs drawn",
                "total variation",
                tuple((p.runs, p.total_variation) for p in state.trial),
            ),
        ),
    )
