"""What a page knows beside its run: the controls' values, the chosen model, and what the backend told of both."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from lab.backend.protocol import DEFAULT_MODEL
from lab.events import ModelFacts


def offered_model(model: str, models: Sequence[ModelFacts]) -> str:
    """`model`, or the first one of a hosted lab that does not offer the default that nobody chose."""
    asked = model == DEFAULT_MODEL and models and all(facts.id != DEFAULT_MODEL for facts in models)
    return models[0].id if asked else model


@dataclass
class PageState:
    """The state of one page; the pump's lock guards it.

    Attributes:
        schema: of the parameters, narrowed to the chosen model once the backend has answered.
        params: the controls' values by name, JSON.
        model: the id of the chosen model.
        models: names for the menu by id.
        found: the models that the backend knows; None before it has answered.
        facts: of the chosen model, where the backend knows it.
        joined: whether the backend has answered.
        last_params: of the last run; None before the first, and after another model was chosen.
        autorun: start a live run as soon as the backend answers, and when a link brings other parameters.
        replay: a recording was chosen, whose answers go before the backend's.
        playing: the player plays.
    """

    schema: dict[str, Any]
    params: dict[str, Any]
    model: str = DEFAULT_MODEL
    models: dict[str, str] = field(default_factory=lambda: {DEFAULT_MODEL: "SmolLM2-135M-Instruct"})
    found: list[ModelFacts] | None = None
    facts: ModelFacts | None = None
    joined: bool = False
    last_params: dict[str, Any] | None = None
    autorun: bool = True
    replay: bool = False
    playing: bool = False

    def change(self, values: Mapping[str, Any]) -> None:
        """Take new values of parameters; names that the experiment does not have are left out."""
        self.params = {**self.params, **{name: value for name, value in values.items() if name in self.params}}

    def run(self) -> tuple[dict[str, Any], str, bool]:
        """A run begins: its parameters, its model, and whether the last run had the same ones.

        A name to keep something under is used once: it is taken now.
        """
        params, again = dict(self.params), self.params == self.last_params
        self.last_params = params
        self.params |= {name: "" for name, f in self.schema["properties"].items() if f.get("names") == "kept"}
        self.playing = False
        return params, self.model, again

    def choose(self, model: str) -> None:
        """Another model: no run was made with it yet."""
        self.model, self.last_params = model, None

    def learn(self, models: Sequence[ModelFacts], schema: dict[str, Any] | None) -> None:
        """The backend answered: its models, and the schema of the chosen one where it has the experiment."""
        self.model = offered_model(self.model, models)
        self.models = {m.id: m.name if m.present else f"{m.name} (fetched when run)" for m in models}
        self.models.setdefault(self.model, Path(self.model).name)  # a directory or a file from a link
        self.facts = next((m for m in models if m.id == self.model), None)
        self.found = list(models)
        self.joined = True
        self.schema = self.schema if schema is None else schema
