"""transformers' own beam search, `generate(num_beams=...)`, as a run that shares the machine: see `reference`."""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from transformers import GenerationConfig, StoppingCriteria, StoppingCriteriaList

from lab.decoding.beam.search import Settings
from lab.experiments.reference import PREFILL_CHUNK, LockStep, RandomState, places_to_pause

SLICE_MS = 60.0
"""Shorter than for one sequence: the head over all beams and the choice that follows have few places to pause."""

EARLY_STOPPING: dict[str, bool | str] = {"true": True, "false": False, "never": "never"}


@dataclass(frozen=True, kw_only=True)
class ReferenceBeams:
    """What `generate()` found.

    Attributes:
        sequences: for each hypothesis its new tokens, the end token included if it came, best first.
        scores: its `sequences_scores`.
        fed: for each decode pass, the newest token of each running beam, best first: what the search kept.
        prefill_chunk: the size of `generate()`'s own prefill chunks, None if the prompt went at once.
    """

    sequences: tuple[tuple[int, ...], ...]
    scores: tuple[float, ...]
    fed: tuple[tuple[int, ...], ...]
    prefill_chunk: int | None


class _ForgetScores(StoppingCriteria):
    """Never stops. Lets go of what `output_scores` collects: (beam, vocab) for each token, hundreds of megabytes; the
    hypotheses' own scores, which come with it, do not need that."""

    def __call__(self, input_ids: torch.Tensor, scores: Any, **kwargs: Any) -> Any:
        del kwargs
        if scores:
            scores[-1].set_()
        return torch.zeros(input_ids.shape[0], dtype=torch.bool, device=input_ids.device)


def reference_beams(
    shell: nn.Module, prompt_ids: list[int], settings: Settings, *, slice_ms: float = SLICE_MS
) -> Generator[int, None, ReferenceBeams]:
    """Run `generate()` on `shell`, which is changed: pass one that nobody else uses.

    With one beam `generate()` would be greedy and know no stopping rule, so its beam search is then asked for by name
    (`custom_generate`, a function of its own, no code from elsewhere).

    Args:
        settings: `mistake` does not matter.
        slice_ms: control comes back at the first layer reached after this many milliseconds.

    Yields:
        How many decode passes there were so far, at the end of each slice.

    Returns:
        All hypotheses, their scores, and what was kept at each step.
    """
    device = next(shell.parameters()).device
    width, prompt = settings.width, len(prompt_ids)
    # On a CPU one layer of a long prompt, of which each beam has its own copy, outlasts a slice.
    chunk = max(PREFILL_CHUNK // width, 16)
    chunked = chunk if device.type == "cpu" and prompt > chunk else None
    config = _config(settings, chunked)
    setattr(shell, "generation_config", GenerationConfig())  # type: ignore[no-untyped-call]  # noqa: B010
    fed: list[torch.Tensor] = []

    def generate() -> Any:
        ids = torch.tensor([prompt_ids], device=device)
        options: dict[str, Any] = {"custom_generate": getattr(type(shell), "_beam_search")} if width == 1 else {}  # noqa: B009
        return shell.generate(  # type: ignore[operator]
            input_ids=ids,
            attention_mask=torch.ones_like(ids),
            generation_config=config,
            stopping_criteria=StoppingCriteriaList([_ForgetScores()]),
            **options,
        )

    def keep_fed(module: nn.Module, args: Any, kwargs: dict[str, Any]) -> None:
        del module
        ids = kwargs.get("input_ids", args[0] if args else None)
        if isinstance(ids, torch.Tensor) and passes_before[0] <= 0:
            fed.append(ids[:, -1])
        passes_before[0] -= 1

    passes_before = [1 if chunked is None else -(-prompt // chunked)]
    step = LockStep(generate, RandomState(device), 0, slice_ms)
    head = shell.get_output_embeddings()  # type: ignore[operator]
    places = [*places_to_pause(shell), *([head] if isinstance(head, nn.Module) else [])]
    handles = [place.register_forward_pre_hook(lambda *_: step.pause_if_due()) for place in places]
    handles.append(shell.register_forward_hook(lambda *_: step.pause_if_due()))
    handles.append(shell.register_forward_pre_hook(keep_fed, with_kwargs=True))
    try:
        while not step.advance():
            yield len(fed)
    finally:
        step.abandon()
        for handle in handles:
            handle.remove()
    return _read(step.result, prompt, settings, fed, chunked)


def _config(settings: Settings, chunk: int | None) -> GenerationConfig:
    ends, repetition = sorted(set(settings.end_token_ids)), settings.repetition
    more: dict[str, Any] = {}
    if repetition.repetition_penalty != 1.0:
        more["repetition_penalty"] = float(repetition.repetition_penalty)
    if repetition.no_repeat_ngram_size:
        more["no_repeat_ngram_size"] = repetition.no_repeat_ngram_size
    if repetition.min_new_tokens:
        more["min_new_tokens"] = repetition.min_new_tokens
    return GenerationConfig(  # type: ignore[no-untyped-call]
        max_new_tokens=settings.max_new_tokens,
        do_sample=False,
        num_beams=settings.width,
        num_return_sequences=settings.width,
        length_penalty=float(settings.length_penalty),
        early_stopping=EARLY_STOPPING[settings.early_stopping],
        eos_token_id=ends or None,
        pad_token_id=ends[0] if ends else 0,
        prefill_chunk_size=chunk,
        use_cache=True,
        return_dict_in_generate=True,
        output_scores=True,
        **more,
    )


def _read(made: Any, prompt: int, settings: Settings, fed: list[torch.Tensor], chunk: int | None) -> ReferenceBeams:
    ends = frozenset(settings.end_token_ids)
    lengths = (made.beam_indices >= 0).sum(dim=1).tolist()
    sequences = [tuple(row[prompt : prompt + n]) for row, n in zip(made.sequences.tolist(), lengths, strict=True)]
    for tokens in sequences:
        if any(token in ends for token in tokens[:-1]):
            raise ValueError("generate() went on after an end token")
    return ReferenceBeams(
        sequences=tuple(sequences),
        scores=tuple(made.sequences_scores.tolist()),
        fed=tuple(tuple(row.tolist()) for row in fed),
        prefill_chunk=chunk,
    )
