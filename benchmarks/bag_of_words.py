"""The yardstick of the text classifiers: a logistic regression on word counts, on the same files.

python benchmarks/bag_of_words.py TRAIN TEST [--encoding latin-1]         each line: a label, a space, a text
"""

import argparse
from pathlib import Path

from sklearn.feature_extraction.text import CountVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline


def read(path: Path, encoding: str) -> tuple[list[str], list[str]]:
    """Texts and labels."""
    rows = [line.split(" ", 1) for line in path.read_text(encoding=encoding).splitlines()]
    return [text for _, text in rows], [label for label, _ in rows]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("train", type=Path)
    parser.add_argument("test", type=Path)
    parser.add_argument("--encoding", default="utf-8")
    options = parser.parse_args()
    for longest, kind in ((1, "words"), (2, "words and pairs of words")):
        counts = CountVectorizer(token_pattern=r"\S+", ngram_range=(1, longest))
        model = make_pipeline(counts, LogisticRegression(max_iter=2000)).fit(*read(options.train, options.encoding))
        print(f"{kind}: accuracy {model.score(*read(options.test, options.encoding)):.3f}")


if __name__ == "__main__":
    main()
