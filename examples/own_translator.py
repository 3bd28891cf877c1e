"""A translator of your own: pairs in, a model directory out, translations with the words that they come from.

python examples/own_translator.py models/mine pairs.tsv      # yours, tab-separated, one pair to a line
python examples/own_translator.py models/fr-en               # the built-in phrasebook: three minutes on two cores
"""

import sys
from pathlib import Path

from clearhead import Translator
from clearhead.data.phrasebook.corpus import sentences, words


def main(out: str, pairs: str = "", *, count: int = 60_000, steps: int = 1_200) -> str:
    """Learn from a file of pairs or, without one, from the phrasebook; keep the model in `out`, and use it."""
    data = Path(pairs) if pairs else [(pair.source, pair.target) for pair in sentences(count, seed=1)]
    Translator.fit(data, preset="transformer-tiny", steps=steps, vocabulary=4_000).save_pretrained(out)

    translator = Translator.from_pretrained(out)
    source = "je suis étudiant"
    (best,) = translator.answers([source], beams=4, alignments=True)[0]
    print(f"{source} → {best.text}   (log-probability {best.score:.2f})")
    for place, other in best.links or ():
        print(f"  {words(source)[place]} – {words(best.text)[other]}")
    print(f"more of it: clearhead translate 'merci' -m {out}")
    return best.text


if __name__ == "__main__":
    main(*sys.argv[1:3])
