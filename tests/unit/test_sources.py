"""Reading what users have, and one sentence with file and line for what cannot be read."""

import gzip
import json
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clearhead.data import sources
from clearhead.data.labelled import labelled_texts, tagged_sentences
from clearhead.data.pairs import PairSource
from clearhead.data.sources import Tally, TextSource, lines, records, text_of
from clearhead.errors import ConfigError, DataError

Write = Callable[[str, bytes], Path]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    def written(name: str, content: bytes) -> Path:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(gzip.compress(content) if name.endswith(".gz") else content)
        return path

    return written


def texts_of(path: Path, encoding: str = "utf-8") -> list[str]:
    return [line.text for line in lines(path, encoding)]


@pytest.mark.parametrize("name", ["a.txt", "a.txt.gz", "a.gz", "noname"])
@pytest.mark.parametrize(
    "content",
    ["é\n\n日本", "é\r\n\r\n日本\r\n", "é\r\r日本\r", "\ufeffé\n\n日本\n"],
    ids=["lf", "crlf", "cr", "mark"],
)
def test_lines_whatever_their_ends(write: Write, name: str, content: str) -> None:
    path = write(name, content.encode())
    assert texts_of(path) == ["é", "", "日本"]
    assert [line.where for line in lines(path)] == [f"{path}, line {number}" for number in (1, 2, 3)]


def test_other_line_separators_stay_in_the_line(write: Write) -> None:
    assert texts_of(write("a.txt", "a\u2028b\x0bc\x85d\n".encode())) == ["a\u2028b\x0bc\x85d"]


@pytest.mark.parametrize("encoding", ["latin-1", "utf-16", "UTF8"])
def test_other_encodings(write: Write, encoding: str) -> None:
    assert texts_of(write("a.txt", "café\nñ\n".encode(encoding)), encoding) == ["café", "ñ"]


@pytest.mark.parametrize(
    ("content", "encoding", "message"),
    [
        (b"fine\nbad \xe9t\xe9\n", "utf-8", r"a\.txt, line 2: byte 9 \(0xe9\) is no utf-8; .*'latin-1'"),
        (b"x\n" * 40000 + b"\xff", "utf-8", r"line 40001: byte 80000 \(0xff\)"),
        ("é".encode() * 32768 + b"\xa9", "utf-8", r"line 1: byte 65536 \(0xa9\)"),
        (b"a\ncut \xe2\x82", "utf-8", "line 2: the file ends within a character"),
        ("ab".encode("utf-16"), "utf-8", "line 1: byte 0 .*'utf-16'"),
        (b"ab\nc\0d\n", "utf-8", "line 2: a NUL byte"),
        (b"ab", "klingon", "cannot be read: unknown encoding: klingon"),
    ],
)
@pytest.mark.parametrize("name", ["a.txt", "a.txt.gz"])
def test_what_is_no_text(write: Write, name: str, content: bytes, encoding: str, message: str) -> None:
    with pytest.raises(DataError, match=message.replace(r"a\.txt", r"a\.txt(\.gz)?")):
        texts_of(write(name, content), encoding)


@pytest.mark.parametrize("excess", [0, 1])
@pytest.mark.parametrize("end", ["", "\n"])
def test_a_line_has_a_longest_length(write: Write, monkeypatch: pytest.MonkeyPatch, excess: int, end: str) -> None:
    monkeypatch.setattr(sources, "LONGEST_LINE", 10)
    path = write("a.txt", f"ok\n{'é' * (10 + excess)}{end}".encode())
    if excess:
        with pytest.raises(DataError, match="line 2: longer than 10 characters"):
            texts_of(path)
    else:
        assert texts_of(path) == ["ok", "é" * 10]


def test_missing_broken_and_unreadable_files(write: Write, tmp_path: Path) -> None:
    write("train.txt", b"a")
    with pytest.raises(DataError, match=r"no file '.*trian\.txt'; did you mean 'train\.txt'\?"):
        texts_of(tmp_path / "trian.txt")
    with pytest.raises(DataError, match=r"no file '[^;]*'$"):
        TextSource(tmp_path / "nowhere" / "a.txt").files()
    with pytest.raises(DataError, match="cannot be read"):
        texts_of(tmp_path)
    whole = gzip.compress(b"abc\n" * 99)
    for content in (b"no gzip", whole[:-10], whole[:20] + b"\xff" * 20):
        (tmp_path / "a.gz").write_bytes(content)
        with pytest.raises(DataError, match="not a whole gzip file"):
            texts_of(tmp_path / "a.gz")


@pytest.mark.parametrize("name", ["a.txt", "a.txt.gz"])
def test_a_tally_counts_the_bytes_on_the_disk(write: Write, name: str) -> None:
    path = write(name, b"abc\n" * 50000)
    tally = Tally()
    assert sum(1 for _ in lines(path, tally=tally)) == 50000
    assert tally.read == path.stat().st_size


