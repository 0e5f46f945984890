"""The way in: anything with rows and columns becomes a table."""

from collections import Counter
from collections.abc import Sequence

from altbi.errors import ParameterError, TableError
from altbi.table._arrays import as_matrix
from altbi.table._arrow import as_arrow
from altbi.table._table import Table

__all__ = ["as_table", "is_frame"]


def is_frame(X: object) -> bool:
    """Tell whether the input's columns have names and types of their own; arrays have not."""
    streams = hasattr(X, "__arrow_c_stream__") or hasattr(X, "__arrow_c_array__")
    return isinstance(X, Table) or streams or (hasattr(X, "iloc") and hasattr(X, "columns"))


def as_table(X: object, names: Sequence[str] | None = None) -> Table:
    """Turn an array, a data frame or an Arrow table into a table; a table passes through.

    Parameters
    ----------
    X : array, pandas or polars frame, pyarrow.Table or RecordBatch, or a `Table`
        Anything else with ``__arrow_c_stream__`` will do, too.
    names : sequence of str, default=None
        Names for the columns of an array; everything else brings its own.

    Raises
    ------
    TableError
        If there are no rows, no columns, columns of the same name, or columns that hold neither
        numbers, booleans, dates nor text.

    Examples
    --------
    >>> as_table([[1.0, 2.0], [3.0, 4.0]], names=["width", "height"]).names
    ('width', 'height')
    """
    if not is_frame(X):
        table: Table = as_matrix(X, names)
    elif names is not None:
        raise ParameterError(
            f"names is for arrays only, but the input is a {type(X).__name__} with names of its "
            "own. Rename its columns instead."
        )
    else:
        table = X if isinstance(X, Table) else as_arrow(X)
    _check(table)
    return table


def _check(table: Table) -> None:
    """Refuse what no detector could learn from or speak about."""
    if not len(table) or not table.names:
        raise TableError(
            f"The table has {len(table)} row(s) and {len(table.names)} column(s), "
            "but expected at least one of each. Check how it was read or filtered."
        )
    if len(set(table.names)) < len(table.names):
        twice = [name for name, count in Counter(table.names).items() if count > 1]
        raise TableError(
            f"The column names {twice} occur more than once, but expected each name once. "
            "Rename or drop columns."
        )
