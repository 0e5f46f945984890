import math
from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.feather
import pyarrow.parquet
import pytest

import altbi
from altbi.duplicates import _check, _hashes, build_duplicates_table, find_duplicates
from altbi.duplicates._hashes import hash_texts
from altbi.io import ColumnSelection, build_typed_parser, open_in_memory, open_table, select_columns
from altbi.pipeline import Pipeline
from small_tables import fast_settings, write_csv, write_json_lines

N_ROWS = 2_000
FAST = altbi.Schedule(T0=1, T1=1, T2=2)


def create_columns(seed=0, n_rows=N_ROWS):
    """Return columns of all kinds in which no two rows are equal by chance."""
    rng = np.random.default_rng(seed)
    return {
        "amount": rng.normal(100, 20, n_rows),
        "weight": rng.normal(size=n_rows),
        "colour": rng.choice(["red", "green", "blue"], n_rows).astype(object),
        "day": np.datetime64("2024-01-01", "us") + rng.integers(0, 10**13, n_rows),
        "code": [f"code {number}" for number in rng.integers(0, 500, n_rows)],
    }


def copy_row(columns, source, target, **changes):
    for name, values in columns.items():
        values[target] = changes.get(name, values[source])


def check(columns, *, ids=(), identifiers=(), **options):
    """Return the duplicates of a table; `identifiers` are features with this role."""
    table = pa.table({name: pa.array(list(values)) for name, values in columns.items()})
    source = open_in_memory(table)
    selected = select_columns(source, ColumnSelection(ids=tuple(ids)))
    parser = build_typed_parser(source, selected.features, ())
    role = SimpleNamespace(role="identifier", duplicate_of=None)
    roles = [
        SimpleNamespace(role=role if name in identifiers else None) for name in selected.features
    ]
    return find_duplicates(source, parser, selected, tuple(roles), len(table), **options)


def list_groups(duplicates):
    return [(group.kind, group.column, group.rows) for group in duplicates.groups]


def test_equal_rows_are_one_group():
    columns = create_columns()
    copy_row(columns, 7, 900)
    copy_row(columns, 7, 1500)
    copy_row(columns, 30, 31)

    found = check(columns)

    assert list_groups(found) == [("same row", "", (7, 900, 1500)), ("same row", "", (30, 31))]
    assert found.groups[0].values[0].startswith("amount ")
    assert found.n_rows == 5


def test_missing_values_are_equal():
    columns = create_columns()
    columns["weight"] = [
        None if row in (7, 9) else value for row, value in enumerate(columns["weight"])
    ]
    copy_row(columns, 7, 9)
    columns["amount"][11], columns["amount"][12] = np.nan, np.nan
    copy_row(columns, 11, 12)

    assert [group.rows for group in check(columns).groups] == [(7, 9), (11, 12)]


def test_new_identifiers_do_not_hide_copies():
    columns = create_columns() | {
        "key": list(range(N_ROWS)),
        "hash": [f"{row:x}" for row in range(N_ROWS)],
    }
    copy_row(columns, 7, 900, key=900, hash="384")

    found = check(columns, ids=("key",), identifiers=("hash",))

    assert list_groups(found) == [("same row", "", (7, 900))]
    assert found.groups[0].ids == (("7",), ("900",))


def test_shared_identifier_is_named_with_equal_rows():
    columns = create_columns() | {"key": list(range(N_ROWS))}
    copy_row(columns, 7, 900)

    assert list_groups(check(columns, ids=("key",))) == [("same row", "key", (7, 900))]


def test_one_differing_column_is_named():
    columns = create_columns()
    copy_row(columns, 7, 900, amount=1.5)
    copy_row(columns, 8, 901, code="other")

    found = check(columns)

    kind = "same row but one column"
    assert list_groups(found) == [(kind, "amount", (7, 900)), (kind, "code", (8, 901))]
    assert found.groups[1].values == (columns["code"][8], "other")


@pytest.mark.parametrize("role", ["id", "identifier"])
def test_repeated_identifiers_are_listed(role):
    columns = create_columns() | {"key": [f"k{row}" for row in range(N_ROWS)]}
    columns["key"][900] = "k7"
    options = {"ids": ("key",)} if role == "id" else {"identifiers": ("key",)}

    found = check(columns, **options)

    assert list_groups(found) == [("identifier repeats", "key", (7, 900))]
    assert found.groups[0].values == ("k7", "k7")


