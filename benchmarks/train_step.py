"""Training speed: forward + backward + AdamW, in real tokens per second, against what people use today.

Every contender gets the same shapes, batches, loss and optimizer, and must come within 3% of the same number of
parameters. What each peer's own settings are, and why, is said in `README.md`.
"""

from collections.abc import Callable
from dataclasses import replace

import peers
import torch
from harness import Contender, Work, run
from peers import Trained
from shapes import GPT, IGNORED, PADDING, Pair
from torch import Tensor, nn


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


def clearhead_gpt(of: GPT) -> Trained:
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
    return model, loss


def clearhead_pair(of: Pair) -> Trained:
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
    return model, loss


SMALL = GPT(layers=4, width=128, heads=4, context=64, rows=12, vocabulary=65, dropout=0.0)
LARGE = GPT(layers=6, width=384, heads=6, context=256, rows=16, vocabulary=65, dropout=0.0)
PAIR = Pair(layers=3, width=256, heads=8, hidden=1024, length=24, rows=64, vocabulary=8000, dropout=0.0)


def contender(make: Callable[..., Trained], of: GPT | Pair, *options: str) -> Contender:
    return lambda: train(of, *make(of, *options))


def compiled(make: Callable[..., Trained], of: GPT, *options: str) -> Contender:
    def build() -> Work:
        model, loss = make(of, *options)
        return train(of, model, torch.compile(loss))

    return build


def gpt_contenders(of: GPT) -> dict[str, Contender]:
    return {
        "clearhead": contender(clearhead_gpt, of),
        "clearhead-compiled": compiled(clearhead_gpt, of),
        "plain": contender(peers.plain_gpt, of),
        "transformers": contender(peers.transformers_gpt, of, "gelu_new"),  # GPT-2's own, which is what people run
        "transformers-gelu": contender(peers.transformers_gpt, of, "gelu"),  # the exact one, as all others here
        "transformers-compiled": compiled(peers.transformers_gpt, of, "gelu_new"),
        "x-transformers": contender(peers.x_transformers_gpt, of),
        "torch.nn": contender(peers.torch_gpt, of),
    }


def pair_contenders(of: Pair) -> dict[str, Contender]:
    return {
        "clearhead": contender(clearhead_pair, of),
        "torch.nn": contender(peers.torch_pair, of),
        "transformers": contender(peers.transformers_pair, of),  # Marian
        "x-transformers": contender(peers.x_transformers_pair, of),
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
