"""The numbers of the page, each with its badge and its definition: one home for each."""

from __future__ import annotations

import math
import re
from typing import Any

from lab.events import RunFinished
from lab.events.speculative import SpeculativeFigures, chi_square_in_words
from widgets.format import NOTHING, format_bytes, format_ms, split_bytes
from widgets.speculative.state import SpeculativeState

MEASURED, DERIVED = "MEASURED", "DERIVED"
NOT_APPLICABLE = "n/a"
"""A figure that a finished run does not have: with one new token there is no round to count or to time."""
EVEN = 0.02
"""A ratio nearer to 1 than this is called even: two runs of the same thing differ by as much."""

Figure = dict[str, Any]


def ratio(value: float | None, digits: int = 2) -> str:
    """A share or a ratio with fixed digits after the point: "0.78", "1.31"."""
    return NOTHING if value is None or not math.isfinite(value) else f"{value:.{digits}f}"


def tone(measured: float | None) -> str:
    """Whether a measured speed-up is good, bad or even."""
    if measured is None or not math.isfinite(measured):
        return "none"
    return "even" if abs(measured - 1) <= EVEN else ("good" if measured > 1 else "bad")


def typeset(verdict: str) -> str:
    """A verdict as it was recorded, with the lab's own sign: earlier runs wrote "1.14x" for "1.14 ×"."""
    return re.sub(r"(?<=\d)x\b", " ×", verdict)


def spoken(words: str, most: int = 80) -> list[str]:
    """A verdict as a heading and, where it is long, what follows its first clause as a note."""
    words = typeset(words)
    heading, rest = words, ""
    if len(words) > most:
        cut = min((at for mark in ("; ", ". ") if (at := words.find(mark)) > 0), default=len(words))
        heading, rest = words[:cut], words[cut + 2 :]
    return [part[:1].upper() + part[1:] for part in (heading, rest) if part]


def verdict(state: SpeculativeState, *, live: bool) -> tuple[str, str, list[str]]:
    """Tone, heading and notes of a decoding run: whether it was faster."""
    figures = state.figures
    if figures is not None:
        beside = state.end.ran_beside if isinstance(state.end, RunFinished) else 0
        load = f"Under load: {beside} other run{'s' if beside > 1 else ''} beside it." if beside else ""
        text, *rest = spoken(figures.verdict)
        return tone(figures.measured), text, [*rest, load]
    if live:
        return "pending", "Does it pay? The figures come at the end of the run.", []
    if state.end is not None:
        return "none", "The run ended before it was compared with plain decoding.", []
    return "pending", "Does it pay?", []


def headline(state: SpeculativeState, upto: int) -> list[Figure]:
    """What stands above the pictures after round `upto`."""
    counts = state.counts(upto)
    whole = state.figures if state.figures is not None and upto >= len(state.rounds) - 1 else None
    judged = whole.accept_judged if whole else (counts.accepted / counts.judged if counts.judged else None)
    passes = whole.tokens_per_pass if whole else (counts.emitted / counts.rounds if counts.rounds else None)
    emitted, rounds = counts.emitted, counts.rounds
    found = [
        _figure(
            "accept_judged",
            ratio(judged),
            "accepted of judged",
            MEASURED,
            f"{counts.accepted:,} of {counts.judged:,} tokens that were compared: luck around α"
            if counts.judged
            else "",
            "Accepted tokens divided by judged ones. A token after a rejection is never judged and does not count.",
        ),
        _figure(
            "tokens_per_pass",
            ratio(passes),
            "tokens a target pass",
            MEASURED,
            f"{emitted:,} tokens in {rounds:,} pass{'es' if rounds != 1 else ''}; plain decoding makes 1"
            if rounds
            else "",
            "New tokens divided by passes of the model. The first token comes with the prompt and does not count.",
        ),
        _speed(state.figures),
    ]
    return _settled(found) if whole else found


def _settled(figures: list[Figure]) -> list[Figure]:
    """What has no value at the end will have none."""
    return [{**figure, "value": figure["value"] or NOT_APPLICABLE} for figure in figures]


def _speed(figures: SpeculativeFigures | None) -> Figure:
    note = "of the whole run; the plain one is made in the same process"
    if figures is not None and figures.measured is not None:
        note = f"{format_ms(figures.plain_ms)} a token plain, {format_ms(figures.speculative_ms)} with the draft"
    elif figures is not None:
        note = "no round or no plain step to time: the first token comes with the prompt"
    return _figure(
        "measured",
        ratio(figures.measured if figures else None),
        "× plain decoding",
        MEASURED,
        note,
        "Milliseconds a token of a real plain run divided by those of this run. Below 1 it is slower.",
    )


