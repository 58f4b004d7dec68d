"""A quantized directory: whole or not there, equal after loading, refused in words where it is damaged."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import torch

from lab.errors import BadInput, ModelError
from lab.quantization.card import CARD, WEIGHTS, read_card
from lab.quantization.directory import write_quantized
from lab.quantization.load import load_quantized
from lab.quantization.methods import METHODS, Settings, make_method
from lab.quantization.packed_file import from_file, pack_nibbles, to_file, unpack_nibbles
from lab.quantization.whole_model import WholeModel, quantize_model

if TYPE_CHECKING:
    from lab.models.loading import LoadedModel

Tiny = Callable[..., "LoadedModel"]
WINDOWS = [list(range(3, 63)), list(range(100, 160))]
CASES = {
    "nearest int4": ("nearest", Settings(share=32)),
    "nearest int8": ("nearest", Settings(bits=8, share="row")),
    "nearest tensor": ("nearest", Settings(bits=8, share="tensor", kind="asymmetric")),
    "nearest ragged": ("nearest", Settings(bits=3, share=24, ragged=True, kind="full_range")),
    "nearest minimum": ("nearest", Settings(bits=5, kind="float_minimum", share=16, scale_format="float16")),
    "gptq": ("gptq", Settings(share=32)),
    "gptq order": ("gptq", Settings(share=16, static_groups=False)),
    "awq": ("awq", Settings(share=32)),
    "nf4": ("nf4", Settings()),
    "nf4 double": ("nf4", Settings(double_quant=True)),
}


def quantized(loaded: LoadedModel, case: str, *, head: bool = False) -> WholeModel:
    method = make_method(*CASES[case])
    windows = WINDOWS if method.wants_inputs else None
    return quantize_model(loaded.model, method, windows=windows, keep_codes=True, head=head)


def written(out: Path, loaded: LoadedModel, case: str, *, head: bool = False) -> WholeModel:
    made = quantized(loaded, case, head=head)
    about = {"text_hash": "0" * 12}
    write_quantized(out, loaded, made, method=CASES[case][0], settings={}, calibration=about, figures={"n": None})
    return made


def logits(model: Any, ids: list[int] | None = None) -> torch.Tensor:
    ids = ids or list(range(5, 45))
    with torch.inference_mode():
        found: torch.Tensor = model(torch.tensor([ids]), attention_mask=torch.ones(1, len(ids))).logits[0].float()
    return found


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("kind", ["llama", "gpt2"])
def test_what_was_written_comes_back(tiny: Tiny, tmp_path: Path, kind: str, case: str) -> None:
    loaded, out = tiny(kind), tmp_path / "out"
    made = written(out, loaded, case)
    plain = load_quantized(out, packed=False)
    assert torch.equal(logits(plain.loaded.model), logits(made.shell))
    assert not torch.allclose(logits(plain.loaded.model), logits(loaded.model), atol=1e-4)  # the mutation: dense
    assert plain.label == "SIMULATED"
    assert plain.card.model == loaded.facts
    assert set(plain.card.modules) == {m.name for m in made.modules}
    assert [p.name for p in tmp_path.iterdir()] == ["out"]


@pytest.mark.parametrize(("case", "kind"), [("nearest int4", "int4"), ("nearest int8", "int8"), ("gptq", "int4")])
def test_packed_where_a_kernel_computes_what_the_codes_say(tiny: Tiny, tmp_path: Path, case: str, kind: str) -> None:
    loaded = tiny("llama")
    made = written(tmp_path / "out", loaded, case, head=True)
    found = load_quantized(tmp_path / "out")
    assert found.label == "PACKED"
    assert set(found.packed.values()) == {kind}
    expected = logits(made.shell)
    assert float((logits(found.loaded.model) - expected).norm()) < 0.03 * float(expected.norm())
    packed = found.loaded.model.get_submodule("model.layers.0.self_attn.q_proj")
    codes: Any = packed.weight_codes
    assert torch.equal(
        codes.dense(0, codes.shape[0]), made.shell.get_submodule("model.layers.0.self_attn.q_proj").weight
    )


def test_what_has_no_kernel_says_so(tiny: Tiny, tmp_path: Path) -> None:
    written(tmp_path / "out", tiny("llama"), "nf4")
    found = load_quantized(tmp_path / "out")
    assert found.label == "SIMULATED"
    assert set(found.simulated.values()) == {"there is no kernel for its levels"}


def test_a_tied_head_is_stored_beside_its_embedding(tiny: Tiny, tmp_path: Path) -> None:
    loaded = tiny("llama")
    before = logits(loaded.model)
    written(tmp_path / "out", loaded, "nearest int8", head=True)
    model: Any = load_quantized(tmp_path / "out", packed=False).loaded.model
    assert not torch.equal(model.lm_head.weight, model.model.embed_tokens.weight)
    assert torch.equal(model.model.embed_tokens.weight, loaded.model.model.embed_tokens.weight)
    assert torch.equal(logits(loaded.model), before)


@pytest.mark.parametrize("case", CASES)
def test_one_matrix_through_the_file(case: str) -> None:
    from lab.calibration.inputs import LayerInputs
    from lab.steps import finished

    name, settings = CASES[case]
    weight = torch.randn(32, 64, generator=torch.Generator().manual_seed(1))
    rows = torch.randn(200, 64, generator=torch.Generator().manual_seed(2))
    inputs = LayerInputs(200, 2 * rows.t() @ rows / 200, rows.abs().mean(0), rows.square().mean(0), rows)
    made = finished(make_method(name, settings).quantize(weight, inputs))
    tensors, described = to_file(made)
    again = from_file(json.loads(json.dumps(described)), tensors)
    assert torch.equal(again.dequantize(), made.dequantize())
    assert again.storage == made.storage
    stored = sum(t.nbytes for t in tensors.values())
    assert stored >= made.storage.bytes
    del tensors["codes"]
    with pytest.raises(BadInput, match="cannot be read"):
        from_file(described, tensors)


@pytest.mark.parametrize("columns", [1, 6, 7])
def test_nibbles(columns: int) -> None:
    codes = torch.randint(0, 16, (3, columns), generator=torch.Generator().manual_seed(columns))
    assert torch.equal(unpack_nibbles(pack_nibbles(codes), columns).long(), codes)
    assert pack_nibbles(torch.tensor([[1, 2]])).tolist() == [[0x21]]


def test_an_existing_place_is_refused_and_left(tiny: Tiny, tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.mkdir()
    (out / "mine").write_text("keep")
    with pytest.raises(BadInput, match="exists already"):
        written(out, tiny("llama"), "nearest int4")
    assert (out / "mine").read_text() == "keep"


def test_a_killed_run_leaves_what_the_next_one_removes(tiny: Tiny, tmp_path: Path) -> None:
    left = tmp_path / ".partial-out-ab3d_f9h"
    left.mkdir()
    (left / WEIGHTS).write_bytes(b"half")
    others = [tmp_path / name for name in (".partial-other-ab3d_f9h", ".partial-out-8bit-ab3d_f9h", ".partial-out-x")]
    for other in others:  # of "out-8bit" that another process fills now, too
        other.mkdir()
    written(tmp_path / "out", tiny("llama"), "nearest int4")
    assert not left.exists()
    assert all(other.exists() for other in others)


def test_a_tokenizer_that_cannot_be_written_is_an_error_in_words(
    tiny: Tiny, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    loaded = tiny("llama")

    def full(_: Path) -> None:
        raise Exception("No space left on device (os error 28)")  # as the tokenizers library does

    monkeypatch.setattr(loaded.tokenizer, "save_pretrained", full)
    with pytest.raises(ModelError, match="out cannot be written: No space left on device"):
        written(tmp_path / "out", loaded, "nearest int4")
    assert list(tmp_path.iterdir()) == []


def test_the_card_has_the_file_s_own_bits_and_null_for_what_is_no_number(tiny: Tiny, tmp_path: Path) -> None:
    loaded = tiny("llama")
    made = quantized(loaded, "nearest ragged")  # 3 bits, two codes to a byte in a file
    figures = {"perplexity": float("nan"), "held_out": {"kl": float("inf"), "tokens": 7}}
    card = write_quantized(
        tmp_path / "out", loaded, made, method="nearest", settings={}, calibration={}, figures=figures
    )
    assert card.figures == read_card(tmp_path / "out").figures
    assert (card.figures["perplexity"], card.figures["held_out"]) == (None, {"kl": None, "tokens": 7})
    assert card.figures["file_bits_per_weight"] == pytest.approx(made.bits_per_weight + 1)


FULL_DISK = """
import resource, sys
sys.path.insert(0, "tests")
from pathlib import Path
from lab.errors import ModelError
from lab.models.registry import load_model
from lab.quantization.directory import write_quantized
from lab.quantization.methods import make_method, Settings
from lab.quantization.whole_model import quantize_model
loaded = load_model(sys.argv[1], dtype="float32", device="cpu")
made = quantize_model(loaded.model, make_method("nearest", Settings(share=32)), keep_codes=True)
resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))
try:
    write_quantized(Path(sys.argv[2]), loaded, made, method="nearest", settings={}, calibration={}, figures={})
