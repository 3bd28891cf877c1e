"""Training speed: forward + backward + AdamW, in real tokens per second, against what people use today.

Every contender gets the same shapes, batches, loss and optimizer, and must come within 3% of the same number of
parameters. What each peer's own settings are, and why, is said in `README.md`.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from itertools import cycle

import torch
import torch.nn.functional as F
from harness import Contender, Work, run
from torch import Tensor, nn

PADDING, START, END = 0, 1, 2
IGNORED = -100
BATCHES = 64  # random ones, in turn: enough that nothing is learnt by heart and gradients stay ordinary numbers


@dataclass(frozen=True)
class GPT:
    """A decoder-only model on full rows: learned positions, pre-norm, exact GELU, feed-forward 4 × width, tied output.

    `dropout` acts on the embedding, the attention weights and the residual branches.
    """

    layers: int
    width: int
    heads: int
    context: int
    rows: int
    vocabulary: int
    dropout: float

    @property
    def parameters(self) -> int:
        block = 12 * self.width**2 + 13 * self.width
        return self.layers * block + (self.vocabulary + self.context + 2) * self.width

    @property
    def tokens(self) -> int:
        return self.rows * self.context

    @property
    def flops(self) -> float:
        """Multiplications and additions of the matrix products; backward takes two for each of forward's."""
        weights = self.layers * 12 * self.width**2 + self.vocabulary * self.width
        looks = self.rows * self.context * (self.context + 1) / 2
        return 3 * (2 * weights * self.tokens + 4 * self.layers * self.width * looks)

    def batches(self) -> Iterator[tuple[Tensor, Tensor]]:
        """(ids_BL, labels_BL): each position is to tell the id that follows."""
        random = torch.Generator().manual_seed(1)
        ids_NBL = torch.randint(self.vocabulary, (BATCHES, self.rows, self.context + 1), generator=random)
        return cycle([(ids_BL[:, :-1].contiguous(), ids_BL[:, 1:].contiguous()) for ids_BL in ids_NBL])


@dataclass(frozen=True)
class Pair:
    """An encoder-decoder on ragged pairs: sinusoidal positions, ReLU, one matrix for both embeddings and the output.

    `layers` on each side; `dropout` acts on embeddings, attention weights, feed-forward hidden and residual branches.
    Lengths run evenly from half of `length` to `length`, so that a quarter of the right-padded batch is padding.
    """

    layers: int
    width: int
    heads: int
    hidden: int
    length: int
    rows: int
    vocabulary: int
    dropout: float

    @property
    def lengths_B(self) -> Tensor:
        return torch.linspace(self.length / 2, self.length, self.rows).round().long()

    @property
    def parameters(self) -> int:
        attention, norm = 4 * self.width * (self.width + 1), 2 * self.width
        feedforward = 2 * self.width * self.hidden + self.hidden + self.width
        encoder, decoder = attention + feedforward + 2 * norm, 2 * attention + feedforward + 3 * norm
        return self.layers * (encoder + decoder) + self.vocabulary * self.width

    @property
    def tokens(self) -> int:
        """Real ones, of both sides."""
        return 2 * int(self.lengths_B.sum())

    @property
    def flops(self) -> float:
        """Matrix products over the real tokens only; backward takes two for each of forward's."""
        lengths_B, half = self.lengths_B.double(), self.tokens / 2
        weights = self.layers * (12 * self.width**2 + 4 * self.width * self.hidden) + self.vocabulary * self.width
        looks = float((lengths_B**2 + lengths_B * (lengths_B + 1) / 2).sum())  # encoder, decoder
        looks += half * half / self.rows  # across, where the two lengths have nothing to do with each other
        return 3 * (2 * weights * half + 4 * self.layers * self.width * looks)

    def batches(self) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
        """(source_BM, target_BL, labels_BL), padded on the right with PADDING, the labels with IGNORED."""
        return cycle([self._batch(torch.Generator().manual_seed(seed)) for seed in range(BATCHES)])

    def _batch(self, random: torch.Generator) -> tuple[Tensor, Tensor, Tensor]:
        source_BM, words_BL = torch.randint(3, self.vocabulary, (2, self.rows, self.length), generator=random)
        source_length_B, target_length_B = (self.lengths_B[torch.randperm(self.rows, generator=random)] for _ in "st")
        left_BM = source_length_B[:, None] - torch.arange(self.length)
        left_BL = target_length_B[:, None] - torch.arange(self.length)
        source_BM = source_BM.masked_fill(left_BM <= 0, PADDING)
        target_BL = F.pad(words_BL[:, :-1], (1, 0), value=START).masked_fill(left_BL <= 0, PADDING)
        labels_BL = words_BL.masked_fill(left_BL == 1, END).masked_fill(left_BL <= 0, IGNORED)
        return source_BM, target_BL, labels_BL


def train(of: GPT | Pair, model: nn.Module, loss: Callable[..., Tensor]) -> Work:
    """One step: gradients to None, `loss(*batch)`, backward, AdamW."""
    count = sum(weight.numel() for weight in model.parameters() if weight.requires_grad)
    if abs(count / of.parameters - 1) > 0.03:
        raise ValueError(f"not the model that was asked for: {count:,} parameters instead of {of.parameters:,}")
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, fused=True)
    batches = of.batches()
    model.train()

    def step() -> None:
        optimizer.zero_grad(set_to_none=True)
        loss(*next(batches)).backward()
        optimizer.step()

    return Work(step, of.tokens, of.flops, note=f"{count / 1e6:.2f} M parameters")


