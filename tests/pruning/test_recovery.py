"""Recovery against a plain torch loop: the same losses, and pruned weights exactly 0 after every step."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch import Tensor, nn

from lab.errors import BadInput
from lab.lora.adamw import rate_at
from lab.lora.batches import batches
from lab.models.linear import linear_module, out_in
from lab.models.shell import make_shell
from lab.pruning import recovery, recovery_pass
from lab.pruning.magnitude import Magnitude
from lab.pruning.pattern import Pattern
from lab.pruning.recovery import Recovered, Recovery, RecoverySettings, recover
from lab.pruning.whole_model import WholeModel, prune_model
from lab.steps import finished

if TYPE_CHECKING:
    from lab.models.loading import LoadedModel

Tiny = Callable[..., "LoadedModel"]
LONGEST = 1.0
SETTINGS = RecoverySettings(
    steps=6, learning_rate=3e-3, warmup=2, batch=2, weight_decay=0.1, measure_every=2, max_gradient_norm=LONGEST
)
WINDOWS = [[(7 * i + 3 * j) % 60 + 4 for j in range(12)] for i in range(6)]
HELD = [[(5 * i + 3 * j) % 60 + 4 for j in range(12)] for i in range(2)]


def pruned(loaded: LoadedModel) -> WholeModel:
    return prune_model(loaded.model, Magnitude(Pattern(0.5)))


def steps_of(run: Recovery) -> list[Any]:
    return [step for step in run.steps() if step is not None]


def plain_losses(whole: WholeModel, *, sign: float = 1.0, masked: bool = True) -> list[float]:
    """A user's loop: dense AdamW over the pruned matrices, gradients and weights masked by hand."""
    shell = make_shell(whole.shell)
    masks = whole.masks()
    trained: list[tuple[nn.Parameter, Tensor]] = []
    for name, mask in masks.items():
        module: Any = linear_module(shell, name)
        module.weight = nn.Parameter(module.weight.detach().clone(), requires_grad=True)
        turned = mask.t() if type(module).__name__ == "Conv1D" else mask
        trained.append((module.weight, turned.contiguous()))
    for parameter in shell.parameters():
        if not any(parameter is own for own, _ in trained):
            parameter.requires_grad_(False)
    optimizer = torch.optim.AdamW(
        [own for own, _ in trained], lr=1.0, betas=(0.9, 0.999), eps=1e-8, weight_decay=SETTINGS.weight_decay
    )
    order = batches(len(WINDOWS), SETTINGS.batch, SETTINGS.seed)
    losses = []
    for step in range(1, SETTINGS.steps + 1):
        optimizer.zero_grad()
        chosen = [WINDOWS[i] for i in next(order)]
        count = sum(len(window) - 1 for window in chosen)
        total = 0.0
        for window in chosen:
            ids = torch.tensor([window])
            logits = shell(input_ids=ids[:, :-1]).logits[0].float()
            loss = nn.functional.cross_entropy(logits, ids[0, 1:], reduction="sum") / count
            (sign * loss).backward()
            total += float(loss.detach())
        losses.append(total)
        for own, mask in trained:
            if masked and own.grad is not None:
                own.grad *= mask
        norm = float(torch.stack([own.grad.norm() for own, _ in trained if own.grad is not None]).norm())
        for own, _ in trained:
            if own.grad is not None:
                own.grad *= min(1.0, LONGEST / (norm + 1e-6))
        for group in optimizer.param_groups:
            group["lr"] = rate_at(step, peak=SETTINGS.learning_rate, warmup=SETTINGS.warmup, steps=SETTINGS.steps)
        optimizer.step()
        with torch.no_grad():
            for own, mask in trained:
                if masked:
                    own *= mask
    return losses


@pytest.mark.parametrize("kind", ["llama", "gpt2"])
def test_losses_are_those_of_a_plain_loop(tiny: Tiny, kind: str) -> None:
    whole = pruned(tiny(kind))
    before = {name: p.detach().clone() for name, p in tiny(kind).model.named_parameters()}
    ours = [step.loss for step in steps_of(Recovery(whole.shell, whole.masks(), WINDOWS, HELD, SETTINGS))][1:]
    assert ours == pytest.approx(plain_losses(whole), rel=2e-4)
    assert ours[-1] < ours[0]
    assert all(torch.equal(p, before[name]) for name, p in tiny(kind).model.named_parameters())
    # the mutations: uphill, and with pruned weights trained too, are other losses
    assert ours != pytest.approx(plain_losses(whole, sign=-1.0), rel=2e-4)
    assert ours != pytest.approx(plain_losses(whole, masked=False), rel=2e-4)


@pytest.mark.parametrize(("kind", "dtype"), [("llama", "float32"), ("gpt2", "float32"), ("llama", "bfloat16")])
def test_pruned_weights_are_zero_after_every_step(tiny: Tiny, kind: str, dtype: str) -> None:
    whole = pruned(tiny(kind, dtype=dtype))
    run = Recovery(whole.shell, whole.masks(), WINDOWS, HELD, SETTINGS)
    seen = 0
    for step in run.steps():
        if step is None or step.step == 0:
            continue
        seen += 1
        for matrix in run._pass.matrices:
            assert not bool(matrix.weight.detach()[~matrix._mask].any())
            assert bool(matrix.weight.detach()[matrix._mask].any())
    assert seen == SETTINGS.steps


