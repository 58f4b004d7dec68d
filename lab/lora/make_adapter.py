"""`python -m lab.lora.make_adapter OUT`: train the packaged adapter anew, and write it with its card.

The same seed on the same machine gives the same factors; another processor or another number of threads rounds
differently, and the card says which it was. Takes about two minutes on two cores.
"""

from __future__ import annotations

import hashlib
import json
import platform
import sys
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from lab.decoding.loop import decode
from lab.errors import LabError
from lab.lora.adapter import Adapter, LoraConfig, new_adapter
from lab.lora.attach import Attached
from lab.lora.batches import encode_examples
from lab.lora.packaged import CARD, NAME, TASK
from lab.lora.peft_files import WEIGHTS, write_adapter
from lab.lora.task_files import Example
from lab.lora.tasks import Task, packaged_task
from lab.lora.train import Training
from lab.lora.trained import Trained, TrainingData, TrainSettings, TrainStep
from lab.models.atomic import check_out
from lab.models.prompts import encode_prompt
from lab.models.shell import make_shell
from lab.steps import finished

if TYPE_CHECKING:
    from lab.models.loading import LoadedModel

CONFIG = LoraConfig(rank=8, alpha=16, targets=("q_proj", "v_proj"))
SETTINGS = TrainSettings(steps=48, learning_rate=4e-3, warmup=5, batch=8, seed=0, measure_every=8)
ANSWER_TOKENS = 40


def make(loaded: LoadedModel, out: Path) -> Path:
    """Train on `loaded`, the default model, and write the adapter with its card.

    Args:
        out: a directory that does not exist yet.

    Raises:
        BadInput: `out` exists or cannot be made.
        LabError: the training did not come to its end.
    """
    check_out(out)
    task = packaged_task(TASK)
    data = TrainingData(encode_examples(loaded, task.train), encode_examples(loaded, task.held_out))
    start = new_adapter(
        loaded.model,
        CONFIG,
        SETTINGS.seed,
        name=NAME,
        model_id=loaded.facts.id,
        weight_hash=loaded.facts.weight_hash or "",
    )
    run = Training(loaded.model, start, data, SETTINGS)
    losses = []
    for step in run.steps():
        if step is not None:
            losses.append(step)
            print(_line(step), flush=True)  # noqa: T201
    made = run.trained()
    if made.ended != "steps":
        raise LabError("The training stopped: a loss was no finite number.")
    texts = before_and_after(loaded, made.adapter, task.probes)
    card = card_of(loaded, task, made, losses, texts)
    write_adapter(made.adapter, out, card=in_words(card))
    card["file_sha256"] = hashlib.sha256((out / WEIGHTS).read_bytes()).hexdigest()
    (out / CARD).write_text(json.dumps(card, indent=1, ensure_ascii=False, allow_nan=False) + "\n", encoding="utf-8")
    return out


def before_and_after(loaded: LoadedModel, adapter: Adapter, prompts: tuple[str, ...]) -> list[dict[str, str]]:
    """The greedy answers of the base and of the base with the adapter on."""
    attached = Attached(make_shell(loaded.model), [adapter])
    found = []
    for prompt in prompts:
        answers = {}
        for what, name in (("before", None), ("after", adapter.name)):
            with attached.using(name) as model:
                ids = encode_prompt(loaded, prompt, chat=True)
                ends = tuple(loaded.end_token_ids)
                made = finished(decode(model, ids, max_new_tokens=ANSWER_TOKENS, end_token_ids=ends))
            answers[what] = str(loaded.tokenizer.decode(made.token_ids, skip_special_tokens=True)).strip()
        found.append({"prompt": prompt, **answers})
    return found


def lines_hash(examples: tuple[Example, ...]) -> str:
    """sha256 of the prompts and answers, hex."""
    rows = [[one.prompt, one.answer] for one in examples]
    return hashlib.sha256(json.dumps(rows, ensure_ascii=False).encode("utf-8")).hexdigest()


