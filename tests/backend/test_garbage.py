"""The collector does not look through the libraries of a model process, and still finds what is garbage later."""

from __future__ import annotations

import subprocess
import sys

SPARED = """
import gc, sys, weakref
from lab.backend.garbage import spare_libraries
from lab.experiments.registry import EXPERIMENTS
loads = [experiment.load for experiment in EXPERIMENTS.values()]
if sys.argv[1] == "spared":
    spare_libraries(loads)
else:
    import torch, transformers.models.llama.modeling_llama
    for load in loads:
        load()
    gc.collect()
print(len(gc.get_objects()))
class Cycle: pass
one = Cycle()
one.itself = one
gone = weakref.ref(one)
del one
gc.collect()
print(gone() is None)
for load in loads:
    load()
print(len(gc.get_objects()))
"""


def counted(how: str) -> tuple[int, bool, int]:
    """Objects that the collector walks, whether it found a cycle made later, and its objects once all is asked for."""
    done = subprocess.run([sys.executable, "-c", SPARED, how], capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stderr
    first, found, last = done.stdout.split()
    return int(first), found == "True", int(last)


def test_libraries_are_set_aside_and_later_garbage_is_found() -> None:
    first, found, last = counted("spared")
    assert found
    assert last < 20_000, "a run imports what was not set aside"
    assert first <= last
    plain, found, _ = counted("plain")  # the mutation: all of torch is walked
    assert found
    assert plain > 100_000
