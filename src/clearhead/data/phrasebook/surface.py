"""From full words to spelling: elision, contraction, a or an, capitals, spaces."""

__all__ = ["Word", "begins_with_vowel", "english", "french", "spell_english", "spell_french"]

Word = tuple[str, int]

_VOWELS = frozenset("aeiouyhàâéèêëîïôœùûAEIOUÉ")
_ASPIRATED = frozenset({"huit", "haut", "haute", "hauts", "hautes"})
_ELIDED = {word: word[:-1] + "'" for word in ("je", "me", "te", "se", "ne", "de", "que", "ce", "le", "la")}
_CONTRACTED = {("de", "le"): "du", ("de", "les"): "des", ("à", "le"): "au", ("à", "les"): "aux"}
_MUTABLE = frozenset([*_ELIDED, "à"])
_AN = frozenset("aeiou")
_A_BEFORE, _AN_BEFORE = ("us", "uni", "eu", "one"), ("hon", "hour")


def begins_with_vowel(word: str) -> bool:
    """Whether French elides before `word`: a vowel or a mute h."""
    return word[0] in _VOWELS and word not in _ASPIRATED


def french(line: list[Word]) -> list[Word]:
    """Elide (le animal → l' animal) and contract (de le chat → du chat); a contraction has the links of both words."""
    spelled: list[Word] = []
    skip = False
    for i, (text, links) in enumerate(line):
        if skip:
            skip = False
        elif text not in _MUTABLE:
            spelled.append((text, links))
        else:
            following = line[i + 1][0]
            if text in _ELIDED and begins_with_vowel(following):
                spelled.append((_ELIDED[text], links))
            elif (text, following) in _CONTRACTED and not (following == "le" and begins_with_vowel(line[i + 2][0])):
                spelled.append((_CONTRACTED[text, following], links | line[i + 1][1]))
                skip = True
            else:
                spelled.append((text, links))
    return spelled


def english(line: list[Word]) -> list[Word]:
    """Choose between a and an by the sound that follows."""
    return [
        ("an", links) if text == "a" and _takes_an(line[i + 1][0]) else (text, links)
        for i, (text, links) in enumerate(line)
    ]


def _takes_an(word: str) -> bool:
    return (word[0] in _AN and not word.startswith(_A_BEFORE)) or word.startswith(_AN_BEFORE)


def _capital(text: str) -> str:
    return text[0].upper() + text[1:]


def spell_french(line: list[Word]) -> str:
    """One string; the question mark has a space before it, as French has it."""
    text = " ".join([text for text, _ in line])
    return _capital(text.replace("' ", "'").replace(" -", "-").replace(" ,", ",").replace(" .", "."))


def spell_english(line: list[Word]) -> str:
    """One string, with no space before marks and the genitive."""
    text = " ".join([text for text, _ in line])
    return _capital(text.replace(" '", "'").replace(" ,", ",").replace(" .", ".").replace(" ?", "?"))
