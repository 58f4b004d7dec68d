"""`lab quantize`: a directory that loads again; bad input in words, exit code 2, nothing written."""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from lab.cli.quantize import quantize
from lab.models.atomic import check_out
from lab.quantization.load import load_quantized

app = typer.Typer()
app.command()(quantize)


def test_gptq_to_a_directory(tiny_directory: Callable[..., Path], tmp_path: Path) -> None:
    out = tmp_path / "out"
    options = ["--method", "gptq", "--group-size", "32", "--tokens", "200", "--evaluate", "100", "--no-progress"]
    done = CliRunner().invoke(app, [str(tiny_directory("llama")), "--out", str(out), *options])
    assert done.exit_code == 0, done.output
    body = json.loads(done.stdout)
    card = load_quantized(out).card
    assert body["figures"] == card.figures
    assert card.method == "gptq"
    assert card.calibration["tokens"] == 200
    assert card.calibration["text_hash"] != card.figures["held_out"]["text_hash"]
    assert card.figures["kl_dense_variant_nats"] > 0
    assert card.figures["bits_per_weight"] == card.figures["file_bits_per_weight"] == 4.5
    assert "4.50 bits a weight in the file" in done.stderr


def test_a_smaller_last_group(tiny_directory: Callable[..., Path], tmp_path: Path) -> None:
    out = tmp_path / "out"
    options = ["--group-size", "24+rest", "--evaluate", "0", "--no-progress"]
    done = CliRunner().invoke(app, [str(tiny_directory("llama")), "--out", str(out), *options])
    assert done.exit_code == 0, done.output
    loaded = load_quantized(out)
    assert (loaded.card.settings["share"], loaded.card.settings["ragged"]) == (24, True)
    # rows of 32 hold 2 scales, rows of 64 hold 3: a share of 16 / 32 and of 48 / 64 bits a weight
    assert 4.5 < loaded.card.figures["bits_per_weight"] < 5.0 + 1e-6


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("--bits 0", "A grid has 2 to 8 bits, not 0"),
        ("--bits 9", "A grid has 2 to 8 bits, not 9"),
        ("--group-size 7", "Groups have 16 to 512 weights, not 7"),
        ("--group-size many", "--group-size is 'many'"),
        ("--group-size 128", "Groups of 128 do not divide rows of 32"),
        ("--group-size 24", "or 24+rest."),
        ("--group-size row+rest", "--group-size is 'row+rest'"),
        ("--method nf4 --group-size 64+rest", "+rest would do nothing"),
        ("--method gtpq", "There is no method 'gtpq'"),
        ("--method gptq --tokens 1", "Calibration on 1 token says nothing"),
        ("--method gptq --tokens 0", "Calibration on 0 tokens says nothing"),
        ("--grid round", "There is no grid 'round'"),
        ("--scales int3", "There is no scale format 'int3'"),
        ("--only model.layers.9.mlp.up_proj --group-size 32", "'model.layers.9.mlp.up_proj' is no module"),
        ("--only model.layers.0.mlp.up_proj --head --group-size 32", "--head would do nothing"),
        ("--method nf4 --grid asymmetric", "--grid asymmetric would do nothing"),
        ("--method nf4 --scales float16", "--scales float16 would do nothing"),
        ("--method nf4 --bits 3", "NF4 has 4 bits, not 3"),
        ("--method gptq --damping 2 --group-size 32", "Damping is 0 to 1"),
        ("--calibration missing.txt --group-size 32", "'missing.txt' cannot be read"),
        ("--evaluate -1", "--evaluate is -1"),
        ("--method gptq --inputs both --group-size 32 --tokens 64", "There is no calibration 'both'"),
    ],
)
def test_bad_input(tiny_directory: Callable[..., Path], tmp_path: Path, options: str, message: str) -> None:
    out = tmp_path / "out"
    done = CliRunner().invoke(app, [str(tiny_directory("llama")), "--out", str(out), *options.split()])
    assert done.exit_code == 2, done.output
    assert message in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_places_that_cannot_be_written(tiny_directory: Callable[..., Path], tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("mine")
    wrong = (
        (file, "exists already", "remove it"),
        (tmp_path / "no" / "out", "is no directory", "Make it first"),
        (file / "deep" / "out", "is a file", "Choose a place in a directory"),
        (tmp_path / ("n" * 250), "File name too long", "Choose a shorter name"),  # what is written first is longer
    )
    for out, message, remedy in wrong:
        done = CliRunner().invoke(app, [str(tiny_directory("llama")), "--out", str(out)])
        assert done.exit_code == 2
        said = "".join(done.stderr.split())
        assert all("".join(part.split()) in said for part in (str(out)[:150], message, remedy))
        assert "Loading" not in done.stderr
    assert file.read_text() == "mine"
    assert list(tmp_path.iterdir()) == [file]


@pytest.mark.parametrize(
    ("number", "remedy"),
    [
        (errno.EROFS, "not read-only"),
        (errno.EACCES, "may write to"),
        (errno.ENOSPC, "Free some space"),
        (errno.EIO, "another"),
    ],
)
def test_a_place_is_tried_and_not_only_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, remedy: str
) -> None:
    """Permissions say yes, the disk says no; no model is looked for."""

    def refuse(path: Path, *args: Any, **options: Any) -> None:
        del args, options
        raise OSError(number, os.strerror(number), path)

    with monkeypatch.context() as patch:
        patch.setattr(os, "mkdir", refuse)
        done = CliRunner().invoke(app, ["no-such-model", "--out", str(tmp_path / "out")])
    said = " ".join(done.stderr.split())
    assert done.exit_code == 2
    assert os.strerror(number) in said
    assert remedy in said
    assert "no-such-model" not in said
    assert os.access(tmp_path, os.W_OK | os.X_OK)
    assert list(tmp_path.iterdir()) == []


def test_trying_a_place_leaves_nothing(tmp_path: Path) -> None:
    check_out(tmp_path / "out")
    assert list(tmp_path.iterdir()) == []
