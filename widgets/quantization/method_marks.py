"""One colour and one symbol for each method, the same in every picture of settings."""

from __future__ import annotations

from dataclasses import dataclass

from lab.experiments.quantization.choices import FORMATS, METHODS


@dataclass(frozen=True)
class Mark:
    """How the points of a method look; `marker` as Bokeh names it."""

    name: str
    title: str
    marker: str
    colour: str
    size: int = 10


MARKS: tuple[Mark, ...] = (
    Mark("nearest", "round to nearest", "circle", "--lab-series-1"),
    Mark("gptq", "GPTQ", "square", "--lab-series-2"),
    Mark("awq", "AWQ", "triangle", "--lab-series-3", 13),
    Mark("nf4", "NF4", "diamond", "--lab-series-4", 15),
    Mark("llm_int8", "LLM.int8()", "star", "--lab-series-5", 15),
    Mark("format", "number formats", "inverted_triangle", "--lab-muted", 12),
)
_BY_NAME = {mark.name: mark for mark in MARKS}


def mark_of(method: str) -> Mark:
    """The mark of a method; number formats, and what is not known, share one."""
    return _BY_NAME.get(method, _BY_NAME["format"])


def title_of(method: str) -> str:
    """A method's name for a person; an unknown one as it is."""
    names: dict[str, str] = {str(k): v for k, v in METHODS.items()}
    return names.get(method, method)


def is_format(method: str) -> bool:
    """Whether it is a number format and no method with codes."""
    return method in FORMATS
