"""GGUF files: tensors, settings and tokenizers of Hugging Face's models come back as they were."""

import contextlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from clearhead.convert.gguf import GgufFile, halves_together, llama3_scaling
from clearhead.convert.gguf_tokenizer import CUTTINGS
from clearhead.convert.load import model_of
from clearhead.data.sentencepiece_file import read_sentencepiece
from clearhead.data.tokenizers import SPECIALS, Tokenizer
from clearhead.errors import CheckpointError
from tests.unit.tiny_sentencepiece import LLAMA, TEXTS, train_model

gguf = pytest.importorskip("gguf")

HEADS, KV_HEADS, EACH, WIDTH, HIDDEN, LAYERS, WORDS = 4, 2, 6, 32, 64, 2, 40
Change = Callable[[Any], None]


def tensors(**shapes: tuple[int, ...]) -> dict[str, Tensor]:
    """A small Llama as Hugging Face names it; `shapes` are further tensors."""
    each: dict[str, tuple[int, ...]] = {
        "input_layernorm": (WIDTH,),
        "self_attn.q_proj": (HEADS * EACH, WIDTH),
        "self_attn.k_proj": (KV_HEADS * EACH, WIDTH),
        "self_attn.v_proj": (KV_HEADS * EACH, WIDTH),
        "self_attn.o_proj": (WIDTH, HEADS * EACH),
        "post_attention_layernorm": (WIDTH,),
        "mlp.gate_proj": (HIDDEN, WIDTH),
        "mlp.up_proj": (HIDDEN, WIDTH),
        "mlp.down_proj": (WIDTH, HIDDEN),
    }
    named = {f"model.layers.{i}.{name}.weight": shape for i in range(LAYERS) for name, shape in each.items()}
    named |= {"model.embed_tokens.weight": (WORDS, WIDTH), "model.norm.weight": (WIDTH,), **shapes}
    return {name: torch.randn(shape) for name, shape in named.items()}


