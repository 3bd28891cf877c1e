"""Corpora: the ids of the files, built once, whole or not at all."""

import os
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from clearhead.data import corpus as corpus_module
from clearhead.data import sources as sources_module
from clearhead.data.corpus import cache_folder, pair_corpus, text_corpus
from clearhead.data.pairs import PairSource
from clearhead.data.sources import TextSource
from clearhead.data.token_array import ArrayWriter, TokenArray, narrowest
from clearhead.data.tokenizers import Tokenizer
from clearhead.errors import DataError

LINES = [f"line {number} of the animal that was too tired\n" for number in range(200)]


@cache
def tokenizer(vocabulary: int = 300) -> Tokenizer:
    return Tokenizer.train("bytes", LINES, vocabulary)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "text").mkdir()
    (tmp_path / "text" / "a.txt").write_text("".join(LINES), encoding="utf-8")
    (tmp_path / "text" / "b.txt").write_text("Short, no line end: été", encoding="utf-8")
    return tmp_path


@pytest.fixture
def small_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(corpus_module, "CHARACTERS_AT_ONCE", 500)
    monkeypatch.setattr(sources_module, "STRETCH", 100)


def build(source: TextSource, root: Path, tokenizer: Tokenizer, separator: int | None = None) -> TokenArray:
    return text_corpus(source, tokenizer, separator=separator, cache=root / "cache")


def names(root: Path) -> list[str]:
    return sorted(path.name for path in (root / "cache").iterdir()) if (root / "cache").exists() else []


@pytest.mark.usefixtures("small_groups")
def test_a_text_corpus_holds_the_ids_of_the_files(folder: Path) -> None:
    ours = tokenizer()
    array = build(TextSource(folder / "text"), folder, ours, ours.eos)
    whole = ["".join(LINES), "Short, no line end: été"]
    assert array.ids.tolist() == [id for text in whole for id in [*ours.encode(text), ours.eos]]
    assert array.lengths.tolist() == [len(ours.encode(text)) + 1 for text in whole]
    assert [ours.decode(ids.tolist()) for ids in array.documents(range(len(array)))] == whole


@pytest.mark.usefixtures("small_groups")
def test_a_character_corpus_has_line_ends_and_no_unknown(folder: Path) -> None:
    source = TextSource(folder / "text")
    ours = Tokenizer.train("character", source.texts(), 100)
    array = build(source, folder, ours)
    assert ours.unknown not in array.ids
    assert array.size == sum(len(path.read_text(encoding="utf-8")) for path in source.files())


@pytest.mark.usefixtures("small_groups")
def test_lines_as_documents(folder: Path) -> None:
    array = build(TextSource(folder / "text" / "a.txt", unit="line"), folder, tokenizer())
    assert len(array) == len(LINES)
    assert tokenizer().decode(array.documents([7])[0].tolist()) == LINES[7].rstrip("\n")


@pytest.mark.usefixtures("small_groups")
def test_a_pair_corpus_holds_whole_pairs_and_counts_the_others(folder: Path) -> None:
    path = folder / "pairs.tsv"
    path.write_text("".join(f"{line.strip()}\t{number}\n" for number, line in enumerate(LINES)) + "half\t\n")
    ours, theirs = tokenizer(), Tokenizer.train("character", ["0123456789"], 20)
    pairs = pair_corpus(PairSource(path), (ours, theirs), cache=folder / "cache")
    assert (len(pairs), pairs.skipped, pairs.first_skipped) == (len(LINES), 1, f"{path}, line 201")
    assert pairs.lengths.tolist() == [
        [len(ours.encode(line.strip())), len(str(number))] for number, line in enumerate(LINES)
    ]
    for number in (0, 99, 199):
        assert ours.decode(pairs.source.documents([number])[0].tolist()) == LINES[number].strip()
        assert theirs.decode(pairs.target.documents([number])[0].tolist()) == str(number)
    again = pair_corpus(PairSource(path), (ours, theirs), cache=folder / "cache")
    assert (again.skipped, again.first_skipped) == (pairs.skipped, pairs.first_skipped)
    swapped = pair_corpus(PairSource(path, columns=(1, 0)), (theirs, ours), cache=folder / "cache")
    assert swapped.lengths.tolist() == pairs.lengths[:, ::-1].tolist()


