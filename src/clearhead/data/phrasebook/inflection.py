"""The rules of inflection: plurals and feminines, the French present and participle, English -s and -ed.

Genders are 0 masculine and 1 feminine, numbers 0 singular and 1 plural; four inflected forms stand in the
order `gender + 2 * number`. Persons are 0 to 5: je, tu, il or elle, nous, vous, ils or elles.
"""

__all__ = ["english_past", "english_plural", "english_third", "four_forms", "french_plural", "french_present"]

_FEMININE = {"x": "se", "f": "ve", "er": "ère", "": "e"}
_ER = ("e", "es", "e", "ons", "ez", "ent")
_IR = ("is", "is", "it", "issons", "issez", "issent")
_RE = ("s", "s", "", "ons", "ez", "ent")
_HISSING = ("s", "x", "ch", "sh")


def french_plural(word: str) -> str:
    if word.endswith(("s", "x", "z")):
        return word
    if word.endswith("al"):
        return word.removesuffix("l") + "ux"
    return word + ("x" if word.endswith("eau") else "s")


def four_forms(masculine: str, feminine: str = "", plural: str = "") -> tuple[str, str, str, str]:
    """(m. sg., f. sg., m. pl., f. pl.), by rule where a form is not given."""
    feminine = feminine or _french_feminine(masculine)
    return masculine, feminine, plural or french_plural(masculine), feminine + "s"


def _french_feminine(word: str) -> str:
    if word.endswith("e"):
        return word
    ending = next(ending for ending in _FEMININE if word.endswith(ending))
    return word.removesuffix(ending) + _FEMININE[ending]


def french_present(infinitive: str, strong: str = "") -> tuple[tuple[str, ...], str]:
    """The six forms of the present and the participle of a regular verb.

    `strong` is the stem of an -er verb where its ending is mute: acheter, j'achète.
    """
    stem, ending = infinitive[:-2], infinitive[-2:]
    if ending == "er":
        mute = strong or stem
        ours = stem + "e" if stem.endswith("g") else stem
        stems = (mute, mute, mute, ours, stem, mute)
        return tuple(a + b for a, b in zip(stems, _ER, strict=True)), stem + "é"
    endings, vowel = (_IR, "i") if ending == "ir" else (_RE, "u")
    return tuple(stem + end for end in endings), stem + vowel


def _changes_y(word: str) -> bool:
    return word.endswith("y") and word[-2] not in "aeiou"


def english_plural(word: str) -> str:
    if word.endswith(_HISSING):
        return word + "es"
    return word.removesuffix("y") + "ies" if _changes_y(word) else word + "s"


def english_third(base: str) -> str:
    """The third person singular."""
    return base + "es" if base.endswith("o") else english_plural(base)


def english_past(base: str) -> str:
    if base.endswith("e"):
        return base + "d"
    return base.removesuffix("y") + "ied" if _changes_y(base) else base + "ed"
