"""Results of SQL queries as tables."""

import pickle

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from table_bytes import cells

from altbi.errors import TableError
from altbi.io import open_sql


def test_query_over_files_is_a_table(tmp_path):
    for index in range(3):
        pq.write_table(pa.table({"a": [index], "b": ["x"]}), tmp_path / f"{index}.parquet")

    source = open_sql(f"select a + 1 as c, b from '{tmp_path}/*.parquet' order by a desc;")

    assert cells(source) == {"c": [3, 2, 1], "b": ["x"] * 3}
    assert (source.name, source.n_rows, source.is_untyped) == ("the query", 3, False)


def test_random_results_stay_the_same():
    source = open_sql("select random() as r from range(100)")
    assert cells(source) == cells(source)


def test_query_is_run_again_after_pickling():
    assert cells(pickle.loads(pickle.dumps(open_sql("select 7 as a")))) == {"a": [7]}


@pytest.mark.parametrize(
    ("query", "words"),
    [
        ("", "not exactly one SELECT"),
        ("select 1; select 2", "not exactly one SELECT"),
        ("copy (select 1) to '{folder}/x.csv'", "not exactly one SELECT"),
        ("create table t as select 1", "not exactly one SELECT"),
        ("set threads = 1", "not exactly one SELECT"),
        ("install httpfs", "not exactly one SELECT"),
        ("selec 1", "syntax error"),
        ("select * from 'none.csv'", "No files found"),
        ("select * from 'https://localhost/x.csv'", "httpfs"),
        ("select 1 where false", "holds no rows"),
        ("select 1 as a, 2 as a", "same name"),
        ("select 'a' + 1", "Binder Error"),
    ],
)
def test_other_queries_raise(tmp_path, query, words):
    with pytest.raises(TableError, match=words) as caught:
        open_sql(query.format(folder=tmp_path))
    assert str(caught.value).startswith("the query: ")
    assert "\n" not in str(caught.value)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("x,y", 'Error when converting column "a". Could not convert string "x" to \'BIGINT\''),
        ("1,2,3", "Expected Number of Columns: 2 Found: 3"),
    ],
)
def test_errors_in_csv_files_have_their_reason(tmp_path, monkeypatch, line, reason):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.csv").write_text("a,b\n" + "1,2\n" * 30_000 + line + "\n")

    with pytest.raises(TableError) as caught:
        open_sql("select * from 'a.csv'")

    expected = f"CSV Error on Line: 30002: {reason} (file a.csv). Correct the query."
    assert str(caught.value).endswith(expected)


@pytest.mark.parametrize(
    "value",
    [
        "interval 1 day",
        "[interval 1 day]",
        "union_value(number := 2)",
        "(10::hugeint ** 37)::hugeint * 11",
        "case when i < 200000 then 0 else 170141183460469231731687303715884105727 end",
    ],
)
def test_values_outside_of_parquet_name_their_column(value):
    with pytest.raises(TableError, match=r"^the query: column 'x' cannot be stored .* Cast it"):
        open_sql(f"select i as a, {value} as x from range(200001) as n(i)")
    assert open_sql(f"select ({value})::varchar as x from range(200001) as n(i)").n_rows == 200_001


def test_locked_query_cannot_change_settings(monkeypatch):
    from altbi.io._duckdb import Database

    monkeypatch.setattr(Database, "count_statements", lambda *_: (1, True))
    with pytest.raises(TableError, match="locked"):
        open_sql("set memory_limit = '1TB'")
