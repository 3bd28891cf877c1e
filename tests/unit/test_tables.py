"""Looking names up, and sizes that cannot be."""

from dataclasses import dataclass

import pytest

from clearhead.errors import ConfigError
from clearhead.nn.tables import check_rates, check_sizes, pick

TABLE = {"relu": 1, "gelu": 2, "swiglu": 3}


def test_a_known_name_is_found() -> None:
    assert pick(TABLE, "gelu", "feedforward") == 2


def test_a_misspelled_name_is_answered_with_the_nearest() -> None:
    with pytest.raises(ConfigError, match=r"unknown feedforward 'swigl'.*did you mean 'swiglu'\?.*gelu, relu, swiglu"):
        pick(TABLE, "swigl", "feedforward")


def test_a_name_like_none_of_them_is_answered_with_all() -> None:
    with pytest.raises(ConfigError, match=r"^unknown feedforward 'quux': There are gelu, relu, swiglu$"):
        pick(TABLE, "quux", "feedforward")


@dataclass
class Sizes:
    width: int = 1
    layers: int | None = None
    dropout: float = 0.0


@pytest.mark.parametrize("size", [0, -3])
def test_a_size_is_at_least_one(size: int) -> None:
    with pytest.raises(ConfigError, match=rf"width must be at least 1: width={size}"):
        check_sizes(Sizes(width=size), "layers", "width")


@pytest.mark.parametrize("rate", [1.0, -0.1, 1.5, float("nan")])
def test_a_dropout_lies_below_one(rate: float) -> None:
    with pytest.raises(ConfigError, match=rf"dropout={rate}"):
        check_rates(Sizes(dropout=rate), "dropout")


def test_what_can_be_passes() -> None:
    check_sizes(Sizes(), "width", "layers")
    check_sizes(Sizes(width=0), "width", least=0)
    check_rates(Sizes(dropout=0.999), "dropout")
