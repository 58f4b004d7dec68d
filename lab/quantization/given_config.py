"""The matrices of a config that somebody gives as text: strictly read, nothing opened, nothing loaded.

Only numbers are taken from it. What would change the count and is not understood is refused rather than guessed.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Any

from lab.errors import BadInput, shown
from lab.models.architecture import MAX_LAYERS, MAX_VOCAB, MAX_WIDTH
from lab.quantization.families import FAMILIES, MOST_WEIGHTS, Sizes, head_width
from lab.quantization.storage import Matrices, decoder

MOST_CHARACTERS = 65_536
"""Of a config's text: real ones have a few thousand."""
_MOST_EXPERTS = 4_096
_BY_HAND = "Or give the sizes by hand."
_WIDTHS = {
    "hidden_size": ("hidden_size", "n_embd", "d_model"),
    "intermediate_size": ("intermediate_size", "n_inner"),
    "num_hidden_layers": ("num_hidden_layers", "n_layer"),
    "num_attention_heads": ("num_attention_heads", "n_head"),
}
"""Names of one size in the configs of different families."""


@dataclass(frozen=True)
class GivenConfig:
    """What a config says of a model's size.

    Attributes:
        name: for the page.
        read: the keys that were taken, so that the same sum can be asked for without the rest.
        notes: what was assumed.
    """

    name: str
    matrices: tuple[Matrices, ...]
    read: dict[str, Any]
    notes: tuple[str, ...] = ()


def of_config(text: str) -> GivenConfig:
    """Read the text of a Hugging Face config.json.

    Raises:
        BadInput: too long, no JSON object, a family that is not known here, or a size that is missing or out of its
            limits.
    """
    if len(text) > MOST_CHARACTERS:
        raise BadInput(
            f"The config has {len(text):,} characters; the limit is {MOST_CHARACTERS:,}.",
            remedy=f"Paste the config.json alone. {_BY_HAND}",
        )
    raw, notes = _language_part(_object(text))
    kind = _kind(raw, notes)
    reader = _Reader(raw, {"model_type": kind})
    if raw.get("is_encoder_decoder") or raw.get("add_cross_attention"):
        raise BadInput("The config is of an encoder-decoder, which is not counted here.", remedy=_BY_HAND)
    if kind == "gpt2":
        matrices = _gpt2(reader)
    elif kind == "mixtral":
        matrices = _mixtral(reader)
    else:
        matrices = _llama_like(reader, kind)
    return GivenConfig(f"The given config ({kind})", within(matrices), reader.taken, tuple(notes))


def of_sizes(sizes: Sizes) -> tuple[Matrices, ...]:
    """The matrices of a Llama-like decoder of these sizes.

    Raises:
        BadInput: all together they have more weights than any model.
    """
    return within(decoder(**asdict(sizes)))


def within(matrices: tuple[Matrices, ...]) -> tuple[Matrices, ...]:
    """`matrices`, if all together they are no larger than `MOST_WEIGHTS`.

    Raises:
        BadInput: they are.
    """
    weights = sum(one.weights for one in matrices)
    if weights > MOST_WEIGHTS:
        raise BadInput(
            f"These sizes make {weights:,} weights; the limit is {MOST_WEIGHTS:,}.", remedy="Is one of them a slip?"
        )
    return matrices


def _object(text: str) -> dict[str, Any]:
    def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found = dict(pairs)
        if len(found) != len(pairs):
            names = [name for name, _ in pairs]
            twice = next(name for name in names if names.count(name) > 1)
            raise BadInput(f"The config has {shown(twice)} twice.", remedy="Remove one of them.")
        return found

    if not text.strip():
        raise BadInput("The config is empty.", remedy=f"Paste the text of a config.json. {_BY_HAND}")
    try:
        raw = json.loads(text, object_pairs_hook=once)
    except json.JSONDecodeError as error:
        raise BadInput(
            f"The config is no JSON: {error.msg} in line {error.lineno}, column {error.colno}.",
            remedy=f"Paste the whole config.json, from the first brace to the last. {_BY_HAND}",
        ) from None
    except (ValueError, RecursionError):  # a number of thousands of digits, or brackets without end
        raise BadInput("The config is no JSON that can be read.", remedy=f"Paste a config.json. {_BY_HAND}") from None
    if not isinstance(raw, dict):
        raise BadInput(
            f"The config is {shown(raw)}, not an object in braces.", remedy=f"Paste a whole config.json. {_BY_HAND}"
        )
    return raw


