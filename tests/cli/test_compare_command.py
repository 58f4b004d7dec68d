"""`lab compare A B`: a table for a person, JSON for a program, errors in words."""

from __future__ import annotations

import json
from pathlib import Path

from compared_runs import FACTS, card, kv_run

from lab.events import Recording

from .conftest import Lab


def recordings(folder: Path) -> None:
    Recording(tuple(kv_run((1.0, 10.0, 12.0, 14.0)))).save(folder / "a.safetensors")
    of = card(prompt="[red]Hi\x1b[2J", seed=3)
    other = kv_run((1.0, 20.0, 24.0, 28.0), run_id="b", of=of, recorded="2027-01-29T21:00:00+00:00")
    Recording(tuple(other)).save(folder / "b.safetensors")


def test_settings_and_figures_stand_in_tables(lab: Lab, tmp_path: Path) -> None:
    recordings(tmp_path)
    done = lab("compare", "a.safetensors", "b.safetensors", module="lab")
    assert done.returncode == 0, done.stderr
    lines = [[cell.strip() for cell in line.split("│")[1:-1]] for line in done.stdout.splitlines() if "│" in line]
    assert ["seed", "0", "3"] in lines
    assert ["decode step with the cache, median", "12.0 ms", "24.0 ms", "2.0 ×", "MEASURED"] in lines
    assert "[red]Hi" in done.stdout, "markup of a prompt is text"
    assert "\x1b" not in done.stdout
    assert "New tokens: the same 4 tokens in both." in done.stdout
    sides = " ".join(done.stdout.split())
    assert f"A: kv_cache, {FACTS.name}, recorded, finished" in sides, "a file that does not know when"
    assert f"B: kv_cache, {FACTS.name}, recorded 2027-01-29 21:00, finished" in sides


def test_a_shorter_text_is_the_same_as_far_as_it_goes(lab: Lab, tmp_path: Path) -> None:
    recordings(tmp_path)
    Recording(tuple(kv_run((1.0, 10.0), run_id="c"))).save(tmp_path / "c.safetensors")
    done = lab("compare", "a.safetensors", "c.safetensors", module="lab")
    assert "New tokens: the same as far as B goes (2 of 4 tokens)." in done.stdout


def test_json_holds_all_of_it(lab: Lab, tmp_path: Path) -> None:
    recordings(tmp_path)
    done = lab("compare", "a.safetensors", "b.safetensors", "--json", module="lab")
    found = json.loads(done.stdout)
    assert [d["name"] for d in found["differences"]] == ["prompt", "seed"]
    assert {f["id"]: f["against"] for f in found["figures"]}["decode"] == 2.0
    assert found["plots"][0]["a"] == [[3, 10.0], [4, 12.0], [5, 14.0]]


def test_errors_are_words(lab: Lab, tmp_path: Path) -> None:
    recordings(tmp_path)
    (tmp_path / "bad.safetensors").write_bytes(b"\x80\x04nothing")
    (tmp_path / "copy.safetensors").write_bytes((tmp_path / "a.safetensors").read_bytes())
    for other, words in (
        ("a.safetensors", "is compared with itself"),
        ("copy.safetensors", "'a.safetensors' and 'copy.safetensors' are the same run"),
        ("bad.safetensors", "'bad.safetensors' is damaged or not a recording"),
        ("none.safetensors", "No recording at 'none.safetensors'"),
    ):
        done = lab("compare", "a.safetensors", other, module="lab")
        assert done.returncode == 2
        assert words in done.stderr
        assert "Traceback" not in done.stderr
