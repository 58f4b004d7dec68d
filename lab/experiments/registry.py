"""All experiments, by name. No torch until one is loaded."""

from __future__ import annotations

from dataclasses import replace

from lab.errors import NotFound
from lab.events import ModelFacts
from lab.experiments.base import Experiment, Runner
from lab.experiments.kv_cache.params import PRESETS as KV_CACHE_PRESETS
from lab.experiments.kv_cache.params import KVCacheParams

_LATENT = ("DeepseekV2ForCausalLM", "DeepseekV3ForCausalLM")
"""Models whose layers the formula does not know, but whose caches are keys and values all the same."""


def _kv_cache_supports(facts: ModelFacts) -> str:
    if facts.architecture not in _LATENT and all(layer.kind == "other" for layer in facts.layers):
        return f"{facts.name} ({facts.architecture}) keeps no keys and values of attention in any layer."
    return ""


def _load_kv_cache() -> Runner:
    from lab.experiments.kv_cache.run import make_runner  # loads torch

    return make_runner()


EXPERIMENTS: dict[str, Experiment] = {
    experiment.name: experiment
    for experiment in (
        Experiment(
            name="kv_cache",
            title="What does remembering cost?",
            summary="Keys and values of past tokens never change, so the model keeps them. Watch what that takes, in "
            "bytes and in time.",
            params=KVCacheParams,
            presets=KV_CACHE_PRESETS,
            supports=_kv_cache_supports,
            load=_load_kv_cache,
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
