"""Events of what methods show of themselves on one matrix, without a model. GPTQ's replay is really computed."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
from quantization_whole import ends, started, texts

from lab.events import ArrayData, Event
from lab.events.quantization_methods import (
    ActivationChoice,
    ActivationRanges,
    Feature,
    GptqReplay,
    OutlierFeatures,
    Protected,
    ScaleSearch,
)


def replay(layer: int = 14, rows: int = 12, steps: int = 48, seed: int = 2) -> GptqReplay:
    """GPTQ of a small random matrix, columns with the largest inputs first."""
    rng = np.random.default_rng(seed)
    weight = rng.normal(0, 0.05, (rows, steps))
    mixed = rng.normal(0, 1, (256, steps)) @ (np.eye(steps) + 0.35 * rng.normal(0, 1, (steps, steps)) / 3)
    hessian = mixed.T @ mixed
    order = np.argsort(-np.diag(hessian))
    hessian = hessian[order][:, order] + np.eye(steps) * 0.01 * np.diag(hessian).mean()
    weight = weight[:, order]
    upper = np.linalg.cholesky(np.linalg.inv(hessian)).T  # inverse = upper^T upper
    scale = np.abs(weight).max(axis=1, keepdims=True) / 3
    now, turn = weight.copy(), np.zeros_like(weight)
    codes, values, error, loss = (np.zeros_like(weight) for _ in range(4))
    spread = np.triu(upper / np.diag(upper)[:, None], 1)
    for t in range(steps):
        turn[:, t] = now[:, t]
        codes[:, t] = np.clip(np.round(now[:, t] / scale[:, 0]), -3, 3)
        values[:, t] = codes[:, t] * scale[:, 0]
        error[:, t] = turn[:, t] - values[:, t]
        now[:, t + 1 :] -= np.outer(error[:, t], spread[t, t + 1 :])
        loss[:, t] = (error[:, t] / upper[t, t]) ** 2 / 2
    nearest = np.clip(np.round(weight / scale), -3, 3) * scale - weight
    change = values - weight

    def output(moved: Any) -> Any:
        return ((moved @ hessian) * moved).sum(axis=1) / 2

    def array(numbers: Any) -> ArrayData:
        return ArrayData.of(numbers, "float32")

    return GptqReplay(
        layer=layer,
        projection="o_proj",
        rows=tuple(range(0, rows * 3, 3)),
        columns=tuple(int(c) for c in order),
        start=0,
        width=steps,
        original=array(weight),
        at_turn=array(turn),
        codes=ArrayData.of(codes, "int32"),
        values=array(values),
        error=array(error),
        spread=array(spread),
        passed_on=array(np.abs(error) * np.abs(spread).sum(axis=1)),
        loss=array(loss),
        nearest_loss=array(output(nearest)),
        final_loss=array(output(change)),
        act_order=True,
        damping=0.01,
    )


def gptq_run(layers: tuple[int, ...] = (14,)) -> Iterator[Event]:
    """A run with replays."""
    yield started(method="gptq", bits=3, projection="o_proj", layers=layers)
    yield texts()
    for layer in layers:
        yield replay(layer)
    yield ends()


def search(layer: int = 0, *, projection: str = "q_proj", refused: str = "", clip: bool = True) -> ScaleSearch:
    """AWQ's search with a valley at r = 0.45."""
    ratios = tuple(i / 20 for i in range(20))
    losses = tuple(2e-3 * (0.55 + 2.2 * (r - 0.45) ** 2) for r in ratios)
    return ScaleSearch(
        layer=layer,
        projections=("q_proj", "k_proj", "v_proj") if projection == "q_proj" else (projection,),
        ratios=ratios,
        losses=losses,
        best=0.45,
        judged_by="self_attn",
        protected=tuple(Protected(7 * i + 3, 4.0 / (i + 1), 3.1 - 0.2 * i) for i in range(12)),
        channels=576,
        folded_into="" if refused else "input_layernorm",
        refused=refused,
        clipped=clip,
    )


REFUSED = "v_proj gives 192 values and o_proj takes 576: under grouped queries one value feeds three queries."


def awq_run() -> Iterator[Event]:
    """Two searches: one is folded, one cannot be."""
    yield started(method="awq", projection="o_proj", layers=(0, 14))
    yield texts()
    yield search(0)
    yield search(14, projection="o_proj", refused=REFUSED, clip=False)
    yield ends()


def outlier(planted: float = 0.0, *, layer: int = 0, threshold: float = 6.0, words: str = "") -> OutlierFeatures:
    """Sorted maxima that fall off; with `planted` three channels are far larger."""
    channels = 576
    maxima = [9.0 * math.exp(-i / 90) + 0.4 for i in range(channels)]
    if planted:
        maxima = sorted([*(m * planted for m in maxima[100:103]), *maxima[3:]], reverse=True)
    count = sum(m >= threshold for m in maxima) if threshold else 0
    return OutlierFeatures(
        layer=layer,
        projection="q_proj",
        threshold=threshold,
        positions=512,
        channels=channels,
        count=count,
        outliers=tuple(Feature(11 * i % channels, m) for i, m in enumerate(maxima[: min(count, 64)])),
        maxima=ArrayData.of(maxima, "float32"),
        pure_error=0.21 if planted else 0.012,
        mixed_error=0.009 if planted else 0.0105,
        planted=planted,
        words=words
        or ("Three channels were made larger." if planted else "A model of 135M parameters has few of them."),
    )


def int8_run(words: str = "") -> Iterator[Event]:
    """LLM.int8() on own and on planted inputs."""
    yield started(method="llm_int8", layers=(0,))
    yield texts()
    yield outlier(words=words)
    yield outlier(100.0)
    yield ends()


def ranges(layer: int) -> ActivationRanges:
    """Inputs with one large position."""
    wide = 3.0 + layer / 3
    token_max = [wide * (0.4 + 0.2 * math.sin(i)) for i in range(256)]
    token_max[0] = wide * 2.2
    return ActivationRanges(
        layer=layer,
        projection="q_proj",
        bits=8,
        low=-wide * 1.6,
        high=wide * 2.2,
        percentiles=((0.1, -wide * 0.5), (1.0, -wide * 0.3), (99.0, wide * 0.3), (99.9, wide * 0.6)),
        outliers=tuple(Feature(41 * i, wide * (2.2 - 0.2 * i)) for i in range(8)),
        token_max=ArrayData.of(token_max, "float32"),
        choices=(
            ActivationChoice("dynamic, per token", math.nan, 0.0, 0.006, 0.008, 0.11),
            ActivationChoice("dynamic, per tensor", math.nan, 0.0, 0.02, 0.026, 0.12),
            ActivationChoice("static: maximum", 0.05, 0.0, 0.021, 0.027, 0.121),
            ActivationChoice("static: percentile", 0.02, 0.004, 0.05, 0.06, 0.14),
            ActivationChoice("static: moving average", 0.04, 0.0004, 0.03, 0.03, math.nan),
        ),
        weights_only_error=0.104,
    )


def activations_run(layers: tuple[int, ...] = (0, 14, 29)) -> Iterator[Event]:
    """Ranges of the inputs of some layers."""
    yield started(activations="dynamic_token", layers=layers)
    yield texts()
    for layer in layers:
        yield ranges(layer)
    yield ends()
