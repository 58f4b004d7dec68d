"""The adapters of a run: read, written, reversed; what there is to say of them; which modules are meant."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from torch import nn

from lab import paths
from lab.errors import BadInput, ModelError, NotFound, shown
from lab.events import ModelFacts
from lab.events.lora import AdapterFacts
from lab.experiments.compared.targets import find_targets
from lab.experiments.lora.choices import SUFFIXES, Targets
from lab.experiments.lora.places import PACKAGED, adapter_path, kept_names
from lab.lora.adapter import Adapter, effectless, misfit
from lab.lora.packaged import packaged_adapter
from lab.lora.peft_files import read_adapter, write_adapter
from lab.models.cache_place import written_to_cache
from lab.models.loading import LoadedModel


def find_adapter(name: str) -> Adapter:
    """The packaged adapter, one kept on this machine, or a folder in PEFT's format.

    Raises:
        NotFound: there is none.
        ModelError: another kind than plain LoRA, or damaged files.
    """
    if name == PACKAGED:
        return packaged_adapter()
    path = adapter_path(name)
    try:
        there = path.is_dir()
    except (OSError, ValueError):
        there = False
    if not there:
        kept = ", ".join(kept_names())
        raise NotFound(
            f"There is no adapter {shown(name)}: it is no folder{f', and kept are {kept}' if kept else ''}.",
            remedy=f"Name a folder in PEFT's format, or {PACKAGED}.",
        )
    return read_adapter(path)


def reversed_sign(adapter: Adapter, name: str) -> Adapter:
    """The adapter that takes away what `adapter` adds."""
    alphas = {module: -alpha for module, alpha in adapter.alphas.items()}
    return replace(adapter, name=name, config=replace(adapter.config, alpha=-adapter.config.alpha), alphas=alphas)


def check_name(name: str) -> Path:
    """The place of an adapter to be kept.

    Raises:
        BadInput: the name is taken, or stands for another adapter.
    """
    out = paths.adapters_location() / name
    if name == PACKAGED or out.exists():
        raise BadInput(f"There is an adapter {shown(name)} already.", remedy="Choose another name.")
    return out


def write_kept(adapter: Adapter, name: str) -> Path:
    """Write an adapter under a name that `adapter` of the parameters takes.

    Raises:
        BadInput: the name is taken, or the folder cannot be made.
        LabError: the disk refuses.
    """
    check_name(name)
    with written_to_cache():
        return write_adapter(replace(adapter, name=name), paths.adapters_dir() / name)


def fits_or_why(adapter: Adapter, facts: ModelFacts) -> str:
    """Why it cannot be for a model of such facts: "" if nothing there speaks against it."""
    made_for = adapter.base.vocabulary
    if made_for is not None and facts.vocab and made_for != facts.vocab:
        return f"it was made for a vocabulary of {made_for:,}, and {facts.name} has {facts.vocab:,}"
    return ""


def facts_of(
    adapter: Adapter, loaded: LoadedModel, label: str, source: str, notes: tuple[str, ...] = ()
) -> AdapterFacts:
    """What there is to say of an adapter beside a base."""
    base, facts = adapter.base, loaded.facts
    matches = misfit(adapter, loaded.model)
    if not matches and base.weight_hash and facts.weight_hash and base.weight_hash != facts.weight_hash:
        matches = f"it was made for other weights than those of {facts.name}"
    outside = [name for name in adapter.tensors if not any(part.isdigit() for part in name.split("."))]
    if outside:
        notes = (*notes, f"It also adapts {', '.join(outside[:3])}, outside the decoder layers.")
    return AdapterFacts(
        name=adapter.name,
        label=label,
        source=source,
        rank=adapter.config.rank,
        alpha=adapter.config.alpha,
        scale=adapter.config.scale,
        rslora=adapter.config.rslora,
        targets=adapter.config.targets,
        modules=len(adapter.tensors),
        parameters=adapter.parameters,
        base_parameters=facts.parameters,
        matrix_parameters=adapter.base_parameters,
        bytes=adapter.bytes,
        base=base.model_id,
        matches=matches,
        effectless=effectless(adapter, loaded.model),
        notes=notes,
    )


def refuse_misfit(adapter: Adapter, model: nn.Module) -> None:
    """Refuse an adapter whose names, shapes or vocabulary are not the model's.

    Raises:
        ModelError: with the first thing that does not fit.
    """
    why = misfit(adapter, model)
    if why:
        raise ModelError(
            f"The adapter {shown(adapter.name)} does not fit: {why}.", remedy="Load the model it was made for."
        )


def targets_of(model: nn.Module, chosen: Targets) -> tuple[str, ...]:
    """Ends of names of the modules that are meant.

    Raises:
        BadInput: the model has none of them; those it has are named.
    """
    found = find_targets(model)
    if chosen == "all":
        return tuple(dict.fromkeys(target.projection for target in found))
    names = [target.name for target in found]
    fitting = tuple(end for end in SUFFIXES[chosen] if any(name.endswith(f".{end}") for name in names))
    if not fitting:
        there = ", ".join(dict.fromkeys(target.projection for target in found)) or "none"
        raise BadInput(
            f"{type(model).__name__} has no modules {', '.join(SUFFIXES[chosen])}: its linear modules are {there}.",
            remedy="Choose all matrices.",
        )
    return fitting
