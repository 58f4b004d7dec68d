"""The set of prompts on which drafts are compared: four kinds, fixed before anything was measured.

A quarter of them is copy-like (most of the answer stands in the prompt), where looking up pays; the others are not.
None of them is among the prompts that the packaged head was trained on.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Prompt:
    """One prompt of the set. All are asked as a chat but continuations."""

    kind: str
    text: str
    chat: bool


_NOTICE = (
    "The swimming hall in Marren Street opens at 6:30 on weekdays and at 9:00 at weekends. The small pool is closed "
    "for repairs until 14 March. Tickets bought before that date stay valid for one month longer."
)
_CODE = (
    "def mean(values):\n    total = 0\n"
    "    for value in values:\n        total += value\n"
    "    return total / len(values)\n"
)
_LETTER = (
    "Dear Ms Okafor, the blue armchair that you ordered on 3 May has arrived. You can collect it from our shop in "
    "Linden Lane, or we bring it to you for 25 pounds. Please tell us which you prefer. Kind regards, Tomas Reiter"
)

PROMPTS: tuple[Prompt, ...] = (
    Prompt("question", "How does a lighthouse keep its lamp turning?", True),
    Prompt("question", "What happens to bread dough while it rests overnight?", True),
    Prompt("question", "Why do violins sound different from trumpets when they play the same note?", True),
    Prompt("story", "The clockmaker had promised to be back before the snow came, but", False),
    Prompt("story", "Ines found the map inside an old tin of biscuits. It showed", False),
    Prompt("story", "The last tram of the evening was empty, except for a boy with a birdcage. He", False),
    Prompt("list", "List six things to check before a long bicycle tour.", True),
    Prompt("list", "Give step by step instructions for repotting a cactus.", True),
    Prompt("list", "Name five ways to save water in a school kitchen, with one sentence for each.", True),
    Prompt("copy", f"Repeat this notice word for word, then say when the hall opens on Sunday.\n\n{_NOTICE}", True),
    Prompt("copy", f"Rename the variable total to s in this Python function and show all of it.\n\n{_CODE}", True),
    Prompt("copy", f"Correct the spelling of this letter and write it out again.\n\n{_LETTER}", True),
)