except ModelError as error:
    print("refused:", error)
"""


def test_a_disk_that_fills_up_leaves_nothing(tiny_directory: Callable[..., Path], tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", FULL_DISK, str(tiny_directory("llama")), str(tmp_path / "out")],
        capture_output=True,
        text=True,
        check=False,
        cwd=Path(__file__).parents[2],
    )
    assert "refused: out cannot be written" in done.stdout, done.stderr
    assert "Nothing of it was left" in done.stdout
    assert list(tmp_path.iterdir()) == []


def test_damage_is_refused_in_words(tiny: Tiny, tmp_path: Path) -> None:
    out = tmp_path / "out"
    written(out, tiny("llama"), "nearest int4")
    body = (out / WEIGHTS).read_bytes()
    (out / WEIGHTS).write_bytes(body[:-1] + bytes([body[-1] ^ 1]))
    with pytest.raises(ModelError, match="not those of its card"):
        load_quantized(out)
    (out / WEIGHTS).write_bytes(body[:100])
    with pytest.raises(ModelError):
        load_quantized(out)
    (out / WEIGHTS).unlink()
    with pytest.raises(ModelError, match="a card but no"):
        load_quantized(out)
    (out / CARD).write_text("[]")
    with pytest.raises(ModelError, match="damaged"):
        read_card(out)
    (out / CARD).write_text('{"format": 99}')
    with pytest.raises(ModelError, match="format 99"):
        read_card(out)
    with pytest.raises(ModelError, match="holds no quantized model"):
        load_quantized(tmp_path)


def test_the_table_names_every_method_by_its_own_name() -> None:
    for name, entry in METHODS.items():
        made = make_method(name)
        assert (made.name, made.label) == (name, entry.label)
        assert made.wants_inputs == entry.calibrated
    with pytest.raises(BadInput, match="no method 'gtpq'") as refused:
        make_method("gtpq")
    assert "gptq" in refused.value.remedy


def test_the_table_loads_no_torch() -> None:
    check = "import lab.quantization.methods, lab.cli.quantize, sys; print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", check], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


def test_a_run_takes_the_directory_as_its_model(tiny: Tiny, tmp_path: Path) -> None:
    from lab.backend.model_room import ModelRoom

    made = written(tmp_path / "out", tiny("llama"), "nearest int4")
    room, name = ModelRoom(), str(tmp_path / "out")
    facts = room.facts(name)
    assert facts.parameters == tiny("llama").facts.parameters
    assert facts.weight_hash != tiny("llama").facts.weight_hash
    loaded = room.load(name, room.placement(facts, "float32", "cpu"), lambda _stage, _fraction: None)
    expected = logits(made.shell)
    assert float((logits(loaded.model) - expected).norm()) < 0.03 * float(expected.norm())
