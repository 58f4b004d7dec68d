"""Data for the head: the model's own words with the features they were made from.

`python -m lab.decoding.drafts.eagle.generate_data --out DIR` writes one safetensors file a batch. Each depends on the
seed and the batch's number alone; files that are there are skipped, so a stopped run goes on where it was.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from pathlib import Path

SEED = 20
TRAIN_PROMPTS, HELD_OUT_PROMPTS = 2560, 128
BATCH = 96
NEW_TOKENS = 208
FORMAT = 1


def say(text: str) -> None:
    """A line of progress."""
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def write_batches(out: Path, model_id: str, batch: int, new_tokens: int, part: int, parts: int) -> None:
    """Write every `parts`-th batch, the held-out ones first."""
    import numpy as np
    import torch
    from safetensors.torch import save_file

    from lab.decoding.drafts.eagle.batch_decoder import BatchDecoder, Text
    from lab.decoding.drafts.eagle.prompts import Prompt, make_prompts
    from lab.models.prompts import encode_prompt
    from lab.models.registry import load_model

    torch.set_num_threads(1)
    loaded = load_model(model_id, dtype="float32", device="cpu")
    jobs: list[tuple[bool, list[tuple[Prompt, list[int]]]]] = []
    for held_out, count in ((True, HELD_OUT_PROMPTS), (False, TRAIN_PROMPTS)):
        prompts = make_prompts(count, held_out=held_out, seed=SEED)
        texts = [(p, encode_prompt(loaded, p.text, p.chat)) for p in prompts]
        chunk = len(texts) if held_out else 6 * batch
        for start in range(0, len(texts), chunk):
            # Prompts of like length share a batch (little padding); the batches of a chunk come in random order.
            by_length = sorted(texts[start : start + chunk], key=lambda entry: len(entry[1]))
            groups = [by_length[i : i + batch] for i in range(0, len(by_length), batch)]
            order = np.random.default_rng(SEED + start).permutation(len(groups))
            jobs.extend((held_out, groups[i]) for i in order)
    for number in range(part, len(jobs), parts):
        held_out, group = jobs[number]
        file = out / f"{'held-out' if held_out else 'train'}-{number:03d}.safetensors"
        if file.exists():
            continue
        began = time.monotonic()
        generator = torch.Generator().manual_seed(SEED * 1000 + number)
        decoder = BatchDecoder(loaded.model, loaded.end_token_ids, generator)
        made = [Text(list(ids), len(ids), prompt.temperature) for prompt, ids in group]
        decoder.generate(made, new_tokens)
        tensors = {
            "tokens": torch.tensor([i for text in made for i in text.ids], dtype=torch.int32),
            "length": torch.tensor([len(text.ids) for text in made], dtype=torch.int32),
            "prompt": torch.tensor([text.prompt for text in made], dtype=torch.int32),
            "temperature": torch.tensor([text.temperature for text in made]),
            # The last token was not read again: its row is left out, one row less a text.
            "features": torch.cat([torch.cat(text.features) for text in made]),
            "lse": torch.tensor([value for text in made for value in text.lse]),
            "mass": decoder.mass.float(),
        }
        if not len(tensors["features"]) == len(tensors["lse"]) == len(tensors["tokens"]) - len(made):
            raise RuntimeError(f"{file.name}: features and tokens do not match")
        metadata = {
            "format": str(FORMAT),
            "weight_hash": loaded.facts.weight_hash,
            "model": loaded.facts.id,
            "kinds": json.dumps([prompt.kind for prompt, _ in group]),
        }
        save_file(tensors, file.with_suffix(".part"), metadata)
        file.with_suffix(".part").replace(file)
        new = sum(len(text.ids) - text.prompt for text in made)
        took = time.monotonic() - began
        say(f"{file.name}: {new} new tokens in {took:.0f} s ({new / took:.0f} tokens/s), {number + 1} of {len(jobs)}")


def main() -> None:
    """Start the processes, one thread each, and wait."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--out", type=Path, required=True, help="directory for the data (about 1.3 KB a token)")
    parser.add_argument("--model", default="smollm2-135m-instruct")
    parser.add_argument("--batch", type=int, default=BATCH)
    parser.add_argument("--new-tokens", type=int, default=NEW_TOKENS)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--part", type=int, help="run only this part, in this process")
    given = parser.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    if given.part is not None:
        write_batches(given.out, given.model, given.batch, given.new_tokens, given.part, given.processes)
        return
    # One thread each: OpenMP threads of two processes would spin at each other's barriers.
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "lab.decoding.drafts.eagle.generate_data", *sys.argv[1:], "--part"]
    children = [subprocess.Popen([*command, str(part)], env=environment) for part in range(given.processes)]
    sys.exit(max(child.wait() for child in children))


if __name__ == "__main__":
    main()
