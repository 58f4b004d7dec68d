"""A backend for visitors: what the operator did not offer is refused, whoever asks over HTTP."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel

from lab.backend.hosting import HostedSettings
from lab.backend.log import Subscription
from lab.backend.protocol import DEFAULT_MODEL, Health, InspectRequest, RunRequest
from lab.backend.served import Served
from lab.backend.validation import validated
from lab.errors import BadInput, LabError, ModelError, shown
from lab.events import ModelFacts
from lab.experiments.base import ExperimentInfo, Named

Answer = dict[str, Any]

KEPT = "This lab is hosted: nothing of a visitor is kept on its machine."
FILES = "This lab is hosted: it reads no file or folder of its machine for a visitor."


class HostedBackend:
    """A backend behind the operator's list; implements `Backend`.

    Fields of parameters that name something on this machine are told by `lab.experiments.fields.names`.
    """

    def __init__(self, backend: Served, settings: HostedSettings) -> None:
        self._backend = backend
        self._settings = settings

    def health(self) -> Health:
        """How this process is."""
        return self._backend.health()

    def models(self) -> list[ModelFacts]:
        """The models that are offered. One that is gone from this machine hides no other."""
        found = []
        for model in self._settings.models:
            try:
                found.append(self._backend.facts(model))
            except LabError:
                continue
        return found

    def experiments(self, model: str = DEFAULT_MODEL) -> list[ExperimentInfo]:
        """All experiments, narrowed to a model and to what is offered."""
        self._check_model(model)
        infos = self._backend.experiments(model)
        return [
            ExperimentInfo(
                name=info.name,
                title=info.title,
                summary=info.summary,
                presets=info.presets,
                schema=self._narrowed(info.schema),
            )
            for info in infos
        ]

    def run(self, request: RunRequest) -> Subscription:
        """Start a run, if all that it names is offered.

        Raises:
            ModelError: another model; `BadInput`: a file, folder, adapter or name to keep under.
        """
        self._check_model(request.model)
        experiment = self._backend.experiment(request.experiment)
        params = validated(experiment.params, request.params)
        self._check(params)
        self._check_lengths(params)
        return self._backend.run(request)

    def inspect(self, request: InspectRequest) -> Answer:
        """Answer one question, if all that it names is offered; lists of names show what is.

        Raises:
            ModelError, BadInput: as `run`.
        """
        self._check_model(request.model)
        cls = self._backend.experiment(request.experiment).load().inspections.get(request.name)
        if cls is None:
            return self._backend.inspect(request)  # it says which there are
        self._check(validated(cls, request.params))
        answer = self._backend.inspect(request)
        lists: Mapping[str, Named] = getattr(cls, "lists", {})
        return {**answer, **{part: self._offered(kind, answer[part]) for part, kind in lists.items() if part in answer}}

    def close(self) -> None:
        """Stop all runs."""
        self._backend.close()

    def _check_model(self, model: str) -> None:
        if model not in self._settings.models:
            raise _no_model(model, self._settings.models)

    def _check(self, params: BaseModel) -> None:
        adapters = self._settings.adapters
        for name, marks in _marks(type(params)).items():
            value, kind = getattr(params, name), marks["names"]
            if value in marks["always"]:
                continue
            if kind == "model":
                self._check_model(value)
            elif kind == "adapter":
                if value not in adapters:
                    offered = ", ".join(v for v in (*marks["always"], *adapters) if v)
                    raise BadInput(f"{name} is {shown(value)}, which is not offered here.", remedy=f"Choose {offered}.")
            elif kind == "kept":
                raise BadInput(f"{name} is {shown(value)}. {KEPT}", remedy="Export the run instead.")
            else:
                offered = " or ".join(v or "nothing" for v in marks["always"])
                raise BadInput(f"{name} is {shown(value)}. {FILES}", remedy=f"Give {offered}.")

    def _check_lengths(self, params: BaseModel) -> None:
        most = self._settings.prompt_characters
        for name in type(params).model_fields:
            value = getattr(params, name)
            if isinstance(value, str) and len(value) > most:
                raise BadInput(f"{name} has {len(value):,} characters; this lab allows {most:,}.", remedy="Shorten it.")

    def _narrowed(self, schema: dict[str, Any]) -> dict[str, Any]:
        """`schema` with what cannot be chosen here locked, and why."""
        narrowed = copy.deepcopy(schema)
        for field in narrowed.get("properties", {}).values():
            kind = field.get("names")
            if kind == "file":
                field["disabled"] = FILES
            elif kind == "kept":
                field["disabled"] = KEPT
            elif kind is not None:
                if "suggestions" in field:
                    field["suggestions"] = self._offered(kind, field["suggestions"])
                offered = self._settings.models if kind == "model" else self._settings.adapters
                choices = [v for v in (*field["always"], *offered) if v]
                if len(choices) > 1:
                    field["description"] = f"One of {', '.join(choices)}."
                else:
                    field["disabled"] = f"This lab is hosted: it offers {choices[0]} alone."
        return narrowed

    def _offered(self, kind: Named, values: list[str]) -> list[str]:
        offered = {"model": self._settings.models, "adapter": ("packaged", *self._settings.adapters)}.get(kind, ())
        return [value for value in values if value in offered]


def _marks(cls: type[BaseModel]) -> dict[str, dict[str, Any]]:
    """The fields of `cls` that name something on this machine, each with `names` and `always`."""
    extras = {name: field.json_schema_extra for name, field in cls.model_fields.items()}
    return {name: extra for name, extra in extras.items() if isinstance(extra, dict) and "names" in extra}


def _no_model(model: str, models: tuple[str, ...]) -> ModelError:
    return ModelError(
        f"The model {shown(model)} is not offered here.", remedy=f"This lab is hosted; it offers {', '.join(models)}."
    )
