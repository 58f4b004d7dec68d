"""Which way the beams of a run go: the fast path where it fits, else the model's own forward."""

from __future__ import annotations

from collections.abc import Sequence

from torch import nn

from lab.decoding.beam.llama_beams import LlamaBeams
from lab.decoding.beam.search import Mistake
from lab.decoding.beam.transformers_beams import TransformersBeams
from lab.decoding.llama_fits import why_not
from lab.errors import ModelError


def choose_beams(
    model: nn.Module,
    prompt_ids: Sequence[int],
    *,
    width: int,
    max_new_tokens: int,
    fast: bool | None = None,
    mistake: Mistake = "nothing",
) -> LlamaBeams | TransformersBeams:
    """Beams for one run, before their prefill.

    Args:
        fast: None: the fast path where it fits; False: never; True: refuse where it does not fit.

    Raises:
        ModelError: no attention key/value cache, or `fast` is True and the fast path does not fit.
    """
    leave = mistake == "cache_not_reordered"
    if fast is not False:
        reason = why_not(model)
        if not reason:
            return LlamaBeams(model, prompt_ids, width, max_new_tokens, leave_rows=leave)
        if fast:
            raise ModelError(f"The fast path does not fit: {reason}.", remedy="Leave the choice of path open.")
    return TransformersBeams(model, prompt_ids, len(prompt_ids) + max_new_tokens, leave_rows=leave)
