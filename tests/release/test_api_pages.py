"""`make api`: the docstrings as pages, by pdoc, with the options that the Makefile gives it."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
MODULES = ("lab.errors", "lab.backend.lockfile", "widgets.figure")


def options() -> list[str]:
    (line,) = re.findall(r"-m pdoc (.+)", (ROOT / "Makefile").read_text())
    *given, lab, widgets = shlex.split(line)
    assert (lab, widgets) == ("lab", "widgets")
    assert given[-2:] == ["--output-directory", "build/api"]
    return given[:-2]


def render(folder: Path, *given: str) -> dict[str, str]:
    command = [sys.executable, "-m", "pdoc", *given, "--output-directory", str(folder), *MODULES]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True, timeout=60)
    return {name: (folder / f"{name.replace('.', '/')}.html").read_text() for name in MODULES}


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    return render(tmp_path_factory.mktemp("api"), *options())


def raises_heading(text: str) -> bool:
    return re.search(r"<h6 id=\"raises\">", text) is not None


def test_docstrings_are_pages_with_their_sections(pages: dict[str, str]) -> None:
    from lab.errors import LabError

    assert (LabError.__doc__ or "").splitlines()[0].rstrip(".") in pages["lab.errors"]
    assert raises_heading(pages["lab.backend.lockfile"])
    assert not [name for name, text in pages.items() if "<script src=" in text or '<link rel="stylesheet"' in text]


def test_another_style_of_docstring_would_lose_the_sections(tmp_path: Path) -> None:
    assert not raises_heading(render(tmp_path, "--docformat", "restructuredtext")["lab.backend.lockfile"])


def test_nothing_generated_is_in_the_repository() -> None:
    assert "build/" in (ROOT / ".gitignore").read_text().split()
    done = subprocess.run(["git", "ls-files", "build", "docs"], cwd=ROOT, capture_output=True, text=True, check=False)
    assert [name for name in done.stdout.split() if name.endswith(".html")] == []
