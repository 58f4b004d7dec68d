"""Whether the dense row's words are those of transformers' own `generate()`."""

from __future__ import annotations

from collections.abc import Sequence

from lab.experiments.compared.finding import Finding, Verdict
from lab.experiments.compared.progress import Made, progress
from lab.experiments.reference import ReferenceTokens, reference_generate
from lab.models.loading import LoadedModel
from lab.models.shell import make_shell
from lab.steps import relay

TIE = 1e-4
"""In fp32: two largest logits of the reference so near may stand either way."""
_CLAIM = "the dense row is generate()'s"


def against_generate(loaded: LoadedModel, prompt: list[int], token_ids: Sequence[int], limit: int) -> Made[Finding]:
    """Run `generate()` on a shell of the dense model and compare.

    Args:
        token_ids: the dense row's new tokens. limit: how many were asked for at most.
    """
    shell = make_shell(loaded.model)
    yield None
    ends = tuple(sorted(loaded.end_token_ids))
    steps = reference_generate(shell, prompt, max_new_tokens=limit, end_token_ids=ends)
    try:
        reference = yield from relay(steps, lambda done: progress("checking against generate()", done, limit))
    except Exception as error:  # noqa: BLE001 - generate() of a foreign model can raise anything
        return Finding(_CLAIM, "unproven", f"generate() failed on this model: {type(error).__name__}.")
    return compared(token_ids, reference, float32=str(loaded.dtype) == "torch.float32")


def compared(ours: Sequence[int], reference: ReferenceTokens, *, float32: bool) -> Finding:
    """Token by token; a difference is allowed only at a near tie."""
    theirs = reference.token_ids
    matched = next((i for i, (a, b) in enumerate(zip(ours, theirs, strict=False)) if a != b), None)
    if matched is None and len(ours) == len(theirs):
        return Finding(_CLAIM, "equal", detail={"dense_tokens": len(ours), "dense_tokens_equal": len(ours)})
    at = min(len(ours), len(theirs)) if matched is None else matched
    detail = {"dense_tokens": len(ours), "dense_tokens_equal": at}
    verdict: Verdict = "different"
    words = f"After {at} equal tokens the dense row and generate() part"
    if matched is not None:
        limit = TIE if float32 else 2.0**-6 * max(reference.largest[at], 1.0)
        gap = reference.gaps[at]
        words += f" where generate()'s two largest logits are {gap:.3g} apart"
        if gap < limit and ours[at] == reference.runners_up[at]:
            verdict = "tie"
            words += ": either is right"
    return Finding(_CLAIM, verdict, words + ".", detail)