def test_missing_identifiers_do_not_repeat():
    columns = create_columns() | {"key": [f"k{row}" for row in range(N_ROWS)]}
    columns["key"][3:9] = [None, "", None, "", "", None]

    assert check(columns, ids=("key",)).groups == ()


def test_ids_without_a_text_are_named():
    columns = create_columns() | {"key": [[1]] * N_ROWS}

    assert "'key' has no values that could repeat." in check(columns, ids=("key",)).sentences


@pytest.mark.parametrize("values", [[b"a", b"b"], [1, 2], [1.5, 2.5]])
def test_ids_of_all_types_are_compared(values):
    columns = create_columns() | {"key": [None] * N_ROWS}
    columns["key"][3], columns["key"][4], columns["key"][900] = (*values, values[0])

    assert list_groups(check(columns, ids=("key",))) == [("identifier repeats", "key", (3, 900))]


def test_columns_that_repeat_often_do_not_identify():
    columns = create_columns() | {"customer": [f"c{row // 5}" for row in range(N_ROWS)]}

    found = check(columns, ids=("customer",))

    assert found.groups == ()
    assert any("'customer' are not listed" in text and "100%" in text for text in found.sentences)


@pytest.mark.parametrize("seed", range(5))
def test_equal_rows_by_chance_are_not_listed(seed):
    rng = np.random.default_rng(seed)
    columns = {name: rng.choice(list("abcdefgh"), N_ROWS) for name in ("x", "y", "z", "u")}

    found = check(columns)

    assert found.groups == ()
    assert any("expected by chance" in text for text in found.sentences)


def test_expected_pairs_agree_with_chance():
    rng = np.random.default_rng(0)
    columns = {name: rng.integers(0, 20, N_ROWS) for name in ("x", "y", "z")}

    (text,) = [text for text in check(columns).sentences if "pairs of equal rows" in text]

    expected = N_ROWS * (N_ROWS - 1) / 2 / 20**3
    number = float(text.partition("about ")[2].split()[0])
    assert expected / 2 < number < expected * 2


def test_dependent_columns_do_not_hide_chance():
    # Each customer has a fixed value in six columns: rows of a customer agree in all of them.
    rng = np.random.default_rng(0)
    customers, properties = rng.integers(0, 300, N_ROWS), rng.normal(size=(300, 6))
    columns = {f"p{number}": properties[customers, number] for number in range(6)}
    columns["item"] = rng.choice(list("abcdefghij"), N_ROWS)

    assert check(columns).groups == ()


def test_table_that_was_appended_twice_is_listed():
    columns = {name: np.tile(values, 2) for name, values in create_columns(n_rows=500).items()}

    assert list_groups(check(columns)) == [("same row", "", (row, row + 500)) for row in range(500)]


def test_large_integers_are_compared_exactly():
    columns = create_columns() | {"big": [2**60 + 2 * row for row in range(N_ROWS)]}
    copy_row(columns, 7, 900, big=columns["big"][7] + 1)  # equal as float64
    copy_row(columns, 8, 901)

    assert [group.rows for group in check(columns).groups if group.kind == "same row"] == [(8, 901)]


def test_equal_hashes_of_other_values_do_not_count(monkeypatch):
    first, second = "x" * 20 + "a", "x" * 20 + "b"
    hash_distinct = _hashes._hash_distinct
    monkeypatch.setattr(
        _hashes,
        "_hash_distinct",
        lambda texts: hash_distinct(pc.replace_substring(texts, second, first)),
    )
    columns = create_columns()
    columns["code"] = [f"{row:0500}" for row in range(N_ROWS)]
    copy_row(columns, 7, 900, code=second)
    columns["code"][7] = first
    copy_row(columns, 8, 901)

    assert len(set(hash_texts(pa.array([first, second])).tolist())) == 1
    assert list_groups(check(columns)) == [("same row", "", (8, 901))]


def test_large_numbers_of_text_files_are_compared_exactly(tmp_path):
    columns = create_columns()
    columns["day"] = [str(day) for day in columns["day"]]
    columns["account"] = [10**17 + 7 * (row % 600) for row in range(N_ROWS)]
    copy_row(columns, 7, 900, account=columns["account"][7] + 1)
    copy_row(columns, 8, 901)
    path = tmp_path / "t.csv"
    write_csv(pa.table({name: list(values) for name, values in columns.items()}), path)

    detection = altbi.detect(path, detector=altbi.OutlierDetector(schedule=FAST))
    groups = detection.duplicates().to_pylist()

    assert [(each["kind"], each["row"]) for each in groups] == [
        ("same row", 8),
        ("same row", 901),
        ("same row but one column", 7),
        ("same row but one column", 900),
    ]


