"""Tables in files: formats, compressions, dialects, encodings, limits, and refusals."""

import bz2
import codecs
import datetime as dt
import gzip
import io
import json
import lzma
import os
import pickle
import subprocess
import sys
import zipfile

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.feather
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from altbi.errors import ParameterError, TableError
from altbi.io._csv import CsvSource
from altbi.io._csv_dialect import Dialect, detect_dialect
from altbi.io._arrow import ArrowSource
from altbi.io._json_lines import JsonLinesSource
from altbi.io._line_blocks import LINE_BYTES
from altbi.io._npz import NumpySource
from altbi.io._open import open_table
from altbi.io._parquet import ParquetSource
from altbi.io._source import BATCH_BYTES, BATCH_ROWS

UNTIMED = settings(deadline=None, max_examples=50)  # a busy machine is no failure
MOMENT = dt.datetime(2020, 1, 2)
TABLE = pa.table(
    {
        "id": ["007", "008", "009"],
        "price": [1.5, None, -2.0],
        "count": pa.array([1, 2, 3], pa.int64()),
        "sold": [True, False, None],
        "text": ['say "hi"', "a,b\nc", "é"],
    }
)
TEXTS = pa.table(
    {
        "id": ["007", "008", "009"],
        "price": ["1.5", "NA", "-2"],
        "text": ['say "hi"', "a,b\nc", "é; ü"],
    }
)


def arrow_pack(codec):
    def pack(data):
        sink = pa.BufferOutputStream()
        with pa.CompressedOutputStream(sink, codec) as stream:
            stream.write(data)
        return sink.getvalue().to_pybytes()

    return pack


