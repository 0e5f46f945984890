"""Reading ahead, tables in memory, and lists of names."""

import threading

import numpy as np
import pandas as pd
import pytest

from altbi.errors import TableError
from altbi.io import format_names, open_in_memory, prefetch

TIMEOUT = 30


def test_prefetch_computes_the_next_item_early():
    made = threading.Event()

    def items():
        yield "first"
        made.set()
        yield "second"

    found = prefetch(items())
    assert next(found) == "first"
    assert made.wait(TIMEOUT)
    assert list(found) == ["second"]


def test_prefetch_raises_after_the_items_before():
    def items():
        yield 1
        yield 2
        raise OSError("the disk is gone")

    seen = []
    with pytest.raises(OSError, match="the disk is gone"):
        seen.extend(prefetch(items()))
    found = prefetch(items())
    assert [next(found), next(found)] == [1, 2]
    found.close()


def test_prefetch_stops_with_its_consumer():
    closed = []

    def items():
        try:
            yield from range(10)
        finally:
            closed.append(threading.current_thread())

    source = items()
    for item in prefetch(source):
        if item == 3:
            break
    source.close()
    assert closed


@pytest.mark.parametrize("table", [np.eye(2), pd.DataFrame({"x0": [1.0, 0], "x1": [0.0, 1]})])
def test_tables_in_memory_are_sources(table):
    source = open_in_memory(table)

    (batch,) = source.batches(["x1", "x0"])

    assert (source.n_rows, source.schema.names) == (2, ["x0", "x1"])
    assert batch.to_pydict() == {"x1": [0.0, 1.0], "x0": [1.0, 0.0]}


def test_vector_is_not_a_table_in_memory():
    with pytest.raises(TableError, match="got a ndarray with 1 dimension"):
        open_in_memory(np.ones(3))


def test_long_lists_of_names_are_shortened():
    names = [f"c{number}" for number in range(12)]
    assert format_names(names[:2]) == "'c0', 'c1'"
    assert format_names(names).endswith("'c9', … (12 in all)")
