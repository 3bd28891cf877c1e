"""What the verbs that answer line by line have in common: what they read, and when."""

import io
import json
import os
import sys
import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clearhead.cli.text import LONGEST_LINE, batches, say_figures, say_json, say_line
from clearhead.errors import DataError


class Blocks(io.RawIOBase):
    """A stream from which each read gets what came at once."""

    def __init__(self, blocks: list[bytes]) -> None:
        self.blocks = [block for block in blocks if block]

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:
        block = self.blocks.pop(0) if self.blocks else b""
        given, left = block[: len(buffer)], block[len(buffer) :]
        self.blocks[:0] = [left] if left else []
        buffer[: len(given)] = given
        return len(given)


def read(*blocks: bytes) -> list[list[str]]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "stdin", io.TextIOWrapper(io.BufferedReader(Blocks(list(blocks)))))
        return list(batches(None))


def test_arguments_come_before_stdin() -> None:
    assert list(batches(["a", "b"])) == [["a", "b"]]


@given(st.lists(st.text(st.characters(codec="utf-8", exclude_characters="\n\r\0\ufeff"))), st.data())
def test_lines_are_whole_however_they_arrive(lines: list[str], data: st.DataObject) -> None:
    content = "".join(f"{line}\n" for line in lines).encode()
    cuts = sorted(data.draw(st.lists(st.integers(0, len(content)), max_size=5)))
    blocks = [content[start:stop] for start, stop in zip([0, *cuts], [*cuts, len(content)], strict=True)]
    assert [line for batch in read(*blocks) for line in batch] == lines


def test_what_came_together_is_one_batch() -> None:
    assert read(b"un\ndeux\ntr", b"ois\n") == [["un", "deux"], ["trois"]]


def test_the_last_line_needs_no_end_and_windows_ends_are_ends() -> None:
    assert read(b"un\r\n\ndeux") == [["un", ""], ["deux"]]


def test_a_byte_order_mark_is_no_text() -> None:
    assert read("\ufeffun\r\n\ufeffdeux\n".encode(), "\ufefftrois".encode()) == [["un", "\ufeffdeux"], ["\ufefftrois"]]


def test_nothing_gives_nothing() -> None:
    assert read() == []


@pytest.mark.parametrize(
    ("line", "why"),
    [
        (b"caf\xe9", "0xe9"),
        (b"a\0b", "NUL"),
        (b"x" * (LONGEST_LINE + 1), "longer"),
        (b"x" * 9 * LONGEST_LINE, "longer"),
        ("中".encode() * 160_000, "longer"),
    ],
    ids=["latin-1", "binary", "long", "endless", "endless in other characters"],
)
@pytest.mark.parametrize("end", [b"", b"\n"])
def test_a_bad_line_is_named(line: bytes, why: str, end: bytes) -> None:
    with pytest.raises(DataError, match=rf"stdin, line 3: .*{why}"):
        read(b"un\ndeux\n", line + end)


@pytest.mark.parametrize("end", [b"", b"\n", b"\r\n"])
def test_the_longest_line_in_the_widest_characters(end: bytes) -> None:
    assert read("😀".encode() * LONGEST_LINE, end) == [["😀" * LONGEST_LINE]]


def test_who_writes_a_line_and_waits_gets_it_back(monkeypatch: pytest.MonkeyPatch) -> None:
    receiving, sending = os.pipe()
    with os.fdopen(receiving) as stdin, os.fdopen(sending, "wb", buffering=0) as writer:
        monkeypatch.setattr(sys, "stdin", stdin)
        answers = batches(None)
        for word in (b"un", b"deux"):
            # The pipe stays open: a reader that waits for its end, or for a full block, would hang here.
            rescue = threading.Timer(30, writer.close)
            rescue.start()
            writer.write(word + b"\n")
            assert next(answers) == [word.decode()]
            rescue.cancel()
            assert not writer.closed


def test_a_line_stays_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    say_line("un\ndeux\u2028trois")
    assert capsys.readouterr().out == "un deux trois\n"


def test_json_is_strict(capsys: pytest.CaptureFixture[str]) -> None:
    say_json({"text": "é\n", "loss": float("inf"), "bleu": 1.5, "words": [["a", "O"]]})
    assert capsys.readouterr().out.count("\n") == 1
    say_json({"text": "é\n", "loss": float("nan")})
    assert json.loads(capsys.readouterr().out) == {"text": "é\n", "loss": None}
    say_json({"scores": {"rmse": float("inf")}, "tokens": [["a", float("-inf")], ("b", -0.5)]})
    assert json.loads(capsys.readouterr().out) == {"scores": {"rmse": None}, "tokens": [["a", None], ["b", -0.5]]}


def test_figures_stand_in_two_columns(capsys: pytest.CaptureFixture[str]) -> None:
    say_figures({"bleu": 97.123456789, "signature": "nrefs:1"})
    assert [line.split() for line in capsys.readouterr().out.splitlines()] == [
        ["bleu", "97.1235"],
        ["signature", "nrefs:1"],
    ]
