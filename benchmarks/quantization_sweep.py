"""Rounding errors of a whole model on every grid, beside the plain torch code that a user would write.

210 matrices of the default model, six group sizes and four widths, symmetric: for each a histogram of the errors, the
largest and the mean square. Both give the same counts and the same moments, bit for bit; the bar is twice the speed.
What a setting costs is also given as a multiple of one read of the weights.

Run `python -m benchmarks.quantization_sweep --json`; `--matrices 14` takes two layers only.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.nn.functional import pad

from benchmarks.measure import GIB, Spread, interleaved, read_bandwidth, threads
from lab.errors import LabError
from lab.quantization.grid import Grid
from lab.quantization.rounding_errors import BINS
from lab.quantization.sweep import limit_of, swept

if TYPE_CHECKING:
    from lab.models.loading import LoadedModel

SIZES = (16, 32, 64, 128, 256, 512)
WIDTHS = (2, 3, 4, 8)
BAR = 2.0
MEMORY_BAR_MIB = 200
MIB = 2**20

Figures = tuple[tuple[int, ...], float, float]
"""Counts, largest |e|, mean of e^2 in fp32."""


def grids() -> tuple[Grid, ...]:
    """All settings; scales in fp32 so that the plain code needs no rounding of its own."""
    return tuple(Grid(bits, "absmax", size, ragged=True, scale_format="float32") for bits in WIDTHS for size in SIZES)


def plain(weight: Tensor, bits: int, size: int, limit: float) -> Figures:
    """One setting as one would write it: absolute maximum, divide, round, multiply, subtract, `histc`."""
    rows, columns = weight.shape
    groups = pad(weight, (0, -columns % size)).view(rows, -1, size)
    scale = groups.abs().amax(dim=-1, keepdim=True) / (2 ** (bits - 1) - 1)
    scale = scale.clamp(min=torch.finfo(torch.float32).tiny)  # a group of zeros
    error = groups - torch.round(groups / scale) * scale
    error = error.view(rows, -1)[:, :columns].reshape(-1)
    counts = torch.histc(error, bins=BINS, min=-limit, max=limit)
    wide = error.double()
    mean_square = (torch.dot(wide, wide) / error.numel()).float()
    return tuple(int(c) for c in counts.tolist()), float(error.abs().max()), float(mean_square)


def plain_sweep(weights: list[Tensor]) -> list[list[Figures]]:
    """All settings of all matrices, one after another."""
    found = []
    for weight in weights:
        low, high = (float(end) for end in torch.aminmax(weight))
        found.append([plain(weight, grid.bits, int(grid.share), limit_of(low, high, grid)) for grid in grids()])
    return found


def our_sweep(weights: list[Tensor]) -> list[list[Figures]]:
    """The same by `lab.quantization.sweep`."""
    return [
        [(tuple(one.counts.tolist()), one.max_error, one.mean_square) for one in swept(weight, grids())]
        for weight in weights
    ]


def run_sweep(
    loaded: LoadedModel, *, matrices: int = 0, repeats: int = 3, thread_counts: tuple[int, ...] = (1, 2)
) -> dict[str, Any]:
    """Everything that is printed, as plain JSON data.

    Args:
        matrices: how many, in the model's order; 0: all linear modules but the head.
    """
    weights = linear_weights(loaded.model)
    weights = weights[:matrices] if matrices else weights
    read_bytes = sum(weight.nbytes for weight in weights)
    settings = len(grids())
    results = []
    for count in thread_counts if loaded.device.type == "cpu" else (torch.get_num_threads(),):
        with threads(count):
            extra = peak_extra_bytes(weights)
            seconds, found = interleaved(
                {"plain": lambda: plain_sweep(weights), "lab": lambda: our_sweep(weights)}, repeats, loaded.device
            )
            read = read_bytes / read_bandwidth(read_bytes, loaded.device).median
        ratio = Spread.of([p / o for p, o in zip(seconds["plain"], seconds["lab"], strict=True)])
        equal = found["plain"] == found["lab"]
        results.append(
            {
                "threads": count,
                "seconds": {name: Spread.of(taken).json() for name, taken in seconds.items()},
                "ratio": ratio.json(),
                "reads_per_setting": {
                    name: Spread.of([s / settings / read for s in taken]).json(2) for name, taken in seconds.items()
                },
                "read_gib_per_s": round(read_bytes / read / GIB, 2),
                "counts_and_moments_equal": equal,
                "peak_extra_mib": None if extra is None else round(extra / MIB, 1),
                "bar_met": equal and ratio.median >= BAR and (extra is None or extra < MEMORY_BAR_MIB * MIB),
            }
        )
    return {
        "benchmark": "quantization_sweep",
        "model": loaded.facts.id,
        "device": str(loaded.device),
        "torch": torch.__version__,
        "matrices": len(weights),
        "weights": sum(weight.numel() for weight in weights),
        "group_sizes": SIZES,
        "bits": WIDTHS,
        "settings": settings,
        "bins": BINS,
        "repeats": repeats,
        "bars": {"ratio": BAR, "peak_extra_mib": MEMORY_BAR_MIB},
        "bars_met": all(result["bar_met"] for result in results),
        "results": results,
    }


def linear_weights(model: nn.Module) -> list[Tensor]:
    """The weights of all linear modules but the head, in the model's order."""
    return [
        module.weight.detach()
        for name, module in model.named_modules()
        if isinstance(module, nn.Linear) and not name.endswith("lm_head")
    ]


