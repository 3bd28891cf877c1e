"""Decoding speed: words per second, against what people use today.

The GPT is timed without its prompt (what 129 words take less what the first one takes), but for `gpt-call…`, where all
counts; translations are timed from source to last word. Nobody may stop early: every contender writes as many words.
Weights are random: what is written means nothing, and takes as long.
"""

import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from harness import Contender, Work, run

VOCABULARY = {"gpt": 50_257, "pair": 32_000}
PROMPT, WRITTEN = 512, 128
SOURCE, TARGET = 24, 32


@dataclass(frozen=True)
class Setting:
    kind: str  # gpt or pair
    rows: int
    beams: int = 1
    precision: str = "float32"
    whole: bool = True  # the time to the first word counts too

    @property
    def words(self) -> int:
        return self.rows * (WRITTEN if self.kind == "gpt" else TARGET)

    @property
    def flops(self) -> float:
        """Of the products with the weights, for the words written; only for the share of peak."""
        weights = 12 * 12 * 768**2 + 768 * 50_257 if self.kind == "gpt" else 6 * 16 * 512**2 + 512 * 32_000
        return 2.0 * weights * self.words * self.beams

    def inputs(self) -> torch.Tensor:
        random = torch.Generator().manual_seed(1)
        length = PROMPT if self.kind == "gpt" else SOURCE
        return torch.randint(10, VOCABULARY[self.kind], (self.rows, length), generator=random)

    def work(self, write: Callable[[int], object], note: str = "") -> Work:
        """`write(n)` writes n words for every row."""

        def timed(words: int) -> float:
            start = time.perf_counter()
            write(words)
            return time.perf_counter() - start

        if self.kind == "pair":
            return Work(lambda: timed(TARGET), self.words, self.flops, note)
        if self.whole:
            return Work(lambda: timed(WRITTEN), self.words, self.flops, note)
        return Work(lambda: timed(WRITTEN + 1) - timed(1), self.words, self.flops, note)


def clearhead(of: Setting) -> Work:
    from clearhead.generate.decode import Prompts
    from clearhead.generate.decoding import Decoding
    from clearhead.generate.write import search
    from clearhead.models.decoder_only import DecoderOnly, DecoderOnlyConfig
    from clearhead.models.encoder_decoder import EncoderDecoder, EncoderDecoderConfig
    from clearhead.nn.int8 import to_int8
    from clearhead.nn.layout import for_decoding
    from clearhead.train.allocator import keep_freed_memory

    keep_freed_memory()
    inputs_BL = of.inputs()
    model: Any
    if of.kind == "gpt":
        model = DecoderOnly(DecoderOnlyConfig()).eval()
    else:
        shape = {"positions": "sinusoidal_halves", "feedforward": "silu", "output_bias": True}
        model = EncoderDecoder(EncoderDecoderConfig(vocabulary=VOCABULARY["pair"], **shape)).eval()
    {"float32": for_decoding, "int8": to_int8}[of.precision](model)

    def write(words: int) -> None:
        decoding = Decoding(beams=of.beams, longest=words)
        with torch.inference_mode():
            if of.kind == "gpt":
                prompts, state = Prompts(inputs_BL, [words] * of.rows, None), model.start(room=PROMPT + words)
            else:
                start_B1 = torch.full((of.rows, 1), 1)
                prompts, state = (
                    Prompts(start_B1, [words] * of.rows, None),
                    model.start(inputs_BL, room=words * of.beams),
                )
            found = search(model, state, prompts, decoding)
        assert all(len(one.best[0].tokens) == words for one in found)

    return of.work(write)


def theirs(of: Setting) -> Any:
    """The model of transformers."""
    from transformers import GPT2Config, GPT2LMHeadModel, MarianConfig, MarianMTModel

    torch.manual_seed(0)
    if of.kind == "gpt":
        return GPT2LMHeadModel(GPT2Config(bos_token_id=None, eos_token_id=None)).eval()  # type: ignore[no-untyped-call]
    words = VOCABULARY["pair"]
    config = MarianConfig(
        vocab_size=words, d_model=512, encoder_layers=6, decoder_layers=6, encoder_attention_heads=8,
        decoder_attention_heads=8, encoder_ffn_dim=2048, decoder_ffn_dim=2048, activation_function="swish",
        scale_embedding=True, pad_token_id=words - 1, decoder_start_token_id=words - 1, eos_token_id=0,
        forced_eos_token_id=None,
    )  # fmt: skip
    return MarianMTModel(config).eval()


def transformers(of: Setting) -> Work:
    model, inputs_BL = theirs(of), of.inputs()
    model.generation_config.eos_token_id = None
    model.generation_config.forced_eos_token_id = None
    if of.kind == "gpt":
        model.generation_config.pad_token_id = 0
    mask_BL = torch.ones_like(inputs_BL)

    def write(words: int) -> None:
        with torch.inference_mode():
            written = model.generate(
                inputs_BL, attention_mask=mask_BL, max_new_tokens=words, num_beams=of.beams, do_sample=False
            )
        assert written.shape[1] == words + (PROMPT if of.kind == "gpt" else 1)

    return of.work(write)


class Words:
    """What CTranslate2's converter wants to know of a tokenizer."""

    bos_token, eos_token, unk_token = "w1", "w0", "w2"

    def __init__(self, count: int) -> None:
        self.count = count

    def get_vocab(self) -> dict[str, int]:
        return {f"w{number}": number for number in range(self.count)}


