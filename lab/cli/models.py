"""`lab models`: which models there are, and the facts of each."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from lab.cli.console import ProgressLine, in_words, printable
from lab.events import Loading, ModelFacts


@in_words
def models(
    model: Annotated[
        str | None, typer.Argument(help="A name, a directory, a GGUF file or a hub id. All known models if left out.")
    ] = None,
    fetch: Annotated[
        bool, typer.Option("--fetch", help="Fetch and convert the model first if it is not here.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Print facts of the models, read from their configs and tensors."""
    found = _find(model, fetch)
    if as_json:
        from lab.events.codec import to_json

        body = [to_json(facts) for facts in found]
        typer.echo(json.dumps(body[0] if model else body, indent=2, ensure_ascii=False))
    elif model:
        _print_record(found[0])
    else:
        _print_table(found)


def _find(model: str | None, fetch: bool) -> list[ModelFacts]:
    from lab.experiments.registry import with_experiments
    from lab.models.registry import DEFAULT_MODEL, fetch_model, find_facts, list_models

    if fetch:
        with ProgressLine() as line:
            fetch_model(
                model or DEFAULT_MODEL, lambda stage, fraction: line.show(Loading(stage=stage, fraction=fraction))
            )
    found = [find_facts(model)] if model else list_models()
    return [with_experiments(facts) for facts in found]


def _print_record(facts: ModelFacts) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    from lab.models.words import facts_in_words

    table = Table(show_header=False, box=None, pad_edge=False)
    table.add_column(style="bold", no_wrap=True)
    table.add_column(overflow="fold")
    for label, words in facts_in_words(facts):
        # Names come from files that anybody may have written: they are text, not markup.
        table.add_row(label, Text(printable(words)))
    Console().print(table)


def _print_table(found: list[ModelFacts]) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    from lab.models.words import count_in_words, size_in_words

    table = Table(title="Models", title_justify="left")
    for heading in ("id", "here", "parameters", "layers", "heads", "stored", "grid"):
        table.add_column(heading, overflow="fold", no_wrap=heading == "id")
    for facts in found:
        sliding = sum(layer.kind == "sliding" for layer in facts.layers)
        cells = (
            facts.id,
            "yes" if facts.present else "no",
            count_in_words(facts.parameters),
            f"{len(facts.layers)}, {sliding} sliding" if sliding else str(len(facts.layers)),
            f"{facts.query_heads}/{facts.kv_heads} of {facts.head_dim}",
            f"{size_in_words(facts.weight_bytes)} {facts.dtype}",
            (facts.grid or "none").split(",")[0],
        )
        table.add_row(*(Text(printable(cell)) for cell in cells))
    console = Console()
    console.print(table)
    console.print("Heads are query/key-value heads; lab models NAME says more.")
    console.print("Any directory in transformers format, GGUF file or hub id can be named as well.")
