"""ONNX graphs in onnxruntime = the model here, at other batch sizes and lengths than those of the export."""

import logging
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from clearhead.convert.onnx import save_onnx
from clearhead.convert.onnx_graphs import GRAPHS
from clearhead.errors import ConfigError, MissingPackageError
from clearhead.generate.decode import Prompts
from clearhead.generate.decoding import Decoding
from clearhead.generate.write import write
from clearhead.look.prune import prune_heads
from clearhead.models.decoder_only import DecoderOnly
from clearhead.models.encoder_decoder import EncoderDecoder
from clearhead.models.encoder_only import EncoderOnly
from clearhead.models.ft_transformer import FTTransformer, FTTransformerConfig
from clearhead.models.presets import ARCHITECTURES
from clearhead.models.tab_transformer import TabTransformer, TabTransformerConfig
from clearhead.models.vit import Vit, VitConfig
from clearhead.nn.int8 import to_int8
from clearhead.nn.layout import for_decoding
from clearhead.nn.members import side_by_side
from clearhead.tap import watching
from tests.contracts.covering import Setting, each, label
from tests.contracts.family import FACTORS
from tests.contracts.family import build as family_model
from tests.unit.small import small_model

onnx = pytest.importorskip("onnx")
pytest.importorskip("onnxscript")
onnxruntime = pytest.importorskip("onnxruntime")

CLOSE = {"rtol": 1e-4, "atol": 1e-4}
Tensors = dict[str, Tensor]


class Session:
    """One graph in onnxruntime, called with tensors by name."""

    def __init__(self, path: Path) -> None:
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1
        self.session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
        self.inputs = {given.name: given for given in self.session.get_inputs()}
        self.outputs = [given.name for given in self.session.get_outputs()]

    def __call__(self, inputs: Tensors) -> Tensors:
        answers = self.session.run(None, {name: tensor.numpy() for name, tensor in inputs.items()})
        return {name: torch.from_numpy(answer) for name, answer in zip(self.outputs, answers, strict=True)}

    def empty_past(self, batch: int) -> Tensors:
        """What a decoder is given first."""
        sizes = {name: given.shape for name, given in self.inputs.items() if name.startswith("past.")}
        return {name: torch.zeros(batch, heads, 0, width) for name, (_, heads, _, width) in sizes.items()}


class Stepper:
    """A generating model in onnxruntime, as one calls it: what is read in comes with the next call."""

    def __init__(self, sessions: dict[str, Session], batch: int, source: Tensors | None = None) -> None:
        self.decoder = sessions["decoder.onnx"]
        self.past, self.count_B = self.decoder.empty_past(batch), torch.zeros(batch, dtype=torch.long)
        self.cross: Tensors = {}
        if source is not None:
            self.cross = {"source_count": source["source_count"], **sessions["encoder.onnx"](source)}

    def step(self, token_BT: Tensor, new_B: Tensor | int) -> Tensor:
        """Logits after each token, of which each row was given so many real ones."""
        answers = self.decoder({"token": token_BT, "past_count": self.count_B, **self.past, **self.cross})
        logits_BTV = answers.pop("logits")
        self.past = {name.replace("present", "past"): tensor for name, tensor in answers.items()}
        self.count_B = self.count_B + new_B
        return logits_BTV

    def greedy(self, prompt_BT: Tensor, count_B: Tensor, longest: int) -> list[list[int]]:
        """The best token after each row's last real one, again and again."""
        last_BV = self.step(prompt_BT, count_B)[torch.arange(len(prompt_BT)), count_B - 1]
        written = [token_B := last_BV.argmax(-1)]
        while len(written) < longest:
            written.append(token_B := self.step(token_B[:, None], 1)[:, -1].argmax(-1))
        return torch.stack(written, dim=1).tolist()


def tokens(model: Any, rows: int, length: int, seed: int) -> Tensor:
    return torch.randint(model.config.vocabulary, (rows, length), generator=torch.Generator().manual_seed(seed))


def opened(model: nn.Module, folder: Path) -> dict[str, Session]:
    return {path.name: Session(path) for path in save_onnx(model, folder)}


def real(logits_BTV: Tensor, count_B: Tensor) -> Tensor:
    return logits_BTV[torch.arange(logits_BTV.shape[1]) < count_B[:, None]]


# ---------------------------------------------------------------- the same numbers