def ctranslate2(of: Setting) -> Work:
    import ctranslate2 as ct2
    from ctranslate2.converters import transformers as converters

    model, inputs_BL = theirs(of), of.inputs()
    loader = converters._MODEL_LOADERS[type(model.config).__name__]
    texts = [[f"w{word}" for word in row] for row in inputs_BL.tolist()]
    with tempfile.TemporaryDirectory() as folder:
        with torch.no_grad():
            spec = loader(model, Words(VOCABULARY[of.kind] - (of.kind == "pair")))
        spec.validate()
        spec.optimize(quantization="int8" if of.precision == "int8" else None)
        spec.save(folder)
        assert (Path(folder) / "model.bin").exists()
        runner = {"gpt": ct2.Generator, "pair": ct2.Translator}[of.kind]
        engine = runner(folder, compute_type=of.precision, intra_threads=torch.get_num_threads(), inter_threads=1)

    def write(words: int) -> None:
        if of.kind == "gpt":
            found = engine.generate_batch(
                texts, max_length=words, min_length=words, sampling_topk=1, beam_size=of.beams,
                include_prompt_in_result=False, max_batch_size=0,
            )  # fmt: skip
            lengths = [len(one.sequences[0]) for one in found]
        else:
            found = engine.translate_batch(
                texts, beam_size=of.beams, max_decoding_length=words, min_decoding_length=words, max_batch_size=0
            )
            lengths = [len(one.hypotheses[0]) for one in found]
        assert lengths == [words] * of.rows, lengths

    return of.work(write)


def llama_cpp(of: Setting) -> Work:
    """A GPT-2 of llama.cpp with weights of 8 bits (Q8_0)."""
    from llama_cpp import Llama

    (prompt,) = of.inputs().tolist()
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "gpt2.gguf"
        write_gguf(file, theirs(of).state_dict())
        threads = torch.get_num_threads()
        engine = Llama(str(file), n_ctx=1024, n_threads=threads, n_threads_batch=threads, n_batch=512, verbose=False)

    def write(words: int) -> None:
        engine.reset()
        read = prompt
        for _ in range(words):
            engine.eval(read)
            read = [engine.sample(temp=0.0)]
        assert engine.n_tokens == PROMPT + words - 1

    return of.work(write)


def write_gguf(file: Path, weights: dict[str, torch.Tensor]) -> None:
    """A GPT-2 as llama.cpp wants it, matrices in Q8_0, with words that have no letters."""
    import gguf

    writer = gguf.GGUFWriter(str(file), "gpt2")
    writer.add_context_length(1024)
    writer.add_embedding_length(768)
    writer.add_block_count(12)
    writer.add_feed_forward_length(3072)
    writer.add_head_count(12)
    writer.add_layer_norm_eps(1e-5)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    writer.add_token_list([f"w{number}" for number in range(VOCABULARY["gpt"])])
    writer.add_token_types([gguf.TokenType.NORMAL] * VOCABULARY["gpt"])
    writer.add_token_merges(["w 1"])
    names = {
        "wte": "token_embd",
        "wpe": "position_embd",
        "ln_f": "output_norm",
        "ln_1": "attn_norm",
        "ln_2": "ffn_norm",
        "attn.c_attn": "attn_qkv",
        "attn.c_proj": "attn_output",
        "mlp.c_fc": "ffn_up",
        "mlp.c_proj": "ffn_down",
    }
    for name, tensor in weights.items():
        if name == "lm_head.weight":
            continue
        where, kind = name.removeprefix("transformer.").rsplit(".", 1)
        block = ""
        if where.startswith("h."):
            _, number, where = where.split(".", 2)
            block = f"blk.{number}."
        values = (tensor.T if where.startswith(("attn", "mlp")) and kind == "weight" else tensor).contiguous().numpy()
        if kind == "weight" and values.ndim == 2 and where != "wpe":
            packed = gguf.quants.quantize(values, gguf.GGMLQuantizationType.Q8_0)
            writer.add_tensor(f"{block}{names[where]}.{kind}", packed, raw_dtype=gguf.GGMLQuantizationType.Q8_0)
        else:
            writer.add_tensor(f"{block}{names[where]}.{kind}", values)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def contenders(of: Setting) -> dict[str, Contender]:
    peers: dict[str, Callable[[Setting], Work]] = {"clearhead": clearhead, "ctranslate2": ctranslate2}
    if of.precision == "float32":
        peers["transformers"] = transformers
    elif of.kind == "gpt" and of.rows == 1:
        peers["llama.cpp"] = llama_cpp
    return {name: (lambda build=build: build(of)) for name, build in peers.items()}


SUITE = {
    f"{name}{'' if precision == 'float32' else '-int8'}": contenders(setting)
    for precision in ("float32", "int8")
    for name, setting in {
        "gpt-1": Setting("gpt", 1, precision=precision, whole=False),
        "gpt-8": Setting("gpt", 8, precision=precision, whole=False),
        "gpt-call-1": Setting("gpt", 1, precision=precision),
        "pair-1x1": Setting("pair", 1, 1, precision),
        "pair-1x4": Setting("pair", 1, 4, precision),
        "pair-32x1": Setting("pair", 32, 1, precision),
        "pair-32x4": Setting("pair", 32, 4, precision),
    }.items()
}

if __name__ == "__main__":
    run("decode", SUITE, unit="words", packages=["torch", "transformers", "ctranslate2", "llama-cpp-python"])