def zip_pack(data, member="some.dat"):
    sink = io.BytesIO()
    with zipfile.ZipFile(sink, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(member, data)
    return sink.getvalue()


PACKS = {
    "plain": bytes,
    "gzip": gzip.compress,
    "bz2": bz2.compress,
    "zstd": arrow_pack("zstd"),
    "lz4": arrow_pack("lz4"),
    "xz": lzma.compress,
    "zip": zip_pack,
}


def csv_bytes(table, delimiter=","):
    def quoted(cell):
        return '"' + cell.replace('"', '""') + '"'

    rows = [table.column_names, *zip(*(column.to_pylist() for column in table.columns))]  # noqa: B905
    return "".join(delimiter.join(map(quoted, row)) + "\n" for row in rows).encode()


def jsonl_bytes(table):
    return "".join(json.dumps(row) + "\n" for row in table.to_pylist()).encode()


def ipc_bytes(table, opener=pa.ipc.new_stream):
    sink = pa.BufferOutputStream()
    with opener(sink, table.schema) as writer:
        writer.write_table(table)
    return sink.getvalue().to_pybytes()


def npz_bytes(save=np.savez, **arrays):
    sink = io.BytesIO()
    save(sink, **arrays)
    return sink.getvalue()


def npy_bytes(array):
    sink = io.BytesIO()
    np.save(sink, array)
    return sink.getvalue()


@pytest.fixture
def source_of(tmp_path):
    """Write bytes to a file whose name says nothing, and open it."""

    def open_bytes(data, **options):
        path = tmp_path / "some.file"
        path.write_bytes(data)
        return open_table(path, **options)

    return open_bytes


@pytest.fixture
def refusal_of(source_of, tmp_path):
    """Give the sentence with which a file is refused, on opening or on reading."""

    def message(data, **options):
        with pytest.raises(TableError) as caught:
            read(source_of(data, **options))
        text = str(caught.value)
        assert text.startswith(str(tmp_path / "some.file"))
        assert "\n" not in text
        return text

    return message


def read(source, columns=None):
    names = source.schema.names if columns is None else columns
    schema = pa.schema([source.schema.field(name) for name in names])
    batches = list(source.batches(names))
    assert all(0 < batch.num_rows <= BATCH_ROWS for batch in batches)
    assert all(batch.nbytes <= 2 * BATCH_BYTES for batch in batches)
    assert all(batch.schema.equals(schema) for batch in batches)
    return pa.Table.from_batches(batches, schema)


def peak_growth(path):
    """Read a file in a process of its own; give the MiB that it took, and the refusal."""
    code = (
        "import resource, sys; from altbi.io._open import open_source\n"
        "start = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss\n"
        "try: source = open_source(sys.argv[1]); list(source.batches(source.schema.names))\n"
        "except ValueError as error: message = str(error)\n"
        "print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - start, message)\n"
    )
    result = subprocess.run(
        [sys.executable, "-c", code, str(path)], capture_output=True, text=True, check=True
    )
    growth, message = result.stdout.split(" ", 1)
    return int(growth) / 1024, message


def cells(source):
    return read(source).to_pydict()


# Every format, every compression


FORMATS = {
    "csv": (CsvSource, csv_bytes(TEXTS), TEXTS),
    "jsonl": (JsonLinesSource, jsonl_bytes(TABLE), TABLE),
    "stream": (ArrowSource, ipc_bytes(TABLE), TABLE),
    "file": (ArrowSource, ipc_bytes(TABLE, pa.ipc.new_file), TABLE),
    "npy": (NumpySource, npy_bytes(np.eye(2)), pa.table({"x0": [1.0, 0.0], "x1": [0.0, 1.0]})),
}


@pytest.mark.parametrize("pack", PACKS)
@pytest.mark.parametrize("format", FORMATS)
def test_what_was_written_is_read_twice(source_of, format, pack):
    kind, data, table = FORMATS[format]

    source = source_of(PACKS[pack](data), name="that table")

    assert type(source) is (NumpySource if (format, pack) == ("npy", "zip") else kind)
    assert source.name == "that table"
    assert source.schema.equals(table.schema)
    assert read(source).equals(table)
    assert read(source).equals(table)
    assert source.notes == []


@pytest.mark.parametrize("codec", ["none", "snappy", "gzip", "zstd"])
def test_parquet(tmp_path, codec):
    pq.write_table(TABLE, tmp_path / "a.csv", compression=codec, row_group_size=2)

    source = open_table(tmp_path / "a.csv")

    assert isinstance(source, ParquetSource)
    assert (source.format, source.is_untyped, source.n_rows) == ("parquet", False, 3)
    assert read(source).equals(TABLE)
    assert read(source).equals(TABLE)


@pytest.mark.parametrize("codec", ["lz4", "zstd"])
def test_compressed_arrow_files(tmp_path, codec):
    pa.feather.write_feather(TABLE, tmp_path / "a.feather", compression=codec)
    source = open_table(tmp_path / "a.feather")
    assert (source.format, source.n_rows) == ("arrow", 3)
    assert read(source).equals(TABLE)


@pytest.mark.parametrize("data", [entry[1] for entry in FORMATS.values()], ids=list(FORMATS))
def test_some_columns_in_another_order_and_none(source_of, data):
    source = source_of(data)
    names = source.schema.names[:2][::-1]
    assert read(source, names).equals(read(source).select(names))
    assert sum(batch.num_rows for batch in source.batches([])) == len(read(source))


def test_what_the_sources_say_of_themselves(source_of):
    assert (source_of(b"a\n1\n").loose, source_of(b"a\n1\n").format) == (True, "csv")
    lines = source_of(b'{"a": 1}\n')
    assert (lines.loose, lines.format, lines.n_rows) == (True, "jsonl", 1)
    assert source_of(ipc_bytes(TABLE)).n_rows is None
    assert not source_of(ipc_bytes(TABLE)).loose


@pytest.mark.parametrize("pack", ["gzip", "bz2", "zstd", "lz4", "xz"])
def test_packed_parts_in_one_file_are_all_read(source_of, pack):
    parts = PACKS[pack](b"a,b\n1,2\n") + PACKS[pack](b"3,4\n")
    assert cells(source_of(parts)) == {"a": ["1", "3"], "b": ["2", "4"]}


@pytest.mark.parametrize("pack", ["gzip", "bz2", "zstd", "lz4", "xz", "zip"])
@pytest.mark.parametrize("format", ["csv", "jsonl", "stream"])
def test_packed_files_that_are_cut_are_refused(refusal_of, format, pack):
    letters = np.random.default_rng(0).integers(97, 123, size=(4000, 30), dtype=np.uint8)
    table = pa.table({"t": [row.tobytes().decode() for row in letters]})
    writer = {"csv": csv_bytes, "jsonl": jsonl_bytes, "stream": ipc_bytes}[format]
    packed = PACKS[pack](writer(table))
    assert "copy or write the file again" in refusal_of(packed[: len(packed) * 2 // 3])


def test_macs_extra_members_do_not_count(source_of):
    sink = io.BytesIO()
    with zipfile.ZipFile(sink, "w") as archive:
        archive.writestr("folder/", b"")
        archive.writestr("folder/a.csv", b"a\nx\n")
        archive.writestr("__MACOSX/folder/._a.csv", b"\0\1")
    assert cells(source_of(sink.getvalue())) == {"a": ["x"]}


def test_a_member_is_never_written_to_the_path_it_names(source_of, tmp_path):
    data = zip_pack(b"a\nx\n", "../../escaped.csv")
    assert cells(source_of(data)) == {"a": ["x"]}
    assert [path.name for path in tmp_path.iterdir()] == ["some.file"]
    assert not (tmp_path.parent.parent / "escaped.csv").exists()


# What is no table


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"", "holds no rows"),
        (b"\n\r\n\n", "holds no rows"),
        (b"a,b\n", "holds no rows, only the line with the names"),
        (b'"a\nb",c\n\n\n', "holds no rows, only the line with the names"),
        (b"\0\1\2\3" * 50, "zero bytes"),
        (b"[\n{}]", "jq -c '.[]'"),
        (pickle.dumps([1]), "pickle"),
        (b"\xd0\xcf\x11\xe0\xa1\xb1", "Excel"),
        (zip_pack(b"", "xl/workbook.xml"), "Save it as CSV"),
        (gzip.compress(gzip.compress(b"a\n1\n", mtime=0), mtime=0), "compressed twice"),
        (npz_bytes(a=np.ones(3))[:-30], "zip file"),
        (ipc_bytes(TABLE.slice(0, 0)), "holds no rows"),
        (ipc_bytes(TABLE, pa.ipc.new_file)[:-20], "Arrow data"),
        (b"ARROW1\0\0", "Arrow data"),
        (b"PAR1", "Parquet"),
        (b"PAR1" + b"\7" * 50 + b"PAR1", "Parquet"),
        (b"\xff\xff\xff\xff\x10\0\0\0" + b"\7" * 50, "Arrow data"),
        (b"\x93NUMPY", "no whole array"),
        (b"\x93NUMPY\x01\x00\x06\x00{'a':}", "no whole array"),
    ],
)
def test_what_is_no_table_is_refused(refusal_of, data, words):
    assert words in refusal_of(data)


