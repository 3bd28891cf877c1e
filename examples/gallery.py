"""What `make gallery` draws: every figure there is, from a trained translator, into docs/gallery.md and docs/gallery/.

    python examples/gallery.py runs/demo            # a model that learned French from the phrasebook

Every number in it is a number of that model or of a part named below its figure; nothing is made up for the picture,
but for the users and films of the dot product, and an image and a row of a table that are there to be cut up.
"""

import argparse
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from clearhead.data.phrasebook.corpus import EXAMPLES, words
from clearhead.draw.basics import dot_product, notation, soft_dictionary
from clearhead.draw.diagram import DEPTHS, architecture, norm_placements
from clearhead.draw.equivalents import attention_as_convolution, attention_as_linear, heads_as_matrices, reordered
from clearhead.draw.figure import COLUMN, PAGE, Figure, Sheet
from clearhead.draw.minimal import minimal_attention, segment_recurrence
from clearhead.draw.positions import image_patches, norm_groups, position_maps, positions_by_hand
from clearhead.draw.steps import all_at_once, matrix_steps, six_steps, vector_steps
from clearhead.draw.tables import column_importance, columns_as_tokens
from clearhead.errors import ClearheadError
from clearhead.look.importance import by_gradient
from clearhead.models.ft_transformer import FTTransformer, FTTransformerConfig
from clearhead.models.presets import PRESETS, build
from clearhead.nn.attention import MultiHeadAttention
from clearhead.nn.equivalence import convolution_as_attention, linear_as_attention
from clearhead.nn.norm import LayerNorm
from clearhead.nn.positions import POSITIONS, Place
from clearhead.nn.residual import RESIDUALS, Join
from clearhead.tap import watching
from clearhead.tasks.directory import ModelParts
from clearhead.tasks.loading import load_model
from clearhead.tasks.picturing import picture, steps_of
from clearhead.tasks.spots import Asked, spot_of
from clearhead.tasks.viewing import View, Viewer

SHORT = "Je suis étudiant."
ROSES = ("Susan gave roses to Mary", "Mary gave roses to Susan")
SCHEMAS = EXAMPLES[-4:]  # the animal and the road, the animal and the street; tired and wide
DRAWN = ("transformer-tiny", "bert-tiny", "gpt-tiny", "modern-small")  # besides the model itself


HEAD = (
    "# Gallery",
    "",
    "Built by `make gallery` from the translator of `make demo`, as wide as a column of a paper. Most are drawn",
    "for any text and model by `clearhead look TEXT -m MODEL --what PICTURE --save FILE`.",
    "",
)


@dataclass(frozen=True)
class Entry:
    """One figure of the gallery: its file, the sentence below it, and how it is drawn."""

    name: str
    says: str
    draw: Callable[["Given"], Figure]


class Given:
    """The model, and the texts in it that several figures show."""

    def __init__(self, parts: ModelParts, on: Sheet = COLUMN) -> None:
        self.parts, self.on = parts, on
        self.viewer = Viewer(parts)
        self.page = Sheet("page", on.dark)

    @cached_property
    def short(self) -> View:
        return self.viewer.view(SHORT)

    @cached_property
    def schemas(self) -> list[View]:
        """The four sentences of "it", each with the translation that is right."""
        return [self.viewer.view(pair.source, pair.target) for pair in SCHEMAS]

    @cached_property
    def long(self) -> View:
        return self.schemas[0]

    @cached_property
    def heads(self) -> tuple[str, list[int]]:
        """The layer of the decoder, and its two heads, in which "it" looks most at what it stands for."""
        spots = [place for place in self.viewer.attentions() if place.kind == "masked"]
        weight: dict[tuple[str, int], float] = {}
        for view, pair in zip(self.schemas, SCHEMAS, strict=True):
            seen = view.seen([f"{spot.name}.weights" for spot in spots])
            tokens = [token.strip() for token in view.sides["target"].tokens]
            it, noun = tokens.index("it"), tokens.index(words(pair.target)[pair.referent.noun_target])
            for spot in spots:
                for head, value in enumerate(seen[f"{spot.name}.weights"].tensor[0, :, it, noun].tolist()):
                    weight[spot.name, head] = weight.get((spot.name, head), 0.0) + value
        name, first = max(weight, key=lambda one: weight[one])
        others = sorted((one for one in weight if one[0] == name and one[1] != first), key=lambda one: -weight[one])
        return name, [first, *(head for _, head in others[:1])]

    def draw(self, view: View, what: str, **options: Any) -> Figure:
        return picture(view, what, on=options.pop("on", self.on), **options)


