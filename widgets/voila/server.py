"""Start Voila over a folder of notebooks: `python -m widgets.voila.server --port 8866 --notebooks DIR`.

What is set here and why:
- the lab's own template, found through JUPYTER_PATH; a visitor cannot choose another;
- a pre-launch hook that touches the XSRF cookie, so that closing a page may end its kernel, and that answers for the
  index page, which needs no kernel;
- kernels are forked from a process that has imported what pages need, where that is safe;
- idle kernels are culled, for pages whose closing was never heard of;
- what a hosted lab allows comes from the environment, see `lab.backend.hosting`; no configuration file is read;
- kernels write their errors to this server's log, never to the page.
"""

from __future__ import annotations

import argparse
import logging
import os
from functools import cache
from pathlib import Path
from typing import Any

from lab.backend.hosting import HostedSettings, hosted
from lab.settings import PAGE_TOKEN
from lab.strings import chosen_language, default_language, languages, strings
from widgets.assets import read
from widgets.stills import read_stills

HERE = Path(__file__).parent
JUPYTER_DATA = HERE / "jupyter"
TEMPLATE = "inference-lab"
EXTENSIONS = ("@jupyter-widgets/jupyterlab-manager", "@voila-dashboards/widgets-manager8", "anywidget")
"""What a page loads of all that is installed for JupyterLab; what is made for a notebook fails here."""
CULL_IDLE_S = 600
FRONT_SCRIPTS = ("dom.js", "theme.js", "language.js", "front_page.js")
WORDS = ("starting", "starting_soon", "still_starting", "reload_page", "needs_script", "dark", "light", "theme")
"""Texts of the frame that the templates need."""


def before_kernel(handler: Any, notebook: Any, cwd: str) -> None:
    """Called with each notebook before a kernel is started for it.

    Reads the XSRF token so that it is set as a cookie: the page's farewell is refused without it. A notebook whose
    metadata say `lab_front` is the index page: it is sent whole, and no kernel starts. The language that the address
    asks for goes into the metadata, for the template; the kernel finds it in its environment.
    """
    del cwd
    _ = handler.xsrf_token
    language = chosen_language(handler.request.query)
    if notebook.metadata.get("lab_front"):
        from tornado.web import Finish

        raise Finish(handler.render_template("front.html", lab=page_resources(), language=language))
    notebook.metadata["lab_language"] = language


@cache
def page_resources() -> dict[str, Any]:
    """What the templates send before any kernel starts: CSS, the index's script, and in each language the stills and
    the words of the frame."""
    css = "\n".join(map(read, ("tokens.css", "page.css", "page_links.css", "language_links.css")))
    front = {"css": "\n".join(map(read, ("base.css", "front.css"))), "js": "\n".join(map(read, FRONT_SCRIPTS))}
    return {
        "css": css,
        "front": front,
        "own": default_language(),
        "languages": {code: _texts(code) for code in languages()},
    }


def _texts(language: str) -> dict[str, Any]:
    words = strings(language)
    return {
        "stills": read_stills(language),
        "page": words.of("page", *WORDS),
        "description": words("front.description"),
        "titles": {key.removesuffix(".label"): words(key) for key in words if key.endswith(".label")},
    }


def configuration(
    *, host: str, port: int, base_url: str = "/", hosting: HostedSettings | None = None, token: str = ""
) -> dict[str, dict[str, Any]]:
    """Voila's settings as plain data, by class.

    Args:
        hosting: of a hosted lab; its `base_url` is the caller's to pass.
        token: what visitors must know; "" asks for none.
    """
    idle_s = CULL_IDLE_S if hosting is None else hosting.idle_s
    culling = {"cull_idle_timeout": idle_s, "cull_interval": max(1, min(60, idle_s // 5)), "cull_connected": False}
    seats = {} if hosting is None else {"seats": hosting.visitors, "page_s": hosting.page_s}
    return {
        "Voila": {
            "ip": host,
            "port": port,
            "port_retries": 0,
            "open_browser": False,
            "base_url": base_url,
            "log_level": "WARN",
            "token": token,
            "config_file_paths": [],  # a voila.json that lies about must not open what is closed here
        },
        "VoilaConfiguration": {
            "template": TEMPLATE,
            "theme": "light",
            "allow_template_override": "NO",
            "allow_theme_override": "YES",
            "strip_sources": True,
            "show_tracebacks": False,
            "prelaunch_hook": before_kernel,
            "resources": {"lab": page_resources()},
            "extension_allowlist": list(EXTENSIONS),
            "file_allowlist": [],
            "file_denylist": [".*"],
            "multi_kernel_manager_class": "widgets.voila.seats.SeatedKernels",
        },
        "SeatedKernels": {**culling, **seats},
    }


def environment(base: dict[str, str]) -> dict[str, str]:
    """`base` with the lab's template on Jupyter's data path."""
    paths = [str(JUPYTER_DATA), *filter(None, base.get("JUPYTER_PATH", "").split(os.pathsep))]
    return {**base, "JUPYTER_PATH": os.pathsep.join(paths)}


def transport() -> dict[str, Any]:
    """How the server talks to its kernels: encrypted where what is installed can. A kernel warns of all else."""
    import zmq
    from jupyter_client.manager import KernelManager

    can = "transport_encryption" in KernelManager.class_trait_names() and zmq.has("curve")
    return {"transport_encryption": "auto"} if can else {}


def main() -> None:
    """Run the server in this process until it is told to end."""
    parser = argparse.ArgumentParser(prog="python -m widgets.voila.server")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--notebooks", type=Path, required=True)
    options = parser.parse_args()
    os.environ.update(environment(dict(os.environ)))

    from traitlets.config import Config

    from widgets.voila.forked import fork_kernels
    from widgets.voila.hushed import hush
    from widgets.voila.pages import Pages

    hosting = hosted()
    settings = configuration(
        host=options.host,
        port=options.port,
        base_url=hosting.base_url if hosting is not None else "/",
        hosting=hosting,
        token=os.environ.pop(PAGE_TOKEN, ""),  # no kernel needs it
    )
    settings["KernelManager"] = transport()
    fork_kernels()
    app = Pages.instance(config=Config(settings))
    hush(app.log, logging.getLogger("tornado.general"), logging.getLogger("asyncio"))
    app.initialize([str(options.notebooks)])
    app.start()


if __name__ == "__main__":
    main()
