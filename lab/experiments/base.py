"""The contract of an experiment: parameters in, events out.

An experiment is a folder with `params.py` (a pydantic class; no torch) and `run.py` (a generator of
events, and `inspect`). Everything else (command line, HTTP, controls, run card) derives from the two.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Protocol, get_args

from pydantic import BaseModel, ConfigDict, ValidationInfo, field_validator

from lab.events import Event, ModelFacts
from lab.strings import strings

if TYPE_CHECKING:
    from lab.models.loading import LoadedModel

Hint = Literal["text", "line", "lines", "slider", "number", "toggle", "segmented", "select", "layers"]
Group = Literal["main", "sampling", "compare", "break"]
Named = Literal["file", "model", "adapter", "kept"]
"""What a text may name on the machine that runs: a file or folder to read, a model, an adapter, or what is to be
kept there under that name."""


class Checked(BaseModel):
    """What a caller sends: unknown names are refused, and values are never changed silently."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    @field_validator("*", mode="before")
    @classmethod
    def _no_truth_for_a_number(cls, value: Any, info: ValidationInfo) -> Any:
        # pydantic would take true for 1
        if _truth_for_a_number(value, cls.model_fields[str(info.field_name)].annotation):
            raise ValueError("a number is needed")
        return value


def _truth_for_a_number(value: Any, annotation: Any) -> bool:
    """Whether `value` is a truth value, or holds one, where only a number is meant."""
    inner = get_args(annotation)
    if isinstance(value, bool):
        kinds = inner or (annotation,)
        return bool not in kinds and (int in kinds or float in kinds)
    if isinstance(value, list | tuple):
        return any(_truth_for_a_number(item, kind) for item in value for kind in inner)
    return False


class Question(Checked):
    """Base of the parameters of all questions to a run or a model; see `Runner.inspections`."""

    lists: ClassVar[Mapping[str, Named]] = {}
    """Parts of the answer that list names on the machine that runs, and of what: a hosted lab thins them out."""


class ExperimentParams(Checked):
    """Base of all parameter classes.

    Each field has a title, a description, a default and limits, and in `json_schema_extra`:
    `hint` (how it is shown), `group`, and optionally `unit` and `when` (a field and the value it must
    have for this one to matter, or a list of values any of which will do). A text that names something on the
    machine that runs has `names` (see `Named`) and `always` (values that name nothing there): see `fields.names`.
    """

    experiment: ClassVar[str]
    first: ClassVar[tuple[str, ...]] = ()
    """Fields shown before the others, in this order; the rest follow as they are declared."""

    @classmethod
    def model_json_schema(cls, *args: Any, **options: Any) -> dict[str, Any]:
        """The JSON schema, its properties in the order in which they are shown."""
        schema = super().model_json_schema(*args, **options)
        fields = schema.get("properties", {})
        schema["properties"] = {name: fields[name] for name in dict.fromkeys((*cls.first, *fields)) if name in fields}
        return schema

    def file_hashes(self) -> dict[str, str]:
        """Of a user's files that the run will read, by path: what tells their content, so that a run of a changed
        file is another run. None here."""
        return {}

    def writes(self) -> bool:
        """Whether the run leaves files beside its recording, so that a recording of it would not do. Not here."""
        return False

    @classmethod
    def for_model(cls, facts: ModelFacts) -> dict[str, Any]:
        """The JSON schema narrowed to one model.

        A field that this model cannot use has `disabled`: the reason, in words.
        """
        del facts
        return cls.model_json_schema()


@dataclass(frozen=True, kw_only=True)
class Preset:
    """A set of parameters worth trying, put as a question.

    Attributes:
        name: its key in the catalogue of texts (`NAME.presets` in `lab/strings`).
    """

    name: str
    question: str
    params: dict[str, Any]


def presets(experiment: str, /, **params: dict[str, Any]) -> tuple[Preset, ...]:
    """An experiment's presets by name, with their questions in English.

    Raises:
        KeyError: the catalogue has no question of that name.
    """
    question = strings()
    return tuple(
        Preset(name=name, question=question(f"{experiment}.presets.{name}"), params=values)
        for name, values in params.items()
    )


@dataclass(frozen=True, kw_only=True)
class ExperimentInfo:
    """What a page or a command line needs to know of an experiment before it runs."""

    name: str
    title: str
    summary: str
    presets: tuple[Preset, ...]
    schema: dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What a run's generator returns at its end; goes into `run_finished`."""

    token_ids: tuple[int, ...] = ()
    text: str = ""


@dataclass
class RunContext:
    """What a run may use. The model is read-only: variants go on a shell of it.

    Attributes:
        kept: what the run leaves behind for `inspect`, by name. The backend drops the oldest runs'
            when their bytes pass its cap.
    """

    model: LoadedModel
    kept: dict[str, Any] = field(default_factory=dict)


RunGenerator = Generator[Event | None, None, Outcome]
"""Yields events, and None where a slice may end without one."""


class Runner(Protocol):
    """What `run.py` offers.

    `inspections` maps each question's name to its parameter class; `inspect` answers within 100 ms and
    256 KiB; `context` is None where a question needs no run ("what if") - it then gets the facts alone. A runner
    may name in `reads_weights` (a set of names) questions that need no run but the loaded model: asked without a
    run, their context holds the model and nothing kept.
    """

    inspections: Mapping[str, type[BaseModel]]

    def run(self, context: RunContext, params: Any) -> RunGenerator: ...

    def inspect(self, context: RunContext | None, facts: ModelFacts, name: str, params: Any) -> dict[str, Any]: ...

    def prepare(self, facts: ModelFacts, params: Any) -> None:
        """Refuse with `BadInput`, before the run starts, what this model cannot do."""


@dataclass(frozen=True, kw_only=True)
class Experiment:
    """One experiment, described without torch.

    Attributes:
        label: a short name for menus: "KV cache". The title is the question it answers.
        load: imports the half that needs torch.
        supports: "" if a model can be used, else why not.
    """

    name: str
    label: str
    title: str
    summary: str
    params: type[ExperimentParams]
    presets: tuple[Preset, ...]
    supports: Callable[[ModelFacts], str]
    load: Callable[[], Runner]

    def info(self, facts: ModelFacts | None = None) -> ExperimentInfo:
        """The description, its schema narrowed to one model if `facts` are given."""
        schema = self.params.model_json_schema() if facts is None else self.params.for_model(facts)
        return ExperimentInfo(
            name=self.name, title=self.title, summary=self.summary, presets=self.presets, schema=schema
        )