def details(state: SpeculativeState, upto: int) -> list[Figure]:
    """What stands behind the verdict: of the whole run, or of the rounds so far where that is all there is."""
    f = state.figures
    so_far = state.counts(upto)
    accepted, judged, proposed = (
        (f.accepted, f.judged, f.drafted) if f else (so_far.accepted, so_far.judged, so_far.drafted)
    )
    drafted = f"{accepted:,} of {proposed:,} proposed; {proposed - judged:,} were never judged" if proposed else ""
    alpha = f.alpha if f else (so_far.alpha[0] / so_far.alpha[1] if so_far.alpha[1] else None)
    found = [
        _figure(
            "accept_drafted",
            ratio(accepted / proposed if proposed else None),
            "accepted of drafted",
            MEASURED,
            drafted,
            "Accepted tokens divided by all proposed ones, with those that were never judged.",
        ),
        _figure(
            "alpha",
            ratio(alpha, 3),
            "α: what p and q share",
            MEASURED,
            "Σ min(p, q), the mean over judged positions; α = 1 − total variation",
            "The probability that a proposal of this draft is accepted, from the distributions, not from the draws.",
        ),
        _figure(
            "expected",
            ratio(f.expected_tokens if f else None),
            "expected a pass",
            DERIVED,
            f"(1 − α^(γ+1)) / (1 − α), averaged over the rounds ({f.mean_gamma:.1f} proposed on average); "
            f"really {ratio(f.tokens_per_pass)}"
            if f and f.expected_tokens is not None
            else "",
            "Tokens a pass if each guess were accepted with α, over the rounds with what they really proposed.",
        ),
        _figure(
            "c",
            ratio(f.c if f else None, 3),
            "c: cost of a guess",
            MEASURED,
            "one proposed token, in steps of plain decoding",
            "Milliseconds of the draft a proposed token, divided by those of a plain step.",
        ),
        _figure(
            "v",
            ratio(f.v if f else None),
            "v: cost of a check",
            MEASURED,
            f"one pass over the {f.mean_gamma:.1f} proposed and the one before them, in steps of plain decoding"
            if f
            else "",
            "Milliseconds to verify and judge a round divided by those of a plain step. 1: as cheap as one token.",
        ),
        _figure(
            "predicted",
            ratio(f.predicted if f else None),
            "× predicted",
            DERIVED,
            "expected a pass / (γ c + v)",
            "What α, c and v make of the speed-up. Compare with the measured one above.",
        ),
        _figure(
            "break_even",
            _break_even(f),
            "α to break even",
            DERIVED,
            _break_even_note(f),
            "The least α at which the prediction reaches 1 with this γ, c and v.",
        ),
        _memory(state),
    ]
    return _settled(found) if f else found


def _break_even(f: SpeculativeFigures | None) -> str:
    if f is None:
        return ""
    if f.break_even_alpha is None:
        return "none" if f.c is not None and f.v is not None else ""
    return ratio(f.break_even_alpha)


def _break_even_note(f: SpeculativeFigures | None) -> str:
    if f is None:
        return ""
    if f.break_even_alpha is None:
        return "even a perfect draft would not pay at this γ" if f.c is not None and f.v is not None else ""
    if f.alpha is None:
        return ""
    return f"here α is {'above' if f.alpha > f.break_even_alpha else 'not above'} it"


def _memory(state: SpeculativeState) -> Figure:
    ready = state.ready
    value, unit = split_bytes(ready.bytes) if ready is not None else ("", "")
    note = f"beside {format_bytes(state.started.facts.weight_bytes)} of weights" if ready and state.started else ""
    return _figure("memory", value, f"{unit} for the draft".strip(), MEASURED, note, "Memory beyond the model's own.")


def identity_figures(state: SpeculativeState) -> list[Figure]:
    """How far the draft is at the trial's position, and what the rule leaves of it."""
    shown = state.identity
    difference = shown.largest_difference if shown else None
    return [
        _figure(
            "distance",
            ratio(shown.total_variation if shown else None, 3),
            "from draft to model",
            DERIVED,
            "total variation ½ Σ |p − q|",
            "0: the draft says the same as the model; 1: nothing in common.",
        ),
        _figure(
            "identity",
            "" if difference is None else ("0" if difference == 0 else f"{difference:.0e}"),
            "from emitted to p",
            DERIVED,
            "largest |emitted(x) − p(x)| over the vocabulary, without any draw",
            "emitted(x) = min(p, q)(x) + (1 − α) · residual(x): what the rule gives, by formula, in float64.",
        ),
    ]


def trial_figures(state: SpeculativeState, upto: int) -> list[Figure]:
    """The trial after its point `upto`."""
    point = state.trial[min(upto, len(state.trial) - 1)] if state.trial and upto >= 0 else None
    return [
        _figure(
            "p_value",
            p_text(point.p_value) if point else "",
            "p of the chi-square test",
            MEASURED,
            chi_square_in_words(point.statistic, point.degrees) if point else "",
            "How probable pairs at least as odd as these are if they come from the model. Red below 0.000001.",
        ),
        _figure(
            "trial_variation",
            ratio(point.total_variation if point else None, 3),
            "from the pairs to p",
            MEASURED,
            f"so many draws alone would give {ratio(point.expected_variation, 3)}" if point else "",
            "Total variation between the pairs that were drawn and what the model says of them.",
        ),
        _figure(
            "power",
            ratio(point.power if point else None, 3),
            "power",
            DERIVED,
            "how surely pairs of the draft alone would turn this red",
            "A test without power proves nothing by staying green.",
        ),
    ]


def p_text(value: float) -> str:
    """A p-value: two digits, a power of ten when small."""
    if not math.isfinite(value):
        return NOTHING
    if value >= 0.001:
        return f"{value:.2g}"
    return "0" if value == 0 else f"{value:.0e}".replace("e-0", "e-")


def _figure(name: str, value: str, unit: str, badge: str, note: str, title: str) -> Figure:
    shown = "" if value == NOTHING else value
    return {"id": name, "value": shown, "unit": unit, "badge": badge, "note": note, "title": title}
