"""The quantized models whose words are compared: weights, activations, the cache, and all together."""

from __future__ import annotations

from torch import nn

from lab.experiments.compared.progress import Made, shares
from lab.experiments.compared.speak import Voice
from lab.experiments.quantization.choices import ACTIVATIONS, CACHE_BITS
from lab.experiments.quantization.setup import Setup
from lab.experiments.quantization.whole import Whole
from lab.quantization.activations import ActivationScheme, Mode, calibrate_ranges, hang_rounded_inputs
from lab.quantization.kv_scheme import KvScheme
from lab.quantization.observers import RULES
from lab.steps import relay

CACHE_GROUP = 16
"""Of a quantized cache: small, so that a short text has some."""
_MODES: dict[str, Mode] = {"dynamic_token": "token", "dynamic_tensor": "tensor"}
_RULES = {"static_max": "max", "static_percentile": "percentile", "static_average": "moving_average"}


def voices(setup: Setup, whole: Whole, windows: list[list[int]]) -> Made[list[Voice]]:
    """Each change alone, then all of them together."""
    p = setup.params
    found = [Voice("weights", setup.scheme.setting.label, "simulated", whole.shell, notes=whole.notes[:8])]
    together, parts = whole.shell, ["weights"]
    if p.activations != "none":
        scheme = ActivationScheme(p.activation_bits, _MODES.get(p.activations, "static"))
        names = [target.name for target in setup.targets]
        spans: dict[str, tuple[float, float]] | None = None
        both: dict[str, tuple[float, float]] | None = None
        if scheme.mode == "static":
            spans = both = yield from _ranges(setup.model, windows, _RULES[p.activations])
            if setup.scheme.method == "awq":  # its modules read x / s
                both = yield from _ranges(whole.shell, windows, _RULES[p.activations])
        label = f"activations, {p.activation_bits} bits ({ACTIVATIONS[p.activations]})"
        found.append(Voice("activations", label, "simulated", hang_rounded_inputs(setup.model, scheme, spans, names)))
        together = hang_rounded_inputs(whole.shell, scheme, both, names)
        parts.append("activations")
        yield None
    cache: KvScheme | None = None
    if p.cache_bits != "none":
        cache = KvScheme(int(p.cache_bits), group=CACHE_GROUP, window=p.residual)
        label = f"key/value cache, {CACHE_BITS[p.cache_bits]}, {p.residual} newest positions dense"
        found.append(Voice("cache", label, "simulated", setup.model, cache))
        parts.append("cache")
    if len(parts) > 1:
        found.append(Voice("everything", " and ".join(parts) + " together", "simulated", together, cache))
    return found


def _ranges(model: nn.Module, windows: list[list[int]], rule: str) -> Made[dict[str, tuple[float, float]]]:
    watching = calibrate_ranges(model, windows, next(r for r in RULES if r.name == rule))
    return (yield from relay(watching, shares("watching activations")))
