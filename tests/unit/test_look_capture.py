"""Recordings: what passes is what hooks by hand see, nothing more is kept, and files come back as they went."""

import json
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import save_file
from torch import Tensor

from clearhead.errors import ConfigError, DataError, ShapeError
from clearhead.generate.decode import Prompts, decode
from clearhead.generate.greedy import take_best
from clearhead.look.capture import look, matching, tap_axes
from clearhead.look.recording import Recording, Seen
from clearhead.tap import named_taps, watching
from tests.unit.small import MODES, read, small_model, tokens


@pytest.mark.parametrize("mode", sorted(MODES))
def test_everything_that_passes_is_seen_as_it_is(mode: str) -> None:
    model, token_BL = small_model(mode, positions="alibi"), tokens()
    plain = read(model, token_BL)
    passed: dict[str, Tensor] = {}
    hooks = {name: lambda x, name=name: passed.setdefault(name, x) for name in named_taps(model)}
    with watching(model, hooks):
        read(model, token_BL)
    with look(model, "*") as seen:
        watched = read(model, token_BL)
    assert torch.allclose(watched, plain, atol=1e-5)
    assert set(seen) == set(passed)
    for name, value in passed.items():
        assert torch.equal(seen[name].tensor, value)
        assert seen[name].steps == [0]
        assert len(seen[name].axes) == value.dim()
        assert not seen[name].tensor.requires_grad
    assert not any(tap.watched for tap in named_taps(model).values())


def test_only_what_was_asked_for_is_kept() -> None:
    model = small_model("encoder_decoder")
    with look(model, ["decoder.*.cross.weights", "output.logits"]) as seen:
        read(model, tokens())
    assert list(seen) == ["decoder.0.cross.weights", "decoder.1.cross.weights", "output.logits"]
    assert seen["decoder.1.cross.weights"].axes == "BHLM"
    assert seen["decoder.1.cross.weights"].axis_names == ("row", "head", "query", "key")
    assert "decoder.0.attention.weights" not in seen
    with pytest.raises(ConfigError, match=r"nothing named 'decoder\.2\.cross\.weights'.*decoder\.1\.cross"):
        seen["decoder.2.cross.weights"]


def test_a_pattern_that_matches_nothing_names_the_nearest() -> None:
    model = small_model("decoder_only")
    with pytest.raises(ConfigError, match=r"'decoder\.0\.atention\.weights'.*'decoder\.0\.attention\.weights'"):
        matching(model, ["embed.sum", "decoder.0.atention.weights"])
    with pytest.raises(ConfigError, match="no tap matches"), look(model, "decoder.*.cross.weights"):
        pass
    assert not any(tap.watched for tap in named_taps(model).values())


@pytest.mark.parametrize("mode", ["decoder_only", "encoder_decoder"])
def test_the_steps_of_a_generation_join_to_a_whole_pass(mode: str) -> None:
    model, source = small_model(mode, positions="rotary"), tokens(1, 4)
    names = ["decoder.*.weights", "decoder.*.branch", "decoder.*.attention.k", "output.logits", "*.sum"]
    with look(model, names) as seen:
        state = model.start(source) if mode == "encoder_decoder" else model.start()
        *_, (written,) = decode(model, state, Prompts(tokens(1, 2), [4], None), choose=take_best)
    assert seen["decoder.1.attention.weights"].steps == [0, 1, 2, 3]
    assert seen["output.logits"].steps == [0, 1, 2, 3]
    text = torch.cat([tokens(1, 2), torch.tensor([written.tokens[:-1]])], dim=1)
    with look(model, names) as whole, torch.no_grad():
        model(source, text) if mode == "encoder_decoder" else model(text)
    for name in whole:
        if name != "output.logits":  # of the prompt, generation asks for the last alone
            torch.testing.assert_close(seen[name].whole(), whole[name].tensor, atol=1e-5, rtol=1e-4)
    value = seen["decoder.0.add_attention.branch"].values[0]
    (value.requires_grad_() * value).sum().backward()  # though it was seen under inference mode


def test_layers_that_share_a_tap_pass_it_in_one_step() -> None:
    model = small_model("encoder_only", layers=4, distinct=2)
    with look(model, "encoder.1.add_attention.sum") as seen:
        read(model, tokens())
        read(model, tokens())
    assert seen["encoder.1.add_attention.sum"].steps == [0, 0, 1, 1]
    with pytest.raises(ShapeError, match="passed 4 times"):
        _ = seen["encoder.1.add_attention.sum"].tensor
    with pytest.raises(ShapeError, match=r"sum' was passed several times in one step"):
        seen["encoder.1.add_attention.sum"].whole()


