"""TextFormat and writing beside other work: in order, at the same time, and no error is lost."""

import threading

import pyarrow as pa
import pytest

from altbi.io import prefetch, write_in_background
from altbi.io._writers import TableWriter

PATIENCE = 30


def tables(count):
    return [pa.table({"x": [number]}) for number in range(count)]


class Kept(TableWriter):
    def __init__(self, before=lambda table: None):
        self.before = before
        self.tables = []

    def write(self, table):
        self.before(table)
        self.tables.append(table)

    def close(self):
        raise AssertionError("whoever opened the sink closes it")


def test_the_next_item_is_made_while_one_is_in_hand():
    made = threading.Event()

    def items():
        yield "first"
        made.set()
        yield "second"

    found = prefetch(items())
    assert next(found) == "first"
    assert made.wait(PATIENCE)
    assert list(found) == ["second"]


def test_what_goes_wrong_is_raised_after_the_items_before_it():
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


def test_reading_ends_when_nobody_wants_more():
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


def test_a_table_is_written_while_the_next_one_is_made():
    written, may_go_on = [], threading.Event()

    def slowly(table):
        assert may_go_on.wait(PATIENCE)
        written.append(table)

    sink = Kept(slowly)
    with write_in_background(sink) as writer:
        writer.write(tables(1)[0])
        assert not written  # this line runs while the table waits to be written
        may_go_on.set()
    assert sink.tables == tables(1)


def test_all_tables_are_written_in_order_when_the_block_ends():
    sink = Kept()

    with write_in_background(sink) as writer:
        for table in tables(20):
            writer.write(table)

    assert sink.tables == tables(20)


@pytest.mark.parametrize("at", [0, 4])
def test_a_table_that_cannot_be_written_is_an_error(at):
    def full(table):
        if table["x"][0].as_py() == at:
            raise OSError("no space left")

    def write_all(sink):
        with write_in_background(sink) as writer:
            for table in tables(5):
                writer.write(table)

    sink = Kept(full)
    with pytest.raises(OSError, match="no space left"):
        write_all(sink)
    assert sink.tables == tables(at)
