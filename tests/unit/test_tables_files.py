"""Files of tables, as other programs write them."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from clearhead.data.table_columns import columns_of, numbers_in
from clearhead.data.table_files import read_table
from clearhead.errors import DataError


def test_codes_that_python_would_read_as_numbers_are_categories(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("age,size\n18_25,1\n26_35,2\n18_25,3\n")
    assert [column.kind for column in columns_of(read_table(tmp_path / "t.csv"))] == ["category", "number"]
    with pytest.raises(DataError, match="column 'size' holds numbers, but row 0 has '1_0'"):
        numbers_in(np.array(["1_0"], dtype=object), "size")


def test_whole_numbers_of_any_size_in_parquet(tmp_path: Path) -> None:
    whole = [2**53 + 1, 2**63 - 1, -(2**62)]
    pd.DataFrame({"hash": whole}).to_parquet(tmp_path / "t.parquet")
    np.testing.assert_array_equal(read_table(tmp_path / "t.parquet")["hash"], np.array(whole, dtype=float))


def test_a_delimiter_inside_of_quotes_is_none(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text('"sold, net";"spent, gross, all";b\n1;2;3\n')
    assert [*read_table(tmp_path / "t.csv").columns] == ["sold, net", "spent, gross, all", "b"]
