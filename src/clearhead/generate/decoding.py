"""How to write: all that can be asked of greedy decoding, beam search and sampling, as one value."""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from difflib import get_close_matches
from math import isfinite
from typing import Any

from clearhead.errors import DecodingError

__all__ = ["ALIASES", "STOPPINGS", "Decoding", "decoding_of"]

Phrase = tuple[int, ...]

# When a beam search ends, once `beams` hypotheses are finished; with the value `early_stopping` has in transformers.
STOPPINGS: dict[str, bool | str] = {
    "full": True,  # at once
    "likely": False,  # when the best unfinished one, as long as it is now, scores below the worst finished one
    "sure": "never",  # when no unfinished one can reach the worst finished one, however long it becomes
}


@dataclass(frozen=True)
class Decoding:
    """Greedy unless something else is asked for; words are given as phrases of token ids.

    longest             at most so many new tokens, `eos` among them
    shortest            no `eos` before so many new tokens
    beams, best         hypotheses kept at each step; how many of them are answered
    length_penalty      α of score / length^α
    coverage_penalty    β of [wu2016], which wants every source word looked at
    stopping, patience  when the search ends (a row of `STOPPINGS`); it asks for patience · beams finished hypotheses
    groups, diversity   beams in groups, each of which avoids by so much what those before it chose [vijayakumar2018]
    no_repeat           no phrase of so many tokens occurs twice
    no_stutter          no phrase of up to so many tokens comes directly after itself,
    may_stutter         unless it is made of these tokens alone, as 000,000 is
    repetition_penalty  scores of tokens that have occurred are divided by it (negative ones multiplied) [keskar2019]
    forbidden, required phrases that must not and that must occur
    temperature         0 takes the best; above 0 tokens are drawn from softmax(scores / temperature)
    top_k, top_p, min_p, typical   what of the distribution is drawn from: the k best, the best that make up p, those
                        of at least min_p times the best one's probability, the most typical that make up p
    seed                of what is drawn
    contrast            α of contrastive search among the `top_k` best [su2022]
    guess               so many tokens guessed ahead by looking the last ones up in what was read; greedy only, exact
    """

    longest: int = 256
    shortest: int = 0
    beams: int = 1
    best: int = 1
    length_penalty: float = 1.0
    coverage_penalty: float = 0.0
    stopping: str = "likely"
    patience: float = 1.0
    groups: int = 1
    diversity: float = 0.0
    no_repeat: int = 0
    no_stutter: int = 0
    may_stutter: tuple[int, ...] = ()
    repetition_penalty: float = 1.0
    forbidden: tuple[Phrase, ...] = ()
    required: tuple[Phrase, ...] = ()
    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    typical: float = 1.0
    seed: int = 0
    contrast: float = 0.0
    guess: int = 0

    def __post_init__(self) -> None:
        for name, least in LEAST.items():
            if not getattr(self, name) >= least:
                raise DecodingError(f"{name} must be at least {least}: {name}={getattr(self, name)}")
        for name, value in vars(self).items():
            if isinstance(value, float) and not isfinite(value):
                raise DecodingError(f"{name} must be a number: {name}={value}")
        for name in ("top_p", "min_p", "typical", "contrast"):
            if not 0 <= getattr(self, name) <= 1:
                raise DecodingError(f"{name} must lie between 0 and 1: {name}={getattr(self, name)}")
        for name in ("repetition_penalty", "patience"):
            if not getattr(self, name) > 0:
                raise DecodingError(f"{name} must be above 0: {name}={getattr(self, name)}")
        if self.stopping not in STOPPINGS:
            raise DecodingError(f"stopping is one of {', '.join(STOPPINGS)}: stopping={self.stopping!r}")
        if self.best > self.beams and not self.temperature:
            raise DecodingError(f"of {self.beams} beams at most so many can be answered: best={self.best}")
        if self.beams % self.groups:
            raise DecodingError(f"the beams must divide into groups: beams={self.beams}, groups={self.groups}")
        self._check_combination()

    def _check_combination(self) -> None:
        """Refuse what asks for two ways of decoding at once, instead of leaving one of them unheard."""
        searching = self.beams > 1 or self.required or self.coverage_penalty
        ways = {
            "beam search": bool(searching),
            "sampling": self.temperature > 0,
            "contrastive search": self.contrast > 0,
            "guessing ahead": self.guess > 0,
        }
        asked = [name for name, wanted in ways.items() if wanted]
        if len(asked) > 1:
            raise DecodingError(f"{asked[0]} and {asked[1]} are two ways of decoding: ask for one of them")
        if self.contrast and self.top_k < 2:
            raise DecodingError(f"contrastive search compares the best few tokens: top_k={self.top_k} must be above 1")
        if self.required and self.groups > 1:
            raise DecodingError(f"required words and groups of beams cannot be had together: groups={self.groups}")

    @property
    def searches(self) -> bool:
        """Whether this is beam search; a beam of one is greedy decoding, unless something is required of the whole."""
        return self.beams > 1 or bool(self.required) or self.coverage_penalty > 0


