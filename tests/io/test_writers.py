"""Writers of tables: formats, and writing in the background."""

import datetime as dt
import gc
import io
import json
import math
import sys
import threading

import pyarrow as pa
import pytest

from altbi.errors import ParameterError, TableError
from altbi.io import (
    TableWriter,
    check_writable,
    infer_format,
    open_stream_writer,
    open_table,
    open_writer,
    write_in_background,
)

TIMEOUT = 30


def tables(count):
    return [pa.table({"x": [number]}) for number in range(count)]


class ListWriter(TableWriter):
    def __init__(self, before=lambda table: None):
        self.before = before
        self.tables = []

    def write(self, table):
        self.before(table)
        self.tables.append(table)

    def close(self):
        raise AssertionError("the caller closes the writer")


def test_tables_are_written_in_the_background():
    written, may_go_on = [], threading.Event()

    def slowly(table):
        assert may_go_on.wait(TIMEOUT)
        written.append(table)

    writer = ListWriter(slowly)
    with write_in_background(writer) as background:
        background.write(tables(1)[0])
        assert not written  # this line runs while the table waits to be written
        may_go_on.set()
    assert writer.tables == tables(1)


def test_background_writer_keeps_the_order():
    writer = ListWriter()

    with write_in_background(writer) as background:
        for table in tables(20):
            background.write(table)

    assert writer.tables == tables(20)


@pytest.mark.parametrize("at", [0, 4])
def test_background_write_errors_are_raised(at):
    def full(table):
        if table["x"][0].as_py() == at:
            raise OSError("no space left")

    def write_all(writer):
        with write_in_background(writer) as background:
            for table in tables(5):
                background.write(table)

    writer = ListWriter(full)
    with pytest.raises(OSError, match="no space left"):
        write_all(writer)
    assert writer.tables == tables(at)


@pytest.mark.parametrize("format_", ["csv", "parquet", "arrow", "jsonl"])
def test_written_tables_are_read_back(tmp_path, format_):
    path = tmp_path / f"scores.{format_}"
    schema = pa.schema([("text", pa.string()), ("number", pa.float64())])

    with open_writer(path, str(path), format_, schema) as writer:
        for number in range(2):
            writer.write(pa.table({"text": ["a,b"], "number": [number + 0.5]}, schema))

    source = open_table(path)
    table = pa.Table.from_batches(source.batches(["text", "number"]))
    assert (infer_format(str(path)), source.format) == (format_, format_)
    assert table["text"].to_pylist() == ["a,b", "a,b"]
    assert [float(value) for value in table["number"].to_pylist()] == [0.5, 1.5]


def test_chunks_may_have_their_own_dictionaries():
    file = io.BytesIO()
    chunks = [pa.table({"c": pa.array([text]).dictionary_encode()}) for text in "uv"]

    with open_stream_writer(file, "arrow", chunks[0].schema) as writer:
        for chunk in chunks:
            writer.write(chunk)

    table = pa.ipc.open_file(pa.py_buffer(file.getvalue())).read_all()
    assert table["c"].to_pylist() == ["u", "v"]


def test_json_lines_have_no_infinity_and_iso_dates():
    file = io.BytesIO()
    rows = [{"x": math.inf, "y": [math.nan, 1.0], "day": dt.date(2020, 1, 2)}]

    table = pa.Table.from_pylist(rows)
    with open_stream_writer(file, "jsonl", table.schema) as writer:
        writer.write(table)

    assert json.loads(file.getvalue()) == {"x": None, "y": [None, 1.0], "day": "2020-01-02"}


def test_unsupported_column_types_raise():
    schema = pa.schema([("x", pa.float64()), ("list", pa.list_(pa.int64()))])

    check_writable(schema, "parquet")
    with pytest.raises(TableError, match=r"'list' has the type list.*csv files do not support"):
        check_writable(schema, "csv")


def test_types_refused_by_writing_are_unsupported():
    schema = pa.schema([("size", pa.float64()), ("wait", pa.month_day_nano_interval())])

    with pytest.raises(TableError, match=r"'wait' has the type month_day_nano.*csv files do not"):
        check_writable(schema, "csv")


def test_unknown_endings_raise():
    with pytest.raises(ParameterError, match=r"scores\.doc.*ending like \.csv"):
        infer_format("scores.doc")


def test_failed_parquet_file_has_no_end(tmp_path, monkeypatch):
    problems = []
    monkeypatch.setattr(sys, "unraisablehook", problems.append)

    def fail():
        table = tables(1)[0]
        with open_writer(tmp_path / "x", "x", "parquet", table.schema) as writer:
            writer.write(table)
            raise KeyError("stop")

    with pytest.raises(KeyError, match="stop"):
        fail()
    gc.collect()

    assert problems == []
    assert not (tmp_path / "x").read_bytes().endswith(b"PAR1")


@pytest.mark.parametrize("format_", ["csv", "parquet", "arrow", "jsonl"])
def test_stream_is_complete_after_the_block(format_):
    table, raw = pa.table({"x": [1, 2]}), io.BytesIO()
    file = io.BufferedWriter(raw)

    with open_stream_writer(file, format_, table.schema) as writer:
        writer.write(table)

    written = raw.getvalue()
    file.flush()
    assert written == raw.getvalue()
    assert len(written) > 5
