"""The task "packed": int8 and int4 kernels run the whole model, beside the dense one, step by step in one run."""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass, field
from itertools import count

from torch import nn

from lab.decoding.loop import Step
from lab.errors import BadInput, ModelError
from lab.events.quantization import Setting
from lab.events.quantization_words import PackedFigures, PackedToken
from lab.events.words import Variant
from lab.experiments.base import Outcome, RunGenerator
from lab.experiments.compared.finding import Finding
from lab.experiments.compared.progress import Made, Part, shares
from lab.experiments.compared.race import Racer, race
from lab.experiments.compared.spoken_proof import against_generate
from lab.experiments.quantization.coverage import covered
from lab.experiments.quantization.packed_file import write_and_load
from lab.experiments.quantization.packed_proof import against_dequantized, check_codes, repacked
from lab.experiments.quantization.proof import proving
from lab.experiments.quantization.setup import Setup
from lab.experiments.reading import read_prompt
from lab.models.prompts import TextStream, text_of
from lab.quantization.packed.int4 import GROUP_SIZES
from lab.quantization.packed.modules import PackedLinear
from lab.quantization.packed.pack import DEFAULT_GROUP, Bits, Packed, packing
from lab.quantization.quantized import Storage
from lab.steps import relay


@dataclass
class Runner(Racer):
    """One variant and how far it is."""

    label: str = ""
    packed: Packed | None = None
    disk_bytes: int = 0
    reloaded: bool | None = None
    resident_bytes: int = 0


