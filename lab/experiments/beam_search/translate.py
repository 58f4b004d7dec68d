"""From what the search and its rows give to events."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from lab.decoding.beam.hypotheses import Finished
from lab.decoding.beam.llama_beams import LlamaBeams
from lab.decoding.beam.search import SearchStep
from lab.decoding.beam.transformers_beams import TransformersBeams
from lab.events.beam_search import BeamStep, Hypothesis, Node
from lab.kv_cache.formula import LayerShape, bytes_per_token, cache_dtype
from lab.kv_cache.ledger import read_ledger


def hypothesis_event(finished: Finished) -> Hypothesis:
    """A finished text as an event has it."""
    return Hypothesis(finished.node, finished.length, finished.sum_log_prob, finished.score, finished.is_end)


def step_event(
    step: SearchStep,
    texts: Sequence[str],
    beams: LlamaBeams | TransformersBeams,
    shapes: Sequence[LayerShape],
    dtype: torch.dtype,
) -> BeamStep:
    """One step. `texts` belong to its candidates, in order; `beams` are read for the ledger's figures."""
    held = beams.held()
    return BeamStep(
        index=step.index,
        nodes=tuple(
            Node(
                c.id,
                c.parent,
                c.beam,
                c.token_id,
                text,
                c.log_prob,
                c.score,
                c.rank,
                c.fate,
                c.reason,
                c.becomes,
            )
            for c, text in zip(step.candidates, texts, strict=True)
        ),
        running=step.running,
        shelf=tuple(hypothesis_event(h) for h in step.shelf),
        best_possible=step.best_possible,
        stop=step.stop,
        ms=step.ms,
        reorder_ms=beams.reorder_ms,
        cache_length=held.prompt + held.generated,
        cache_bytes=held.bytes,
        formula_bytes=_formula_bytes(beams, shapes, dtype),
    )


def _formula_bytes(beams: LlamaBeams | TransformersBeams, shapes: Sequence[LayerShape], dtype: torch.dtype) -> int:
    """2 * kv_heads * head_dim * bytes for each layer and position; a prompt that all rows share counts once."""
    held = beams.held()
    if held.shares_prompt:
        positions = held.prompt + held.rows * held.generated
        return positions * bytes_per_token(shapes, cache_dtype(str(dtype).removeprefix("torch.")))
    assert isinstance(beams, TransformersBeams)  # noqa: S101 - the other kind shares its prompt
    rows = read_ledger(beams.cache, shapes, held.prompt + held.generated, dtype, batch=held.rows)
    return sum(row.formula_bytes for row in rows)
