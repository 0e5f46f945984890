"""Hostile tables for `fuzz.py`: small tables in all formats, and mutations of their bytes."""

import bz2
import contextlib
import gzip
import io
import json
import lzma
import pickle
import struct
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet

from altbi_bench.archives import compress, zip_files
from fuzz_bytes import (
    BINARY_MUTATIONS,
    JSON_MUTATIONS,
    TEXT_MUTATIONS,
    Rng,
    choose,
    flip_bytes,
)

# A file to test: the mutations that made it, its name, and its content.
HostileFile = tuple[str, str, bytes]

N_ROWS = 40
SPECIAL_SHARE, PACKED_SHARE = 0.12, 0.12
# A payload that creates this file shows that code of a hostile file was run.
CANARY = "code-was-run"
TYPED_VALUES: tuple[tuple[pa.DataType, tuple[object, ...]], ...] = (
    (pa.null(), (None,)),
    (pa.uint64(), (0, 2**64 - 1)),
    (pa.float16(), (np.float16(1), np.float16(6e4))),
    (pa.float32(), (3e38, -3e38, 1e-45)),
    (pa.float64(), (1.7e308, -1.7e308, 5e-324, 0.0)),
    (pa.decimal128(38, 0), (10**37, -(10**37))),
    (pa.decimal256(76, 2), (10**70,)),
    (pa.binary(), (b"\xff\xfe", b"")),
    (pa.large_string(), ("", "a" * 10_000, "\x00", "\u202e")),
    (pa.dictionary(pa.int8(), pa.string()), ("a", "b", None)),
    (pa.dictionary(pa.int32(), pa.int64()), (1, 2)),
    (pa.timestamp("ns"), (-(2**63) + 1, 2**63 - 1, 0)),
    (pa.timestamp("s", "UTC"), (-(2**62), 2**62)),
    (pa.timestamp("us", "Nowhere/City"), (0, 1)),
    (pa.date32(), (-(2**31), 2**31 - 1)),
    (pa.time64("ns"), (0, 86_399_999_999_999)),
    (pa.duration("ns"), (-(2**63) + 1, 2**63 - 1)),
    (pa.list_(pa.int64()), ([1, 2], [], None)),
    (pa.struct([("a", pa.struct([("b", pa.int8())]))]), ({"a": {"b": 1}}, None)),
    (pa.map_(pa.string(), pa.int8()), ([("k", 1)], [])),
)
SHAPES = (
    "(10**15, 9)", "(1000000000000000, 3)", "(-1, 4)", "(4,)", "(0, 3)", "()", "(2, 3, 4)",
    "(1, 1)", "(4, 3)", "(99999999999999999999, 2)", "(True, 2)",
)  # fmt: skip
MUTATIONS = {"csv": TEXT_MUTATIONS, "jsonl": JSON_MUTATIONS}
STEMS = ("table",) * 20 + (
    "a[1]",
    "it's",
    "*",
    "a?",
    "-b",
    "a b",
    "{a,b}",
    "a;select 1",
    "\x1b[2J",
    "é",
)
PACKERS = {
    "gz": gzip.compress,
    "bz2": bz2.compress,
    "xz": lzma.compress,
    "zst": lambda data: compress(data, "zstd"),
    "lz4": lambda data: compress(data, "lz4"),
    "zip": lambda data: zip_files({"table": data}),
}


def build_table(rng: Rng, n_rows: int = N_ROWS) -> pa.Table:
    """Return a table with numbers, texts, booleans, dates and missing values."""

    def with_missing(values: object) -> pa.Array:
        return pa.array(values, mask=rng.random(n_rows) < 0.1)

    days = np.datetime64("2024-01-01", "us") + rng.integers(0, 10**12, n_rows)
    return pa.table(
        {
            "size": with_missing(rng.normal(size=n_rows).round(3)),
            "count": with_missing(rng.integers(0, 1000, n_rows)),
            "colour": with_missing(rng.choice(["red", "green", "a, b", 'say "b"', "é"], n_rows)),
            "sold": with_missing(rng.random(n_rows) < 0.5),
            "day": with_missing(days),
        }
    )


