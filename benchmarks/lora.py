"""A training step of ours beside `peft` and a plain torch loop, in one process, interleaved.

Both get the same batches of the same packaged task, start from the same factors and use AdamW with the same rates and
the same longest gradient. The plain loop is what a user would write: padded rows, labels of -100 where nothing counts,
`model(...).loss.backward()`, clip, step. Ours pauses as it does in the lab. The bar: a step takes no longer.
"""

from __future__ import annotations

import copy
import sys
from collections.abc import Callable, Sequence
from importlib.metadata import version
from time import perf_counter
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from benchmarks.measure import Spread, threads, wait
from lab.errors import BadInput
from lab.lora.adamw import rate_at
from lab.lora.adapter import Adapter, LoraConfig, new_adapter
from lab.lora.batches import Tokenized, batches, encode_examples
from lab.lora.tasks import packaged_task
from lab.lora.train import Training
from lab.lora.trained import TrainingData, TrainSettings, TrainStep

if TYPE_CHECKING:
    from lab.models.loading import LoadedModel

BARS = {"time": 1.0}
ALL = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")


def run_lora(
    loaded: LoadedModel,
    *,
    task: str = "island",
    targets: Sequence[str] = ("q_proj", "v_proj"),
    rank: int = 8,
    batch: int = 8,
    repeats: int = 6,
    thread_counts: tuple[int, ...] = (1, 2),
) -> dict[str, Any]:
    """Everything that `lab bench lora` prints, as plain JSON data.

    Args:
        repeats: steps that count, after one that does not.

    Raises:
        BadInput: peft is not installed.
    """
    try:
        peft = version("peft")
    except ImportError:
        raise BadInput("peft is not installed.", remedy="pip install peft") from None
    counts = thread_counts if loaded.device.type == "cpu" else (torch.get_num_threads(),)
    results = []
    for count in counts:
        with threads(count):
            results.append({"threads": count, **_steps(loaded, task, tuple(targets), rank, batch, repeats)})
    return {
        "benchmark": "lora",
        "model": loaded.facts.id,
        "dtype": str(loaded.dtype).removeprefix("torch."),
        "device": str(loaded.device),
        "torch": torch.__version__,
        "peft": peft,
        "task": task,
        "targets": list(targets),
        "rank": rank,
        "batch": batch,
        "repeats": repeats,
        "bars": BARS,
        "bars_met": all(r["ratio"]["median"] <= BARS["time"] for r in results),
        "results": results,
    }


def _steps(
    loaded: LoadedModel, task: str, targets: tuple[str, ...], rank: int, batch: int, repeats: int
) -> dict[str, Any]:
    train = encode_examples(loaded, packaged_task(task).train)
    settings = TrainSettings(steps=repeats + 1, batch=batch, warmup=2, learning_rate=2e-3)
    adapter = new_adapter(loaded.model, LoraConfig(rank, 2.0 * rank, targets), 0)
    ours = Ours(loaded, adapter, train, settings)
    theirs = PlainLoop(loaded, adapter, train, settings)
    turns: list[tuple[str, Callable[[], float]]] = [("ours", ours.step), ("peft", theirs.step)]
    seconds: dict[str, list[float]] = {"ours": [], "peft": []}
    losses: dict[str, list[float]] = {"ours": [], "peft": []}
    for number in range(repeats + 1):
        for name, step in turns if number % 2 else turns[::-1]:
            wait(loaded.device)
            began = perf_counter()
            losses[name].append(step())
            wait(loaded.device)
            if number:
                seconds[name].append(perf_counter() - began)
    return {
        "ms": {name: Spread.of([s * 1e3 for s in taken]).json(1) for name, taken in seconds.items()},
        "ratio": Spread.of([o / p for o, p in zip(seconds["ours"], seconds["peft"], strict=True)]).json(),
        "losses": losses,
        "largest_loss_difference": max(abs(o - p) for o, p in zip(losses["ours"], losses["peft"], strict=True)),
        "tokens": {"ours": ours.tokens, "peft": theirs.tokens},
        "trainable": {"ours": adapter.parameters, "peft": theirs.trainable},
        "longest_slice_ms": round(ours.longest_ms, 1),
    }


class Ours:
    """The lab's training, one step at a time."""

    def __init__(
        self, loaded: LoadedModel, adapter: Adapter, train: tuple[Tokenized, ...], settings: TrainSettings
    ) -> None:
        self._steps = Training(loaded.model, adapter, TrainingData(train), settings).steps()
        self.tokens, self.longest_ms = 0, 0.0

    def step(self) -> float:
        """Do one; its loss. The first also compares the ways through the model."""
        while True:
            began = perf_counter()
            done: TrainStep | None = next(self._steps)
            self.longest_ms = max(self.longest_ms, (perf_counter() - began) * 1e3)
            if done is not None and done.loss is not None:
                self.tokens += done.tokens
                return done.loss