@torch.no_grad()
def _seen(attention: MultiHeadAttention, tap: str, x_BLD: Tensor, **options: Any) -> Tensor:
    """What passes one tap of an attention by itself."""
    kept: list[Tensor] = []
    with watching(attention, {tap: lambda value: (kept.append(value), value)[1]}):
        attention(x_BLD, **options)
    return kept[0]


def _encoder_attention(given: Given) -> MultiHeadAttention:
    return given.viewer.model.encoder.layers[0].attention


def _notation(given: Given) -> Figure:
    x_LD, of = steps_of(given.short, spot_of(given.short, Asked(0, side="encoder")), 0)
    return notation({"a number": of.scores[0, 0], "a vector q": of.q[0, :6], "a matrix X": x_LD[:, :6]}, on=given.on)


def _dictionary(given: Given) -> Figure:
    spot = spot_of(given.short, Asked(0, side="encoder"))
    _, of = steps_of(given.short, spot, 0)
    tokens = given.short.sides["source"].tokens
    return soft_dictionary(of.q[0], of.k, of.v, names=tokens, temperature=of.q.shape[1] ** 0.5, on=given.on)


def _films(given: Given) -> Figure:
    users, films = [[0.9, -0.4, 0.2], [-0.3, 0.8, 0.6]], [[1.0, 0.0, 0.3], [-0.5, 0.9, 0.4], [0.1, 0.2, -0.9]]
    return dot_product(
        users, films, user_names=["Ada", "Bob"], film_names=["Alien", "Amélie", "Jaws"],
        features=["space", "romance", "comedy"], on=given.on,
    )  # fmt: skip


def _all_at_once(given: Given) -> Figure:
    _, of = steps_of(given.short, spot_of(given.short, Asked(0, side="decoder")), 0)
    return all_at_once(of, tokens=given.short.sides["target"].tokens, on=given.on)


def _matrices(given: Given) -> Figure:
    """X W^Q and so on of one head of the encoder; biases are one more row of W, and a column of ones in X."""
    attention, spot = _encoder_attention(given), spot_of(given.short, Asked(0, side="encoder"))
    x_LD, _ = steps_of(given.short, spot, 0)
    each, qkv = attention.head_width, attention.project.qkv
    whole = torch.cat([qkv.weight, qkv.bias[:, None]], dim=1).detach().double().numpy()
    w_q, w_k, w_v = (whole[at : at + each].T for at in (0, attention.sizes[0], sum(attention.sizes[:2])))
    return matrix_steps(np.pad(x_LD, ((0, 0), (0, 1)), constant_values=1.0), w_q, w_k, w_v, on=given.on)


def _roses(given: Given, positions: bool) -> Figure:
    """Outputs of the first attention over the words of two sentences, with positions added to the words, or without."""
    attention, embed = _encoder_attention(given), given.viewer.model.source_embed
    outputs = []
    for text in ROSES:
        ids = torch.tensor([[given.parts.tokenizer.encode(f" {word}")[0] for word in text.split()]])
        with torch.no_grad():
            x_BLD = embed.tokens(ids) * embed.scale
            x_BLD = embed.place(x_BLD, torch.arange(ids.shape[1])[None]) if positions else x_BLD
            outputs.append(attention(x_BLD)[0][0].double().numpy())
    heading = "words with positions" if positions else "words without positions"
    return reordered(*(text.split() for text in ROSES), *outputs, heading=heading, on=given.on)


