"""The content of duplicates.csv, and a sentence about it."""

from collections.abc import Iterator, Sequence

import pyarrow as pa

from altbi.report import Duplicates

DESCRIPTIONS = {
    "same row": "are equal to another row",
    "same row but one column": "differ from another row in one column only",
    "identifier repeats": "have an identifier of another row",
}


def build_duplicates_table(duplicates: Duplicates, id_columns: Sequence[str]) -> pa.Table:
    """Return a table with one record for each row of each group, as in ``duplicates.csv``.

    Groups are numbered from 1. Id columns get the prefix ``id_``.
    """
    records = [
        (number, group.kind, group.column, len(group.rows), row, *ids, value)
        for number, group in enumerate(duplicates.groups, start=1)
        for row, ids, value in zip(group.rows, group.ids, group.values, strict=True)
    ]
    schema = pa.schema(
        [
            ("group", pa.int64()),
            ("kind", pa.string()),
            ("column", pa.string()),
            ("size", pa.int64()),
            ("row", pa.int64()),
            *((f"id_{name}", pa.string()) for name in id_columns),
            ("value", pa.string()),
        ]
    )
    columns = list(zip(*records, strict=True)) or [()] * len(schema)
    arrays = [pa.array(each, field.type) for each, field in zip(columns, schema, strict=True)]
    return pa.Table.from_arrays(arrays, schema=schema)


def describe_duplicates(duplicates: Duplicates, where: str) -> Iterator[str]:
    """Yield a warning with the number of rows in each kind of groups; none without groups.

    `where` is the place in which they are listed.

    >>> list(describe_duplicates(Duplicates(), "duplicates.csv"))
    []
    """
    rows: dict[str, set[int]] = {}
    for group in duplicates.groups:
        rows.setdefault(group.kind, set()).update(group.rows)
    if rows:
        counts = ", ".join(
            f"{len(each):,} rows {DESCRIPTIONS[kind]}" for kind, each in rows.items()
        )
        yield f"Duplicates: {counts}. They are listed in {where}."