def permuted(weight: Tensor, heads: int) -> Tensor:
    """As llama.cpp's converter lays the rows of queries and keys out."""
    return weight.reshape(heads, 2, len(weight) // heads // 2, *weight.shape[1:]).swapaxes(1, 2).reshape(weight.shape)


def write(path: Path, weights: dict[str, Tensor], change: Change = lambda _: None, architecture: str = "llama") -> Path:
    """A file as llama.cpp's converter writes it, by the package that it uses."""
    writer = gguf.GGUFWriter(path, architecture)
    writer.add_context_length(128)
    writer.add_embedding_length(WIDTH)
    writer.add_block_count(LAYERS)
    writer.add_feed_forward_length(HIDDEN)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(KV_HEADS)
    writer.add_key_length(EACH)
    writer.add_value_length(EACH)
    writer.add_rope_dimension_count(EACH)
    writer.add_rope_freq_base(50_000.0)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    change(writer)
    kind = {"llama": gguf.MODEL_ARCH.LLAMA, "qwen2": gguf.MODEL_ARCH.QWEN2}[architecture]
    names = gguf.get_tensor_name_map(kind, LAYERS)
    for name, weight in weights.items():
        if architecture == "llama" and ("q_proj" in name or "k_proj" in name):
            weight = permuted(weight, HEADS if "q_proj" in name else KV_HEADS)
        writer.add_tensor(names.get_name(name, try_suffixes=(".weight", ".bias")) or name, weight.numpy())
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


@pytest.mark.parametrize("architecture", ["llama", "qwen2"])
def test_tensors_come_back_under_their_names_and_in_their_layout(tmp_path: Path, architecture: str) -> None:
    biases = {f"model.layers.{i}.self_attn.{n}_proj.bias": (h * EACH,) for i in range(LAYERS)
              for n, h in (("q", HEADS), ("k", KV_HEADS), ("v", KV_HEADS))}  # fmt: skip
    weights = tensors(**{"lm_head.weight": (WORDS, WIDTH), **biases})
    file = GgufFile(write(tmp_path / "a.gguf", weights, architecture=architecture))
    assert file.shapes == {name: tuple(weight.shape) for name, weight in weights.items()}
    assert list(file) == list(weights)
    for name, weight in weights.items():
        torch.testing.assert_close(file[name], weight, rtol=0, atol=0)


@pytest.mark.parametrize("heads", [1, 3])
@pytest.mark.parametrize("rest", [(), (5,)])
def test_halves_and_pairs(heads: int, rest: tuple[int, ...]) -> None:
    weight = torch.randn(heads * 8, *rest)
    assert torch.equal(halves_together(permuted(weight, heads), heads), weight)
    assert halves_together(torch.tensor([0, 4, 1, 5, 2, 6, 3, 7]), 1).tolist() == list(range(8))


def test_the_settings_say_what_a_config_says(tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    file = GgufFile(write(tmp_path / "a.gguf", tensors()))
    assert "model.norm.weight" in file
    assert "lm_head.weight" not in file
    config = transformers.LlamaConfig(**file.config)
    assert (config.hidden_size, config.intermediate_size, config.num_hidden_layers) == (WIDTH, HIDDEN, LAYERS)
    assert (config.num_attention_heads, config.num_key_value_heads, config.head_dim) == (HEADS, KV_HEADS, EACH)
    assert (config.vocab_size, config.max_position_embeddings, config.rms_norm_eps) == (WORDS, 128, 1e-5)
    assert (config.bos_token_id, config.eos_token_id, config.pad_token_id) == (1, 2, None)
    assert config.tie_word_embeddings
    assert not config.attention_bias
    assert file.config["rope_theta"] == 50_000.0
    assert file.config["rope_scaling"] is None
    model = transformers.LlamaForCausalLM(config)
    model.load_state_dict({**file, "lm_head.weight": file["model.embed_tokens.weight"]})
    untied = GgufFile(write(tmp_path / "b.gguf", tensors(**{"lm_head.weight": (WORDS, WIDTH)})))
    assert not untied.config["tie_word_embeddings"]


def test_settings_that_few_files_have(tmp_path: Path) -> None:
    def scaled(writer: Any) -> None:
        writer.add_rope_scaling_type(gguf.RopeScalingType.LINEAR)
        writer.add_rope_scaling_factor(4.0)
        writer.add_sliding_window(64)
        writer.add_pad_token_id(7)
        writer.add_chat_template("{{ messages }}")

    file = GgufFile(write(tmp_path / "a.gguf", tensors(), scaled))
    assert file.config["rope_scaling"] == {"rope_type": "linear", "factor": 4.0}
    assert (file.config["model_type"], file.config["sliding_window"]) == ("mistral", 64)
    assert file.config["pad_token_id"] == 7
    assert file.chat_template == "{{ messages }}"
    assert GgufFile(write(tmp_path / "b.gguf", tensors(), architecture="qwen2")).config["model_type"] == "qwen2"
    assert GgufFile(tmp_path / "b.gguf").chat_template is None


@pytest.mark.parametrize(
    ("said", "factor"),
    [
        ({"scale_linear": 4.0}, 4.0),
        ({"scaling.factor": 4.0}, 4.0),
        ({"scaling.factor": 2.0, "scale_linear": 4.0}, 2.0),
        ({"scaling.factor": 1.0}, None),
        ({"scaling.type": "none", "scaling.factor": 4.0}, None),
        ({"scaling.type": "linear", "scale_linear": 4.0}, 4.0),
    ],
)
def test_rotary_positions_are_stretched_as_llama_cpp_does(
    tmp_path: Path, said: dict[str, Any], factor: float | None
) -> None:
    def stretched(writer: Any) -> None:
        for name, value in said.items():
            (writer.add_string if isinstance(value, str) else writer.add_float32)(f"llama.rope.{name}", value)

    found = GgufFile(write(tmp_path / "a.gguf", tensors(), stretched)).config["rope_scaling"]
    assert found == (None if factor is None else {"rope_type": "linear", "factor": factor})


def test_sizes_of_which_there_are_no_tensors(tmp_path: Path) -> None:
    path = write(tmp_path / "a.gguf", tensors(), lambda writer: writer.add_block_count(2**31 - 1))
    file = GgufFile(path)
    with pytest.raises(
        CheckpointError, match=r"a\.gguf cannot be used: 2147483647 layers cannot be made of 20 tensors"
    ):
        model_of(file.config, file, source=path)
    path = write(tmp_path / "b.gguf", tensors(), lambda writer: writer.add_feed_forward_length(2**31 - 1))
    file = GgufFile(path)
    with pytest.raises(CheckpointError, match=r"b\.gguf does not fit this model in 6 tensors.*2147483647"):
        model_of(file.config, file, source=path)


@pytest.mark.parametrize("type", ["F32", "F16", "BF16", "Q8_0", "Q4_0", "Q4_1", "Q5_0", "Q5_1"])
def test_packed_numbers_are_near_what_they_were(tmp_path: Path, type: str) -> None:
    weights = tensors()
    kind = gguf.GGMLQuantizationType[type]

    def packed(writer: Any) -> None:
        name = weights.pop("model.embed_tokens.weight")
        data = gguf.quants.quantize(name.numpy(), kind)
        writer.add_tensor("token_embd.weight", data, raw_dtype=kind)
        weights["model.embed_tokens.weight"] = name

    copy = dict(weights)
    del copy["model.embed_tokens.weight"]
    file = GgufFile(write(tmp_path / "a.gguf", copy, packed))
    found, wanted = file["model.embed_tokens.weight"], weights["model.embed_tokens.weight"]
    assert (found.dtype, found.shape) == (torch.float32, wanted.shape)
    step = {"F32": 0.0, "F16": 1e-3, "BF16": 1e-2, "Q8": 1 / 127, "Q5": 1 / 15, "Q4": 1 / 7}[type.partition("_")[0]]
    assert (found - wanted).abs().max() <= step * wanted.abs().max()
    assert torch.equal(found, file.read("model.embed_tokens.weight"))


def random_blocks(writer: Any, kind: Any) -> None:
    _, size = gguf.GGML_QUANT_SIZES[kind]
    writer.add_tensor("blk.0.attn_v.weight", np.random.randint(0, 255, (3, size), np.uint8), raw_dtype=kind)


@pytest.mark.parametrize("kind", sorted(gguf.quants._type_traits), ids=lambda kind: kind.name)
def test_every_type_that_the_package_knows(tmp_path: Path, kind: Any) -> None:
    file = GgufFile(write(tmp_path / "a.gguf", {}, lambda writer: random_blocks(writer, kind)))
    assert file["model.layers.0.self_attn.v_proj.weight"].shape == (3, gguf.GGML_QUANT_SIZES[kind][0])


# Rotary positions as Llama 3 stretches them


@pytest.mark.parametrize(
    ("factor", "low", "high", "length", "base"),
    [(8.0, 1.0, 4.0, 8192, 500_000.0), (32.0, 1.0, 4.0, 8192, 500_000.0), (4.0, 2.0, 6.0, 4096, 100_000.0)],
)
def test_the_stretch_of_llama_3_is_read_back(
    tmp_path: Path, factor: float, low: float, high: float, length: int, base: float
) -> None:
    utils = pytest.importorskip("transformers.modeling_rope_utils")
    config = pytest.importorskip("transformers").LlamaConfig

    def frequencies(scaling: dict[str, Any]) -> Tensor:
        of = config(hidden_size=64, num_attention_heads=1, rope_parameters={"rope_theta": base, **scaling})
        found: Tensor = utils.ROPE_INIT_FUNCTIONS["llama3"](of, "cpu")[0]
        return found

    plain = 1 / base ** (torch.arange(32) / 32)
    scaling = {"rope_type": "llama3", "factor": factor, "low_freq_factor": low, "high_freq_factor": high,
               "original_max_position_embeddings": length}  # fmt: skip
    factors = (plain / frequencies(scaling)).float()
    found = llama3_scaling(factors.double().numpy(), base)
    assert found is not None
    torch.testing.assert_close(frequencies(found), frequencies(scaling), rtol=1e-4, atol=0)
    assert (found["factor"], found["rope_type"]) == (factor, "llama3")
    if length == 8192:
        assert found == scaling

    def stretched(writer: Any) -> None:
        writer.add_tensor("rope_freqs.weight", factors.numpy())

    # The file's own base differs from the one of these factors, unless the stretch is none.
    with pytest.raises(CheckpointError, match="not made as Llama 3 makes them"):
        _ = GgufFile(write(tmp_path / "a.gguf", tensors(), stretched)).config["rope_scaling"]


def test_factors_of_one_stretch_nothing(tmp_path: Path) -> None:
    def ones(writer: Any) -> None:
        writer.add_tensor("rope_freqs.weight", np.ones(EACH // 2, np.float32))

    file = GgufFile(write(tmp_path / "a.gguf", tensors(), ones))
    assert file.config["rope_scaling"] is None
    assert "rope_freqs.weight" not in file
    for factors in ([1.0, 3.0, 2.0], [1.0, 2.0, 2.0, 4.0], [1.0, float("nan"), 8.0], [float("inf")] * 3):
        assert llama3_scaling(np.array(factors), 10_000.0) is None


# Tokenizers


def byte_level(writer: Any, folder: Path, pre: str, **others: Any) -> None:
    trained = Tokenizer.train("bytes", TEXTS * 3, 420, specials=(*SPECIALS, "<own>"))
    trained.save(folder)
    model = json.loads((folder / "tokenizer.json").read_text(encoding="utf-8"))["model"]
    types = {"<unk>": gguf.TokenType.UNKNOWN, "<own>": gguf.TokenType.USER_DEFINED}
    words = [trained.token_of(id) for id in range(trained.vocabulary_size)]
    usual = [gguf.TokenType.CONTROL if word in SPECIALS else gguf.TokenType.NORMAL for word in words]
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(pre)
    writer.add_token_list(words)
    writer.add_token_types([types.get(word, type) for word, type in zip(words, usual, strict=True)])
    writer.add_token_merges([" ".join(pair) for pair in model["merges"]])
    for name, value in others.items():
        getattr(writer, name)(value)


some_text = st.lists(
    st.sampled_from(["the", " street", "'s", "'LL", "Mä", "日本", "12", "2024", "３", "…", " (", "x)", "<bos>", "<own>",
                     " ", "  ", "\n", "\r\n", "\t", "!", "$", "e\u0301", "한", "😀", "_", "A", "İ"]),
    max_size=8,
).map("".join)  # fmt: skip


@pytest.mark.parametrize("pre", [*CUTTINGS, "llama"])
def test_text_is_cut_as_llama_cpp_cuts_it(tmp_path_factory: pytest.TempPathFactory, pre: str) -> None:
    llama_cpp = pytest.importorskip("llama_cpp")
    path = tmp_path_factory.mktemp("gguf") / "a.gguf"
    model = path.with_suffix(".model")
    fill = (
        (lambda writer: pieces(writer, model))
        if pre == "llama"
        else (lambda writer: byte_level(writer, path.parent, pre))
    )
    ours = GgufFile(write(path, {}, fill)).tokenizer()

    @given(text=some_text)
    def alike(text: str) -> None:
        # llama.cpp leaves out that Qwen2 composes characters, and takes every foreign letter for both cases.
        text = text.replace("e\u0301", "é") if pre == "qwen2" else text
        text = text.replace("İ", "I").replace("Mä", "M") if pre == "tekken" else text
        assert ours.encode(text) == theirs.tokenize(text.encode(), add_bos=False, special=False)
        assert ours.encode_marked(text) == theirs.tokenize(text.encode(), add_bos=False, special=True)

    with contextlib.closing(llama_cpp.Llama(str(path), vocab_only=True, verbose=False)) as theirs:
        alike()


def pieces(writer: Any, path: Path) -> None:
    model = read_sentencepiece(train_model(path, **LLAMA))
    writer.add_tokenizer_model("llama")
    writer.add_token_list(model.names())
    writer.add_token_scores([piece.score for piece in model.pieces])
    writer.add_token_types([int(piece.type) for piece in model.pieces])


def test_sentencepiece_inside(tmp_path: Path) -> None:
    file = GgufFile(write(tmp_path / "a.gguf", {}, lambda writer: pieces(writer, tmp_path / "a.model")))
    theirs = pytest.importorskip("sentencepiece").SentencePieceProcessor(model_file=str(tmp_path / "a.model"))
    ours = file.tokenizer()
    assert ours.encode_batch(TEXTS) == theirs.encode(TEXTS)
    assert ours.around == ((1,), ())
    assert (ours.bos, ours.eos, ours.unknown) == (1, 2, 0)
    assert ours.decode(ours.encode(TEXTS[3])) == TEXTS[3]


def test_special_tokens_of_a_byte_level_tokenizer(tmp_path: Path) -> None:
    def fill(writer: Any) -> None:
        byte_level(writer, tmp_path, "llama-bpe", add_pad_token_id=0, add_add_eos_token=True)

    tokenizer = GgufFile(write(tmp_path / "a.gguf", {}, fill)).tokenizer()
    assert (tokenizer.pad, tokenizer.bos, tokenizer.eos) == (0, 1, 2), "as the file says, whatever they are called"
    assert tokenizer.around == ((1,), (2,))
    assert tokenizer.special_ids == {0, 1, 2, 3}
    assert 4 in tokenizer.encode("a<own>b")
    assert 1 not in tokenizer.encode("<unk>")
    assert 1 in tokenizer.encode_marked("<unk>")
    assert tokenizer.decode(tokenizer.encode("Mädchen 2024 😀")) == "Mädchen 2024 😀"
    plain = GgufFile(write(tmp_path / "b.gguf", {}, lambda writer: byte_level(writer, tmp_path, "gpt-2"))).tokenizer()
    assert plain.around == ((), ())


# What cannot be read


def tokens(writer: Any, **lists: Any) -> None:
    writer.add_tokenizer_model(lists.pop("model", "gpt2"))
    for name, value in lists.items():
        getattr(writer, f"add_{name}")(value)


@pytest.mark.parametrize(
    ("lists", "message"),
    [
        ({"model": "bert"}, "'bert'; known are gpt2, llama"),
        ({}, "0 tokens are not all different, or there are none"),
        ({"token_list": ["a", "a"]}, "not all different"),
        ({"token_list": ["a"], "tokenizer_pre": "falcon-h7"}, "'falcon-h7'.*smollm"),
        ({"token_list": ["a", "b"], "token_types": [1]}, "2 tokens, 1 types"),
        ({"token_list": ["a", "b"], "token_merges": ["ab"]}, "the merge 'ab'"),
        ({"token_list": ["a", "b"], "token_merges": ["a b"]}, "the merge 'a b' needs 'ab'"),
        ({"token_list": [1, 2]}, "tokens must be a list"),
    ],
)
def test_tokenizers_that_cannot_be_used(tmp_path: Path, lists: dict[str, Any], message: str) -> None:
    def fill(writer: Any) -> None:
        if lists.get("token_list") == [1, 2]:
            writer.add_array("tokenizer.ggml.tokens", lists.pop("token_list"))
        tokens(writer, **lists)

    file = GgufFile(write(tmp_path / "a.gguf", {}, fill))
    with pytest.raises(CheckpointError, match=message) as found:
        file.tokenizer()
    assert "\n" not in str(found.value)


def test_an_empty_token_gets_a_name(tmp_path: Path) -> None:
    def fill(writer: Any) -> None:
        tokens(writer, token_list=["a", "", "b"])

    assert GgufFile(write(tmp_path / "a.gguf", {}, fill)).tokenizer().id_of("[EMPTY_1]") == 1
