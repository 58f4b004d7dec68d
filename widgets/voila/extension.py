"""The lab's pages inside a Jupyter server, as on Binder: Voila's server extension with the settings of `lab up`.

A jupyter_config.json enables this module instead of `voila.server_extension`: JSON can hold neither the hook nor the
pages' CSS and first pictures. What belongs to the server itself (culling) is in that file.
"""

from __future__ import annotations

import os
from typing import Any

from widgets.voila.server import configuration, environment


def _jupyter_server_extension_points() -> list[dict[str, Any]]:
    return [{"module": "widgets.voila.extension"}]


def _load_jupyter_server_extension(server_app: Any) -> None:
    """Hand the lab's settings to Voila, then load it: pages are at `voila/render/PATH`."""
    from voila.server_extension import _load_jupyter_server_extension as load_voila

    os.environ.update(environment(dict(os.environ)))
    settings = configuration(host=server_app.ip, port=server_app.port)["VoilaConfiguration"]
    server_app.config.VoilaConfiguration.update(settings)
    load_voila(server_app)
