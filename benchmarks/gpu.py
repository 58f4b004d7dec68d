"""What is checked where there is a GPU: `python -m benchmarks.gpu`, under five minutes on one card.

Equality with `generate()` in fp32, the ledger against `torch.cuda.memory_allocated`, and the decode benchmark in
the card's own dtype. Without a GPU it says so and ends with exit code 2.
"""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any

from lab.errors import LabError, ModelError

if TYPE_CHECKING:
    from lab.models.loading import LoadedModel

TIE = 1e-4
"""In fp32, tokens may first differ only where the two largest logits are closer than this."""

BLOCK = 512
"""CUDA's allocator rounds each tensor up to this many bytes."""


def main() -> int:
    """Run all three; 0 if all hold, 1 if one does not, 2 without a GPU."""
    try:
        _require_gpu()
        report = _report()
    except LabError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code
    print(json.dumps(report))
    return 0 if report["equality"]["holds"] and report["ledger"]["holds"] else 1


def _require_gpu() -> None:
    import torch

    if not torch.cuda.is_available():
        build = torch.version.cuda or "none, a CPU build"
        raise ModelError(
            f"There is no GPU that torch can use (its CUDA: {build}).",
            remedy="Run this on a machine with an NVIDIA GPU and a CUDA build of torch: make gpu TORCH=system.",
        )


def _report() -> dict[str, Any]:
    from benchmarks.decode import run_decode
    from lab.models.registry import DEFAULT_MODEL, load_model

    exact = load_model(DEFAULT_MODEL, dtype="float32", device="cuda")
    report: dict[str, Any] = {"equality": equality(exact), "ledger": ledger(exact)}
    report["decode"] = [run_decode(exact, repeats=5)]
    del exact
    own = load_model(DEFAULT_MODEL, device="cuda")
    report["decode"].append(run_decode(own, repeats=5))
    return report


def equality(loaded: LoadedModel, new_tokens: int = 48) -> dict[str, Any]:
    """Greedy and sampled tokens of our loop against `generate()`; a difference must be a near tie."""
    import torch

    from benchmarks.decode import PROMPT, plain_generate
    from lab.decoding.loop import Step, decode
    from lab.decoding.sampling import Sampling

    ids = [int(i) for i in loaded.tokenizer(PROMPT).input_ids]
    cases = []
    choices: tuple[dict[str, Any], ...] = (
        {"do_sample": False},
        {"do_sample": True, "temperature": 0.8, "top_k": 50, "top_p": 0.95},
    )
    for options in choices:
        torch.manual_seed(7)
        expected = plain_generate(loaded, ids, new_tokens, **options)
        for fast in (None, False):
            sampling = Sampling(seed=7, **options)
            run = decode(loaded.model, ids, max_new_tokens=new_tokens, sampling=sampling, fast=fast)
            steps = [item for item in run if isinstance(item, Step)]
            first = next((s for s, t in zip(steps, expected, strict=True) if s.token_id != t), None)
            cases.append(
                {
                    **options,
                    "fast": fast is None,
                    "first_difference": None if first is None else {"index": first.index, "gap": first.gap},
                    "holds": first is None or first.gap < TIE,
                }
            )
    return {"holds": all(case["holds"] for case in cases), "cases": cases}


def ledger(loaded: LoadedModel) -> dict[str, Any]:
    """Bytes that the ledger says are reserved against what CUDA's allocator says the cache took.

    transformers' own cache modules are left out: a `new_cache` is filled by hand, layer by layer.
    """
    import torch

    from lab.decoding.cache_layout import new_cache, total_bytes

    cases = []
    for positions in (1, 100, 1000, 4000):
        cache = new_cache(loaded.model, positions)
        states = [
            torch.zeros(1, f.kv_heads, positions, f.head_dim, dtype=loaded.dtype, device=loaded.device)
            for f in loaded.facts.layers
        ]
        torch.cuda.synchronize(loaded.device)
        before = torch.cuda.memory_allocated(loaded.device)
        for index, state in enumerate(states):
            cache.update(state, state, index)
        torch.cuda.synchronize(loaded.device)
        taken = torch.cuda.memory_allocated(loaded.device) - before
        held, reserved = total_bytes(cache)
        slack = 2 * BLOCK * len(cache.layers)
        cases.append(
            {
                "positions": positions,
                "held_bytes": held,
                "reserved_bytes": reserved,
                "allocated_bytes": taken,
                "holds": held == reserved and reserved <= taken <= reserved + slack,
            }
        )
    return {"holds": all(case["holds"] for case in cases), "cases": cases}


if __name__ == "__main__":
    sys.exit(main())
