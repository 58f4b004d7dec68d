"""Every notebook runs from top to bottom in a kernel of its own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbclient import NotebookClient

NOTEBOOKS = sorted((Path(__file__).parents[2] / "notebooks").glob("*.ipynb"))

pytestmark = pytest.mark.model


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda p: p.stem)
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_notebook_runs(path: Path, packaged_model: Any) -> None:
    del packaged_model  # converted, so that no kernel has to
    notebook = nbformat.read(path, as_version=4)
    NotebookClient(notebook, timeout=120, kernel_name="python3", resources={"metadata": {"path": path.parent}}).execute()
    outputs = [out for cell in notebook.cells if cell.cell_type == "code" for out in cell.outputs]
    assert not [out for out in outputs if out.output_type == "error"]
    assert any("application/vnd.jupyter.widget-view+json" in out.get("data", {}) for out in outputs)


def test_there_is_a_notebook_for_each_experiment() -> None:
    from lab.experiments.registry import EXPERIMENTS

    assert {p.stem for p in NOTEBOOKS} >= set(EXPERIMENTS)