def test_a_folder_is_read_in_the_order_of_names(write: Write, tmp_path: Path) -> None:
    for name in ("b.txt", "a/z.md", "a/b.txt.gz", "c.jsonl", ".hidden/x.txt", "d.png", "e.tar.gz", "README"):
        write(f"corpus/{name}", b'{"text": "c.jsonl"}' if name.endswith("jsonl") else name.encode())
    source = TextSource(tmp_path / "corpus")
    assert list(source.texts()) == ["a/b.txt.gz", "a/z.md", "b.txt", "c.jsonl"]
    assert all(stretch.last for stretch in source.stretches())
    (tmp_path / "none").mkdir()
    with pytest.raises(DataError, match=r"none' holds no text file \(.*\.txt"):
        TextSource(tmp_path / "none").files()


@given(content=st.text("ab \n\t", max_size=200), size=st.integers(1, 20))
def test_stretches_joined_are_the_file(tmp_path_factory: pytest.TempPathFactory, content: str, size: int) -> None:
    path = tmp_path_factory.mktemp("stretch") / "a.txt"
    path.write_text(content + "end", encoding="utf-8", newline="")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sources, "STRETCH", size)
        found = list(TextSource(path).stretches())
    assert "".join(stretch.text for stretch in found) == content + "end"
    assert [stretch.last for stretch in found] == [False] * (len(found) - 1) + [True]
    assert all(stretch.text.endswith("\n") and len(stretch.text) >= size for stretch in found[:-1])
    assert not any(stretch.text.removeprefix(" ")[0].isspace() for stretch in found[1:])


def test_lines_or_files_are_documents(write: Write) -> None:
    path = write("a.txt", b"one\n\n two\n")
    assert [stretch.text for stretch in TextSource(path).stretches()] == ["one\n\n two\n"]
    assert [stretch.text for stretch in TextSource(path, unit="line").stretches()] == ["one", " two"]
    assert list(TextSource(path).texts()) == ["one\n\n two\n"], "a tokenizer has to know line ends too"
    with pytest.raises(ConfigError, match="not 'page'"):
        TextSource(path, unit="page")


@pytest.mark.parametrize(("content", "unit"), [(b"", "file"), (b"", "line"), (b"\n \n", "line")])
def test_a_source_without_text(write: Write, content: bytes, unit: str) -> None:
    with pytest.raises(DataError, match=r"a\.txt' holds no text"):
        list(TextSource(write("a.txt", content), unit=unit).stretches())


def test_json_lines(write: Write) -> None:
    path = write(
        "a.jsonl", b'{"text": "\\u00e9\\n", "a.b": "dotted", "a": {"b": "nested", "c": "deep"}}\n\n{"text": "x"}\n'
    )
    assert [stretch.text for stretch in TextSource(path).stretches()] == ["é\n", "x"]
    first, second = records(path)
    assert (text_of(first, "a.b"), text_of(first, "a.c"), second.line.number) == ("dotted", "deep", 3)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ('{"text": "a"}\n{"text": \n', "line 2: not JSON"),
        ("[" * 100000, "line 1: not JSON"),
        ('["a"]', r"line 1: a JSON object is wanted, not \[\"a\"\]"),
        ('{"body": "a", "meta": {"id": 1}}', r"line 1: no field 'text'; there are \['body', 'meta.id'\]"),
        ('{"text": {"a": 1}}', "line 1: the field 'text' is no text but"),
        ('{"text": "\\ud800"}', "line 1: the field 'text' holds half a surrogate pair"),
    ],
)
def test_what_is_no_record(write: Write, content: str, message: str) -> None:
    with pytest.raises(DataError, match=message):
        list(TextSource(write("a.jsonl", content.encode())).texts())


PAIRS = [("je suis là", "i am here"), ("ça va", "fine")]


def test_pairs_of_every_form(write: Write) -> None:
    left = write("a.fr", "".join(f"{fr}\n" for fr, _ in PAIRS).encode())
    right = write("a.en.gz", "\r\n".join(en for _, en in PAIRS).encode())
    nested = [{"translation": {"fr": fr, "en": en}} for fr, en in PAIRS]
    found = [
        PairSource(left, right),
        PairSource(write("a.tsv", "".join(f" {fr}\t{en} \n" for fr, en in PAIRS).encode())),
        PairSource(write("b.txt", "".join(f"{en}\t{fr}\tCC-BY\n" for fr, en in PAIRS).encode()), columns=(1, 0)),
        PairSource(
            write("a.jsonl", "\n".join(map(json.dumps, nested)).encode()), fields=("translation.fr", "translation.en")
        ),
    ]
    for source in found:
        assert [pair[:2] for pair in source.pairs()] == PAIRS
        assert [pair.line.number for pair in source.pairs()] == [1, 2]


