"""A classifier of texts: labelled lines in, labels with their probabilities out.

python examples/sentiment.py models/mine train.tsv      # yours: a label, a tab, the text
python examples/sentiment.py models/moods               # sentences put together here, to see it work
"""

import random
import sys
from pathlib import Path

from clearhead import TextClassifier

THINGS = ("the film", "this book", "the play", "her new song", "the hotel", "the soup", "our guide", "the ending")
GOOD = ("wonderful", "a joy", "worth every minute", "not bad at all", "better than expected", "never boring")
BAD = ("dreadful", "a waste of time", "not worth seeing", "not good at all", "worse than expected", "never funny")
TWISTS = ("", "frankly, ", "to my surprise, ", "despite its fame, ")


def moods(count: int, seed: int) -> list[tuple[str, str]]:
    """Sentences with their labels; "not" and "never" stand on both sides, so that single words do not decide."""
    draw = random.Random(seed)
    labelled = [(word, label) for label, words in (("good", GOOD), ("bad", BAD)) for word in words]
    chosen = (draw.choice(labelled) for _ in range(count))
    return [(f"{draw.choice(TWISTS)}{draw.choice(THINGS)} was {word}", label) for word, label in chosen]


def main(out: str, data: str = "", *, steps: int = 150) -> dict[str, float]:
    """Learn from a file or from the sentences above; keep the model in `out`, and ask it."""
    train = Path(data) if data else moods(800, seed=1)
    TextClassifier.fit(train, preset="bert-tiny", steps=steps, vocabulary=1_000).save_pretrained(out)

    classifier = TextClassifier.from_pretrained(out)
    if not data:
        print(f"accuracy on others: {classifier.evaluate(moods(200, seed=2))['accuracy']:.3f}")
    for text in ("the soup was not bad at all", "despite its fame, the play was not worth seeing"):
        label = classifier.classify(text)
        print(f"{label:>5}  {classifier.predict(text)[label]:.3f}  {text}")
    return classifier.predict("the film was wonderful")


if __name__ == "__main__":
    main(*sys.argv[1:3])
