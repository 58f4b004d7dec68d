"""GPTQ of a whole model beside a published engine; see `benchmarks.published` for what is measured and how.

Settings: 4 bits, symmetric, groups of 64, static groups in activation order, damping 0.01, blocks of 128, calibration
on so many tokens in windows of 512, one decoder layer after another on already quantized inputs, head dense. Grids
differ by what each engine has: ours absmax (-7 to 7), theirs -8 to 7.

Run: python -m benchmarks.quantization_gptq [ENGINE_PYTHON]
"""

from __future__ import annotations

import json
import sys
from typing import Any

from benchmarks.published import arguments, beside, engine, own_run

ENGINE = engine(
    "from llmcompressor.modifiers.gptq import GPTQModifier",
    """GPTQModifier(
    config_groups={"all": {"targets": ["Linear"], "weights": {
        "num_bits": 4, "type": "int", "symmetric": True, "strategy": "group", "group_size": 64, "actorder": "static",
    }}},
    ignore=["lm_head"], dampening_frac=0.01, block_size=128,
)""",
)


def run_quantization_gptq(**options: Any) -> dict[str, Any]:
    """Everything that the command prints, as plain JSON data; options as of `benchmarks.published.beside`."""
    settings = {"bits": 4, "group_size": 64, "act_order": "static", "damping": 0.01, "block": 128}
    return {
        "benchmark": "quantization_gptq",
        "settings": settings,
        **beside("benchmarks.quantization_gptq", ENGINE, **options),
    }


def _quantized(model: Any, windows: list[list[int]]) -> tuple[Any, dict[str, Any]]:
    from lab.quantization.gptq import Gptq
    from lab.quantization.grid import Grid
    from lab.quantization.whole_model import quantize_model

    whole = quantize_model(model, Gptq(Grid(4, "absmax", 64)), windows=windows)
    return whole.shell, {"bits_per_weight": whole.bits_per_weight}


if __name__ == "__main__":
    if sys.argv[1:2] == ["--one"]:
        own_run(sys.argv[2:6], _quantized)
    else:
        given = arguments(__doc__)
        print(json.dumps(run_quantization_gptq(**vars(given)), indent=2))
