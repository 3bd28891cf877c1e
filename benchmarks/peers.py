"""What others train: each function gives a model of the wanted shape and its loss, as its own project writes them."""

from collections.abc import Callable
from functools import partial

import torch
import torch.nn.functional as F
from shapes import END, GPT, IGNORED, PADDING, START, Pair
from torch import Tensor, nn

Trained = tuple[nn.Module, Callable[..., Tensor]]


def cross_entropy(logits_BLV: Tensor, labels_BL: Tensor) -> Tensor:
    return F.cross_entropy(logits_BLV.flatten(0, 1), labels_BL.flatten(), ignore_index=IGNORED)


def plain_gpt(of: GPT) -> Trained:
    from plain_gpt import PlainGPT

    model = PlainGPT(
        vocabulary=of.vocabulary,
        context=of.context,
        layers=of.layers,
        width=of.width,
        heads=of.heads,
        dropout=of.dropout,
    )
    return model, lambda ids_BL, labels_BL: cross_entropy(model(ids_BL), labels_BL)


def transformers_gpt(of: GPT, activation: str) -> Trained:
    from transformers import GPT2Config, GPT2LMHeadModel

    config = GPT2Config(
        vocab_size=of.vocabulary,
        n_positions=of.context,
        n_layer=of.layers,
        n_embd=of.width,
        n_head=of.heads,
        activation_function=activation,
        embd_pdrop=of.dropout,
        attn_pdrop=of.dropout,
        resid_pdrop=of.dropout,
        use_cache=False,
        bos_token_id=None,
        eos_token_id=None,
    )
    model = GPT2LMHeadModel(config)  # type: ignore[no-untyped-call]
    return model, lambda ids_BL, labels_BL: cross_entropy(model(input_ids=ids_BL).logits, labels_BL)


def x_transformers_gpt(of: GPT) -> Trained:
    from x_transformers import Decoder, TransformerWrapper  # type: ignore[import-untyped]

    layers = Decoder(
        dim=of.width,
        depth=of.layers,
        heads=of.heads,
        attn_dim_head=of.width // of.heads,
        attn_flash=True,
        attn_dropout=of.dropout,
        attn_sublayer_dropout=of.dropout,
        ff_sublayer_dropout=of.dropout,
    )
    model = TransformerWrapper(
        num_tokens=of.vocabulary, max_seq_len=of.context, emb_dropout=of.dropout, attn_layers=layers, tie_embedding=True
    )
    return model, lambda ids_BL, labels_BL: cross_entropy(model(ids_BL), labels_BL)


def torch_gpt(of: GPT) -> Trained:
    tokens, positions = nn.Embedding(of.vocabulary, of.width), nn.Embedding(of.context, of.width)
    for embedding in (tokens, positions):
        nn.init.normal_(embedding.weight, std=0.02)
    layer = nn.TransformerEncoderLayer(
        of.width, of.heads, 4 * of.width, of.dropout, activation="gelu", batch_first=True, norm_first=True
    )
    layer.dropout.p = 0.0  # inside the feed-forward layer, where a GPT has none
    stack = nn.TransformerEncoder(layer, of.layers, nn.LayerNorm(of.width), enable_nested_tensor=False)
    causal_LL, position_L = nn.Transformer.generate_square_subsequent_mask(of.context), torch.arange(of.context)

    def loss(ids_BL: Tensor, labels_BL: Tensor) -> Tensor:
        x_BLD = F.dropout(tokens(ids_BL) + positions(position_L), of.dropout)
        y_BLD = stack(x_BLD, mask=causal_LL, is_causal=True)
        return cross_entropy(F.linear(y_BLD, tokens.weight), labels_BL)

    return nn.ModuleList([tokens, positions, stack]), loss