def test_gradients_that_are_not_masked_are_seen(tiny: Tiny, monkeypatch: pytest.MonkeyPatch) -> None:
    def unmasked(self: recovery_pass.MaskedMatrix) -> float:
        assert self.weight.grad is not None
        return float(self.weight.grad.norm()) ** 2

    monkeypatch.setattr(recovery_pass.MaskedMatrix, "mask_gradient", unmasked)
    with pytest.raises(AssertionError):
        test_pruned_weights_are_zero_after_every_step(tiny, "llama", "float32")


def test_stopping_keeps_the_best_so_far(tiny: Tiny) -> None:
    whole = pruned(tiny("llama"))
    run = Recovery(whole.shell, whole.masks(), WINDOWS, HELD, SETTINGS)
    steps = run.steps()
    best: dict[int, float] = {}
    for step in steps:
        if step is not None and step.held_out_loss is not None:
            best[step.step] = step.held_out_loss
        if step is not None and step.step == 4:
            break
    steps.close()
    found = recovered(run)
    assert found.ended == "stopped"
    assert found.step == min(best, key=lambda at: best[at])
    assert found.held_out_loss == min(best.values())
    whole_run = recover(whole.shell, whole.masks(), WINDOWS, HELD, SETTINGS)
    assert whole_run.ended == "steps"
    assert whole_run.steps == SETTINGS.steps


def recovered(run: Recovery) -> Recovered:
    return finished(run.recovering())


def test_stopped_while_it_keeps_the_best_it_keeps_the_whole_of_it(tiny: Tiny) -> None:
    whole = pruned(tiny("llama"))
    one = replace(SETTINGS, steps=1, warmup=0)
    wanted = recover(whole.shell, whole.masks(), WINDOWS, HELD, one)
    assert wanted.step == 1
    run = Recovery(whole.shell, whole.masks(), WINDOWS, HELD, one)
    work = run._work()
    next(step for step in work if step is not None)
    first = run._pass.matrices[0]
    before = first.best
    while torch.equal(first.best, before):
        next(work)
    last = run._pass.matrices[-1]
    assert not torch.equal(last.best, last.weight)  # it is in the middle of it
    work.close()
    found = recovered(run)
    assert found.step == 1
    for name in whole.masks():
        assert torch.equal(out_in(linear_module(found.shell, name)), out_in(linear_module(wanted.shell, name)))


def test_what_is_kept_does_not_change_with_later_steps(tiny: Tiny) -> None:
    whole = pruned(tiny("llama"))
    run = Recovery(whole.shell, whole.masks(), WINDOWS, HELD, SETTINGS)
    work = run.steps()
    next(step for step in work if step is not None and step.step == 2)
    shell = recovered(run).shell
    name = next(iter(whole.masks()))
    before = out_in(linear_module(shell, name)).clone()
    finished(work)
    assert torch.equal(out_in(linear_module(shell, name)), before)
    assert not torch.equal(out_in(linear_module(recovered(run).shell, name)), before)


def test_windows_of_one_length_go_together_and_count_alike(tiny: Tiny, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = pruned(tiny("llama"))
    windows = [*WINDOWS, WINDOWS[0][:7], WINDOWS[1][:5]]

    def losses(tokens: int) -> list[float | None]:
        monkeypatch.setattr(recovery, "PASS_TOKENS", tokens)
        settings = replace(SETTINGS, batch=4)
        return [step.loss for step in steps_of(Recovery(whole.shell, whole.masks(), windows, HELD, settings))][1:]

    assert [rows.tokens for rows in recovery._rows(windows, torch.device("cpu"))] == [66, 6, 4]
    assert losses(1) == pytest.approx(losses(256), rel=1e-5)


@pytest.mark.parametrize(("layers", "words"), [((0, 9), "no decoder layer 9"), ((), "No decoder layer was chosen")])
def test_layers_that_are_not_there_are_refused(tiny: Tiny, layers: tuple[int, ...], words: str) -> None:
    whole = pruned(tiny("llama"))
    with pytest.raises(BadInput, match=words) as refused:
        Recovery(whole.shell, whole.masks(), WINDOWS, HELD, replace(SETTINGS, layers=layers))
    assert refused.value.remedy == "Choose some of 0 to 1."


def test_only_the_chosen_layers_are_trained(tiny: Tiny) -> None:
    whole = pruned(tiny("llama"))
    found = recover(whole.shell, whole.masks(), WINDOWS, HELD, replace(SETTINGS, layers=(1,)))
    same = {
        name: torch.equal(out_in(linear_module(found.shell, name)), out_in(linear_module(whole.shell, name)))
        for name in whole.masks()
    }
    assert found.step > 0
    assert all(is_same is (".0." in name) for name, is_same in same.items())


def test_masks_that_do_not_fit_are_refused(tiny: Tiny) -> None:
    whole = pruned(tiny("llama"))
    masks = whole.masks()
    name = next(iter(masks))
    with pytest.raises(BadInput, match="that the mask prunes are not 0"):
        steps_of(Recovery(whole.shell, {name: ~masks[name]}, WINDOWS, HELD, SETTINGS))
    with pytest.raises(BadInput, match="nothing to train"):
        Recovery(whole.shell, {}, WINDOWS, HELD, SETTINGS)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"learning_rate": "1"}, "learning rate '1'"),
        ({"steps": True}, "steps True"),
        ({"weight_decay": True}, "weight decay True"),
        ({"batch": 0.5}, "batch 0.5"),
        ({"layers": (-1,)}, "are no decoder layers"),
        ({"layers": (0, "1")}, "are no decoder layers"),
        ({"layers": (True,)}, "are no decoder layers"),
        ({"layers": 3}, "are no decoder layers"),
    ],
)
def test_settings_of_another_kind_are_refused(given: dict[str, Any], words: str) -> None:
    with pytest.raises(BadInput, match=words):
        RecoverySettings(**given)
