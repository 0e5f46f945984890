"""Arrow files and streams."""

import pyarrow as pa
import pyarrow.feather
import pytest
from table_bytes import TABLE, ipc_bytes, read

from altbi.io import open_table


@pytest.mark.parametrize("codec", ["lz4", "zstd"])
def test_compressed_feather_files_are_read(tmp_path, codec):
    pa.feather.write_feather(TABLE, tmp_path / "a.feather", compression=codec)
    source = open_table(tmp_path / "a.feather")
    assert (source.format, source.n_rows) == ("arrow", 3)
    assert read(source).equals(TABLE)


def test_duplicate_arrow_columns_raise(error_of):
    table = pa.table([[1], [2]], names=["a", "a"])
    assert "same name: 'a'" in error_of(ipc_bytes(table))
