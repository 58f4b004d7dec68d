"""Writing a model to a directory: config and tokenizer, and the weights as one safetensors file, piece by piece.

A run pauses between pieces: safetensors' own writer takes a whole file in one call, for the default model a second.
"""

from __future__ import annotations

import json
import os
import struct
from collections.abc import Container, Generator, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from lab.models.atomic import not_written

PIECE_BYTES = 8 << 20
_NAMES = {torch.float64: "F64", torch.float32: "F32", torch.float16: "F16", torch.bfloat16: "BF16"}
_NAMES |= {torch.int64: "I64", torch.int32: "I32", torch.int16: "I16", torch.int8: "I8", torch.uint8: "U8"}
_NAMES[torch.bool] = "BOOL"
_ALIGNED = 8


def stored_once(model: nn.Module, *, but: Container[str] = ()) -> dict[str, Tensor]:
    """A model's tensors by name, tied ones once, under the first of their names.

    Args:
        but: modules whose weight is left out.
    """
    seen: set[tuple[int, tuple[int, ...]]] = set()
    found = {}
    for name, tensor in model.state_dict().items():
        key = (tensor.data_ptr(), tuple(tensor.shape))
        if name.removesuffix(".weight") in but or key in seen:
            continue
        seen.add(key)
        found[name] = tensor.detach()
    return found


def write_around(out: Path, partial: Path, model: Any, tokenizer: Any) -> None:
    """Write config and tokenizer of what will be `out` into `partial`.

    Raises:
        OSError, ModelError: the disk is full or fails.
    """
    model.config.save_pretrained(partial)
    generation = getattr(model, "generation_config", None)
    if generation is not None:
        generation.save_pretrained(partial)
    try:
        tokenizer.save_pretrained(partial)
    except OSError:
        raise
    except Exception as error:  # the tokenizers library has no class of its own for a full disk
        raise not_written(out, str(error)[:200]) from error


def writing_weights(file: Path, tensors: Mapping[str, Tensor]) -> Generator[float, None, None]:
    """Write `tensors` to `file`, on the disk at the end; yields the share done after each piece.

    Wide dtypes go first, so that each tensor starts at a multiple of its own item size.

    Raises:
        KeyError: a dtype that such a file does not have.
        OSError: the disk is full or fails.
    """
    order = sorted(tensors, key=lambda name: (-tensors[name].element_size(), name))
    header: dict[str, object] = {"__metadata__": {"format": "pt"}}
    end = 0
    for name in order:
        tensor, start = tensors[name], end
        end += tensor.nbytes
        header[name] = {"dtype": _NAMES[tensor.dtype], "shape": list(tensor.shape), "data_offsets": [start, end]}
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % _ALIGNED)
    done = 0
    with file.open("wb") as stream:
        stream.write(struct.pack("<Q", len(text)) + text)
        for name in order:
            data = tensors[name].cpu().contiguous().reshape(-1).view(torch.uint8).numpy()
            for at in range(0, len(data), PIECE_BYTES):
                stream.write(data[at : at + PIECE_BYTES].data)
                stream.flush()
                os.fsync(stream.fileno())  # now: at the end it would be one long wait for everything
                done += len(data[at : at + PIECE_BYTES])
                yield done / end
    file.chmod(0o644)