@torch.no_grad()
def compare_encoder(model: EncoderOnly, folder: Path) -> None:
    (session,) = opened(model, folder).values()
    heads = {"words": model.words, "follows": model.follows, "classes": model.classes, "labels": model.labels}
    for counts, length in (([1], 1), ([7, 2, 1], 7), ([4, 0], 5)):
        token_BL, count_B = tokens(model, len(counts), length, seed=length), torch.tensor(counts)
        segment_BL = token_BL % 2 if model.config.segments else None
        inputs = {"token": token_BL, "count": count_B}
        answers = session(inputs if segment_BL is None else {**inputs, "segment": segment_BL})
        hidden_BLD, rows = model.hidden(token_BL, count_B=count_B, segment_BL=segment_BL)
        wanted = {"hidden": hidden_BLD, "pooled": model.pooled(hidden_BLD, rows)}
        for name in session.outputs[2:]:
            wanted[name] = heads[name](token_BL, count_B=count_B, segment_BL=segment_BL)
        torch.testing.assert_close(answers, wanted, **CLOSE)


@torch.no_grad()
def compare_steps(model: DecoderOnly | EncoderDecoder, folder: Path) -> None:
    """Prompts of several lengths, then a token each, then again several: the same logits after each real one.

    And the same words, greedily, from there on as from the beginning.
    """
    sessions = opened(model, folder)
    for counts in ([1], [5, 2, 1]):
        batch, count_B = len(counts), torch.tensor(counts)
        source = {"source": tokens(model, batch, 6, seed=1), "source_count": torch.tensor([4, 6, 1][:batch])}
        across = isinstance(model, EncoderDecoder)
        given = tuple(source.values()) if across else ()
        state, there = model.start(*given), Stepper(sessions, batch, source if across else None)
        for new_B in (count_B, torch.ones(batch).long(), 1 + torch.arange(batch) % 2):
            token_BT = tokens(model, batch, int(new_B.max()), seed=2)
            wanted_BTV, state = model.step(token_BT, state, count_B=new_B)
            torch.testing.assert_close(real(there.step(token_BT, new_B), new_B), real(wanted_BTV, new_B), **CLOSE)
        prompt_BT = tokens(model, batch, max(counts), seed=3)
        there = Stepper(sessions, batch, source if across else None)
        prompts = Prompts(prompt_BT, [10] * batch, None, count_B)
        *_, written = write(model, model.start(*given), prompts, Decoding(longest=10))
        assert there.greedy(prompt_BT, count_B, 10) == [row.tokens for row in written]


def compare(model: Any, folder: Path) -> None:
    (compare_encoder if isinstance(model, EncoderOnly) else compare_steps)(model, folder)


EVERY_HEAD = {"words": True, "next_sentence": True, "classes": 3, "labels": 4}
MODERN = {"norm": "rms_norm", "feedforward": "swiglu", "residual": "pre_norm"}


@pytest.mark.parametrize(
    ("mode", "changes"),
    [
        pytest.param("encoder_only", {"layers": 1, **EVERY_HEAD}, id="bert"),
        pytest.param(
            "encoder_only",
            {"positions": "t5", "residual": "pre_norm", "kv_heads": 2, "segments": 0, "words": False, "layers": 1,
             "pooling": "mean", "pooler": "unit"},
            id="encoder-t5-grouped",
        ),
        pytest.param("decoder_only", {"length": 40}, id="gpt2"),
        pytest.param("decoder_only", {"positions": "rotary", "kv_heads": 2, "layers": 1, **MODERN}, id="modern"),
        pytest.param(
            "decoder_only", {"positions": "alibi", "kv_heads": 1, "window": 3}, id="alibi", marks=pytest.mark.slow
        ),
        pytest.param("encoder_decoder", {"kv_heads": 2, "decoder_layers": 1, "encoder_layers": 1}, id="paper"),
        pytest.param("encoder_decoder", {"positions": "t5", **MODERN}, id="t5", marks=pytest.mark.slow),
    ],
)  # fmt: skip
def test_the_graphs_answer_as_the_model(mode: str, changes: dict[str, Any], tmp_path: Path) -> None:
    model = small_model(mode, **changes)
    with torch.no_grad():
        for parameter in model.parameters():  # of a size at which whatever is read in the wrong place is seen
            parameter.add_(0.3 * torch.randn_like(parameter))
    compare(model, tmp_path)


