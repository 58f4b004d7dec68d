"""`lab quantize MODEL`: a quantized copy of a model, written as a directory that loads again, with its card."""

from __future__ import annotations

import json
import math
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from lab.cli.console import ProgressLine, in_words, say
from lab.errors import BadInput, shown
from lab.events import Loading
from lab.quantization.grid import KINDS, SCALE_BITS, Kind, ScaleFormat, Share
from lab.quantization.methods import METHODS, Settings, make_method

if TYPE_CHECKING:
    from lab.calibration.gather import Calibration
    from lab.evaluation.tokens import Tokens
    from lab.models.loading import LoadedModel
    from lab.quantization.method import Method
    from lab.quantization.whole_model import WholeModel

MIB = 1 << 20
WINDOW = 512
USUAL_TOKENS = 2048
REST = "+rest"
"""After a group size: the last group of a row may be smaller."""


@in_words
def quantize(
    model: Annotated[str, typer.Argument(help="A name from `lab models`, a folder, a GGUF file or a hub id.")],
    out: Annotated[Path, typer.Option("--out", "-o", help="Directory to write; it must not exist.", metavar="DIR")],
    method: Annotated[str, typer.Option("--method", help=f"{', '.join(METHODS)}.")] = "nearest",
    bits: Annotated[int, typer.Option("--bits", help="Bits of a code, 2 to 8.")] = 4,
    group_size: Annotated[
        str,
        typer.Option(
            "--group-size",
            help="Weights that share a scale: 16 to 512, row or tensor; 128+rest lets a row's last group be smaller.",
        ),
    ] = "64",
    grid: Annotated[str, typer.Option("--grid", help=f"Where the levels lie: {', '.join(KINDS)}.")] = "absmax",
    scales: Annotated[
        str, typer.Option("--scales", help=f"How scales are stored: {', '.join(SCALE_BITS)}. bfloat16 can be packed.")
    ] = "bfloat16",
    calibration: Annotated[
        str, typer.Option("--calibration", help="Calibration and held-out text: topics, wikitext or a UTF-8 file.")
    ] = "topics",
    tokens: Annotated[
        int | None, typer.Option("--tokens", help="Calibration tokens. Default: 2048 where the method needs any.")
    ] = None,
    way: Annotated[
        str, typer.Option("--inputs", help="Calibrate on inputs of quantized layers (sequential) or dense (one_shot).")
    ] = "sequential",
    only: Annotated[
        list[str] | None, typer.Option("--only", help="Quantize this module only; can be given again.")
    ] = None,
    head: Annotated[bool, typer.Option("--head/--no-head", help="Quantize the output head too.")] = False,
    act_order: Annotated[bool, typer.Option("--act-order/--no-act-order", help="GPTQ: large inputs first.")] = True,
    damping: Annotated[float, typer.Option("--damping", help="GPTQ: added to the diagonal, 0 to 1.")] = 0.01,
    double_quant: Annotated[bool, typer.Option("--double-quant", help="NF4: magnitudes at 8 bits.")] = False,
    evaluate: Annotated[int, typer.Option("--evaluate", help="Held-out tokens to judge on; 0: none.")] = 1024,
    progress: Annotated[bool, typer.Option("--progress/--no-progress", help="Show progress on stderr.")] = True,
) -> None:
    """Quantize a model and write it to a directory, whole or not at all. Its card goes to stdout as JSON."""
    settings = Settings(
        bits=bits,
        kind=cast("Kind", grid),
        share=_share(group_size),
        ragged=group_size.endswith(REST),
        scale_format=cast("ScaleFormat", scales),
        act_order=act_order,
        damping=damping,
        double_quant=double_quant,
    )
    made_method = make_method(method, settings)
    _check_used(method, settings)
    if only and head:
        raise BadInput(
            "--only names all modules that are quantized, so that --head would do nothing.",
            remedy="Leave --head out, or name the head with --only too.",
        )
    if tokens is None:
        tokens = USUAL_TOKENS if made_method.wants_inputs else 0
    _check_tokens(tokens, evaluate, needed=made_method.wants_inputs)
    from lab.evaluation.texts import find_texts
    from lab.models.atomic import check_out
    from lab.quantization.directory import write_quantized

    check_out(out)
    texts = find_texts(calibration)
    from lab.evaluation.tokens import Windows, encode
    from lab.models.registry import load_model

    with ProgressLine(shown=progress) as line:
        loaded = load_model(
            model, dtype="float32", device="cpu", progress=lambda s, f: line.show(Loading(stage=s, fraction=f))
        )
        read = encode(loaded.tokenizer, texts.calibration, tokens, least=2) if tokens else None
        try:
            made = _quantized(loaded, made_method, read, way, only, head, line)
        except BadInput as error:
            remedy = error.remedy.replace("allow a smaller last group (ragged)", f"{group_size}{REST}")
            raise BadInput(error.message, remedy=remedy) from None
        figures: dict[str, Any] = _sizes(made)
        if evaluate:
            held_out = encode(loaded.tokenizer, texts.held_out, evaluate)
            figures |= _judged(loaded, made, held_out, Windows(WINDOW, WINDOW), line)
        line.show(Loading(stage="writing", fraction=None))
        used = {name: value for name, value in asdict(settings).items() if name in METHODS[method].uses}
        about = {} if read is None else {
            "text_hash": read.hash, "source": read.source, "tokens": len(read), "inputs": way, "window": WINDOW,
        }  # fmt: skip
        card = write_quantized(out, loaded, made, method=method, settings=used, calibration=about, figures=figures)
    print(json.dumps({"out": str(out), **{k: v for k, v in asdict(card).items() if k not in ("model", "modules")}}))
    size = sum(p.stat().st_size for p in out.iterdir())
    say(
        f"wrote {out}: {size / MIB:,.1f} MiB, {card.figures['file_bits_per_weight']:.2f} bits a weight in the file "
        f"({card.figures['bits_per_weight']:.2f} as packed bits), scales counted"
    )


