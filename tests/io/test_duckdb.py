"""DuckDB is opened without access to other files, extensions or variables."""

import signal
import sys
import threading
import traceback

import pytest

from altbi.io._duckdb import DuckDBError, _convert_errors, open_duckdb, quote_sql

ENDLESS = (
    "SELECT a.i FROM range(10000000000) a(i), range(10) b(j) WHERE (7 * i + j) % 1000000007 = 5"
)

NAMES = [
    "a[1].csv",
    "it's.csv",
    "*.csv",
    "a?.csv",
    "b{1,2}.csv",
    "back\\slash.csv",
    "~.csv",
    "ü '' x",
]


def describe(path):
    columns = "columns = {'x': 'VARCHAR'}"
    return f"read_csv({path}, auto_detect = false, header = false, {columns})"


def fetch(query, *paths):
    with open_duckdb() as database:
        database.lock(paths)
        return [row for batch in database.batches(query) for row in batch.to_pylist()]


@pytest.mark.parametrize("name", NAMES)
def test_paths_mean_one_file(tmp_path, name):
    for other in ("a1.csv", "ab.csv", "b1.csv", "backslash.csv"):
        (tmp_path / other).write_text("wrong\n")
    (tmp_path / name).write_text("right\n")

    with open_duckdb() as database:
        path = database.quote_path(str(tmp_path / name))
        database.lock([path])
        (batch,) = database.batches(f"SELECT * FROM {describe(path)}")

    assert batch.to_pydict() == {"x": ["right"]}


@pytest.mark.parametrize(
    ("query", "words"),
    [
        ("SELECT * FROM {secret}", "Permission Error"),
        ("SELECT * FROM read_text('{folder}/secret.csv')", "Permission Error"),
        ("SELECT * FROM glob('{folder}/*')", "Permission Error"),
        ("COPY (SELECT 1) TO '{folder}/written.csv'", "Permission Error"),
        ("ATTACH '{folder}/written.db'", "Permission Error"),
        ("INSTALL httpfs", "Permission Error"),
        ("LOAD httpfs", "Permission Error"),
        ("SET enable_external_access = true", "Invalid Input Error"),
        ("SET memory_limit = '1TB'", "locked"),
        ("SELECT * FROM frame", "does not exist"),
    ],
)
def test_everything_else_is_forbidden(tmp_path, query, words):
    frame = __import__("pyarrow").table({"a": [1]})
    assert len(frame) == 1
    (tmp_path / "allowed.csv").write_text("1\n")
    (tmp_path / "secret.csv").write_text("2\n")
    secret = describe(quote_sql(str(tmp_path / "secret.csv")))

    with pytest.raises(DuckDBError, match=words):
        fetch(
            query.format(folder=tmp_path, secret=secret), quote_sql(str(tmp_path / "allowed.csv"))
        )
    assert sorted(path.name for path in tmp_path.iterdir()) == ["allowed.csv", "secret.csv"]


def test_results_keep_their_order():
    rows = fetch("SELECT i FROM range(300000) AS numbers(i)")
    assert [row["i"] for row in rows] == list(range(300_000))


def test_large_rows_have_small_batches():
    with open_duckdb() as database:
        database.lock([])
        query = "SELECT i FROM range(10000) AS numbers(i)"
        assert max(map(len, database.batches(query, row_bytes=1 << 20))) == 2048


def test_too_little_memory_raises_memory_error():
    with open_duckdb() as database:
        database._connection.execute("SET memory_limit = '10MiB'")
        database._connection.execute("SET temp_directory = ''")
        database.lock([])
        query = "SELECT i, repeat('x', 1000) AS t FROM range(1000000) AS n(i) ORDER BY t, i DESC"
        with pytest.raises(MemoryError, match="Out of Memory"):
            list(database.batches(query))


def test_statements_are_counted():
    with open_duckdb() as database:
        assert database.count_statements("select 1; select 2") == (2, True)
        assert database.count_statements("from range(3)") == (1, True)
        assert database.count_statements("create table t (a int)") == (1, False)
        with pytest.raises(DuckDBError, match="Parser Error"):
            database.count_statements("selec 1")


class StopError(BaseException):
    """Raised by the handler of a signal."""


def stop(*_):
    raise StopError


def send_to_query(main, number):
    """Send a signal to the main thread when it waits for a query."""
    names = []
    while "batches" not in names:
        frame = sys._current_frames()[main]
        names = [each.name for each in traceback.extract_stack(frame, limit=8)]
    signal.pthread_kill(main, number)


@pytest.mark.parametrize(
    ("number", "handler", "error"),
    [
        (signal.SIGINT, signal.default_int_handler, KeyboardInterrupt),
        (signal.SIGTERM, stop, StopError),
    ],
)
def test_signals_stop_a_query(number, handler, error):
    before = signal.signal(number, handler)
    sender = threading.Thread(target=send_to_query, args=(threading.main_thread().ident, number))
    sender.start()
    try:
        with pytest.raises(error):
            fetch(ENDLESS)
    finally:
        signal.signal(number, before)
    sender.join()


@pytest.mark.parametrize(
    "name",
    [
        "autoinstall_known_extensions",
        "autoload_known_extensions",
        "allow_community_extensions",
        "allow_unsigned_extensions",
        "allow_persistent_secrets",
        "python_enable_replacements",
        "python_scan_all_frames",
    ],
)
def test_unsafe_settings_are_off(name):
    (row,) = fetch(f"SELECT current_setting('{name}') AS value")
    assert str(row["value"]).lower() == "false"


def test_spilled_rows_are_in_the_private_folder():
    with open_duckdb() as database:
        database.lock([])
        (batch,) = database.batches("SELECT current_setting('temp_directory') AS value")
        assert batch.to_pydict() == {"value": [str(database._folder / "spilled")]}


@pytest.mark.parametrize("letter", ["*", "?", "[", "\\"])
def test_special_letters_are_never_passed_on(letter):
    with open_duckdb() as database:
        assert letter not in database.quote_path(f"/a{letter}b")


def test_errors_of_the_system_are_unchanged():
    with pytest.raises(FileNotFoundError), _convert_errors():
        raise FileNotFoundError(2, "No such file")
    with pytest.raises(DuckDBError), _convert_errors():
        raise OSError("INTERNAL Error")
    with pytest.raises(MemoryError, match="Out of Memory Error: x"), _convert_errors():
        raise OSError("Out of Memory Error: x")