def parquet_bytes(table):
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink)
    return sink.getvalue().to_pybytes()


DAMAGED = {name: data for name, (_, data, _) in FORMATS.items()} | {
    "parquet": parquet_bytes(TABLE),
    "npz": npz_bytes(X=np.eye(3), y=np.arange(3)),
    "zip": zip_pack(csv_bytes(TEXTS)),
    "zstd": PACKS["zstd"](csv_bytes(TEXTS)),
}


@pytest.mark.parametrize("data", DAMAGED.values(), ids=list(DAMAGED))
def test_damaged_bytes_are_read_or_refused_and_nothing_else(source_of, data):
    rng = np.random.default_rng(0)
    refused = 0
    for _ in range(150):
        damaged = bytearray(data)
        for place in rng.integers(len(data), size=2):
            damaged[place] = rng.choice([0, 255, 34, 123, 10])
        try:
            read(source_of(bytes(damaged[: rng.integers(1, 2 * len(data))])))
        except TableError:
            refused += 1
    assert refused > 20


def test_several_files_in_a_zip_are_refused(refusal_of):
    sink = io.BytesIO()
    with zipfile.ZipFile(sink, "w") as archive:
        archive.writestr("a.csv", b"a\nx\n")
        archive.writestr("b.csv", b"a\nx\n")
    assert "holds 2 files" in refusal_of(sink.getvalue())


def test_encrypted_members_are_refused(refusal_of):
    data = bytearray(zip_pack(b"a\nx\n"))
    for magic, place in ((b"PK\3\4", 6), (b"PK\1\2", 8)):
        data[data.index(magic) + place] |= 1
    assert "encrypted" in refusal_of(bytes(data))


def test_packed_parquet_is_refused(refusal_of):
    sink = pa.BufferOutputStream()
    pq.write_table(TABLE, sink)
    assert "Unpack it" in refusal_of(gzip.compress(sink.getvalue().to_pybytes()))


def test_the_operating_system_speaks_for_itself(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"missing\.csv"):
        open_table(tmp_path / "missing.csv")
    with pytest.raises(IsADirectoryError):
        open_table(tmp_path, format="arrow")


def test_pipes_are_refused():
    read_end, write_end = os.pipe()
    os.close(write_end)
    try:
        with pytest.raises(TableError, match="cannot be read twice"):
            open_table(f"/dev/fd/{read_end}")
    finally:
        os.close(read_end)


def test_control_characters_of_a_name_are_shown_and_not_sent(tmp_path):
    path = tmp_path / "a\x1b[2J.csv"
    path.write_bytes(b"")
    with pytest.raises(TableError, match=r"a\\x1b\[2J\.csv: it holds no rows"):
        open_table(path)


@pytest.mark.parametrize(
    "options",
    [
        {"format": "xlsx"},
        {"encoding": "no-such"},
        {"encoding": "rot13"},
        {"delimiter": "ab"},
        {"delimiter": '"'},
        {"delimiter": "é"},
    ],
)
def test_options_that_make_no_sense_are_refused(source_of, options):
    with pytest.raises(ParameterError, match=f"{next(iter(options))}="):
        source_of(b"a,b\n1,2\n", **options)


@pytest.mark.parametrize("options", [{"delimiter": ","}, {"header": True}, {"encoding": "utf-8"}])
def test_options_that_would_change_nothing_are_refused(source_of, options):
    with pytest.raises(ParameterError, match="Leave it out"):
        source_of(npy_bytes(np.eye(2)), **options)


def test_the_format_can_be_given(source_of, refusal_of):
    assert cells(source_of(b"{a,b}\n1,2\n", format="csv")) == {"{a": ["1"], "b}": ["2"]}
    assert "Parquet" in refusal_of(b"a,b\n1,2\n", format="parquet")
    assert "npz" in refusal_of(b"a,b\n1,2\n", format="npz")


# CSV


@pytest.mark.parametrize("delimiter", [",", ";", "\t", "|"])
def test_delimiters_are_told(source_of, delimiter):
    assert read(source_of(csv_bytes(TEXTS, delimiter))).equals(TEXTS)


@pytest.mark.parametrize(
    ("head", "delimiter"),
    [
        (b"a;b\n1,5;2,5\n3,5;4,5\n", ";"),
        (b"1,5;2,5\n3,5;4,5\n", ";"),
        (b"a|b,c,d\nx|y,1,2\nu|v,3,4\n", ","),
        (b"text\nhello, you\nhello\nyou\n", ","),
        (b"a\tb\n1, 2\t3\n1\t3\n", "\t"),
        (b"a,b\n1,2\n1,2\n1,2,3\n", ","),
        (b"", ","),
    ],
)
def test_the_most_consistent_delimiter_is_taken(head, delimiter):
    assert detect_dialect(head).delimiter == delimiter