def cross_entropy(logits_BLV: Tensor, labels_BL: Tensor) -> Tensor:
    return F.cross_entropy(logits_BLV.flatten(0, 1), labels_BL.flatten(), ignore_index=IGNORED)


def clearhead_gpt(of: GPT) -> Work:
    from clearhead.models.decoder_only import DecoderOnly, DecoderOnlyConfig
    from clearhead.train.allocator import keep_freed_memory

    model = DecoderOnly(
        DecoderOnlyConfig(
            vocabulary=of.vocabulary,
            width=of.width,
            heads=of.heads,
            layers=of.layers,
            hidden=4 * of.width,
            feedforward="gelu",
            length=of.context,
            dropout=of.dropout,
            attention_dropout=of.dropout,
        )
    )

    def loss(ids_BL: Tensor, labels_BL: Tensor) -> Tensor:
        hidden_BLD, _ = model.hidden(ids_BL)
        return model.output.loss(hidden_BLD.flatten(0, 1), labels_BL.flatten()) / labels_BL.numel()

    keep_freed_memory()
    return train(of, model, loss)


def clearhead_pair(of: Pair) -> Work:
    from clearhead.models.encoder_decoder import EncoderDecoder, EncoderDecoderConfig
    from clearhead.train.allocator import keep_freed_memory

    model = EncoderDecoder(
        EncoderDecoderConfig(
            vocabulary=of.vocabulary,
            width=of.width,
            heads=of.heads,
            encoder_layers=of.layers,
            decoder_layers=of.layers,
            hidden=of.hidden,
            dropout=of.dropout,
            attention_dropout=of.dropout,
            hidden_dropout=of.dropout,
        )
    )

    def loss(source_BM: Tensor, target_BL: Tensor, labels_BL: Tensor) -> Tensor:
        hidden_BLD, rows = model.hidden(
            source_BM,
            target_BL,
            source_count_B=(source_BM != PADDING).sum(1),
            target_count_B=(labels_BL != IGNORED).sum(1),
            pack=True,
        )
        labels_N = rows.pack(labels_BL).flatten()
        return model.output.loss(hidden_BLD.flatten(0, 1), labels_N) / len(labels_N)

    keep_freed_memory()
    return train(of, model, loss)


def plain_gpt(of: GPT) -> Work:
    from plain_gpt import PlainGPT

    model = PlainGPT(
        vocabulary=of.vocabulary,
        context=of.context,
        layers=of.layers,
        width=of.width,
        heads=of.heads,
        dropout=of.dropout,
    )
    return train(of, model, lambda ids_BL, labels_BL: cross_entropy(model(ids_BL), labels_BL))


def transformers_gpt(of: GPT, activation: str) -> Work:
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
    return train(of, model, lambda ids_BL, labels_BL: cross_entropy(model(input_ids=ids_BL).logits, labels_BL))


def x_transformers_gpt(of: GPT) -> Work:
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
    return train(of, model, lambda ids_BL, labels_BL: cross_entropy(model(ids_BL), labels_BL))


def torch_gpt(of: GPT) -> Work:
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

    return train(of, nn.ModuleList([tokens, positions, stack]), loss)


def transformers_pair(of: Pair) -> Work:
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

    return train(of, model, loss)


def x_transformers_pair(of: Pair) -> Work:
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

    return train(of, nn.ModuleList([encoder, decoder]), loss)


def torch_pair(of: Pair) -> Work:
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

    return train(of, nn.ModuleList([tokens, stack]), loss)


def sinusoids(length: int, width: int) -> Tensor:
    """[vaswani2017 §3.5]"""
    rate = 10_000 ** (-torch.arange(0, width, 2) / width)
    angle = torch.arange(length)[:, None] * rate
    return torch.stack([angle.sin(), angle.cos()], dim=-1).flatten(1)


SMALL = GPT(layers=4, width=128, heads=4, context=64, rows=12, vocabulary=65, dropout=0.0)
LARGE = GPT(layers=6, width=384, heads=6, context=256, rows=16, vocabulary=65, dropout=0.0)
PAIR = Pair(layers=3, width=256, heads=8, hidden=1024, length=24, rows=64, vocabulary=8000, dropout=0.0)


def gpt_contenders(setting: GPT) -> dict[str, Contender]:
    return {
        "clearhead": partial(clearhead_gpt, setting),
        "plain": partial(plain_gpt, setting),
        "transformers": partial(transformers_gpt, setting, "gelu_new"),  # GPT-2's own, which is what people run
        "transformers-gelu": partial(transformers_gpt, setting, "gelu"),  # the exact one, as all others here
        "x-transformers": partial(x_transformers_gpt, setting),
        "torch.nn": partial(torch_gpt, setting),
    }


def pair_contenders(setting: Pair) -> dict[str, Contender]:
    return {
        "clearhead": partial(clearhead_pair, setting),
        "torch.nn": partial(torch_pair, setting),
        "transformers": partial(transformers_pair, setting),  # Marian
        "x-transformers": partial(x_transformers_pair, setting),
    }


SUITE = {
    "gpt-small": gpt_contenders(SMALL),
    "gpt-large": gpt_contenders(LARGE),
    "gpt-large-dropout": gpt_contenders(replace(LARGE, dropout=0.2)),
    "pair": pair_contenders(PAIR),
    "pair-dropout": pair_contenders(replace(PAIR, dropout=0.1)),
}

if __name__ == "__main__":
    run("train_step", SUITE, unit="tokens", packages=["torch", "transformers", "x-transformers"])
