"""A merged model as a directory in transformers format, whole or not at all, its base and its adapter in its card."""

from __future__ import annotations

from collections.abc import Generator
from pathlib import Path

from lab.lora.adapter import Adapter
from lab.lora.merge import MergedShell, MergeFacts
from lab.models.atomic import check_out, filled_directory
from lab.models.disk import require_room
from lab.models.loading import LoadedModel
from lab.models.writing import stored_once, write_around, writing_weights

WEIGHTS, CARD = "model.safetensors", "README.md"


def writing_merged(
    out: Path, loaded: LoadedModel, merged: MergedShell, adapter: Adapter
) -> Generator[float, None, int]:
    """Write a merged model to `out`; yields the share done, returns the bytes of its weight file.

    Until the last step nothing is there under that name; closed or failing before, nothing stays.

    Args:
        out: must not exist.
        loaded: the base. merged: a shell of it with `adapter` merged.

    Raises:
        BadInput: `out` exists, cannot be made, or is being written.
        ModelError: the disk is full or fails.
    """
    facts, shell = merged.merged, merged.shell
    if facts is None:
        raise ValueError("nothing is merged in this shell")
    check_out(out)
    tensors = stored_once(shell)
    require_room(out, sum(tensor.nbytes for tensor in tensors.values()))
    yield 0.0
    with filled_directory(out, wait=False) as partial:
        yield from writing_weights(partial / WEIGHTS, tensors)
        write_around(out, partial, shell, loaded.tokenizer)
        (partial / CARD).write_text(card_of(out.name, loaded, facts, adapter), encoding="utf-8")
        size = (partial / WEIGHTS).stat().st_size
        yield 1.0
    return size


def card_of(name: str, loaded: LoadedModel, facts: MergeFacts, adapter: Adapter) -> str:
    """The card in words; its licence is the base's."""
    base, config = loaded.facts, adapter.config
    head = [f"base_model: {base.id}"] if base.source != "directory" else []
    head += [f"license: {base.license}"] if base.license else []
    front = "\n".join(["---", *head, "---", ""]) if head else ""
    part = "" if facts.factor == 1 else f", {facts.factor:g} of its scale"
    untied = "\n- Its output head is no longer tied to the embedding." if facts.untied else ""
    grid = f" They came from {base.grid}; the adapted ones lie on that grid no longer." if base.grid else ""
    return f"""{front}# {name}

{base.name} with the low-rank adapter {adapter.name} merged into its weights{part}.

- Base: {base.name} (`{base.id}`), weight hash `{base.weight_hash or "unknown"}`. Merged into {facts.base}.
- Adapter: rank {config.rank}, alpha {config.alpha:g}{", rsLoRA" if config.rslora else ""}, on
  {len(facts.modules)} matrices: {", ".join(config.targets)}. W' = W + s B A, added in fp32, rounded once.
- All other weights are the base's own, bit for bit.{grid}{untied}
"""