def test_one_column_is_a_table(source_of):
    assert cells(source_of(b"name\nhello\nyou, there\nyou\n", delimiter="tab")) == {
        "name": ["hello", "you, there", "you"]
    }
    assert cells(source_of(b"name\nhello\nyou\n")) == {"name": ["hello", "you"]}


@pytest.mark.parametrize("newline", [b"\n", b"\r\n", b"\r"])
@pytest.mark.parametrize("end", [True, False])
def test_newlines(source_of, newline, end):
    lines = [b"", b"a,b", b"1,2", b"", b'"x' + newline + b'y",4']
    data = newline.join(lines) + newline * end
    assert cells(source_of(data)) == {"a": ["1", f"x{newline.decode()}y"], "b": ["2", "4"]}


def test_apostrophes_quote_only_where_they_always_do(source_of):
    assert cells(source_of(b"a,b\n'x,y',2\n'it''s',3\n")) == {"a": ["x,y", "it's"], "b": ["2", "3"]}
    assert cells(source_of(b"a,b\n'tis,2\n'x',3\n")) == {"a": ["'tis", "'x'"], "b": ["2", "3"]}


def test_backslashes_escape_only_where_a_quote_needs_it(source_of):
    assert cells(source_of(b'a,b\n"x \\"y\\", z",2\n')) == {"a": ['x "y", z'], "b": ["2"]}
    assert cells(source_of(b'a,b\n"C:\\dir\\",2\n')) == {"a": ["C:\\dir\\"], "b": ["2"]}


def test_a_quote_within_a_cell_is_a_letter(source_of):
    assert cells(source_of(b'a,b\n5" pipe,2\n6" pipe,3\n')) == {
        "a": ['5" pipe', '6" pipe'],
        "b": ["2", "3"],
    }


def test_cells_stay_as_they_were_written(source_of):
    source = source_of(b"a,b,c\n007, NA ,\nnull,1e5,true\n")
    assert cells(source) == {"a": ["007", "null"], "b": [" NA ", "1e5"], "c": ["", "true"]}
    assert read(source).column("c").null_count == 0


PLAIN_CELLS = st.text(alphabet='ab,;"\n\r é', max_size=6)


@UNTIMED
@given(st.lists(st.tuples(PLAIN_CELLS, PLAIN_CELLS), min_size=1, max_size=6))
def test_quoted_cells_of_any_letters_come_back(tmp_path_factory, rows):
    path = tmp_path_factory.mktemp("csv") / "a.csv"
    table = pa.table({"a": [a for a, _ in rows], "b": [b for _, b in rows]})
    path.write_bytes(csv_bytes(table))
    assert read(open_table(path)).equals(table)


@UNTIMED
@given(st.text(alphabet='a,"\n', max_size=12), st.text(alphabet='a,"\n', max_size=12))
def test_a_cut_does_not_depend_on_what_comes_later(start, rest):
    dialect = Dialect(",")
    data = f'"{start}'.encode()
    assert dialect.cut(data) <= dialect.cut(data + rest.encode() + b"\n") or not dialect.cut(data)
    assert data[dialect.cut(data) - 1 : dialect.cut(data)] in (b"", b"\n")


# Headers


def test_a_first_line_of_numbers_is_a_row(source_of):
    source = source_of(b"1.5,,NA\n2,3,4\n")
    assert cells(source) == {"x0": ["1.5", "2"], "x1": ["", "3"], "x2": ["NA", "4"]}
    assert "numbers only" in source.notes[0]
    assert cells(source_of(b"1,2\n3,4\n", header=True)) == {"1": ["3"], "2": ["4"]}


@pytest.mark.parametrize(
    ("line", "values"),
    [
        ("shop0,105.12,2026-01-01", "'105.12', '2026-01-01'"),
        ("a,31.12.2026 8:30,b", "'31.12.2026 8:30'"),
        ("region,2023,2024", "'2023', '2024'"),
        ("a,1,2,3,4,5,6", "'1', '2', '3', '4', '5', …"),
    ],
)
def test_a_first_line_that_may_be_a_row_is_noted(source_of, line, values):
    content = f"{line}\n{line}\n".encode()

    (note,) = source_of(content).notes
    assert f"was read as names of columns, among them {values}. If it is a row, say --no-h" in note
    assert source_of(content, header=True).notes == []
    assert source_of(content, header=False).notes == []


def test_a_first_line_of_words_is_the_header(source_of):
    assert cells(source_of(b"a,2\n3,4\n")) == {"a": ["3"], "2": ["4"]}
    source = source_of(b"a,b\nc,d\n", header=False)
    assert cells(source) == {"x0": ["a", "c"], "x1": ["b", "d"]}
    assert source.notes == []


def test_a_data_frame_without_names_counts_its_columns(source_of):
    source = source_of(b",0,1\n0,7,8\n")
    assert cells(source) == {"unnamed_1": ["0"], "0": ["7"], "1": ["8"]}
    assert "counts 0, 1, 2" in source.notes[0]