def test_copies_are_kept() -> None:
    model, token_BL = small_model("decoder_only"), tokens()
    with look(model, "embed.sum") as seen, watching(model, {"embed.sum": lambda x: x.mul_(0)}), torch.no_grad():
        read(model, token_BL)
    assert seen["embed.sum"].tensor.abs().sum() > 0


def test_nested_looks_and_errors_leave_no_trace() -> None:
    model = small_model("decoder_only")
    with look(model, "embed.*") as outer:
        with look(model, "embed.sum") as inner:
            read(model, tokens())
        read(model, tokens())
    assert len(outer["embed.sum"].values) == 2
    assert len(inner["embed.sum"].values) == 1
    with pytest.raises(RuntimeError, match="enough"), look(model, "*"):
        raise RuntimeError("enough")
    assert not any(tap.watched for tap in named_taps(model).values())


def test_memory_is_bounded() -> None:
    model = small_model("decoder_only")
    with look(model, "embed.sum") as seen:
        read(model, tokens())
    assert seen.nbytes == 2 * 5 * 16 * 4
    with look(model, "embed.sum", limit=seen.nbytes):
        read(model, tokens())
    with pytest.raises(ConfigError, match=r"limit of 639 bytes at 'embed\.sum'"), look(model, "embed.sum", limit=639):
        read(model, tokens())


def test_axes_of_classes_and_of_what_nobody_named() -> None:
    model = small_model("encoder_only", classes=3, labels=2, feedforward="product_keys")
    with look(model, ["*_head.logits", "encoder.0.feedforward.hidden"]) as seen:
        model.classes(tokens())
        model.labels(tokens())
    assert {name: seen[name].axes for name in seen} == {
        "class_head.logits": "BC",
        "label_head.logits": "BLC",
        "encoder.0.feedforward.hidden": "BLHP",
    }
    assert tap_axes(model, "encoder.0.feedforward.hidden", 2) == "BW"


@given(
    steps=st.lists(st.integers(0, 5), max_size=4),
    shape=st.lists(st.integers(0, 3), min_size=3, max_size=3),
    words=st.lists(st.lists(st.text(max_size=3), max_size=3), max_size=2),
)
def test_files_come_back_as_they_went(tmp_path_factory, steps: list[int], shape: list[int], words) -> None:
    path = tmp_path_factory.mktemp("recording") / "seen.safetensors"
    recording = Recording({"target": words})
    recording.passed["a.b"] = Seen("a.b", "BLD", [torch.randn(shape) for _ in steps], steps)
    recording.save(path)
    again = Recording.open(path)
    assert again.tokens == {"target": words}
    assert (again["a.b"].axes, again["a.b"].steps) == ("BLD", steps)
    assert all(torch.equal(a, b) for a, b in zip(again["a.b"].values, recording["a.b"].values, strict=True))


def test_tokens_that_no_file_could_hold_come_back(tmp_path: Path) -> None:
    """Half of a pair of surrogates, as tokenizers that fall back to bytes hand out, and a zero byte."""
    Recording({"source": [["\ud800", "\0", "e\u0301"]]}).save(tmp_path / "seen")
    assert Recording.open(tmp_path / "seen").tokens == {"source": [["\ud800", "\0", "e\u0301"]]}


SEEN = {"name": "x", "axes": "BD", "steps": [0]}


@pytest.mark.parametrize(
    "about",
    [
        None,
        "{",
        "[" * 100_000,
        json.dumps({"version": 2, "tokens": {}, "seen": []}),
        json.dumps({"version": 1, "tokens": {"a": ["bc"]}, "seen": []}),
        json.dumps({"version": 1, "tokens": {}, "seen": [3]}),
        json.dumps({"version": 1, "tokens": {}, "seen": [SEEN | {"axes": "Bä"}]}),
        json.dumps({"version": 1, "tokens": {}, "seen": [SEEN | {"axes": "BLD"}]}),
        json.dumps({"version": 1, "tokens": {}, "seen": [SEEN | {"name": "y"}]}),
        json.dumps({"version": 1, "tokens": {}, "seen": [SEEN | {"steps": [0, 1]}]}),
    ],
)
def test_hostile_files_are_refused_in_a_sentence(tmp_path: Path, about: str | None) -> None:
    path = tmp_path / "seen.safetensors"
    save_file({"x@0": torch.zeros(2, 3)}, path, None if about is None else {"clearhead_recording": about})
    with pytest.raises(DataError, match="cannot be read as a recording"):
        Recording.open(path)


def test_what_is_no_file_of_ours_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="there is no recording"):
        Recording.open(tmp_path / "nothing")
    (tmp_path / "words").write_text("words")
    with pytest.raises(DataError, match="cannot be read as a recording"):
        Recording.open(tmp_path / "words")
