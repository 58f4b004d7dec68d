"""The malloc settings of the model process, by what malloc then does; glibc only, as the settings are."""

from __future__ import annotations

import ctypes
import json
import os
import subprocess
import sys

import pytest

from lab.backend.malloc import MALLOC

SCRIPT = """
import ctypes, json, sys

class Info(ctypes.Structure):
    _fields_ = [(name, ctypes.c_size_t) for name in (
        "arena", "ordblks", "smblks", "hblks", "hblkhd", "usmblks", "fsmblks", "uordblks", "fordblks", "keepcost")]

if sys.argv[1] == "settled":
    from lab.backend.malloc import settle_this_process
    assert settle_this_process()
c = ctypes.CDLL(None)
c.malloc.restype, c.malloc.argtypes, c.free.argtypes = ctypes.c_void_p, [ctypes.c_size_t], [ctypes.c_void_p]
c.mallinfo2.restype = Info
before = c.mallinfo2().hblks
block = c.malloc(64 << 20)
mapped = c.mallinfo2().hblks - before
c.free(block)
print(json.dumps([mapped, c.mallinfo2().arena >> 20]))
"""
needs_glibc = pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "mallinfo2"), reason="these are settings of glibc 2.33")


def told(how: str, **environment: str) -> tuple[int, int]:
    """Blocks of 64 MiB that malloc mapped on their own, and the MiB that it holds after their end."""
    plain = {name: value for name, value in os.environ.items() if not name.startswith("MALLOC_")}
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, how], env={**plain, **environment}, capture_output=True, text=True, check=True
    )
    mapped, held = json.loads(done.stdout)
    return mapped, held


@needs_glibc
def test_a_process_that_runs_already_keeps_what_it_frees_as_one_that_was_started_so() -> None:
    assert told("plain")[0] == 1, "by itself glibc maps such a block, and unmaps it when it is freed"
    for mapped, held in (told("settled"), told("plain", **MALLOC)):
        assert mapped == 0
        assert held >= 64
    assert told("settled", MALLOC_MMAP_MAX_="65536", MALLOC_TRIM_THRESHOLD_="131072")[0] == 1, (
        "the user's word goes first"
    )