def _joined_heads(given: Given) -> Figure:
    seen = given.short.seen("encoder.0.attention.heads")["encoder.0.attention.heads"].tensor[0]
    out = _encoder_attention(given).out.weight.detach().T
    return heads_as_matrices(seen.double().numpy(), out.double().numpy(), on=given.on)


def _linear(given: Given) -> Figure:
    torch.manual_seed(0)
    layer = nn.Linear(4 * 2, 3)
    attention, mask = linear_as_attention(layer, 4)
    weights = _seen(attention, "weights", torch.randn(1, 4, 2), mask=mask)[0]
    return attention_as_linear(weights, layer.weight.detach().T, on=given.on)


def _convolution(given: Given) -> Figure:
    torch.manual_seed(0)
    attention, mask = convolution_as_attention(nn.Conv2d(1, 2, 3, padding=1), 5, 5)
    weights = _seen(attention, "weights", torch.randn(1, 25, 1), mask=mask)[0]
    return attention_as_convolution(weights, 5, 5, on=given.on)


def _thinking(given: Given) -> Figure:
    """Two words of width 512 in the first head of an attention of eight, as the literature draws them."""
    torch.manual_seed(0)
    attention, x_BLD = MultiHeadAttention(512, 8), torch.randn(1, 2, 512)
    q, k, v = (_seen(attention, tap, x_BLD)[0, 0] for tap in "qkv")
    return vector_steps(x_BLD[0], six_steps(q, k, v), tokens=["Thinking", "Machines"], on=given.on)


def _table(name: str, length: int, width: int) -> np.ndarray:
    place = POSITIONS[name](Place(width, 1, width, length=length)).embed
    return place(torch.zeros(1, length, width), torch.arange(length)[None])[0].detach().double().numpy()


def _sinusoids(given: Given) -> Figure:
    tables = {name: _table(name, 20, 512) for name in ("sinusoidal", "sinusoidal_halves")}
    return position_maps({f"{name}, 20 × 512": table for name, table in tables.items()}, on=given.on)


def _by_hand(given: Given) -> Figure:
    return positions_by_hand(_table("sinusoidal", 4, 4), tokens=["je", "suis", "étudiant", "."], on=given.on)


def _norms(given: Given) -> Figure:
    join = Join(lambda: LayerNorm(16), 16, depth=12, factor=0.5)
    return norm_placements({name: row.build(join) for name, row in RESIDUALS.items()}, on=given.on)


def _groups(given: Given) -> Figure:
    views = [given.viewer.view(text) for text in (SHORT, "Je suis fatigué.", "Il est grand.")]
    x = [view.seen("source_embed.sum")["source_embed.sum"].tensor[0, :4, :5] for view in views]
    return norm_groups(torch.stack(x).double().numpy(), on=given.on)


def _image(given: Given) -> Figure:
    row, column = np.mgrid[0:32, 0:32] / 31
    sun = np.exp(-((row - 0.3) ** 2 + (column - 0.65) ** 2) * 30)
    hill = (row > 0.7 + 0.12 * np.sin(column * 6)) * 1.0
    image = np.stack([np.maximum(sun, 0.2 * hill), np.maximum(0.8 * sun, 0.5 * hill), 0.75 * (1 - hill)], axis=2)
    return image_patches(image, 8, on=given.on)


def _row_of_a_table(given: Given) -> Figure:
    torch.manual_seed(0)
    model = FTTransformer(FTTransformerConfig(numbers=2, categories=(3,), width=16, heads=2, layers=1)).eval()
    with torch.no_grad():
        tokens = model.columns(torch.tensor([[0.4, -1.2]]), torch.tensor([[1]]))[0]
    cells, kinds = ["41", "12,500", "Lyon"], ["number", "number", "category"]
    return columns_as_tokens(["age", "income", "city"], cells, tokens.numpy(), kinds=kinds, on=given.on)


