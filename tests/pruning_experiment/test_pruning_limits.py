"""What the `pruning` experiment tells of its limits: large masks, the sparsity that was counted, a kernel not here."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import pytest
import torch
from experiment_runs import Ran, run_experiment

from lab.backend.limits import Limits
from lab.errors import BadInput
from lab.events.evaluation import TextsChosen
from lab.events.pruning import MaskMade, PruneErrors
from lab.experiments.pruning import inspections
from lab.experiments.pruning.params import PruningParams
from lab.experiments.pruning.run import make_runner
from lab.experiments.pruning.savings import two_of_four

if TYPE_CHECKING:
    from lab.models.loading import LoadedModel

Tiny = Callable[..., "LoadedModel"]


@pytest.fixture
def ran(tiny: Tiny) -> Ran:
    params = PruningParams(task="masks", method="sparsegpt", calibration_tokens=64, heldout_tokens=32, layers=(0, 1))
    return run_experiment(make_runner(), tiny("llama"), params)


def test_a_mask_too_large_for_an_answer_is_refused_before_it_is_made(ran: Ran, monkeypatch: pytest.MonkeyPatch) -> None:
    weight = ran.context.model.model.model.layers[0].self_attn.q_proj.weight  # type: ignore[union-attr]
    rows, columns = weight.shape
    size = rows * -(-columns // 8)
    monkeypatch.setattr(inspections, "MOST_BITS", size)
    assert ran.ask("mask")["rows"] == rows  # just fits
    monkeypatch.setattr(inspections, "MOST_BITS", size - 1)

    def never(*_: Any) -> Iterator[None]:
        raise AssertionError("the mask was made")

    monkeypatch.setattr(inspections.Scheme, "make", never)
    for name in ("mask", "nm_check"):
        with pytest.raises(
            BadInput, match=f"layer 0 q_proj, {rows} x {columns}, takes {size} bytes.* {size - 1} at most"
        ):
            ran.ask(name)


def test_the_largest_mask_fits_an_answer(ran: Ran, monkeypatch: pytest.MonkeyPatch) -> None:
    """The limit in bytes of bits against the backend's in bytes of JSON."""
    bits = torch.full((inspections.MOST_BITS // 512, 512), 255, dtype=torch.uint8)
    matrix = torch.empty(bits.shape[0], 4096)

    class Large:
        title, weight = "layer 12345 down_proj", matrix

    def give(*_: Any) -> tuple[Any, torch.Tensor, str]:
        return Large, bits, "At random, 50 %, each row"

    monkeypatch.setattr(inspections, "_bits", give)
    size = len(json.dumps(ran.ask("mask"), separators=(",", ":")).encode())
    assert size <= Limits().answer_bytes
    assert size > 0.9 * Limits().answer_bytes  # and nothing much is given away
    # the mutation: the backend's limit taken for one of bits
    assert 4 / 3 * Limits().answer_bytes > Limits().answer_bytes >= size


@pytest.mark.parametrize(
    ("asked", "counted"),
    [
        ({"method": "magnitude", "sparsity": 0.123456}, None),
        ({"method": "magnitude", "sparsity": 0.9, "pattern": "1:4"}, 0.75),
        ({"method": "random", "sparsity": 0.3, "scope": "row"}, None),
        ({"method": "sparsegpt", "sparsity": 0.9}, 0.5),  # the run's own mask
    ],
)
def test_an_answer_tells_the_sparsity_that_was_counted(ran: Ran, asked: dict[str, Any], counted: float | None) -> None:
    answer = ran.ask("mask", **asked)
    assert answer["asked"] == asked["sparsity"]
    assert ("pattern" in answer) == (asked["method"] != "sparsegpt")
    assert answer["sparsity"] == 1 - answer["kept"] / (answer["rows"] * answer["columns"])
    if counted is not None:
        assert answer["sparsity"] == counted != answer["asked"]
    else:
        assert answer["sparsity"] == pytest.approx(answer["asked"], abs=0.02)
        assert answer["sparsity"] != answer["asked"]  # no share of so many weights


@pytest.mark.parametrize("method", ["magnitude", "random", "wanda", "sparsegpt", "global_magnitude"])
def test_a_mask_is_told_before_any_text_is_read(tiny: Tiny, method: str) -> None:
    params = PruningParams(task="masks", method=method, calibration_tokens=64, heldout_tokens=32, layers=(0, 1))  # type: ignore[arg-type]
    events = run_experiment(make_runner(), tiny("llama"), params).events
    kinds = [type(event) for event in events]
    assert kinds.index(MaskMade) < kinds.index(TextsChosen) < kinds.index(PruneErrors)
    told = [event for event in events if isinstance(event, MaskMade)]
    assert (told[0].setting.method, told[0].layer, told[0].chosen) == ("magnitude", 0, method == "magnitude")
    pairs = [(mask.layer, mask.setting.method) for mask in told]
    assert len(pairs) == len(set(pairs))  # none is told twice


def test_the_device_decides_what_is_said_of_2_4(monkeypatch: pytest.MonkeyPatch) -> None:
    cpu = two_of_four(torch.device("cpu"))
    assert cpu.startswith("not here: ")
    assert cpu.endswith("this run is on the CPU")
    said = {}
    for capability in ((7, 5), (8, 0), (9, 0)):
        monkeypatch.setattr(torch.cuda, "get_device_capability", lambda _, found=capability: found)
        said[capability] = two_of_four(torch.device("cuda:0"))
    assert said[7, 5].startswith("not here: ")
    assert "7.5" in said[7, 5]
    for capability in ((8, 0), (9, 0)):
        assert said[capability].startswith("not run: ")
        assert "needs an NVIDIA GPU" not in said[capability]
