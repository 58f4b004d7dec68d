"""Part of a JupyterHub's configuration: every user has a server of their own, all share one model process.

The model process runs beside the Hub, for instance as `lab serve --settings lab.toml --port 8899`, with the same token.
It counts by page and refuses what lab.toml does not offer; users' kernels never load a model.
"""

import os

c = get_config()  # noqa: F821 - JupyterHub defines it

c.Spawner.default_url = "/voila/render/notebooks/index.ipynb"
c.Spawner.environment = {
    "LAB_BACKEND_URL": "http://127.0.0.1:8899",
    "LAB_BACKEND_TOKEN": os.environ["LAB_BACKEND_TOKEN"],
}
# A kernel takes about 0.1 GiB, a user's own server about as much.
c.Spawner.mem_limit = "1G"
