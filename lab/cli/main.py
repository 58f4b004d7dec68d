"""The `lab` command. Help and listing load no torch."""

from __future__ import annotations

import importlib
import importlib.util
from typing import Annotated

import typer

from lab import __version__

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
    from lab.cli.replay import replay
    from lab.cli.run import register
    from lab.cli.serve import serve
    from lab.cli.up import up
    from lab.experiments.registry import EXPERIMENTS

    app.command("up")(up)
    app.add_typer(register(EXPERIMENTS), name="run")
    app.command("replay")(replay)
    _attach("models")
    app.command("serve")(serve)
    _attach("bench")
    _attach("doctor")
    return app


def _attach(name: str) -> None:
    """A command from its own module: its `app` (a group) or the function of its name."""
    if importlib.util.find_spec(f"lab.cli.{name}") is None:
        return
    module = importlib.import_module(f"lab.cli.{name}")
    group = getattr(module, "app", None)
    if isinstance(group, typer.Typer):
        app.add_typer(group, name=name)
    else:
        app.command(name)(getattr(module, name))


def main() -> None:
    """Entry point of the `lab` script."""
    if not app.registered_commands:
        _build()
    app(prog_name="lab")


if __name__ == "__main__":
    main()