def _importance(given: Given) -> Figure:
    """How much the loss of one sentence feels each head."""
    found = by_gradient(given.viewer.model, lambda model: -sum(_log_probabilities(given.long)))
    named = {f"{name}:{head}": float(v) for name, values in found.items() for head, v in enumerate(values)}
    says = f"|∂ loss ÷ ∂ gate| of each head, for “{given.long.text}”"
    return column_importance(list(named), list(named.values()), says=says, on=given.on)


def _log_probabilities(view: View) -> list[Tensor]:
    source, target = (torch.tensor([view.sides[side].ids]) for side in ("source", "target"))
    log_LV = view.viewer.model(source, target)[0].log_softmax(-1)
    return [log_LV[place, word] for place, word in enumerate(view.wanted) if word is not None]


def _it(given: Given, which: int, count: int) -> Figure:
    (layer, heads), view = given.heads, given.schemas[which]
    it = [token.strip() for token in view.sides["target"].tokens].index("it")
    return given.draw(view, "lines", layer=layer, head=heads[:count], position=it)


def _depth(given: Given, depth: str) -> Figure:
    return architecture(given.viewer.model, depth=depth, on=given.on)


def _preset(given: Given, name: str) -> Figure:
    small = {"vocabulary": 1000} if hasattr(PRESETS[name], "vocabulary") else {}
    return architecture(build(replace(PRESETS[name], **small)), on=given.on)


def _minimal(given: Given) -> Figure:
    return minimal_attention(_encoder_attention(given), on=given.on)


def _recurrence(given: Given) -> Figure:
    return segment_recurrence(3, 4, 2, segments=3, on=given.on)


def _view(name: str, says: str, text: str, what: str, **options: Any) -> Entry:
    """A picture of one of the texts of `Given`."""
    return Entry(name, says, lambda given: given.draw(getattr(given, text), what, **options))


def _schema(which: int, count: int) -> Entry:
    pair, many = SCHEMAS[which], ("one head", "two heads")[count - 1]
    says = f"“{pair.target}” in {many} of the decoder: what “it” looks at."
    return Entry(f"it-{which + 1}-{many.replace(' ', '-')}", says, lambda given: _it(given, which, count))


def _zoomed(depth: str) -> Entry:
    return Entry(depth.replace(" ", "-"), f"This model as a diagram: {depth}.", lambda given: _depth(given, depth))


def _of_preset(name: str) -> Entry:
    return Entry(name, f"The preset {name}.", lambda given: _preset(given, name))


