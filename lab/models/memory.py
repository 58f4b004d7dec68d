"""How much memory a model needs and how much is free, so that one that will not fit is refused before it is loaded."""

from __future__ import annotations

import sys
from pathlib import Path

import psutil

from lab.errors import NotEnoughMemory

MIB = 1 << 20
WORKING_ROOM_BYTES = 256 * MIB
"""Activations, logits and caches of a modest run."""
_WORKING_SHARE = 0.05
_UNLIMITED = 1 << 60
ITEM_BYTES = {"float32": 4, "bfloat16": 2}


def needed_bytes(parameters: int, dtype: str) -> int:
    """Bytes for a model's weights in `dtype` ("float32" or "bfloat16") and the room to run it."""
    weights = parameters * ITEM_BYTES[dtype]
    return weights + WORKING_ROOM_BYTES + int(weights * _WORKING_SHARE)


def free_bytes(device: str = "cpu") -> int:
    """Bytes that can still be taken on `device` ("cpu", or "cuda" with or without a number)."""
    if device.startswith("cuda"):
        import torch

        free, _ = torch.cuda.mem_get_info(torch.device(device))
        return int(free)
    limits = [int(psutil.virtual_memory().available)]
    limits += [free for free in (cgroup_free_bytes(), _address_space_free_bytes()) if free is not None]
    return max(0, min(limits))


def require_memory(name: str, parameters: int, dtype: str, device: str) -> None:
    """Refuse a model that will not fit.

    Raises:
        NotEnoughMemory: it needs more than is free; both numbers are in the message.
    """
    needed, free = needed_bytes(parameters, dtype), free_bytes(device)
    if needed > free:
        smaller = ", or run it in bfloat16" if dtype == "float32" else ""
        raise NotEnoughMemory(
            f"{name} needs about {needed / MIB:,.0f} MiB in {dtype} (weights and working room), "
            f"but {free / MIB:,.0f} MiB are free on {device}.",
            remedy=f"Close other programs, take a smaller model{smaller}.",
        )


def cgroup_free_bytes(root: Path = Path("/sys/fs/cgroup"), proc: Path = Path("/proc/self/cgroup")) -> int | None:
    """What this process's control group (a container's limit) still allows, None where there is no limit.

    File pages count as free: the kernel gives them up under pressure.

    Args:
        root: where control groups are mounted.
        proc: names the groups of this process.
    """
    if not sys.platform.startswith("linux"):
        return None
    try:
        lines = proc.read_text().splitlines()
    except OSError:
        return None
    found: list[int] = []
    for line in lines:
        parts = line.split(":", 2)
        if len(parts) != 3:
            continue
        _, controllers, path = parts
        if controllers == "":
            found += _group_free(root, path, "memory.max", "memory.current", ("inactive_file", "active_file"))
        elif "memory" in controllers.split(","):
            names = ("memory.limit_in_bytes", "memory.usage_in_bytes")
            found += _group_free(root / "memory", path, *names, ("total_inactive_file", "total_active_file"))
    return min(found) if found else None


def _group_free(root: Path, path: str, limit_name: str, usage_name: str, cache: tuple[str, ...]) -> list[int]:
    """The free bytes of a group and of each group above it that has a limit."""
    free: list[int] = []
    group = root / path.lstrip("/")
    # Inside a container the path may be the host's, which is not mounted: the root is then the container's own group.
    while True:
        limit, usage = _number(group / limit_name), _number(group / usage_name)
        if limit is not None and usage is not None and limit < _UNLIMITED:
            stat = _stat(group / "memory.stat")
            free.append(max(0, limit - usage + sum(stat.get(key, 0) for key in cache)))
        if group == root or root not in group.parents:
            return free
        group = group.parent


def _number(path: Path) -> int | None:
    try:
        return int(path.read_text())
    except (OSError, ValueError):
        return None


def _stat(path: Path) -> dict[str, int]:
    try:
        pairs = [line.split() for line in path.read_text().splitlines()]
        return {pair[0]: int(pair[1]) for pair in pairs if len(pair) == 2}
    except (OSError, ValueError):
        return {}


def _address_space_free_bytes() -> int | None:
    """What `ulimit -v` still allows, None without such a limit."""
    if sys.platform == "win32":
        return None
    import resource

    soft, _ = resource.getrlimit(resource.RLIMIT_AS)
    if soft == resource.RLIM_INFINITY:
        return None
    return max(0, soft - int(psutil.Process().memory_info().vms))