def test_columns_without_a_name_get_one(source_of):
    source = source_of(b"a,, \n1,2,3\n")
    assert source.schema.names == ["a", "unnamed_2", "unnamed_3"]
    assert "unnamed_2, unnamed_3" in source.notes[0]


def test_names_are_told_apart(refusal_of):
    assert "'a\\x07'" in refusal_of(b"a\x07,b,a\x07\n1,2,3\n")
    assert "'unnamed_1'" in refusal_of(b",unnamed_1\n1,2\n")
    assert "and 2 more" in refusal_of(b"a,b,c,d,e,f,g,a,b,c,d,e,f,g\n" + b"1," * 13 + b"1\n")


# Encodings


@pytest.mark.parametrize(
    "encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-32", "utf-16-le", "utf-16-be", "utf-32-le"]
)
def test_encodings_are_told(source_of, encoding):
    source = source_of("name,b\nélan €,2\n".encode(encoding))
    assert cells(source) == {"name": ["élan €"], "b": ["2"]}
    assert source.notes == []


@pytest.mark.parametrize("mark", [codecs.BOM_UTF16_BE, codecs.BOM_UTF32_BE])
def test_the_other_byte_orders_are_told(source_of, mark):
    encoding = "utf-16-be" if len(mark) == 2 else "utf-32-be"
    assert cells(source_of(mark + "é\nü\n".encode(encoding))) == {"é": ["ü"]}


def test_json_lines_in_another_encoding(source_of):
    assert cells(source_of('{"é": "ü"}\n'.encode("utf-16"))) == {"é": ["ü"]}


def test_what_is_not_utf8_is_read_as_cp1252_with_a_note(source_of):
    source = source_of("name,b\nélan €,2\n".encode("cp1252"))
    assert cells(source) == {"name": ["élan €"], "b": ["2"]}
    assert "is not UTF-8 (byte 0xe9 in line 2), read as cp1252" in source.notes[0]


def test_a_late_letter_settles_the_encoding_of_the_whole_file(source_of):
    source = source_of(b"a,b\n" + b"x,y\n" * 1_500_000 + b"\xe9,y\n")
    assert "line 1500002" in source.notes[0]
    assert read(source).column("a")[-1].as_py() == "é"


def test_a_damaged_utf8_file_is_refused(refusal_of):
    text = "name,b\né,2\n".encode()
    assert "byte 0xff in line 3" in refusal_of(text + b"\xff,2\n")
    assert "byte 0xff in line 1" in refusal_of(b"\xff,2\n" + text)
    assert "byte 0xc3 in line 3" in refusal_of(text + b"x,\xc3")
    assert "byte 0xff in line 1" in refusal_of(b"\xff,2\n" + b"x,2\n" * 2_500_000 + text)


def test_a_letter_across_two_pieces_is_one_letter(source_of):
    data = b"a\n" + b"x" * ((1 << 22) - 3) + "é\n".encode()
    source = source_of(data)
    assert source.notes == []
    assert read(source).column("a")[0].as_py().endswith("xé")


def test_half_a_letter_before_a_piece_of_plain_text_is_named(source_of):
    source = source_of(b"a\n" + b"x" * ((1 << 22) - 3) + b"\xc3" + b"\nx" * 2_500_000)
    assert "(byte 0xc3 in line 2)" in source.notes[0]


def test_a_given_encoding_is_obeyed(source_of, refusal_of):
    assert cells(source_of(b"a\n\xe9\n", encoding="cp850")) == {"a": ["Ú"]}
    assert cells(source_of(codecs.BOM_UTF8 + b"a\nx\n", encoding="UTF8")) == {"a": ["x"]}
    assert "byte 0xe9 in line 2 cannot be read as ascii" in refusal_of(
        b"a\n\xe9\n", encoding="ascii"
    )
    assert "byte 0x81 in line 2 cannot be read as cp1252" in refusal_of(b"a\n\x81\n")


# Broken lines


@pytest.mark.parametrize(
    ("data", "line", "found", "expected"),
    [
        (b"a,b\n1,2\n1,2,3\n", 3, 3, 2),
        (b"a,b\n1\n", 2, 1, 2),
        (b'\n\na,b\n"1\n\n2",3\n1,2\n1,2,3\n1,2,3,4\n', 8, 3, 2),
        (b"a,b\r\n1,2\r\n\r\n1,2,3\r\n", 4, 3, 2),
        (b"a,b\n" + b"1,2\n" * 1_200_000 + b"1,2,3\n", 1_200_002, 3, 2),
    ],
)
def test_ragged_lines_are_named(refusal_of, data, line, found, expected):
    text = refusal_of(data)
    assert f"line {line} has {found} cells, but expected {expected}" in text
    assert "--delimiter" in text


def test_a_quote_that_is_never_closed_is_named(refusal_of):
    assert "opens in line 3 or later is never closed" in refusal_of(b'a,b\n"1",2\n1,"2\n3,4\n')


def test_a_long_cell_is_read_and_a_longer_one_is_refused(source_of, refusal_of):
    long = b"x" * (LINE_BYTES - 100)
    assert read(source_of(b"a,b\n" + long + b",2\n3,4\n")).column("b").to_pylist() == ["2", "4"]
    text = refusal_of(b'a,b\n1,2\n3,"' + long + b"\n" + long + b'"\n')
    assert "line 3 is longer than 16 MiB" in text
    assert "line 2 is longer than 16 MiB" in refusal_of(b'{"a":1}\n{"a":"' + long + long + b'"}\n')