LEAST: dict[str, float] = {
    "longest": 1,
    "shortest": 0,
    "beams": 1,
    "best": 1,
    "coverage_penalty": 0,
    "groups": 1,
    "diversity": 0,
    "no_repeat": 0,
    "no_stutter": 0,
    "temperature": 0,
    "top_k": 0,
    "seed": 0,
    "guess": 0,
}

# Names under which transformers and CTranslate2 know the same.
ALIASES: dict[str, str] = {
    "max_new_tokens": "longest",
    "max_decoding_length": "longest",
    "min_new_tokens": "shortest",
    "min_decoding_length": "shortest",
    "num_beams": "beams",
    "beam_size": "beams",
    "num_return_sequences": "best",
    "num_hypotheses": "best",
    "early_stopping": "stopping",
    "num_beam_groups": "groups",
    "diversity_penalty": "diversity",
    "no_repeat_ngram_size": "no_repeat",
    "bad_words_ids": "forbidden",
    "force_words_ids": "required",
    "typical_p": "typical",
    "penalty_alpha": "contrast",
    "prompt_lookup_num_tokens": "guess",
}


def decoding_of(wanted: Mapping[str, Any], usual: Decoding | None = None) -> Decoding:
    """The decoding with these options, by our names or by those of `ALIASES`, on top of the usual ones.

    >>> decoding_of({"num_beams": 4, "max_new_tokens": 20}) == Decoding(beams=4, longest=20)
    True
    """
    known = [field.name for field in fields(Decoding)]
    values = {name: getattr(usual, name) for name in known} if usual else {}
    given: dict[str, str] = {}
    wanted = dict(wanted)
    draws = wanted.pop("do_sample", None)
    for name, value in wanted.items():
        ours = ALIASES.get(name, name)
        if ours not in known:
            nearest = get_close_matches(name, [*known, *ALIASES, "do_sample"], n=1)
            hint = f": did you mean {nearest[0]!r}?" if nearest else f"; known are {', '.join(known)}"
            raise DecodingError(f"decoding has no option {name!r}{hint}")
        if ours in given:
            raise DecodingError(f"{given[ours]!r} and {name!r} are the same option: give one of them")
        given[ours] = name
        values[ours] = _of_theirs(name, value)
    if draws is not None:
        values["temperature"] = (values.get("temperature") or 1.0) if draws else 0.0
    return Decoding(**values)


def _of_theirs(name: str, value: Any) -> Any:
    """The value as we write it, where another project writes it otherwise."""
    if name == "early_stopping":
        found = [ours for ours, theirs in STOPPINGS.items() if theirs is value or theirs == value]
        if not found:
            raise DecodingError(f"early_stopping is True, False or 'never': early_stopping={value!r}")
        return found[0]
    if name in ("bad_words_ids", "force_words_ids"):
        return tuple(tuple(phrase) for phrase in value)
    if name == "may_stutter":
        return tuple(value)
    return value
