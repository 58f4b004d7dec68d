"""Three errors together: of the weights, of the layer's outputs, of the whole model."""

from __future__ import annotations

from collections.abc import Sequence

from lab.events import RunFinished
from lab.events.quantization import LayerErrors, ModelErrors
from widgets.data_table import DataTable
from widgets.experiment import Desk, Table
from widgets.figure import FigureRow
from widgets.quantization.errors_plot import COLOURS, MOST, SIGNS, ErrorsPlot, base_words
from widgets.quantization.figures import error_figures
from widgets.quantization.state import NAMING, QuantizationState
from widgets.quantization.tables import layer_table, model_table
from widgets.section import Section, heading, section
from widgets.text import Words
from widgets.verdict import Verdict


class ErrorsSection(Section[QuantizationState]):
    """Figures of the run's own setting, all settings as lines, and where the errors disagree."""

    def __init__(self, desk: Desk) -> None:
        super().__init__(desk)
        self._figures = FigureRow()
        self._verdict = Verdict()
        self._plot = ErrorsPlot()
        self._legend = Words(css_class="lab-caption")
        self._layers, self._models = DataTable(summary="Errors of the layer"), DataTable(summary="Errors of the model")
        self.widget = section(
            heading(
                "Three errors together",
                "How far the weights moved, how far the layer's output moved on text, and how far the predictions of "
                "the whole model moved on held-out text.",
            ),
            self._figures,
            self._verdict,
            self._plot,
            self._legend,
            self._layers,
            self._models,
        )

    @classmethod
    def present(cls, state: QuantizationState) -> bool:
        """From the first error of an output on."""
        return bool(state.layer_errors or state.model_errors)

    def render(self, state: QuantizationState, upto: int, *, live: bool) -> None:
        """Draw what is measured so far."""
        del upto
        self._figures.show(error_figures(state))
        tone, text, notes = agreement(state, live=live)
        self._verdict.show(tone, text, *notes)
        settings = own_first(state)
        labels = [e.setting.label for e in settings]
        self._plot.show(settings, labels)
        self._legend.legend([(f"{SIGNS[i]} {label}", COLOURS[i], i > 0) for i, label in enumerate(labels)])
        scope = f" Quantized: {settings[0].scope}." if settings else ""
        words = f"MEASURED. Lower is better; where two lines cross, the errors disagree.{scope} {base_words(settings)}"
        self._legend.say(("p", words.strip()))
        if not live:
            self._layers.show(layer_table(state), caption="Errors of the layer at every setting")
            self._models.show(model_table(state), caption="Errors of the model at every setting")

    def tables(self, state: QuantizationState) -> list[Table]:
        """All errors."""
        return [layer_table(state), model_table(state)]


def own_first(state: QuantizationState) -> list[ModelErrors]:
    """The settings measured on the whole model, the run's own first, at most as many as have a colour."""
    own = state.setting
    ranked = sorted(state.model_errors, key=lambda e: e.setting != own)
    return ranked[:MOST]


def chosen_errors(state: QuantizationState) -> list[LayerErrors]:
    """Of the run's own setting, for each matrix."""
    return [e for e in state.layer_errors if e.setting == state.setting]


def agreement(state: QuantizationState, *, live: bool) -> tuple[str, str, Sequence[str]]:
    """Tone, finding and notes: whether the errors rank all settings alike."""
    if state.rankings:
        note = state.rankings[-1]
        first, second = (", ".join(map(_named, names)) for names in (note.better_first, note.better_second))
        return "even", f"The errors disagree: {first} against {second}", [_named(r.words) for r in state.rankings]
    if len(state.model_errors) < 2:
        return "none", "", []
    if live and state.end is None:
        return "pending", "The errors agree so far", []
    if not isinstance(state.end, RunFinished):
        return "none", "The run ended before all settings were compared", []
    return "good", "Weight error, output error and the model's own error rank these settings alike", []


def _named(words: str) -> str:
    """The divergence under the name that it has everywhere on the page; events may say "KL divergence"."""
    return words.replace("KL divergence", NAMING.kl)
