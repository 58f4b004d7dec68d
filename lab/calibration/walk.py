"""A text's way through a model, one decoder layer at a time: only hidden states are held, and each step is short.

The layers are handed what the model itself hands them (masks, rotary angles): one pass through the model, whose layers
do nothing but write down their arguments, gives the first hidden states and every layer's arguments. Windows of equal
length go together; nothing is ever padded.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any

import torch
from torch import Tensor, nn

from lab.calibration.hessian import Watch
from lab.errors import BadInput, ModelError, shown
from lab.models.linear import decoder_layers

STEP_TOKENS = 512
"""Positions that go through a layer at a time: about 40 ms of the default model on two cores."""

Walking = Generator[None, None, None]


class LayerWalk:
    """Hidden states of token windows, before one layer after another.

    Args:
        shell: a shell of a model (`lab.models.shell.make_shell`): its layers' `forward` is replaced for moments.
        windows: token ids; each window is read alone, from position 0.
        step_tokens: positions that go through at a time; a longer window still goes through whole.

    Attributes:
        layers: the decoder layers, in order.
        names: their names.
        tokens: positions in all windows together.
        hidden: of each batch of windows, (window, position, hidden), as it stands before the next layer.

    Raises:
        ModelError: no decoder layers were found.
        BadInput: no windows, empty ones, or ids outside the vocabulary.
    """

    def __init__(self, shell: nn.Module, windows: Sequence[Sequence[int]], *, step_tokens: int = STEP_TOKENS) -> None:
        self.shell = shell
        prefix, stack = decoder_layers(shell)
        self.layers: list[nn.Module] = list(stack)
        self.names = tuple(f"{prefix}.{i}" for i in range(len(self.layers)))
        self._base = _base(shell)
        self._device = next(shell.parameters()).device
        check_windows(windows, _vocabulary(shell))
        self.tokens = sum(len(window) for window in windows)
        self._ids = [torch.tensor(batch, device=self._device) for batch in batches(windows, step_tokens)]
        self.hidden: list[Tensor] = []
        self._arguments: list[list[tuple[tuple[Any, ...], dict[str, Any]]]] = []

    def embed(self) -> Walking:
        """Fill `hidden` with what comes before the first layer; pauses after each batch."""
        self.hidden, self._arguments = [], []
        for ids in self._ids:
            calls: list[tuple[Tensor, tuple[Any, ...], dict[str, Any]]] = []

            with torch.no_grad(), _replaced(self.layers, [_written_into(calls)] * len(self.layers)):
                self._base(input_ids=ids, use_cache=False)
            if len(calls) != len(self.layers) or any(call[0].shape != calls[0][0].shape for call in calls):
                raise ModelError(
                    f"The layers of {type(self.shell).__name__} do not follow one another.",
                    remedy="Calibrate another model.",
                )
            self.hidden.append(calls[0][0].clone())
            self._arguments.append([(args, kwargs) for _, args, kwargs in calls])
            yield

    def through(self, index: int, *, watch: Watch | None = None, advance: bool = True) -> Walking:
        """Send all hidden states through layer `index`, which must be the next; pauses after each batch.

        Args:
            watch: what listens to the layer's modules meanwhile.
            advance: whether `hidden` becomes what the layer gave; else it stays what goes in.
        """
        for number in range(len(self.hidden)):
            with torch.no_grad(), watch.listening() if watch is not None else nullcontext():
                after = self.run(index, number)
            if advance:
                self.hidden[number] = after
            yield

    def run(self, index: int, batch: int) -> Tensor:
        """What layer `index` makes of a batch's hidden states. Must run without gradients."""
        args, kwargs = self._arguments[batch][index]
        output = self.layers[index](self.hidden[batch], *args, **kwargs)
        after: Tensor = output[0] if isinstance(output, tuple) else output
        return after

    def arguments(self, index: int, batch: int) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """What the model hands layer `index` beside the hidden states."""
        return self._arguments[batch][index]

    def after_norm(self, batch: int) -> Tensor:
        """What the head reads, (window, position, hidden), once the hidden states are through all layers."""
        last = self.hidden[batch]
        passing: list[Callable[..., Tensor]] = [lambda hidden_states, *_, **__: hidden_states] * len(self.layers)
        passing[-1] = lambda *_, **__: last
        with torch.no_grad(), _replaced(self.layers, passing):
            output: Any = self._base(input_ids=self._ids[batch], use_cache=False)
        found: Tensor = output[0]
        return found


def batches(windows: Sequence[Sequence[int]], tokens: int) -> list[list[list[int]]]:
    """Neighbouring windows of equal length together, up to `tokens` positions; a longer window alone."""
    made: list[list[list[int]]] = []
    for window in windows:
        last = made[-1] if made else None
        if last and len(last[0]) == len(window) and (len(last) + 1) * len(window) <= tokens:
            last.append(list(window))
        else:
            made.append([list(window)])
    return made


def check_windows(windows: Sequence[Sequence[int]], vocabulary: int) -> None:
    """Refuse windows that cannot be read.

    Raises:
        BadInput: no windows, an empty one, or an id outside the vocabulary.
    """
    if not windows or any(len(window) == 0 for window in windows):
        raise BadInput(
            f"Calibration needs windows with tokens; {len(windows)} were given, "
            f"{sum(len(window) == 0 for window in windows)} of them empty.",
            remedy="Give a longer text.",
        )
    for window in windows:
        low, high = min(window), max(window)
        if low < 0 or high >= vocabulary:
            wrong = low if low < 0 else high
            raise BadInput(
                f"Token id {shown(wrong)} is outside the vocabulary of {vocabulary:,}.",
                remedy="Encode the text with the model's own tokenizer.",
            )


def _base(shell: nn.Module) -> Callable[..., Any]:
    base: Any = getattr(shell, "base_model", shell)
    found: Callable[..., Any] = base
    return found


def _vocabulary(shell: nn.Module) -> int:
    embedding: Any = getattr(shell, "get_input_embeddings", lambda: None)()
    return int(embedding.weight.shape[0]) if embedding is not None else 1 << 31


def _written_into(calls: list[tuple[Tensor, tuple[Any, ...], dict[str, Any]]]) -> Callable[..., Tensor]:
    def forward(hidden_states: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        calls.append((hidden_states, args, kwargs))
        return hidden_states

    return forward


@contextmanager
def _replaced(layers: Sequence[nn.Module], forwards: Sequence[Callable[..., Tensor]]) -> Iterator[None]:
    """The layers with other `forward` functions, for a moment. Their attributes, which models read, stay."""
    for layer, forward in zip(layers, forwards, strict=True):
        layer.forward = forward
    try:
        yield
    finally:
        for layer in layers:
            vars(layer).pop("forward", None)
