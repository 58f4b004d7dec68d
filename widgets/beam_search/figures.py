"""The numbers of the page, each with its badge: one home for each."""

from __future__ import annotations

import math
from typing import Any

from lab.events.beam_search import BeamStep, Hypothesis, PathFollowed
from widgets.beam_search.state import BeamState
from widgets.beam_search.words import signed
from widgets.format import format_number, format_share, split_bytes

MEASURED, DERIVED = "MEASURED", "DERIVED"
ITEM_BYTES = {"float32": 4, "float16": 2, "bfloat16": 2}


def headline(state: BeamState, step: int) -> list[dict[str, Any]]:
    """What stands above the tree after `step`: the best score, its probability against greedy's, the speed."""
    best = best_text(state, step)
    return [_score(state, best), _against_greedy(state, best), _rate(state, step)]


def costs(state: BeamState, step: int) -> list[dict[str, Any]]:
    """What the search took up to `step`: cache, reordering, candidates."""
    return [_cache(state, step), _reorder(state, step), _candidates(state, step)]


def best_text(state: BeamState, step: int) -> Hypothesis | None:
    """The best finished text after `step`; at the end of a run whose pool is in its result alone, that one."""
    shelf = state.steps[step].shelf if 0 <= step < len(state.steps) else ()
    if shelf:
        return shelf[0]
    return state.best_hypothesis() if step == len(state.steps) - 1 else None


def _figure(name: str, value: str | None, unit: str, badge: str, note: str) -> dict[str, Any]:
    return {"id": name, "value": value or "", "unit": unit, "badge": badge, "note": note}


def _score(state: BeamState, best: Hypothesis | None) -> dict[str, Any]:
    others = [f"{kind} {signed(path.score)}" for kind, path in state.paths.items()]
    note = ", ".join(others) if best else "nothing has finished yet"
    return _figure("score", signed(best.score) if best else None, "best score", MEASURED, note)


def _against_greedy(state: BeamState, best: Hypothesis | None) -> dict[str, Any]:
    greedy = state.paths.get("greedy")
    unit = "× greedy's probability"
    if best is None or greedy is None:
        return _figure("ratio", None, unit, DERIVED, "greedy's path comes after the search")
    total = sum(greedy.log_probs)
    same = tuple(n.token_id for n in state.path(best.node)) == greedy.token_ids
    if best.sum_log_prob < total and not same:
        against = f"greedy's {len(greedy.token_ids)}: {signed(total, 2)}"
        unit = f"log-probability of its {best.length} tokens; {against}"
        return _figure("ratio", signed(best.sum_log_prob, 2), unit, MEASURED, _why_less(best, greedy))
    ratio = math.exp(max(-700.0, min(best.sum_log_prob - total, 700.0)))
    lengths = "" if best.length == len(greedy.token_ids) else f"; {best.length} and {len(greedy.token_ids)} tokens"
    note = f"log-probability {signed(best.sum_log_prob, 2)} against {signed(total, 2)}{lengths}"
    if same:
        note = f"the same text: log-probability {signed(total, 2)}"
    power = (best.sum_log_prob - total) / math.log(10)
    value = format_number(ratio) if abs(power) < 5 else f"10^{power:.1f}".replace("-", "−")
    return _figure("ratio", value, unit, DERIVED, note)


def _why_less(best: Hypothesis, greedy: PathFollowed) -> str:
    """Why a text less likely than greedy's won: the score preferred it, or the beams had lost greedy's."""
    longer = best.length - len(greedy.token_ids)
    if best.score > greedy.score and longer:
        return f"the length penalty chose a {'longer' if longer > 0 else 'shorter'}, less likely text"
    return "the search ended with a less likely text than greedy's"


def _rate(state: BeamState, step: int) -> dict[str, Any]:
    rate = state.rate_at(step)
    beams = state.num_beams
    note = f"of one text; {beams} run at once" if beams > 1 else "one beam: this is greedy" if rate else ""
    if state.finished and state.finished.ran_beside:
        note += f"; under load, {state.finished.ran_beside} other runs beside it"
    return _figure("rate", format_number(rate) if rate else None, "tokens/s", MEASURED, note)


def _cache(state: BeamState, step: int) -> dict[str, Any]:
    if not 0 <= step < len(state.steps):
        return _figure("cache", None, "in the cache", MEASURED, "")
    at = state.steps[step]
    value, unit = split_bytes(at.cache_bytes)
    difference = at.cache_bytes - at.formula_bytes
    agrees = "the formula agrees to the byte" if difference == 0 else f"the formula differs by {difference:+,} bytes"
    beams = _held(state, at)
    return _figure("cache", value, f"{unit} in the cache", MEASURED, f"{beams}; {agrees}")


def _held(state: BeamState, at: BeamStep) -> str:
    """Whose positions the bytes are, where the count of positions times a position's bytes gives them."""
    width, prompt = state.num_beams, state.prompt_length
    facts = state.started.facts if state.started else None
    size = ITEM_BYTES.get(state.started.card.dtype, 0) if state.started else 0
    each = sum(2 * layer.kv_heads * layer.head_dim for layer in facts.layers) * size if facts else 0
    made = at.cache_length - prompt
    if not made:
        return (
            f"{prompt} prompt positions, {each:,} B each"
            if at.formula_bytes == each * prompt
            else f"{prompt} positions"
        )
    if width == 1:
        return f"{at.cache_length} positions" + (
            f", {each:,} B each" if at.formula_bytes == each * (prompt + made) else ""
        )
    if at.formula_bytes == each * (prompt + width * made):
        return f"{prompt} prompt positions once + {width} × {made} generated ones, {each:,} B each"
    if at.formula_bytes == each * width * at.cache_length:
        return f"{width} beams × {at.cache_length} positions, {each:,} B each"
    return f"{width} beams at {at.cache_length} positions"


def _reorder(state: BeamState, step: int) -> dict[str, Any]:
    done = state.steps[: step + 1]
    spent, whole = sum(s.reorder_ms for s in done), sum(s.ms for s in done)
    if not done or whole <= 0:
        return _figure("reorder", None, "ms reordering", MEASURED, "")
    note = f"cache rows following their beams: {format_share(spent / whole)} of {whole / 1000:.2f} s"
    return _figure("reorder", format_number(spent), "ms reordering", MEASURED, note)


def _candidates(state: BeamState, step: int) -> dict[str, Any]:
    nodes = [node for s in state.steps[: step + 1] for node in s.nodes]
    if not nodes:
        return _figure("candidates", None, "candidates", MEASURED, "")
    count = {fate: sum(n.fate == fate for n in nodes) for fate in ("kept", "finished", "pruned")}
    note = f"{count['kept']:,} kept, {count['finished']:,} finished, {count['pruned']:,} lost"
    return _figure("candidates", f"{len(nodes):,}", "candidates", MEASURED, note)
