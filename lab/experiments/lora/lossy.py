"""The task "merge": an adapter merged into the base, into bf16 and into codes; what of the update is left."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import nn

from lab.evaluation.divergence import DenseReference
from lab.evaluation.tokens import Windows
from lab.events.evaluation import Divergence
from lab.events.lora import MergeFigures
from lab.experiments.base import RunGenerator
from lab.experiments.compared.finding import Finding
from lab.experiments.compared.progress import Made, shares
from lab.experiments.compared.race import Racer, race
from lab.experiments.compared.spoken_proof import against_generate
from lab.experiments.compared.texts import WINDOW, divergence_of
from lab.experiments.compared.words import ComparedWords
from lab.experiments.lora.choices import BASES, BaseKind
from lab.experiments.lora.compare import told
from lab.experiments.lora.merged import merging
from lab.experiments.lora.setup import Setup
from lab.lora.adapter import Adapter
from lab.lora.attach import Attached
from lab.lora.merge import MergedShell, difference_in_kind
from lab.lora.rounding import RoundedMerge, Rounder, ToBfloat16, ToCodes, merging_rounded
from lab.models.linear import out_in
from lab.models.shell import make_shell
from lab.quantization.methods import Settings, make_method
from lab.steps import relay

RESTORED = "unmerging gives the base back bit for bit"
SAME_FORM = "the merged model has the base's modules, shapes and dtypes"
GROUP_SIZES = (64, 32, 16)


@dataclass
class Pair:
    """One kind of base: the same update beside it and in it."""

    kind: str
    base: str
    unmerged: nn.Module
    merged: nn.Module
    lost: float
    vanished: float
    restored: bool
    times: dict[str, Racer] | None = None


def merge(setup: Setup) -> RunGenerator:
    """Yield the events of the task."""
    p = setup.params
    words = ComparedWords(setup.loaded, p)
    yield from words.read()
    setup.kept.prompt = tuple(words.prompt)
    yield from setup.begin()
    adapter = yield from told(setup)
    yield from setup.texts.choose(calibration=False)
    own = yield from _own(setup, adapter, words.prompt)
    times = own.times or {}
    row = _until_end(times["base"].token_ids, setup.loaded.end_token_ids)
    setup.kept.rows["dense"] = tuple(row)
    ids = [*words.prompt, *row]
    found = yield from setup.against_unmerged("adapter", own.unmerged, own.merged, ids)
    yield (yield from _figures(setup, adapter, own, found.difference))
    for pair_of in _others(setup, adapter):
        pair = yield from pair_of()
        apart = yield from setup.apart(pair.unmerged, pair.merged, ids)
        yield (yield from _figures(setup, adapter, pair, apart.difference))
        del pair
    setup.findings.append((yield from against_generate(setup.loaded, words.prompt, row, p.max_new_tokens)))
    yield from setup.proving()
    words.dense.token_ids = row
    words.dense.texts = [str(setup.loaded.tokenizer.decode(row, skip_special_tokens=False))]
    return words.outcome


def _until_end(tokens: list[int], ends: frozenset[int] | set[int]) -> list[int]:
    at = next((i for i, token in enumerate(tokens) if token in ends), None)
    return tokens if at is None else tokens[: at + 1]


def _own(setup: Setup, adapter: Adapter, prompt: list[int]) -> Made[Pair]:
    """Merged into the base as it runs; timed beside it, unmerged and the base alone; unmerged again."""
    p = setup.params
    merged = yield from setup.merged(adapter, p.factor)
    unmerged = setup.attached(adapter, p.factor).shell
    models = {"base": setup.model, "unmerged": unmerged, "merged": merged.shell}
    times = {name: Racer(name, model) for name, model in models.items()}
    yield from race(list(times.values()), prompt, p.max_new_tokens, stage="decoding in turn")
    lost, vanished = yield from _lost(setup.model, merged, adapter, p.factor)
    facts = merged.merged
    base = facts.base if facts is not None else ""
    form = difference_in_kind(setup.model, merged.shell)
    if not form:
        setup.findings.append(Finding(SAME_FORM, "equal"))
    elif facts is None or not facts.untied:
        setup.findings.append(Finding(SAME_FORM, "different", form + "."))
    restored = yield from _restored(setup, merged, adapter)
    again = yield from merging(setup.model, adapter, p.factor, p.break_run, "merging again")
    return Pair(_dtype(setup), base, unmerged, again.shell, lost, vanished, restored, times)


def _dtype(setup: Setup) -> str:
    return str(setup.loaded.dtype).removeprefix("torch.")


def _lost(base: nn.Module, merged: MergedShell, adapter: Adapter, factor: float) -> Made[tuple[float, float]]:
    """Shares of the update's energy and of its entries that the merge left out."""
    energy = error = 0.0
    entries = vanished = 0
    for name in adapter.tensors:
        update = adapter.delta(name, factor).double()
        before = out_in(base.get_submodule(name)).cpu().double()
        applied = out_in(merged.shell.get_submodule(name)).cpu().double() - before
        energy += float(update.square().sum())
        error += float((applied - update).square().sum())
        there = update != 0
        entries += int(there.sum())
        vanished += int((there & (applied == 0)).sum())
        yield None
    return error / energy if energy else 0.0, vanished / entries if entries else 0.0


def _restored(setup: Setup, merged: MergedShell, adapter: Adapter) -> Made[bool]:
    merged.unmerge()
    same = True
    for name in adapter.tensors:
        same = same and torch.equal(out_in(merged.shell.get_submodule(name)), out_in(setup.model.get_submodule(name)))
        yield None
    words = "" if same else "After unmerging, weights are others than the base's."
    setup.findings.append(Finding(RESTORED, "equal" if same else "different", words))
    return same