@dataclass
class PackedRun:
    """One run of the task."""

    setup: Setup
    runners: list[Runner] = field(default_factory=list)
    skipped: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.loaded, self.params = self.setup.loaded, self.setup.params
        if self.loaded.device.type != "cpu":
            raise ModelError(
                f"Packed kernels run on the CPU only; this model is on {self.loaded.device}.",
                remedy="Load it on the CPU.",
            )

    def events(self) -> RunGenerator:
        """All events of the run."""
        setup = self.setup
        stream = TextStream(self.loaded.tokenizer)
        prompt = yield from read_prompt(self.loaded, self.params, stream)
        yield from setup.begin()
        yield from self._pack()
        texts = yield from self._race(prompt, stream)
        for runner in self.runners:
            yield self._figures(runner, len(prompt))
        findings: list[Finding] = []
        for runner in self.runners[1:]:
            if runner.packed is not None:
                yield from check_codes(setup, runner.name, runner.packed)
                findings.append((yield from against_dequantized(setup, runner.name, runner.packed, prompt)))
        dense = self.runners[0]
        limit = self.params.max_new_tokens
        findings.append((yield from against_generate(self.loaded, prompt, dense.token_ids, limit)))
        yield from proving(setup, tuple(findings))
        return Outcome(token_ids=tuple(dense.token_ids), text=texts)

    def _pack(self) -> Part:
        """The variants, each written to disk and loaded again."""
        dense = Runner("dense", self.setup.model, label="dense", resident_bytes=_bytes(self.setup.model))
        self.runners.append(dense)
        yield Variant(name="dense", label="dense", truth="dense")
        group = self._group()
        wanted: tuple[tuple[str, str, Bits, bool], ...] = (
            ("int8", "int8, one scale a row", 8, True),
            ("int8_dense_head", "int8, the head dense", 8, False),
            ("int4", f"int4, groups of {group}", 4, True),
            ("int4_dense_head", f"int4, groups of {group}, the head dense", 4, False),
        )
        for number, (name, label, bits, head) in enumerate(wanted):
            made = yield from self._packed(bits, group, head, label, number, len(wanted))
            if isinstance(made, str):
                yield Variant(name=name, label=label, truth="packed", notes=(f"Left out: {made}",))
                continue
            runner = Runner(name, made.shell, label=label, packed=made)
            notes = tuple(f"{module} is not packed: {why}." for module, why in made.skipped[:4])
            if bits == 4 and str(group) != self.params.group_size:
                sizes = ", ".join(str(size) for size in GROUP_SIZES)
                notes += (
                    f"Groups of {group}, not {self.params.group_size!r}: the int4 kernel has groups of {sizes} only.",
                )
            yield Variant(name=name, label=label, truth="packed", notes=notes)
            runner.resident_bytes = _dense_bytes(made.shell) + made.resident_bytes
            runner.disk_bytes, runner.reloaded = yield from write_and_load(made.shell, name)
            self.runners.append(runner)
            yield covered(
                self.setup,
                Setting(
                    "packed",
                    label,
                    bits,
                    "absmax" if bits == 8 else "float_minimum",
                    "row" if bits == 8 else str(group),
                ),
                _storage(made.shell),
                truth="packed",
                reasons=dict(made.skipped),
            )
        if len(self.runners) == 1:
            raise BadInput("No packed kernel fits this model.", remedy="Choose another model.")

    def _packed(self, bits: Bits, group: int, head: bool, label: str, number: int, total: int) -> Made[Packed | str]:
        work = packing(self.setup.model, bits, group_size=group, head=head)
        done, all_of_them = count(1), len(self.setup.targets) + 1
        stage = shares(f"packing: {label}", number, total)
        try:
            made = yield from relay(work, lambda _: stage(min(1.0, next(done) / all_of_them)))
        except BadInput as error:
            return error.message
        if self.params.break_run != "nothing":
            yield from repacked(made.shell, self.params.break_run)
        return made

    def _group(self) -> int:
        size = self.params.group_size
        return int(size) if size.isdigit() and int(size) in GROUP_SIZES else DEFAULT_GROUP

    def _race(self, prompt: list[int], stream: TextStream) -> Made[str]:
        """All variants take turns, a step each. The dense row's text."""
        streams = {runner.name: stream.branch() for runner in self.runners}
        texts: list[str] = []

        def told(runner: Runner, step: Step) -> PackedToken:
            token = self._token(runner, step, streams[runner.name])
            if runner is self.runners[0]:
                texts.append(token.text)
            return token

        ends = self.loaded.end_token_ids
        yield from race(self.runners, prompt, self.params.max_new_tokens, ends=lambda _: ends, told=told)
        return "".join(texts)

    def _token(self, runner: Runner, step: Step, words: TextStream) -> PackedToken:
        dense = self.runners[0].token_ids
        is_end = step.token_id in self.loaded.end_token_ids
        text = words.add(step.token_id)
        if is_end or len(runner.token_ids) >= self.params.max_new_tokens:
            text += words.finish()
        return PackedToken(
            variant=runner.name,
            index=step.index,
            token_id=step.token_id,
            text=text,
            ms=step.ms,
            matched=step.index < len(dense) and dense[step.index] == step.token_id,
            is_end=is_end,
        )

    def _figures(self, runner: Runner, prompt_tokens: int) -> PackedFigures:
        dense = self.runners[0]
        ours, theirs = runner.token_ids, dense.token_ids
        parted = next((i for i, (a, b) in enumerate(zip(ours, theirs, strict=False)) if a != b), None)
        equal = min(len(ours), len(theirs)) if parted is None else parted
        difference = ""
        if parted is not None:
            mine, other = (text_of(self.loaded.tokenizer, row[parted]) for row in (ours, theirs))
            difference = f"At new token {parted + 1}: {mine!r}, dense {other!r}."
        elif len(ours) != len(theirs):
            difference = f"After {equal} equal tokens one row ended and the other went on."
        decode_ms = runner.decode_ms
        return PackedFigures(
            variant=runner.name,
            disk_bytes=runner.disk_bytes,
            reloaded=runner.reloaded,
            resident_bytes=runner.resident_bytes,
            decode_ms=decode_ms,
            tokens_per_s=1000 / decode_ms,
            prefill_ms=runner.prefill_ms,
            prompt_tokens=prompt_tokens,
            speedup=dense.decode_ms / decode_ms,
            prefill_speedup=dense.prefill_ms / runner.prefill_ms if runner.prefill_ms else float("nan"),
            steps=len(runner.step_ms),
            equal=equal,
            of=max(len(ours), len(theirs)),
            difference=difference,
        )


def _storage(shell: nn.Module) -> dict[str, Storage]:
    found = {}
    for name, module in shell.named_modules():
        if isinstance(module, PackedLinear):
            weight = module.weight_codes
            weights = weight.shape[0] * weight.shape[1]
            codes = weight.bits * weights
            found[name] = Storage(weights=weights, code_bits=codes, scale_bits=8 * weight.bytes - codes)
    return found


def _bytes(model: nn.Module) -> int:
    return sum(p.numel() * p.element_size() for p in {id(p): p for p in model.parameters()}.values())


def _dense_bytes(shell: nn.Module) -> int:
    """Of the parameters that a packed shell still has: a packed module has none but its codes."""
    return _bytes(shell)


def run_packed(setup: Setup) -> RunGenerator:
    """Yield the events of the task."""
    run = PackedRun(setup)
    with closing(run.events()) as events:
        return (yield from events)
