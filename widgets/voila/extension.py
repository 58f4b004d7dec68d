"""The lab's pages inside a Jupyter server, as on Binder: Voila's server extension with the settings of `lab up`.

A jupyter_config.json enables this module instead of `voila.server_extension`: JSON can hold neither the hook nor the
pages' CSS and first pictures. What belongs to the server itself (culling) is in that file.

The server is its user's own, with its files, kernels and terminals. To what Voila adds, the closed list of `lab up`
applies: the lab's notebooks and what their pages load; no file, no list, no other notebook.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from jupyter_server.utils import url_path_join

from lab.paths import notebooks_dir
from widgets.voila.handlers import LAB, Rules, ToFront, ruled_handlers
from widgets.voila.headers import page_headers
from widgets.voila.server import configuration, environment, page_resources

OWN_FRAMES = ("'self'",)
"""JupyterLab of the same server may show a page in a frame."""


def _jupyter_server_extension_points() -> list[dict[str, Any]]:
    return [{"module": "widgets.voila.extension"}]


def _load_jupyter_server_extension(server_app: Any) -> None:
    """Hand the lab's settings to Voila and take of its handlers those of the list: pages are at `voila/render/PATH`."""
    from voila.server_extension import _load_jupyter_server_extension as load_voila

    os.environ.update(environment(dict(os.environ)))
    settings = configuration(host=server_app.ip, port=server_app.port)["VoilaConfiguration"]
    server_app.config.VoilaConfiguration.update(settings)
    web_app = server_app.web_app
    handlers: list[tuple[Any, ...]] = []
    web_app.add_handlers = lambda _, more: handlers.extend(more)  # Voila adds them itself and returns no list
    try:
        load_voila(server_app)
    finally:
        del web_app.add_handlers
    web_app.settings[LAB] = page_rules(Path(server_app.root_dir))
    web_app.settings["voila_jinja2_env"].globals["lab"] = page_resources()
    base_url = web_app.settings["base_url"]
    front = (url_path_join(base_url, "/voila/?"), ToFront)
    web_app.add_handlers(".*$", ruled_handlers([front, *handlers], base_url))


def page_rules(root: Path) -> Rules:
    """The rules of a server whose files begin at `root`.

    Its pages are the lab's notebooks where they lie below `root`, else those of their names in its folder `notebooks`:
    where the lab is installed elsewhere, a user's copies.
    """
    notebooks = notebooks_dir()
    inside = notebooks.is_relative_to(root.resolve())
    folder = notebooks.relative_to(root.resolve()) if inside else Path("notebooks")
    names = frozenset((folder / path.name).as_posix() for path in notebooks.glob("*.ipynb"))
    return Rules(notebooks=names, headers=page_headers(OWN_FRAMES), front=(folder / "index.ipynb").as_posix())
