"""Parameters of the `quantization` experiment: limits, mixed precision in a line, narrowing to a model."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from lab.backend.validation import validated
from lab.errors import BadInput
from lab.events import LayerFacts, ModelFacts
from lab.experiments.quantization.choices import GROUP_SIZES, divides, why_not
from lab.experiments.quantization.mixed import read_layer_bits
from lab.experiments.quantization.params import PRESETS, QuantizationParams
from lab.experiments.quantization.run import make_runner
from lab.experiments.quantization.settings import Scheme


def facts(**more: Any) -> ModelFacts:
    layer = LayerFacts(kind="full", window=None, kv_heads=3, head_dim=64)
    values: dict[str, Any] = {
        "id": "m", "name": "M", "source": "directory", "architecture": "LlamaForCausalLM", "present": True,
        "layers": (layer,) * 30, "hidden": 576, "query_heads": 9, "kv_heads": 3, "head_dim": 64, "vocab": 49152,
        "context": 8192, "tied": True, "parameters": 1, "dtype": "float32", "weight_bytes": 4, "weight_hash": "00",
        "grid": None, "chat_template": True, "license": "", **more,
    }  # fmt: skip
    return ModelFacts(**values)


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"bits": 0}, "bits is 0; it must be at least 2"),
        ({"bits": 9}, "bits is 9; the limit is 8"),
        ({"group_size": "7"}, "group_size is '7', which is not a choice"),
        ({"calibration_tokens": 1}, "calibration_tokens is 1; it must be at least 32"),
        ({"damping": 0.0}, "damping is 0.0; it must be above 0"),
        ({"layers": [-1]}, "layers are counted from 0"),
        ({"layers": []}, "layers has 0"),
        ({"layer_bits": "0:9"}, "a layer has 2 to 8 bits, or 16 to stay dense, not 9"),
        ({"layer_bits": "x"}, "'x' is not of the form LAYER:BITS"),
        ({"layer_bits": "5-2:4"}, "the layers 5-2 run backwards"),
        ({"bits": True}, "a number"),
        ({"methode": "gptq"}, "There is no parameter 'methode'"),
    ],
)
def test_bad_values_are_refused_in_words(values: dict[str, Any], words: str) -> None:
    with pytest.raises(BadInput) as error:
        validated(QuantizationParams, values)
    assert words in str(error.value)


def test_mixed_precision_is_read_part_by_part() -> None:
    assert read_layer_bits(" 0-2:8, 1:16 ,7:3") == {0: 8, 1: 16, 2: 8, 7: 3}
    assert read_layer_bits("") == {}
    scheme = Scheme.of(QuantizationParams(bits=4, layer_bits="3:8,4:16"))
    assert [scheme.bits_of(layer) for layer in (0, 3, 4)] == [4, 8, 16]
    assert scheme.at(4) is None
    eight = scheme.at(3)
    assert eight is not None
    assert "8 bits" in eight.setting.label


def test_group_sizes_are_narrowed_with_reasons() -> None:
    fields = QuantizationParams.for_model(facts())["properties"]
    reasons = fields["group_size"]["disabled_options"]
    assert reasons["128"] == "576 = 4 × 128 + 64. 128+rest makes the last group smaller."
    assert not {"16", "32", "64", "96", "192", "288", "row", "tensor", "128+rest"} & reasons.keys()
    assert fields["layers"]["items"]["maximum"] == 29
    assert fields["group_size"]["default"] == "64"
    small = QuantizationParams.for_model(facts(hidden=32))["properties"]["group_size"]
    assert small["disabled_options"]["64"] == "A row has only 32 weights."
    assert small["default"] == "32"


@pytest.mark.parametrize("columns", [32, 64, 576, 1536, 100])
def test_a_reason_is_there_exactly_where_a_size_does_not_fit(columns: int) -> None:
    for size in GROUP_SIZES:
        assert bool(why_not(size, columns)) is not divides(size, columns)


def test_projections_are_those_of_the_architecture() -> None:
    llama = QuantizationParams.for_model(facts())["properties"]["projection"]
    gpt2 = QuantizationParams.for_model(facts(architecture="GPT2LMHeadModel"))["properties"]["projection"]
    assert "c_attn" in llama["disabled_options"]
    assert "q_proj" not in llama["disabled_options"]
    assert set(llama["disabled_options"]) | set(gpt2["disabled_options"]) == set(llama["enum"])
    assert gpt2["default"] == "c_attn"


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"layers": (30,)}, "Layer 30 does not exist: M has 30 layers"),
        ({"task": "map", "layer_bits": "31:8"}, "Layer 31 does not exist"),
        ({"task": "map", "group_size": "128"}, "Groups of 128 do not fit rows of 576"),
        ({"method": "nf4", "break_run": "nibbles_swapped"}, "needs codes on a grid"),
        ({"kind": "asymmetric", "break_run": "missing_abs"}, "The sign can only be forgotten"),
        ({"task": "packed", "break_run": "missing_abs"}, "Packed kernels take scales"),
    ],
)
def test_what_the_model_or_the_method_cannot_do_is_refused_before_a_run(values: dict[str, Any], words: str) -> None:
    with pytest.raises(BadInput) as error:
        make_runner().prepare(facts(), QuantizationParams(**values))
    assert words in str(error.value)


def test_presets_are_questions_that_run_here() -> None:
    tasks = set()
    for preset in PRESETS:
        params = QuantizationParams(**preset.params)
        make_runner().prepare(facts(), params)
        tasks.add(params.task)
        assert preset.question.endswith("?")
    assert tasks == {"layer", "map", "words", "packed"}


def test_frozen() -> None:
    params = QuantizationParams()
    with pytest.raises(ValidationError):
        params.bits = 3  # type: ignore[misc]
