"""Names and numbers that the environment or several entry points share. No torch here; paths are in `lab.paths`."""

from __future__ import annotations

from pathlib import Path

from lab.paths import runtime_dir

BACKEND_URL = "LAB_BACKEND_URL"
"""Environment variable: address of the model process, "http://127.0.0.1:PORT"."""

BACKEND_TOKEN = "LAB_BACKEND_TOKEN"  # noqa: S105 - the name of a variable, not a secret
"""Environment variable: the bearer token that the model process expects."""

PAGE_TOKEN = "LAB_PAGE_TOKEN"  # noqa: S105 - the name of a variable, not a secret
"""Environment variable: the token that visitors of a hosted lab's pages need; made up where there is none."""

REPLAY = "LAB_REPLAY"
"""Environment variable: a recording that the page shows instead of a live run."""

LANGUAGE = "LAB_LANGUAGE"
"""Environment variable: the language of pages whose address asks for none, such as "de"; English if it is not set."""

DEFAULT_PORT = 8866
"""Port of the page that `lab up` opens."""


def lock_path() -> Path:
    """The file (mode 0600) in which a running `lab up` says where its model process and its page are."""
    return runtime_dir() / "up.json"
