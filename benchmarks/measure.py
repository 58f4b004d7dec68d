"""Measuring: interleaved repeats, medians with spread, the machine's read bandwidth, the longest slice."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from time import perf_counter
from typing import Any

import torch

GIB = 2**30


@dataclass(frozen=True)
class Spread:
    """Median and the range around it, of `count` values."""

    median: float
    low: float
    high: float
    count: int

    @classmethod
    def of(cls, values: list[float]) -> Spread:
        return cls(statistics.median(values), min(values), max(values), len(values))

    def scaled(self, factor: float) -> Spread:
        """The same in another unit."""
        return Spread(self.median * factor, self.low * factor, self.high * factor, self.count)

    def json(self, digits: int = 3) -> dict[str, float | int]:
        return {
            "median": round(self.median, digits),
            "min": round(self.low, digits),
            "max": round(self.high, digits),
            "n": self.count,
        }


@contextmanager
def threads(count: int) -> Iterator[None]:
    """Run with `count` torch threads and put the number back afterwards."""
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def wait(device: torch.device) -> None:
    """Wait for a GPU's queued work; nothing on the CPU."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def interleaved(
    candidates: dict[str, Callable[[], Any]], repeats: int, device: torch.device
) -> tuple[dict[str, list[float]], dict[str, Any]]:
    """Seconds of each candidate in each of `repeats` rounds, and what each gave.

    One round that is not counted comes first. The order turns by one each round, so that none always
    follows the same other.
    """
    seconds: dict[str, list[float]] = {name: [] for name in candidates}
    results: dict[str, Any] = {}
    names = list(candidates)
    for round_ in range(repeats + 1):
        turn = round_ % len(names)
        for name in names[turn:] + names[:turn]:
            wait(device)
            began = perf_counter()
            results[name] = candidates[name]()
            wait(device)
            if round_:
                seconds[name].append(perf_counter() - began)
    return seconds, results


def read_bandwidth(size_bytes: int, device: torch.device, repeats: int = 7) -> Spread:
    """Bytes a second at which this machine reads a buffer as large as the weights (a sum over fp32).

    Shape of the buffer: (size_bytes / 4,). Larger than any cache if the weights are.
    """
    buffer = torch.ones(max(size_bytes // 4, 1), device=device)
    rates = []
    for _ in range(repeats + 1):
        wait(device)
        began = perf_counter()
        buffer.sum()
        wait(device)
        rates.append(buffer.nbytes / (perf_counter() - began))
    return Spread.of(rates[1:])


def slices(run: Generator[Any, None, Any], device: torch.device) -> tuple[list[tuple[float, str]], Any]:
    """Milliseconds of each slice of a cooperative run with what it ended in, and what the run returned."""
    taken: list[tuple[float, str]] = []
    while True:
        began = perf_counter()
        try:
            item = next(run)
        except StopIteration as stop:
            wait(device)
            taken.append(((perf_counter() - began) * 1e3, "the end"))
            return taken, stop.value
        wait(device)
        taken.append(((perf_counter() - began) * 1e3, "None" if item is None else type(item).__name__))
