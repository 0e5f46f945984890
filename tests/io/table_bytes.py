"""Tables as bytes in every format and compression, and functions that read them back."""

import bz2
import gzip
import io
import json
import lzma
import subprocess
import sys
import zipfile

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from altbi.io._source import BATCH_BYTES, BATCH_ROWS

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


def parquet_bytes(table):
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink)
    return sink.getvalue().to_pybytes()


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
        "import resource, sys; from altbi.io import open_table\n"
        "start = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss\n"
        "try: source = open_table(sys.argv[1]); list(source.batches(source.schema.names))\n"
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