def _language_part(raw: dict[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """The part about the language model, and what to say of the rest."""
    text = raw.get("text_config")
    if not isinstance(text, dict):
        return raw, []
    tied = {k: raw[k] for k in ("tie_word_embeddings",) if k in raw}
    return {**tied, **text}, ["Counted is the language model of its text_config, not what sees or hears."]


def _kind(raw: dict[str, Any], notes: list[str]) -> str:
    """Its family: by its model type, else by its class, else a Llama-like decoder."""
    known = (*FAMILIES, "gpt2", "mixtral")
    kind, classes = raw.get("model_type"), raw.get("architectures")
    if kind is None and isinstance(classes, list) and classes:
        kind = {family.architecture: name for name, family in FAMILIES.items()}.get(
            str(classes[0]), {"GPT2LMHeadModel": "gpt2", "MixtralForCausalLM": "mixtral"}.get(str(classes[0]))
        )
        kind = classes[0] if kind is None else kind
    if kind is None:
        notes.append("It names no model_type; it is counted as a Llama-like decoder.")
        return "llama"
    if kind not in known:
        raise BadInput(
            f"model_type is {shown(kind)}; known here are {', '.join(known)}.",
            remedy="For a dense decoder of gate, up and down projections give the sizes by hand.",
        )
    return str(kind)


class _Reader:
    """Takes values by name, checked.

    Attributes:
        taken: what was read, by the names that any family's config understands.
    """

    def __init__(self, raw: dict[str, Any], taken: dict[str, Any]) -> None:
        self._raw = raw
        self.taken = taken

    def whole(self, name: str, limit: int, default: int | None = None) -> int:
        """A whole number from 1 to `limit`; `default` where there is none or null."""
        named = next((n for n in _WIDTHS.get(name, (name,)) if self._raw.get(n) is not None), None)
        if named is None:
            if default is not None:
                return default
            raise BadInput(
                f"The config has no {name}.",
                remedy=f"Configs leave out what is the family's default: add it. {_BY_HAND}",
            )
        value = self._raw[named]
        if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= limit:
            raise BadInput(
                f"{named} is {shown(value)}; it must be a whole number from 1 to {limit:,}.",
                remedy="Correct it in the config.",
            )
        self.taken[named] = value
        return value

    def truth(self, name: str, default: bool) -> bool:
        """True or false; `default` where there is none or null."""
        value = self._raw.get(name)
        if value is None:
            return default
        if not isinstance(value, bool):
            raise BadInput(f"{name} is {shown(value)}; it must be true or false.", remedy="Correct it in the config.")
        self.taken[name] = value
        return value

    def sizes(self, *, tied: bool, must_say: tuple[str, ...]) -> Sizes:
        """All of a Llama-like decoder; see `Family` for what its family adds."""
        for name in must_say:
            self.whole(name, MAX_WIDTH)
        hidden = self.whole("hidden_size", MAX_WIDTH)
        heads = self.whole("num_attention_heads", MAX_WIDTH)
        kv_heads = self.whole("num_key_value_heads", MAX_WIDTH, heads)
        head_dim = self.whole("head_dim", MAX_WIDTH, 0) or head_width(hidden, heads)
        return Sizes(
            hidden=hidden,
            intermediate=self.whole("intermediate_size", MAX_WIDTH),
            layers=self.whole("num_hidden_layers", MAX_LAYERS),
            query_heads=heads,
            kv_heads=kv_heads,
            head_dim=head_dim,
            vocab=self.whole("vocab_size", MAX_VOCAB),
            tied=self.truth("tie_word_embeddings", tied),
        )


def _llama_like(reader: _Reader, kind: str) -> tuple[Matrices, ...]:
    family = FAMILIES[kind]
    sizes = reader.sizes(tied=family.tied, must_say=family.must_say)
    extra = family.vectors(sizes)
    if kind != "qwen2" and reader.truth("attention_bias", False):
        extra += sizes.queries + 2 * sizes.keys + sizes.hidden
    if reader.truth("mlp_bias", False):
        extra += 2 * sizes.intermediate + sizes.hidden
    return (*of_sizes(sizes), *_vectors(extra, sizes.layers))


def _mixtral(reader: _Reader) -> tuple[Matrices, ...]:
    """Each layer has several MLPs, and a small matrix that chooses among them."""
    sizes = reader.sizes(tied=False, must_say=("num_key_value_heads",))
    experts = reader.whole("num_local_experts", _MOST_EXPERTS)
    found = []
    for one in decoder(**asdict(sizes)):
        count = one.count * (experts if one.kind in ("gate_proj", "up_proj", "down_proj") else 1)
        found.append(Matrices(kind=one.kind, rows=one.rows, columns=one.columns, count=count, dense=one.dense))
    router = Matrices(
        kind="router", rows=experts, columns=sizes.hidden, count=sizes.layers, dense="it chooses the experts"
    )
    return (*found, router)


def _gpt2(reader: _Reader) -> tuple[Matrices, ...]:
    """Queries, keys and values in one matrix, an MLP without a gate, biases everywhere, learned positions."""
    hidden = reader.whole("hidden_size", MAX_WIDTH)
    inner = reader.whole("intermediate_size", MAX_WIDTH, 4 * hidden)
    layers = reader.whole("num_hidden_layers", MAX_LAYERS)
    vocab = reader.whole("vocab_size", MAX_VOCAB)
    positions = reader.whole("n_positions", MAX_VOCAB)
    tied = reader.truth("tie_word_embeddings", True)
    shapes = (
        ("c_attn", 3 * hidden, hidden),
        ("c_proj", hidden, hidden),
        ("c_fc", inner, hidden),
        ("mlp.c_proj", hidden, inner),
    )
    looked_up = "looked up, never multiplied"
    found = [Matrices(kind=kind, rows=rows, columns=columns, count=layers) for kind, rows, columns in shapes]
    found.append(
        Matrices(
            kind="wte", rows=vocab, columns=hidden, dense="looked up, and also the head (tied)" if tied else looked_up
        )
    )
    if not tied:
        found.append(Matrices(kind="lm_head", rows=vocab, columns=hidden, dense="its errors go straight to the logits"))
    found.append(Matrices(kind="wpe", rows=positions, columns=hidden, dense=looked_up))
    found.append(Matrices(kind="norm", rows=2, columns=hidden, count=2 * layers + 1, dense="a vector"))
    return (*found, *_vectors(5 * hidden + inner, layers))


def _vectors(extra: int, layers: int) -> tuple[Matrices, ...]:
    return (Matrices(kind="other", rows=1, columns=extra, count=layers, dense="a vector"),) if extra else ()
