"""GGUF files that are cut, damaged or lie: one sentence, whatever they claim."""

import contextlib
import struct
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from clearhead.convert.gguf import GgufFile
from clearhead.errors import CheckpointError, MissingPackageError

gguf = pytest.importorskip("gguf")

TEXT, LIST, FLOAT, U32, U8 = 8, 9, 6, 4, 0


def text(value: str | bytes) -> bytes:
    data = value if isinstance(value, bytes) else value.encode()
    return struct.pack("<Q", len(data)) + data


def setting(name: str | bytes, type: int, value: bytes) -> bytes:
    return text(name) + struct.pack("<I", type) + value


def tensor(name: str, shape: list[int], type: int = 0, offset: int = 0) -> bytes:
    return text(name) + struct.pack(f"<I{len(shape)}QIQ", len(shape), *shape, type, offset)


def header(*parts: bytes, tensors: int = 0, settings: int | None = None, version: int = 3) -> bytes:
    count = len(parts) - tensors if settings is None else settings
    return b"GGUF" + struct.pack("<IQQ", version, tensors, count) + b"".join(parts)


LLAMA = setting("general.architecture", TEXT, text("llama"))
WEIGHT = tensor("blk.0.attn_v.weight", [4, 2])


def whole_file() -> bytes:
    """Two settings and one tensor of two rows, written by hand from the format's description."""
    words = struct.pack("<IQ", TEXT, 2) + text("a") + text("é")
    start = header(LLAMA, setting("words", LIST, words), WEIGHT, tensors=1)
    return start + bytes(-len(start) % 32) + np.arange(8, dtype=np.float32).tobytes()


def opened(folder: Path, data: bytes) -> GgufFile:
    (folder / "a.gguf").write_bytes(data)
    return GgufFile(folder / "a.gguf")


def test_a_file_written_by_hand_is_read(tmp_path: Path) -> None:
    file = opened(tmp_path, whole_file())
    assert file.settings == {"general.architecture": "llama", "words": ["a", "é"]}
    assert file["model.layers.0.self_attn.v_proj.weight"].tolist() == [[0, 1, 2, 3], [4, 5, 6, 7]]


@pytest.mark.parametrize(("type", "code", "value"), [
    (0, "B", 200), (1, "b", -3), (2, "H", 60_000), (3, "h", -3), (4, "I", 2**31), (5, "i", -3), (6, "f", 0.5),
    (7, "?", True), (10, "Q", 2**63), (11, "q", -3), (12, "d", 1e300),
])  # fmt: skip
def test_settings_of_every_type_are_read(tmp_path: Path, type: int, code: str, value: Any) -> None:
    single, many = struct.pack(f"<{code}", value), struct.pack(f"<IQ2{code}", type, 2, value, value)
    file = opened(tmp_path, header(LLAMA, setting("a", type, single), setting("b", LIST, many)))
    assert (file.settings["a"], file.settings["b"]) == (value, [value, value])


def test_a_file_that_ends_early_is_refused_wherever_it_ends(tmp_path: Path) -> None:
    data = whole_file()
    for length in range(len(data)):
        with pytest.raises(CheckpointError) as found:
            opened(tmp_path, data[:length])
        assert "\n" not in str(found.value)


@given(place=st.integers(0, 120), flip=st.integers(1, 255))
def test_a_damaged_file_is_refused_or_read_but_nothing_else(
    tmp_path_factory: pytest.TempPathFactory, place: int, flip: int
) -> None:
    data = whole_file()
    with contextlib.suppress(CheckpointError):
        file = opened(tmp_path_factory.getbasetemp(), data[:place] + bytes([data[place] ^ flip]) + data[place + 1 :])
        assert all(value.numel() for value in file.values())


HUGE = 2**63


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "empty"),
        (b"GGML" + bytes(20), "begins with b'GGML'"),
        (header(version=1), "version 1"),
        (header(version=0x03000000), "version 50331648"),
        (header(LLAMA, settings=HUGE), "8 more bytes, and 0 are left"),
        (header(LLAMA, tensors=1, settings=1), "8 more bytes, and 0 are left"),
        (header(struct.pack("<Q", HUGE), settings=1), f"claims {HUGE} more bytes"),
        (header(setting("a", TEXT, struct.pack("<Q", HUGE))), f"claims {HUGE} more bytes"),
        (header(setting("a", LIST, struct.pack("<IQ", U8, HUGE))), f"claims {HUGE} more bytes"),
        (header(setting("a", LIST, struct.pack("<IQ", FLOAT, HUGE))), f"claims {4 * HUGE} more bytes"),
        (header(setting("a", LIST, struct.pack("<IQ", TEXT, HUGE))), "8 more bytes, and 0 are left"),
        (header(setting("a", LIST, struct.pack("<IQ", LIST, 1))), "lists are of numbers or texts"),
        (header(setting("a", 13, b"")), "type 13"),
        (header(setting(b"\xff", U8, b"a")), "codec can't decode"),
        (header(LLAMA, LLAMA), "'general.architecture' is there twice"),
        (header(LLAMA, setting("general.alignment", U32, bytes(4))), "general.alignment is 0"),
        (header(LLAMA, setting("general.alignment", TEXT, text("x"))), "general.alignment is 'x'"),
        (header(LLAMA, WEIGHT, WEIGHT, tensors=2), "attn_v.weight' is there twice"),
        (header(LLAMA, tensor("a", []), tensors=1), "0 dimensions"),
        (header(LLAMA, tensor("a", [1] * 5), tensors=1), "5 dimensions"),
        (header(LLAMA, tensor("a", [0, 2]), tensors=1), "blocks of 1"),
        (header(LLAMA, tensor("a", [33, 2], type=8), tensors=1), "blocks of 32"),
        (header(LLAMA, tensor("a", [32], type=99), tensors=1), "99 is not a valid"),
        (header(LLAMA, tensor("a", [HUGE, HUGE]), tensors=1), f"would end at byte {4 * HUGE * HUGE + 128}"),
        (header(LLAMA, tensor("a", [4], offset=HUGE), tensors=1), f"would end at byte {HUGE + 16 + 128}"),
        (header(), "architecture 'None'; known are llama, qwen2"),
        (header(setting("general.architecture", TEXT, text("mamba"))), "architecture 'mamba'"),
        (header(LLAMA, setting("split.count", U32, struct.pack("<I", 3))), "one of 3 parts"),
        (header(LLAMA, setting("split.count", TEXT, text("x"))), "split.count='x'"),
    ],
)
def test_what_is_no_gguf_file(tmp_path: Path, data: bytes, message: str) -> None:
    with pytest.raises(CheckpointError, match=message) as found:
        opened(tmp_path, data)
    assert "\n" not in str(found.value)


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="No such file"):
        GgufFile(tmp_path / "a.gguf")


