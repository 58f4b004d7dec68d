"""The pages' server of a hosted lab as a process of its own, over small notebooks and no model process."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import httpx
from backend.toys import until
from free_port import free_port

from lab.backend.hosting import HOSTED, HostedSettings
from lab.settings import BACKEND_TOKEN, BACKEND_URL, PAGE_TOKEN

TOKEN = "a-token-for-the-pages"
SECRET = "a-secret-in-the-source"
SOURCE = f"""import os
# {SECRET}
print("kernel", os.getpid(), "knows the token" if {PAGE_TOKEN!r} in os.environ else "knows no token")"""


@dataclass
class PagesServer:
    """Where it is, and what it wrote."""

    url: str
    port: int
    log: Path
    folder: Path
    process: subprocess.Popen[bytes]
    addresses: Iterator[int] = field(default_factory=lambda: iter(range(1, 250)))
    visitors: list[httpx.Client] = field(default_factory=list)

    def visitor(self, *, token: bool = True, **headers: str) -> httpx.Client:
        """A browser of its own address; with `token` it has followed the operator's link."""
        headers = {"x-real-ip": f"10.0.0.{next(self.addresses)}", **headers}
        client = httpx.Client(base_url=self.url, headers=headers, timeout=60, trust_env=False)
        self.visitors.append(client)
        if token:
            answer = client.get("nothing", params={"token": TOKEN})
            assert answer.status_code == 404
        return client

    def raw(self, path: str, method: str = "GET", **headers: str) -> bytes:
        """The whole answer to a path that no client would send as it is."""
        lines = [f"{method} {path} HTTP/1.1", f"Host: 127.0.0.1:{self.port}", "Connection: close", "Content-Length: 0"]
        lines += [f"{name}: {value}" for name, value in headers.items()]
        with socket.create_connection(("127.0.0.1", self.port), timeout=30) as sock:
            sock.sendall(("\r\n".join(lines) + "\r\n\r\n").encode())
            parts = []
            while part := sock.recv(65536):
                parts.append(part)
        return b"".join(parts)


def write_notebook(path: Path, source: str = SOURCE) -> None:
    cell = {"cell_type": "code", "id": "a", "source": source, "metadata": {}, "outputs": [], "execution_count": None}
    kernel = {"name": "python3", "display_name": "Python", "language": "python"}
    path.write_text(
        json.dumps({"cells": [cell], "metadata": {"kernelspec": kernel}, "nbformat": 4, "nbformat_minor": 5})
    )


@contextmanager
def pages_server(folder: Path, settings: HostedSettings | None) -> Iterator[PagesServer]:
    """Start it and wait until it answers. `settings` None: for one user on this machine."""
    notebooks = folder / "notebooks"
    notebooks.mkdir()
    write_notebook(notebooks / "page.ipynb")
    (notebooks / "notes.txt").write_text(SECRET)
    (notebooks / "below").mkdir()
    write_notebook(notebooks / "below" / "hidden.ipynb")
    (folder / "outside.py").write_text(f"# {SECRET}")
    # A configuration that lies in the folder where the server is started must open nothing.
    (folder / "voila.json").write_text('{"VoilaConfiguration": {"file_allowlist": [".*"], "strip_sources": false}}')
    port, log = free_port(), folder / "pages.log"
    environment = {name: value for name, value in os.environ.items() if not name.startswith("LAB_")}
    environment |= {BACKEND_URL: "http://127.0.0.1:9", BACKEND_TOKEN: "none", "PYTHONPATH": os.pathsep.join(sys.path)}
    if settings is not None:
        environment |= {HOSTED: settings.model_dump_json(), PAGE_TOKEN: TOKEN if settings.login == "token" else ""}
    command = [sys.executable, "-m", "widgets.voila.server", "--port", str(port), "--notebooks", str(notebooks)]
    base = settings.base_url if settings is not None else "/"
    with log.open("wb") as out:
        process = subprocess.Popen(command, env=environment, cwd=folder, stdout=out, stderr=out)
    server = PagesServer(f"http://127.0.0.1:{port}{base}", port, log, folder, process)

    def answers() -> bool:
        assert process.poll() is None, log.read_text()
        try:
            httpx.head(server.url + "voila/templates/base/static/voila.js", trust_env=False)
        except httpx.HTTPError:
            return False
        return True

    try:
        until(answers, "the pages' server answered", 60)
        yield server
    finally:
        for visitor in server.visitors:
            visitor.close()
        process.terminate()
        process.wait(30)
