"""How many bytes a quantized model takes: codes, scales and zero points of each kind of matrix, the rest dense.

By count alone, no torch here: for a config that is known or given, before anything is loaded.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from lab.errors import BadInput
from lab.events import ModelFacts
from lab.quantization.families import Sizes, family_of
from lab.quantization.grid import SCALE_BITS, Grid

GB = 10**9
"""Decimal, as model sizes are quoted."""


@dataclass(frozen=True, kw_only=True)
class Matrices:
    """Matrices of one kind and shape.

    Attributes:
        kind: "q_proj", "embed_tokens", "norm" and so on.
        rows, columns: (out, in); a norm has one row.
        count: how many of them.
        dense: why they stay as they are; "" if they are quantized.
    """

    kind: str
    rows: int
    columns: int
    count: int = 1
    dense: str = ""

    def __post_init__(self) -> None:
        if min(self.rows, self.columns, self.count) < 1:
            raise BadInput(
                f"There are no {self.count} {self.kind} of {self.rows} x {self.columns}.",
                remedy="Give sizes from 1 on.",
            )

    @property
    def weights(self) -> int:
        """Of all of them."""
        return self.rows * self.columns * self.count


@dataclass(frozen=True, kw_only=True)
class Stored:
    """Bytes of one kind of matrix, or of a model.

    Attributes:
        kind: see `Matrices`; "total" for a sum.
        weights: how many.
        code_bytes, scale_bytes, zero_bytes: of the quantized ones.
        dense_bytes: of what stays dense.
        before_bytes: of all in the dense dtype.
        dense: why it stays dense.
    """

    kind: str
    weights: int
    code_bytes: int = 0
    scale_bytes: int = 0
    zero_bytes: int = 0
    dense_bytes: int = 0
    before_bytes: int = 0
    dense: str = ""

    @property
    def bytes(self) -> int:
        """Of everything."""
        return self.code_bytes + self.scale_bytes + self.zero_bytes + self.dense_bytes

    @property
    def bits_per_weight(self) -> float:
        """With all overhead."""
        return 8 * self.bytes / self.weights

    @property
    def quantized_share(self) -> float:
        """Of the bytes before, what codes replace: 0 to 1."""
        return 1 - self.dense_bytes / self.before_bytes if self.before_bytes else 0.0


def store(matrices: Iterable[Matrices], grid: Grid, dense_bits: int = 16) -> tuple[Stored, ...]:
    """Bytes of each kind, in their order; codes, scales and zero points of each matrix fill whole bytes.

    Args:
        dense_bits: of a weight before, and of one that stays dense: 8, 16 or 32.

    Raises:
        BadInput: another number of bits, or a group size that does not fit (see `Grid.group_size`).
    """
    if dense_bits not in (8, 16, 32):
        raise BadInput(f"Dense weights have 8, 16 or 32 bits, not {dense_bits}.", remedy="Choose 16 for BF16 and FP16.")
    return tuple(_stored(one, grid, dense_bits // 8) for one in matrices)


def total(stored: Iterable[Stored]) -> Stored:
    """Their sum."""
    parts = tuple(stored)
    names = ("weights", "code_bytes", "scale_bytes", "zero_bytes", "dense_bytes", "before_bytes")
    return Stored(kind="total", **{name: sum(getattr(part, name) for part in parts) for name in names})


def by_count(
    weights: int, bits: int, group_size: int, *, scale_bytes: int = 2, zero_bits: int = 0, dense_bits: int = 16
) -> Stored:
    """A model of which only the size is known, all of it quantized.

    7 billion weights at 4 bits in groups of 128 take 3.5 GB and 0.11 GB of scales, against 14 GB.

    Args:
        zero_bits: of each group's zero point or minimum; 0 where the grid has none.

    Raises:
        BadInput: a count below 1, or zero points of fewer than 0 bits.
    """
    if zero_bits < 0:
        raise BadInput(f"A zero point has {zero_bits} bits; 0 or more are possible.", remedy="Give 0 for none.")
    if min(weights, bits, group_size, scale_bytes, dense_bits) < 1:
        raise BadInput("Weights, bits, group size and bytes of a scale are 1 or more.", remedy="Give positive numbers.")
    return Stored(
        kind="total",
        weights=weights,
        code_bytes=-(-weights * bits // 8),
        scale_bytes=-(-weights // group_size) * scale_bytes,
        zero_bytes=-(-(-(-weights // group_size) * zero_bits) // 8),
        before_bytes=weights * dense_bits // 8,
    )


def decoder(
    *,
    hidden: int,
    intermediate: int,
    layers: int,
    query_heads: int,
    kv_heads: int,
    head_dim: int,
    vocab: int,
    tied: bool,
    gated: bool = True,
) -> tuple[Matrices, ...]:
    """The matrices of a Llama-like decoder without biases.

    The embedding is looked up, not multiplied, so it stays dense; so does a head tied to it, which is counted with it.

    Args:
        gated: whether the MLP has a gate beside "up".
    """
    queries, keys = query_heads * head_dim, kv_heads * head_dim
    shapes = [
        ("q_proj", queries, hidden),
        ("k_proj", keys, hidden),
        ("v_proj", keys, hidden),
        ("o_proj", hidden, queries),
        ("up_proj", intermediate, hidden),
        ("down_proj", hidden, intermediate),
    ]
    if gated:
        shapes.insert(4, ("gate_proj", intermediate, hidden))
    found = [Matrices(kind=kind, rows=rows, columns=columns, count=layers) for kind, rows, columns in shapes]
    found.append(
        Matrices(
            kind="embed_tokens",
            rows=vocab,
            columns=hidden,
            dense="looked up, and also the head (tied)" if tied else "looked up, never multiplied",
        )
    )
    if not tied:
        found.append(Matrices(kind="lm_head", rows=vocab, columns=hidden, dense="its errors go straight to the logits"))
    found.append(Matrices(kind="norm", rows=1, columns=hidden, count=2 * layers + 1, dense="a vector"))
    return tuple(found)


def of_facts(facts: ModelFacts) -> tuple[Matrices, ...]:
    """The matrices of a known model. Facts do not hold the MLP's width: it follows from the number of parameters.

    Raises:
        BadInput: a model that is none of the Llama-like decoders known here, or whose parameters do not come out.
    """
    layers, extra = len(facts.layers), _extra_vectors(facts)
    if layers and extra is not None and all(layer.kv_heads == facts.kv_heads for layer in facts.layers):

        def of_width(width: int) -> tuple[Matrices, ...]:
            return decoder(
                hidden=facts.hidden,
                intermediate=width,
                layers=layers,
                query_heads=facts.query_heads,
                kv_heads=facts.kv_heads,
                head_dim=facts.head_dim,
                vocab=facts.vocab,
                tied=facts.tied,
            )

        others = Matrices(kind="other", rows=1, columns=extra, count=layers, dense="a vector") if extra else None
        narrowest = sum(m.weights for m in of_width(1)) + (others.weights if others else 0)
        width, over = divmod(facts.parameters - narrowest, 3 * facts.hidden * layers)
        if over == 0 and width >= 0:
            return (*of_width(width + 1), *((others,) if others else ()))
    raise BadInput(
        f"The matrices of {facts.name} ({facts.architecture}) do not follow from its size alone.",
        remedy="Load it: its modules are counted one by one.",
    )


def of_shapes(shapes: Iterable[tuple[str, tuple[int, int], str]]) -> tuple[Matrices, ...]:
    """The matrices of a loaded model, equal ones together.

    Args:
        shapes: for each the module's name, (out, in), and why it stays dense or "".
    """
    counts: dict[tuple[str, int, int, str], int] = {}
    for name, (rows, columns), dense in shapes:
        key = (name.rpartition(".")[2], rows, columns, dense)
        counts[key] = counts.get(key, 0) + 1
    return tuple(
        Matrices(kind=kind, rows=rows, columns=columns, count=count, dense=dense)
        for (kind, rows, columns, dense), count in counts.items()
    )


def _extra_vectors(facts: ModelFacts) -> int | None:
    """Numbers in a layer's vectors but the two norms: biases and further norms; None for unknown architectures."""
    family = family_of(facts.architecture)
    if family is None:
        return None
    sizes = Sizes(
        hidden=facts.hidden,
        intermediate=1,
        layers=len(facts.layers),
        query_heads=facts.query_heads,
        kv_heads=facts.kv_heads,
        head_dim=facts.head_dim,
        vocab=facts.vocab,
        tied=facts.tied,
    )
    return family.vectors(sizes)


LLAMA_7B = decoder(
    hidden=4096, intermediate=11008, layers=32, query_heads=32, kv_heads=32, head_dim=128, vocab=32000, tied=False
)
"""Llama 2 7B: 6.74 billion parameters."""


def _stored(one: Matrices, grid: Grid, dense_bytes: int) -> Stored:
    before = one.weights * dense_bytes
    if one.dense:
        return Stored(kind=one.kind, weights=one.weights, dense_bytes=before, before_bytes=before, dense=one.dense)
    scales = 1 if grid.share == "tensor" else one.rows * grid.groups(one.columns)
    code_bits, zero_bits = one.rows * one.columns * grid.bits, scales * grid.zero_bits
    return Stored(
        kind=one.kind,
        weights=one.weights,
        code_bytes=one.count * -(-code_bits // 8),
        scale_bytes=one.count * (scales * SCALE_BITS[grid.scale_format] // 8),
        zero_bytes=one.count * -(-zero_bits // 8),
        before_bytes=before,
    )