def test_half_pairs_are_skipped_and_counted(write: Write) -> None:
    source = PairSource(write("a.tsv", b"a\tb\n\t c\n\nd\t \ne\tf\n"))
    tally = Tally()
    assert [pair[:2] for pair in source.pairs(tally)] == [("a", "b"), ("e", "f")]
    assert (tally.skipped, tally.first_skipped) == (2, f"{source.path}, line 2")
    parallel = PairSource(write("a", b"a\n\nc\n"), write("b", b"x\ny\n \n"))
    assert [pair[:2] for pair in parallel.pairs(tally)] == [("a", "x")]
    assert tally.skipped == 4


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.tsv", b"a\tb\nonly one\n", r"a\.tsv, line 2: 2 columns separated by tabs are wanted, not 1"),
        ("a.tsv", b"", r"a\.tsv' holds no pair"),
        ("a.tsv", b"a\t\n", r"a\.tsv' holds no pair"),
        ("a.jsonl", b'{"source": "a"}', "line 1: no field 'target'"),
    ],
)
def test_what_is_no_pair(write: Write, name: str, content: bytes, message: str) -> None:
    with pytest.raises(DataError, match=message):
        list(PairSource(write(name, content)).pairs())


@pytest.mark.parametrize(("left", "right"), [(3, 5), (5, 3), (0, 1)])
def test_parallel_files_of_unequal_length(write: Write, left: int, right: int) -> None:
    source = PairSource(write("a.fr", b"x\n" * left), write("a.en", b"y\n" * right))
    with pytest.raises(DataError, match=rf"a\.fr has {left}, .*a\.en has {right}"):
        list(source.pairs())
    with pytest.raises(ConfigError, match="counted from 0"):
        PairSource(source.path, columns=(0, -1))


LABELLED = [("1", "good , really"), ("0", "bad")]


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.txt", "1 good , really\n\n0 bad\n"),
        ("a.train", "1\tgood , really\n0\tbad\n"),
        ("a.csv", 'id,text,label\n1,"good , really",1\n\n2,bad,0\n'),
        ("a.jsonl", '{"label": 1, "text": "good , really"}\n{"label": "0", "text": "bad"}\n'),
    ],
)
def test_labelled_text_of_every_form(write: Write, name: str, content: str) -> None:
    assert [row[:2] for row in labelled_texts(write(name, content.encode()))] == LABELLED


def test_labelled_text_with_other_names_encodings_and_line_ends_inside(write: Write) -> None:
    path = write("a.csv", 'class,body\nHUM:ind,"who,\nme?"\nLOC,où\n'.encode("latin-1"))
    found = list(labelled_texts(path, label="class", text="body", encoding="latin-1"))
    assert [row[:2] for row in found] == [("HUM:ind", "who,\nme?"), ("LOC", "où")]
    assert [row.line.number for row in found] == [3, 4]


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.txt", "1 ok\nalone\n", "line 2: a label and a text are wanted"),
        ("a.txt", "", r"a\.txt' holds no labelled text"),
        ("a.csv", "text,kind\nx,1\n", r"line 1: no column is called 'label'; there are \['text', 'kind'\]"),
        ("a.csv", "text,label\nx\n", "line 2: 2 columns are wanted, not 1"),
        ("a.csv", 'text,label\n"x" y,1\n', "line 2: not CSV"),
        ("a.csv", 'text,label\nx,1\n"open,0\n', "line 3: not CSV"),
        ("a.jsonl", '{"text": "x"}', "line 1: no field 'label'"),
    ],
)
def test_what_is_no_labelled_text(write: Write, name: str, content: str, message: str) -> None:
    with pytest.raises(DataError, match=message):
        list(labelled_texts(write(name, content.encode())))


def test_tagged_sentences(write: Write) -> None:
    content = "-DOCSTART- -X- O\n\nEU NNP B-ORG\nrejects VBZ O\n\n\nPeter NNP B-PER"
    found = list(tagged_sentences(write("a.conll", content.encode())))
    assert [(sentence.words, sentence.tags) for sentence in found] == [
        (("EU", "rejects"), ("B-ORG", "O")),
        (("Peter",), ("B-PER",)),
    ]
    assert [sentence.line.number for sentence in found] == [3, 7]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("EU B-ORG\nrejects\n", "line 2: 2 columns are wanted, not 1"),
        ("EU\n", "line 1: 2 columns are wanted, not 1"),
        ("EU B-ORG\n\nPeter NNP B-PER\n", "line 3: 2 columns are wanted, not 3"),
        ("\n\n", "holds no tagged sentence"),
    ],
)
def test_what_is_no_tagged_sentence(write: Write, content: str, message: str) -> None:
    with pytest.raises(DataError, match=message):
        list(tagged_sentences(write("a.conll", content.encode())))
