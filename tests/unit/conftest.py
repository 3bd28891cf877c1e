"""What several files of server tests start from; an extra, so its packages wait until a server is asked for."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.unit.serving import House, Tiny


@pytest.fixture(scope="module")
def models() -> Tiny:
    from tests.unit.serving import tiny

    return tiny()


@pytest.fixture(scope="module")
def server(models: Tiny) -> Iterator[House]:
    from tests.unit.serving import house

    with house(models) as made:
        yield made
