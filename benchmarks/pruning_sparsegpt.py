"""SparseGPT of a whole model beside a published engine; see `benchmarks.published` for what is measured and how.

Settings: half of the weights of each matrix, masks in blocks of 128 columns, damping 0.01, calibration on so many
tokens in windows of 512, one decoder layer after another on already pruned inputs, head dense.

Run: python -m benchmarks.pruning_sparsegpt [ENGINE_PYTHON]
"""

from __future__ import annotations

import json
import sys
from typing import Any

from benchmarks.published import arguments, beside, engine, own_run

ENGINE = engine(
    "from llmcompressor.modifiers.pruning.sparsegpt import SparseGPTModifier",
    """SparseGPTModifier(
    sparsity=0.5, mask_structure="0:0", block_size=128, dampening_frac=0.01, targets=["Linear"],
    ignore=["re:.*lm_head"],
)""",
)


def run_pruning_sparsegpt(**options: Any) -> dict[str, Any]:
    """Everything that the command prints, as plain JSON data; options as of `benchmarks.published.beside`."""
    settings = {"sparsity": 0.5, "damping": 0.01, "block": 128}
    return {
        "benchmark": "pruning_sparsegpt",
        "settings": settings,
        **beside("benchmarks.pruning_sparsegpt", ENGINE, **options),
    }


def _pruned(model: Any, windows: list[list[int]]) -> tuple[Any, dict[str, Any]]:
    from lab.pruning.pattern import Pattern
    from lab.pruning.sparsegpt import SparseGpt
    from lab.pruning.whole_model import prune_model

    whole = prune_model(model, SparseGpt(Pattern(0.5)), windows=windows)
    return whole.shell, {"zeros": round(whole.coverage.sparsity, 4)}


if __name__ == "__main__":
    if sys.argv[1:2] == ["--one"]:
        own_run(sys.argv[2:6], _pruned)
    else:
        given = arguments(__doc__)
        print(json.dumps(run_pruning_sparsegpt(**vars(given)), indent=2))
