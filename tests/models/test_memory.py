"""What is needed against what is free."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from lab.models.memory import MIB, cgroup_free_bytes, free_bytes, needed_bytes

SMOLLM2 = 134_515_008


def test_needed_grows_with_the_item() -> None:
    assert needed_bytes(SMOLLM2, "float32") - needed_bytes(SMOLLM2, "bfloat16") == pytest.approx(
        2 * SMOLLM2 * 1.05, rel=1e-6
    )
    assert needed_bytes(SMOLLM2, "float32") > 4 * SMOLLM2


def test_free_is_at_most_what_the_machine_has() -> None:
    assert 0 < free_bytes() <= psutil.virtual_memory().total


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="control groups are Linux's")
class TestControlGroups:
    def test_version_2_takes_the_tightest_group(self, tmp_path: Path) -> None:
        write(tmp_path / "self", "0::/pod/box\n")
        write(tmp_path / "cg/pod/memory.max", f"{1000 * MIB}\n")
        write(tmp_path / "cg/pod/memory.current", f"{900 * MIB}\n")
        write(tmp_path / "cg/pod/box/memory.max", f"{2000 * MIB}\n")
        write(tmp_path / "cg/pod/box/memory.current", f"{500 * MIB}\n")
        assert cgroup_free_bytes(tmp_path / "cg", tmp_path / "self") == 100 * MIB

    def test_file_pages_count_as_free(self, tmp_path: Path) -> None:
        write(tmp_path / "self", "0::/\n")
        write(tmp_path / "cg/memory.max", f"{1000 * MIB}\n")
        write(tmp_path / "cg/memory.current", f"{900 * MIB}\n")
        write(tmp_path / "cg/memory.stat", f"anon 5\ninactive_file {300 * MIB}\nactive_file {100 * MIB}\n")
        assert cgroup_free_bytes(tmp_path / "cg", tmp_path / "self") == 500 * MIB

    def test_a_path_of_the_host_falls_back_to_the_root(self, tmp_path: Path) -> None:
        write(tmp_path / "self", "0::/not/mounted/here\n")
        write(tmp_path / "cg/memory.max", f"{700 * MIB}\n")
        write(tmp_path / "cg/memory.current", f"{200 * MIB}\n")
        assert cgroup_free_bytes(tmp_path / "cg", tmp_path / "self") == 500 * MIB

    def test_version_1(self, tmp_path: Path) -> None:
        write(tmp_path / "self", "12:cpu,cpuacct:/\n5:memory:/box\n")
        write(tmp_path / "cg/memory/box/memory.limit_in_bytes", f"{400 * MIB}\n")
        write(tmp_path / "cg/memory/box/memory.usage_in_bytes", f"{100 * MIB}\n")
        write(tmp_path / "cg/memory/memory.limit_in_bytes", "9223372036854771712\n")
        write(tmp_path / "cg/memory/memory.usage_in_bytes", "1\n")
        assert cgroup_free_bytes(tmp_path / "cg", tmp_path / "self") == 300 * MIB

    @pytest.mark.parametrize("limit", ["max\n", None])
    def test_no_limit(self, tmp_path: Path, limit: str | None) -> None:
        write(tmp_path / "self", "0::/\n")
        if limit:
            write(tmp_path / "cg/memory.max", limit)
        assert cgroup_free_bytes(tmp_path / "cg", tmp_path / "self") is None


@pytest.mark.model
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="ulimit -v is Linux's")
def test_a_model_that_will_not_fit_is_refused_with_both_numbers(
    packaged_model: object, tiny_directory: Callable[..., Path]
) -> None:
    """In a process with a real limit; the next, smaller model then loads."""
    del packaged_model  # it only has to be on this machine
    script = (
        "import resource, sys, psutil\n"
        "from lab.errors import NotEnoughMemory\n"
        "from lab.models.registry import load_model\n"
        "load_model(sys.argv[1], device='cpu')\n"  # imports all there is to import
        "limit = psutil.Process().memory_info().vms + (500 << 20)\n"
        "resource.setrlimit(resource.RLIMIT_AS, (limit, limit))\n"
        "try:\n"
        "    load_model('smollm2-135m-instruct', device='cpu')\n"
        "except NotEnoughMemory as error:\n"
        "    print(error.message)\n"
        "print(load_model(sys.argv[1], device='cpu').facts.parameters)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, str(tiny_directory("llama"))],
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    )
    message, parameters = done.stdout.strip().splitlines()
    assert "needs about 795 MiB in float32" in message
    free = int(message.split("but ")[1].split(" MiB")[0].replace(",", ""))
    assert 300 < free <= 500
    assert int(parameters) > 20_000