@pytest.mark.usefixtures("small_groups")
def test_progress_goes_up_to_the_end_and_a_second_build_has_none(folder: Path) -> None:
    source = TextSource(folder / "text")

    def progress_of_a_build() -> list[tuple[int, int]]:
        seen: list[tuple[int, int]] = []
        text_corpus(source, tokenizer(), separator=None, cache=folder / "cache", progress=lambda *now: seen.append(now))
        return seen

    total = sum(path.stat().st_size for path in source.files())
    first = progress_of_a_build()
    assert len(first) > 10
    assert first == sorted(first)
    assert first[-1] == (total, total)
    assert progress_of_a_build() == []


def test_whatever_decides_the_ids_decides_the_folder(folder: Path) -> None:
    source = TextSource(folder / "text")
    build(source, folder, tokenizer())
    first = names(folder)
    (folder / "text").rename(folder / "moved")
    moved = replace(source, path=folder / "moved")
    build(moved, folder, tokenizer())
    assert names(folder) == first, "names and places do not count"

    build(moved, folder, tokenizer(290))
    build(moved, folder, tokenizer(), separator=3)
    build(replace(moved, unit="line"), folder, tokenizer())
    build(replace(moved, encoding="latin-1"), folder, tokenizer())
    with open(folder / "moved" / "b.txt", "a", encoding="utf-8") as file:
        file.write("!")
    build(moved, folder, tokenizer())
    (folder / "moved" / "a.txt").rename(folder / "moved" / "c.txt")
    build(moved, folder, tokenizer())
    assert len(names(folder)) == 7, "six further corpora: the last has its files in another order"


@pytest.mark.usefixtures("small_groups")
def test_a_failed_build_leaves_nothing(folder: Path) -> None:
    with open(folder / "text" / "a.txt", "ab") as file:
        file.write(b"bad \xff\n")
    with pytest.raises(DataError, match="line 201"):
        build(TextSource(folder / "text"), folder, tokenizer())
    assert names(folder) == []


def test_a_missing_file_and_a_place_where_nothing_can_be_written(folder: Path) -> None:
    with pytest.raises(DataError, match="there is no file"):
        build(TextSource(folder / "txt"), folder, tokenizer())
    (folder / "cache").write_text("a file in the way")
    with pytest.raises(DataError, match="cannot be written to"):
        build(TextSource(folder / "text"), folder, tokenizer())


@pytest.mark.usefixtures("small_groups")
def test_a_killed_build_leaves_nothing_under_the_right_name(folder: Path) -> None:
    program = """
import os, sys
from pathlib import Path
from clearhead.data import corpus
from clearhead.data.sources import TextSource
from clearhead.data.tokenizers import Tokenizer
root = Path(sys.argv[1])
corpus.CHARACTERS_AT_ONCE = 500
corpus.text_corpus(
    TextSource(root / "text"), Tokenizer.load(root), separator=None, cache=root / "cache",
    progress=lambda done, total: os._exit(9),
)
"""
    tokenizer().save(folder)
    killed = subprocess.run([sys.executable, "-c", program, str(folder)], timeout=60, check=False)
    assert killed.returncode == 9
    (left,) = names(folder)
    assert left.startswith(".")

    source = TextSource(folder / "text")
    array = build(source, folder, tokenizer())
    assert tokenizer().decode(array.documents([0])[0].tolist()) == "".join(LINES)
    assert left in names(folder), "a fresh one may belong to a build that still runs"

    (right,) = (name for name in names(folder) if name != left)
    (folder / "cache" / right).rename(folder / "elsewhere")
    long_ago = time.time() - 2 * corpus_module.ABANDONED_AFTER
    for path in (*(folder / "cache" / left).iterdir(), folder / "cache" / left):
        os.utime(path, (long_ago, long_ago))
    build(source, folder, tokenizer())
    assert names(folder) == [right]


def test_two_builders_at_once_agree(folder: Path) -> None:
    source = TextSource(folder / "text")

    def built_by_somebody_else(done: int, total: int) -> None:
        text_corpus(source, tokenizer(), separator=None, cache=folder / "cache")

    array = text_corpus(source, tokenizer(), separator=None, cache=folder / "cache", progress=built_by_somebody_else)
    assert array.ids.tolist() == build(source, folder, tokenizer()).ids.tolist()
    assert len(names(folder)) == 1