def test_a_huge_line_does_not_fill_memory(tmp_path):
    path = tmp_path / "a.csv"
    with path.open("wb") as file:
        file.write(b"a,b\n1,")
        for _ in range(200):
            file.write(b"x" * (1 << 20))

    growth, message = peak_growth(path)

    assert "line 2 is longer than 16 MiB" in message
    assert growth < 120


def test_opening_imports_nothing_heavy(tmp_path):
    (tmp_path / "a.csv").write_bytes(b"a\n1\n")
    code = (
        "import sys; from altbi.io._open import open_source\n"
        "list(open_source(sys.argv[1]).batches(['a']))\n"
        "print({'torch', 'pandas', 'polars', 'sklearn'} & set(sys.modules))\n"
    )
    command = [sys.executable, "-c", code, str(tmp_path / "a.csv")]
    result = subprocess.run(command, capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "set()"


def test_batches_are_bounded(source_of):
    n_rows = 2 * BATCH_ROWS + 1
    for data in (b"a\n" + b"x\n" * n_rows, b'{"a":1}\n' * n_rows):
        assert len(read(source_of(data))) == n_rows
    wide = np.zeros((700, 10_000))
    assert len(list(source_of(npy_bytes(wide)).batches(["x0"]))) == 4
    table = pa.table({"t": ["x" * 1000] * 50_000})
    assert len(read(source_of(ipc_bytes(table, pa.ipc.new_file)))) == 50_000
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink)
    assert len(read(source_of(sink.getvalue().to_pybytes()))) == 50_000


# JSON lines


@pytest.mark.parametrize(
    ("lines", "type_", "values"),
    [
        (["1", "null", "-3"], pa.int64(), [1, None, -3]),
        (["1", "2.5"], pa.float64(), [1.0, 2.5]),
        (["9223372036854775808", "1"], pa.float64(), [2.0**63, 1.0]),
        (["-9223372036854775808"], pa.int64(), [-(2**63)]),
        (["true", "null"], pa.bool_(), [True, None]),
        (['"2020-01-01"', '"2020-01-02T03:04:05"'], pa.string(), None),
        (["null", "null"], pa.null(), [None, None]),
        (["1.50", '"x"', "true", "null", "1e5"], pa.string(), ["1.50", "x", "true", None, "1e5"]),
        (["true", "1"], pa.string(), ["true", "1"]),
        (["12345678901234567890", '""'], pa.string(), ["12345678901234567890", ""]),
        (["1e400", "-Infinity"], pa.float64(), [np.inf, -np.inf]),
        (['"a\\tb\\u00e9"', '"{[{["'], pa.string(), ["a\tbé", "{[{["]),
    ],
)
def test_json_types(source_of, lines, type_, values):
    source = source_of("".join(f'{{"a": {value}}}\n' for value in lines).encode())
    assert source.schema.field("a").type == type_
    expected = [json.loads(line) for line in lines] if values is None else values
    assert read(source).column("a").to_pylist() == expected


def test_nan_is_a_number(source_of):
    source = source_of(b'{"a": NaN}\n{"a": 1}\n')
    np.testing.assert_array_equal(read(source).column("a").to_numpy(), [np.nan, 1])


@pytest.mark.parametrize("last", ['{"a": 1.0}', '{"c": {"e": "x"}}', '{"b": 7}'])
def test_the_last_line_has_a_say_in_the_schema(source_of, last):
    n_lines = 200_000
    first = '{"a": 1, "b": "2020-01-01", "c": {"d": true}}\n'
    source = source_of((first * n_lines + last).encode())

    table = read(source)

    assert source.n_rows == len(table) == n_lines + 1
    assert table.column("b")[:3].to_pylist() == ["2020-01-01"] * 3
    assert pc.unique(table.column("c.d").slice(0, n_lines)).to_pylist() == [True]
    if "1.0" in last:
        assert table.schema.field("a").type == pa.float64()
    elif "e" in last:
        assert table.column_names == ["a", "b", "c.d", "c.e"]
        assert table.column("c.e").null_count == n_lines
    else:
        assert table.column("b")[-1].as_py() == "7"


def test_objects_are_flattened_and_blank_lines_skipped(source_of):
    source = source_of(b'\n{"b": {"x": 1}, "a": 2}\r\n \n{"a": 3, "b": null}\n{"b": {"y": "z"}}')
    assert cells(source) == {"b.x": [1, None, None], "b.y": [None, None, "z"], "a": [2, 3, None]}
    assert source.n_rows == 3


