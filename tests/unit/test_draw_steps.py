"""The six steps and the first pictures: the numbers are those of the matrix form, by another way."""

from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from clearhead.draw.basics import attention_graph, dot_product, notation, query_key_value, soft_dictionary
from clearhead.draw.figure import PAGE, Sheet
from clearhead.draw.palette import ROLES
from clearhead.draw.scale import around_zero
from clearhead.draw.steps import all_at_once, matrix_steps, six_steps, vector_steps
from clearhead.draw.words import number
from clearhead.errors import ConfigError, ShapeError
from tests.unit.drawn import colours, has_cells, inside, saves, softmax, texts

RANDOM = np.random.default_rng(0)
X = RANDOM.normal(size=(4, 5))
W = [RANDOM.normal(size=(5, 3)) for _ in range(3)]
FUTURE = np.triu(np.ones((4, 4), dtype=bool), 1)
STEPS = six_steps(*(X @ w for w in W), masked=FUTURE)
TOKENS = ["le", "chat", "dort", "bien"]


@given(st.integers(1, 5), st.integers(1, 6), st.booleans(), st.integers(0, 99))
def test_the_steps_equal_pytorch(length: int, width: int, causal: bool, seed: int) -> None:
    q, k, v = np.random.default_rng(seed).normal(size=(3, length, width))
    of = six_steps(q, k, v, np.triu(np.ones((length, length), dtype=bool), 1) if causal else None)
    tensors = (torch.from_numpy(a)[None] for a in (q, k, v))
    expected = torch.nn.functional.scaled_dot_product_attention(*tensors, is_causal=causal)[0].numpy()
    np.testing.assert_allclose(of.output, expected, atol=1e-12)


def test_a_row_that_sees_nothing_gives_zeros() -> None:
    of = six_steps(np.ones((1, 2)), np.ones((2, 2)), np.ones((2, 2)), [[True, True]])
    assert not of.output.any()


def test_vector_by_vector_shows_every_number_of_the_row(tmp_path: Path) -> None:
    figure = vector_steps(X, STEPS, tokens=TOKENS, position=2)
    shown = texts(figure)
    for values in (STEPS.scores[2], STEPS.scaled[2], STEPS.weights[2]):
        wanted = [number(v) for v in values]
        assert any(shown[i : i + 4] == wanted for i in range(len(shown)))
    assert number(np.sqrt(3)) in " ".join(shown)
    every = around_zero(np.concatenate([a.flatten() for a in (X, STEPS.q, STEPS.k, STEPS.v)]))
    for vector in (*STEPS.q, *STEPS.k, *STEPS.v, STEPS.weights[2, 1] * STEPS.v[1], STEPS.output[2]):
        assert has_cells(figure, every, vector)
    saves(figure, tmp_path)


def test_thinking_machines() -> None:
    x, w = RANDOM.normal(size=(2, 512)), RANDOM.normal(size=(3, 512, 64)) / 22
    of = six_steps(*(x @ m for m in w))
    shown = texts(vector_steps(x, of, tokens=["Thinking", "Machines"]))
    assert "3  ÷ 8.00" in shown
    assert [number(v) for v in of.weights[0]] == [t for t in shown if t in {number(v) for v in of.weights[0]}][:2]
    matrices = texts(matrix_steps(x, *w))
    assert "2 × 512" in matrices
    assert matrices.count("512 × 64") == 3


def test_the_matrices_are_the_arrays(tmp_path: Path) -> None:
    figure = matrix_steps(X, *W, masked=FUTURE)
    for values in (X, *W, STEPS.q, STEPS.k, STEPS.v, STEPS.output):
        assert has_cells(figure, around_zero(values), values)
    shown = texts(figure)
    assert all(number(v) in shown for v in STEPS.weights[3])
    saves(figure, tmp_path)


@pytest.mark.parametrize("on", [Sheet(), Sheet("page", dark=True)])
def test_all_positions_at_once_are_laid_out_as_the_formula(on: Sheet, tmp_path: Path) -> None:
    figure = all_at_once(STEPS, tokens=TOKENS, on=on)
    for values in (STEPS.q, STEPS.k.T, STEPS.v.T, STEPS.output):
        assert has_cells(figure, around_zero(values), values)
    shown = texts(figure)
    assert {"Q", "Kᵀ", "Vᵀ", "Z"} <= set(shown)
    assert all(number(v) in shown for v in STEPS.weights[FUTURE == 0])
    saves(figure, tmp_path)


def test_what_does_not_fit_is_one_sentence() -> None:
    with pytest.raises(ShapeError, match="do not fit together"):
        six_steps(np.ones((2, 3)), np.ones((2, 4)), np.ones((2, 3)))
    with pytest.raises(ShapeError, match="no position 9"):
        vector_steps(X, STEPS, position=9)
    with pytest.raises(ShapeError, match="multiplied with the key's"):
        matrix_steps(X, W[0], np.ones((4, 3)), W[2])
    many = np.ones((512, 2))
    with pytest.raises(ConfigError, match="not 512"):
        vector_steps(many, six_steps(many, many, many))