@pytest.mark.parametrize(
    ("mode", "changes", "keep"),
    [
        ("decoder_only", {"kv_heads": 2, "length": 40}, {"decoder.0.attention": [2, 3]}),
        pytest.param(
            "encoder_decoder",
            {"encoder_layers": 1, "length": 40},
            {"decoder.0.attention": [1], "decoder.1.cross": [0, 3], "encoder.0.attention": [2]},
            marks=pytest.mark.slow,
        ),
    ],
)
def test_layers_with_fewer_heads_than_others(
    mode: str, changes: dict[str, Any], keep: dict[str, list[int]], tmp_path: Path
) -> None:
    compare(prune_heads(small_model(mode, **changes, init="xavier"), keep), tmp_path)


# Every row of every table in every mode; seconds each.
@pytest.mark.slow
@pytest.mark.parametrize("setting", each(FACTORS, per="mode"), ids=label)
def test_every_row_of_every_table(setting: Setting, tmp_path: Path) -> None:
    compare(family_model(setting, layers=1), tmp_path)


SIZES: dict[str, Any] = {"width": 16, "heads": 2, "layers": 2, "hidden": 12}
TABLES = {
    "ft": FTTransformerConfig(
        numbers=2, categories=(3, 4), outputs=3, missing=(0,), embedding="piecewise", bins=(3, 4), **SIZES
    ),
    "ft-periodic": FTTransformerConfig(numbers=2, embedding="periodic", **SIZES),
    "ft-linear": FTTransformerConfig(numbers=1, categories=(3,), unseen=0.1, **SIZES),
    "ft-categories": FTTransformerConfig(categories=(3, 4), unseen=0.1, **SIZES),
    "tab": TabTransformerConfig(numbers=2, categories=(3, 4), missing=(0,), **SIZES),
    "tab-numbers": TabTransformerConfig(numbers=2, **SIZES),
    "tab-categories": TabTransformerConfig(categories=(3, 4), **SIZES),
}


@pytest.mark.parametrize(
    "name", [name if name == "ft" else pytest.param(name, marks=pytest.mark.slow) for name in TABLES]
)
@torch.no_grad()
def test_tables(name: str, tmp_path: Path) -> None:
    config = TABLES[name]
    model = (FTTransformer if isinstance(config, FTTransformerConfig) else TabTransformer)(config).eval()
    (session,) = opened(model, tmp_path).values()
    for rows in (1, 4):
        number_BC = torch.randn(rows, config.numbers)
        if config.missing:
            number_BC[0, config.missing[0]] = float("nan")
        code_BC = torch.randint(min(config.categories, default=1), (rows, len(config.categories)))
        inputs = {"number": number_BC, "code": code_BC}
        answers = session({name: inputs[name] for name in session.inputs})
        torch.testing.assert_close(answers, {"outputs": model(number_BC, code_BC)}, **CLOSE)


@pytest.mark.slow
@pytest.mark.parametrize("classes", [0, 3])
@torch.no_grad()
def test_images(classes: int, tmp_path: Path) -> None:
    model = Vit(VitConfig(image=8, patch=4, channels=1, classes=classes, **SIZES)).eval()
    (session,) = opened(model, tmp_path).values()
    for rows in (1, 3):
        image_BCLM = torch.randn(rows, 1, 8, 8)
        hidden_BLD = model(image_BCLM)
        wanted = {"hidden": hidden_BLD, "pooled": model.pooled(hidden_BLD)}
        if classes:
            wanted["classes"] = model.classes(image_BCLM)
        torch.testing.assert_close(session({"image": image_BCLM}), wanted, **CLOSE)


def test_every_architecture_has_graphs() -> None:
    assert {model for _, model in ARCHITECTURES.values()} <= set(GRAPHS)


# ---------------------------------------------------------------- the files, and the model that they came from


