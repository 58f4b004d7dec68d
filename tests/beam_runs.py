"""Beam search in tests: tiny models of any vocabulary, a search to its end, `generate()` and no cache beside it."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from experiment_runs import Ran, run_experiment
from torch import Tensor
from transformers import LlamaConfig, LlamaForCausalLM

from lab.decoding.beam.choose import choose_beams
from lab.decoding.beam.hypotheses import Finished
from lab.decoding.beam.search import Beams, SearchStep, Settings, Tree, beam_search
from lab.experiments.base import RunContext
from lab.experiments.beam_search.params import BeamSearchParams
from lab.experiments.beam_search.run import BeamSearchRunner
from lab.experiments.reference_beams import EARLY_STOPPING

if TYPE_CHECKING:
    from lab.models.loading import LoadedModel

PROMPT = [1, 3, 4]
END = 2


def small_llama(vocab: int, seed: int = 0) -> LlamaForCausalLM:
    """Random weights, large enough that the distributions are far from flat."""
    config = LlamaConfig(
        vocab_size=vocab,
        hidden_size=16,
        intermediate_size=16,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=1,
        initializer_range=0.4,
        bos_token_id=None,
        eos_token_id=None,
        pad_token_id=0,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = LlamaForCausalLM(config).eval()
    model.requires_grad_(False)
    return model


@dataclass
class Searched:
    """A search to its end."""

    steps: list[SearchStep]
    hypotheses: list[Finished]
    tree: Tree

    @property
    def sequences(self) -> list[list[int]]:
        return [self.tree.tokens(h.node) for h in self.hypotheses]

    @property
    def scores(self) -> list[float]:
        return [h.score for h in self.hypotheses]


def drained(beams: Beams, settings: Settings, prompt: Sequence[int] = ()) -> Searched:
    tree = Tree()
    steps: list[SearchStep] = []
    search = beam_search(beams, settings, prompt, tree)
    while True:
        try:
            step = next(search)
        except StopIteration as stop:
            return Searched(steps, stop.value, tree)
        assert not torch.is_inference_mode_enabled()
        if step is not None:
            steps.append(step)


def searched(model: Any, settings: Settings, prompt: Sequence[int] = PROMPT, *, fast: bool | None = None) -> Searched:
    """The search on a model."""
    beams = choose_beams(
        model,
        prompt,
        width=settings.width,
        max_new_tokens=settings.max_new_tokens,
        fast=fast,
        mistake=settings.mistake,
    )
    for _ in beams.prefill():
        pass
    return drained(beams, settings, prompt)


@dataclass
class Generated:
    """What `generate()` found: sequences cut after their end token, hypotheses that do not exist left out."""

    sequences: list[list[int]]
    scores: list[float]
    transitions: list[list[float]]


def generated(model: Any, settings: Settings, prompt: Sequence[int] = PROMPT) -> Generated:
    """`generate(num_beams=...)` called as a user would, with all its hypotheses."""
    ids = torch.tensor([list(prompt)])
    ends, repetition = sorted(set(settings.end_token_ids)), settings.repetition
    more: dict[str, Any] = {"custom_generate": type(model)._beam_search} if settings.width == 1 else {}
    if repetition.repetition_penalty != 1.0:
        more["repetition_penalty"] = repetition.repetition_penalty
    if repetition.no_repeat_ngram_size:
        more["no_repeat_ngram_size"] = repetition.no_repeat_ngram_size
    if repetition.min_new_tokens:
        more["min_new_tokens"] = repetition.min_new_tokens
    with torch.inference_mode():
        made = model.generate(
            input_ids=ids,
            attention_mask=torch.ones_like(ids),
            max_new_tokens=settings.max_new_tokens,
            do_sample=False,
            num_beams=settings.width,
            num_return_sequences=settings.width,
            length_penalty=float(settings.length_penalty),
            early_stopping=EARLY_STOPPING[settings.early_stopping],
            eos_token_id=ends or None,
            pad_token_id=0,
            return_dict_in_generate=True,
            output_scores=True,
            **more,
        )
        steps = model.compute_transition_scores(made.sequences, made.scores, made.beam_indices)
    lengths = (made.beam_indices >= 0).sum(dim=1).tolist()
    rows = zip(made.sequences.tolist(), made.sequences_scores.tolist(), steps.tolist(), lengths, strict=True)
    real = [(tokens[len(prompt) : len(prompt) + n], score, t[:n]) for tokens, score, t, n in rows if score > -1e8]
    return Generated([r[0] for r in real], [r[1] for r in real], [r[2] for r in real])


def same(ours: Searched, theirs: Generated) -> bool:
    """The same sequences in the same order, scores within 1e-5 (of their size, where that is above 1)."""
    near = [abs(a - b) <= 1e-5 * max(1.0, abs(b)) for a, b in zip(ours.scores, theirs.scores, strict=False)]
    return ours.sequences == theirs.sequences and all(near)


class WithoutCache:
    """Beams that send prompt and text through the model anew at each step, through its own forward."""

    def __init__(self, model: Any, prompt: Sequence[int]) -> None:
        self._model, self._prompt = model, list(prompt)
        self.texts: list[list[int]] = [[]]

    def first(self) -> Generator[None, None, Tensor]:
        yield from ()
        return self._log_probs()

    def extend(self, rows: Sequence[int], token_ids: Sequence[int]) -> Generator[None, None, Tensor]:
        yield from ()
        self.texts = [[*self.texts[row], token] for row, token in zip(rows, token_ids, strict=True)]
        return self._log_probs()

    def _log_probs(self) -> Tensor:
        ids = torch.tensor([[*self._prompt, *text] for text in self.texts])
        with torch.inference_mode():
            logits = self._model(input_ids=ids, use_cache=False).logits[:, -1]
            return torch.log_softmax(logits.float(), dim=-1)


def start(model: LoadedModel, **params: Any) -> Any:
    return BeamSearchRunner().run(RunContext(model=model), BeamSearchParams(**params))


def run_to_end(model: LoadedModel, **params: Any) -> Ran:
    """Run the experiment with these parameters."""
    return run_experiment(BeamSearchRunner(), model, BeamSearchParams(**params))
