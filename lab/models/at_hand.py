"""Models that are on this machine already, and whether their own weights lie on a quantization grid.

Besides the packaged ones: what was trained or merged here (`lab.paths.trained_dir`), and the hub's cache. Anything
trained, and what the hub has in full precision, is on no grid: there a study of 4 bits means what it says.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

from lab import paths
from lab.events import ModelFacts
from lab.models import hub

MOST_LISTED = 64
"""Of one kind: a page's menu holds no more."""
_HUB_FOLDER = re.compile(r"models--([A-Za-z0-9][\w.-]*?)--([A-Za-z0-9][\w.-]*)")

_SPEAKING = ("ForCausalLM", "LMHeadModel", "ForConditionalGeneration")


def trained_ids() -> list[str]:
    """The directories of models trained or merged here, in order of name. Nothing is read or created."""
    return [str(path) for path in _folders(paths.trained_location()) if (path / "config.json").is_file()][:MOST_LISTED]


def hub_ids() -> list[str]:
    """The models of the hub's cache that are whole, in order of name. No network, no weights."""
    found: list[str] = []
    for path in _folders(hub.cache_location()):
        match = _HUB_FOLDER.fullmatch(path.name)
        repo = f"{match[1]}/{match[2]}" if match else ""
        if repo and len(found) < MOST_LISTED and hub.local_snapshot(repo) is not None:
            found.append(repo)
    return found


def speaks(facts: ModelFacts) -> bool:
    """Whether a model was made to continue text: the hub's cache holds others too, with configs much alike."""
    return facts.source != "hub" or facts.architecture.endswith(_SPEAKING)


def models_at_hand(more: Iterable[str] = ()) -> list[ModelFacts]:
    """The models that can be loaded now without a download, each with its `grid`: None if it lies on none.

    Args:
        more: directories that are known otherwise, as those that a user named.
    """
    from lab.models.registry import list_models

    return [facts for facts in list_models(more) if facts.present]


def off_grid(models: Iterable[ModelFacts], experiment: str = "") -> list[ModelFacts]:
    """Those at hand on whose weights a grid changes something.

    Args:
        experiment: one that must be able to use them, "" for none.
    """
    return [f for f in models if f.present and not f.grid and not f.experiments.get(experiment)]


def _folders(where: Path) -> list[Path]:
    try:
        return sorted(path for path in where.iterdir() if path.is_dir())
    except OSError:  # not there, or not ours to read
        return []
