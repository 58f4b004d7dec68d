"""The task "compare": what an adapter is, where it sits, and the same prompt by base, adapted and merged model."""

from __future__ import annotations

from lab.events.lora import OtherText
from lab.experiments.base import RunGenerator
from lab.experiments.compared.progress import Made
from lab.experiments.compared.speak import Voice
from lab.experiments.compared.words import ComparedWords
from lab.experiments.lora.adapters import facts_of, find_adapter, refuse_misfit
from lab.experiments.lora.merged_out import write_merged
from lab.experiments.lora.picture import check_kept_rank, picturing, truncating
from lab.experiments.lora.places import PACKAGED
from lab.experiments.lora.setup import Setup
from lab.lora.adapter import Adapter
from lab.lora.merge import MergedShell


def compare(setup: Setup) -> RunGenerator:
    """Yield the events of the task."""
    p = setup.params
    words = ComparedWords(setup.loaded, p)
    yield from words.read()
    setup.kept.prompt = tuple(words.prompt)
    yield from setup.begin()
    adapter = yield from told(setup)
    yield from setup.texts.choose(calibration=False)
    yield from words.speak_dense()
    setup.kept.rows["dense"] = tuple(words.dense.token_ids)
    merged = yield from before_and_after(setup, words, adapter, p.factor)
    attached = setup.attached(adapter, p.factor)
    divergence = yield from setup.texts.compare(attached.shell, "on other text")
    yield OtherText(adapter=adapter.name, divergence=divergence)
    yield from write_merged(setup, merged, adapter)
    yield from setup.proving()
    return words.outcome


def told(setup: Setup) -> Made[Adapter]:
    """Read the chosen adapter, tell what it is and where it sits. The adapter with the singular values to keep.

    Raises:
        ModelError: it does not fit; that is told first.
    """
    p = setup.params
    adapter = find_adapter(p.adapter)
    yield None
    yield from told_facts(setup, adapter, p.adapter)
    check_kept_rank(adapter, p.keep_rank)
    yield from picturing(adapter, setup.model, setup.kept)
    truncated, setup.cut = yield from truncating(adapter, p.keep_rank)
    setup.kept.adapter, setup.kept.whole = truncated, adapter
    return truncated


def told_facts(setup: Setup, adapter: Adapter, chosen: str) -> Made[None]:
    """Tell what an adapter is, and refuse one that does not fit."""
    source = "packaged" if chosen == PACKAGED else chosen.rstrip("/").rpartition("/")[2]
    yield facts_of(adapter, setup.loaded, adapter.name, source)
    refuse_misfit(adapter, setup.model)


def before_and_after(setup: Setup, words: ComparedWords, adapter: Adapter, factor: float) -> Made[MergedShell]:
    """The rows with the adapter on and merged, beside the base's; what they have to do with each other is checked.
    The merged one."""
    attached = setup.attached(adapter, factor)
    label = "adapter on" if factor == 1 else f"adapter on, {factor:g} of its scale"
    yield from words.speak_others([Voice("adapter", label, "dense", attached.shell, notes=_notes(setup))])
    merged = yield from setup.merged(adapter, factor)
    yield from words.speak_others([Voice("merged", "merged", "dense", merged.shell)])
    setup.kept.rows |= {row.voice.name: tuple(row.token_ids) for row in words.others}
    ids = [*words.prompt, *words.dense.token_ids]
    yield from setup.against_unmerged("adapter", attached.shell, merged.shell, ids)
    setup.findings.append((yield from words.against_generate()))
    return merged


def _notes(setup: Setup) -> tuple[str, ...]:
    if not setup.cut:
        return ()
    values = setup.params.keep_rank
    return (f"The largest {values} singular value{'s' * (values > 1)} of each update: {setup.cut:.0%} of it is cut.",)
