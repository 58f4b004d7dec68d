"""Making, saving and opening stores: texts of all kinds, damaged files, builders side by side."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Generator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from safetensors import safe_open
from tiny_models import build_tokenizer

from lab.decoding.drafts.fit import check_store
from lab.decoding.drafts.store import encode, file, texts
from lab.decoding.drafts.store.build import Progress, open_store
from lab.decoding.drafts.store.store import Store
from lab.errors import BadInput

if TYPE_CHECKING:
    from lab.models.loading import LoadedModel

TOKENIZER = build_tokenizer()
TEXT = "the cache keeps the keys and the values\nof all the tokens that the model has read so far\n" * 40


def opened(directory: Path | None, **source: Any) -> tuple[Store, list[Progress]]:
    said = []
    steps = open_store(TOKENIZER, tokenizer_name="tiny", directory=directory, **source)
    while True:
        try:
            said.append(next(steps))
        except StopIteration as stop:
            return stop.value, said


def stages(said: list[Progress]) -> set[str]:
    return {progress.stage for progress in said}


def test_pythons_help_topics_are_the_default(tmp_path: Path) -> None:
    store, said = opened(tmp_path)
    assert store.facts.name == "Python's help topics"
    assert store.facts.characters > 100_000
    assert len(store.facts.text_sha256) == 64
    assert len(store.ids) == len(store.array) == store.facts.tokens
    assert np.array_equal(np.sort(store.array), np.arange(store.facts.tokens))
    assert {"tokenizing", "sorting the places", "saving the store"} <= stages(said)
    assert len(said) > 20  # many small slices


def test_a_store_is_made_once_and_mapped(tmp_path: Path) -> None:
    first, _ = opened(tmp_path, text=TEXT)
    (path,) = tmp_path.iterdir()
    before = path.stat().st_mtime_ns
    again, said = opened(tmp_path, text=TEXT)
    assert "tokenizing" not in stages(said)
    assert path.stat().st_mtime_ns == before
    assert first.facts == again.facts
    for array in (again.ids, again.array):
        assert isinstance(array.base, np.memmap)
        assert not array.flags.writeable
    with safe_open(str(path), framework="np") as stored:
        assert set(stored.keys()) == {"ids", "array"}
        assert stored.metadata()["text_sha256"] == first.facts.text_sha256
    assert TOKENIZER.decode(first.ids.tolist()) == TEXT


def test_text_and_tokenizer_make_the_name(tmp_path: Path) -> None:
    opened(tmp_path, text=TEXT)
    opened(tmp_path, text=TEXT + "x")
    other = build_tokenizer()
    other.add_tokens(["another"])
    list(open_store(other, tokenizer_name="other", text=TEXT, directory=tmp_path))
    assert len(list(tmp_path.iterdir())) == 3
    assert encode.tokenizer_hash(build_tokenizer()) == encode.tokenizer_hash(TOKENIZER)
    assert encode.tokenizer_hash(other) != encode.tokenizer_hash(TOKENIZER)


def test_a_call_that_truncates_does_not_change_the_tokenizers_hash() -> None:
    tokenizer = build_tokenizer()
    before = encode.tokenizer_hash(tokenizer)
    tokenizer("the cache", truncation=True, max_length=2)
    assert encode.tokenizer_hash(tokenizer) == before


def test_a_store_of_another_tokenizer_is_refused_by_name(tiny: Callable[..., LoadedModel], tmp_path: Path) -> None:
    target = tiny("llama")
    fitting, _ = opened(tmp_path, text=TEXT)
    assert check_store(target, fitting).reason == ""
    other = build_tokenizer()
    other.add_tokens(["another"])
    steps = open_store(other, tokenizer_name="Other-1B", text=TEXT, directory=tmp_path)
    while True:
        try:
            next(steps)
        except StopIteration as stop:
            reason = check_store(target, stop.value).reason
            break
    assert "Other-1B" in reason
    assert target.facts.name in reason


def _truncate(raw: bytes) -> bytes:
    return raw[: len(raw) // 2]


def _flip(raw: bytes) -> bytes:
    return raw[:-5] + bytes([raw[-5] ^ 1]) + raw[-4:]


def _header(raw: bytes) -> bytes:
    return raw[:8] + b"x" + raw[9:]


def _tokens(raw: bytes) -> bytes:
    return raw.replace(b'"tokens":"', b'"tokens":"9', 1)[: len(raw)]


def _version(raw: bytes) -> bytes:
    return raw.replace(b'"format":"1"', b'"format":"7"')


@pytest.mark.parametrize("damage", [_truncate, _flip, _header, _tokens, _version, lambda _: b"", lambda _: b"no store"])
def test_a_damaged_file_is_named_and_built_again(tmp_path: Path, damage: Callable[[bytes], bytes]) -> None:
    whole, _ = opened(tmp_path, text=TEXT)
    (path,) = tmp_path.iterdir()
    raw = path.read_bytes()
    path.unlink()  # the store above still maps the old file
    path.write_bytes(damage(raw))
    with pytest.raises(BadInput, match="damaged") as error:
        file.load(path)
    assert str(tmp_path) not in str(error.value)
    again, _ = opened(tmp_path, text=TEXT)
    assert "built again" in again.notes[0]
    assert np.array_equal(again.array, whole.array)
    assert file.load(path)[2] == whole.facts


def test_a_large_file_is_checked_at_some_places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(file, "_DIGEST_BYTES", 0)
    store, _ = opened(tmp_path, text=TEXT)
    (path,) = tmp_path.iterdir()
    file.load(path)
    target = tmp_path / "wrong.safetensors"
    file.save(target, np.array(store.ids), np.array(store.array[::-1]), store.facts)
    with pytest.raises(BadInput, match="order"):
        file.load(target)


def test_a_place_that_cannot_be_written_costs_nothing_but_time(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    store, _ = opened(tmp_path / "file", text=TEXT)
    assert not store.on_disk
    assert "memory only" in store.notes[0]
    assert store.match(store.ids[:5].tolist()) is not None


def test_builders_side_by_side_in_one_process_leave_one_whole_store(tmp_path: Path) -> None:
    runs = [open_store(TOKENIZER, tokenizer_name="tiny", text=TEXT, directory=tmp_path) for _ in range(3)]
    made: list[Store] = []
    while runs:  # take turns, as a scheduler lets them
        for run in list(runs):
            try:
                next(run)
            except StopIteration as stop:
                made.append(stop.value)
                runs.remove(run)
    with ThreadPoolExecutor(4) as pool:
        made += [store for store, _ in pool.map(lambda _: opened(tmp_path, text=TEXT + "!"), range(4))]
    assert len({store.facts.content_sha256 for store in made[:3]}) == 1
    assert len({store.facts.content_sha256 for store in made[3:]}) == 1
    assert sorted(p.suffix for p in tmp_path.iterdir()) == [".safetensors"] * 2


def test_builders_in_two_processes_leave_one_whole_store(tmp_path: Path) -> None:
    code = (
        "import sys; from pathlib import Path; from tiny_models import build_tokenizer\n"
        "from lab.decoding.drafts.store.build import open_store\n"
        f"list(open_store(build_tokenizer(), tokenizer_name='t', text={TEXT!r}, directory=Path(sys.argv[1])))"
    )
    here = Path(__file__).parents[1]
    environment = {**os.environ, "PYTHONPATH": f"{here}{os.pathsep}{here.parent}"}
    running = [subprocess.Popen([sys.executable, "-c", code, str(tmp_path)], env=environment) for _ in range(2)]
    assert [process.wait(timeout=120) for process in running] == [0, 0]
    (path,) = tmp_path.iterdir()
    file.load(path)


def test_what_a_killed_builder_left_is_removed_after_a_while(tmp_path: Path) -> None:
    old, fresh = tmp_path / ".partial-old", tmp_path / ".partial-fresh"
    old.write_text("x")
    fresh.write_text("x")
    os.utime(old, (time.time() - 7200,) * 2)
    opened(tmp_path, text=TEXT)
    assert not old.exists()
    assert fresh.exists()


def test_a_stopped_builder_leaves_nothing(tmp_path: Path) -> None:
    steps = open_store(TOKENIZER, tokenizer_name="tiny", text=TEXT, directory=tmp_path)
    while next(steps).stage != "sorting the places":
        pass
    steps.close()
    assert list(tmp_path.iterdir()) == []


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with all that may lie in one."""
    root = tmp_path / "texts"
    (root / "sub").mkdir(parents=True)
    (root / "a.txt").write_text("alpha\r\nbeta", encoding="utf-8-sig", newline="")
    (root / "sub" / "b.MD").write_text("gamma", encoding="utf-8")
    (root / "c.py").write_text("print('delta')")
    (root / "binary.txt").write_bytes(b"abc\0def")
    (root / "latin.txt").write_bytes("caf\xe9".encode("latin-1"))
    (root / "empty.txt").write_text(" \n")
    (root / "image.png").write_bytes(b"\x89PNG")
    (root / ".hidden.txt").write_text("hidden")
    (tmp_path / "secret.txt").write_text("secret")
    (root / "link.txt").symlink_to(tmp_path / "secret.txt")
    (root / "loop").symlink_to(root)
    os.mkfifo(root / "pipe.txt")
    return root


