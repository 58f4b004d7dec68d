"""`lab doctor` finds what is wrong and says what to do; `lab models` prints facts."""

from __future__ import annotations

import json
import shutil
import socket
import sys
from collections.abc import Callable
from importlib import metadata
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from lab import doctor
from lab.cli.doctor import doctor as doctor_command
from lab.cli.models import models as models_command
from lab.experiments.registry import EXPERIMENTS

app = typer.Typer()
app.command("doctor")(doctor_command)
app.command("models")(models_command)


def level(rows: list[doctor.Row]) -> str:
    return "problem" if any(r.level == "problem" for r in rows) else rows[0].level


def test_this_environment_has_what_it_needs() -> None:
    for check in (doctor.check_python, doctor.check_packages, doctor.check_torch, doctor.check_kernel):
        assert level(check()) == "ok", check()


def test_front_ends_are_here() -> None:
    rows = doctor.check_front_ends()
    assert [row.level for row in rows] == ["ok", "ok"], rows


def test_packages_that_do_not_fit_are_named() -> None:
    (row,) = doctor.check_packages(["rich>=9999", "no-such-package-here>=1", "typer>=0.1", "x>1; extra == 'test'"])
    assert row.level == "problem"
    assert f"rich is {metadata.version('rich')}, needed is >=9999" in row.found
    assert "no-such-package-here is missing (needed: >=1)" in row.found
    assert "typer" not in row.found
    assert row.remedy


def test_front_ends_that_do_not_fit(tmp_path: Path) -> None:
    (row,) = [r for r in doctor.check_front_ends([tmp_path]) if "anywidget" in r.check]
    assert (row.level, row.found) == ("problem", "its JavaScript is not installed for Jupyter")
    place = tmp_path / "anywidget"
    place.mkdir()
    (place / "package.json").write_text('{"version": "99.0.0"}')
    (row,) = [r for r in doctor.check_front_ends([tmp_path]) if "anywidget" in r.check]
    assert row.level == "problem"
    assert "99.0.0" in row.found
    assert metadata.version("anywidget") in row.found
    (place / "package.json").write_text("{")
    (row,) = [r for r in doctor.check_front_ends([tmp_path]) if "anywidget" in r.check]
    assert "broken" in row.found
    (place / "package.json").write_text(json.dumps({"version": metadata.version("anywidget")}))
    (row,) = [r for r in doctor.check_front_ends([tmp_path]) if "anywidget" in r.check]
    assert row.level == "warning"  # it fits, but it is not this environment's
    assert "not from this environment" in row.found


def test_a_kernel_of_another_environment(tmp_path: Path) -> None:
    other = tmp_path / "bin" / "python"
    other.parent.mkdir()
    shutil.copyfile(sys.executable, other)
    row = doctor.kernel_row([str(other), "-m", "ipykernel_launcher"], "mend")
    assert (row.level, row.remedy) == ("problem", "mend")
    assert str(other) in row.found
    assert doctor.kernel_row(["python", "-m", "x"], "mend").level == "ok"
    assert doctor.kernel_row([sys.executable, "-m", "x"], "mend").level == "ok"
    assert doctor.kernel_row([], "mend").level == "problem"


def test_a_port_in_use(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LAB_CACHE_DIR", str(tmp_path))
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        (row,) = doctor.check_port(port)
        assert row.level == "problem"
        assert str(port) in row.found
        assert "--port" in row.remedy
    (row,) = doctor.check_port(port)
    assert row.level == "ok"


def test_an_unwritable_cache_is_a_problem_and_the_rest_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("LAB_CACHE_DIR", str(tmp_path / "file" / "cache"))
    rows = {row.check: row for row in doctor.examine()}
    assert rows["cache"].level == "problem"
    assert "LAB_CACHE_DIR" in rows["cache"].remedy
    assert rows["python"].level == "ok"


def test_a_model_not_fetched_is_a_warning(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LAB_CACHE_DIR", str(tmp_path))
    (row,) = doctor.check_model()
    assert (row.level, row.remedy) == ("warning", "lab models smollm2-135m-instruct --fetch")
    assert doctor.check_disk()[0].level == "ok"


def test_no_chromium_is_only_a_warning(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("PLAYWRIGHT_BROWSERS_PATH", str(tmp_path))
    assert doctor.check_chromium()[0].level == "warning"
    program = tmp_path / "chromium-1" / "chrome-linux" / "chrome"
    program.parent.mkdir(parents=True)
    program.touch()
    assert doctor.check_chromium()[0].found == str(program)


def test_the_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    monkeypatch.setenv("LAB_CACHE_DIR", str(tmp_path / "cache"))
    good = CliRunner().invoke(app, ["doctor", "--port", str(port)])
    assert good.exit_code == 0, good.output
    assert "Nothing stands in the way." in good.output
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("LAB_CACHE_DIR", str(tmp_path / "file" / "x"))
    bad = CliRunner().invoke(app, ["doctor", "--json", "--port", str(port)])
    assert bad.exit_code == 1
    rows = json.loads(bad.stdout)
    assert any(row["check"] == "cache" and row["level"] == "problem" and row["remedy"] for row in rows)


def test_models_of_a_directory(tiny_directory: Callable[..., Path]) -> None:
    directory = tiny_directory("gemma3")
    shown = CliRunner().invoke(app, ["models", str(directory)])
    assert shown.exit_code == 0, shown.output
    assert "5 sliding (window 8), 1 full attention" in shown.output
    body = json.loads(CliRunner().invoke(app, ["models", str(directory), "--json"]).stdout)
    assert body["head_dim"] == 16
    assert body["experiments"] == dict.fromkeys(EXPERIMENTS, "")


def test_all_models(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LAB_CACHE_DIR", str(tmp_path))
    body = json.loads(CliRunner().invoke(app, ["models", "--json"]).stdout)
    assert [(m["id"], m["present"]) for m in body] == [("smollm2-135m-instruct", False), ("gemma3-270m", False)]
    shown = CliRunner().invoke(app, ["models"])
    assert "smollm2-135m-instruct" in shown.output


def test_a_model_that_is_not_there() -> None:
    result = CliRunner().invoke(app, ["models", "./nowhere"])
    assert result.exit_code == 2
    assert "no directory or file './nowhere'" in result.stderr
    assert result.stdout == ""


def test_names_are_text_and_not_markup(tiny_directory: Callable[..., Path], tmp_path: Path) -> None:
    directory = shutil.copytree(tiny_directory("llama"), tmp_path / "[red]x[/red]\x1b[31m")
    shown = CliRunner().invoke(app, ["models", str(directory)])
    assert "[red]x[/red]" in shown.output.replace("\n", "").replace(" ", "")
    assert "\x1b" not in shown.output
