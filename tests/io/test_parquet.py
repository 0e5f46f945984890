"""Parquet files and folders."""

import datetime as dt

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from table_bytes import TABLE, ipc_bytes, read

from altbi.errors import TableError
from altbi.io import open_table
from altbi.io._parquet import ParquetSource


@pytest.mark.parametrize("codec", ["none", "snappy", "gzip", "zstd"])
def test_parquet_is_read_with_every_codec(tmp_path, codec):
    pq.write_table(TABLE, tmp_path / "a.csv", compression=codec, row_group_size=2)

    source = open_table(tmp_path / "a.csv")

    assert isinstance(source, ParquetSource)
    assert (source.format, source.is_untyped, source.n_rows) == ("parquet", False, 3)
    assert read(source).equals(TABLE)
    assert read(source).equals(TABLE)


def test_parquet_keeps_its_types(tmp_path):
    table = pa.table(
        {
            "a.b": pa.array([1, 2], pa.int8()),
            "a": pa.array(["x", "y"]).dictionary_encode(),
            "when": pa.array([dt.date(2020, 1, 1), None]),
            "list": [[1], [2, 3]],
        }
    )
    pq.write_table(table, tmp_path / "a.parquet")
    source = open_table(tmp_path / "a.parquet")
    assert read(source).equals(table)
    assert read(source, ["a"]).equals(table.select(["a"]))


def test_empty_parquet_file_raises(tmp_path):
    pq.write_table(TABLE.slice(0, 0), tmp_path / "a.parquet")
    with pytest.raises(TableError, match="holds no rows"):
        open_table(tmp_path / "a.parquet")


def test_file_without_row_groups_has_no_rows(tmp_path):
    pq.write_table(TABLE, tmp_path / "b.parquet")
    pq.ParquetWriter(tmp_path / "a.parquet", TABLE.schema).close()
    pq.ParquetWriter(tmp_path / "c.parquet", TABLE.schema).close()

    source = open_table(tmp_path)

    assert any(pa.types.is_string(field.type) for field in TABLE.schema)
    assert read(source).equals(TABLE)
    assert [each.n_rows for each in source.partitions(100)] == [len(TABLE)]


def test_damaged_pages_raise(tmp_path):
    path = tmp_path / "a.parquet"
    table = pa.table({"a": np.random.default_rng(0).normal(size=10_000)})
    pq.write_table(table, path, use_dictionary=False, write_page_checksum=True)
    data = bytearray(path.read_bytes())
    data[200:4000] = bytes(3800)
    path.write_bytes(data)
    with pytest.raises(TableError, match="Parquet file cannot be read"):
        read(open_table(path))


def test_truncated_file_of_a_folder_is_named(tmp_path):
    for name in ("a", "b"):
        pq.write_table(pa.table({"a": [1.0, 2.0]}), tmp_path / f"{name}.parquet")
    data = (tmp_path / "b.parquet").read_bytes()
    (tmp_path / "b.parquet").write_bytes(data[: len(data) // 2])

    with pytest.raises(TableError, match=r"b\.parquet: .*damaged or incomplete"):
        open_table(tmp_path)


def test_texts_that_are_not_utf8_raise(tmp_path, error_of):
    bad = pa.array([b"\xff\xfe"]).view(pa.string())
    table = pa.table({"a": bad})
    pq.write_table(table, tmp_path / "a.parquet")
    with pytest.raises(TableError, match="UTF8"):
        read(open_table(tmp_path / "a.parquet"))
    assert "UTF8" in error_of(ipc_bytes(table))


def test_folder_of_parquet_files_is_one_table(tmp_path):
    for year in (2021, 2020):
        folder = tmp_path / f"year={year}"
        folder.mkdir()
        pq.write_table(pa.table({"a": [year]}), folder / "b.parquet")
    pq.write_table(pa.table({"a": [0.5], "c": ["x"]}), tmp_path / "year=2020" / "a.parquet")
    (tmp_path / "_SUCCESS").write_bytes(b"")
    (tmp_path / ".hidden.parquet").write_bytes(b"junk")

    source = open_table(tmp_path)

    assert source.n_rows == 3
    assert {name: read(source)[name].to_pylist() for name in ("a", "c", "year")} == {
        "a": [0.5, 2020.0, 2021.0],
        "c": ["x", None, None],
        "year": [2020, 2020, 2021],
    }
    assert read(source, ["year"]).column("year").to_pylist() == [2020, 2020, 2021]
    assert read(source, ["c"]).equals(read(source).select(["c"]))


def test_partitions_are_row_groups_below_the_limit(tmp_path):
    table = pa.table({"a": range(10)})
    pq.write_table(table, tmp_path / "a.parquet", row_group_size=2)

    partitions = open_table(tmp_path / "a.parquet").partitions(5)

    assert [source.n_rows for source in partitions] == [4, 4, 2]
    assert pa.concat_tables(map(read, partitions)).equals(table)
