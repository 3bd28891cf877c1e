"""Tiny random models of `transformers`, and the same weights in ours."""

from typing import Any

import torch
from torch import Tensor, nn
from transformers import GPT2Config, GPT2LMHeadModel, MarianConfig, MarianMTModel

from clearhead.models.decoder_only import DecoderOnly, DecoderOnlyConfig
from clearhead.models.encoder_decoder import EncoderDecoder, EncoderDecoderConfig
from clearhead.nn.attention import MultiHeadAttention
from clearhead.nn.block import Block
from clearhead.nn.residual import Residual

WORDS, WIDTH, HEADS, LAYERS, HIDDEN, LENGTH = 23, 16, 4, 2, 24, 48
PAD, EOS = 22, 0


def gpt2(seed: int = 0) -> tuple[GPT2LMHeadModel, DecoderOnly]:
    """Theirs and ours."""
    torch.manual_seed(seed)
    theirs = GPT2LMHeadModel(
        GPT2Config(
            vocab_size=WORDS, n_positions=LENGTH, n_embd=WIDTH, n_layer=LAYERS, n_head=HEADS, n_inner=HIDDEN,
            bos_token_id=1, eos_token_id=EOS, pad_token_id=PAD,
        )
    ).eval()  # fmt: skip
    shake(theirs)
    sizes: dict[str, Any] = {"width": WIDTH, "heads": HEADS, "layers": LAYERS, "hidden": HIDDEN, "length": LENGTH}
    ours = DecoderOnly(DecoderOnlyConfig(vocabulary=WORDS, **sizes, bos=1, eos=EOS)).eval()
    with torch.no_grad():
        ours.embed.tokens.weight.copy_(theirs.transformer.wte.weight)
        ours.embed.place.table.weight.copy_(theirs.transformer.wpe.weight)
        for mine, block in zip(ours.decoder.layers, theirs.transformer.h, strict=True):
            # Their Conv1D keeps weights as (inputs, outputs), and q, k, v side by side as ours do.
            pour(mine.attention.project.qkv, block.attn.c_attn.weight.T, block.attn.c_attn.bias)
            pour(mine.attention.out, block.attn.c_proj.weight.T, block.attn.c_proj.bias)
            pour(mine.feedforward.widen, block.mlp.c_fc.weight.T, block.mlp.c_fc.bias)
            pour(mine.feedforward.narrow, block.mlp.c_proj.weight.T, block.mlp.c_proj.bias)
            mine.add_attention.before.load_state_dict(block.ln_1.state_dict())
            mine.add_feedforward.before.load_state_dict(block.ln_2.state_dict())
        ours.decoder.norm.load_state_dict(theirs.transformer.ln_f.state_dict())
    return theirs, ours


def marian(seed: int = 0) -> tuple[MarianMTModel, EncoderDecoder]:
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
    with torch.no_grad():
        theirs.final_logits_bias.normal_()
    ours = EncoderDecoder(
        EncoderDecoderConfig(
            vocabulary=WORDS, width=WIDTH, heads=HEADS, encoder_layers=LAYERS, decoder_layers=LAYERS, hidden=HIDDEN,
            positions="sinusoidal_halves", feedforward="silu", output_bias=True, length=LENGTH,
            pad=PAD, bos=PAD, eos=EOS,
        )
    ).eval()  # fmt: skip
    with torch.no_grad():
        ours.source_embed.tokens.weight.copy_(theirs.model.shared.weight)
        ours.output.linear.bias.copy_(theirs.final_logits_bias[0])
    for mine, layer in zip(ours.encoder.layers, theirs.model.encoder.layers, strict=True):
        pour_block(mine, layer)
    for mine, layer in zip(ours.decoder.layers, theirs.model.decoder.layers, strict=True):
        pour_block(mine, layer)
        pour_attention(mine.cross, layer.encoder_attn)
        pour_norm(mine.add_cross, layer.encoder_attn_layer_norm)
    return theirs, ours


@torch.no_grad()
def shake(model: nn.Module) -> None:
    """Weights large enough that the model has opinions, biases and gains away from zeros and ones."""
    for name, parameter in model.named_parameters():
        if parameter.requires_grad and "embed_positions" not in name:
            parameter.add_(0.3 * torch.randn_like(parameter))


@torch.no_grad()
def pour(linear: nn.Linear, weight: Tensor, bias: Tensor) -> None:
    linear.weight.copy_(weight)
    linear.bias.copy_(bias)


def pour_block(ours: Block, theirs: nn.Module) -> None:
    pour_attention(ours.attention, theirs.self_attn)
    pour_norm(ours.add_attention, theirs.self_attn_layer_norm)
    pour_norm(ours.add_feedforward, theirs.final_layer_norm)
    ours.feedforward.widen.load_state_dict(theirs.fc1.state_dict())
    ours.feedforward.narrow.load_state_dict(theirs.fc2.state_dict())


def pour_attention(ours: MultiHeadAttention, theirs: nn.Module) -> None:
    q, k, v = theirs.q_proj, theirs.k_proj, theirs.v_proj
    if hasattr(ours.project, "qkv"):
        pour(ours.project.qkv, torch.cat([q.weight, k.weight, v.weight]), torch.cat([q.bias, k.bias, v.bias]))
    else:
        pour(ours.project.q, q.weight, q.bias)
        pour(ours.project.kv, torch.cat([k.weight, v.weight]), torch.cat([k.bias, v.bias]))
    ours.out.load_state_dict(theirs.out_proj.state_dict())


def pour_norm(ours: Residual, theirs: nn.Module) -> None:
    ours.after.load_state_dict(theirs.state_dict())
