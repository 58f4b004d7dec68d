"""`python -m lab.strings [LANGUAGE]`: what a translation lacks, line by line. Exit code 1 where it lacks something."""

from __future__ import annotations

import sys

from lab.errors import BadInput
from lab.strings.catalogue import ENGLISH, FOLDER, differences, known_language, languages, read_texts


def main() -> int:
    """Compare the languages named, or all, with the English."""
    wrong = 0
    try:
        english = read_texts(FOLDER / f"{ENGLISH}.toml")
        for language in sys.argv[1:] or languages():
            texts = read_texts(FOLDER / f"{known_language(language)}.toml")
            found = differences(english, texts)
            said = found or [f"complete, {len(texts)} texts"]
            sys.stdout.write("".join(f"{language}: {line}\n" for line in said))
            wrong += len(found)
    except BadInput as error:
        sys.stderr.write(f"{error}\n")
        return 1
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
