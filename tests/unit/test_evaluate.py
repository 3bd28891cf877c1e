"""Figures against the reference packages, or against the definition by brute force."""

import math

import numpy as np
import pytest
import sacrebleu
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import accuracy_score, confusion_matrix, f1_score

from clearhead.errors import DataError
from clearhead.evaluate.alignment import alignment_error_rate, links_of
from clearhead.evaluate.bleu import bleu, chrf
from clearhead.evaluate.classification import Span, classification, confusion, span_f1, spans
from clearhead.evaluate.perplexity import mean_loss, perplexity

HYPOTHESES = ["The cat sat on the mat.", "i am a student", "Hello , world !"]
REFERENCES = ["The cat sat on a mat.", "I am a student", "Hello, world!"]


@pytest.mark.parametrize("lowercase", [False, True])
def test_bleu_and_chrf_are_sacrebleu_s(lowercase: bool) -> None:
    ours = bleu(HYPOTHESES, REFERENCES, lowercase=lowercase)
    assert ours.value == sacrebleu.corpus_bleu(HYPOTHESES, [REFERENCES], lowercase=lowercase).score
    assert f"case:{'lc' if lowercase else 'mixed'}|" in ours.signature
    assert "tok:13a" in ours.signature
    assert f"version:{sacrebleu.__version__}" in ours.signature
    assert str(ours) == f"{ours.value:.2f} ({ours.signature})"
    theirs = sacrebleu.corpus_chrf([text.lower() for text in HYPOTHESES], [[text.lower() for text in REFERENCES]])
    if lowercase:
        assert chrf(HYPOTHESES, REFERENCES, lowercase=True).value == pytest.approx(theirs.score)
    assert bleu(REFERENCES, REFERENCES).value == pytest.approx(100)


def test_bleu_wants_as_many_references() -> None:
    for hypotheses in ([], HYPOTHESES[:2]):
        with pytest.raises(DataError, match="3 references"):
            bleu(hypotheses, REFERENCES)


@given(st.floats(0, 1e5), st.integers(1, 1000))
def test_perplexity_is_the_exponential_of_the_mean(total: float, count: int) -> None:
    assert mean_loss(total, count) == pytest.approx(total / count)
    if total / count < 700:
        assert math.log(perplexity(total, count)) == pytest.approx(total / count, abs=1e-9)


def test_perplexity_at_its_ends() -> None:
    assert perplexity(1e6, 1) == math.inf
    assert math.isnan(perplexity(0.0, 0))


labels = st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from("abcd")), min_size=1, max_size=40)


@given(labels)
def test_classification_is_scikit_learn_s(pairs: list[tuple[str, str]]) -> None:
    predicted, gold = zip(*pairs, strict=True)
    found = classification(predicted, gold)
    assert found.accuracy == pytest.approx(accuracy_score(gold, predicted))
    assert found.macro_f1 == pytest.approx(f1_score(gold, predicted, average="macro", zero_division=0))
    assert found.micro_f1 == pytest.approx(f1_score(gold, predicted, average="micro"))
    assert np.array_equal(confusion(predicted, gold, "abcd"), confusion_matrix(gold, predicted, labels=[*"abcd"]))


def test_unknown_labels_and_unequal_numbers_are_refused() -> None:
    with pytest.raises(DataError, match="'x'"):
        confusion(["x"], ["a"], ["a", "b"])
    with pytest.raises(DataError, match="2 and 1"):
        classification(["a", "b"], ["a"])
    with pytest.raises(DataError, match="0 and 0"):
        span_f1([], [])


tag = st.sampled_from(["O", "B-X", "I-X", "B-Y", "I-Y", "B", "I"])


def spans_by_definition(tags: list[str]) -> set[Span]:
    """Every stretch that starts as a span starts, goes on as it goes on, and cannot be longer."""
    found = set()
    for start in range(len(tags)):
        for stop in range(start + 1, len(tags) + 1):
            kind = tags[start][2:]
            before = tags[start - 1] if start else "O"
            inside = f"I-{kind}" if kind else "I"
            opens = tags[start][0] == "B" or (tags[start][0] == "I" and (before == "O" or before[2:] != kind))
            goes_on = all(tags[place] == inside for place in range(start + 1, stop))
            ends = stop == len(tags) or tags[stop] != inside
            if tags[start] != "O" and opens and goes_on and ends:
                found.add(Span(kind, start, stop))
    return found


@given(st.lists(tag, max_size=9))
def test_spans_are_those_of_the_definition(tags: list[str]) -> None:
    assert spans(tags) == spans_by_definition(tags)


@given(st.lists(st.lists(st.tuples(tag, tag), min_size=1, max_size=9), min_size=1, max_size=4))
def test_span_f1_counts_whole_spans(sentences: list[list[tuple[str, str]]]) -> None:
    predicted, gold = ([[pair[side] for pair in sentence] for sentence in sentences] for side in (0, 1))
    ours, theirs = (
        {(number, span) for number, tags in enumerate(tagged) for span in spans_by_definition(tags)}
        for tagged in (predicted, gold)
    )
    found = span_f1(predicted, gold)
    assert found.precision == (len(ours & theirs) / len(ours) if ours else 0)
    assert found.recall == (len(ours & theirs) / len(theirs) if theirs else 0)
    both = found.precision + found.recall
    assert found.f1 == pytest.approx(2 * found.precision * found.recall / both if both else 0)


def test_alignment_error_rate_by_hand() -> None:
    gold = {(0, 0), (1, 1), (2, 1)}
    assert alignment_error_rate([gold], [gold]) == 0
    assert alignment_error_rate([{(5, 5)}], [gold]) == 1
    # |A ∩ G| = 1 of 2 links drawn and 3 there, in a second sentence all 1 of 1: 1 − 2·2 / (3 + 4)
    assert alignment_error_rate([{(0, 0), (2, 2)}, {(0, 0)}], [gold, {(0, 0)}]) == pytest.approx(1 - 4 / 7)
    with pytest.raises(DataError, match="at least one link"):
        alignment_error_rate([set()], [set()])


def test_links_go_where_a_word_looks_most_and_nowhere_at_the_end() -> None:
    weights_LM = np.array([[0.1, 0.7, 0.2], [0.5, 0.3, 0.2], [0.2, 0.3, 0.5]])
    assert links_of(weights_LM) == {(1, 0), (0, 1)}