def _others(setup: Setup, adapter: Adapter) -> list[Callable[[], Made[Pair]]]:
    """The other kinds of base that were asked for."""
    kind = setup.params.base
    found: list[Callable[[], Made[Pair]]] = []
    if setup.loaded.dtype == torch.float32 and kind != "float32":
        found.append(lambda: _rounded(setup, adapter, ToBfloat16(), "bfloat16"))
    if kind in ("int8", "int4"):
        rounder = rounder_of(kind, adapter)
        found.append(lambda: _dequantized(setup, adapter, rounder, f"{kind} dequantized"))
        found.append(lambda: _rounded(setup, adapter, rounder, f"{kind} re-quantized"))
    return found


def rounder_of(kind: BaseKind, adapter: Adapter) -> ToCodes:
    """Round to nearest: int8 by one scale a row; int4 by a scale and a minimum for the largest groups that fit."""
    if kind == "int8":
        return ToCodes(make_method("nearest", Settings(bits=8, kind="absmax", share="row")), title=BASES["int8"])
    columns = {a.shape[1] for a, _ in adapter.tensors.values()}
    size = next((size for size in GROUP_SIZES if all(width % size == 0 for width in columns)), None)
    settings = Settings(bits=4, kind="float_minimum", share=size or "row")
    title = "int4, one scale a row" if size is None else f"int4, groups of {size}"
    return ToCodes(make_method("nearest", settings), title=title)


def _rounded(setup: Setup, adapter: Adapter, rounder: Rounder, kind: str) -> Made[Pair]:
    """R(R(W) + dW) beside R(W) with the adapter on."""
    made = yield from relay(
        merging_rounded(setup.model, adapter, rounder, factor=setup.params.factor), shares(f"merging: {kind}")
    )
    restored = yield from _subtracted(setup, adapter, rounder, made)
    unmerged = _on(made.unmerged, adapter, setup.params.factor)
    base = f"{made.base}; rounded again after merging"
    return Pair(kind, base, unmerged, made.merged, made.lost, made.vanished, restored)


def _subtracted(setup: Setup, adapter: Adapter, rounder: Rounder, made: RoundedMerge) -> Made[bool]:
    """Whether R(W' - dW) is R(W): unmerging where no backup was kept."""
    same = True
    for name in adapter.tensors:
        update = adapter.delta(name, setup.params.factor)
        weight = out_in(made.merged.get_submodule(name)).float() - update.to(setup.loaded.device)
        back = yield from relay(rounder.round(name, weight), shares("unmerging by subtraction"))
        wanted = out_in(made.unmerged.get_submodule(name)).float()
        same = same and torch.equal(back.values, wanted)
    return same


def _dequantized(setup: Setup, adapter: Adapter, rounder: Rounder, kind: str) -> Made[Pair]:
    """R(W) + dW, not rounded again: exact, and as large as the dense model."""
    made = yield from relay(merging_rounded(setup.model, adapter, rounder, factor=0.0), shares(f"dequantizing: {kind}"))
    merged = MergedShell(make_shell(made.unmerged))
    yield from relay(merged.merging(adapter, setup.params.factor), shares(f"merging: {kind}"))
    lost, vanished = yield from _lost(made.unmerged, merged, adapter, setup.params.factor)
    kept = {name: out_in(made.unmerged.get_submodule(name)) for name in adapter.tensors}
    merged.unmerge()
    restored = all(torch.equal(out_in(merged.shell.get_submodule(name)), weight) for name, weight in kept.items())
    yield from relay(merged.merging(adapter, setup.params.factor), shares(f"merging: {kind}"))
    base = f"{rounder.base}; kept as {_dtype(setup)}, {_dense_words(adapter, setup)}"
    unmerged = _on(made.unmerged, adapter, setup.params.factor)
    return Pair(kind, base, unmerged, merged.shell, lost, vanished, restored)


def _dense_words(adapter: Adapter, setup: Setup) -> str:
    size = adapter.base_parameters * setup.loaded.dtype.itemsize
    return f"so that the adapted matrices take {size / (1 << 20):,.0f} MiB again"


def _on(shell: nn.Module, adapter: Adapter, factor: float) -> nn.Module:
    attached = Attached(make_shell(shell), [adapter])
    attached.active, attached.factor = adapter.name, factor
    return attached.shell


def _figures(setup: Setup, adapter: Adapter, pair: Pair, difference: float) -> Made[MergeFigures]:
    divergence = yield from _divergence(setup, pair)
    times = pair.times or {}

    def ms(name: str) -> float:
        return times[name].decode_ms if name in times else math.nan

    return MergeFigures(
        adapter=adapter.name,
        kind=pair.kind,
        base=pair.base,
        max_logit_difference=difference,
        divergence=divergence,
        lost=pair.lost,
        vanished=pair.vanished,
        restored=pair.restored,
        same_form=not difference_in_kind(setup.model, pair.merged),
        decode_ms=ms("merged"),
        unmerged_decode_ms=ms("unmerged"),
        base_decode_ms=ms("base"),
    )


def _divergence(setup: Setup, pair: Pair) -> Made[Divergence]:
    """Merged beside unmerged, on the held-out text."""
    reference = DenseReference(pair.unmerged, setup.texts.held_out, Windows(WINDOW, WINDOW))
    found = yield from relay(reference.comparing(pair.merged), shares(f"{pair.kind}: merged against unmerged"))
    return divergence_of(found)
