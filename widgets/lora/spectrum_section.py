"""How many directions does it use? The singular values of each update, and what is lost if only some are kept."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from lab.events.lora import AdapterFacts, UpdateSpectrum
from widgets.bar_table import Bar, BarRow, BarTable, Column
from widgets.choice import Choice, Slider, whole_slider
from widgets.data_table import DataTable
from widgets.experiment import Desk, Table
from widgets.figure import FigureRow
from widgets.format import format_bytes, typeset_share
from widgets.lora.spectrum_plot import SpectrumPlot
from widgets.lora.state import LoraState
from widgets.numbers import percent
from widgets.section import Section, heading, section
from widgets.shown import show_if
from widgets.text import Words
from widgets.token_text import plain_text

KEPT = "Singular values kept"


@dataclass(frozen=True)
class Spectra:
    """The spectrum's arrays as floats: `values` (module, rank), `errors` (module, rank + 1)."""

    titles: list[str]
    values: np.ndarray[Any, Any]
    errors: np.ndarray[Any, Any]

    @property
    def rank(self) -> int:
        """How many values there are."""
        return int(self.values.shape[1])

    def error(self, keep: int) -> float:
        """|ΔW - ΔW_k| / |ΔW| over all matrices together."""
        energy = (self.values.astype(float) ** 2).sum(axis=1)
        total = float(energy.sum())
        return float((((self.errors[:, keep].astype(float) ** 2) * energy).sum() / total) ** 0.5) if total > 0 else 0.0


def read_spectra(found: UpdateSpectrum) -> Spectra | None:
    """The arrays, if they fit one another and are all numbers."""
    values, errors = found.values.numpy(), found.kept_error.numpy()
    count = len(found.modules)
    fits = values.ndim == errors.ndim == 2 and len(values) == len(errors) == count > 0
    if not fits or errors.shape[1] != values.shape[1] + 1 or values.shape[1] < 1:
        return None
    if not (np.isfinite(values).all() and np.isfinite(errors).all()):
        return None
    titles = [f"layer {layer} {name}" if layer >= 0 else plain_text(name) for layer, name in found.modules]
    return Spectra(titles, values, errors)


class SpectrumSection(Section[LoraState]):
    """The values of one matrix before those of all, the slider, what is lost and what is saved.

    Attributes:
        keep: singular values; None is what the run kept, or half of them.
    """

    def __init__(self, desk: Desk) -> None:
        super().__init__(desk)
        self.keep: int | None = None
        self._adapter = Choice(desk, "Singular values of")
        self._matrix = Choice(desk, "Matrix")
        self._slider = Slider(desk, "keep", whole_slider(KEPT, 8), self._moved)
        self._words = Words(css_class="lab-caption")
        self._figures = FigureRow()
        self._plot = SpectrumPlot()
        self._worst = BarTable(label="What is lost, the worst matrices first", first="matrix", picture="truncated")
        self._caption = Words(css_class="lab-caption")
        self._table = DataTable(summary="Table of all singular values")
        self.widget = section(
            heading(
                "How many directions does it use?",
                "ΔW has at most as many singular values as the rank. Where they fall fast, a smaller rank would do: "
                "the best one of rank k keeps the k largest.",
            ),
            self._adapter.widget,
            self._matrix.widget,
            self._slider.widget,
            self._words,
            self._figures,
            self._plot,
            self._worst,
            self._caption,
            self._table,
        )

    @classmethod
    def present(cls, state: LoraState) -> bool:
        return bool(state.spectra)

    def _moved(self, value: float) -> None:
        self.keep = int(value)

    def reset(self) -> None:
        self.keep = None

    def render(self, state: LoraState, upto: int, *, live: bool) -> None:
        del upto
        names = list(state.spectra)
        name = names[self._adapter.show([plain_text(n) for n in names])]
        spectra = read_spectra(state.spectra[name])
        show_if(spectra, self._matrix.widget, self._slider.widget)
        show_if(spectra, self._figures, self._plot, self._worst, self._table)
        if spectra is None:
            self._words.say(("p", "There are no singular values to draw: the update holds what is no number."))
            self._caption.say()
            return
        self._words.say()
        at = self._matrix.show(spectra.titles)
        keep = self.keep if self.keep is not None else _usual(state, spectra.rank)
        keep = max(0, min(keep, spectra.rank))
        self._slider.show(whole_slider(KEPT, spectra.rank), keep)
        self._figures.show(kept_figures(spectra, keep, state.adapters.get(name)))
        values = [[float(v) for v in row] for row in spectra.values]
        self._plot.show(values, at, keep, spectra.titles[at])
        self._worst.show(
            worst_rows(spectra, keep),
            (Column("lost"),),
            most=1.0,
            empty="Nothing is lost: all are kept." if keep == spectra.rank else "",
        )
        self._caption.say(
            (
                "p",
                f"MEASURED: singular values of {spectra.titles[at]} in colour, of all others in grey. DERIVED: losses.",
            )
        )
        if not live:
            self._table.show(spectrum_table(name, spectra))

    def tables(self, state: LoraState) -> Sequence[Table]:
        found = [(name, read_spectra(event)) for name, event in state.spectra.items()]
        return [spectrum_table(name, spectra) for name, spectra in found if spectra]

    def link(self) -> dict[str, Any]:
        return {"keep": self.keep}

    def restore(self, settings: dict[str, Any]) -> None:
        wanted = settings.get("keep")
        if isinstance(wanted, int) and not isinstance(wanted, bool) and 0 <= wanted <= 1024:
            self.keep = wanted