def test_what_is_written_and_what_is_left_as_it_was(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    """A model in training, in other numbers, laid out for decoding: exported as float32, and not touched."""
    model = for_decoding(small_model("decoder_only", vocabulary=1000, layers=1, dropout=0.5)).double().train()
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    caplog.clear()
    assert save_onnx(model, tmp_path) == [tmp_path / "decoder.onnx"] == list(tmp_path.iterdir())
    assert capfd.readouterr() == ("", "")
    assert not [record for record in caplog.records if record.levelno >= logging.WARNING]
    assert logging.root.manager.disable == 0
    assert all(module.training for module in model.modules())
    torch.testing.assert_close(model.state_dict(), before, rtol=0, atol=0)

    written = onnx.load(tmp_path / "decoder.onnx")
    onnx.checker.check_model(written, full_check=True)
    assert [given.name for given in written.graph.input] == ["token", "past_count", "past.0.key", "past.0.value"]
    assert [given.name for given in written.graph.output] == ["logits", "present.0.key", "present.0.value"]
    axes = [
        [axis.dim_param or axis.dim_value for axis in given.type.tensor_type.shape.dim] for given in written.graph.input
    ]
    assert axes == [["batch", "length"], ["batch"], *[["batch", 4, "past_length", 4]] * 2]
    assert not any(node.doc_string or node.metadata_props for node in written.graph.node)
    embedding = 4 * 1000 * 16  # tied to the output, and stored once
    assert (tmp_path / "decoder.onnx").stat().st_size < 1.9 * embedding

    there, state = Stepper({"decoder.onnx": Session(tmp_path / "decoder.onnx")}, 2), model.eval().start()
    wanted_BTV, _ = model.step(token_BT := tokens(model, 2, 3, seed=0), state)
    torch.testing.assert_close(there.step(token_BT, 3), wanted_BTV.detach().float(), **CLOSE)


def test_weights_too_large_for_one_file_lie_beside_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch.onnx._internal.exporter._onnx_program._LARGE_MODEL_THRESHOLD", 100)
    model = TabTransformer(TabTransformerConfig(numbers=20, outputs=2)).eval()
    files = save_onnx(model, tmp_path)
    assert files == [tmp_path / "model.onnx", tmp_path / "model.onnx.data"]
    number_BC = torch.randn(3, 20)
    with torch.no_grad():
        wanted = model(number_BC, torch.zeros(3, 0, dtype=torch.long))
    torch.testing.assert_close(Session(files[0])({"number": number_BC})["outputs"], wanted, **CLOSE)


# ---------------------------------------------------------------- refusals


def refused(model: nn.Module, folder: Path, match: str) -> None:
    with pytest.raises(ConfigError, match=match):
        save_onnx(model, folder)
    assert not list(folder.iterdir())


def test_a_watched_model_is_refused(tmp_path: Path) -> None:
    model = small_model("decoder_only")
    with watching(model, {"decoder.1.attention.weights": lambda x: x}):
        refused(model, tmp_path, r"'decoder\.1\.attention\.weights' is being watched")


def test_eight_bits_are_refused(tmp_path: Path) -> None:
    refused(to_int8(small_model("encoder_only")), tmp_path, r"'encoder\.0\.attention\.project\.qkv' .* 8-bit weights")


def test_models_side_by_side_are_refused(tmp_path: Path) -> None:
    models = [FTTransformer(TABLES["ft"]) for _ in range(2)]
    refused(side_by_side(models), tmp_path, "'columns' .* several models side by side: export them one by one")


def test_a_model_without_numbers_is_refused(tmp_path: Path) -> None:
    refused(small_model("encoder_only").to("meta"), tmp_path, r"'embed\.tokens\.weight' has a shape and no numbers")


def test_another_architecture_is_refused(tmp_path: Path) -> None:
    refused(nn.Linear(2, 2), tmp_path, "a Linear has no ONNX graphs; there are those of EncoderOnly")


def test_nothing_is_written_where_the_exporter_gives_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    export, made = torch.export.export, []

    def fails_the_second_time(*arguments: Any, **settings: Any) -> Any:
        if made:
            raise RuntimeError("no such operator\nand much more")
        made.append(export(*arguments, **settings))
        return made[0]

    monkeypatch.setattr(torch.export, "export", fails_the_second_time)
    model = small_model("encoder_decoder", encoder_layers=1, decoder_layers=1)
    refused(model, tmp_path, "^decoder.onnx cannot be made of this EncoderDecoder: no such operator$")


@pytest.mark.parametrize("package", ["onnx", "onnxscript"])
def test_a_missing_package_is_named(package: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(MissingPackageError, match=rf"{package} is needed: `pip install 'clearhead\[onnx\]'`"):
        save_onnx(small_model("encoder_only"), tmp_path)