class PlainLoop:
    """`peft` and a plain torch loop, one step at a time."""

    def __init__(
        self, loaded: LoadedModel, adapter: Adapter, train: tuple[Tokenized, ...], settings: TrainSettings
    ) -> None:
        import peft

        config = peft.LoraConfig(
            r=adapter.config.rank,
            lora_alpha=adapter.config.alpha,  # type: ignore[arg-type]
            target_modules=list(adapter.config.targets),
            lora_dropout=0.0,
            task_type="CAUSAL_LM",
        )
        self._model: Any = peft.get_peft_model(copy.deepcopy(loaded.model), config)
        state = {}
        for name, (a, b) in adapter.tensors.items():
            state[f"base_model.model.{name}.lora_A.weight"] = a.clone()
            state[f"base_model.model.{name}.lora_B.weight"] = b.clone()
        peft.set_peft_model_state_dict(self._model, state)
        learned = [p for p in self._model.parameters() if p.requires_grad]
        self.trainable = sum(p.numel() for p in learned)
        self._settings, self._learned, self._device = settings, learned, loaded.device
        self._optimizer = torch.optim.AdamW(learned, lr=settings.learning_rate, weight_decay=settings.weight_decay)
        self._train, self._order = train, batches(len(train), settings.batch, settings.seed)
        self._number, self.tokens = 0, 0
        self._model.train(False)  # no dropout, as in ours; gradients flow all the same

    def step(self) -> float:
        """Do one; its loss."""
        self._number += 1
        settings = self._settings
        rate = rate_at(self._number, peak=settings.learning_rate, warmup=settings.warmup, steps=settings.steps)
        for group in self._optimizer.param_groups:
            group["lr"] = rate
        ids, seen, labels = _collate([self._train[i] for i in next(self._order)], self._device)
        self.tokens += ids.numel()
        loss: Tensor = self._model(input_ids=ids, attention_mask=seen, labels=labels, use_cache=False).loss
        loss.backward()  # type: ignore[no-untyped-call]
        if settings.max_gradient_norm is not None:
            torch.nn.utils.clip_grad_norm_(self._learned, settings.max_gradient_norm)
        self._optimizer.step()
        self._optimizer.zero_grad()
        return float(loss.detach())


def _collate(examples: list[Tokenized], device: torch.device) -> tuple[Tensor, Tensor, Tensor]:
    """Padded on the right to the longest: ids, attention mask, labels, (row, position) each."""
    width = max(len(one.ids) for one in examples)
    ids = torch.zeros(len(examples), width, dtype=torch.int64)
    seen = torch.zeros_like(ids)
    labels = torch.full_like(ids, -100)
    for row, one in enumerate(examples):
        ids[row, : len(one.ids)] = torch.tensor(one.ids)
        seen[row, : len(one.ids)] = 1
        labels[row, one.labels_from : len(one.ids)] = torch.tensor(one.ids[one.labels_from :])
    return ids.to(device), seen.to(device), labels.to(device)


def as_text(report: dict[str, Any]) -> str:
    """The report as lines for a person."""
    lines = [
        f"{report['model']}, {report['dtype']}, {report['device']}, torch {report['torch']}, peft {report['peft']}: "
        f"{report['task']}, rank {report['rank']} on {', '.join(report['targets'])}, "
        f"{report['batch']} lines a step, {report['repeats']} steps"
    ]
    for result in report["results"]:
        ours, theirs, ratio = result["ms"]["ours"], result["ms"]["peft"], result["ratio"]
        lines += [
            f"{result['threads']} thread(s): ours {ours['median']} ms a step ({ours['min']} to {ours['max']}), "
            f"peft {theirs['median']} ({theirs['min']} to {theirs['max']}), "
            f"{ratio['median']:.2f}x ({ratio['min']} to {ratio['max']}), bar {BARS['time']}x",
            f"  tokens sent: ours {result['tokens']['ours']:,}, peft {result['tokens']['peft']:,}; "
            f"longest slice {result['longest_slice_ms']} ms",
            f"  losses: ours {_shown(result['losses']['ours'])}, peft {_shown(result['losses']['peft'])}; "
            f"largest difference {result['largest_loss_difference']:.1e}",
        ]
    lines.append("bars met" if report["bars_met"] else "BARS NOT MET")
    return "\n".join(lines)


def _shown(losses: list[float]) -> str:
    return " ".join(f"{loss:.4f}" for loss in losses[:5])


def main() -> int:
    """Measure the default model on this machine: q_proj and v_proj, then every matrix of the layers."""
    from lab.models.registry import DEFAULT_MODEL, load_model

    loaded = load_model(DEFAULT_MODEL, dtype="float32", device="auto")
    met = True
    for targets in (("q_proj", "v_proj"), ALL):
        report = run_lora(loaded, targets=targets)
        print(as_text(report))
        met = met and report["bars_met"]
    return 0 if met else 1


if __name__ == "__main__":
    sys.exit(main())
