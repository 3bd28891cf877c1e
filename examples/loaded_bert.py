"""Somebody else's BERT: open it, ask it for hidden words and for what is alike, and look where a word looks.

python examples/loaded_bert.py bert-base-uncased     # a folder as Hugging Face lays it out, or a hub name
"""

import sys

from clearhead import MaskedModel, SentenceEncoder, Viewer
from clearhead.tasks.loading import load_model

TEXTS = ["A man is eating food.", "A man is eating a piece of bread.", "The girl is carrying a baby."]


def main(where: str, text: str = "the capital of france is <mask> .") -> list[str]:
    """Load the model once for each use; any other encoder will do as well."""
    model = MaskedModel.from_pretrained(where)
    mask = model.tokenizer.token_of(model.tokenizer.mask)
    (guesses,) = model.guesses(text.replace("<mask>", mask), top=5)
    for word, probability in guesses:
        print(f"{probability:.3f}  {word}")

    for other, cosine in SentenceEncoder.from_pretrained(where).nearest(TEXTS[0], TEXTS[1:]):
        print(f"{cosine:.3f}  {other}")

    view = Viewer(load_model(where)).view(text.replace("<mask>", mask))
    tokens = view.sides["text"].tokens
    place = view.sides["text"].ids.index(model.tokenizer.mask)
    weights_HLM = view.seen("encoder.0.attention.weights")["encoder.0.attention.weights"].tensor[0]
    for head, row in enumerate(weights_HLM[:, place]):
        print(f"head {head} of the first layer looks from {tokens[place]} to {tokens[int(row.argmax())]}")
    return [word for word, _ in guesses]


if __name__ == "__main__":
    main(*sys.argv[1:3])