def test_missing_float_ids_do_not_repeat():
    columns = create_columns()
    columns["number"] = [math.nan] * 50 + [row + 0.5 for row in range(N_ROWS - 50)]

    assert list_groups(check(columns, ids=("number",))) == []


def test_very_wide_tables_say_what_is_not_searched(monkeypatch):
    monkeypatch.setattr(_check, "MAX_NEAR_COLUMNS", 2)
    columns = create_columns()
    copy_row(columns, 7, 900)

    found = check(columns)

    assert [group.rows for group in found.groups] == [(7, 900)]
    assert "more than 2 columns" in " ".join(found.sentences)


def test_only_the_first_rows_are_checked():
    columns = create_columns()
    copy_row(columns, 7, 900)
    copy_row(columns, 8, 1_500)

    found = check(columns, limit=1_000)

    assert [group.rows for group in found.groups] == [(7, 900)]
    assert "The first 1,000 of 2,000 rows were checked." in found.sentences
    assert check(columns, limit=0).sentences == ("Duplicates were not searched.",)


def test_wide_tables_have_fewer_checked_rows(monkeypatch):
    monkeypatch.setattr(_check, "MAX_VALUES", 5 * 1_000)
    columns = create_columns()
    copy_row(columns, 8, 1_500)

    found = check(columns)

    assert found.groups == ()
    assert "The first 1,000 of 2,000 rows were checked." in found.sentences


def test_long_lists_are_cut_and_counted(monkeypatch):
    monkeypatch.setattr(_check, "MAX_LISTED", 5)
    columns = {name: np.tile(values, 2) for name, values in create_columns(n_rows=500).items()}

    found = check(columns)

    assert [group.rows for group in found.groups] == [(0, 500), (1, 501), (2, 502)]
    assert "same row: 6 of 1,000 rows are listed." in found.sentences


def test_table_has_a_record_for_each_row():
    columns = create_columns() | {"key": [f"k{row}" for row in range(N_ROWS)]}
    columns["key"][900] = "k7"

    table = build_duplicates_table(check(columns, ids=("key",)), ("key",))

    assert table.to_pylist() == [
        {
            "group": 1,
            "kind": "identifier repeats",
            "column": "key",
            "size": 2,
            "row": row,
            "id_key": "k7",
            "value": "k7",
        }
        for row in (7, 900)
    ]


@pytest.mark.parametrize("format_", ["csv", "jsonl", "parquet", "chunks", "arrow"])
def test_all_formats_have_the_same_duplicates(tmp_path, format_):
    columns = create_columns(n_rows=600) | {"key": [f"k{row:04}" for row in range(600)]}
    columns["amount"] = columns["amount"].round(3)
    copy_row(columns, 7, 500, key="k0500")
    copy_row(columns, 8, 501, key="k0501", amount=1.5)
    columns["key"][20] = "k0021"
    table = pa.table({name: pa.array(list(values)) for name, values in columns.items()})
    path = tmp_path / "table"
    write = {
        "csv": write_csv,
        "jsonl": write_json_lines,
        "parquet": pyarrow.parquet.write_table,
        "chunks": lambda table, path: pyarrow.parquet.write_table(table, path, row_group_size=7),
        "arrow": lambda table, path: pyarrow.feather.write_feather(table, str(path)),
    }
    write[format_](table, path)

    pipeline = Pipeline(open_table(path), ColumnSelection(ids=("key",)))
    prepared = pipeline.fit(fast_settings())
    summary = pipeline.summarize(prepared, *score_and_explain(pipeline, prepared))
    found = pipeline.add_duplicates(summary, prepared).duplicates

    assert list_groups(found) == [
        ("same row", "", (7, 500)),
        ("same row but one column", "amount", (8, 501)),
        ("identifier repeats", "key", (20, 21)),
    ]


def score_and_explain(pipeline, prepared):
    scored = pipeline.score(prepared)
    return scored, pipeline.explain_top(prepared, scored)
