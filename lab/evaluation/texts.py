"""Calibration and held-out text, always apart: what a method was tuned on must not be what it is judged on.

Three sources: the reference texts of the Python that runs (`pydoc_data.topics`, no download, some 400,000
characters of technical English), a user's own file, and WikiText-2 where it can be fetched. Each text carries a
short hash, since topics differ between Python versions; every figure is given with it.
"""

from __future__ import annotations

import hashlib
import importlib.util
import platform
from dataclasses import dataclass
from pathlib import Path

from lab.errors import BadInput, shown

TOPICS, WIKITEXT = "topics", "wikitext"
HELD_OUT_OF = 3
"""One part in so many is held out."""
SHARED_CHARACTERS = 40
"""A paragraph of so many characters that stands in two topics ties them together."""
LEAST_CHARACTERS = 200
MOST_FILE_BYTES = 64 * 1024 * 1024
_OTHER_TEXT = f"Take {TOPICS!r} or a text file of your own."


@dataclass(frozen=True)
class Text:
    """One text and where it is from.

    Attributes:
        source: in words.
    """

    text: str
    source: str

    @property
    def hash(self) -> str:
        """The first 12 hex digits of its sha256, as UTF-8."""
        return short_hash(self.text)


@dataclass(frozen=True)
class Texts:
    """Text to calibrate on and text to judge on.

    Attributes:
        name: as it was asked for.
        split: how the two were kept apart, in words.
    """

    name: str
    calibration: Text
    held_out: Text
    split: str


def short_hash(text: str) -> str:
    """The first 12 hex digits of a text's sha256, as UTF-8."""
    return hashlib.sha256(text.encode("utf-8")).hexdigest()[:12]


def find_texts(name: str = TOPICS) -> Texts:
    """The texts that `name` asks for: "topics", "wikitext" or the path of a text file.

    Raises:
        BadInput: a file that is missing, empty, no UTF-8 or too short, or WikiText where it cannot be had.
    """
    if name == TOPICS:
        return python_topics()
    if name == WIKITEXT:
        return wikitext()
    return texts_of_file(Path(name))


def check_texts(name: str) -> None:
    """Refuse, before a run begins, texts that `find_texts` would refuse. WikiText is not fetched; what can be read but
    once (a pipe) is left alone.

    Raises:
        BadInput: see `find_texts`.
    """
    if name == WIKITEXT:
        _require_datasets()
    elif name not in ("", TOPICS):
        path = Path(name)
        try:
            read_once = path.exists() and not path.is_file() and not path.is_dir()
        except (OSError, ValueError):
            read_once = False
        if not read_once:
            texts_of_file(path)


def python_topics() -> Texts:
    """The language topics of the Python that runs.

    Topics that share a paragraph (the topic "compound" holds all of "for") stay on one side. Of these groups, in
    alphabetical order, each third is held out. What a side says twice is kept once.
    """
    from pydoc_data.topics import topics

    first_seen: dict[str, str] = {}
    group_of = {name: name for name in topics}
    for name in sorted(topics):
        for paragraph in _long(_paragraphs(topics[name])):
            other = group_of[first_seen.setdefault(paragraph, name)]
            mine = group_of[name]
            if other != mine:
                low, high = sorted((other, mine))
                group_of = {n: low if g == high else g for n, g in group_of.items()}
    groups = sorted(set(group_of.values()))
    sides: tuple[list[str], list[str]] = ([], [])
    for name in sorted(topics):
        sides[groups.index(group_of[name]) % HELD_OUT_OF == HELD_OUT_OF - 1].append(name)
    version = platform.python_version()
    calibration, held_out = (
        Text(_once([topics[name] for name in side]), f"{len(side)} of {len(topics)} topics of Python {version}'s pydoc")
        for side in sides
    )
    split = "topics with a paragraph in common stay together; of these groups, in order of name, each third is held out"
    return Texts(TOPICS, calibration, held_out, split)


