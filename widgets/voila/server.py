"""Start Voila over a folder of notebooks: `python -m widgets.voila.server --port 8866 --notebooks DIR`.

What is set here and why:
- the lab's own template, found through JUPYTER_PATH; a visitor cannot choose another;
- a pre-launch hook that touches the XSRF cookie, so that closing a page may end its kernel;
- idle kernels are culled, for pages whose closing was never heard of;
- kernels write their errors to this server's log, never to the page.
"""

from __future__ import annotations

import argparse
import os
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
JUPYTER_DATA = HERE / "jupyter"
STATIC = HERE.parent / "static"
RECORDINGS = HERE.parent / "recordings"
TEMPLATE = "inference-lab"
CULL_IDLE_S = 600


def set_xsrf_cookie(handler: Any, notebook: Any, cwd: str) -> None:
    """Read the token so that it is set as a cookie: the page's farewell is refused without it."""
    del notebook, cwd
    _ = handler.xsrf_token


def page_resources() -> dict[str, Any]:
    """What the template streams before any kernel starts: the page's CSS, and a poster for each recorded run."""
    css = "\n".join(
        (STATIC / name).read_text(encoding="utf-8") for name in ("tokens.css", "page.css", "page_links.css")
    )
    posters = {path.stem: path.read_text(encoding="utf-8") for path in RECORDINGS.glob("*.html")}
    return {"css": css, "posters": posters}


def configuration(*, host: str, port: int, base_url: str = "/") -> dict[str, dict[str, Any]]:
    """Voila's settings as plain data, by class."""
    return {
        "Voila": {
            "ip": host,
            "port": port,
            "port_retries": 0,
            "open_browser": False,
            "base_url": base_url,
            "log_level": "WARN",
        },
        "VoilaConfiguration": {
            "template": TEMPLATE,
            "theme": "light",
            "allow_template_override": "NO",
            "allow_theme_override": "YES",
            "strip_sources": True,
            "show_tracebacks": False,
            "prelaunch_hook": set_xsrf_cookie,
            "resources": {"lab": page_resources()},
            "file_allowlist": [],
            "file_denylist": [".*"],
        },
        "VoilaKernelManager": {"cull_idle_timeout": CULL_IDLE_S, "cull_interval": 60, "cull_connected": False},
        "MappingKernelManager": {"cull_idle_timeout": CULL_IDLE_S, "cull_interval": 60},
    }


def environment(base: dict[str, str]) -> dict[str, str]:
    """`base` with the lab's template on Jupyter's data path."""
    paths = [str(JUPYTER_DATA), *filter(None, base.get("JUPYTER_PATH", "").split(os.pathsep))]
    return {**base, "JUPYTER_PATH": os.pathsep.join(paths)}


def main() -> None:
    """Run the server in this process until it is told to end."""
    parser = argparse.ArgumentParser(prog="python -m widgets.voila.server")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--base-url", default="/")
    parser.add_argument("--notebooks", type=Path, required=True)
    options = parser.parse_args()
    os.environ.update(environment(dict(os.environ)))

    from traitlets.config import Config
    from voila.app import Voila

    app = Voila.instance(config=Config(configuration(host=options.host, port=options.port, base_url=options.base_url)))
    app.initialize([str(options.notebooks)])
    app.start()


if __name__ == "__main__":
    main()