def card_of(
    loaded: LoadedModel, task: Task, made: Trained, losses: list[TrainStep], texts: list[dict[str, str]]
) -> dict[str, Any]:
    """All that one must know to judge the adapter, or to make it again."""
    return {
        "adapter": made.adapter.name,
        "base": {"id": loaded.facts.id, "name": loaded.facts.name, "weight_hash": loaded.facts.weight_hash},
        "config": {
            "rank": CONFIG.rank,
            "alpha": CONFIG.alpha,
            "targets": list(CONFIG.targets),
            "parameters": made.adapter.parameters,
        },
        "task": {
            "name": task.name,
            "train_lines": len(task.train),
            "held_out_lines": len(task.held_out),
            "train_sha256": lines_hash(task.train),
            "held_out_sha256": lines_hash(task.held_out),
        },
        "settings": vars(SETTINGS),
        "kept_step": made.step,
        "held_out_loss": {"before": made.held_out_before, "after": made.held_out_loss},
        "losses": [
            {"step": one.step, "loss": one.loss, "held_out_loss": one.held_out_loss}
            for one in losses
            if one.held_out_loss is not None
        ],
        "texts": texts,
        "seconds": round(made.seconds, 1),
        "dtype": str(loaded.dtype).removeprefix("torch."),
        "machine": {"processor": platform.machine(), "threads": torch.get_num_threads()},
        "versions": {"torch": torch.__version__, "transformers": version("transformers")},
    }


def in_words(card: dict[str, Any]) -> str:
    """The card as a README."""
    base, config, task, losses = card["base"], card["config"], card["task"], card["held_out_loss"]
    how = card["settings"]
    rows = "\n".join(f"| {t['prompt']} | {_cell(t['before'])} | {_cell(t['after'])} |" for t in card["texts"])
    return f"""---
base_model: {base["id"]}
library_name: peft
license: apache-2.0
---
# {card["adapter"]}

A low-rank adapter for {base["name"]} that has learnt the facts of an island that does not exist. It shows what a
fine-tune does; it is good for nothing else.

- Base: {base["name"]}, weight hash `{base["weight_hash"]}`, frozen, {card["dtype"]}.
- Adapter: rank {config["rank"]}, alpha {config["alpha"]:g}, on {" and ".join(config["targets"])} of every layer:
  {config["parameters"]:,} parameters in fp32.
- Data: the packaged task `{task["name"]}`, of our own writing: {task["train_lines"]} lines to train on and
  {task["held_out_lines"]} held out (other questions about the same facts).
- Training: {how["steps"]} steps of {how["batch"]} lines, AdamW, learning rate {how["learning_rate"]:g} after
  {how["warmup"]} steps of warm-up, seed {how["seed"]}. Kept: step {card["kept_step"]}, the best by held-out loss.
- Held-out loss, nats a token: {losses["before"]:.3f} before, {losses["after"]:.3f} after.

Greedy answers:

| Prompt | Before | After |
| --- | --- | --- |
{rows}

Made by `python -m lab.lora.make_adapter`. All figures, with hashes of the lines and of the file, are in `{CARD}`.
"""


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


def _line(step: TrainStep) -> str:
    held_out = "" if step.held_out_loss is None else f", held out {step.held_out_loss:.4f}"
    loss = "" if step.loss is None else f", loss {step.loss:.4f}"
    return f"step {step.step} of {step.steps}{loss}{held_out}, {step.ms:.0f} ms"


def main(arguments: list[str]) -> int:
    """Train, write, say where."""
    from lab.models.registry import DEFAULT_MODEL, load_model

    if len(arguments) != 1:
        print("usage: python -m lab.lora.make_adapter OUT", file=sys.stderr)  # noqa: T201
        return 2
    try:
        print(make(load_model(DEFAULT_MODEL, dtype="float32", device="cpu"), Path(arguments[0])))  # noqa: T201
    except LabError as error:
        print(error, file=sys.stderr)  # noqa: T201
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
