"""peft as the oracle: frozen figures always, the library itself where the extra `oracles` is installed."""

from __future__ import annotations

import copy
import json
import math
import warnings
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from golden.make_peft import CASES, FILE, IN, OUT, layer
from lora_made import GPT2, LLAMA, exact, logits, trained
from torch import Tensor

from lab.lora.adapter import Adapter, BaseFacts, Factors, LoraConfig, new_adapter
from lab.lora.attach import Attached
from lab.lora.merge import MergedShell
from lab.lora.peft_files import read_adapter, write_adapter
from lab.lora.spectrum import truncate
from lab.models.linear import out_in, set_weight
from lab.models.loading import LoadedModel
from lab.models.shell import make_shell

# peft asks transformers for an attribute by its old name.
pytestmark = pytest.mark.filterwarnings("ignore:`is_gradient_checkpointing` is deprecated:FutureWarning")

Tiny = Callable[..., LoadedModel]
GOLDEN: list[dict[str, Any]] = json.loads(FILE.read_text(encoding="ascii"))["cases"]
KINDS = ("llama", "gpt2")
CALM = 0.1
"""Size of the weights: with 0.3, as the tiny models have, one rounding in fp32 grows to 1e-5 in the logits."""


def numbers(rows: list[list[str]]) -> Tensor:
    return torch.tensor([[float.fromhex(text) for text in row] for row in rows])


def of_case(case: dict[str, Any], **changes: Any) -> tuple[Tensor, Tensor, Tensor]:
    """Unmerged and merged outputs, and the merged weight as it lies, computed here."""
    model = layer(case["kind"]).requires_grad_(False)
    pair = Factors(exact(case["rank"], IN, 3), exact(OUT, case["rank"], 4))
    config = LoraConfig(case["rank"], case["alpha"], ("layer",), case["rslora"])
    adapter = Adapter("a", config, {"layer": pair}, BaseFacts("", {"layer": (OUT, IN)}))
    adapter = replace(adapter, **changes)
    x = exact(2, IN, 5)
    with Attached(make_shell(model), [adapter]).using("a") as shell:
        unmerged = shell.get_submodule("layer")(x)
    merging = MergedShell(make_shell(model))
    merging.merge(adapter)
    merged: Any = merging.shell.get_submodule("layer")
    return unmerged, merged(x), merged.weight


def test_the_golden_file_has_all_cases() -> None:
    assert [(c["kind"], c["rank"], c["alpha"], c["rslora"]) for c in GOLDEN] == list(CASES)


@pytest.mark.parametrize("case", GOLDEN, ids=lambda c: f"{c['kind']}-{c['rank']}-{c['rslora']}")
def test_outputs_and_weights_are_peft_s(case: dict[str, Any]) -> None:
    for mine, key in zip(of_case(case), ("unmerged", "merged", "weight"), strict=True):
        theirs = numbers(case[key])
        assert mine.shape == theirs.shape
        assert (mine - theirs).abs().max() <= (1e-6 if case["rslora"] else 0)


@pytest.mark.parametrize("mutation", ["alpha / r for rslora", "alpha alone", "transposed", "swapped"])
def test_a_usual_mistake_is_told_from_peft(mutation: str) -> None:
    plain, rooted = GOLDEN[1], GOLDEN[3]
    case = rooted if mutation == "alpha / r for rslora" else plain
    theirs = numbers(case["weight"])
    if mutation == "alpha / r for rslora":
        mine = of_case({**case, "rslora": False})[2]
    elif mutation == "alpha alone":
        mine = of_case(case, alphas={"layer": case["alpha"] * case["rank"]})[2]
    else:
        pair = Factors(exact(case["rank"], IN, 3), exact(OUT, case["rank"], 4))
        delta = (pair.b @ pair.a) * 2
        weight = layer("Conv1D").get_submodule("layer").weight
        # reading an (out, in) update into an (in, out) weight as it lies, or with the factors' parts exchanged
        mine = weight + (delta.reshape(IN, OUT) if mutation == "transposed" else delta.flip(0).t())  # type: ignore[operator]
    assert (mine - theirs).abs().max() > 1e-2


@pytest.fixture(scope="module")
def peft() -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # its own imports
        return pytest.importorskip("peft", reason="the extra `oracles` is not installed")


def targets(kind: str) -> tuple[str, ...]:
    return GPT2 if kind == "gpt2" else LLAMA


def by_peft(peft: Any, model: Any, out: Path) -> Any:
    """Our directory, loaded by peft on a model of its own tensors' shell."""
    return peft.PeftModel.from_pretrained(make_shell(model), str(out)).eval()


def unmerged(model: Any, adapter: Adapter, factor: float = 1.0) -> Tensor:
    with Attached(make_shell(model), [adapter]).using(adapter.name, factor) as shell:
        return logits(shell)


