import csv
import io
import json
import re

import pytest

import altbi
from altbi.cli import main
from small_tables import fast_altbi

FORMULA = "=1+1"


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """Return a folder with a table that has two wrong cells, and models of it."""
    folder = tmp_path_factory.mktemp("home")
    cities = ["Leeds", "York", "Birmingham"] * 60
    cities[17], cities[40] = "Birminghm", FORMULA
    rows = [f"k{i},{city},{i % 7}" for i, city in enumerate(cities)]
    (folder / "towns.csv").write_text("\n".join(["key,city,floor", *rows]) + "\n")
    altbi.OutlierDetector().fit(_features(folder)).save(folder / "towns.altbi")
    fast_altbi().fit(_features(folder)).save(folder / "loss.altbi")
    return folder


def _features(folder):
    import pyarrow.csv

    return pyarrow.csv.read_csv(folder / "towns.csv").drop(["key"])


@pytest.fixture
def folder(tmp_path, home, monkeypatch):
    for path in home.iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    monkeypatch.chdir(tmp_path)
    return tmp_path


def read_cells(text):
    return list(csv.DictReader(io.StringIO(text)))


def test_cells_writes_a_file_and_prints_it(folder, capsys):
    assert main(["cells", "towns.csv", "--id", "key"]) == 0

    out, err = capsys.readouterr()
    assert err == ""
    lines = " ".join(out.split())
    assert "towns.csv: 180 rows x 2 columns = 360 cells were searched." in lines
    assert "17 " in lines
    assert "looks like 'Birmingham' (59 rows)" in lines
    assert "(key k17)" in lines
    assert max(map(len, out.splitlines())) <= 100
    cells = read_cells((folder / "towns-cells.csv").read_text())
    assert list(cells[0]) == ["row", "id_key", "column", "value", "expected", "note", "score"]
    typo = next(cell for cell in cells if cell["row"] == "17")
    assert (typo["column"], typo["value"], typo["expected"]) == ("city", "Birminghm", "Birmingham")
    assert len(list(folder.iterdir())) == 4


@pytest.mark.parametrize(("options", "value"), [([], "'" + FORMULA), (["--raw"], FORMULA)])
def test_formulas_are_quoted_unless_raw(folder, capsys, options, value):
    assert main(["cells", "towns.csv", "-m", "towns.altbi", "-o", "-", *options]) == 0

    out, err = capsys.readouterr()
    assert next(cell["value"] for cell in read_cells(out) if cell["row"] == "40") == value
    assert "does not use the columns 'key'" in err.replace("[", "").replace("]", "")


def test_cells_of_a_model_and_a_fit_are_equal(folder, capsys):
    assert main(["cells", "towns.csv", "--exclude", "key", "-o", "a.csv", "-q"]) == 0
    assert main(["cells", "towns.csv", "-m", "towns.altbi", "-o", "b.csv", "-q"]) == 0

    assert capsys.readouterr().out == ""
    assert (folder / "a.csv").read_bytes() == (folder / "b.csv").read_bytes()


def test_cells_prints_json(folder, capsys):
    options = ["--exclude", "key", "--top", "2", "--json", "-o", "cells.jsonl"]
    assert main(["cells", "towns.csv", *options]) == 0

    facts = json.loads(capsys.readouterr().out)
    assert (facts["rows"], facts["columns"], facts["cells"], facts["listed"]) == (180, 2, 360, 2)
    assert {cell["row"] for cell in facts["top"]} == {17, 40}
    written = [json.loads(line) for line in (folder / "cells.jsonl").read_text().splitlines()]
    assert written == facts["top"]
    assert facts["files"] == ["cells.jsonl"]


def test_query_is_searched(folder, capsys):
    query = "select city from 'towns.csv'"
    assert main(["cells", "--sql", query, "-m", "towns.altbi", "--quiet"]) == 1
    assert "floor" in capsys.readouterr().err
    assert main(["cells", "--sql", query, "--quiet"]) == 0
    assert (folder / "query-cells.csv").exists()


def test_models_by_loss_are_refused(folder, capsys):
    before = sorted(folder.iterdir())

    assert main(["cells", "towns.csv", "-m", "loss.altbi"]) == 1

    assert re.search("by loss.* Fit an OutlierDetector", capsys.readouterr().err)
    assert sorted(folder.iterdir()) == before


def test_earlier_file_survives_an_error(folder, capsys):
    (folder / "towns-cells.csv").write_text("before")

    assert main(["cells", "towns.csv", "-m", "missing.altbi"]) == 1

    assert "missing.altbi" in capsys.readouterr().err
    assert (folder / "towns-cells.csv").read_text() == "before"
    assert not [path for path in folder.iterdir() if path.name.endswith(".part")]


def test_roles_are_stated_for_a_fit_only(folder, capsys):
    assert main(["cells", "towns.csv", "--as", "text:city,identifier:key", "-q"]) == 0
    assert "city" not in (folder / "towns-cells.csv").read_text()

    with pytest.raises(SystemExit) as stopped:
        main(["cells", "towns.csv", "--as", "text:city", "-m", "towns.altbi"])
    assert stopped.value.code == 2
    assert "--as is for a fit" in capsys.readouterr().err