def read(path: str | Path) -> texts.Texts:
    steps: Generator[Any, None, texts.Texts] = texts.read_texts(str(path))
    while True:
        try:
            next(steps)
        except StopIteration as stop:
            found: texts.Texts = stop.value
            return found


def test_a_folder_gives_its_plain_texts_and_says_what_it_passed_over(folder: Path) -> None:
    found = read(folder)
    assert found.documents == ["alpha\nbeta", "print('delta')", "gamma"]
    why = dict(line.split(": ", 1) for line in found.skipped)
    assert why == {
        "binary.txt": "it is binary",
        "empty.txt": "it is empty",
        "image.png": "not .txt, .md or .py",
        "latin.txt": "it is not UTF-8 text",
        "link.txt": "a link, not followed",
        "loop": "a link, not followed",
        "pipe.txt": "it is no regular file",
    }


def test_the_notes_of_a_store_name_what_was_passed_over(folder: Path, tmp_path: Path) -> None:
    store, _ = opened(tmp_path / "stores", path=str(folder))
    assert store.facts.name == "texts"
    assert store.facts.documents == 3
    assert "binary" in store.notes[0]
    assert "and 4 more" in store.notes[0]
    assert (store.ids == encode.BORDER).sum() == 2


def test_a_file_above_the_limit_is_passed_over(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(texts, "MAX_FILE_BYTES", 10)
    found = read(folder)
    assert found.documents == ["gamma"]
    assert any(line.startswith("c.py: it has") for line in found.skipped)


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("binary.txt", "binary"),
        ("latin.txt", "UTF-8"),
        ("empty.txt", "empty"),
        ("image.png", "not .txt"),
        ("pipe.txt", "regular"),
        ("nothing.txt", "no file"),
        ("circle.txt", "cannot be opened"),
        ("sub/none", "no file"),
    ],
)
def test_a_single_file_that_cannot_be_used_is_refused(folder: Path, name: str, reason: str) -> None:
    (folder / "circle.txt").symlink_to(folder / "circle.txt")
    with pytest.raises(BadInput, match=reason):
        read(folder / name)


