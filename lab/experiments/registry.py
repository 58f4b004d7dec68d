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
from lab.strings import strings

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


_words = strings()
EXPERIMENTS: dict[str, Experiment] = {
    experiment.name: experiment
    for experiment in (
        Experiment(
            name="kv_cache",
            label=_words("kv_cache.label"),
            title=_words("kv_cache.title"),
            summary=_words("kv_cache.summary"),
            params=KVCacheParams,
            presets=KV_CACHE_PRESETS,
            supports=_caches,
            load=_load_kv_cache,
        ),
        Experiment(
            name="beam_search",
            label=_words("beam_search.label"),
            title=_words("beam_search.title"),
            summary=_words("beam_search.summary"),
            params=BeamSearchParams,
            presets=BEAM_SEARCH_PRESETS,
            supports=_caches,
            load=_load_beam_search,
        ),
        Experiment(
            name="speculative",
            label=_words("speculative.label"),
            title=_words("speculative.title"),
            summary=_words("speculative.summary"),
            params=SpeculativeParams,
            presets=SPECULATIVE_PRESETS,
            supports=_caches,
            load=_load_speculative,
        ),
        Experiment(
            name="quantization",
            label=_words("quantization.label"),
            title=_words("quantization.title"),
            summary=_words("quantization.summary"),
            params=QuantizationParams,
            presets=QUANTIZATION_PRESETS,
            supports=_caches,
            load=_load_quantization,
        ),
        Experiment(
            name="pruning",
            label=_words("pruning.label"),
            title=_words("pruning.title"),
            summary=_words("pruning.summary"),
            params=PruningParams,
            presets=PRUNING_PRESETS,
            supports=_caches,
            load=_load_pruning,
        ),
        Experiment(
            name="lora",
            label=_words("lora.label"),
            title=_words("lora.title"),
            summary=_words("lora.summary"),
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
