import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest
from threadpoolctl import threadpool_limits

import altbi
from altbi.errors import ParameterError, TableError
from altbi.io import open_in_memory
from small_tables import fast_altbi, write_csv

N_ROWS = 400


def build_table():
    """Return a table with one wrong cell in each column but the first."""
    rng = np.random.default_rng(0)
    places = np.array(["Leeds", "York", "Birmingham", "Bath"])[rng.integers(0, 4, N_ROWS)]
    codes = {"Leeds": "LS", "York": "YO", "Birmingham": "BB", "Bath": "BA"}
    columns = {
        "key": [f"k{i:04}" for i in range(N_ROWS)],
        "city": places.tolist(),
        "area": [codes[place] for place in places],
        "size": rng.normal(10, 1, N_ROWS).round(3).tolist(),
        "paid": (rng.random(N_ROWS) < 0.5).tolist(),
        "day": (np.datetime64("2024-01-01", "D") + np.arange(N_ROWS) % 365).tolist(),
    }
    columns["city"][17] = "Birminghm"
    columns["area"][30] = "YO" if columns["city"][30] != "York" else "LS"
    columns["size"][44] = 900.0
    columns["size"][45] = 60.0
    columns["day"][60] = columns["day"][60].replace(year=1900)
    return pa.table(columns)


@pytest.fixture(scope="module")
def table():
    return build_table()


@pytest.fixture(scope="module")
def model(table):
    return altbi.OutlierDetector().fit(table.drop(["key"])).model_


@pytest.fixture(scope="module")
def found(table, model):
    return altbi.find_cells(table, model=model, id="key")


def read_cell(found, row, column):
    cells = [r for r in found.table.to_pylist() if (r["row"], r["column"]) == (row, column)]
    assert len(cells) == 1
    return cells[0]


def test_wrong_cells_are_first(found):
    cells = found.table.slice(0, 5).to_pylist()

    assert {(cell["row"], cell["column"]) for cell in cells} >= {
        (17, "city"), (44, "size"), (45, "size"), (60, "day"),
    }  # fmt: skip
    scores = found.table["score"].to_numpy()
    assert (np.diff(scores) <= 0).all()
    assert scores.min() >= 1
    assert (found.n_rows, found.n_columns, found.n_cells) == (N_ROWS, 5, 5 * N_ROWS)


def test_cells_have_ids_and_original_values(found, table):
    names = ["row", "id_key", "column", "value", "expected", "note", "score"]
    assert found.table.column_names == names
    cell = read_cell(found, 60, "day")
    assert cell["id_key"] == "k0060"
    assert cell["value"] == table["day"][60].as_py().isoformat()


def test_typos_have_the_expected_value(found, table):
    n_rows = table["city"].to_pylist().count("Birmingham")
    cell = read_cell(found, 17, "city")

    assert cell["expected"] == "Birmingham"
    assert cell["note"] in (
        f"looks like 'Birmingham' ({n_rows} rows)",
        f"usually 'Birmingham' where area is 'BB' ({n_rows} rows)",
    )


def test_broken_pairs_name_the_usual_partner(found, table):
    city = table["city"][30].as_py()
    cell = read_cell(found, 30, "area")

    assert cell["note"].startswith(f"usually {cell['expected']!r} where city is {city!r} (")
    assert cell["expected"] not in ("", cell["value"])


def test_extreme_numbers_do_not_tie(found):
    far, near = read_cell(found, 44, "size"), read_cell(found, 45, "size")

    assert far["score"] > near["score"]
    low, high = map(float, far["note"].removeprefix("usual: ").split(" to "))
    assert 7 < low < 8.5 < 11.5 < high < 13
    low, high = map(float, far["expected"].split(" to "))
    assert 6 < low < high < 14


def test_missing_cells_expect_a_value(model, table):
    missing = table.slice(0, 50).to_pydict()
    missing["city"][3] = missing["size"][4] = None

    cells = altbi.find_cells(pa.table(missing, table.schema), model=model, exclude="key")

    cell = read_cell(cells, 3, "city")
    assert (cell["value"], cell["note"]) == ("", "expected a value")
    assert cell["expected"] in {"Leeds", "York", "Birmingham", "Bath"}
    assert read_cell(cells, 4, "size")["note"] == "expected a value"