def test_a_folder_with_too_much_or_nothing_is_refused(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "bare").mkdir()
    with pytest.raises(BadInput, match="bare"):
        read(tmp_path / "bare")
    with monkeypatch.context() as patch:
        patch.setattr(texts, "MAX_TOTAL_BYTES", 12)
        with pytest.raises(BadInput, match="smaller folder"):
            read(folder)
    with monkeypatch.context() as patch:
        patch.setattr(texts, "MAX_ENTRIES", 3)
        with pytest.raises(BadInput, match="entries"):
            read(folder)


def test_folders_too_deep_are_passed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(texts, "MAX_FOLDERS_DEEP", 1)
    deep = tmp_path / "root" / "one" / "two"
    deep.mkdir(parents=True)
    (deep / "far.txt").write_text("far")
    (deep.parent / "near.txt").write_text("near")
    found = read(tmp_path / "root")
    assert found.documents == ["near"]
    assert found.skipped == ["one/two: more than 1 folders deep"]


@pytest.mark.parametrize("path", ["\0", "x" * 5000, "a\0b"])
def test_a_path_that_is_none_is_refused(path: str) -> None:
    with pytest.raises(BadInput, match="names no file"):
        read(path)


def test_text_that_cannot_be_used_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="half a character at position 1"):
        opened(tmp_path, text="a\ud800")
    with pytest.raises(BadInput, match="both a path and a text"):
        opened(tmp_path, text="a", path="b")
    with pytest.raises(BadInput, match="empty"):
        texts.pasted(" \n ")


def test_more_tokens_than_a_store_takes_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(encode, "MAX_TOKENS", 20)
    with pytest.raises(BadInput, match="more than 20 tokens"):
        opened(tmp_path, text=TEXT)


def test_pieces_are_cut_at_lines_and_lose_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(encode, "PIECE", 100)
    steps = encode.encode_texts([TEXT, "x" * 1000, TEXT[:7]], TOKENIZER)
    fractions = []
    while True:
        try:
            fractions.append(next(steps))
        except StopIteration as stop:
            ids = stop.value
            break
    assert fractions == sorted(fractions)
    assert fractions[-1] == 1
    borders = np.flatnonzero(ids == encode.BORDER)
    parts = np.split(ids, borders)
    decoded = [TOKENIZER.decode([i for i in part.tolist() if i >= 0]) for part in parts]
    assert decoded == [TEXT, "x" * 1000, TEXT[:7]]
    at_lines = TOKENIZER("".join(TEXT), add_special_tokens=False)["input_ids"]
    assert parts[0].tolist() == at_lines
