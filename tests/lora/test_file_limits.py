"""What of an adapter's files is bounded: patterns and targets, sizes of values, kinds of files."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from lora_files import Q, settings, tensors, written
from lora_made import trained

from lab.errors import BadInput, ModelError
from lab.lora.peft_config import CONFIG, MAX_PATTERNS, PeftConfig, peft_config
from lab.lora.peft_files import WEIGHTS, read_adapter
from lab.models.loading import LoadedModel

Tiny = Callable[..., LoadedModel]


@pytest.mark.parametrize("key", ["q_proj", "0.self_attn.q_proj", r"layers\.0\.self_attn\.q_proj", f"^{Q}", f"{Q}$"])
def test_patterns_that_are_names_are_taken_as_peft_takes_them(tiny: Tiny, tmp_path: Path, key: str) -> None:
    out = settings(written(tiny, tmp_path / "a"), alpha_pattern={key: 80, "self_attn.q_proj": 40})
    found = read_adapter(out)
    other = Q.replace("0", "1")
    assert found.scale(Q) == 20
    assert found.scale(other) == (20 if key == "q_proj" else 10)
    for module in (Q, other):
        theirs = next(k for k in (key, "self_attn.q_proj") if re.match(rf"(.*\.)?({k})$", module))  # as in peft
        assert found.scale(module) == {key: 80, "self_attn.q_proj": 40}[theirs] / 4


def test_many_patterns_and_targets_are_looked_up_not_tried() -> None:
    modules = [f"model.layers.{i}.{j}.proj" for i in range(500) for j in range(20)]
    patterns = {f"{i}.{i % 20}.proj": float(i) for i in range(500)}
    config = PeftConfig(4, 8.0, False, tuple(modules), {}, patterns, "", False)

    class Counted(str):
        __slots__ = ()
        asked = 0

        def endswith(self, *args: Any) -> bool:
            type(self).asked += 1
            return super().endswith(*args)

    alphas = config.alphas_of([Counted(module) for module in modules])
    assert Counted.asked <= len(modules)
    assert [alphas[f"model.layers.7.{j}.proj"] for j in (6, 7)] == [8, 7]
    assert config.unmet_targets(modules) == []
    assert config.unmet_targets(modules[1:]) == modules[:1]


def test_more_than_is_read_is_not_written(tiny: Tiny) -> None:
    made = trained(tiny().model, ("q_proj",))
    alphas = {f"x{i}": 3.0 for i in range(MAX_PATTERNS + 1)}
    with pytest.raises(BadInput, match="1,001 alphas of their own; at most 1,000"):
        peft_config(replace(made, alphas=alphas))


def test_factors_whose_product_is_not_finite_are_refused(tiny: Tiny, tmp_path: Path) -> None:
    out = written(tiny, tmp_path / "a")
    large = {f"base_model.model.{Q}.lora_{x}.weight": shape for x, shape in (("A", (4, 32)), ("B", (32, 4)))}
    for size in (1e15, 1e30):
        tensors(out, lambda held, size=size: held.update({n: torch.full(s, size) for n, s in large.items()}))  # type: ignore[misc]
        if size < 1e20:
            assert torch.isfinite(read_adapter(out).delta(Q)).all()
        else:
            with pytest.raises(ModelError, match=f"update of {Q} .* is not finite"):
                read_adapter(out)


@pytest.mark.parametrize("kind", ["pipe", "device"])
@pytest.mark.parametrize("file", [CONFIG, WEIGHTS])
def test_what_is_no_regular_file_is_refused_at_once(tiny: Tiny, tmp_path: Path, kind: str, file: str) -> None:
    out = written(tiny, tmp_path / "a")
    (out / file).unlink()
    if kind == "pipe":
        os.mkfifo(out / file)
    else:
        (out / file).symlink_to("/dev/zero")
    code = "import sys; from lab.lora.peft_files import read_adapter; from pathlib import Path\n"
    code += (
        "from lab.experiments.lora.params import _files_hash; print(repr(_files_hash(Path(sys.argv[1]))), flush=True)\n"
    )
    code += (
        "try:\n    read_adapter(Path(sys.argv[1]))\nexcept Exception as error:\n    print(type(error).__name__, error)"
    )
    # In a process of its own: a read that hangs or fills the memory ends with it.
    ran = subprocess.run(
        [sys.executable, "-c", code, str(out)], capture_output=True, text=True, timeout=60, check=False
    )
    first, second = ran.stdout.splitlines()
    assert first == "''"
    assert second.startswith("ModelError")
    assert "not readable" in second or f"holds no {WEIGHTS}" in second


def test_a_link_to_a_file_is_read(tiny: Tiny, tmp_path: Path) -> None:
    out = written(tiny, tmp_path / "a")
    for file in (CONFIG, WEIGHTS):
        (out / file).rename(tmp_path / file)
        (out / file).symlink_to(tmp_path / file)
    assert read_adapter(out).tensors
