"""Tiny random models of `transformers`, and the same weights in ours."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn
from transformers import GPT2Config, GPT2LMHeadModel, MarianConfig, MarianMTModel

from clearhead.convert.families import FAMILIES
from clearhead.convert.mapping import fill
from clearhead.models.presets import build

WORDS, WIDTH, HEADS, LAYERS, HIDDEN, LENGTH = 23, 16, 4, 2, 24, 48
PAD, EOS = 22, 0


def gpt2(seed: int = 0) -> tuple[Any, Any]:
    """Theirs and ours."""
    torch.manual_seed(seed)
    theirs = GPT2LMHeadModel(
        GPT2Config(
            vocab_size=WORDS, n_positions=LENGTH, n_embd=WIDTH, n_layer=LAYERS, n_head=HEADS, n_inner=HIDDEN,
            bos_token_id=1, eos_token_id=EOS, pad_token_id=PAD,
        )
    ).eval()  # fmt: skip
    shake(theirs)
    return theirs, ours_of(theirs.config.to_dict(), theirs.state_dict())


def marian(seed: int = 0) -> tuple[Any, Any]:
    """Theirs and ours; the target begins with padding, as Marian has it."""
    torch.manual_seed(seed)
    theirs = MarianMTModel(
        MarianConfig(
            vocab_size=WORDS, d_model=WIDTH, encoder_layers=LAYERS, decoder_layers=LAYERS, encoder_ffn_dim=HIDDEN,
            decoder_ffn_dim=HIDDEN, encoder_attention_heads=HEADS, decoder_attention_heads=HEADS, scale_embedding=True,
            activation_function="swish", max_position_embeddings=LENGTH, pad_token_id=PAD, eos_token_id=EOS,
            forced_eos_token_id=None, decoder_start_token_id=PAD,
        )
    ).eval()  # fmt: skip
    shake(theirs)
    theirs.final_logits_bias.normal_()
    return theirs, ours_of(theirs.config.to_dict(), theirs.state_dict())


@torch.no_grad()
def shake(model: nn.Module, by: float = 0.3) -> None:
    """Weights large enough that the model has opinions, biases and gains away from zeros and ones."""
    for parameter in model.parameters():
        if parameter.requires_grad:  # Marian's sinusoids are parameters that must stay as they are
            parameter.add_(by * torch.randn_like(parameter))


def ours_of(config: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> Any:
    """Our model of their config and tensors."""
    family = FAMILIES[config["model_type"]]
    named = family.spelled(tensors)
    own = family.read(config, named.keys())
    model = build(own).eval()
    fill(model, family.rows(own), named, source="theirs", ignored=family.ignored)
    return model