@pytest.mark.parametrize("limit", [1, 7, 1000])
@pytest.mark.parametrize("n_threads", [1, 2])
def test_cells_do_not_depend_on_chunks_and_threads(table, model, found, limit, n_threads, tmp_path):
    path = tmp_path / "table.parquet"
    pyarrow.parquet.write_table(table, path, row_group_size=37)

    with threadpool_limits(n_threads):
        other = altbi.find_cells(path, model=model, id="key", top=limit)

    assert other.table.equals(found.table.slice(0, limit))


def test_fit_and_model_give_equal_cells(table, found, tmp_path):
    path = tmp_path / "table.csv"
    write_csv(table, path)

    cells = altbi.find_cells(path, exclude="key")

    assert cells.table["score"].to_pylist()[:5] == found.table["score"].to_pylist()[:5]
    read = altbi.find_cells(altbi.open_table(path), exclude=("key",), top=5)
    assert read.table.equals(cells.table.slice(0, 5))


def test_columns_are_selected(table):
    cells = altbi.find_cells(table, columns=["city", "size"])

    assert set(cells.table["column"].to_pylist()) == {"city", "size"}
    assert cells.n_columns == 2


def test_regular_tables_have_no_wrong_cells():
    regular = pa.table({"a": ["x", "y"] * 100, "b": ["1a", "2b"] * 100})

    cells = altbi.find_cells(regular, id="b")

    assert len(cells.table) == 0
    assert cells.table.schema.names == [
        "row",
        "id_b",
        "column",
        "value",
        "expected",
        "note",
        "score",
    ]


def test_arrays_name_their_columns_by_position():
    values = np.random.default_rng(0).normal(size=(200, 2))
    values[5, 1] = 60

    cell = altbi.find_cells(values).table.to_pylist()[0]

    assert (cell["row"], cell["column"], cell["value"]) == (5, "x1", "60")


def test_many_numbers_have_scores_beyond_the_usual_range():
    values = np.random.default_rng(0).normal(size=(300, 110))
    values[5, 100] = 60

    cells = altbi.find_cells(values).table.to_pylist()

    assert (cells[0]["row"], cells[0]["column"]) == (5, "x100")
    assert cells[0]["note"].startswith("usual: ")
    assert min(abs(float(cell["value"])) for cell in cells) > 2


def test_invalid_options_are_refused(table, model):
    with pytest.raises(ParameterError, match="top=0"):
        altbi.find_cells(table, model=model, top=0)
    with pytest.raises(TableError, match="'area'"):
        altbi.find_cells(table.drop(["area"]), model=model)


def test_models_by_loss_are_refused_before_reading():
    loss = fast_altbi().fit(np.random.default_rng(0).normal(size=(50, 2))).model_
    source = open_in_memory(pa.table({"a": [1.0], "b": [2.0]}))
    source.batches = None

    with pytest.raises(ParameterError, match="Fit an OutlierDetector"):
        altbi.find_cells(source, model=loss)


def test_roles_are_stated_for_a_fit_only(table, model):
    with pytest.raises(ParameterError, match="keeps the roles"):
        altbi.find_cells(table, model=model, column_roles={"city": "text"})
    cells = altbi.find_cells(table, exclude="key", column_roles={"city": "text"}, top=5000)
    assert "city" not in cells.table["column"].to_pylist()
    assert "size" in cells.table["column"].to_pylist()


def test_path_of_a_model_is_refused_with_advice(table):
    with pytest.raises(ParameterError, match=r"Read a file with altbi\.load"):
        altbi.find_cells(table, model="m.altbi")


def test_stated_codes_of_a_file_keep_leading_zeros(tmp_path):
    lines = [f"0{1000 + number % 9},city {number % 9}" for number in range(300)]
    path = tmp_path / "t.csv"
    path.write_text("\n".join(["code,city", *lines, "1003,city 3"]), encoding="utf-8")

    (cell,) = altbi.find_cells(path, column_roles={"code": "category"}).table.to_pylist()

    assert (cell["row"], cell["value"], cell["expected"]) == (300, "1003", "01003")


def test_broken_patterns_of_missing_values_are_described():
    columns = {"reason": ["late", None] * 200, "days": [3.0, None] * 200}
    columns["reason"].append("late")
    columns["days"].append(None)

    first = altbi.find_cells(pa.table(columns)).table.to_pylist()[0]

    assert first["row"] == 400
    assert "given what else is missing here" in first["note"]