def test_keys_given_twice_take_the_last_value(source_of):
    assert cells(source_of(b'{"a": 1, "a": 2}\n')) == {"a": [2]}


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b'{"a": 1}\n\n{"a": \n', "line 3 is no JSON"),
        (b'{\n"a": 1\n}\n', "line 1 is no JSON"),
        (b'{"a": 1} {"a": 2}\n', "line 1 is no JSON"),
        (b'{"a": 1}\n[1]\n', "line 2 holds no object"),
        (b'{"a": 1}\n{"a": {}}\n', "line 2: 'a' holds an object in some lines"),
        (b'{"a": {"b": 1}, "a.b": 1}\n', "same name: 'a.b'"),
        (b"{}\n{}\n", "no columns"),
        (b'{"a": "\\ud800"}\n', "half a letter"),
        (b'{"\\ud800": 1}\n', "half a letter"),
        (b'{"a":' * 33 + b"1" + b"}" * 33, "more than 32 deep"),
        (b'{"a":' * 200_000 + b"1" + b"}" * 200_000, "nested too deep"),
        (b'{"a":' + b"[" * 200_000 + b"]" * 200_000 + b"}", "nested too deep"),
    ],
)
def test_broken_json_lines_are_named(refusal_of, data, words):
    assert words in refusal_of(data)


# Parquet and Arrow


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


def test_an_empty_parquet_file_is_refused(tmp_path):
    pq.write_table(TABLE.slice(0, 0), tmp_path / "a.parquet")
    with pytest.raises(TableError, match="holds no rows"):
        open_table(tmp_path / "a.parquet")


def test_columns_of_the_same_name_are_refused(refusal_of):
    table = pa.table([[1], [2]], names=["a", "a"])
    assert "same name: 'a'" in refusal_of(ipc_bytes(table))


def test_damaged_pages_are_refused(tmp_path):
    path = tmp_path / "a.parquet"
    table = pa.table({"a": np.random.default_rng(0).normal(size=10_000)})
    pq.write_table(table, path, use_dictionary=False, write_page_checksum=True)
    data = bytearray(path.read_bytes())
    data[200:4000] = bytes(3800)
    path.write_bytes(data)
    with pytest.raises(TableError, match="Parquet file cannot be read"):
        read(open_table(path))


def test_a_file_of_a_folder_that_is_cut_is_named(tmp_path):
    for name in ("a", "b"):
        pq.write_table(pa.table({"a": [1.0, 2.0]}), tmp_path / f"{name}.parquet")
    data = (tmp_path / "b.parquet").read_bytes()
    (tmp_path / "b.parquet").write_bytes(data[: len(data) // 2])

    with pytest.raises(TableError, match=r"b\.parquet: .*damaged or incomplete"):
        open_table(tmp_path)


def test_texts_that_are_no_utf8_are_refused(tmp_path, refusal_of):
    bad = pa.array([b"\xff\xfe"]).view(pa.string())
    table = pa.table({"a": bad})
    pq.write_table(table, tmp_path / "a.parquet")
    with pytest.raises(TableError, match="UTF8"):
        read(open_table(tmp_path / "a.parquet"))
    assert "UTF8" in refusal_of(ipc_bytes(table))


def test_a_folder_of_parquet_files_is_one_table(tmp_path):
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


def test_a_folder_may_be_named_from_where_one_stands(tmp_path, monkeypatch):
    (tmp_path / "data" / "b=1").mkdir(parents=True)
    pq.write_table(pa.table({"a": [7]}), tmp_path / "data" / "b=1" / "a.parquet")
    monkeypatch.chdir(tmp_path / "data")
    for path in (".", "../data/", "../data/../data"):
        source = open_table(path)
        assert (source.name, cells(source)) == (path, {"a": [7], "b": [1]})


def test_folders_that_are_no_table_are_refused(tmp_path):
    (tmp_path / "a.txt").write_bytes(b"a\n1\n")
    with pytest.raises(TableError, match=r"no file that ends with \.parquet or \.csv"):
        open_table(tmp_path)
    pq.write_table(pa.table({"a": [1]}), tmp_path / "a.parquet")
    pq.write_table(pa.table({"a": ["x"]}), tmp_path / "b.parquet")
    with pytest.raises(TableError, match="not one table"):
        open_table(tmp_path)
    (tmp_path / "b.parquet").write_bytes(b"PAR1 and no more")
    with pytest.raises(TableError, match=r"b\.parquet: .*damaged or incomplete"):
        open_table(tmp_path)


# Arrays


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_the_table_of_an_npz_and_what_stands_beside_it(source_of, save, order):
    X = np.random.default_rng(0).normal(size=(70_000, 3))
    X[0] = [np.nan, np.inf, -np.inf]
    y = np.arange(70_000) % 2

    source = source_of(npz_bytes(save, X=np.asarray(X, order=order), y=y, names=np.array(["a"])))

    assert (source.format, source.extra_columns, source.n_rows) == ("npz", ("y",), 70_000)
    assert source.schema.names == ["x0", "x1", "x2", "y"]
    assert "'y' beside it" in source.notes[0]
    assert "'names' (1,) cannot be a column" in source.notes[1]
    table = read(source)
    np.testing.assert_array_equal(np.column_stack(table.columns[:3]), X)
    assert table.column("x0").null_count == 0
    np.testing.assert_array_equal(table.column("y"), y)
    np.testing.assert_array_equal(read(source, ["y"]).column("y"), y)


@pytest.mark.parametrize("order", ["C", "F"])
def test_npy_files(source_of, order):
    X = np.asarray(np.arange(12.0).reshape(4, 3), order=order)
    for pack in ("plain", "gzip"):
        source = source_of(PACKS[pack](npy_bytes(X)))
        assert (source.format, source.n_rows) == ("npy", 4)
        np.testing.assert_array_equal(np.column_stack(read(source).columns), X)


def test_one_axis_is_one_column(source_of):
    assert cells(source_of(npy_bytes(np.array([3, 4])))) == {"x0": [3, 4]}


def test_arrays_with_one_axis_are_columns(source_of):
    source = source_of(npz_bytes(a=np.array([1, 2]), b=np.array(["x", "é"])))
    assert cells(source) == {"a": [1, 2], "b": ["x", "é"]}
    assert (source.extra_columns, source.notes) == ((), [])


@pytest.mark.parametrize(
    ("array", "type_", "first"),
    [
        (np.array([1, 2], "i1"), pa.int8(), 1),
        (np.array([1, 2], ">i4"), pa.int32(), 1),
        (np.array([1, 2], "u8"), pa.uint64(), 1),
        (np.array([1, 2], "f2"), pa.float32(), 1.0),
        (np.array([1, 2], ">f8"), pa.float64(), 1.0),
        (np.array([1, 2], np.longdouble), pa.float64(), 1.0),
        (np.array([True, False]), pa.bool_(), True),
        (np.array(["2020-01-02", "NaT"], "M8[D]"), pa.date32(), dt.date(2020, 1, 2)),
        (np.array(["2020-01-02", "NaT"], "M8[h]"), pa.timestamp("s"), MOMENT),
        (np.array(["2020-01-02", "NaT"], ">M8[us]"), pa.timestamp("us"), MOMENT),
        (np.array([1, 2], "m8[D]"), pa.duration("s"), dt.timedelta(days=1)),
    ],
)
def test_types_of_arrays(source_of, array, type_, first):
    source = source_of(npy_bytes(array))
    assert source.schema.field("x0").type == type_
    column = read(source).column("x0")
    assert column.null_count == (array.dtype.kind == "M")
    assert column[0].as_py() == first


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (npy_bytes(np.array([{}, None])), "Python objects"),
        (npz_bytes(X=np.array([[1, "a"]], object)), "Python objects"),
        (npy_bytes(np.zeros(2, [("a", "f8")])), "cells of type"),
        (npy_bytes(np.ones(2, complex)), "cells of type complex128"),
        (npy_bytes(np.zeros((2, 2, 2))), "its shape is (2, 2, 2)"),
        (npy_bytes(np.zeros((0, 2))), "no rows or no columns"),
        (npy_bytes(np.zeros((2, 0))), "no rows or no columns"),
        (npz_bytes(A=np.eye(2), B=np.eye(3)), "'A' (2, 2), 'B' (3, 3)"),
        (npz_bytes(a=np.ones(2), b=np.ones(3)), "'a' (2,), 'b' (3,)"),
        (npz_bytes(a=np.ones((2, 2, 2))), "'a' (2, 2, 2)"),
        (npz_bytes(X=np.eye(2), x1=np.ones(2)), "same name: 'x1'"),
        (npy_bytes(np.eye(100))[:-8], "ends after 99 whole rows, but expected 100"),
        (npy_bytes(np.asfortranarray(np.ones((9, 9))))[:-8], "expected 9"),
    ],
)
def test_arrays_that_are_no_table_are_refused(refusal_of, data, words):
    assert words in refusal_of(data)


