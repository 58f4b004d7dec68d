"""All experiments, by name. No torch until one is loaded."""

from __future__ import annotations

from dataclasses import replace

from lab.errors import NotFound
from lab.events import ModelFacts
from lab.experiments.base import Experiment, Runner
from lab.experiments.beam_search.params import PRESETS as BEAM_SEARCH_PRESETS
from lab.experiments.beam_search.params import BeamSearchParams
from lab.experiments.kv_cache.params import PRESETS as KV_CACHE_PRESETS
from lab.experiments.kv_cache.params import KVCacheParams
from lab.experiments.lora.params import PRESETS as LORA_PRESETS
from lab.experiments.lora.params import LoraParams
from lab.experiments.pruning.params import PRESETS as PRUNING_PRESETS
from lab.experiments.pruning.params import PruningParams
from lab.experiments.quantization.params import PRESETS as QUANTIZATION_PRESETS
from lab.experiments.quantization.params import QuantizationParams
from lab.experiments.speculative.params import PRESETS as SPECULATIVE_PRESETS
from lab.experiments.speculative.params import SpeculativeParams

_LATENT = ("DeepseekV2ForCausalLM", "DeepseekV3ForCausalLM")
"""Models whose layers the formula does not know, but whose caches are keys and values all the same."""


def _caches(facts: ModelFacts) -> str:
    if facts.architecture not in _LATENT and all(layer.kind == "other" for layer in facts.layers):
        return f"{facts.name} ({facts.architecture}) keeps no keys and values of attention in any layer."
    return ""


def _load_kv_cache() -> Runner:
    from lab.experiments.kv_cache.run import make_runner  # loads torch

    return make_runner()


def _load_beam_search() -> Runner:
    from lab.experiments.beam_search.run import make_runner

    return make_runner()


def _load_speculative() -> Runner:
    from lab.experiments.speculative.run import make_runner

    return make_runner()


def _load_pruning() -> Runner:
    from lab.experiments.pruning.run import make_runner

    return make_runner()


def _load_quantization() -> Runner:
    from lab.experiments.quantization.run import make_runner

    return make_runner()


def _load_lora() -> Runner:
    from lab.experiments.lora.run import make_runner

    return make_runner()


EXPERIMENTS: dict[str, Experiment] = {
    experiment.name: experiment
    for experiment in (
        Experiment(
            name="kv_cache",
            label="KV cache",
            title="What does remembering cost?",
            summary="Keys and values of past tokens never change, so the model keeps them. Watch what that takes, in "
            "bytes and in time.",
            params=KVCacheParams,
            presets=KV_CACHE_PRESETS,
            supports=_caches,
            load=_load_kv_cache,
        ),
        Experiment(
            name="beam_search",
            label="Beam search",
            title="What does keeping several texts find?",
            summary="The likeliest text may begin with a less likely token. Watch every candidate that was kept, "
            "finished or thrown away, and why.",
            params=BeamSearchParams,
            presets=BEAM_SEARCH_PRESETS,
            supports=_caches,
            load=_load_beam_search,
        ),
        Experiment(
            name="speculative",
            label="Speculative decoding",
            title="Can a guess save a read of the weights?",
            summary="A cheap draft proposes tokens, the model checks several in one pass. Watch each one accepted or "
            "rejected, and whether it pays here.",
            params=SpeculativeParams,
            presets=SPECULATIVE_PRESETS,
            supports=_caches,
            load=_load_speculative,
        ),
        Experiment(
            name="quantization",
            label="Quantization",
            title="What do fewer bits cost?",
            summary="Weights become a few levels and scales. Watch what that does to a layer, to its output and to the "
            "model's words, and what packed kernels really save.",
            params=QuantizationParams,
            presets=QUANTIZATION_PRESETS,
            supports=_caches,
            load=_load_quantization,
        ),
        Experiment(
            name="pruning",
            label="Pruning",
            title="Which weights can go?",
            summary="Half of the weights become zero. Watch which each method keeps, what the layer, the model and its "
            "words lose, and whether zeros save anything.",
            params=PruningParams,
            presets=PRUNING_PRESETS,
            supports=_caches,
            load=_load_pruning,
        ),
        Experiment(
            name="lora",
            label="LoRA",
            title="What can a small update change?",
            summary="Two thin matrices beside each large one learn something new while the model stays as it is. Train "
            "them, compare the words before and after, merge and swap.",
            params=LoraParams,
            presets=LORA_PRESETS,
            supports=_caches,
            load=_load_lora,
        ),
    )
}


def get_experiment(name: str) -> Experiment:
    """The experiment called `name`.

    Raises:
        NotFound: there is none; the message lists those there are.
    """
    if name not in EXPERIMENTS:
        raise NotFound(f"There is no experiment {name!r}.", remedy=f"There is: {', '.join(EXPERIMENTS)}.")
    return EXPERIMENTS[name]


def with_experiments(facts: ModelFacts) -> ModelFacts:
    """`facts` with what each experiment says of the model: "" if it can use it, else why not."""
    return replace(facts, experiments={name: e.supports(facts) for name, e in EXPERIMENTS.items()})
