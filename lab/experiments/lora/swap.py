"""The task "swap": several adapters on one base, switched per prompt without reloading."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from time import perf_counter

from torch import nn

from lab.decoding.loop import decode
from lab.decoding.trace import Trace
from lab.events.lora import SwapRow
from lab.experiments.base import Outcome, RunGenerator
from lab.experiments.compared.finding import Finding
from lab.experiments.compared.progress import Made, progress
from lab.experiments.compared.spoken_proof import against_generate
from lab.experiments.compared.words import ComparedWords
from lab.experiments.lora.adapters import find_adapter, reversed_sign
from lab.experiments.lora.compare import told_facts
from lab.experiments.lora.logits import last_logits
from lab.experiments.lora.params import LoraParams
from lab.experiments.lora.picture import picturing
from lab.experiments.lora.setup import PLACES, Setup
from lab.lora.adapter import Adapter
from lab.lora.attach import Attached
from lab.models.prompts import encode_prompt
from lab.models.shell import make_shell
from lab.steps import relay

PLAIN = "What is the capital of France?"
"""Asked beside the chosen prompt: something that the base knows."""
BACK = "A, B, A: the first adapter gives the same words and the same logits, bit for bit, after the other"


def swap(setup: Setup) -> RunGenerator:
    """Yield the events of the task: for each prompt the base, A, B, and A again."""
    p = setup.params
    words = ComparedWords(setup.loaded, p)
    yield from words.read()
    setup.kept.prompt = tuple(words.prompt)
    yield from setup.begin()
    pair = both(p)
    for adapter, chosen in zip(pair, (p.adapter, p.second), strict=True):
        yield from told_facts(setup, adapter, chosen or "the first one, its sign reversed")
        yield from picturing(adapter, setup.model, setup.kept if adapter is pair[0] else None)
    setup.kept.adapter = pair[0]
    attached = Attached(make_shell(setup.model), pair)
    yield None
    first = yield from _rows(setup, attached, pair, words.prompt)
    yield from _back(setup, attached, pair, words.prompt)
    for adapter in pair:
        attached.active = adapter.name
        merged = yield from setup.merged(adapter)
        yield from setup.against_unmerged(adapter.name, attached.shell, merged.shell, words.prompt)
        attached.active = None
    setup.findings.append((yield from against_generate(setup.loaded, words.prompt, first, p.max_new_tokens)))
    setup.kept.rows["dense"] = tuple(first)
    yield from setup.proving()
    return Outcome(token_ids=tuple(first), text=_text(setup, first))


def both(params: LoraParams) -> tuple[Adapter, Adapter]:
    """The two adapters, by different names.

    Raises:
        NotFound, ModelError: see `find_adapter`.
    """
    first = find_adapter(params.adapter)
    if not params.second:
        return first, reversed_sign(first, f"{first.name}, reversed")
    second = find_adapter(params.second)
    if second.name == first.name:
        second = replace(second, name=f"{second.name} (2)")
    return first, second


def prompts_of(params: LoraParams) -> tuple[str, ...]:
    """What is asked."""
    return tuple(dict.fromkeys((params.prompt, PLAIN)))


def _rows(setup: Setup, attached: Attached, pair: Sequence[Adapter], prompt: list[int]) -> Made[list[int]]:
    """Tell the rows; the base's tokens after the first prompt."""
    p = setup.params
    prompts = prompts_of(p)
    sizes = {adapter.name: adapter.bytes for adapter in pair}
    turns = ("", pair[0].name, pair[1].name, pair[0].name)
    total = len(turns) * len(prompts)
    seen: dict[tuple[int, str], list[int]] = {}
    first: list[int] = []
    same = True
    for number, text in enumerate(prompts):
        ids = prompt if text == p.prompt else encode_prompt(setup.loaded, text, p.chat)
        for turn, name in enumerate(turns):
            began = perf_counter()
            attached.active = name or None
            ms = (perf_counter() - began) * 1e3
            index = number * len(turns) + turn
            tokens = yield from spoken(setup, attached.shell, ids, f"{name or 'base'}: words", index, total)
            before = seen.get((number, name))
            seen.setdefault((number, name), tokens)
            again = None if before is None else before == tokens
            same = same and again is not False
            first = tokens if index == 0 else first
            yield SwapRow(
                index=index,
                total=total,
                adapter=name,
                prompt=text,
                text=_text(setup, tokens),
                switch_ms=ms,
                bytes=sizes.get(name, 0),
                same_again=again,
            )
    attached.active = None
    words = "" if same else "After the other adapter the first one said something else than before."
    setup.findings.append(Finding(BACK, "equal" if same else "different", words))
    return first


def spoken(
    setup: Setup, model: nn.Module, ids: list[int], stage: str, done: int = 0, total: int = 1
) -> Made[list[int]]:
    """Greedy tokens of one model."""
    limit = setup.params.max_new_tokens
    ends = tuple(sorted(setup.loaded.end_token_ids))
    steps = decode(model, ids, max_new_tokens=limit, end_token_ids=ends, trace=Trace("off"))
    found = yield from relay(steps, lambda _: progress(stage, done, total))
    return list(found.token_ids)


def _back(setup: Setup, attached: Attached, pair: Sequence[Adapter], ids: list[int]) -> Made[None]:
    """The first adapter's logits before and after the other, bit for bit."""
    places = min(PLACES, len(ids))
    found = []
    for name in (pair[0].name, pair[1].name, pair[0].name):
        attached.active = name
        found.append((yield from last_logits(attached.shell, ids, places)))
    attached.active = None
    equal = bool((found[0] == found[2]).all())
    differ = float((found[0] - found[1]).abs().max())
    detail = {"switched_places": places, "adapters_max_logit_difference": differ}
    words = "" if equal else "After the other adapter the first one's logits are others than before."
    setup.findings.append(Finding(BACK, "equal" if equal else "different", words, detail))


def _text(setup: Setup, tokens: Sequence[int]) -> str:
    return str(setup.loaded.tokenizer.decode(list(tokens), skip_special_tokens=True))