def _share(text: str) -> Share:
    if text in ("row", "tensor"):
        return cast("Share", text)
    size = text.removesuffix(REST)
    if not size.strip().isdecimal() or len(size) > 9:
        raise BadInput(
            f"--group-size is {shown(text)}.", remedy="Give a number from 16 to 512, row or tensor, or 128+rest."
        )
    return int(size)


def _check_used(method: str, settings: Settings) -> None:
    """Refuse options that the method would not read."""
    if settings.ragged and "ragged" not in METHODS[method].uses:
        raise BadInput(
            f"{REST} would do nothing: {METHODS[method].label} has blocks that go on over the end of a row.",
            remedy=f"Leave {REST} out.",
        )
    usual = Settings(scale_format="bfloat16")
    for option, name in (("--grid", "kind"), ("--scales", "scale_format")):
        value = getattr(settings, name)
        if name not in METHODS[method].uses and value != getattr(usual, name):
            raise BadInput(
                f"{option} {value} would do nothing: {METHODS[method].label} has levels and scales of its own.",
                remedy=f"Leave {option} out, or choose another --method.",
            )


def _check_tokens(tokens: int, evaluate: int, *, needed: bool) -> None:
    from lab.evaluation.tokens import MOST_TOKENS

    for name, value in (("--tokens", tokens), ("--evaluate", evaluate)):
        if not 0 <= value <= MOST_TOKENS:
            raise BadInput(f"{name} is {value}; 0 to {MOST_TOKENS:,} are possible.", remedy="Choose one between.")
    if tokens == 1 or (needed and tokens == 0):
        raise BadInput(
            f"Calibration on {tokens} token{'' if tokens == 1 else 's'} says nothing; at least 2 are needed, and some "
            "thousands are usual.",
            remedy="Give --tokens 2048.",
        )


def _quantized(
    loaded: LoadedModel,
    method: Method,
    read: Tokens | None,
    way: str,
    only: list[str] | None,
    head: bool,
    line: ProgressLine,
) -> WholeModel:
    from lab.quantization.whole_model import quantizing

    windows = None
    if read is not None:
        size = WINDOW - len(read.prefix)
        windows = [(*read.prefix, *read.ids[i : i + size]) for i in range(0, len(read), size)]
    steps = quantizing(
        loaded.model,
        dict.fromkeys(only, method) if only else method,
        windows=windows,
        calibration=cast("Calibration", way),
        head=head,
        keep_codes=True,
    )
    while True:
        try:
            at = next(steps)
        except StopIteration as end:
            made: WholeModel = end.value
            return made
        line.show(Loading(stage=f"{at.doing} {at.place}", fraction=at.share))


def _judged(loaded: LoadedModel, made: WholeModel, tokens: Tokens, windows: Any, line: ProgressLine) -> dict[str, Any]:
    from lab.evaluation.divergence import Comparison, DenseReference

    steps = DenseReference(loaded.model, tokens, windows).comparing(made.shell)
    while True:
        try:
            line.show(Loading(stage="judging on held-out text", fraction=next(steps)))
        except StopIteration as end:
            found: Comparison = end.value
            return {
                "held_out": {
                    "text_hash": tokens.hash,
                    "source": tokens.source,
                    "tokens": len(tokens),
                    "window": WINDOW,
                },
                "perplexity_dense": _finite(found.dense.perplexity),
                "perplexity": _finite(found.variant.perplexity),
                "bits_per_byte": _finite(found.variant.bits_per_byte),
                "kl_dense_variant_nats": _finite(found.mean_kl),
                "top1_agreement": _finite(found.agreement),
            }


def _finite(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None


def _sizes(made: WholeModel) -> dict[str, Any]:
    return {
        "bits_per_weight": made.bits_per_weight,
        "quantized_share": made.coverage.share,
        "dense_bytes": made.coverage.dense_bytes,
        "bytes": made.coverage.bytes,
    }
