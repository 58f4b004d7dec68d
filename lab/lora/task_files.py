"""Lines to train on: a prompt and the answer wanted, from a packaged file or from what a person typed or pasted.

Two ways to write a line, which may be mixed: `prompt => answer`, or one JSON object with "prompt" and "completion".
Blank lines are skipped. In the first way `\\n` stands for a line break. No torch here.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from lab.errors import BadInput, shown

ARROW = "=>"
LEAST_LINES, MOST_LINES = 2, 500
MOST_CHARACTERS = 200_000
MOST_LINE_CHARACTERS = 4_000
HELD_OUT_FROM = 12
"""From so many lines on, some of a user's are held out."""
HELD_OUT_OF = 6
"""One line in so many."""
REMEDY = 'Write "prompt => answer" on each line, or a JSON object with "prompt" and "completion".'


@dataclass(frozen=True)
class Example:
    """A prompt and the answer that the model is to give.

    Attributes:
        line: where it stood, from 1; 0 where nobody knows.
    """

    prompt: str
    answer: str
    line: int = 0


def parse_lines(text: str) -> tuple[Example, ...]:
    """The examples of a typed or pasted text, in its order.

    Raises:
        BadInput: too long, too few or too many lines, or a line that is no example; the message names the line.
    """
    if len(text) > MOST_CHARACTERS:
        raise BadInput(
            f"The lines have {len(text):,} characters; at most {MOST_CHARACTERS:,} are read.",
            remedy="Leave some lines out: a few dozen are enough.",
        )
    # Not splitlines(): a line separator inside a JSON string is no end of a line.
    rows = [(number, row.strip()) for number, row in enumerate(text.replace("\r\n", "\n").split("\n"), 1)]
    found = tuple(_example(row.removeprefix("\ufeff"), number) for number, row in rows if row.strip("\ufeff"))
    if len(found) < LEAST_LINES:
        some = "is 1 line" if len(found) == 1 else f"are {len(found)} lines"
        raise BadInput(f"There {some} to train on; at least {LEAST_LINES} are needed.", remedy=REMEDY)
    if len(found) > MOST_LINES:
        raise BadInput(
            f"There are {len(found):,} lines to train on; at most {MOST_LINES} are taken.", remedy="Leave some out."
        )
    _refuse_two_answers(found)
    return found


def split(examples: Sequence[Example]) -> tuple[tuple[Example, ...], tuple[Example, ...]]:
    """To train on, and held out: every sixth prompt from 12 prompts on, else none.

    Lines with the same prompt stay together, so that no held-out prompt is trained on.
    """
    prompts = list(dict.fromkeys(_key(one) for one in examples))
    if len(prompts) < HELD_OUT_FROM:
        return tuple(examples), ()
    held = set(prompts[HELD_OUT_OF - 1 :: HELD_OUT_OF])
    return tuple(e for e in examples if _key(e) not in held), tuple(e for e in examples if _key(e) in held)


def _key(example: Example) -> str:
    return example.prompt.casefold()


def _refuse_two_answers(examples: Sequence[Example]) -> None:
    seen: dict[str, Example] = {}
    for one in examples:
        before = seen.setdefault(one.prompt, one)
        if before.answer != one.answer:
            raise BadInput(
                f"Line {one.line} answers {shown(one.prompt)} differently from line {before.line}.",
                remedy="Keep one of the two.",
            )


def _example(row: str, number: int) -> Example:
    if len(row) > MOST_LINE_CHARACTERS:
        raise BadInput(
            f"Line {number} has {len(row):,} characters; at most {MOST_LINE_CHARACTERS:,} are read.",
            remedy="Shorten it or cut it into several.",
        )
    prompt, answer = _from_json(row, number) if row.startswith("{") and _is_json(row) else _from_arrow(row, number)
    for what, value in (("prompt", prompt), ("answer", answer)):
        if not value.strip():
            raise BadInput(f"Line {number} has an empty {what}.", remedy=REMEDY)
        try:
            value.encode("utf-8")
        except UnicodeEncodeError:
            raise BadInput(f"Line {number} has half a character (a lone surrogate).", remedy="Remove it.") from None
    return Example(prompt, answer, number)


def _is_json(row: str) -> bool:
    # '{"a": 1} => text' is an arrow line whose prompt looks like JSON.
    return ARROW not in row or row.endswith("}")


def _from_json(row: str, number: int) -> tuple[str, str]:
    twice: list[str] = []

    def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        made = dict(pairs)
        if len(made) < len(pairs):
            keys = [key for key, _ in pairs]
            twice.append(next(key for key in keys if keys.count(key) > 1))
        return made

    try:
        body: Any = json.loads(row, object_pairs_hook=once)
    except (ValueError, RecursionError) as error:
        if ARROW in row:
            return _from_arrow(row, number)
        raise BadInput(f"Line {number} is no JSON object: {str(error)[:80]}.", remedy=REMEDY) from None
    if twice:
        raise BadInput(f"Line {number} has the key {shown(twice[0])} more than once.", remedy=REMEDY)
    if not isinstance(body, dict) or set(body) != {"prompt", "completion"}:
        raise BadInput(f"Line {number} has the keys {shown(sorted(map(str, body)))}.", remedy=REMEDY)
    for key, value in body.items():
        if not isinstance(value, str):
            raise BadInput(f"Line {number} has {shown(value)} as its {key}; it must be text.", remedy=REMEDY)
    return body["prompt"], body["completion"]


def _from_arrow(row: str, number: int) -> tuple[str, str]:
    prompt, arrow, answer = row.partition(ARROW)
    if not arrow:
        raise BadInput(f'Line {number} has no "{ARROW}": {shown(row)}.', remedy=REMEDY)
    return prompt.strip().replace("\\n", "\n"), answer.strip().replace("\\n", "\n")
