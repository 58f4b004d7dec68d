"""Make nf4_bitsandbytes.json: what bitsandbytes' CPU backend makes of weights that any machine can make again.

Run as `python tests/quantization/golden/make_nf4.py` with the extra `oracles` installed.
"""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

FILE = Path(__file__).with_name("nf4_bitsandbytes.json")
CASES = ((8, 64, 64, False), (5, 33, 64, False), (7, 576, 128, False), (3, 7, 32, False), (20, 448, 32, True))
"""(rows, columns, block, double quantization): blocks across rows, odd counts, short last blocks among them."""


def exact_weights(rows: int, columns: int, seed: int) -> Tensor:
    """(rows, columns) fp32, about normal: each the sum of eight random bytes, less the mean, over 2^14: exact
    everywhere. Row 1 is zero where there are more than three rows."""
    data = random.Random(seed).randbytes(rows * columns * 8)
    numbers = torch.tensor(list(data), dtype=torch.float32).view(rows, columns, 8).sum(dim=2) - 1020
    if rows > 3:
        numbers[1] = 0
    return numbers / 2**14


def made(rows: int, columns: int, block: int, double_quant: bool, seed: int) -> dict[str, Any]:
    from bitsandbytes.functional import quantize_4bit

    w = exact_weights(rows, columns, seed)
    packed, state = quantize_4bit(w, blocksize=block, quant_type="nf4", compress_statistics=double_quant)
    case: dict[str, Any] = {"rows": rows, "columns": columns, "block": block, "seed": seed}
    case["packed"] = bytes(packed.flatten().tolist()).hex()
    if double_quant:
        case["magnitude_codes"] = bytes(state.absmax.tolist()).hex()
        case["magnitude_scales"] = [number.hex() for number in state.state2.absmax.tolist()]
        case["magnitude_mean"] = float(state.offset).hex()
    else:
        case["magnitudes"] = [number.hex() for number in state.absmax.tolist()]
    return case


if __name__ == "__main__":
    import bitsandbytes

    body = {
        "made_with": f"bitsandbytes {bitsandbytes.__version__}, CPU backend, by make_nf4.py beside this file; "
        "bytes and floats in hexadecimal",
        "cases": [made(*case, seed) for seed, case in enumerate(CASES)],
    }
    FILE.write_text(json.dumps(body, indent=1) + "\n", encoding="ascii")
