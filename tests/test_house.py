"""The rules of the house: what imports what, what is never loaded, what never leaves the machine."""

from __future__ import annotations

import ast
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
LAYERS = (
    "lab.errors",
    "lab.paths",
    "lab.settings",
    "lab.strings",
    "lab.events",
    "lab.models",
    "lab.techniques",
    "lab.experiments",
    "lab.backend",
    "lab.cli",
    "widgets",
)
TECHNIQUES = (
    "lab.decoding",
    "lab.kv_cache",
    "lab.calibration",
    "lab.quantization",
    "lab.pruning",
    "lab.lora",
    "lab.evaluation",
)


def sources(*folders: str) -> list[Path]:
    return sorted(path for folder in folders for path in (ROOT / folder).rglob("*.py"))


def module_of(path: Path) -> str:
    return ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


def imports(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.module


def top_level_imports(tree: ast.Module) -> Iterator[str]:
    for node in tree.body:
        if isinstance(node, ast.Import | ast.ImportFrom):
            yield from imports(node)


def layer(module: str) -> int | None:
    if module.startswith(TECHNIQUES):
        return LAYERS.index("lab.techniques")
    for i in range(len(LAYERS) - 1, -1, -1):
        if module == LAYERS[i] or module.startswith(LAYERS[i] + "."):
            return i
    return None


def upward(module: str, tree: ast.AST) -> list[str]:
    own = layer(module)
    if own is None:
        return []
    return [name for name in imports(tree) if (other := layer(name)) is not None and other > own]


@pytest.mark.parametrize("path", sources("lab", "widgets"), ids=module_of)
def test_imports_point_downward(path: Path) -> None:
    assert upward(module_of(path), ast.parse(path.read_text())) == []


def test_an_upward_import_is_seen() -> None:
    assert upward("lab.events.run", ast.parse("from lab.backend.local import X")) == ["lab.backend.local"]
    assert upward("lab.kv_cache.ledger", ast.parse("import widgets.plot")) == ["widgets.plot"]


@pytest.mark.parametrize("path", sources("lab"), ids=module_of)
def test_the_backend_knows_no_view_library(path: Path) -> None:
    used = {name.split(".")[0] for name in imports(ast.parse(path.read_text()))}
    assert not used & {"ipywidgets", "bokeh", "IPython", "anywidget"}


@pytest.mark.parametrize("path", sources("widgets", "lab/events"), ids=module_of)
def test_views_and_events_name_no_torch(path: Path) -> None:
    used = {name.split(".")[0] for name in imports(ast.parse(path.read_text()))}
    assert not used & {"torch", "transformers"}


LIGHT = [
    "import lab",
    "import lab.events, lab.events.kv_cache",
    "import lab.experiments.registry; lab.experiments.registry.get_experiment('kv_cache').info()",
    "import lab.backend.protocol, lab.backend.http, lab.backend.connect",
    "import widgets, widgets.page, widgets.kv_cache.views",
    "import lab.cli",
]


@pytest.mark.parametrize("code", LIGHT)
def test_torch_is_not_loaded(code: str) -> None:
    check = f"{code}\nimport sys\nprint([m for m in ('torch', 'transformers') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", check], capture_output=True, text=True, cwd=ROOT, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "[]"


def test_torch_would_be_noticed() -> None:
    check = "import torch, sys\nprint([m for m in ('torch', 'transformers') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", check], capture_output=True, text=True, cwd=ROOT, check=False)
    assert done.stdout.strip() == "['torch']"


def test_nothing_unsafe_is_loaded() -> None:
    unsafe = re.compile(r"trust_remote_code\s*=\s*True|torch\.load\(|pickle\.loads?\(|weights_only\s*=\s*False")
    assert [str(p) for p in sources("lab", "widgets", "benchmarks") if unsafe.search(p.read_text())] == []


def test_front_end_files_ask_nobody() -> None:
    files = [p for kind in ("*.js", "*.css", "*.html", "*.j2") for p in (ROOT / "widgets").rglob(kind)]
    assert len(files) > 10
    allowed = "http://www.w3.org/"
    for path in files:
        addresses = re.findall(r"https?://[^\s\"')]+", path.read_text())
        assert [a for a in addresses if not a.startswith(allowed)] == [], path.name


def test_notebooks_store_no_outputs() -> None:
    notebooks = sorted((ROOT / "notebooks").glob("*.ipynb"))
    assert notebooks
    for path in notebooks:
        cells = json.loads(path.read_text())["cells"]
        assert all(not c.get("outputs") and c.get("execution_count") is None for c in cells), path.name


def test_files_stay_readable() -> None:
    long = {
        module_of(p): n
        for p in sources("lab", "widgets", "tests", "benchmarks")
        if (n := len(p.read_text().splitlines())) > 400
    }
    assert long == {}


def test_no_public_name_of_the_views_is_a_module_s_too() -> None:
    """The import system would put the module in the function's place, and a notebook's second import would get it."""
    code = "import widgets, widgets.page; print(all(map(callable, (vars(widgets)[n] for n in widgets.__all__))))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, check=False)
    assert done.stdout.strip() == "True", done.stderr
    public = ast.parse((ROOT / "widgets/__init__.py").read_text())
    names = {node.name for node in public.body if isinstance(node, ast.FunctionDef)}
    assert "dashboard" in names
    assert not {path.stem for path in (ROOT / "widgets").iterdir()} & names
