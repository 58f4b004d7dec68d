"""Other ways through the same distributions: greedy's, and one drawn at random. Both go in one pass."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from lab.decoding.beam.rows import ModelBeams
from lab.decoding.beam.search import Settings
from lab.decoding.processors import make_processors
from lab.decoding.sampling import Sampling, choose


@dataclass
class Followed:
    """One way.

    Attributes:
        log_probs: of its tokens, over the whole vocabulary, after the processors and before any temperature.
    """

    sampling: Sampling
    token_ids: list[int] = field(default_factory=list)
    log_probs: list[float] = field(default_factory=list)


def follow(
    beams: ModelBeams, settings: Settings, prompt_ids: Sequence[int], samplings: Sequence[Sampling]
) -> Generator[int | None, None, list[Followed]]:
    """Decode one text for each of `samplings`, each until an end token or the length limit.

    The processors see log-probabilities, as in the search, so a repetition penalty means here what it means there
    (greedy `generate()` applies it to logits).

    Args:
        beams: after their prefill; rewound first.

    Yields:
        How many tokens the longest has so far, and None where a slice may end.
    """
    beams.rewind()
    ends = frozenset(settings.end_token_ids)
    processors = make_processors(settings.repetition, len(prompt_ids), sorted(ends))
    ways = [Followed(sampling) for sampling in samplings]
    log_probs: Tensor = yield from beams.first()
    generators = [s.generator(log_probs.device) if s.do_sample else None for s in samplings]
    log_probs = log_probs.expand(len(ways), -1)
    alive = list(range(len(ways)))
    for index in range(settings.max_new_tokens):
        with torch.inference_mode():
            if processors:
                ids = torch.tensor([[*prompt_ids, *ways[way].token_ids] for way in alive], device=log_probs.device)
                log_probs = processors(ids, log_probs.clone())  # type: ignore[arg-type]
            for row, way in enumerate(alive):
                token = int(choose(log_probs[row], ways[way].sampling, generators[way])[0])
                ways[way].token_ids.append(token)
                ways[way].log_probs.append(float(log_probs[row, token]))
        rows = [row for row, way in enumerate(alive) if ways[way].token_ids[-1] not in ends]
        yield index + 1
        if not rows or index + 1 == settings.max_new_tokens:
            break
        rows_before = [0] * len(rows) if index == 0 else rows
        alive = [alive[row] for row in rows]
        log_probs = yield from beams.extend(rows_before, [ways[way].token_ids[-1] for way in alive])
    return ways