@pytest.mark.parametrize("name", ["source.ids", "target.offsets", "about.json"])
@pytest.mark.parametrize("kept", [None, 0, -1, -2])
def test_a_damaged_corpus_is_refused(folder: Path, name: str, kept: int | None) -> None:
    (folder / "pairs.tsv").write_text("a\tb\nc\td\n")
    source, tokenizers = PairSource(folder / "pairs.tsv"), (tokenizer(), tokenizer())
    pair_corpus(source, tokenizers, cache=folder / "cache")
    (file,) = (folder / "cache").glob(f"*/{name}")
    if kept is None:
        file.unlink()
    else:
        file.write_bytes(file.read_bytes()[:kept])
    with pytest.raises(DataError, match="damaged; delete"):
        pair_corpus(source, tokenizers, cache=folder / "cache")


def test_where_corpora_are_kept(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    monkeypatch.setenv("CLEARHEAD_CACHE", str(folder / "here"))
    text_corpus(TextSource(folder / "text"), tokenizer(), separator=None)
    assert [path.parent for path in (folder / "here").iterdir()] == [cache_folder()]
    monkeypatch.delenv("CLEARHEAD_CACHE")
    assert cache_folder() == Path.home() / ".cache" / "clearhead"


@pytest.mark.parametrize("vocabulary", [2, 1 << 16, (1 << 16) + 1])
def test_ids_take_two_bytes_where_they_can(vocabulary: int) -> None:
    dtype = narrowest(vocabulary)
    assert dtype.itemsize == (2 if vocabulary <= 65536 else 4)
    assert np.iinfo(dtype).max >= vocabulary - 1


documents = st.lists(st.lists(st.integers(0, 70000), max_size=6), max_size=6)


@given(rows=documents, data=st.data())
def test_written_and_opened_is_the_same_as_in_memory(
    tmp_path_factory: pytest.TempPathFactory, rows: list[list[int]], data: st.DataObject
) -> None:
    folder = tmp_path_factory.mktemp("array")
    with ArrayWriter(folder, "x", narrowest(70001)) as writer:
        for row in rows:
            writer.add(row[:2], last=False)
            writer.add(row[2:])
    opened, held = TokenArray.open(folder, "x", narrowest(70001)), TokenArray.of(rows)
    for array in (opened, held):
        assert [found.tolist() for found in array.documents(range(len(array)))] == rows
        assert array.lengths.tolist() == [len(row) for row in rows]
        assert array.size == sum(map(len, rows))
    stream = [id for row in rows for id in row]
    start, stop = sorted(data.draw(st.tuples(*[st.integers(0, len(stream))] * 2)))
    part = opened.part(start, stop)
    assert part.spans([(0, 2), (1, 3)])[1].tolist() == stream[start:stop][1:3]
    numbered = [(number, id) for number, row in enumerate(rows) for id in row][start:stop]
    whole = [[id for number, id in numbered if number == which] for which in range(len(rows))]
    assert [ids.tolist() for ids in part.documents(range(len(part))) if len(ids)] == [ids for ids in whole if ids]


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="reads the resident size from /proc")
def test_reading_a_mapped_array_takes_no_memory(tmp_path: Path) -> None:
    tokens, stretch = 16 << 20, 1 << 16
    with ArrayWriter(tmp_path, "x", np.dtype("<u2")) as writer:
        writer.add(np.zeros(tokens, np.uint16))  # type: ignore[arg-type]
    array = TokenArray.open(tmp_path, "x", np.dtype("<u2"))

    def mapped_kilobytes(read: Callable[[int], object]) -> int:
        for start in range(0, tokens, stretch):
            read(start)
        status = Path("/proc/self/status").read_text()
        return int(status.split("RssFile:")[1].split()[0])

    flat = mapped_kilobytes(lambda start: array.spans([(start, start + stretch)]))
    grown = mapped_kilobytes(lambda start: array.ids[start : start + stretch].sum())
    assert grown - flat > tokens * 2 // 1024 // 2, "read without giving back, it would grow"
