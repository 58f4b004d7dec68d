"""The whole model pruned one way, on a shell, with what the proof needs of each matrix."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from time import perf_counter

from torch import Tensor, nn

from lab.calibration.gather import Calibration, calibrating
from lab.events.pruning import LayersPruned, PrunedCoverage, PrunedRow, SparsityCell
from lab.experiments.compared.progress import Made, shares
from lab.experiments.compared.targets import Target, put
from lab.experiments.pruning.mistakes import broken
from lab.experiments.pruning.settings import Scheme
from lab.experiments.pruning.setup import Setup
from lab.experiments.pruning.stored import KeptCounts
from lab.models.linear import out_in
from lab.pruning.mask_bits import kept_per_row
from lab.pruning.method import Method
from lab.pruning.rows import Rows, choosing_rows, masking_rows
from lab.pruning.rows_model import SmallerModel, building_smaller
from lab.pruning.whole_model import GlobalMagnitude, ModuleResult, WholeModel, pruning
from lab.steps import relay


@dataclass
class Whole:
    """A pruned model.

    Attributes:
        shell: runs as the pruned model would; all else is shared with the dense model.
        modules: what became of each matrix, by name; none where rows were removed.
        smaller: the smaller dense model, where rows were removed.
        rows: what was removed of each layer, where rows were removed.
        ms: of the method's own slices.
    """

    shell: nn.Module
    scheme: Scheme
    modules: dict[str, ModuleResult] = field(default_factory=dict)
    smaller: SmallerModel | None = None
    rows: Rows | None = None
    ms: float = 0.0

    @property
    def sparsity(self) -> float:
        """Of the pruned matrices, counted."""
        if self.smaller is not None:
            return 1 - self.smaller.multiplied / self.smaller.multiplied_before
        weights = sum(one.weights for one in self.modules.values())
        return 1 - sum(one.kept for one in self.modules.values()) / weights if weights else 0.0

    def masks(self) -> dict[str, Tensor]:
        """(out, in) bool by name."""
        return {name: mask for name, one in self.modules.items() if (mask := one.mask) is not None}


def pruning_model(
    setup: Setup,
    scheme: Scheme,
    windows: list[list[int]],
    stage: str,
    *,
    done: float = 0.0,
    total: float = 1.0,
    part: float = 1.0,
) -> Made[Whole]:
    """Prune all matrices of the decoder layers, pausing as the method does.

    Args:
        windows: the calibration text, for methods that learn from it.
        done, total, part: of the progress bar, see `shares`.
    """
    say = shares(stage, done, total, part)
    if scheme.method == "rows":
        return (yield from _removing_rows(setup, scheme, windows, stage, done, total, part))
    each: GlobalMagnitude | dict[str, Method] = (
        GlobalMagnitude(scheme.sparsity)
        if scheme.method == "global_magnitude"
        else {target.name: scheme.make(target.name) for target in setup.targets}
    )
    names = [target.name for target in setup.targets]
    # The inputs that Wanda saw are those of the dense model: so can the proof compute its choice once more.
    calibration: Calibration = "one_shot" if scheme.method == "wanda" else "sequential"
    took = 0.0
    work = pruning(
        setup.model,
        each,
        windows=windows if scheme.calibrated else None,
        calibration=calibration,
        names=names if isinstance(each, GlobalMagnitude) else None,
        keep_inputs=128,
    )

    while True:
        began = perf_counter()
        try:
            step = next(work)
        except StopIteration as end:
            took += perf_counter() - began
            made: WholeModel = end.value
            break
        took += perf_counter() - began
        yield say(step.share)
    whole = Whole(made.shell, scheme, {one.name: one for one in made.modules}, ms=took * 1e3)
    yield from _check(setup, whole, windows)
    return whole


def _removing_rows(
    setup: Setup, scheme: Scheme, windows: list[list[int]], stage: str, done: float, total: float, part: float
) -> Made[Whole]:
    began = perf_counter()
    if scheme.sparsity == 0:
        return Whole(setup.model, scheme)
    say = shares(stage, done, total, part)
    wanted = removable(setup, scheme.sparsity)
    choosing = choosing_rows(
        setup.model,
        channels=wanted[0],
        heads=wanted[1],
        score="wanda" if windows else "magnitude",
        windows=windows or None,
    )
    rows = yield from relay(choosing, lambda share: say(0.7 * share))
    smaller = yield from relay(building_smaller(setup.model, rows), lambda share: say(0.7 + 0.2 * share))
    shell = yield from relay(masking_rows(setup.model, rows), lambda share: say(0.9 + 0.1 * share))
    whole = Whole(shell, scheme, smaller=smaller, rows=rows, ms=(perf_counter() - began) * 1e3)
    yield from _check_rows(setup, whole)
    return whole


def removable(setup: Setup, sparsity: float) -> tuple[float, int]:
    """The share of the channels and the query heads of each group that go, for about `sparsity` of the weights."""
    facts = setup.loaded.facts
    group = facts.query_heads // max(facts.kv_heads, 1)
    heads = min(group - 1, round(sparsity * group)) if group > 1 else 0
    return min(sparsity, 0.95), heads


def _check(setup: Setup, whole: Whole, windows: list[list[int]]) -> Made[None]:
    """Sample every matrix for the proof, with the run's mistake in what runs."""
    scheme, mistake = whole.scheme, setup.params.break_run
    squares: Mapping[str, Tensor] = {}
    if scheme.method == "wanda":
        few = setup.targets[:: max(1, len(setup.targets) // 14)]
        reading = calibrating(setup.model, windows, [target.name for target in few], hessian=False, keep=0)
        inputs = yield from relay(reading, shares("reading the calibration text once more"))
        squares = {name: one.mean_square for name, one in inputs.items()}
    for target in setup.targets:
        one = whole.modules.get(target.name)
        mask = None if one is None else one.mask
        if mask is None:
            continue
        weight, before = target.weight, out_in(whole.shell.get_submodule(target.name))
        told, wrong = broken(mask, before, weight, scheme, mistake)
        runs = before if mistake == "nothing" else wrong.to(before.dtype)
        if mistake != "nothing" and setup.params.task != "recover":  # a fine-tune starts from weights that fit the mask
            put(whole.shell, target, wrong)
        values = before if scheme.method == "sparsegpt" else weight.masked_fill(~mask, 0.0)
        sample = setup.checked.take(target.title, scheme, weight, told, values, squares.get(target.name), count=2)
        setup.checked.settle(sample, runs)
        yield None


def _check_rows(setup: Setup, whole: Whole) -> Made[None]:
    """The masked model's columns that read what went are zero, and the others the dense model's own."""
    for target in setup.targets:
        runs, dense = out_in(whole.shell.get_submodule(target.name)), target.weight
        gone = (runs != dense).any(dim=0)
        wrong = "" if not bool(gone.any()) or not bool(runs[:, gone].any()) else "a column was changed, not removed"
        setup.checked.note(target.title, wrong)
        yield None
    setup.checked.matrices += len(setup.targets)
    setup.checked.methods.add("rows")


def layers_pruned(setup: Setup, whole: Whole) -> LayersPruned:
    """Every matrix's cell of the map."""
    cells = []
    for target in setup.targets:
        one = whole.modules.get(target.name)
        if one is not None:
            cells.append(_cell(target, one))
        elif whole.smaller is not None:
            before = target.weight
            after = whole.smaller.model.get_submodule(target.name)
            cells.append(
                SparsityCell(
                    target.layer, target.projection, before.numel(), out_in(after).numel(), float("nan"), float("nan")
                )
            )
    return LayersPruned(setting=whole.scheme.setting, cells=tuple(cells))


def _cell(target: Target, one: ModuleResult) -> SparsityCell:
    error = float("nan") if one.output_error is None else one.output_error
    return SparsityCell(target.layer, target.projection, one.weights, one.kept, one.weight_error, error)


def covered(setup: Setup, whole: Whole) -> PrunedCoverage:
    """What was pruned, what was not and why."""
    kinds: dict[str, list[tuple[int, int]]] = {}
    named = {cell_name: (cell.weights, cell.kept) for cell_name, cell in _named(setup, whole)}
    rest: dict[str, list[int]] = {}
    seen: set[int] = set()
    for name, parameter in setup.model.named_parameters():
        if id(parameter) in seen:
            continue
        seen.add(id(parameter))
        module = name.rpartition(".")[0]
        if module in named and parameter.dim() == 2:
            target = next(t for t in setup.targets if t.name == module)
            kinds.setdefault(target.projection, []).append(named[module])
        else:
            rest.setdefault(_kind(setup, parameter, name), []).append(parameter.numel())
    rows = [
        PrunedRow(name, len(found), sum(w for w, _ in found), sum(k for _, k in found), "")
        for name, found in kinds.items()
    ]
    rows += [PrunedRow(name, len(sizes), sum(sizes), sum(sizes), _WHY[name]) for name, sizes in rest.items()]
    return PrunedCoverage(
        setting=whole.scheme.setting,
        truth="dense, smaller" if whole.smaller is not None else "simulated",
        parameters=sum(row.parameters for row in rows),
        pruned=sum(row.parameters - row.kept for row in rows),
        rows=tuple(rows),
    )


_WHY = {
    "embedding": "rows are looked up, and a token must keep its row",
    "head": "its errors would go straight into the logits",
    "norms": "vectors: few, and each scales a whole channel",
    "biases": "vectors: few",
    "not chosen": "it was left dense in this run",
}


def _kind(setup: Setup, parameter: Tensor, name: str) -> str:
    embedding = getattr(setup.model, "get_input_embeddings", lambda: None)()
    if embedding is not None and parameter is embedding.weight:
        return "embedding"
    if parameter.dim() == 1:
        return "biases" if name.endswith("bias") else "norms"
    head = getattr(setup.model, "get_output_embeddings", lambda: None)()
    return "head" if head is not None and parameter is head.weight else "not chosen"


def _named(setup: Setup, whole: Whole) -> list[tuple[str, SparsityCell]]:
    titles = {(t.layer, t.projection): t.name for t in setup.targets}
    return [(titles[cell.layer, cell.projection], cell) for cell in layers_pruned(setup, whole).cells]


def kept_counts(setup: Setup, whole: Whole) -> list[KeptCounts]:
    """Of every pruned matrix, what storage needs."""
    found = []
    for target in setup.targets:
        one = whole.modules.get(target.name)
        rows, columns = target.weight.shape
        if one is not None and one.bits is not None:
            kept_rows = int((kept_per_row(one.bits) > 0).sum())
            found.append(KeptCounts(target.name, rows, columns, one.kept, kept_rows))
        elif whole.smaller is not None:
            left = out_in(whole.smaller.model.get_submodule(target.name))
            found.append(KeptCounts(target.name, rows, columns, left.numel(), rows))
    return found
