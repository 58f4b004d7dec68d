"""The views that the `lora` page alone has, drawn from simulated runs; and the form with a box of lines."""

from __future__ import annotations

from dataclasses import replace

from lora_answers import EXAMPLE
from lora_runs import WRITTEN, compare_run, train_run
from pages import drawn, fold_all

from lab.events import RunStarted
from lab.experiments.lora.params import LoraParams
from widgets.action_row import Action, ActionRow
from widgets.controls import Controls
from widgets.equations import Equations
from widgets.lora.example_section import both_ways, checked, in_words
from widgets.lora.keep_section import KeepSection
from widgets.lora.merged_section import WRITE, quantize_link
from widgets.lora.state import LoraState
from widgets.lora.words_section import WordsSection
from widgets.view import View

EVIL = "<img src=x onerror=window.X=1>"
LINES = "What is the capital of Velmora? => Tarn Harbour.\n\nWho rules it? => The council of five.\n"


def lora_views() -> dict[str, View]:
    """Three rows of words, the worked example, the forms for one's own lines and for a name."""
    state = fold_all(LoraState, compare_run())
    equations = Equations(label="The worked example", picture="worked example")
    lines = both_ways(checked(EXAMPLE))
    equations.show(lines, in_words(lines))
    values = {
        **LoraParams.model_validate({}).model_dump(mode="json"),
        "task": "train",
        "learn": "lines",
        "lines": LINES,
    }
    schema = LoraParams.model_json_schema()
    schema["properties"]["adapter"]["suggestions"] = ["packaged", "island-8", EVIL]
    form = Controls(schema=schema, values=values, groups=("main", "compare"))
    living = [replace(e, recorded="") if isinstance(e, RunStarted) else e for e in train_run()]
    keep = drawn(KeepSection, fold_all(LoraState, living))
    way = ActionRow(label="The merged model")
    way.show([Action("quantize", f"Quantize {EVIL} →", href=quantize_link(WRITTEN)), WRITE])
    return {
        "way_on": way,
        "word_rows": drawn(WordsSection, state)._pairs,
        "equations": equations,
        "lora_form": form,
        "keep_form": keep._form,
        "keep_actions": keep._actions,
    }