# heading of the page -> its figures
ENTRIES: dict[str, list[Entry]] = {
    "First steps": [
        Entry("notation", "A number, a vector and a matrix, as they are in the first head.", _notation),
        Entry("dot-product", "How well a film fits a user: a dot product.", _films),
        _view("graph", "Attention as a graph: who reads whom.", "short", "graph", layer=0, head=0, side="encoder"),
        _view("qkv", "Each token's query, key and value.", "short", "qkv", layer=0, head=0, side="encoder"),
        Entry("dictionary", "Attention as a soft dictionary: one query, all keys, all values.", _dictionary),
        Entry("all-at-once", "All positions at once, laid out as the formula.", _all_at_once),
        Entry("matrices", "The same as products of matrices: a head of the encoder, biases as a last row.", _matrices),
    ],
    "Attention is also": [
        Entry("roses", "Without positions a sentence is a bag of words.", lambda given: _roses(given, False)),
        Entry("roses-placed", "With positions it is not.", lambda given: _roses(given, True)),
        Entry("joined-heads", "Many heads are one multiplication of matrices.", _joined_heads),
        Entry("linear", "A fully connected layer over positions, as attention.", _linear),
        Entry("convolution", "A 3 × 3 convolution, as attention of nine heads.", _convolution),
    ],
    "Attention in a translator": [
        _view("attention", "One head of cross-attention.", "long", "attention", layer=1, head=2),
        _view("heads", "All heads of cross-attention at a glance.", "long", "heads"),
        _view("square", "Encoder, decoder and cross-attention in one square.", "short", "square", layer=0),
        *(_schema(which, count) for which in range(len(SCHEMAS)) for count in (1, 2)),
    ],
    "The six steps": [
        Entry("thinking-machines", "Vector by vector: two words, 512 → 64, ÷ 8.", _thinking),
        _view("steps", "The same in this translator's encoder.", "short", "steps", layer=0, head=0, side="encoder"),
    ],
    "Positions, norms, patches, tables": [
        Entry("positions-by-hand", "Sinusoids in four dimensions, to be checked by hand.", _by_hand),
        Entry("sinusoids", "Sinusoids of 20 positions in 512 dimensions, in both orders.", _sinusoids),
        _view("positions", "What this model adds to its tokens.", "long", "positions"),
        Entry("norm-placements", "Where the norm stands: every placement, from its own slots.", _norms),
        Entry("norm-groups", "What layer, batch and instance norm take together.", _groups),
        Entry("patches", "An image as a sequence of patches.", _image),
        Entry("row-of-a-table", "A row of a table as tokens.", _row_of_a_table),
        Entry("importance", "Which heads matter for one sentence.", _importance),
    ],
    "Decoding": [
        _view("decoding", "Word by word, with its rivals.", "short", "decoding"),
        Entry("beam", "Beam search as a tree.", lambda given: given.draw(given.short, "beam", on=given.page)),
    ],
    "Inside the stream": [
        _view("lens", "What each layer would say.", "long", "lens"),
        _view("shares", "What made a logit: all shares add up to it.", "long", "shares"),
        _view("stream", "Who gives to whom, from layer to layer.", "long", "stream"),
        _view("rollout", "How much of each input reaches each output, over all paths.", "short", "rollout"),
        _view("flow", "The same as the greatest flow.", "short", "flow"),
        _view("neurons", "The neurons that a word excites, and what they speak for.", "long", "neurons"),
        _view("circuits", "How heads build on heads.", "short", "circuits"),
        _view("qk", "What a head would read, from its matrices alone.", "short", "qk", layer=0, head=0),
        _view("ov", "What a head would say of what it reads.", "short", "ov", layer=1, head=2),
    ],
    "Architectures": [
        *map(_zoomed, DEPTHS),
        Entry("minimal", "The least that attention is made of.", _minimal),
        Entry("recurrence", "How a segment remembers those before it.", _recurrence),
        *map(_of_preset, DRAWN),
    ],
}  # fmt: skip


def make(parts: ModelParts, out: Path, *, on: Sheet = COLUMN, suffix: str = ".svg") -> Path:
    """Draw everything into out/gallery/ and write the page out/gallery.md, which shows it."""
    given, folder = Given(parts, on), out / "gallery"
    folder.mkdir(parents=True, exist_ok=True)
    lines = [*HEAD]
    for heading, entries in ENTRIES.items():
        lines += [f"## {heading}", ""]
        for entry in entries:
            entry.draw(given).save(folder / f"{entry.name}{suffix}")
            lines += [f"![{entry.says}](gallery/{entry.name}{suffix})", "", entry.says, ""]
    page = out / "gallery.md"
    page.write_text("\n".join(lines).rstrip() + "\n", encoding="utf-8")
    return page


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", nargs="?", type=Path, default=Path("runs/demo"), help="a translator (runs/demo)")
    parser.add_argument("--out", type=Path, default=Path(__file__).parent.parent / "docs", help="folder (docs)")
    parser.add_argument("--png", action="store_true", help="as PNG, to be looked at")
    parser.add_argument("--dark", action="store_true")
    parser.add_argument("--wide", action="store_true")
    options = parser.parse_args(arguments)
    on = Sheet(PAGE.width if options.wide else COLUMN.width, options.dark)
    print(make(load_model(options.model), options.out, on=on, suffix=".png" if options.png else ".svg"))
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except ClearheadError as error:
        print(f"gallery: {error}", file=sys.stderr)
        sys.exit(1)
