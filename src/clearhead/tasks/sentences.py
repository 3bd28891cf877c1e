"""Text cut into sentences, for models that translate one at a time.

A line break always cuts. Within a line the text is cut after . ! ? … and what closes there, where white space follows
and then something that can begin a sentence: not a lower-case letter, whatever quotes and brackets open before it.
After 。！？ no space is needed. In doubt two sentences stay together, which a translator survives better than half a
sentence. So a full stop does not cut

- after the words of `ABBREVIATIONS`, nor after "No." before a number;
- after a single letter: J. R. R. Tolkien, z. B., p. ex., U.S. (the price: "So am I. You too.");
- after a number of one or two digits, which is an ordinal in German: 3. Oktober (the price: "I am 12. You are 13.").

>>> cut("  Dr. Bell paid 3.50 €. “Really?” Yes!\\nThe end")
[('', '  '), ('Dr. Bell paid 3.50 €.', ' '), ('“Really?”', ' '), ('Yes!', '\\n'), ('The end', '')]
"""

import re
from itertools import groupby

__all__ = ["ABBREVIATIONS", "cut"]

ABBREVIATIONS = frozenset(
    # English
    "Mr Mrs Ms Dr Prof St Mt Jr Sr Gen Col Capt Lt Sgt Rev Hon Gov Sen Rep vs etc al approx Vol Fig fig Eq Ch pp Inc "
    "Ltd Co Corp Jan Feb Mar Apr Jun Jul Aug Sep Sept Oct Nov Dec "
    # German
    "Hr Fr Frl Nr Str Bd Abs Art Aufl Hrsg Mio Mrd Tel bzw ca evtl ggf inkl sog usw vgl zzgl "
    # French
    "MM Mme Mmes Mlle Mgr Vve av chap env ex éd cf réf".split()
)

LINE = r"\n-\r\x1c-\x1e\x85\u2028\u2029"
SPACE = rf"[^\S{LINE}]"
CLOSING = rf"""(?:["'”’“‘»«›‹)\]}}」』）】〉》]|{SPACE}[»›](?!\w))*+"""
OPENING = rf"""(?:["'“‘„‚«»‹›(\[{{¿¡「『（【〈《]{SPACE}?)*+"""
MARKS = ".!?…؟۔।"
# What is looked at backwards must have one length: one look for the abbreviations of each.
SHORT = "".join(
    rf"(?<!\b(?:{'|'.join(words)})\.)" for _, words in groupby(sorted(ABBREVIATIONS, key=lambda w: (len(w), w)), len)
)

# Each way to fail looks at a run of characters from its start alone, and quantifiers are possessive: time is linear.
BREAK = re.compile(
    rf"""
    (?: (?<![{MARKS}])
        (?: \.
            {SHORT}
            (?<! (?<![\w'’]) [^\W\d_] \.)
            (?<! (?<![\w.,:]) \d \.) (?<! (?<![\w.,:]) \d\d \.)
            (?! (?<=\b[Nn]o\.) {SPACE} \d)
          | [{MARKS[1:]}]
        )
        [{MARKS}]*+ {CLOSING} (?={SPACE}++ {OPENING} (?P<first>\w))
      | [。！？｡]++ {CLOSING}
      | (?<!\s) (?={SPACE}*+ (?: [{LINE}] | \Z))
      | \A (?=\s)
    )
    (?P<space>\s*+)
    """,
    re.VERBOSE,
)


def cut(text: str) -> list[tuple[str, str]]:
    """The sentences, each with the white space after it; joined again they are the text.

    White space before the first sentence comes after an empty one.
    """
    pieces: list[tuple[str, str]] = []
    start = 0
    for found in BREAK.finditer(text):
        end, following = found.span("space")
        if following > start and not (found["first"] or "").islower():
            pieces.append((text[start:end], text[end:following]))
            start = following
    return pieces
