"""The lab's words in each language: one TOML file a language, English the one that the others follow.

    words = strings("de")
    words("front.minutes", minutes=10)   # one text, its placeholders filled
    words.all("lora.lesson.idea")        # the texts of a list

Header, index, lessons, predictions, and the experiments' names and questions come from here. Captions of pictures,
controls, and what the backend says are English in every language. `python -m lab.strings` lists what a file lacks.
"""

from lab.strings.catalogue import ENGLISH, Strings, differences, known_language, languages, read_texts, strings
from lab.strings.chosen import chosen_language, default_language, in_language, language_links

__all__ = [
    "ENGLISH",
    "Strings",
    "chosen_language",
    "default_language",
    "differences",
    "in_language",
    "known_language",
    "language_links",
    "languages",
    "read_texts",
    "strings",
]
