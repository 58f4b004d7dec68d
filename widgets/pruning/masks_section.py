"""Which weights stay? Masks as bitmaps, two side by side with their differences, checked for N:M, moved by a slider."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from lab.events.pruning import MaskMade
from widgets.asked import Asked
from widgets.bar_table import BarTable, Column
from widgets.choice import Choice, Slider, float_slider
from widgets.controls import Controls
from widgets.data_table import DataTable
from widgets.experiment import Desk, Table
from widgets.figure import FigureRow
from widgets.pruning.mask_bits import MaskBits, NmFound, check_nm
from widgets.pruning.mask_view import MaskView, Window
from widgets.pruning.masks_fields import ALONE, AXES, COLOURS, DEFAULTS, schema
from widgets.pruning.masks_words import caption, difference_rows, legend, mask_figures, nm_verdict, row_table
from widgets.pruning.questions import QUICK, mask_question, read_mask, read_values, values_question
from widgets.pruning.state import Matrix, PruningState, matrices
from widgets.section import Section, heading, section
from widgets.shown import show_if
from widgets.text import Words
from widgets.verdict import Verdict

_SLIDER = float_slider("Sparsity of the masks", 0.0, 1.0, 0.01, 0.5)


class MasksSection(Section[PruningState]):
    """The masks of one matrix.

    Attributes:
        values: of the form; see `masks_fields.DEFAULTS`.
        sparsity: that the slider was moved to; None is the run's own.
        window: the part on screen; None is all of it.
    """

    def __init__(self, desk: Desk) -> None:
        super().__init__(desk)
        self.values = dict(DEFAULTS)
        self.sparsity: float | None = None
        self.window: Window | None = None
        self._at: tuple[int, int, float] | None = None
        self._live = Asked(desk, "mask", read_mask)
        self._weights = Asked(desk, "values", read_values)
        self._choice = Choice(desk, "Masks of")
        self._controls = Controls(schema={"properties": {}})
        self._controls.add_class("lab-inline")
        self._controls.on_values(self._chosen)
        self._slider = Slider(desk, "sparsity", _SLIDER, self._moved)
        self._view = MaskView(label="Masks", picture="masks")
        self._view.on_window(self._windowed)
        self._legend = Words(css_class="lab-caption")
        self._figures = FigureRow()
        self._verdict = Verdict()
        self._others = BarTable(
            label="How many weights other methods choose differently", first="beside", picture="differences"
        )
        self._table = DataTable(summary="Table of all rows")
        self.widget = section(
            heading(
                "Which weights stay?",
                "Rows are outputs, columns inputs. Beside each matrix: the share of every row that goes.",
            ),
            self._choice.widget,
            self._controls,
            self._slider.widget,
            self._view,
            self._legend,
            self._figures,
            self._verdict,
            self._others,
            self._table,
        )

    def reset(self) -> None:
        self.sparsity, self.window = None, None
        self._live.clear()
        self._weights.clear()

    def _chosen(self, values: dict[str, Any]) -> None:
        with self._desk.lock:
            self.values.update(
                {key: value for key, value in values.items() if key in DEFAULTS and isinstance(value, str)}
            )
        self._desk.touch()

    def _moved(self, value: float) -> None:
        self.sparsity = min(1.0, max(0.0, value))

    def _windowed(self, window: Window) -> None:
        with self._desk.lock:
            self.window = None if window.whole else window
        self._desk.touch()

    def shown(self, state: PruningState, upto: int) -> tuple[Matrix | None, list[MaskMade]]:
        """The matrix on screen and the run's masks of it, its own method first."""
        masks = state.shown_masks(upto)
        found = matrices(masks)
        if not found:
            return None, []
        matrix = found[min(self._choice.index, len(found) - 1)]
        own = [m for m in masks if (m.layer, m.projection) == matrix]
        return matrix, sorted(own, key=lambda m: not m.chosen)

    def picked(self, masks: Sequence[MaskMade]) -> tuple[str, str]:
        """The methods of the first and of the second mask; "" for none."""
        names = [m.setting.method for m in masks]
        first = self.values["first"] if self.values["first"] in names else (names[0] if names else "")
        others = [name for name in names if name != first]
        wanted = self.values["second"]
        if wanted == ALONE:
            return first, ""
        return first, wanted if wanted in others else (others[0] if others else "")

    def _mask(self, state: PruningState, matrix: Matrix, made: MaskMade | None) -> MaskBits | None:
        """A mask as the slider has it, where its method is quick; else the run's."""
        if made is None:
            return None
        run = MaskBits.of(made)
        if self.sparsity is None or made.setting.method not in QUICK or made.setting.pattern:
            return run
        scope = made.setting.scope if made.setting.scope in ("matrix", "row") else "matrix"
        asked = mask_question(matrix, made.setting.method, self.sparsity, scope=scope, seed=int(state.param("seed", 0)))
        found = self._live.ask(asked)
        if found is None and not self._live.why_not(asked):  # on its way: what was there stays
            last = self._live.last
            same = last is not None and run is not None and (last.rows, last.columns) == (run.rows, run.columns)
            return last if same and last is not None and last.method == made.setting.method else run
        return found or run

    def render(self, state: PruningState, upto: int, *, live: bool) -> None:
        all_masks = state.shown_masks(upto)
        self._choice.show([m.title for m in matrices(all_masks)])
        matrix, made = self.shown(state, upto)
        first_name, second_name = self.picked(made)
        by_name = {m.setting.method: m for m in made}
        first = self._mask(state, matrix, by_name.get(first_name)) if matrix else None
        second = self._mask(state, matrix, by_name.get(second_name)) if matrix and first else None
        if first is not None and second is not None and (first.rows, first.columns) != (second.rows, second.columns):
            second = None
        self._form(made, first_name, second_name)
        refused, slides = self._slide(state, matrix, [by_name[n] for n in (first_name, second_name) if n in by_name])
        found = self._check(first)
        values, no_values = self._values(matrix)
        self._view.show(
            first,
            second,
            groups=found.marked if found else (),
            values=values,
            colour=self.values["colour"] if self.values["colour"] in COLOURS else "mask",
            at=self._at,
            label=f"Masks of {matrix.title}" if matrix else "Masks",
            empty="The first mask is on its way." if live else "No mask was made, or it cannot be drawn.",
        )
        self._legend.legend(legend(first, second, self.values["colour"]))
        self._legend.say(*(("p", words) for words in caption(first, by_name.get(first_name), refused, no_values)))
        self._figures.show(mask_figures(first, second))
        self._verdict.show(*nm_verdict(found))
        rows = [mask for m in made if m.setting.method != first_name and (mask := self._still(m, second))]
        self._others.show(difference_rows(first, rows), (Column("differ"), Column("only it"), Column("only the first")))
        show_if(made, self._controls)
        show_if(slides, self._slider.widget)
        if not live:
            self._table.show(row_table(matrix, [MaskBits.of(m) for m in made]))

    def _still(self, made: MaskMade, second: MaskBits | None) -> MaskBits | None:
        """A mask for the table of differences: the second one as it is on screen, the others as the run made them."""
        return second if second is not None and second.method == made.setting.method else MaskBits.of(made)

    def _form(self, made: Sequence[MaskMade], first: str, second: str) -> None:
        check = self.values["check"]
        fields = schema([(m.setting.method, m.setting.label) for m in made], check=check)
        values = {**self.values, "first": first, "second": second or ALONE}
        self._controls.update(schema=fields, values={k: v for k, v in values.items() if k in fields["properties"]})

    def _slide(self, state: PruningState, matrix: Matrix | None, shown: Sequence[MaskMade]) -> tuple[str, bool]:
        """The slider: why it does not answer, and whether a mask on screen can follow it at all."""
        quick = [m for m in shown if m.setting.method in QUICK and not m.setting.pattern]
        if not quick or matrix is None:
            return "", False
        self._slider.show(_SLIDER, quick[0].setting.sparsity if self.sparsity is None else self.sparsity)
        if self.sparsity is None:
            return "", True
        for made in quick:
            asked = mask_question(
                matrix, made.setting.method, self.sparsity, scope=made.setting.scope, seed=int(state.param("seed", 0))
            )
            if why := self._live.why_not(asked):
                return f"The slider moves nothing: {why}", True
        still = [m.setting.label for m in shown if m not in quick]
        return (f"{still[0]} reads text: it stays as the run made it." if still else ""), True

    def _check(self, first: MaskBits | None) -> NmFound | None:
        n, _, m = self.values["check"].partition(":")
        if first is None or not (n.isdecimal() and m.isdecimal()) or not 0 < int(n) < int(m) <= 64:
            return None
        return check_nm(first, int(n), int(m), self.values["along"] if self.values["along"] in AXES else "in")

    def _values(self, matrix: Matrix | None) -> tuple[Any, str]:
        """The weights of the part on screen, and why there are none."""
        if matrix is None or self.values["colour"] != "value":
            return None, ""
        if self.window is None or not self.window.small:
            return None, "Zoom in to see values: at most 256 by 256 weights at a time."
        asked = values_question(matrix, self.window)
        return self._weights.ask(asked) or self._weights.last, self._weights.why_not(asked)

    def tables(self, state: PruningState) -> Sequence[Table]:
        _, made = self.shown(state, len(state.masks))
        masks = [MaskBits.of(m) for m in made]
        matrix = Matrix(made[0].layer, made[0].projection) if made else None
        return (row_table(matrix, masks),)

    def link(self) -> dict[str, Any]:
        at = self.window
        kept: dict[str, Any] = {f"mask_{k}": None if v == DEFAULTS[k] else v for k, v in self.values.items()}
        kept["mask_at"] = f"{at.row},{at.column},{at.scale:g}" if at else None
        kept["mask_sparsity"] = None if self.sparsity is None else round(self.sparsity, 4)
        return kept

    def restore(self, settings: dict[str, Any]) -> None:
        for key in DEFAULTS:
            value = settings.get(f"mask_{key}")
            if isinstance(value, str) and len(value) < 40:
                self.values[key] = value
        parts = str(settings.get("mask_at", "")).split(",")
        if len(parts) == 3 and parts[0].isdecimal() and parts[1].isdecimal():
            scale = float(parts[2]) if parts[2].replace(".", "", 1).isdecimal() else 0.0
            if 0 < scale < 1000:
                self._at = int(parts[0]), int(parts[1]), scale
        wanted = settings.get("mask_sparsity")
        if isinstance(wanted, int | float) and not isinstance(wanted, bool) and 0 <= wanted <= 1:
            self.sparsity = float(wanted)
