"""What Python's collector of cycles looks through in the model process: not the libraries, which are never garbage.

A full collection comes whenever enough objects were made, in the middle of some slice, and walks the 400,000 objects
of torch and transformers each time: 0.18 s on one core. Once these are set aside it takes 5 ms.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterable


def spare_libraries(loads: Iterable[Callable[[], object]] = ()) -> None:
    """Import what runs need, and set all that there is now aside for the life of the process.

    For a process of the lab's own, before its first model is loaded: what is set aside is never freed by the collector,
    so that no model may be among it.

    Args:
        loads: import more, see `Experiment.load`.
    """
    import torch
    from transformers.models.llama import modeling_llama

    del torch, modeling_llama
    for load in loads:
        load()
    gc.collect()
    gc.freeze()
