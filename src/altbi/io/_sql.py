"""The result of an SQL query over files as a table."""

from collections.abc import Iterator

import pyarrow as pa

from altbi.errors import TableError, describe_cause, quote
from altbi.io._source import Source

NAME = "the query"


def open_sql(query: str) -> Source:
    """Run one SELECT statement with DuckDB, and return its result as a table.

    The query may read all files that the user may read, by DuckDB's functions such as ``read_csv``
    or by names in quotes such as ``'folder/*.parquet'``. So never run a query of somebody else. It
    cannot write files, change settings, load extensions or use the network. The result is stored in
    a temporary Parquet file, because a query need not return its rows in the same order twice. A
    pickled source runs the query again where it is loaded, and its result may differ.

    Parameters
    ----------
    query : str
        One SELECT statement in DuckDB's dialect.

    Returns
    -------
    Source
        The result of the query.

    Raises
    ------
    TableError
        If the text is not exactly one SELECT statement, the query fails, it returns no rows, or a
        column has a type that Parquet does not have, such as INTERVAL.

    Examples
    --------
    >>> from altbi.io import open_sql
    >>> open_sql("select 1 as a, 'x' as b").schema.names
    ['a', 'b']
    """
    # Imported here, because other tables do not need them.
    from altbi.io._converted import Origin, convert
    from altbi.io._duckdb import DuckDBError, open_duckdb

    try:
        with open_duckdb() as database:
            n_statements, is_select = database.count_statements(query)
            if n_statements != 1 or not is_select:
                raise TableError(
                    f"{NAME}: it is not exactly one SELECT statement. Pass one, such as "
                    "select * from 'folder/*.parquet'."
                )
            database.lock_configuration()
            origin = Origin(NAME, (), "parquet", False, (open_sql, (query,)))
            return convert(origin, _check_batches(database.batches(query)))
    except DuckDBError as error:
        raise TableError(f"{NAME}: {_find_reason(str(error))}. Correct the query.") from error


def _find_reason(message: str) -> str:
    """Return the line of DuckDB's message that states the problem.

    It is the first one. For errors in CSV files, that line has only the line number, so the one
    with the reason and the name of the file follow.
    """
    first, *others = message.splitlines() or [""]
    if "CSV Error on Line" not in first:
        return describe_cause(first)
    lines = [line.strip() for line in others]
    reasons = [line for line in lines if line and not line.startswith("Original Line:")]
    files = [line.partition("=")[2].strip() for line in lines if line.startswith("file = ")]
    found = ": ".join(map(describe_cause, [first, *reasons[:1]]))
    return f"{found} (file {describe_cause(files[-1])})" if files else found


def _check_batches(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield all batches; types and values that Parquet does not have raise a `TableError`.

    Such types are intervals and unions, and such values are integers of more than 38 digits.
    """
    import pyarrow.parquet as pq

    for number, batch in enumerate(batches):
        for field, column in zip(batch.schema, batch.columns, strict=True):
            try:
                if number == 0:
                    pq.ParquetWriter(pa.BufferOutputStream(), pa.schema([field])).close()
                column.validate(full=True)
            except (pa.ArrowNotImplementedError, pa.ArrowInvalid) as cause:
                raise TableError(
                    f"{NAME}: column {quote(field.name)} cannot be stored "
                    f"({describe_cause(cause)}). Cast it in the query, for example to DOUBLE or "
                    "VARCHAR."
                ) from cause
        yield batch
