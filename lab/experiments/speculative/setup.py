"""What the tasks of the `speculative` experiment share: the rules, the draft that is wished for, texts of tokens."""

from __future__ import annotations

from dataclasses import dataclass, field

from lab.decoding.distribution import Distribution
from lab.decoding.drafts.choose import Source, Wish
from lab.decoding.processors import Repetition
from lab.decoding.sampling import Sampling
from lab.errors import BadInput
from lab.experiments.base import RunContext
from lab.experiments.speculative.params import MAX_GAMMA, DraftName, SpeculativeParams
from lab.models.loading import LoadedModel
from lab.models.prompts import text_of

_TEXTS = 20_000


@dataclass
class Setup:
    """One run's model, parameters and rules."""

    context: RunContext
    params: SpeculativeParams
    _texts: dict[int, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.loaded: LoadedModel = self.context.model
        self.ends = tuple(sorted(self.loaded.end_token_ids))

    @property
    def dtype(self) -> str:
        """ "float32" or "bfloat16"."""
        return str(self.loaded.dtype).removeprefix("torch.")

    def distribution(self, prompt_length: int = 0) -> Distribution:
        """The rules of both sides."""
        return distribution_of(self.params, prompt_length, self.ends)

    def wish(self, name: DraftName | None = None) -> Wish:
        """The draft that was asked for, or another one with the same settings."""
        return wish_of(self.params, name)

    def text_of(self, token: int) -> str:
        """A token by itself."""
        text = self._texts.get(token)
        if text is None:
            text = text_of(self.loaded.tokenizer, token)
            if len(self._texts) < _TEXTS:
                self._texts[token] = text
        return text

    def name_of(self, token: int) -> str:
        """A token for a sentence."""
        return f"{self.text_of(token)!r} (token {token})"


@dataclass(frozen=True)
class Plan:
    """One speculative run beside a plain one.

    Attributes:
        gamma: tokens to propose. capacity of the draft follows from prompt and new tokens.
    """

    source: Source
    gamma: int
    adaptive: bool = False


def check_gamma(params: SpeculativeParams, most: int | None, who: str) -> None:
    """Refuse to propose more tokens in a round than can be taken back, see `most_gamma`. A sweep chooses its own.

    Raises:
        BadInput: with the limit.
    """
    asked = MAX_GAMMA if params.adaptive else params.gamma
    if most is None or params.task == "trial" or (params.task == "sweep" and most >= 1) or asked <= most:
        return
    window = f"{who} has layers with a sliding window of {most + 2} positions"
    if most < 1:
        raise BadInput(
            f"{window}: no rejected token can be taken back out of it.", remedy="Use a model with a wider window."
        )
    what = f"γ adapts itself up to {MAX_GAMMA}" if params.adaptive else f"γ is {params.gamma}"
    raise BadInput(
        f"{window}, so at most {most} proposed tokens can be taken back, and {what}.",
        remedy=f"Choose a γ of at most {most}" + (", and do not let it adapt." if params.adaptive else "."),
    )


def distribution_of(params: SpeculativeParams, prompt_length: int, ends: tuple[int, ...]) -> Distribution:
    """The rules that the parameters ask for."""
    sampling = Sampling()
    if params.do_sample:
        sampling = Sampling(
            do_sample=True, temperature=params.temperature, top_k=params.top_k, top_p=params.top_p, seed=params.seed
        )
    repetition = Repetition(params.repetition_penalty, params.no_repeat_ngram_size)
    return Distribution(sampling, repetition, prompt_length, ends)


def wish_of(params: SpeculativeParams, name: DraftName | None = None) -> Wish:
    """The draft that the parameters ask for."""
    return Wish(
        name=name or params.draft,
        exit_layer=params.exit_layer,
        ngram=params.ngram,
        draft_model=params.draft_model,
        store=params.store,
        store_text=params.store_text,
        tree=params.tree,
    )