def texts_of_file(path: Path) -> Texts:
    """A user's text: its first two thirds to calibrate on, the rest held out, cut between two lines where it has any.

    Raises:
        BadInput: it is missing, empty, no UTF-8, too large or too short to be divided, or its last part only says
            again what the first part says.
    """
    name = shown(str(path), 200)
    try:
        with path.open("rb") as file:  # not by its size: a pipe or a device tells none
            body = file.read(MOST_FILE_BYTES + 1)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise BadInput(f"The text {name} cannot be read: {reason}.", remedy="Check the path.") from None
    if len(body) > MOST_FILE_BYTES:
        raise BadInput(
            f"The text {name} has more than {MOST_FILE_BYTES // 2**20} MiB.", remedy="Give a part of it: a few MiB do."
        )
    try:
        text = body.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise BadInput(
            f"The text {name} is not UTF-8: the byte at {error.start:,} is {body[error.start]:#04x}.",
            remedy="Save it as UTF-8.",
        ) from None
    if not text.strip():
        raise BadInput(f"The text {name} is empty.", remedy="Write something into it.")
    if len(text) < LEAST_CHARACTERS:
        raise BadInput(
            f"The text {name} has {len(text)} characters; at least {LEAST_CHARACTERS} are needed to calibrate on one "
            "part and judge on another.",
            remedy="Give a longer text.",
        )
    wanted = len(text) * (HELD_OUT_OF - 1) // HELD_OUT_OF
    line = text.rfind("\n", wanted // 2, wanted) + 1  # 0 where there is no line to cut at
    cut = line or wanted
    source = path.name
    if text[cut:].strip() in text[:cut]:
        raise BadInput(
            f"The last {len(text) - cut:,} characters of the text {name}, which are held out, stand in the first part "
            "too: what a method was calibrated on cannot be what it is judged on.",
            remedy="Give a text that does not repeat itself.",
        )
    return Texts(
        str(path),
        Text(text[:cut], f"the first {cut:,} characters of {source}"),
        Text(text[cut:], f"the last {len(text) - cut:,} characters of {source}"),
        "the first two thirds of the file to calibrate on, the rest held out",
    )


def wikitext() -> Texts:
    """WikiText-2 (Merity et al. 2016), its train split to calibrate on and its test split held out.

    Raises:
        BadInput: the package `datasets` is not installed, or the text is neither here nor reachable.
    """
    _require_datasets()
    import datasets  # type: ignore[import-not-found,import-untyped,unused-ignore]

    parts = []
    for split in ("train", "test"):
        try:
            rows = datasets.load_dataset("Salesforce/wikitext", "wikitext-2-raw-v1", split=split)
            parts.append(Text("\n\n".join(rows["text"]), f"WikiText-2 raw, {split} split"))
        except Exception as error:  # noqa: BLE001 - the network, the hub and the cache all have errors of their own
            reason = (str(error).strip() or type(error).__name__).splitlines()[0][:200]
            raise BadInput(f"WikiText cannot be fetched: {reason}", remedy=_OTHER_TEXT) from None
    return Texts(WIKITEXT, parts[0], parts[1], "the data set's own train and test splits")


def _require_datasets() -> None:
    if importlib.util.find_spec("datasets") is None:
        raise BadInput("WikiText needs the package datasets, which is not installed.", remedy=_OTHER_TEXT)


def _paragraphs(text: str) -> list[str]:
    return [part for part in text.split("\n\n") if part.strip()]


def _long(paragraphs: list[str]) -> list[str]:
    joined = (" ".join(part.split()) for part in paragraphs)
    return [part for part in joined if len(part) >= SHARED_CHARACTERS]


def _once(texts: list[str]) -> str:
    seen: set[str] = set()
    kept = []
    for text in texts:
        for paragraph in _paragraphs(text):
            key = " ".join(paragraph.split())
            if len(key) < SHARED_CHARACTERS or key not in seen:
                kept.append(paragraph)
            seen.add(key)
    return "\n\n".join(kept) + "\n"