@pytest.mark.parametrize("rslora", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_our_files_load_in_peft_with_equal_logits(
    tiny: Tiny, tmp_path: Path, peft: Any, kind: str, rslora: bool
) -> None:
    model = tiny(kind, initializer_range=CALM).model
    adapter = trained(model, targets(kind), rslora=rslora, size=0.05)
    first, second, *_ = adapter.tensors
    a, b = adapter.tensors[first]
    adapter = replace(adapter, tensors={**adapter.tensors, first: Factors(a[:2], b[:, :2])}, alphas={second: 3.0})
    theirs = by_peft(peft, model, write_adapter(adapter, tmp_path / "a"))
    wanted = logits(theirs)
    assert (unmerged(model, adapter) - wanted).abs().max() <= 1e-5
    assert (unmerged(model, adapter, 0.99) - wanted).abs().max() > 1e-4
    assert (unmerged(model, replace(adapter, alphas={})) - wanted).abs().max() > 1e-4
    assert (logits(model) - wanted).abs().max() > 1e-2


@pytest.mark.parametrize("rslora", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_peft_s_files_load_here_with_equal_logits(
    tiny: Tiny, tmp_path: Path, peft: Any, kind: str, rslora: bool
) -> None:
    model = tiny(kind, initializer_range=CALM).model
    config = peft.LoraConfig(
        r=3,
        lora_alpha=6,
        target_modules=list(targets(kind)),
        use_rslora=rslora,
        fan_in_fan_out=kind == "gpt2",
        rank_pattern={targets(kind)[0]: 5},
        alpha_pattern={targets(kind)[1]: 9},
        task_type="CAUSAL_LM",
    )
    theirs = peft.get_peft_model(make_shell(model), config).eval()
    for index, (name, parameter) in enumerate(theirs.named_parameters()):
        if "lora_B" in name:
            parameter.data = exact(*parameter.shape, index) * 0.05
    theirs.save_pretrained(str(tmp_path / "a"))
    adapter = read_adapter(tmp_path / "a")
    assert (unmerged(model, adapter) - logits(theirs)).abs().max() <= 1e-5
    merging = MergedShell(make_shell(model))
    merging.merge(adapter)
    assert (logits(merging.shell) - logits(theirs)).abs().max() <= 1e-5
    wrong = replace(adapter, config=replace(adapter.config, rslora=not rslora))
    assert (unmerged(model, wrong) - logits(theirs)).abs().max() > 1e-3


@pytest.mark.parametrize("kind", KINDS)
def test_merged_against_unmerged_and_against_peft_s_merge(tiny: Tiny, tmp_path: Path, peft: Any, kind: str) -> None:
    model = tiny(kind, initializer_range=CALM).model
    adapter = trained(model, targets(kind), size=0.05)
    merging = MergedShell(make_shell(model))
    merging.merge(adapter)
    proof = (unmerged(model, adapter) - logits(merging.shell)).abs().max()
    assert proof <= 1e-5
    own = copy.deepcopy(model)  # peft writes into the weights it is given
    theirs = peft.PeftModel.from_pretrained(own, str(write_adapter(adapter, tmp_path / "a"))).merge_and_unload()
    for name in adapter.tensors:
        assert torch.equal(out_in(theirs.get_submodule(name)), out_in(merging.shell.get_submodule(name)))
        assert not torch.equal(out_in(theirs.get_submodule(name)), out_in(model.get_submodule(name)))


@pytest.mark.parametrize("kind", KINDS)
def test_the_start_is_as_peft_s(tiny: Tiny, peft: Any, kind: str) -> None:
    """The logits of the base bit for bit, B zero, as many parameters, and A of the same distribution."""
    model = tiny(kind, initializer_range=CALM).model
    ours = new_adapter(model, LoraConfig(16, 8, targets(kind)), 0)
    config = peft.LoraConfig(r=16, target_modules=list(targets(kind)), fan_in_fan_out=kind == "gpt2")
    theirs = peft.get_peft_model(make_shell(model), config).eval()
    assert torch.equal(unmerged(model, ours), logits(theirs))
    assert torch.equal(unmerged(model, ours), logits(model))
    assert ours.parameters == sum(p.numel() for p in theirs.parameters() if p.requires_grad)
    parts = {n: p for n, p in theirs.named_parameters() if "lora_" in n}
    assert not any(p.any() for n, p in parts.items() if "lora_B" in n)
    for name, (a, _) in ours.tensors.items():
        other = parts[f"base_model.model.{name}.lora_A.default.weight"].detach()
        bound = 1 / math.sqrt(a.shape[1])
        assert 0.9 * bound < float(a.abs().max()) <= bound
        assert 0.9 * bound < float(other.abs().max()) <= bound
        assert float(a.std() / other.std()) == pytest.approx(1, abs=0.15)


def test_fewer_ranks_load_in_peft_too(tiny: Tiny, tmp_path: Path, peft: Any) -> None:
    model = tiny(initializer_range=CALM).model
    cut = truncate(trained(model, size=0.05, alpha=7), 2).adapter
    theirs = by_peft(peft, model, write_adapter(cut, tmp_path / "a"))
    assert (unmerged(model, cut) - logits(theirs)).abs().max() <= 1e-5


def test_an_adapter_on_the_tied_head(tiny: Tiny, tmp_path: Path, peft: Any) -> None:
    model = tiny(initializer_range=CALM).model
    adapter = trained(model, ("lm_head", "q_proj"), size=0.05)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that the head is tied
        theirs = by_peft(peft, model, write_adapter(adapter, tmp_path / "a"))
    assert (unmerged(model, adapter) - logits(theirs)).abs().max() <= 1e-5
    merging = MergedShell(make_shell(model))
    merging.merge(adapter)
    assert (logits(merging.shell) - logits(theirs)).abs().max() <= 1e-5
    # the mutation: merging into the tied tensor, which changes the embedding too
    wrong: Any = make_shell(model)
    set_weight(wrong.lm_head, out_in(wrong.lm_head) + adapter.delta("lm_head"))
    wrong.model.embed_tokens.weight = wrong.lm_head.weight
    assert (logits(wrong) - logits(theirs)).abs().max() > 1e-2