def test_notation_shows_each_symbol_with_its_shape() -> None:
    figure = notation({"α": 0.5, "x": [1.0, -2.0, 3.0], "W": W[0]})
    shown = texts(figure)
    assert {"α", "1 × 1", "x", "1 × 3", "W", "5 × 3"} <= set(shown)
    scale = around_zero(np.concatenate([[0.5, 1, -2, 3], W[0].flatten()]))
    assert has_cells(figure, scale, W[0])
    with pytest.raises(ShapeError, match="at least one symbol"):
        notation({})


def test_users_and_films() -> None:
    users, films = np.array([[1.0, -1.0], [0.5, 2.0]]), np.array([[2.0, 0.0], [1.0, 1.0], [-1.0, 3.0]])
    figure = dot_product(users, films, user_names=["Ann", "Bob"], film_names=["A", "B", "C"], features=["fun", "gore"])
    shown = texts(figure)
    wanted = [number(v) for v in (2.0, 0.0, -4.0, 1.0, 2.5, 5.5)]  # by hand
    assert any(shown[i : i + 6] == wanted for i in range(len(shown)))
    assert {"Ann", "Bob", "fun", "gore"} <= set(shown)
    with pytest.raises(ShapeError, match="different features"):
        dot_product(users, np.ones((2, 3)))


def test_the_graph_has_an_arrow_for_every_weight_of_note() -> None:
    w = softmax(RANDOM.normal(size=(5, 5)) * 2)
    figure = attention_graph(w, tokens=list("abcde"), least=0.1)
    others = (w >= 0.1).sum() - (np.diag(w) >= 0.1).sum()
    heads = figure.svg().count(f'style="fill: {ROLES["query"].colour.lower()}')
    assert heads == others
    assert [number(v) for v in np.diag(w)] == [t for t in texts(figure) if t.startswith(("0.", "1."))][:5]
    with pytest.raises(ConfigError, match="not 17"):
        attention_graph(np.eye(17))
    assert "x" in texts(attention_graph([[1.0]], tokens=["x"]))


def test_queries_keys_and_values_of_each_token() -> None:
    figure = query_key_value(X, STEPS, tokens=TOKENS, on=PAGE)
    scale = around_zero(np.concatenate([a.flatten() for a in (X, STEPS.q, STEPS.k, STEPS.v)]))
    for vectors in (X, STEPS.q, STEPS.k, STEPS.v):
        for vector in vectors:
            assert has_cells(figure, scale, vector)
    assert [t for t in texts(figure) if t in TOKENS] == TOKENS


def test_a_soft_dictionary_gives_the_weighted_values() -> None:
    query, keys, values = np.array([2.0, 0.0]), np.eye(2), np.array([[1.0, 2.0, 3.0], [-1.0, 0.0, 1.0]])
    figure = soft_dictionary(query, keys, values, names=["one", "two"], temperature=0.5)
    first = 1 / (1 + np.exp(-4.0))
    assert {number(first), number(1 - first), "one", "two"} <= set(texts(figure))
    scale = around_zero(np.concatenate([query, keys.flatten(), values.flatten()]))
    assert has_cells(figure, scale, first * values[0] + (1 - first) * values[1])
    with pytest.raises(ConfigError, match="temperature=0"):
        soft_dictionary(query, keys, values, temperature=0)


def test_a_colour_says_what_the_number_is() -> None:
    scale = around_zero(np.array([-2.0, 2.0]))
    assert colours(scale, [-2.0, 2.0]) == ["#0072b2", "#e69f00"]
    assert min(int(colours(scale, [0.0])[0][i : i + 2], 16) for i in (1, 3, 5)) > 250


def test_long_texts_and_single_tokens_are_figures() -> None:
    one = six_steps([[1.0]], [[1.0]], [[1.0]])
    many = six_steps(*RANDOM.normal(size=(3, 128, 8)))
    figures = [
        vector_steps([[1.0]], one),
        all_at_once(one),
        all_at_once(many),
        query_key_value([[1.0]], one),
    ]
    assert all(texts(figure) for figure in figures)


@pytest.mark.parametrize("on", [Sheet(), PAGE])
def test_long_words_stay_on_the_sheet(on: Sheet) -> None:
    words = ["Donaudampfschifffahrtsgesellschaft", "e\u0301te\u0301", "שלום", "日本"]
    weights = softmax(RANDOM.normal(size=(4, 4)))
    for figure in (
        vector_steps(X, STEPS, tokens=words, on=on),
        all_at_once(STEPS, tokens=words, on=on),
        matrix_steps(X, *W, on=on),
        notation(dict.fromkeys(words, X), on=on),
        dot_product(X, X[:3], user_names=words, film_names=words[:3], features=[*words, "x"], on=on),
        attention_graph(weights, tokens=words, on=on),
        query_key_value(X, STEPS, tokens=words, on=on),
        soft_dictionary(X[0], X, X, names=words, on=on),
    ):
        inside(figure)
