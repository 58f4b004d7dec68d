"""The texts of a store: a file, a folder of files, pasted text, or Python's own help topics.

Only what the user named is read: links inside a folder are not followed, and what is no plain text of a modest size is
passed over, in words.
"""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Generator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from lab.errors import BadInput, shown

SUFFIXES = (".txt", ".md", ".py")
MAX_FILE_BYTES = 32 << 20
MAX_TOTAL_BYTES = 256 << 20
MAX_FILES = 10_000
MAX_ENTRIES = 200_000
MAX_FOLDERS_DEEP = 32
_ENTRIES_A_SLICE = 500
_KINDS = f"{', '.join(SUFFIXES[:-1])} or {SUFFIXES[-1]}"


@dataclass
class Texts:
    """What a store is made of.

    Attributes:
        name: for a person: "Python's help topics", a file's or folder's name, "pasted text".
        documents: the texts; nothing is matched across their borders.
        skipped: what was passed over and why, one string each.
    """

    name: str
    documents: list[str] = field(default_factory=list)
    skipped: list[str] = field(default_factory=list)

    @property
    def characters(self) -> int:
        """Characters of all documents."""
        return sum(len(text) for text in self.documents)


def help_topics() -> Texts:
    """Python's help topics, which every Python has. They differ between its versions: see `text_hash`."""
    from pydoc_data import topics

    return Texts("Python's help topics", [topics.topics[name] for name in sorted(topics.topics)])


def pasted(text: str) -> Texts:
    """Text that the user gave.

    Raises:
        BadInput: it is empty, or no valid Unicode.
    """
    if not text.strip():
        raise BadInput("The text of the store is empty.", remedy="Paste some text, or name a file.")
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as error:
        raise BadInput(
            f"The text of the store holds half a character at position {error.start:,}.",
            remedy="Copy it again from its source.",
        ) from None
    return Texts("pasted text", [text])


def read_texts(path: str) -> Generator[tuple[str, int], None, Texts]:
    """Read a .txt, .md or .py file, or all of them in a folder and below it, in order of their paths.

    In a folder, links, hidden names, other kinds of file, binary ones, those that are not UTF-8 and those above
    32 MiB are passed over; a single file of that kind is refused. One file is read between yields.

    Yields:
        What is being done, and how many files are read.

    Raises:
        BadInput: there is no such file or folder, or nothing in it can be used, or it is too much.
    """
    root = _resolved(path)
    if not root.is_dir():
        text, reason = _read(root)
        if text is None:
            raise BadInput(f"{shown(root.name)} cannot go into a store: {reason}.", remedy=f"Name a {_KINDS} file.")
        return Texts(root.name, [text])
    texts = Texts(root.name or "folder")
    files = yield from _walk(root, texts.skipped)
    total = 0
    for number, file in enumerate(files):
        yield "reading the texts", number
        text, reason = _read(file)
        if text is None:
            texts.skipped.append(f"{file.relative_to(root)}: {reason}")
            continue
        total += len(text.encode("utf-8"))
        if total > MAX_TOTAL_BYTES:
            raise BadInput(
                f"The texts in {shown(root.name)} have more than {MAX_TOTAL_BYTES >> 20} MiB.",
                remedy="Name a smaller folder.",
            )
        texts.documents.append(text)
    if not texts.documents:
        why = f" ({texts.skipped[0]})" if texts.skipped else ""
        raise BadInput(
            f"The folder {shown(root.name)} holds no {_KINDS} file that can be used{why}.", remedy="Name another one."
        )
    # What a person meant to use comes first in the list.
    texts.skipped.sort(key=lambda line: line.endswith(f"not {_KINDS}"))
    return texts


def text_hash(documents: Sequence[str]) -> Generator[None, None, str]:
    """sha256 over the documents, hex; their borders count. Pauses between documents."""
    digest = hashlib.sha256()
    for number, text in enumerate(documents):
        raw = text.encode("utf-8")
        digest.update(f"{len(raw)}\n".encode())
        digest.update(raw)
        if number % 64 == 63 or len(raw) > MAX_FILE_BYTES // 8:
            yield
    return digest.hexdigest()


def _resolved(path: str) -> Path:
    text = path.strip()
    if not text or "\0" in text or len(text) > 4096:
        raise BadInput(f"{shown(path)} names no file or folder.", remedy=f"Name a {_KINDS} file, or a folder of them.")
    try:
        return Path(text).expanduser().resolve(strict=True)
    except FileNotFoundError:
        raise BadInput(f"There is no file or folder {shown(text)}.", remedy="Check the path.") from None
    except (OSError, RuntimeError) as error:  # no permission; a link that leads to itself
        reason = getattr(error, "strerror", None) or "its links lead in a circle"
        raise BadInput(f"{shown(text)} cannot be opened: {reason}.", remedy="Check the path.") from None


def _walk(root: Path, skipped: list[str]) -> Generator[tuple[str, int], None, list[Path]]:
    """The usable files at and below `root`, sorted; no link is followed."""
    found: list[Path] = []
    folders, entries = [(root, 0)], 0
    while folders:
        folder, deep = folders.pop()
        try:
            listed = sorted(os.scandir(folder), key=lambda e: e.name)
        except OSError as error:
            skipped.append(f"{folder.relative_to(root)}: {error.strerror or 'cannot be read'}")
            continue
        for entry in listed:
            entries += 1
            if entries > MAX_ENTRIES or len(found) > MAX_FILES:
                raise BadInput(
                    f"{shown(root.name)} holds more than {MAX_FILES:,} text files or {MAX_ENTRIES:,} entries.",
                    remedy="Name a smaller folder.",
                )
            if entries % _ENTRIES_A_SLICE == 0:
                yield "looking for texts", len(found)
            where = Path(entry.path)
            if entry.name.startswith("."):
                continue
            if entry.is_symlink():
                skipped.append(f"{where.relative_to(root)}: a link, not followed")
            elif entry.is_dir(follow_symlinks=False):
                if deep < MAX_FOLDERS_DEEP:
                    folders.append((where, deep + 1))
                else:
                    skipped.append(f"{where.relative_to(root)}: more than {MAX_FOLDERS_DEEP} folders deep")
            elif where.suffix.lower() in SUFFIXES:
                found.append(where)
            else:
                skipped.append(f"{where.relative_to(root)}: not {_KINDS}")
    return sorted(found)


def _read(file: Path) -> tuple[str | None, str]:
    """The text of a file, or None and why not. The file that was checked is the one that is read."""
    if file.suffix.lower() not in SUFFIXES:
        return None, f"it is not {_KINDS}"
    # A link put in its place meanwhile is refused, and a pipe does not block.
    flags = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
    try:
        descriptor = os.open(file, flags)
    except OSError as error:
        return None, error.strerror or "it cannot be opened"
    with os.fdopen(descriptor, "rb") as stream:
        state = os.fstat(stream.fileno())
        if not stat.S_ISREG(state.st_mode):
            return None, "it is no regular file"
        if state.st_size > MAX_FILE_BYTES:
            return None, f"it has {state.st_size / (1 << 20):,.0f} MiB, and a file may have {MAX_FILE_BYTES >> 20}"
        try:
            raw = stream.read(MAX_FILE_BYTES + 1)
        except OSError as error:
            return None, error.strerror or "it cannot be read"
    if len(raw) > MAX_FILE_BYTES:
        return None, f"it grew above {MAX_FILE_BYTES >> 20} MiB"
    if b"\0" in raw:
        return None, "it is binary"
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError:
        return None, "it is not UTF-8 text"
    return (text.replace("\r\n", "\n"), "") if text.strip() else (None, "it is empty")
