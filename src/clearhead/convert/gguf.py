"""GGUF files, as llama.cpp has them: models of the Llama family, mostly in few bits, with tokenizer and chat template.

A file is read as a checkpoint of Hugging Face's names and layout, so that one map serves both: tensors that are made
numbers again one at a time, and the `config.json` that would stand beside them.
"""

import re
from collections.abc import Iterator, Mapping
from functools import cached_property
from math import pi
from pathlib import Path
from typing import Any, final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from clearhead.convert.gguf_header import Place, read_header
from clearhead.convert.gguf_tokenizer import read_gguf_tokenizer
from clearhead.data.tokenizers import Tokenizer
from clearhead.errors import CheckpointError, MissingPackageError

__all__ = ["GgufFile", "halves_together", "llama3_scaling"]

# Architectures -> the class that Hugging Face has for it.
ARCHITECTURES = {"llama": "LlamaForCausalLM", "qwen2": "Qwen2ForCausalLM"}
# Those whose queries and keys turn neighbouring numbers together, where Hugging Face turns the two halves.
NEIGHBOURS = {"llama"}

NAMES = {"token_embd": "model.embed_tokens", "output_norm": "model.norm", "output": "lm_head"}
LAYER_NAMES = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
NAME = re.compile(r"(?:blk\.(\d+)\.)?(\w+)\.(weight|bias)")
FREQUENCIES = "rope_freqs.weight"

TOKENS = {"bos": "bos_token_id", "eos": "eos_token_id", "pad": "padding_token_id"}
MOST = 2**31  # of any number in the settings

# Llama 3's own: how often low and high frequencies turn within the length that it was first trained on.
BOUNDS, LENGTH = (1.0, 4.0), 8192


