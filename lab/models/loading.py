"""Loading a model directory: the shared contract of everything that runs a model."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import torch

from lab.errors import ModelError, shown
from lab.events import ModelFacts
from lab.models.architecture import read_config
from lab.models.atomic import silent
from lab.models.manifest import read_manifest
from lab.models.memory import require_memory
from lab.models.quiet import quiet_transformers
from lab.models.sibling import bfloat16_sibling

if TYPE_CHECKING:
    from transformers import PretrainedConfig, PreTrainedModel, PreTrainedTokenizerBase

ATTENTION = "sdpa"
DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}


@dataclass
class LoadedModel:
    """A model ready to run. It is read-only: variants are made with `lab.models.shell.make_shell`.

    Attributes:
        facts: of the stored weights, whatever dtype runs.
        end_token_ids: the tokens that end a text, from the generation config; empty if it names none.
    """

    facts: ModelFacts
    model: PreTrainedModel
    tokenizer: PreTrainedTokenizerBase
    device: torch.device
    dtype: torch.dtype
    end_token_ids: frozenset[int]


def choose_device(device: str = "auto", dtype: str = "auto") -> tuple[torch.device, torch.dtype]:
    """Where and in which dtype to run: cuda with bfloat16 where there is one, else the CPU with float32.

    Args:
        device: "auto", "cpu", "cuda" or "cuda:N".
        dtype: "auto", "float32" or "bfloat16".

    Raises:
        ModelError: a device or dtype that does not exist here.
    """
    if dtype not in ("auto", *DTYPES):
        raise ModelError(f"The dtype {shown(dtype)} is not offered.", remedy="Choose auto, float32 or bfloat16.")
    chosen = _device(device)
    if chosen.type == "cuda":
        native = torch.cuda.get_device_capability(chosen)[0] >= 8
        if dtype == "bfloat16" and not native:
            raise ModelError(
                f"{torch.cuda.get_device_name(chosen)} has no bfloat16 arithmetic.", remedy="Choose float32."
            )
        return chosen, DTYPES[("bfloat16" if native else "float32") if dtype == "auto" else dtype]
    return chosen, DTYPES["float32" if dtype == "auto" else dtype]


def attention_of(facts: ModelFacts) -> str:
    """The attention kernel that a model runs with: "sdpa", or "eager" where sdpa would compute it wrongly.

    Gemma-2 caps its attention logits, which sdpa cannot; transformers marks such classes.
    """
    import transformers

    cls = getattr(transformers, facts.architecture, None)
    return ATTENTION if getattr(cls, "_supports_sdpa", False) else "eager"


def load_directory(
    directory: Path,
    facts: ModelFacts,
    *,
    dtype: str = "auto",
    device: str = "auto",
    progress: Callable[[str, float | None], None] | None = None,
) -> LoadedModel:
    """Load a model directory whose `facts` are known: eval mode, sdpa attention (eager where a model
    has no sdpa), no gradients.

    Raises:
        NotEnoughMemory: the model will not fit; both numbers are in the message.
        ModelError: weights that do not fit the config, no tokenizer, or a bad device or dtype.
    """
    say = progress or silent
    where, kind = choose_device(device, dtype)
    kind_name = next(name for name, value in DTYPES.items() if value is kind)
    config = read_config(directory)
    skeleton = _skeleton(config, facts)
    expected = sum(p.numel() for p in skeleton.parameters())
    require_memory(facts.name, expected, kind_name, str(where))
    if kind is torch.bfloat16 and read_manifest(directory) is not None:
        directory = bfloat16_sibling(directory, say)
    say("loading the tokenizer", None)
    tokenizer = _load_tokenizer(directory, facts)
    say("loading the weights", None)
    model = _load_weights(directory, facts, kind, attention_of(facts))
    embeddings = cast("torch.nn.Embedding", model.get_input_embeddings()).weight.shape[0]
    if embeddings < len(tokenizer):
        raise ModelError(
            f"{facts.name} has {embeddings:,} embeddings, but its tokenizer knows {len(tokenizer):,} tokens.",
            remedy="Use the tokenizer that belongs to the model.",
        )
    if where.type != "cpu":
        say(f"moving the weights to {where}", None)
        model.to(where)  # type: ignore[arg-type,unused-ignore]
    model.train(False)
    model.requires_grad_(False)
    return LoadedModel(
        facts=facts,
        model=model,
        tokenizer=tokenizer,
        device=where,
        dtype=kind,
        end_token_ids=_end_tokens(model, facts.name),
    )


def _device(device: str) -> torch.device:
    if device == "auto":
        return torch.device("cuda", 0) if torch.cuda.is_available() else torch.device("cpu")
    kind, _, number = device.partition(":")
    if kind == "cpu" and not number:
        return torch.device("cpu")
    if kind != "cuda" or (":" in device and not re.fullmatch(r"[0-9]{1,4}", number)):
        raise ModelError(f"The device {shown(device)} is not offered.", remedy="Choose auto, cpu, cuda or cuda:N.")
    if not torch.cuda.is_available():
        raise ModelError("There is no CUDA device here, or this torch was built without CUDA.", remedy="Choose cpu.")
    if int(number or 0) >= torch.cuda.device_count():
        raise ModelError(f"There is no {device}: this machine has {torch.cuda.device_count()} CUDA device(s).")
    return torch.device("cuda", int(number or 0))


def _skeleton(config: PretrainedConfig, facts: ModelFacts) -> PreTrainedModel:
    """The model that the config builds, without memory; refused when the stored weights are far from it.

    A config can ask for a thousand times the tensors that the files hold, and building it would take that memory.
    """
    from transformers import AutoModelForCausalLM

    auto: Any = AutoModelForCausalLM  # its methods carry no types
    try:
        with torch.device("meta"), quiet_transformers():
            # The kernel is ours: a config may name one that comes from the hub, with code of its own.
            skeleton: PreTrainedModel = auto.from_config(
                config, attn_implementation=attention_of(facts), trust_remote_code=False
            )
    except Exception as error:
        raise ModelError(
            f"The config of {facts.name} builds no model: {reason_of(error)}", remedy="Copy the model again."
        ) from error
    if facts.tied:
        skeleton.tie_weights()
    expected = sum(p.numel() for p in skeleton.parameters())
    if expected > facts.parameters * 1.01:
        raise ModelError(
            f"The config of {facts.name} describes {expected:,} parameters, but its files hold {facts.parameters:,}.",
            remedy="Config and weights do not belong together: copy the model again.",
        )
    return skeleton


def _load_tokenizer(directory: Path, facts: ModelFacts) -> PreTrainedTokenizerBase:
    from transformers import AutoTokenizer

    try:
        with quiet_transformers():
            # Left unset, transformers would ask at the terminal whether to run the directory's own code.
            tokenizer = AutoTokenizer.from_pretrained(str(directory), local_files_only=True, trust_remote_code=False)
            return cast("PreTrainedTokenizerBase", tokenizer)
    except Exception as error:
        raise ModelError(
            f"{facts.name} has no tokenizer that can be read: {reason_of(error, directory)}",
            remedy="Save it beside the model: tokenizer.save_pretrained(directory).",
        ) from error


def _load_weights(directory: Path, facts: ModelFacts, dtype: torch.dtype, attention: str) -> PreTrainedModel:
    from transformers import AutoModelForCausalLM

    auto: Any = AutoModelForCausalLM
    try:
        with quiet_transformers():
            model, info = auto.from_pretrained(
                str(directory),
                config=read_config(directory),
                dtype=dtype,
                attn_implementation=attention,
                use_safetensors=True,
                trust_remote_code=False,
                local_files_only=True,
                output_loading_info=True,
                ignore_mismatched_sizes=True,  # they are then listed, and refused below in words
            )
    except Exception as error:
        raise ModelError(
            f"The weights of {facts.name} cannot be loaded: {reason_of(error, directory)}",
            remedy="Copy the model again.",
        ) from error
    missing = sorted(info.get("missing_keys", ()))
    wrong = sorted(str(key[0] if isinstance(key, tuple) else key) for key in info.get("mismatched_keys", ()))
    if missing or wrong:
        # transformers would go on with random numbers in their place.
        which = f"lack {missing[0]!r}" if missing else f"have another shape than the config's for {wrong[0]!r}"
        raise ModelError(
            f"The weights of {facts.name} {which} ({len(missing)} missing, {len(wrong)} of a wrong shape).",
            remedy="Config and weights do not belong together: copy the model again.",
        )
    return cast("PreTrainedModel", model)


def _end_tokens(model: PreTrainedModel, name: str) -> frozenset[int]:
    generation = getattr(model, "generation_config", None)
    ids = getattr(generation, "eos_token_id", None)
    if ids is None:
        return frozenset()
    named = list(ids) if isinstance(ids, list | tuple) else [ids]
    if not all(type(i) is int for i in named):
        raise ModelError(
            f"The generation config of {name} has the end tokens {shown(ids)}; they are whole numbers.",
            remedy="Correct eos_token_id in its generation_config.json.",
        )
    return frozenset(named)


def reason_of(error: Exception, directory: Path | None = None) -> str:
    """The first line of what a library says, without the path of the model's directory."""
    text = str(error).strip()
    if directory is not None:
        text = text.replace(str(directory), directory.name)
    return text.splitlines()[0][:200] if text else type(error).__name__