def peak_extra_bytes(weights: list[Tensor]) -> int | None:
    """How far our sweep raises the resident memory of the process; None where Linux does not tell."""
    for weight in weights:
        weight.sum()  # the file that holds them is mapped: its pages count as the process's once they are read
    try:
        Path("/proc/self/clear_refs").write_text("5")
        before = _status("VmRSS")
        our_sweep(weights)
        return max(0, _status("VmHWM") - before)
    except (OSError, KeyError):
        return None


def _status(key: str) -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return {
        name: int(rest.split()[0]) * 1024 for name, _, rest in (line.partition(":") for line in lines) if name == key
    }[key]


def as_text(report: dict[str, Any]) -> str:
    """The report as lines for a person."""
    lines = [
        f"{report['model']}, {report['device']}, torch {report['torch']}: {report['matrices']} matrices, "
        f"{report['settings']} settings, {report['bins']} bins, {report['repeats']} rounds"
    ]
    for result in report["results"]:
        ratio, reads = result["ratio"], result["reads_per_setting"]
        lines.append(f"{result['threads']} thread(s); reads {result['read_gib_per_s']} GiB/s")
        lines += [
            f"  {name:5} {taken['median']:7.2f} s ({taken['min']} to {taken['max']}), "
            f"{reads[name]['median']:.1f} reads of the weights a setting"
            for name, taken in result["seconds"].items()
        ]
        same = "equal" if result["counts_and_moments_equal"] else "DIFFERENT"
        lines.append(
            f"  {ratio['median']:.2f}x ({ratio['min']} to {ratio['max']}), bar {BAR}x; counts and moments {same}; "
            f"peak extra memory {result['peak_extra_mib']} MiB, bar {MEMORY_BAR_MIB}"
        )
    lines.append("bars met" if report["bars_met"] else "BARS NOT MET")
    return "\n".join(lines)


def main(arguments: list[str] | None = None) -> int:
    """Run it; 0 if the bars are met, 1 if not."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.quantization_sweep", description=__doc__)
    parser.add_argument("--json", action="store_true", help="print one JSON line")
    parser.add_argument("--matrices", type=int, default=0, help="only so many matrices; 0: all")
    parser.add_argument("--repeats", type=int, default=3, help="rounds that count")
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2], help="numbers of torch threads")
    chosen = parser.parse_args(arguments)
    from lab.models.registry import DEFAULT_MODEL, load_model

    try:
        loaded = load_model(DEFAULT_MODEL, dtype="float32", device="cpu")
    except LabError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code
    report = run_sweep(loaded, matrices=chosen.matrices, repeats=chosen.repeats, thread_counts=tuple(chosen.threads))
    print(json.dumps(report) if chosen.json else as_text(report))
    return 0 if report["bars_met"] else 1


if __name__ == "__main__":
    sys.exit(main())