def build_base_tables() -> list[tuple[str, bytes]]:
    """Return small valid tables: the ending of the file, and its content."""
    rng = np.random.default_rng(0)
    table, numbers = build_table(rng), rng.normal(size=(N_ROWS, 4))
    longer = build_table(rng, 10 * N_ROWS)
    rows = [json.dumps(row, default=str) for row in table.to_pylist()]
    nested = [f'{{"id": {at}, "of": {row}, "tags": [1, "a"]}}' for at, row in enumerate(rows)]
    csv = _write(lambda sink: pyarrow.csv.write_csv(table, sink))
    german = "a;b;c\n" + "".join(f"{x:.2f};{y:.1f} €;{z:.0%}\n" for x, y, z, _ in numbers)
    write_parquet = pyarrow.parquet.write_table
    options = {"compression": "zstd", "row_group_size": 100, "use_dictionary": False}
    return [
        ("csv", csv),
        ("csv", csv.replace(b",", b"\t")),
        ("csv", german.replace(".", ",").encode()),
        ("csv", german.encode("cp1252")),
        ("jsonl", "\n".join(rows).encode()),
        ("jsonl", "\n".join(nested).encode()),
        ("parquet", _write(lambda sink: write_parquet(longer, sink))),
        ("parquet", _write(lambda sink: write_parquet(longer, sink, **options))),
        ("arrow", _write_arrow(longer, pa.ipc.new_stream, None)),
        ("arrow", _write_arrow(longer, pa.ipc.new_file, None)),
        ("arrow", _write_arrow(longer, pa.ipc.new_file, "lz4")),
        ("npz", _write(lambda sink: np.savez(sink, X=numbers, y=np.arange(N_ROWS) % 2))),
        ("npz", _write(lambda sink: np.savez_compressed(sink, X=numbers.astype("f4")))),
        ("npy", _write(lambda sink: np.save(sink, numbers))),
    ]


def mutate_table(bases: list[tuple[str, bytes]], rng: Rng) -> HostileFile:
    """Return one of the tables after one to three mutations; some are compressed, or special."""
    if rng.random() < SPECIAL_SHARE:
        return choose(SPECIAL_FILES, rng)(rng)
    ending, content = choose(bases, rng)
    mutations = MUTATIONS.get(ending, BINARY_MUTATIONS)
    names = [ending]
    for _ in range(choose((1, 1, 1, 2, 3), rng)):
        mutation = choose(mutations, rng)
        content = mutation(content, rng)
        names.append(mutation.__name__)
    if rng.random() < PACKED_SHARE:
        packing = choose(tuple(PACKERS), rng)
        content, ending = PACKERS[packing](content), f"{ending}.{packing}"
        names.append(packing)
        if rng.random() < 0.3:
            content = flip_bytes(content, rng)
            names.append("flip_bytes")
    return " ".join(names), f"{choose(STEMS, rng)}.{ending}", content


def choose_width(rng: Rng) -> int:
    """Return a number of columns: some hundreds, or so many that the table must be refused.

    Tables between these take more seconds than a file may take here.
    """
    return int(10 ** (rng.uniform(2, 3) if rng.random() < 0.5 else rng.uniform(5.5, 6)))


def build_wide_csv(rng: Rng) -> HostileFile:
    """Return a CSV file with hundreds to 10^6 columns."""
    n_columns = choose_width(rng)
    header = ",".join(f"c{index}" for index in range(n_columns)).encode()
    row = b"," * (n_columns - 1)
    return f"csv of {n_columns} columns", "table.csv", b"\n".join([header, row, row])


def build_wide_json(rng: Rng) -> HostileFile:
    """Return JSON lines with hundreds to 10^6 keys, in one line or one in each."""
    n_keys = choose_width(rng)
    keys = [f'"k{index}": {index}' for index in range(n_keys)]
    lines = ["{" + ", ".join(keys) + "}"] if rng.random() < 0.5 else [f"{{{key}}}" for key in keys]
    return f"jsonl of {n_keys} keys", "table.jsonl", "\n".join(lines).encode()