def _usual(state: LoraState, rank: int) -> int:
    kept = state.param("keep_rank", 0)
    return kept if isinstance(kept, int) and 0 < kept <= rank else max(1, rank // 2)


def kept_figures(spectra: Spectra, keep: int, facts: AdapterFacts | None) -> list[dict[str, Any]]:
    """What is lost over all matrices, and what so few would take."""
    error = spectra.error(keep)
    share = keep / spectra.rank
    whole = facts is not None and facts.rank == spectra.rank
    parameters = round(facts.parameters * share) if facts and whole else None
    worst = int(np.argmax(spectra.errors[:, keep]))
    some = f"{keep} of {spectra.rank}"
    return [
        {
            "id": "kept_error",
            "value": percent(error),
            "unit": "of ΔW lost",
            "badge": "DERIVED",
            "note": f"{some} kept: |ΔW − ΔWₖ| / |ΔW|, all matrices",
            "title": "Root of the share of the squared singular values that is cut.",
        },
        {
            "id": "kept_parameters",
            "value": f"{parameters:,}" if parameters is not None else "",
            "unit": "are left",
            "badge": "DERIVED",
            "note": f"parameters: {typeset_share(share)}, {format_bytes(4 * parameters)} in fp32"
            if parameters is not None
            else "",
            "title": "A and B of rank k take k (in + out) numbers for each matrix.",
        },
        {
            "id": "kept_worst",
            "value": percent(float(spectra.errors[worst, keep])),
            "unit": "lost at worst",
            "badge": "DERIVED",
            "note": spectra.titles[worst] if spectra.errors[worst, keep] > 0 else "nothing is lost",
            "title": "The matrix that suffers most from so few singular values.",
        },
    ]


def worst_rows(spectra: Spectra, keep: int, most: int = 5) -> list[BarRow]:
    """The matrices that lose most; none where nothing is lost."""
    lost = spectra.errors[:, keep]
    order = [int(i) for i in np.argsort(-lost, kind="stable")[:most] if lost[i] > 1e-6]
    return [BarRow(spectra.titles[i], [Bar(float(lost[i]), 1)], [percent(float(lost[i]))]) for i in order]


def spectrum_table(name: str, spectra: Spectra) -> Table:
    """Every singular value, and what is lost without those after it."""
    rows = [
        [title, k + 1, _number(float(values[k])), _number(float(errors[k + 1]))]
        for title, values, errors in zip(spectra.titles, spectra.values, spectra.errors, strict=True)
        for k in range(spectra.rank)
    ]
    return Table(f"spectrum_{plain_text(name)}", ["matrix", "number", "singular value", "lost if cut after it"], rows)


def _number(value: float) -> float | None:
    return float(f"{value:.5g}") if math.isfinite(value) else None
