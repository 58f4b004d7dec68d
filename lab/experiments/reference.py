"""transformers' own `generate()` as a run that shares the machine.

`generate()` is one long call. It runs here in a thread of its own, in lock-step with the caller: hooks
on the shell's layers hand control back when a slice is over, and wait. So only one of the two threads
computes at any time, a caller can give up between any two slices, and inference mode (which belongs to a
thread) never reaches other runs. The global random state, which belongs to nobody, is put aside around
every slice.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from transformers import GenerationConfig

SLICE_MS = 80.0
PREFILL_CHUNK = 256


@dataclass(frozen=True, kw_only=True)
class ReferenceTokens:
    """What `generate()` made.

    Attributes:
        token_ids: the new tokens, the end token included if it came.
        gaps: for each of them, the difference of its two largest logits, before temperature.
        runners_up: for each of them, the token of the second largest logit, or of the largest if the token
            was drawn and is not the largest.
        largest: for each of them, the largest absolute value among those two logits.
        prefill_chunk: the size of `generate()`'s own prefill chunks, None if the prompt went at once.
    """

    token_ids: tuple[int, ...]
    gaps: tuple[float, ...]
    runners_up: tuple[int, ...]
    largest: tuple[float, ...]
    prefill_chunk: int | None


class _Abandoned(BaseException):
    """Ends the reference's thread from inside a hook; not an Exception, so that no `except` on the way eats it."""


class RandomState:
    """The process's random state on the devices that `generate()` draws from."""

    def __init__(self, device: torch.device) -> None:
        self._generators = [torch.default_generator]
        if device.type == "cuda":
            index = torch.cuda.current_device() if device.index is None else device.index
            self._generators.append(torch.cuda.default_generators[index])

    def seed(self, seed: int) -> None:
        for generator in self._generators:
            generator.manual_seed(seed)

    def save(self) -> list[torch.Tensor]:
        return [generator.get_state() for generator in self._generators]

    def restore(self, states: list[torch.Tensor]) -> None:
        for generator, state in zip(self._generators, states, strict=True):
            generator.set_state(state)


class LockStep:
    """One call in a thread of its own that computes only while `advance` waits for it."""

    def __init__(self, work: Callable[[], Any], random_state: RandomState, seed: int, slice_ms: float) -> None:
        self._work = work
        self._random = random_state
        self._seed = seed
        self._slice_s = slice_ms / 1000
        self._slice_began = 0.0
        self._go = threading.Semaphore(0)
        self._paused = threading.Semaphore(0)
        self._abandoned = False
        self._own_state: list[torch.Tensor] | None = None
        self._thread = threading.Thread(target=self._run, name="lab-reference", daemon=True)
        self.finished = False
        self.result: Any = None
        self.error: BaseException | None = None

    def _run(self) -> None:
        try:
            self.result = self._work()
        except _Abandoned:
            pass
        except BaseException as error:  # noqa: BLE001 - raised again in the caller's thread
            self.error = error
        self.finished = True
        self._paused.release()

    def pause_if_due(self) -> None:
        """Called from the thread: give control back once the slice has lasted long enough."""
        if threading.current_thread() is not self._thread:
            return
        if not self._abandoned and time.perf_counter() - self._slice_began < self._slice_s:
            return
        self._paused.release()
        self._go.acquire()
        if self._abandoned:
            raise _Abandoned

    def advance(self) -> bool:
        """Let the call compute for one slice; True once it has ended. Raises what it raised."""
        others = self._random.save()
        try:
            if self._own_state is None:
                self._random.seed(self._seed)
            else:
                self._random.restore(self._own_state)
            self._slice_began = time.perf_counter()
            if self._thread.ident is None:
                self._thread.start()
            else:
                self._go.release()
            self._paused.acquire()
            self._own_state = self._random.save()
        finally:
            self._random.restore(others)
        if self.finished:
            self._thread.join()
            if self.error is not None:
                raise self.error
        return self.finished

    def abandon(self) -> None:
        """End the thread where it stands, and wait until it has gone."""
        if self._thread.ident is None or not self._thread.is_alive():
            return
        self._abandoned = True
        self._go.release()
        self._thread.join()