def build_huge_array(rng: Rng) -> HostileFile:
    """Return an npy file whose header declares an array of another type, size or order."""
    shape = choose(SHAPES, rng)
    type_ = choose(("<f8", ">f4", "<c16", "|O", "|S9", "<U4", "|V8", "<M8[s]", "<f2", "?"), rng)
    order = choose(("True", "False", "__import__('os').system('touch ran')"), rng)
    header = f"{{'descr': '{type_}', 'fortran_order': {order}, 'shape': {shape}, }}".encode()
    header += b" " * (-(len(header) + 11) % 64) + b"\n"
    content = b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header + rng.bytes(96)
    return f"npy {type_} {shape}", "table.npy", content


def build_typed_table(rng: Rng) -> HostileFile:
    """Return a Parquet or Arrow file with a column of an unusual type, and extreme values."""
    type_, values = choose(TYPED_VALUES, rng)
    column = pa.array([choose(values, rng) for _ in range(N_ROWS)], type_)
    table = build_table(rng).append_column(
        choose(("x", "", "a\nb", "size.x", "\x1b[2J"), rng), column
    )
    if rng.random() < 0.5:
        # Parquet lacks some types and values; these are only tried in Arrow files.
        with contextlib.suppress(pa.ArrowException):
            content = _write(lambda sink: pyarrow.parquet.write_table(table, sink))
            return f"parquet with {type_}", "table.parquet", content
    return f"arrow with {type_}", "table.arrow", _write_arrow(table, pa.ipc.new_file, None)


def build_pickle(rng: Rng) -> HostileFile:
    """Return a pickle that runs code, plain or inside of an npy or npz file."""
    array = np.array([[_Payload(), 1]], dtype=object)
    kind = choose(("pickle", "npy", "npz"), rng)
    if kind == "pickle":
        return kind, "table.csv", pickle.dumps(array, protocol=int(rng.integers(0, 6)))
    save = np.save if kind == "npy" else np.savez
    return f"{kind} with a pickle", f"table.{kind}", _write(lambda sink: save(sink, array))


class _Payload:
    """An object whose pickle creates the file `CANARY` when it is loaded."""

    def __reduce__(self) -> tuple[object, tuple[Path]]:
        """Return the call that unpickling makes."""
        return Path.touch, (Path(CANARY),)


def build_bomb(rng: Rng) -> HostileFile:
    """Return a small compressed file of 10 to 100 MB without a newline."""
    letter, size = choose((b"\x00", b"1", b"{", b'"', b","), rng), int(rng.integers(10, 100))
    packing = choose(("gz", "zst", "lz4", "zip"), rng)
    return (
        f"{packing} of {size} MB",
        f"table.csv.{packing}",
        PACKERS[packing](letter * (size << 20)),
    )


def build_archive(rng: Rng) -> HostileFile:
    """Return a zip archive with unusual members."""
    names = choose((("../a.csv",), ("a.csv", "b.csv"), ("/etc/a.csv",), ("X.npy", "X.npy "),
                     ("a/",), (), ("X.npy", "code.py"), ("xl/workbook.xml",)), rng)  # fmt: skip
    content = choose((b"a,b\n1,2\n3,4\n5,6\n", b"", b"PK\x03\x04", bytes(99)), rng)
    return f"zip of {names}", "table.zip", zip_files(dict.fromkeys(names, content))


SPECIAL_FILES = [
    build_wide_csv, build_wide_json, build_huge_array, build_huge_array, build_typed_table,
    build_typed_table, build_pickle, build_bomb, build_archive,
]  # fmt: skip


def _write(write: Callable[[io.BytesIO], object]) -> bytes:
    """Return what a function writes to a stream."""
    sink = io.BytesIO()
    write(sink)
    return sink.getvalue()


def _write_arrow(table: pa.Table, create: Callable[..., object], codec: str | None) -> bytes:
    """Return a table as an Arrow stream or file, compressed with a codec."""
    sink = io.BytesIO()
    options = pa.ipc.IpcWriteOptions(compression=codec)
    with create(sink, table.schema, options=options) as writer:  # type: ignore[attr-defined]
        writer.write_table(table, max_chunksize=150)
    return sink.getvalue()
