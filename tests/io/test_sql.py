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