def reference_generate(
    shell: nn.Module,
    prompt_ids: list[int],
    *,
    max_new_tokens: int,
    end_token_ids: tuple[int, ...],
    do_sample: bool = False,
    temperature: float = 1.0,
    top_k: int = 0,
    top_p: float = 1.0,
    seed: int = 0,
    slice_ms: float = SLICE_MS,
    more: Mapping[str, Any] | None = None,
) -> Generator[int, None, ReferenceTokens]:
    """Run `generate()` on `shell`, which is changed: pass one that nobody else uses.

    Args:
        shell: a causal model of transformers, see `lab.models.shell`. Its own generation config is replaced,
            so that no default of the model's maker (a repetition penalty, say) enters the comparison.
        end_token_ids: tokens that end the text; empty for none.
        top_k: 0 draws from all tokens.
        seed: of the global random state, as `torch.manual_seed`; other runs' draws are not touched.
        slice_ms: control comes back at the first layer reached after this many milliseconds.
        more: further fields of `GenerationConfig`: a repetition penalty, say.

    Yields:
        How many new tokens there are so far, at the end of each slice.

    Returns:
        The tokens, and how close each call was.
    """
    device = next(shell.parameters()).device
    # On a CPU one layer of a long prompt outlasts a slice; generate() has its own chunks against that.
    chunk = PREFILL_CHUNK if device.type == "cpu" and len(prompt_ids) > PREFILL_CHUNK else None
    sampling = {"temperature": temperature, "top_k": top_k, "top_p": top_p} if do_sample else {}
    setattr(shell, "generation_config", GenerationConfig())  # type: ignore[no-untyped-call]  # noqa: B010
    config = GenerationConfig(  # type: ignore[no-untyped-call]
        max_new_tokens=max_new_tokens,
        do_sample=do_sample,
        num_beams=1,
        eos_token_id=list(end_token_ids) or None,
        pad_token_id=end_token_ids[0] if end_token_ids else None,
        prefill_chunk_size=chunk,
        use_cache=True,
        **sampling,
        **(more or {}),
    )
    top_two: list[tuple[torch.Tensor, torch.Tensor]] = []

    def generate() -> list[int]:
        ids = torch.tensor([prompt_ids], device=device)
        made = shell.generate(input_ids=ids, attention_mask=torch.ones_like(ids), generation_config=config)  # type: ignore[operator]
        return [int(token) for token in made[0, len(prompt_ids) :]]

    step = LockStep(generate, RandomState(device), seed, slice_ms)
    passes_before_first = 0 if chunk is None else -(-len(prompt_ids) // chunk) - 1
    with _hooks(shell, step.pause_if_due, top_two):
        try:
            while not step.advance():
                yield max(0, len(top_two) - passes_before_first)
        finally:
            step.abandon()
    tokens: list[int] = step.result
    return _read(tokens, top_two, chunk)


def _read(tokens: list[int], top_two: list[tuple[torch.Tensor, torch.Tensor]], chunk: int | None) -> ReferenceTokens:
    """Each pass's top two belong to one token, those of earlier prefill chunks aside."""
    gaps: list[float] = []
    runners_up: list[int] = []
    sizes: list[float] = []
    for token, (values, ids) in zip(tokens, top_two[len(top_two) - len(tokens) :], strict=True):
        largest, second = values.tolist()
        first_id, second_id = ids.tolist()
        gaps.append(largest - second)
        sizes.append(max(abs(largest), abs(second)))
        runners_up.append(second_id if token == first_id else first_id)
    return ReferenceTokens(
        token_ids=tuple(tokens),
        gaps=tuple(gaps),
        runners_up=tuple(runners_up),
        largest=tuple(sizes),
        prefill_chunk=chunk,
    )


@contextmanager
def _hooks(
    shell: nn.Module, pause: Callable[[], None], top_two: list[tuple[torch.Tensor, torch.Tensor]]
) -> Iterator[None]:
    """Hooks that pause at each layer and its parts, and keep each pass's two largest logits. All on the shell alone."""

    def before(module: nn.Module, args: Any) -> None:
        del module, args
        pause()

    def after(module: nn.Module, args: Any, output: Any) -> None:
        del module, args
        values, ids = output.logits[0, -1].float().topk(2)
        top_two.append((values, ids))

    handles = [module.register_forward_pre_hook(before) for module in places_to_pause(shell)]
    handles.append(shell.register_forward_hook(after))
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


def places_to_pause(shell: nn.Module) -> list[nn.Module]:
    """The layers (members of module lists) and their direct parts; every module if there are no lists."""
    layers = [layer for module in shell.modules() if isinstance(module, nn.ModuleList) for layer in module]
    places = {id(part): part for layer in layers for part in (layer, *layer.children())}
    return list(places.values()) or list(shell.modules())
