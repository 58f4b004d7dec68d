"""What can be chosen in the `lora` experiment, with the words for it. No torch here."""

from __future__ import annotations

from typing import Literal

Task = Literal["train", "compare", "swap", "merge"]
TASKS: dict[Task, str] = {
    "train": "train an adapter",
    "compare": "before and after",
    "swap": "swap adapters",
    "merge": "merge and lose bits",
}
Learn = Literal["island", "city_json", "ship_log", "lines"]
LEARN: dict[Learn, str] = {
    "island": "facts of an island",
    "city_json": "cities as JSON",
    "ship_log": "a ship's log",
    "lines": "my own lines",
}
"""The packaged tasks (`lab.lora.tasks.NAMES`), and one's own."""
Targets = Literal["attention", "q_v", "mlp", "all"]
TARGETS: dict[Targets, str] = {
    "attention": "q, k, v, o",
    "q_v": "q and v",
    "mlp": "gate, up, down",
    "all": "all seven",
}
SUFFIXES: dict[Targets, tuple[str, ...]] = {
    "attention": ("q_proj", "k_proj", "v_proj", "o_proj", "attn.c_attn", "attn.c_proj"),
    "q_v": ("q_proj", "v_proj", "attn.c_attn"),
    "mlp": ("gate_proj", "up_proj", "down_proj", "mlp.c_fc", "mlp.c_proj"),
    "all": (),
}
"""Ends of module names; a model has some of them (GPT-2's c_attn is query, key and value in one). () is all that there
are in its layers."""
BaseKind = Literal["float32", "bfloat16", "int8", "int4"]
BASES: dict[BaseKind, str] = {
    "float32": "fp32",
    "bfloat16": "bf16",
    "int8": "int8, one scale a row",
    "int4": "int4, groups of 64",
}
BreakRun = Literal["nothing", "scale_of_another_rank", "merged_twice", "transposed", "base_trained"]
MISTAKES: dict[BreakRun, str] = {
    "nothing": "nothing",
    "scale_of_another_rank": "alpha divided by another rank",
    "merged_twice": "merged twice",
    "transposed": "A and B the other way round",
    "base_trained": "the base is trained too",
}
