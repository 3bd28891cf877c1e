"""A small GPT of your own: a file of text in, a model that goes on with what you write.

python examples/own_gpt.py models/mine book.txt       # yours: any text file, or a folder of them
python examples/own_gpt.py models/phrases             # English sentences of the built-in phrasebook
"""

import sys
from pathlib import Path

from clearhead import LanguageModel
from clearhead.data.phrasebook.corpus import sentences


def main(out: str, text: str = "", *, count: int = 40_000, steps: int = 600) -> str:
    """Learn from a file or, without one, from the phrasebook; keep the model in `out`, and go on with a beginning."""
    data = Path(text) if text else [pair.target for pair in sentences(count, seed=1)]
    LanguageModel.fit(data, preset="modern-tiny", steps=steps, vocabulary=2_000).save_pretrained(out)

    model = LanguageModel.from_pretrained(out)
    beginning = "The cat"
    for piece in model.stream(beginning, temperature=0.8, top_p=0.95, seed=1, longest=30):
        print(piece, end="", flush=True)
    print()
    known, unknown = (model.score(said) for said in ("The cat is black.", "Black is cat the."))
    print(f"log-probability for each token: {known.mean:.2f} in order, {unknown.mean:.2f} out of order")
    return model.generate(beginning, longest=30)


if __name__ == "__main__":
    main(*sys.argv[1:3])
