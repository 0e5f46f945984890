"""The result of an SQL query over files as a table."""

from altbi.errors import TableError
from altbi.io._files import describe_cause
from altbi.io._source import Source

NAME = "the query"


def open_sql(query: str) -> Source:
    """Run one SELECT statement with DuckDB, and return its result as a table.

    The query may read all local files that the user may read, by DuckDB's functions such as
    ``read_csv`` or by names in quotes such as ``'folder/*.parquet'``. It cannot write files, change
    settings, load extensions or use the network. The result is stored in a temporary Parquet file,
    because a query need not return its rows in the same order twice.

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
        If the text is not exactly one SELECT statement, the query fails, or it returns no rows.

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
            return convert(origin, database.batches(query))
    except DuckDBError as error:
        reason = describe_cause(str(error).partition("\n")[0])
        raise TableError(f"{NAME}: {reason}. Correct the query.") from error