EMBED = tensor("token_embd.weight", [4, 2])
NUMBERS = {"attention.head_count": 2, "embedding_length": 4, "feed_forward_length": 8, "block_count": 1,
           "context_length": 8}  # fmt: skip
EPSILON = setting("llama.attention.layer_norm_rms_epsilon", FLOAT, struct.pack("<f", 1e-5))


def settings_of(numbers: dict[str, int]) -> list[bytes]:
    return [setting(f"llama.{name}", U32, struct.pack("<I", value)) for name, value in numbers.items()]


BASE = setting("llama.rope.freq_base", TEXT, text("x"))
DEPTH = setting("llama.block_count", TEXT, text("x"))
WIDTHS = setting("llama.feed_forward_length", LIST, struct.pack("<IQ2I", U32, 2, 8, 9))


@pytest.mark.parametrize(
    ("without", "also", "message"),
    [
        ("attention.head_count", [], "says llama.attention.head_count=None"),
        ("attention.head_count", settings_of({"attention.head_count": 0}), "head_count=0"),
        ("", settings_of({"expert_count": 8}), "expert_count=8"),
        ("", settings_of({"rope.dimension_count": 1}), "rope.dimension_count=1, and only 2"),
        ("", settings_of({"attention.value_length": 7}), "value_length=7"),
        ("", [BASE], "freq_base='x'"),
        ("block_count", [DEPTH], "block_count='x'"),
        ("feed_forward_length", [WIDTHS], r"feed_forward_length=\[8, 9\]"),
    ],
)
def test_what_no_config_can_say(tmp_path: Path, without: str, also: list[bytes], message: str) -> None:
    numbers = {name: value for name, value in NUMBERS.items() if name != without}
    parts = [LLAMA, EPSILON, *settings_of(numbers), *also]
    with pytest.raises(CheckpointError, match=message):
        _ = opened(tmp_path, header(*parts, EMBED, tensors=1) + bytes(100)).config
    with pytest.raises(CheckpointError, match="holds no weights"):
        _ = opened(tmp_path, header(*parts)).config


def test_one_number_for_each_layer_will_do_where_they_are_the_same(tmp_path: Path) -> None:
    numbers = {name: value for name, value in NUMBERS.items() if name != "feed_forward_length"}
    each = setting("llama.feed_forward_length", LIST, struct.pack("<IQ2I", U32, 2, 8, 8))
    data = header(LLAMA, EPSILON, each, *settings_of(numbers), EMBED, tensors=1)
    assert opened(tmp_path, data + bytes(100)).config["intermediate_size"] == 8


def test_tensors_that_cannot_be_laid_out_or_read(tmp_path: Path) -> None:
    odd, whole = tensor("blk.0.attn_q.weight", [4, 6]), tensor("blk.0.attn_v.weight", [4], type=26)
    heads = settings_of({"attention.head_count": 2})
    file = opened(tmp_path, header(LLAMA, *heads, odd, whole, tensors=2) + bytes(200))
    with pytest.raises(CheckpointError, match=r"6 rows.*2 heads"):
        file["model.layers.0.self_attn.q_proj.weight"]
    with pytest.raises(CheckpointError, match="type I32"):
        file["model.layers.0.self_attn.v_proj.weight"]
    with pytest.raises(KeyError):
        file["nowhere"]
    (tmp_path / "a.gguf").write_bytes(b"")
    with pytest.raises(CheckpointError, match="shorter"):
        file["model.layers.0.self_attn.q_proj.weight"]


def test_a_file_that_was_joined_from_parts_is_whole(tmp_path: Path) -> None:
    assert len(opened(tmp_path, header(LLAMA, setting("split.count", U32, bytes(4))))) == 0


def test_names_that_are_not_known_stay(tmp_path: Path) -> None:
    parts = [tensor(name, [1]) for name in ("blk.0.attn_rot.weight", "blk.x.attn_q.weight", "other", "cls.weight")]
    file = opened(tmp_path, header(LLAMA, *parts, tensors=4) + bytes(100))
    assert list(file) == ["blk.0.attn_rot.weight", "blk.x.attn_q.weight", "other", "cls.weight"]
    assert len(file) == 4


def test_the_package_is_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "gguf", None)
    with pytest.raises(MissingPackageError, match="pip install"):
        opened(tmp_path, whole_file())
