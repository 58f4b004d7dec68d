"""The `lab` command. Help and listing load no torch."""

from __future__ import annotations

from typing import Annotated

import typer

from lab import __version__
from lab.cli.console import mend_streams

app = typer.Typer(
    name="lab",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    help="Live experiments on how language models run, checked against the plain model.",
)


def _version(wanted: bool) -> None:
    if wanted:
        print(f"lab {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and end.")
    ] = False,
) -> None:
    del version


def _build() -> typer.Typer:
    from lab.cli.bench import app as bench
    from lab.cli.compare import compare
    from lab.cli.doctor import doctor
    from lab.cli.export import export
    from lab.cli.models import models
    from lab.cli.quantize import quantize
    from lab.cli.replay import replay
    from lab.cli.run import register
    from lab.cli.serve import serve
    from lab.cli.up import up
    from lab.experiments.registry import EXPERIMENTS

    app.command("up")(up)
    app.add_typer(register(EXPERIMENTS), name="run")
    app.command("replay")(replay)
    app.command("export")(export)
    app.command("compare")(compare)
    app.command("models")(models)
    app.command("quantize")(quantize)
    app.command("serve")(serve)
    app.add_typer(bench, name="bench")
    app.command("doctor")(doctor)
    return app


def main() -> None:
    """Entry point of the `lab` script."""
    mend_streams()
    if not app.registered_commands:
        _build()
    app(prog_name="lab")


if __name__ == "__main__":
    main()
