"""What stands beside the code: citation, workflow and pages for contributors agree with the code that there is."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from lab import __version__

ROOT = Path(__file__).resolve().parents[2]
REQUIRED = ("cff-version", "message", "title", "authors")
"""What CFF 1.2.0 asks for; each author has a name, or a family name."""


def load(name: str) -> dict[str, Any]:
    body: dict[str, Any] = yaml.safe_load((ROOT / name).read_text())
    return body


def flaws(citation: dict[str, Any]) -> list[str]:
    """What is wrong with a citation file, in words."""
    found = [f"no {key}" for key in REQUIRED if not citation.get(key)]
    found += ["not 1.2.0"] * (citation.get("cff-version") != "1.2.0")
    found += ["another version"] * (citation.get("version") != __version__)
    found += ["another licence"] * (citation.get("license") != "Apache-2.0")
    found += ["nameless"] * any(not {"name", "family-names"} & set(author) for author in citation.get("authors", []))
    return found


def test_the_citation_is_whole_and_of_this_version() -> None:
    assert flaws(load("CITATION.cff")) == []


@pytest.mark.parametrize(
    ("change", "flaw"),
    [({"authors": []}, "no authors"), ({"version": "0.0.0"}, "another version"), ({"authors": [{}]}, "nameless")],
)
def test_a_flawed_citation_is_seen(change: dict[str, Any], flaw: str) -> None:
    assert flaws({**load("CITATION.cff"), **change}) == [flaw]


def test_the_workflow_runs_what_a_machine_here_runs() -> None:
    workflow = load(".github/workflows/ci.yml")
    steps = [step for job in workflow["jobs"].values() for step in job["steps"]]
    assert [step["run"] for step in steps if "run" in step] == [".ci/run"]
    assert (ROOT / ".ci" / "run").stat().st_mode & 0o111
    assert workflow["permissions"] == {"contents": "read"}


def paths_named(text: str) -> list[str]:
    """Files and folders that a page names in code: `lab/cli/up.py`. Those with NAME are patterns."""
    named = re.findall(r"`((?:lab|widgets|tests|notebooks|docs|binder|benchmarks)/[^`\s]*)`", text)
    return [re.sub(r":\w+$", "", path) for path in named if "NAME" not in path]


@pytest.mark.parametrize("page", ["CONTRIBUTING.md", "docs/installing.md"])
def test_the_files_that_a_page_names_are_there(page: str) -> None:
    named = paths_named((ROOT / page).read_text())
    assert named
    there = [path for path in named if (ROOT / path).exists() or path == "widgets/notebooks"]
    assert sorted(set(named) - set(there)) == []


def test_a_file_that_is_not_there_would_be_seen() -> None:
    assert paths_named("see `lab/none.py` and `lab/NAME/run.py`") == ["lab/none.py"]
    assert not (ROOT / "lab/none.py").exists()
