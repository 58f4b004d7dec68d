"""Help comes from the schema, and neither it nor bad input loads torch."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from lab import __version__
from lab.cli.options import collected, option_name, options
from lab.errors import BadInput
from lab.experiments.kv_cache.params import KVCacheParams
from lab.experiments.registry import EXPERIMENTS

from .conftest import Lab, environment

HEAVY = ("torch", "transformers", "ipywidgets", "bokeh", "IPython", "voila", "fastapi", "uvicorn", "httpx")
SCRIPT = """
import sys
from lab.cli import main
for argv, heavy in {calls!r}:
    sys.argv = argv
    try:
        main()
    except SystemExit as end:
        code = end.code
    print("\\n@", [m for m in heavy if m in sys.modules], code)
"""
CALLS = [
    (["lab", "--version"], 0),
    (["lab", "--help"], 0),
    (["lab", "run", "--help"], 0),
    (["lab", "run", "kv_cache", "--help"], 0),
    (["lab", "replay", "--help"], 0),
    (["lab", "up", "--help"], 0),
    (["lab", "serve", "--help"], 0),
    (["lab", "run", "kv_cache", "--max-new-tokens", "0"], 2),
    (["lab", "replay", "nothing.safetensors"], 2),
]


def test_no_help_and_no_refusal_loads_torch_or_the_server(tmp_path: Path) -> None:
    """One process for all: what one call had loaded would still be there after the next, so each is looked at."""
    calls = [(argv, HEAVY) for argv, _ in CALLS]
    calls.append((["lab", "--version"], ("json", "lab")))  # the check itself: these are loaded, and it sees them
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT.format(calls=calls)],
        env=environment(tmp_path),
        text=True,
        capture_output=True,
        timeout=60,
        check=True,
    )
    said = [line for line in done.stdout.splitlines() if line.startswith("@")]
    assert said == [*(f"@ [] {code}" for _, code in CALLS), "@ ['json', 'lab'] 0"]


def test_the_version_is_the_package_s(lab: Lab) -> None:
    assert lab("--version").stdout.strip() == f"lab {__version__}"


def test_help_lists_the_registry_and_the_schema(lab: Lab) -> None:
    listing = lab("run", "--help").stdout
    for name, experiment in EXPERIMENTS.items():
        assert name in listing
        assert experiment.title.split()[0] in listing
    texts: dict[str, str] = {}
    for name, cls in ((e.name, e.params) for e in EXPERIMENTS.values()):
        texts[name] = text = " ".join(lab("run", name, "--help").stdout.replace("│", " ").split())
        for field, info in cls.model_fields.items():
            assert option_name(field) in text
            assert str(info.description).split(".")[0].split()[0] in text
    for limit in (
        "at least 1, at most 512 tokens",
        "above 0.0, at most 1.0",
        "at most 40,000 characters",
        "Default: 48.",
    ):
        assert limit in texts["kv_cache"]


def test_every_field_has_one_option_of_its_type() -> None:
    schema = KVCacheParams.model_json_schema()
    found = {p.name: p for p in options(schema)}
    assert found.keys() == schema["properties"].keys()
    assert "--no-chat" in str(
        found["chat"].annotation.__metadata__[0].param_decls or found["chat"].annotation.__metadata__[0].default
    )
    assert all(p.default is None for p in found.values())


def test_values_come_back_as_the_schema_has_them() -> None:
    schema = KVCacheParams.model_json_schema()
    given = {"trace_layers": ["0,2", "5"], "max_new_tokens": 3, "chat": False, "prompt": None}
    assert collected(schema, given) == {"trace_layers": [0, 2, 5], "max_new_tokens": 3, "chat": False}
    with pytest.raises(BadInput, match="--trace-layers has 'x', which is not a int"):
        collected(schema, {"trace_layers": ["1,x"]})


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (["run", "count", "--steps", "0"], "error: steps is 0; it must be at least 1. Use at least 1."),
        (["run", "count", "--steps", "x"], "'--steps'"),
        (["run", "count", "--stepps", "1"], "No such option"),
        (["run", "dance"], "No such command 'dance'"),
        (["run", "count", "--model", "nothing"], "error: There is no model 'nothing'."),
        (["run", "count", "--dtype", "float7"], "error: The dtype 'float7' is not offered."),
        (["run", "count", "--params", "nothing.json"], "error: 'nothing.json' cannot be read: No such file"),
        (["run", "count", "--out", "no/such/folder.safetensors"], "does not exist"),
        (["run", "count", "--out", "."], "is a folder"),
        (["replay", "nothing.safetensors"], "error: No recording at 'nothing.safetensors'."),
    ],
)
def test_bad_input_is_said_in_words_with_exit_code_2(lab: Lab, args: list[str], words: str) -> None:
    done = lab(*args)
    assert done.returncode == 2
    assert words in done.stderr
    assert "Traceback" not in done.stderr
    assert done.stdout == ""


def test_parameters_come_from_a_file_and_options_go_before_it(lab: Lab, tmp_path: Path) -> None:
    (tmp_path / "p.json").write_text(json.dumps({"steps": 5, "label": "from the file"}))
    done = lab("run", "count", "--params", "p.json", "--steps", "2")
    events = [json.loads(line) for line in done.stdout.splitlines()]
    assert events[0]["card"]["params"]["steps"] == 2
    assert events[0]["card"]["params"]["label"] == "from the file"
    for text, words in (("[1]", "no JSON object"), ("{", "not JSON"), ('{"stepps": 1}', "Did you mean 'steps'?")):
        (tmp_path / "p.json").write_text(text)
        bad = lab("run", "count", "--params", "p.json")
        assert bad.returncode == 2
        assert words in bad.stderr
