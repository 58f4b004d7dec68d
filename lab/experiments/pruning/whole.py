"""The whole model pruned one way, on a shell, with what the proof needs of each matrix."""

from __future__ import annotations

from time import perf_counter

from torch import Tensor

from lab.calibration.gather import Calibration
from lab.events.pruning import LayersPruned, PrunedCoverage, PrunedRow, SparsityCell
from lab.experiments.compared.progress import Made, shares
from lab.experiments.compared.targets import Target
from lab.experiments.pruning.mistakes import misalign
from lab.experiments.pruning.pruned import Whole
from lab.experiments.pruning.rows_check import checking_rows
from lab.experiments.pruning.settings import Scheme
from lab.experiments.pruning.setup import Setup
from lab.experiments.pruning.stored import KeptCounts
from lab.experiments.pruning.whole_check import checking
from lab.models.linear import out_in
from lab.pruning.mask_bits import kept_per_row
from lab.pruning.method import Method
from lab.pruning.rows import choosing_rows, masking_rows
from lab.pruning.rows_model import building_smaller
from lab.pruning.whole_model import GlobalMagnitude, ModuleResult, WholeModel, pruning
from lab.steps import relay


def pruning_model(
    setup: Setup,
    scheme: Scheme,
    windows: list[list[int]],
    stage: str,
    *,
    part: float = 1.0,
    tell: bool = False,
) -> Made[Whole]:
    """Prune all matrices of the decoder layers, pausing as the method does.

    Args:
        windows: the calibration text, for methods that learn from it.
        part: of the stage, which it begins; see `shares`.
        tell: yield `LayersPruned` after each layer, of what is done.
    """
    say = shares(stage, part=part)
    if scheme.method == "rows":
        removed = yield from _removing_rows(setup, scheme, windows, stage, part)
        if tell:
            yield layers_pruned(setup, removed)
        return removed
    each: GlobalMagnitude | dict[str, Method] = (
        GlobalMagnitude(scheme.sparsity)
        if scheme.method == "global_magnitude"
        else {target.name: scheme.make(target.name) for target in setup.targets}
    )
    names = [target.name for target in setup.targets]
    # The inputs that Wanda saw are those of the dense model: so can the proof compute its choice once more.
    calibration: Calibration = "one_shot" if scheme.method == "wanda" else "sequential"
    named = {target.name: target for target in setup.targets}
    cells: list[SparsityCell] = []
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
        if tell and step.finished is not None:
            cell = _cell(named[step.finished.name], step.finished)
            if cells and cells[0].layer != cell.layer:
                yield LayersPruned(setting=scheme.setting, cells=tuple(cells))
                cells = []
            cells.append(cell)
        yield say(step.share)
    if cells:
        yield LayersPruned(setting=scheme.setting, cells=tuple(cells))
    whole = Whole(made.shell, scheme, {one.name: one for one in made.modules}, ms=took * 1e3)
    yield from checking(setup, whole, windows)
    return whole


def _removing_rows(setup: Setup, scheme: Scheme, windows: list[list[int]], stage: str, part: float) -> Made[Whole]:
    began = perf_counter()
    if scheme.sparsity == 0:
        return Whole(setup.model, scheme)
    say = shares(stage, part=part)
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
    if setup.params.break_run != "nothing":
        misalign(smaller.model, rows)
    whole = Whole(shell, scheme, smaller=smaller, rows=rows, ms=(perf_counter() - began) * 1e3)
    yield from checking_rows(setup, whole, windows)
    return whole


def removable(setup: Setup, sparsity: float) -> tuple[float, int]:
    """The share of the channels and the query heads of each group that go, for about `sparsity` of the weights."""
    facts = setup.loaded.facts
    group = facts.query_heads // max(facts.kv_heads, 1)
    heads = min(group - 1, round(sparsity * group)) if group > 1 else 0
    return min(sparsity, 0.95), heads


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