def test_the_array_named_x_is_the_table(source_of):
    source = source_of(npz_bytes(A=np.eye(2), X=np.ones((3, 1))))
    assert source.schema.names == ["x0"]
    assert "'A' (2, 2) cannot be a column" in source.notes[0]


def npy_that_claims(shape):
    sink = io.BytesIO()
    np.lib.format.write_array_header_1_0(
        sink, {"descr": "<f8", "fortran_order": False, "shape": shape}
    )
    return sink.getvalue()


@pytest.mark.parametrize("shape", [(2**60, 3), (1, 2**40), (-1, 3), (2**62, 2**62)])
def test_arrays_that_claim_too_much_are_refused(refusal_of, tmp_path, shape):
    refusal_of(npy_that_claims(shape))
    refusal_of(zip_pack(npy_that_claims(shape), "X.npy"))
    assert peak_growth(tmp_path / "some.file")[0] < 100


def test_a_zip_bomb_does_not_fill_memory(tmp_path):
    path = tmp_path / "bomb"
    with (
        zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive,
        archive.open("a.csv", "w") as member,
    ):
        for _ in range(300):
            member.write(b"a" * (1 << 20))

    growth, message = peak_growth(path)

    assert "longer than 16 MiB" in message
    assert growth < 120


def test_lists_in_json_lines_are_text_and_noted(tmp_path):
    (tmp_path / "t").write_text(
        '{"a": 1, "b": {"c": ["x", "y"]}}\n{"a": 2}\n{"a": 3, "b": {"c": []}}\n'
    )

    source = open_table(tmp_path / "t")
    (batch,) = source.batches(["a", "b.c"])

    assert batch.to_pydict() == {"a": [1, 2, 3], "b.c": ['["x", "y"]', None, "[]"]}
    assert source.notes == ["Column 'b.c' holds lists (line 3); they are read as text."]