@final
class GgufFile(Mapping[str, Tensor]):
    """A GGUF file as a checkpoint: its tensors by Hugging Face's names, each made numbers when it is asked for."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._package = _gguf()
        header = read_header(path, self._blocks)
        self.settings = header.settings
        self.architecture = str(self.settings.get("general.architecture"))
        if self.architecture not in ARCHITECTURES:
            raise self._error(f"has the architecture {self.architecture!r}; known are {', '.join(ARCHITECTURES)}")
        if self._whole("split.count", 0) > 1:
            raise self._error(f"is one of {self.settings['split.count']} parts; join them into one file first")
        self._frequencies = header.tensors.pop(FREQUENCIES, None)
        self._places = {_their_name(name): place for name, place in header.tensors.items()}
        self._last: tuple[str, Tensor] | None = None

    def __iter__(self) -> Iterator[str]:
        return iter(self._places)

    def __len__(self) -> int:
        return len(self._places)

    def __contains__(self, name: object) -> bool:
        return name in self._places

    def __getitem__(self, name: str) -> Tensor:
        """The tensor; the one asked for last is kept, since who checks it first reads it again at once."""
        if self._last is None or self._last[0] != name:
            self._last = name, self.read(name)
        return self._last[1]

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """The shape of each tensor, without reading any."""
        return {name: place.shape for name, place in self._places.items()}

    def read(self, name: str) -> Tensor:
        """One tensor in float32, laid out as Hugging Face has it."""
        tensor = self._numbers(name, self._places[name])
        for part, heads in (("q_proj", "attention.head_count"), ("k_proj", "attention.head_count_kv")):
            if f".{part}." in name and self.architecture in NEIGHBOURS:
                count = self._own(heads, self._own("attention.head_count"))
                if len(tensor) % (2 * count):
                    raise self._error(f"has {len(tensor)} rows in {name!r}, which do not divide into {count} heads")
                return halves_together(tensor, count)
        return tensor

    @cached_property
    def config(self) -> dict[str, Any]:
        """What Hugging Face's `config.json` of this model would say."""
        if "model.embed_tokens.weight" not in self:
            raise self._error("holds no weights")
        heads, width = self._own("attention.head_count"), self._own("embedding_length")
        each = self._own("attention.key_length", width // heads)
        for key, able in (("attention.value_length", each), ("rope.dimension_count", each), ("expert_count", 0)):
            if self._own(key, able) != able:
                raise self._error(f"says {key}={self._own(key, able)}, and only {able} can be built here")
        window = self._own("attention.sliding_window", 0)
        mistral = {"model_type": "mistral", "architectures": ["MistralForCausalLM"], "sliding_window": window}
        return {
            "model_type": self.architecture,
            "architectures": [ARCHITECTURES[self.architecture]],
            **(mistral if window and self.architecture == "llama" else {}),
            "vocab_size": self.shapes["model.embed_tokens.weight"][0],
            "hidden_size": width,
            "intermediate_size": self._own("feed_forward_length"),
            "num_hidden_layers": self._own("block_count"),
            "num_attention_heads": heads,
            "num_key_value_heads": self._own("attention.head_count_kv", heads),
            "head_dim": each,
            "hidden_act": "silu",
            "max_position_embeddings": self._own("context_length"),
            "rms_norm_eps": self._real("attention.layer_norm_rms_epsilon"),
            "rope_theta": self._real("rope.freq_base", 10_000.0),
            "rope_scaling": self._scaling(),
            "attention_bias": "model.layers.0.self_attn.q_proj.bias" in self,
            "mlp_bias": "model.layers.0.mlp.gate_proj.bias" in self,
            "tie_word_embeddings": "lm_head.weight" not in self,
            **{f"{role}_token_id": self._token(key) for role, key in TOKENS.items()},
        }

    def tokenizer(self) -> Tokenizer:
        """The tokenizer that came with the model."""
        return read_gguf_tokenizer(self.settings, repr(str(self.path)))

    @property
    def chat_template(self) -> str | None:
        """The template by which messages become a text, where there is one."""
        found = self.settings.get("tokenizer.chat_template")
        return found if isinstance(found, str) else None

    def _scaling(self) -> dict[str, Any] | None:
        """How rotary positions are stretched: as the settings say, or as the factors that Llama 3 has instead."""
        if self._frequencies is not None:
            factors = self._numbers(FREQUENCIES, self._frequencies).double().flatten().numpy()
            found = llama3_scaling(factors, self._real("rope.freq_base", 10_000.0))
            if found is None:
                raise self._error("stretches rotary positions by factors that are not made as Llama 3 makes them")
            return found if found["factor"] > 1 else None
        kind = self.settings.get(f"{self.architecture}.rope.scaling.type", "linear")
        if kind == "none":
            return None
        factor = self._real("rope.scaling.factor", self._real("rope.scale_linear", 1.0))  # the second is of 2023
        return None if kind == "linear" and factor == 1 else {"rope_type": kind, "factor": factor}

    def _numbers(self, name: str, place: Place) -> Tensor:
        quants, type = self._package.quants, self._package.GGMLQuantizationType(place.type)
        data = np.fromfile(self.path, np.uint8, place.length, offset=place.start)
        if len(data) < place.length:
            raise self._error("has become shorter while it was read")
        try:
            with np.errstate(all="ignore"):  # what is no number is found where the model is filled
                numbers = quants.dequantize(data.reshape(*place.shape[:-1], -1), type)
        except NotImplementedError as error:
            raise self._error(f"has {name!r} in the type {type.name}, which the package gguf cannot read") from error
        return torch.from_numpy(np.ascontiguousarray(numbers, np.float32).reshape(place.shape))

    def _blocks(self, type: int) -> tuple[int, int]:
        sizes: dict[Any, tuple[int, int]] = self._package.GGML_QUANT_SIZES
        return sizes[self._package.GGMLQuantizationType(type)]

    def _own(self, key: str, default: int | None = None) -> int:
        return self._whole(f"{self.architecture}.{key}", default)

    def _whole(self, key: str, default: int | None = None) -> int:
        """A whole number; a list of them, one for each layer, where they are all the same."""
        found = self.settings.get(key, default)
        same = found[0] if isinstance(found, list) and len(set(map(str, found))) == 1 else found
        if not isinstance(same, int) or not 0 <= same < MOST or (same == 0 and default != 0):
            raise self._error(f"says {key}={found!r:.60}, where one whole number belongs")
        return same

    def _real(self, key: str, default: float | None = None) -> float:
        found = self.settings.get(f"{self.architecture}.{key}", default)
        if not isinstance(found, int | float) or not 0 < found < MOST:
            raise self._error(f"says {self.architecture}.{key}={found!r:.60}, where a number above zero belongs")
        return float(f"{found:.7g}")  # as it was written, before float32 had it

    def _token(self, key: str) -> int | None:
        found = self.settings.get(f"tokenizer.ggml.{key}")
        return found if isinstance(found, int) else None

    def _error(self, what: str) -> CheckpointError:
        return CheckpointError(f"the GGUF file {str(self.path)!r} {what}")


def halves_together(tensor: Tensor, heads: int) -> Tensor:
    """Rows of each head that lie in pairs to be turned together (0, K/2, 1, …), laid out as two halves (0, 1, …)."""
    pairs = tensor.reshape(heads, len(tensor) // heads // 2, 2, *tensor.shape[1:])
    return pairs.transpose(1, 2).reshape(tensor.shape)


def llama3_scaling(factors: NDArray[np.float64], base: float) -> dict[str, Any] | None:
    """The settings that give these factors of the wavelengths of rotary positions; None where none do.

    Only the bounds relative to the first length count, so that any length would do; Llama 3's own is taken.
    """
    turns = LENGTH / (2 * pi) * base ** (-np.arange(len(factors)) / len(factors))
    factor = float(f"{factors.max():.6g}")
    for low, high in (BOUNDS, _bounds(factors, factor, turns)):
        with np.errstate(all="ignore"):  # what is no number equals none
            smooth = ((turns - low) / (high - low)).clip(0, 1)
            made = 1 / ((1 - smooth) / factor + smooth)
        if np.allclose(made, factors, rtol=1e-4):
            return {
                "rope_type": "llama3",
                "factor": factor,
                "low_freq_factor": low,
                "high_freq_factor": high,
                "original_max_position_embeddings": LENGTH,
            }
    return None


def _bounds(factors: NDArray[np.float64], factor: float, turns: NDArray[np.float64]) -> tuple[float, float]:
    """Between the bounds, the smoothing is a straight line over the turns: two points of it give both."""
    between = np.flatnonzero((factors > 1.001) & (factors < 0.999 * factor))
    if len(between) < 2:
        return BOUNDS
    ends = between[[0, -1]]
    smooth = (1 / factors[ends] - 1 / factor) / (1 - 1 / factor)
    if smooth[0] == smooth[1]:
        return BOUNDS
    span = float((turns[ends][0] - turns[ends][1]) / (smooth[0] - smooth[1]))
    low = float(turns[ends][0]) - float(smooth[0]) * span
    return round(low, 4), round(low + span, 4)


def _their_name(name: str) -> str:
    """`blk.0.attn_q.weight` -> `model.layers.0.self_attn.q_proj.weight`; a name that is not known stays."""
    found = NAME.fullmatch(name)
    if found is None:
        return name
    layer, module, end = found.groups()
    names = NAMES if layer is None else LAYER_NAMES
    if module not in names:
        return name
    return f"{names[module]}.{end}" if layer is None else f"model.layers.{layer}.{names[module]}.{end}"


def _gguf() -> Any:
    """The package that knows how numbers are packed; it is asked for nothing else."""
    try:
        import gguf
        import gguf.quants
    except ImportError as error:
        raise MissingPackageError("GGUF files need the package gguf: pip install 'clearhead[convert]'") from error
    return gguf
