"""`lab up` with a toy model process and a file server for a page: `python -m cli.toy_up [PORT]`."""

from __future__ import annotations

import sys
from pathlib import Path

import typer

from lab.cli.console import in_words
from lab.cli.up import UpOptions, run_up


def page(host: str, port: int, notebooks: Path) -> list[str]:
    return [sys.executable, "-m", "http.server", "--bind", host, "--directory", str(notebooks), str(port)]


@in_words
def main(port: int | None = None) -> None:
    options = UpOptions(port=port, browser=False)
    code = run_up(options, serve=(sys.executable, "-m", "backend.toy_server"), page=page, prepare=lambda _: None)
    heavy = [name for name in ("torch", "transformers", "voila") if name in sys.modules]
    print(f"heavy: {heavy}", file=sys.stderr)
    raise typer.Exit(code)


if __name__ == "__main__":
    typer.run(main)