def transformers_pair(of: Pair) -> Trained:
    from transformers import MarianConfig, MarianMTModel

    config = MarianConfig(
        vocab_size=of.vocabulary,
        max_position_embeddings=of.length,
        d_model=of.width,
        encoder_layers=of.layers,
        decoder_layers=of.layers,
        encoder_attention_heads=of.heads,
        decoder_attention_heads=of.heads,
        encoder_ffn_dim=of.hidden,
        decoder_ffn_dim=of.hidden,
        activation_function="relu",
        dropout=of.dropout,
        attention_dropout=of.dropout,
        activation_dropout=of.dropout,
        scale_embedding=True,
        pad_token_id=PADDING,
        decoder_start_token_id=START,
        eos_token_id=END,
    )
    model = MarianMTModel(config)

    def loss(source_BM: Tensor, target_BL: Tensor, labels_BL: Tensor) -> Tensor:
        mask_BM = source_BM != PADDING
        logits_BLV = model(source_BM, attention_mask=mask_BM, decoder_input_ids=target_BL, use_cache=False).logits
        return cross_entropy(logits_BLV, labels_BL)

    return model, loss


def x_transformers_pair(of: Pair) -> Trained:
    from x_transformers import Decoder, Encoder, TransformerWrapper

    stack = {
        "dim": of.width,
        "depth": of.layers,
        "heads": of.heads,
        "attn_dim_head": of.width // of.heads,
        "attn_flash": True,
        "attn_dropout": of.dropout,
        "attn_sublayer_dropout": of.dropout,
        "ff_mult": of.hidden / of.width,
        "ff_custom_activation": nn.ReLU(),
        "ff_dropout": of.dropout,
        "ff_sublayer_dropout": of.dropout,
    }
    ids = {"num_tokens": of.vocabulary, "max_seq_len": of.length, "scaled_sinu_pos_emb": True}
    wrap = partial(TransformerWrapper, **ids, emb_dropout=of.dropout)
    encoder = wrap(attn_layers=Encoder(**stack), return_only_embed=True)
    decoder = wrap(attn_layers=Decoder(**stack, cross_attend=True), token_emb=encoder.token_emb, tie_embedding=True)

    def loss(source_BM: Tensor, target_BL: Tensor, labels_BL: Tensor) -> Tensor:
        mask_BM = source_BM != PADDING
        memory_BMD = encoder(source_BM, mask=mask_BM)
        return cross_entropy(decoder(target_BL, context=memory_BMD, context_mask=mask_BM), labels_BL)

    return nn.ModuleList([encoder, decoder]), loss


def torch_pair(of: Pair) -> Trained:
    tokens = nn.Embedding(of.vocabulary, of.width, padding_idx=PADDING)
    nn.init.normal_(tokens.weight, std=of.width**-0.5)
    stack = nn.Transformer(of.width, of.heads, of.layers, of.layers, of.hidden, of.dropout, batch_first=True)
    causal_LL, positions_LD = nn.Transformer.generate_square_subsequent_mask(of.length), sinusoids(of.length, of.width)

    def embed(ids_BL: Tensor) -> Tensor:
        return F.dropout(tokens(ids_BL) * of.width**0.5 + positions_LD, of.dropout)

    def loss(source_BM: Tensor, target_BL: Tensor, labels_BL: Tensor) -> Tensor:
        padding_BM = source_BM == PADDING
        y_BLD = stack(
            embed(source_BM),
            embed(target_BL),
            tgt_mask=causal_LL,
            tgt_is_causal=True,
            src_key_padding_mask=padding_BM,
            memory_key_padding_mask=padding_BM,
        )
        return cross_entropy(F.linear(y_BLD, tokens.weight), labels_BL)

    return nn.ModuleList([tokens, stack]), loss


def sinusoids(length: int, width: int) -> Tensor:
    """[vaswani2017 §3.5]"""
    rate = 10_000 ** (-torch.arange(0, width, 2) / width)
    angle = torch.arange(length)[:, None] * rate
    return torch.stack([angle.sin(), angle.cos()], dim=-1).flatten(1)
