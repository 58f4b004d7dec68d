"""What a page's link carries: the run's parameters, the model, the step and the views' own settings."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel


@dataclass(frozen=True)
class Linked:
    """A link that was read.

    Attributes:
        params: all parameters of the experiment; what the link had no good value for is as it was.
        model: the model's id; "" where the link names none.
        step: the step to show; None follows the run.
        settings: what is left, for the views; unchecked JSON.
    """

    params: dict[str, Any]
    model: str
    step: int | None
    settings: dict[str, Any]


def read_link(values: Mapping[str, Any], schema: type[BaseModel], present: Mapping[str, Any]) -> Linked:
    """Take a link apart.

    Args:
        values: unchecked JSON by name.
        schema: the experiment's parameters.
        present: the parameters as they are, by name.
    """
    settings = dict(values)
    params = {name: settings.pop(name) for name in list(settings) if name in present}
    step, model = settings.pop("step", None), settings.pop("model", None)
    return Linked(
        params=checked(params, schema, present),
        model=model if isinstance(model, str) else "",
        step=step if isinstance(step, int) and step >= 0 else None,
        settings=settings,
    )


def write_link(
    params: Mapping[str, Any], *, model: str, step: int | None, settings: Mapping[str, Any]
) -> dict[str, Any]:
    """What `read_link` reads: JSON by name; None is left out of the address."""
    return {**params, **settings, "model": model, "step": step}


def checked(params: Mapping[str, Any], schema: type[BaseModel], present: Mapping[str, Any]) -> dict[str, Any]:
    """`present` with those of `params` that the schema takes, each by itself."""
    good = dict(present)
    for name, value in params.items():
        # A link written by hand has no quotes around a text: group_size=32 was read as a number.
        for tried in (value, str(value)) if type(value) in (int, float) else (value,):
            try:
                taken = schema.model_validate({**good, name: tried})
            except ValueError:
                continue
            good[name] = taken.model_dump(mode="json")[name]
            break
    return good
