"""Simulated `pruning` runs of the tasks that prune the whole model. For tests of the page alone."""

from __future__ import annotations

import math
from collections.abc import Iterator

from pruning_sim import divergence, ends, setting, started, stored, texts, whole_model
from words_sim import OTHER, WORDS, speaks

from lab.events import Event, Progress
from lab.events.pruning import CurvePoint, Recovered, RecoveryStep, TimedFigures, TimedToken, VariantLoss
from lab.events.words import Variant

ALL = 106_168_320
"""Weights of the matrices that are pruned."""
_SIZE = {"random": 40.0, "magnitude": 16.0, "global_magnitude": 14.0, "wanda": 5.0, "sparsegpt": 3.0, "rows": 60.0}


def curve_run(
    *, upto: int = 99, end: str = "finished", methods: tuple[str, ...] = ("magnitude", "wanda")
) -> Iterator[Event]:
    """Points of each method by sparsity, one of them skipped."""
    yield started(task="curve", compare="all" if len(methods) > 2 else "magnitude_wanda")
    yield texts()
    shares = (0.1, 0.3, 0.5, 0.6, 0.7, 0.8)
    plan = [(share, method) for share in shares for method in methods]
    for index, (share, method) in enumerate(plan[:upto]):
        kl = _SIZE.get(method, 9.0) * share**6
        skip = "it takes longer than the run may" if (method, share) == ("sparsegpt", 0.8) else ""
        yield Progress(stage="points", done=index + 1, total=len(plan))
        yield CurvePoint(
            index=index,
            total=len(plan),
            setting=setting(method, share),
            sparsity=share,
            divergence=None if skip else divergence(kl),
            skipped=skip,
            chosen=(method, share) == ("wanda", 0.5),
            ms=2000.0,
        )
    yield ends(end)


def words_run(*, end: str = "finished", method: str = "wanda") -> Iterator[Event]:
    """Dense and pruned words, the map and the coverage."""
    used = setting(method)
    yield started(task="words", method=method)
    yield from whole_model(used, even=method != "global_magnitude")
    yield stored(used, "all layers", ALL)
    yield from speaks(Variant(name="dense", label="dense", truth="dense"), WORDS)
    yield from speaks(Variant(name="pruned", label=used.label, truth="simulated"), OTHER, 0.6)
    yield ends(end)


def savings_run(*, end: str = "finished", steps: int = 12, rows_kl: float = 5.2) -> Iterator[Event]:
    """Dense, zeros, rows removed take turns; 2:4 is not here. Removed rows lose `rows_kl`; NaN: nothing is measured."""
    used = setting("wanda")
    yield started(task="savings")
    yield from whole_model(used)
    yield stored(used, "all layers", ALL)
    speed = {"dense": 30.0, "zeros": 30.3, "rows removed": 20.0}
    yield Variant(name="dense", label="dense", truth="dense")
    yield Variant(name="zeros", label="zeros in place", truth="simulated")
    yield Variant(name="rows removed", label="rows removed, 50 %", truth="dense, smaller")
    yield Variant(name="2:4", label="2:4 kernel", truth="simulated")
    for index in range(steps):
        for name, ms in speed.items():
            text = WORDS[index % len(WORDS)]
            yield TimedToken(variant=name, index=index, token_id=index, text=text, ms=ms * (1 + 0.1 * math.sin(index)))
    if end == "finished":
        for name, lost, kl in (("zeros", used, 0.62), ("rows removed", setting("rows"), rows_kl)):
            if math.isfinite(rows_kl):
                yield VariantLoss(variant=name, setting=lost, divergence=divergence(kl))
        for name, ms in speed.items():
            yield _figures(name, ms)
        yield _figures("2:4", math.nan)
    yield ends(end)


def _figures(name: str, ms: float) -> TimedFigures:
    words = {
        "dense": "the model itself",
        "zeros": "a product with a 0 takes as long as any other: the kernels do not look",
        "rows removed": "the matrices are smaller, and dense kernels read less",
        "2:4": "not here: no CPU kernel reads 2:4",
    }
    smaller = name == "rows removed"
    return TimedFigures(
        variant=name,
        parameters=81_430_848 if smaller else 134_515_008,
        resident_bytes=325_723_392 if smaller else 538_060_032,
        decode_ms=ms,
        tokens_per_s=1000 / ms,
        prefill_ms=ms * 4,
        prompt_tokens=24,
        speedup=30.0 / ms,
        prefill_speedup=29.0 / ms,
        steps=11 if math.isfinite(ms) else 0,
        words=words[name],
    )


def recover_run(
    *, end: str = "finished", steps: int = 24, upto: int = 99, revived: int = 0, stopped: str = ""
) -> Iterator[Event]:
    """A fine-tune with the mask held; a run that is stopped tells no more than the steps before."""
    used = setting("wanda")
    yield started(task="recover", steps=steps)
    yield texts()
    yield from whole_model(used)
    best = math.inf
    for step in range(min(steps, upto) + 1):
        held = 4.1 - 0.6 * (1 - math.exp(-step / 8)) if step % 4 == 0 else None
        better = held is not None and held < best
        best = min(best, held if held is not None else best)
        yield RecoveryStep(
            step=step,
            steps=steps,
            loss=4.3 - 0.8 * (1 - math.exp(-step / 8)) + 0.12 * math.sin(step * 2.1) if step else math.nan,
            heldout_loss=held,
            learning_rate=5e-5 if step else 0.0,
            tokens=256 if step else 0,
            best=better,
            ms=900.0 if step else 0.0,
        )
    if end == "finished":
        yield Recovered(
            setting=used,
            pruned=divergence(0.62),
            recovered=divergence(0.31),
            sparsity_before=0.5,
            sparsity_after=0.5,
            revived=revived,
            best_step=min(steps, upto),
            stopped=stopped,
        )
    yield ends(end)
