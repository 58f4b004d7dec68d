"""What many tests share: the packaged model, loaded once, and tiny random models, made once each."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import settings

if TYPE_CHECKING:
    from lab.models.loading import LoadedModel

os.environ.setdefault("HF_HUB_OFFLINE", "1")  # no test may need the hub, nor wait for it
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
if "PYTEST_XDIST_WORKER" in os.environ:
    # Beside other workers: tiny models gain nothing from a second thread, and threads that wait for each other spin.
    os.environ.setdefault("OMP_NUM_THREADS", "1")

# A deadline is an assertion on a clock: on a busy machine it tells of the machine.
settings.register_profile("lab", deadline=None)
settings.load_profile("lab")


@pytest.fixture(scope="session")
def packaged_model() -> LoadedModel:
    """SmolLM2-135M-Instruct in fp32 on the CPU. Read-only: use `lab.models.shell.make_shell` to change it."""
    from lab.models.registry import DEFAULT_MODEL, load_model

    return load_model(DEFAULT_MODEL, dtype="float32", device="cpu")


@pytest.fixture(scope="session")
def tiny_directory(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """`tiny_directory(kind, seed=0, chat=True, **config)`: the directory of a tiny random model.

    Kinds: llama, gpt2, qwen2, qwen3, gemma2, gemma3, mistral (window 8), mixtral. Shared: write elsewhere.
    """
    from tiny_models import save_tiny, tiny_name

    root = tmp_path_factory.mktemp("tiny")

    def make(kind: str = "llama", *, seed: int = 0, chat: bool = True, **config: Any) -> Path:
        directory = root / tiny_name(kind, seed, chat, config)
        return directory if directory.is_dir() else save_tiny(directory, kind, seed=seed, chat=chat, **config)

    return make


@pytest.fixture(scope="session")
def tiny(tiny_directory: Callable[..., Path]) -> Callable[..., LoadedModel]:
    """`tiny(kind, dtype="float32", ...)`: the same, loaded on the CPU. Shared and read-only."""
    from lab.models.registry import load_model

    loaded: dict[tuple[Path, str], LoadedModel] = {}

    def make(kind: str = "llama", *, dtype: str = "float32", **options: Any) -> LoadedModel:
        key = (tiny_directory(kind, **options), dtype)
        if key not in loaded:
            loaded[key] = load_model(str(key[0]), dtype=dtype, device="cpu")
        return loaded[key]

    return make
