"""Questions to the `quantization` experiment: asked of a model, without a run."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from lab.backend.local import LocalBackend
from lab.backend.protocol import InspectRequest
from lab.errors import BadInput, NotFound, Unavailable
from lab.events import ArrayData
from lab.events.codec import to_json
from lab.experiments.base import RunContext
from lab.experiments.quantization.inspections import INSPECTIONS, inspect
from lab.experiments.quantization.params import QuantizationParams
from lab.experiments.quantization.run import make_runner

if TYPE_CHECKING:
    from lab.models.loading import LoadedModel

Tiny = Callable[..., "LoadedModel"]


def ask(loaded: LoadedModel, name: str, /, **values: Any) -> dict[str, Any]:
    context = RunContext(model=loaded)
    return inspect(context, loaded.facts, name, INSPECTIONS[name](**values))


def test_histograms_on_one_axis_are_those_of_a_run(tiny: Tiny) -> None:
    from experiment_runs import run_experiment

    from lab.events.quantization import ErrorHistogram

    model = tiny()
    answer = ask(model, "histogram", projection="down_proj", group_sizes=["16", "32", "row", "128"])
    assert answer["refused"] == {"128": "A row has only 64 weights."}
    found = answer["histograms"]
    assert [h["setting"]["share"] for h in found] == ["row", "32", "16"]
    assert len({(h["low"], h["high"]) for h in found}) == 1
    params = QuantizationParams(projection="down_proj", group_size="32", calibration_tokens=32, heldout_tokens=16)
    run = {h.setting.share: h for h in run_experiment(make_runner(), model, params).of(ErrorHistogram)}
    for h in found:
        assert isinstance(h["counts"], ArrayData)
        assert int(h["counts"].numpy().sum()) == 32 * 64
        own = run[h["setting"]["share"]]
        assert h["max_error"] == pytest.approx(own.max_error, rel=1e-6)
        if h["high"] == own.high:
            assert (
                abs(h["counts"].numpy() - own.counts.numpy()).sum() <= 4
            )  # an error at an edge may fall on either side
        assert h["mean_square"] == pytest.approx(own.mean_square, rel=1e-5)
        assert h["half_step"] == own.half_step
        assert h["bits_per_weight"] == own.bits_per_weight
        assert abs(h["worst"][0]["before"] - h["worst"][0]["after"]) == pytest.approx(h["max_error"])


@pytest.mark.parametrize("method", ["nf4", "fp8_e4m3", "int8"])
def test_levels_of_their_own_have_one_histogram(tiny: Tiny, method: str) -> None:
    (found,) = ask(tiny(), "histogram", method=method)["histograms"]
    assert found["setting"]["method"] == method
    assert found["max_error"] > 0


def test_a_method_that_takes_a_run_is_refused_in_words() -> None:
    with pytest.raises(ValueError, match="gptq takes a run"):
        INSPECTIONS["histogram"](method="gptq")


def test_one_group_before_and_after(tiny: Tiny) -> None:
    model = tiny()
    view = ask(model, "group", projection="down_proj", group_size="32", row=3, group=1)
    weight = model.model.get_submodule("model.layers.0.mlp.down_proj").weight
    assert view["before"] == tuple(weight[3, 32:64].tolist())  # type: ignore[index,union-attr]
    assert len(view["levels"]) == 15
    for after, code in zip(view["after"], view["codes"], strict=True):
        assert after == pytest.approx(view["levels"][code - view["lowest"]], abs=1e-7)
    assert all(abs(a - b) <= view["scale"] / 2 * 1.00001 for a, b in zip(view["before"], view["after"], strict=True))
    with pytest.raises(BadInput, match="There is no group 2 in row 3"):
        ask(model, "group", projection="down_proj", group_size="32", row=3, group=2)
    with pytest.raises(BadInput, match="Groups of 96 do not divide"):
        ask(model, "group", projection="down_proj", group_size="96")


def test_formats_storage_and_the_seed_texts_examples(tiny: Tiny) -> None:
    model = tiny()
    formats = {f["name"]: f for f in ask(model, "formats", value=0.1, largest=1.27)["formats"]}
    assert formats["bfloat16"]["became"] == 0.10009765625
    assert formats["float8_e4m3fn"]["became"] == 0.1015625
    assert formats["int8"]["became"] == pytest.approx(0.1)
    seven = ask(model, "storage", model="count", weights=7 * 10**9)
    assert seven["total"]["code_bytes"] == 3_500_000_000
    assert seven["total"]["scale_bytes"] == 109_375_000
    assert seven["total"]["before_bytes"] == 14 * 10**9
    minimum = ask(model, "storage", model="count", weights=7 * 10**9, kind="float_minimum")
    assert minimum["total"]["zero_bytes"] == minimum["total"]["scale_bytes"] == 109_375_000
    llama = ask(model, "storage", model="llama-2-7b")
    assert llama["total"]["weights"] == 6_738_415_616
    example = ask(model, "worked_example")
    assert example["four"][0]["codes"] == (2, -7, 0, 5)
    assert [g["bits"] for g in example["four"]] == [4, 8]
    assert example["outlier"]["scale"] == pytest.approx(10 / 7)
    assert example["without_outlier"]["scale"] == pytest.approx(0.3 / 7)
    json.dumps(to_json(example), allow_nan=False)


def test_a_given_config_and_sizes_by_hand_are_counted(
    backend: LocalBackend, tiny_directory: Callable[..., Path]
) -> None:
    model = str(tiny_directory("qwen2"))

    def asked(**values: Any) -> dict[str, Any]:
        params = {"group_size": 32, "bits": 3, "kind": "float_minimum", **values}
        return backend.inspect(InspectRequest(experiment="quantization", name="storage", params=params, model=model))

    text = (tiny_directory("qwen2") / "config.json").read_text()
    own, given = asked(model="this"), asked(model="config", config=text)
    assert given["total"] == own["total"]
    assert (given["name"], given["notes"]) == ("The given config (qwen2)", [])
    assert "config" not in given
    assert asked(model="config", config=json.dumps(given["read"]))["kinds"] == given["kinds"]
    seven = asked(model="sizes")
    assert seven["total"] == asked(model="llama-2-7b")["total"]
    assert asked(model="sizes", tied=True)["total"]["weights"] < seven["total"]["weights"]
    assert backend.health().models_loaded == ()
    for values, said in (
        ({"config": ""}, "The config is empty"),
        ({"config": str(tiny_directory("qwen2") / "config.json")}, "no JSON"),  # a path is text: no file is opened
        ({"config": "x" * 65_537}, "config has 65,537 characters; the limit is 65,536"),
        ({"model": "sizes", "hidden": 0}, "hidden is 0; it must be at least 1"),
        ({"model": "sizes", "hidden": 100}, "does not divide into 32 heads"),
        ({"model": "sizes", "kv_heads": 5}, "cannot share 5 key/value heads"),
        ({"model": "sizes", "layers": 2001}, "layers is 2001; the limit is 2000"),
        ({"model": "sizes", "tied": "perhaps"}, "tied is 'perhaps'"),
        (
            {"model": "sizes", "hidden": 960_000, "intermediate": 10**6, "layers": 2000},
            "the limit is 10,000,000,000,000",
        ),
    ):
        with pytest.raises(BadInput) as caught:
            asked(**{"model": "config", **values})
        assert said in caught.value.message
        assert caught.value.remedy


def test_what_needs_weights_says_so(tiny: Tiny) -> None:
    facts = tiny().facts
    with pytest.raises(Unavailable, match="needs the model's weights"):
        inspect(None, facts, "histogram", INSPECTIONS["histogram"]())
    with pytest.raises(NotFound, match="answers no question 'dance'"):
        inspect(None, facts, "dance", INSPECTIONS["histogram"]())


@pytest.fixture
def backend() -> Iterator[LocalBackend]:
    made = LocalBackend(store=None)
    yield made
    made.close()


def test_a_backend_loads_the_model_for_a_question_about_its_weights(
    backend: LocalBackend, tiny_directory: Callable[..., Path]
) -> None:
    model = str(tiny_directory("llama"))
    request = InspectRequest(
        experiment="quantization", name="histogram", params={"group_sizes": ["16", "row"]}, model=model
    )
    answer = backend.inspect(request)
    assert [h["setting"]["share"] for h in answer["histograms"]] == ["row", "16"]
    assert backend.health().models_loaded == (model,)
    assert backend.inspect(request) == answer
    plain = InspectRequest(experiment="quantization", name="worked_example", model=model)
    assert backend.inspect(plain)["four"][0]["codes"] == [2, -7, 0, 5]


def test_a_question_about_the_facts_alone_loads_nothing(
    backend: LocalBackend, tiny_directory: Callable[..., Path]
) -> None:
    model = str(tiny_directory("llama"))
    backend.inspect(InspectRequest(experiment="quantization", name="worked_example", model=model))
    assert backend.health().models_loaded == ()


def test_a_second_question_does_not_walk_the_model_again(tiny: Tiny, monkeypatch: pytest.MonkeyPatch) -> None:
    from lab.experiments.quantization import inspections

    walks: list[object] = []
    find = inspections.find_targets

    def counting(model: Any) -> Any:
        walks.append(model)
        return find(model)

    monkeypatch.setattr(inspections, "find_targets", counting)
    model, other = tiny(), tiny("gpt2")
    inspections._FOUND.pop(model.model, None)
    inspections._FOUND.pop(other.model, None)
    first, again = (ask(model, "group", projection="q_proj", group_size="16", layer=0) for _ in range(2))
    assert first == again
    assert len(walks) == 1
    assert ask(other, "group", projection="c_fc", group_size="16")["matrix"] == "layer 0 c_fc"
    assert len(walks) == 2
