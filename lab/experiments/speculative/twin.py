"""transformers' own `generate()` with the same rules, for the greedy proof."""

from __future__ import annotations

from collections.abc import Generator, Sequence

from lab.events import Event
from lab.experiments.reference import reference_generate
from lab.experiments.speculative.setup import Setup
from lab.models.shell import make_shell
from lab.steps import paused, relay


def reference_tokens(
    setup: Setup, prompt_ids: Sequence[int]
) -> Generator[Event | None, None, tuple[tuple[int, ...] | None, str]]:
    """The new tokens of greedy `generate()`; None with the reason where it fails."""
    p = setup.params
    rules = {}
    if p.repetition_penalty != 1.0:
        rules["repetition_penalty"] = p.repetition_penalty
    if p.no_repeat_ngram_size:
        rules["no_repeat_ngram_size"] = p.no_repeat_ngram_size
    shell = make_shell(setup.loaded.model)
    yield None
    steps = reference_generate(
        shell,
        list(prompt_ids),
        max_new_tokens=p.max_new_tokens,
        end_token_ids=setup.ends,
        more=rules,
    )
    try:
        return tuple((yield from relay(steps, paused)).token_ids), ""
    except Exception as error:  # noqa: BLE001 - generate() of a foreign model can raise anything
        text = str(error).strip().splitlines()
        return None, f"{type(error).__name__}: {text[0][:200] if text else ''}"
