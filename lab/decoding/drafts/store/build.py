"""Making a store, or opening the one that was made before."""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from lab.decoding.drafts.store.encode import encode_texts, tokenizer_hash
from lab.decoding.drafts.store.file import StoreFacts, content_hash, file_name, load, save, stores_dir
from lab.decoding.drafts.store.store import Store
from lab.decoding.drafts.store.suffix_array import build_suffix_array
from lab.decoding.drafts.store.texts import Texts, help_topics, pasted, read_texts, text_hash
from lab.errors import BadInput

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

_SHOWN_SKIPPED = 3

Result = TypeVar("Result")


@dataclass(frozen=True)
class Progress:
    """A stage in words and the fraction of it that is done, None where that is unknown."""

    stage: str
    fraction: float | None


def open_store(
    tokenizer: PreTrainedTokenizerBase,
    *,
    tokenizer_name: str,
    path: str = "",
    text: str = "",
    directory: Path | None = None,
) -> Generator[Progress, None, Store]:
    """The store of some texts for a tokenizer: opened if it was made before, else made and saved.

    Of `path` and `text` at most one is given; without either the texts are Python's help topics. Slices are
    below 200 ms, except: one large file's reading or hashing on a slow disk, a slow tokenizer, the saving of a
    store of many million tokens (one call), and texts that repeat one token millions of times.

    Args:
        tokenizer_name: of the model, for messages.
        path: a .txt, .md or .py file, or a folder of them.
        text: pasted text.
        directory: where stores lie; None: in the cache directory.

    Raises:
        BadInput: texts that cannot be used, too many of them; see `read_texts` and `encode_texts`.
    """
    yield Progress("reading the texts", None)
    texts = yield from _texts(path, text)
    yield Progress("hashing the texts", None)
    hashing = text_hash(texts.documents)
    text_sha256 = yield from _told(hashing, "hashing the texts")
    yield Progress("reading the tokenizer", None)
    tokenizer_sha256 = tokenizer_hash(tokenizer)
    notes = _notes(texts)
    file, trouble = _place(directory, file_name(text_sha256, tokenizer_sha256))
    if file is not None and file.is_file():
        yield Progress("opening the store", None)
        try:
            ids, array, facts = load(file)
        except BadInput as error:
            notes.append(f"{error.message} It was built again.")
        else:
            if (facts.text_sha256, facts.tokenizer_sha256) == (text_sha256, tokenizer_sha256):
                return Store(ids, array, replace(facts, name=texts.name), tuple(notes))
    encoding = encode_texts(texts.documents, tokenizer)
    ids = yield from _measured(encoding, "tokenizing")
    if not len(ids):
        raise BadInput(f"{texts.name} gives no tokens.", remedy="Give more text.")
    sorting = build_suffix_array(ids)
    array = yield from _measured(sorting, "sorting the places")
    yield Progress("saving the store", None)
    facts = StoreFacts(
        name=texts.name,
        text_sha256=text_sha256,
        tokenizer=tokenizer_name,
        tokenizer_sha256=tokenizer_sha256,
        documents=len(texts.documents),
        characters=texts.characters,
        tokens=len(ids),
        vocab=max(tokenizer.get_vocab().values()) + 1,
        content_sha256=content_hash(ids, array),
    )
    if file is not None:
        try:
            save(file, ids, array, facts)
            ids, array, facts = load(file)
            return Store(ids, array, facts, tuple(notes))
        except BadInput as error:
            trouble = error.message
    # Saving only spares the next run the work.
    notes.append(f"Kept in memory only: {trouble}")
    return Store(ids, array, facts, tuple(notes), on_disk=False)


def _texts(path: str, text: str) -> Generator[Progress, None, Texts]:
    if path.strip() and text.strip():
        raise BadInput("The store was given both a path and a text.", remedy="Give one of them.")
    if path.strip():
        reading = read_texts(path)
        while True:
            try:
                stage, files = next(reading)
            except StopIteration as end:
                read: Texts = end.value
                return read
            yield Progress(f"{stage} ({files:,} files)", None)
    return pasted(text) if text.strip() else help_topics()


def _place(directory: Path | None, name: str) -> tuple[Path | None, str]:
    try:
        folder = stores_dir() if directory is None else directory
        folder.mkdir(parents=True, exist_ok=True)
    except BadInput as error:
        return None, error.message
    except OSError as error:
        return None, f"the directory of stores cannot be made ({error.strerror})"
    return folder / name, ""


def _notes(texts: Texts) -> list[str]:
    if not texts.skipped:
        return []
    more = len(texts.skipped) - _SHOWN_SKIPPED
    listed = "; ".join(texts.skipped[:_SHOWN_SKIPPED]) + (f"; and {more:,} more" if more > 0 else "")
    return [f"Passed over: {listed}."]


def _told(steps: Generator[None, None, Result], stage: str) -> Generator[Progress, None, Result]:
    while True:
        try:
            next(steps)
        except StopIteration as end:
            result: Result = end.value
            return result
        yield Progress(stage, None)


def _measured(steps: Generator[float, None, Result], stage: str) -> Generator[Progress, None, Result]:
    while True:
        try:
            fraction = next(steps)
        except StopIteration as end:
            result: Result = end.value
            return result
        yield Progress(stage, fraction)
