import csv
import gzip
import io
import json
import re
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
import pytest

import altbi
from altbi import OutlierDetector
from altbi._threads import count_threads, limit_threads
from altbi.cli import _commands, main
from altbi.model._file import read_model
from small_tables import fast_altbi, fast_settings

PROGRAM = [sys.executable, "-c", "import sys; from altbi.cli import main; sys.exit(main())"]
SCORE = ["score", "sizes.csv", "-m", "sizes.altbi"]
EXPLAIN = ["explain", "sizes.csv", "-m", "sizes.altbi"]


@pytest.fixture(scope="module")
def table():
    rng = np.random.default_rng(0)
    size = rng.normal(size=300)
    size[17] = 40.0
    return pa.table(
        {
            "key": [f"{i:03}" for i in range(300)],
            "size": size,
            "weight": rng.normal(size=300),
            "bad": (np.arange(300) == 17).astype(int),
        }
    )


@pytest.fixture(scope="module")
def home(tmp_path_factory, table):
    """Return a folder with the table as CSV and models of it."""
    folder = tmp_path_factory.mktemp("home")
    pyarrow.csv.write_csv(table, folder / "sizes.csv")
    features = table.select(["size", "weight"])
    OutlierDetector().fit(features).save(folder / "sizes.altbi")
    fast_altbi().fit(features).save(folder / "loss.altbi")
    return folder


@pytest.fixture(scope="module")
def scores(table, home):
    return altbi.load(home / "sizes.altbi").score(table.select(["size", "weight"])).tolist()


@pytest.fixture
def folder(tmp_path, home, monkeypatch):
    """Work in a new folder with the table and its models."""
    for path in home.iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def fast(monkeypatch):
    """Train a small network in a few steps, whatever the options."""
    monkeypatch.setattr(_commands, "read_settings", lambda *_: fast_settings())


def names_in(folder):
    return sorted(path.name for path in folder.iterdir())


def read_scores(text):
    return [float(record["score"]) for record in csv.DictReader(io.StringIO(text))]


@pytest.mark.slow
def test_detect_writes_a_folder_and_prints_it(folder, capsys, scores):
    code = main(["detect", "sizes.csv", "--id", "key", "--label", "bad"])

    out, err = capsys.readouterr()
    assert (code, err) == (0, "")
    assert names_in(folder / "sizes-altbi") == [
        "duplicates.csv", "model.altbi", "reasons.csv", "report.html", "scores.csv",
    ]  # fmt: skip
    text = (folder / "sizes-altbi" / "scores.csv").read_text()
    records = list(csv.DictReader(io.StringIO(text)))
    assert list(records[0]) == ["row", "key", "score", "outlier"]
    assert [record["key"] for record in records] == [f"{i:03}" for i in range(300)]
    assert read_scores(text) == scores
    words = " ".join(out.split())
    assert "sizes.csv: 300 rows, 2 columns; trained on 300 rows" in words
    assert "AUC 1.0000, average precision 1.0000" in words
    assert re.search(r"17 +[0-9.]+ \*  size +40 ", out)
    assert "(key 017)" in out
    assert "sizes-altbi/report.html" in out
    assert max(map(len, out.splitlines())) <= 100
    page = (folder / "sizes-altbi" / "report.html").read_text()
    assert "altbi detect sizes.csv --id key --label bad" in page


def test_detect_prints_json(folder, capsys, fast):
    options = ["--exclude", "key,bad", "--json", "-o", "a/b", "--no-report"]
    assert main(["detect", "sizes.csv", *options]) == 0

    facts = json.loads(capsys.readouterr().out)
    assert (facts["rows"], facts["sample"]) == (300, 300)
    assert {column["name"] for column in facts["columns"]} == {"size", "weight"}
    assert facts["top"][0]["number"] == 17
    assert facts["score_by"] == "distance"
    assert facts["top"][0]["reasons"][0]["column"] == "size"
    assert len(facts["top"][0]["reasons"][0]["nearest"]) == 3
    assert facts["command"] == "altbi detect sizes.csv --exclude key,bad --json -o a/b --no-report"
    assert [Path(file).is_file() for file in facts["files"]] == [True] * 4


@pytest.mark.parametrize("format_", ["parquet", "arrow", "jsonl"])
def test_scores_are_written_in_other_formats(folder, capsys, scores, format_):
    output = f"out.{format_}"

    assert main([*SCORE, "-o", output, "--keep-columns"]) == 0

    read = {
        "parquet": pyarrow.parquet.read_table,
        "arrow": lambda path: pa.ipc.open_file(path).read_all(),
        "jsonl": lambda path: pa.Table.from_pylist(
            [json.loads(line) for line in Path(path).read_text().splitlines()]
        ),
    }[format_](output)
    assert read.column_names == ["row", "score", "outlier", "key", "size", "weight", "bad"]
    assert read["score"].to_pylist() == scores
    assert read["key"].to_pylist()[:2] == ["000", "001"]
    assert output in capsys.readouterr().out


@pytest.mark.parametrize(
    "command", ["detect formulas.csv --exclude key", "score formulas.csv -m sizes.altbi"]
)
def test_only_raw_output_has_formulas(folder, capfd, fast, command):
    rows = "\n".join(f"=1+{number},{number},{number % 7}" for number in range(40))
    (folder / "formulas.csv").write_text(f"key,size,weight\n{rows}\n")
    options = ["--keep-columns", "-o", "-"]

    assert main([*command.split(), *options]) == 0
    quoted = capfd.readouterr().out
    assert main([*command.split(), *options, "--raw"]) == 0
    raw = capfd.readouterr().out

    assert [quoted.count(text) for text in (',"=1+', ",\"'=1+")] == [0, 40]
    assert raw == quoted.replace("'", "")


@pytest.mark.parametrize(("options", "has_quotes"), [([], True), (["--raw"], False)])
def test_only_raw_files_have_formulas(folder, fast, options, has_quotes):
    rows = "\n".join(f"=1+{number},{number},{number % 7}" for number in range(40))
    (folder / "formulas.csv").write_text(f"key,size,weight\n{rows}\n")
    command = ["detect", "formulas.csv", "--id", "key", "-o", "out", "--no-report", "-q"]
    score = ["score", "formulas.csv", "-m", "sizes.altbi", "--exclude", "key", "--keep-columns"]

    assert main([*command, *options]) == 0
    assert main([*score, "-o", "scored.csv", *options]) == 0

    for name in ("out/scores.csv", "out/reasons.csv", "scored.csv"):
        written = (folder / name).read_text()
        assert ("'=1+" in written) == has_quotes
        assert '"=1+' in written or has_quotes


def test_explained_formulas_are_quoted(folder, capfd):
    rows = "\n".join(f"=1+{number},{number},{number % 7}" for number in range(40))
    (folder / "formulas.csv").write_text(f"key,size,weight\n{rows}\n")
    command = ["explain", "formulas.csv", "-m", "sizes.altbi", "--id", "key", "--rows", "3"]

    assert main([*command, "-o", "-"]) == 0
    assert "'=1+3" in capfd.readouterr().out
    assert main([*command, "-o", "-", "--raw"]) == 0
    assert "'=1+3" not in capfd.readouterr().out
    assert main([*command, "--json"]) == 0
    assert '"=1+3"' in capfd.readouterr().out


# Runs a command, but is ready to be killed when all but the reasons are written.
STOPPED = """
import signal, sys
from altbi.cli import main
from altbi.pipeline import Pipeline

def stop(*_):
    print("ready", flush=True)
    signal.pause()

Pipeline.explain_top = stop
main(sys.argv[1:])
"""


def kill_command(*arguments):
    command = [sys.executable, "-c", STOPPED, *arguments]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout.readline() == "ready\n"
        process.kill()
    assert process.returncode == -signal.SIGKILL


@pytest.mark.slow
def test_files_of_killed_detect_are_removed(folder, fast):
    options = ["detect", "sizes.csv", "--columns", "size", "--quiet", "--no-report"]
    kill_command(*options, "--format", "parquet")
    assert names_in(folder / "sizes-altbi") == [".scores.parquet.0.part"]

    assert main(options) == 0

    assert names_in(folder / "sizes-altbi") == [
        "duplicates.csv", "model.altbi", "reasons.csv", "scores.csv",
    ]  # fmt: skip


@pytest.mark.slow
def test_files_of_killed_score_are_removed(folder):
    before = names_in(folder)
    kill_command(*SCORE)
    assert names_in(folder) == [".sizes-scores.csv.0.part", *before]

    assert main([*SCORE, "--quiet"]) == 0

    assert names_in(folder) == sorted([*before, "sizes-scores.csv"])


@pytest.mark.slow
def test_score_reads_and_writes_standard_streams(folder, scores):
    before = names_in(folder)
    with (folder / "sizes.csv").open("rb") as table:
        done = subprocess.run(
            [*PROGRAM, "score", "-", "--model", "sizes.altbi", "--threads", "1"],
            stdin=table,
            capture_output=True,
            check=False,
        )

    assert done.returncode == 0
    assert done.stderr.startswith(
        b"altbi: warning: The model does not use the columns 'key', 'bad'"
    )
    assert done.stderr.count(b"\n") == 1
    assert read_scores(done.stdout.decode()) == scores
    assert names_in(folder) == before


def test_detect_writes_scores_to_stdout(folder, capfdbinary, table, fast):
    before = names_in(folder)

    assert main(["detect", "sizes.csv", "--exclude", "key,bad", "--output", "-"]) == 0

    features = table.select(["size", "weight"])
    expected = altbi.detect(features, detector=fast_settings(), report=False).scores()["score"]
    assert read_scores(capfdbinary.readouterr().out.decode()) == expected.to_pylist()
    assert names_in(folder) == before


@pytest.mark.parametrize(
    ("command", "last"),
    [
        ("detect new.csv -o -", "duplicates"),
        ("score new.csv -m sizes.altbi -o -", "training sample had none"),
        ("explain new.csv -m sizes.altbi", "training sample had none"),
        ("explain new.csv -m sizes.altbi -o -", "training sample had none"),
        ("explain new.csv -m sizes.altbi --rows 3", "does not use"),
    ],
)
def test_warnings_beside_results_go_to_stderr(folder, capfd, fast, command, last):
    sizes = [f"{row % 7}.5;{row % 5};gr\u00fcn\n" for row in range(40)]
    text = "".join(["Sizes;;\n;;\nsize;weight;colour\n", *sizes, ";;\u00fc\n"])
    Path("new.csv").write_bytes(text.encode("cp1252"))

    assert main(command.split()) == 0

    printed, warnings = capfd.readouterr()
    assert "cp1252" in warnings
    assert "above the table in new.csv were skipped" in warnings
    assert last in warnings.splitlines()[-1]
    assert all(line.startswith("altbi: warning: ") for line in warnings.splitlines())
    assert "cp1252" not in printed
    assert main([*command.split(), "--quiet"]) == 0
    assert capfd.readouterr() == (printed, "")


def test_fit_writes_the_model_of_the_library(folder, capsys):
    assert main(["fit", "sizes.csv", "--columns", "size,weight", "-o", "again.altbi"]) == 0

    tensors, header = read_model(folder / "again.altbi")
    library_tensors, library_header = read_model(folder / "sizes.altbi")
    assert tensors.keys() == library_tensors.keys()
    assert all(np.array_equal(tensors[name], library_tensors[name]) for name in tensors)
    # Only the text formats differ, which a data frame does not have.
    assert header["table"].pop("conventions") != library_header["table"].pop("conventions")
    assert header == library_header
    out = capsys.readouterr().out
    assert "again.altbi" in out
    assert "trained on 300 rows" in out


def test_fit_prints_json(folder, capsys, fast):
    assert main(["fit", "sizes.csv", "--exclude", "key", "--json"]) == 0

    facts = json.loads(capsys.readouterr().out)
    assert (facts["rows"], facts["sample"], facts["columns"]) == (300, 300, 3)
    assert facts["files"] == ["sizes.altbi"]


def test_other_methods_fit_and_score(folder, capsys):
    options = ["--columns", "size", "--max-rows", "60", "--method", "altbi-paper", "--quiet"]
    assert main(["fit", "sizes.csv", "-o", "m", *options]) == 0

    assert main(["score", "sizes.csv", "-m", "m", "--columns", "size", "-o", "-"]) == 0

    assert len(read_scores(capsys.readouterr().out)) == 300
    assert altbi.load("m").settings.detector == "ALTBI"


def test_explain_writes_similar_normal_rows(folder, capsys, table):
    assert main([*EXPLAIN, "--rows", "3,17", "--json"]) == 0
    records = json.loads(capsys.readouterr().out)
    assert main([*EXPLAIN, "--rows", "3,17", "-o", "reasons.csv"]) == 0
    with (folder / "reasons.csv").open() as file:
        written = list(csv.DictReader(file))

    names = ["nearest_1", "nearest_2", "nearest_3"]
    assert list(records[0]) == [
        "row", "score", "outlier", "reason", "column", "value", "expected", "z_score",
        "contribution", *names,
    ]  # fmt: skip
    explanation = altbi.load("sizes.altbi").explain(table.select(["size", "weight"]))
    for record in records:
        nearest = explanation.nearest(record["row"])[record["column"]].to_pylist()
        assert [float(record[name]) for name in names] == pytest.approx(nearest, rel=1e-5)
    assert [[record[name] for name in names] for record in written] == [
        [record[name] for name in names] for record in records
    ]


def test_explain_selects_rows_by_number_or_score(folder, capsys, scores):
    assert main([*EXPLAIN, "--rows", "3,17", "--json"]) == 0
    records = json.loads(capsys.readouterr().out)
    assert {record["row"] for record in records} == {3, 17}
    assert next(record["column"] for record in records if record["row"] == 17) == "size"
    assert {record["score"] for record in records} == {scores[3], scores[17]}

    assert main([*EXPLAIN, "--top", "2", "--json"]) == 0
    rows = [record["row"] for record in json.loads(capsys.readouterr().out)]
    assert list(dict.fromkeys(rows)) == np.argsort(-np.array(scores))[:2].tolist()

    assert main([*EXPLAIN, "--rows", "17", "--id", "key"]) == 0
    out = capsys.readouterr().out
    assert re.search(r"17 +[0-9.]+ \*  size +40 ", out)
    assert "(key 017)" in out
    assert "similar normal rows:" in out


def test_explain_prints_a_repeated_row_once(folder, capsys):
    assert main([*EXPLAIN, "--rows", "17,3,17,17", "--json"]) == 0

    records = json.loads(capsys.readouterr().out)
    ranks = [(record["row"], record["reason"]) for record in records]
    assert len(set(ranks)) == len(ranks)
    assert list(dict.fromkeys(row for row, _ in ranks)) == [17, 3]


@pytest.mark.slow
def test_models_of_losses_have_no_similar_rows(folder, capsys):
    explain = ["explain", "sizes.csv", "-m", "loss.altbi", "--rows", "17"]
    assert main([*explain, "--json"]) == 0
    assert not [name for name in json.loads(capsys.readouterr().out)[0] if "nearest" in name]

    assert main(explain) == 0
    assert "similar normal rows" not in capsys.readouterr().out
    assert main(["report", "sizes.csv", "-m", "loss.altbi", "-o", "page.html", "-q"]) == 0
    assert '"similar":[[],[]' in (folder / "page.html").read_text()


def test_report_writes_a_page(folder, capsys):
    options = ["report", "sizes.csv", "--model", "sizes.altbi", "--label", "bad"]
    assert main([*options, "--json"]) == 0

    assert "<!doctype html>" in (folder / "sizes-report.html").read_text()
    facts = json.loads(capsys.readouterr().out)
    assert facts["metrics"]["auc"] == 1.0
    assert facts["files"] == ["sizes-report.html"]
    assert any("'key'" in note and "does not use" in note for note in facts["notes"])


@pytest.fixture
def repeated(folder, table):
    """Write a table in which row 120 is a copy of row 30, with a key of its own."""
    rows = table.to_pylist()
    rows[120] = rows[30] | {"key": "120"}
    pyarrow.csv.write_csv(pa.Table.from_pylist(rows), folder / "repeated.csv")


def test_detect_lists_duplicates(folder, repeated, fast, capsys):
    assert main(["detect", "repeated.csv", "--id", "key", "--exclude", "bad"]) == 0

    with (folder / "repeated-altbi" / "duplicates.csv").open() as file:
        records = list(csv.DictReader(file))
    assert [(each["kind"], each["row"], each["id_key"]) for each in records] == [
        ("same row", "30", "030"), ("same row", "120", "120"),
    ]  # fmt: skip
    assert "Duplicates: 2 rows are equal to another row." in capsys.readouterr().out
    page = (folder / "repeated-altbi" / "report.html").read_text()
    assert "row 30 (030); row 120 (120)" in page


@pytest.mark.parametrize("n_rows", [0, 100])
def test_only_asked_rows_are_checked_for_duplicates(folder, repeated, fast, n_rows, capsys):
    options = ["--exclude", "bad,key", "--duplicates", str(n_rows)]
    assert main(["detect", "repeated.csv", *options, "--json"]) == 0

    assert json.loads(capsys.readouterr().out)["duplicates"]["groups"] == []
    assert len((folder / "repeated-altbi" / "duplicates.csv").read_text().splitlines()) == 1


def test_report_lists_duplicates(folder, repeated, capsys):
    assert main(["report", "repeated.csv", "-m", "sizes.altbi", "--json"]) == 0

    facts = json.loads(capsys.readouterr().out)
    assert [group["rows"] for group in facts["duplicates"]["groups"]] == [[30, 120]]
    assert "row 30; row 120" in (folder / "repeated-report.html").read_text()


def test_score_does_not_search_duplicates(folder, repeated, capsys):
    assert main(["score", "repeated.csv", "-m", "sizes.altbi", "--json"]) == 0

    assert json.loads(capsys.readouterr().out)["duplicates"] is None


def test_quiet_prints_nothing(folder, capfd, fast):
    assert main(["detect", "sizes.csv", "--quiet", "--no-report"]) == 0

    assert capfd.readouterr() == ("", "")
    assert names_in(folder / "sizes-altbi") == [
        "duplicates.csv", "model.altbi", "reasons.csv", "scores.csv",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("command", "is_cut"),
    [
        ("detect wide.csv --label bad=yes", True),
        ("detect wide.csv --label bad=yes --no-report", False),
        ("fit wide.csv --label bad=yes", False),
    ],
)
def test_warnings_are_cut_only_with_a_page(folder, capsys, fast, command, is_cut):
    constants = {f"constant {number}": [1] * 40 for number in range(12)}
    pyarrow.csv.write_csv(
        pa.table({"bad": ["no"] * 40, "x": np.sqrt(range(40)), **constants}), "wide.csv"
    )

    assert main(command.split()) == 0

    warnings = " ".join(capsys.readouterr().out.split()).partition("warnings: ")[2]
    assert ("more, in the report" in warnings) == is_cut
    assert warnings.count("Column 'constant") == (7 if is_cut else 12)
    assert warnings.startswith("- Column 'bad': none of the labels") == ("detect" in command)


@pytest.mark.parametrize(
    ("name", "output"),
    [
        ("more.csv.gz", "more-scores.csv"),
        ("more.2024.csv", "more.2024-scores.csv"),
        ("more", "more-scores.csv"),
        (".csv", ".csv-scores.csv"),
        ("sub/more.TXT", "sub/more-scores.csv"),
    ],
)
def test_output_is_named_after_the_table(folder, name, output):
    data = (folder / "sizes.csv").read_bytes()
    (folder / name).parent.mkdir(exist_ok=True)
    (folder / name).write_bytes(gzip.compress(data) if name.endswith("gz") else data)

    assert main(["score", name, "-m", "sizes.altbi", "--quiet"]) == 0
    assert (folder / output).is_file()


@pytest.mark.parametrize("output", ["data/model", "data/_model.csv", "elsewhere.altbi"])
def test_other_files_may_be_written_into_the_table(folder, output, fast):
    (folder / "data").mkdir()
    (folder / "data" / "a.csv").write_bytes((folder / "sizes.csv").read_bytes())

    assert main(["fit", "data", "--columns", "size", "-o", output, "--quiet"]) == 0
    assert (folder / output).is_file()


@pytest.mark.parametrize(
    ("content", "options", "columns"),
    [
        (b"a;b\n1;x\n2;y\n3;x\n", ["--delimiter", ","], {"a;b": "category"}),
        (b"1,2\n3,4\n5,6\n", ["--header"], {"1": "number", "2": "number"}),
        (b"a,b\n1,2\n3,4\n5,6\n", ["--no-header"], {"x0": "category", "x1": "category"}),
        (b"a\n1\n?\n3\n", ["--missing", "?"], {"a": "number"}),
        (
            "ž,b\n1,2\n3,4\n".encode("cp1250"),
            ["--encoding", "cp1250"],
            {"ž": "number", "b": "number"},
        ),
    ],
)
def test_format_options_reach_the_reader(tmp_path, monkeypatch, fast, content, options, columns):
    monkeypatch.chdir(tmp_path)
    Path("t.csv").write_bytes(content)

    assert main(["fit", "t.csv", "--quiet", "-o", "t.altbi", *options]) == 0

    encoder = altbi.load("t.altbi").encoder
    assert dict(zip(encoder.names, encoder.kinds, strict=True)) == columns


def test_text_of_a_table_is_escaped(tmp_path, monkeypatch, capsys, fast):
    monkeypatch.chdir(tmp_path)
    hostile = "\x1b[2J\x9b"
    rows = [f"{hostile}{i},{hostile},{i % 5}" for i in range(50)]
    head, last = f"key{hostile},word{hostile},n{hostile}", f"{hostile},other{hostile},90"
    Path("t.csv").write_text("\n".join([head, *rows, last]))

    assert main(["detect", "t.csv", "--id", f"key{hostile}", "--no-report"]) == 0
    assert main(["explain", "t.csv", "-m", "t-altbi/model.altbi", "--id", f"key{hostile}"]) == 0

    out = capsys.readouterr().out
    assert all(line.isprintable() for line in out.split("\n"))
    assert out.count("\\x1b[2J") >= 4


def test_threads_are_set(folder, fast):
    before = count_threads(), pa.cpu_count()
    assert before[0] > 1
    try:
        assert main(["fit", "sizes.csv", "--exclude", "key", "--quiet", "--threads", "1"]) == 0
        assert (count_threads(), pa.cpu_count()) == (1, 1)
    finally:
        limit_threads(before[0])
        pa.set_cpu_count(before[1])


def test_values_that_cannot_be_written_are_an_error(tmp_path, capsys, fast):
    table = pa.table({"x": np.arange(40.0), "bytes": pa.array([b"\xff"] * 40)})
    pyarrow.parquet.write_table(table, tmp_path / "t.parquet")
    out = tmp_path / "out"

    options = ["--columns", "x", "--keep-columns", "--quiet", "-o", str(out)]
    assert main(["detect", str(tmp_path / "t.parquet"), *options]) == 1

    err = capsys.readouterr().err
    assert err.startswith("altbi: ")
    assert err.count("\n") == 1
    assert not out.exists() or not any(out.iterdir())


@pytest.mark.slow
def test_counts_are_approximate_under_a_budget(tmp_path, capsys):
    table = tmp_path / "sizes.csv"
    table.write_text("size\n" + "\n".join(map(str, range(40))), encoding="utf-8")
    model, scores = str(tmp_path / "sizes.altbi"), str(tmp_path / "scores.csv")

    options = ["--epsilon", "5", "--delta", "0.3", "--bounds", "0", "40"]
    assert main(["fit", str(table), *options]) == 0

    text = " ".join(capsys.readouterr().out.split())
    assert "trained on about" in text
    assert "warnings:" in text  # a delta of 0.3 promises nothing
    assert main(["score", str(table), "--model", model, "-o", scores]) == 0
    assert "trained on about" in " ".join(capsys.readouterr().out.split())


@pytest.mark.slow
def test_unreadable_tables_fail_before_torch_is_loaded(tmp_path):
    program = (
        "import sys; from altbi.cli import main; code = main(sys.argv[1:]); "
        "sys.exit(code if 'torch' not in sys.modules else 9)"
    )

    done = subprocess.run(
        [sys.executable, "-c", program, "detect", "absent.csv", "--no-report"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )

    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("altbi: absent.csv: ")


def test_roles_of_columns_reach_the_model(capsys, monkeypatch, home):
    monkeypatch.chdir(home)
    assert main(["fit", "sizes.csv", "-o", "roles.altbi", "--as", "identifier:size", "-q"]) == 0
    uses = {column.name: column.use for column in altbi.load("roles.altbi").encoder.columns}
    assert uses == {"key": "identifier", "size": "identifier", "weight": "number", "bad": "number"}
    assert main(["fit", "sizes.csv", "-o", "x.altbi", "--as", "text:size"]) == 1
    assert main(["fit", "sizes.csv", "-o", "x.altbi", "--as", "text:key", "--id", "key"]) == 1
    texts = capsys.readouterr().err.splitlines()
    assert "'size' holds numbers, so it cannot have the role text" in texts[-2]
    assert "'key' is not searched, so it has no role" in texts[-1]


@pytest.mark.parametrize("command", ["score", "explain", "report"])
def test_fitted_models_refuse_roles(capsys, monkeypatch, home, command):
    monkeypatch.chdir(home)
    arguments = [command, "sizes.csv", "-m", "sizes.altbi", "-o", "-", "--as", "category:size"]
    with pytest.raises(SystemExit) as stopped:
        main(arguments)
    assert stopped.value.code == 2
    assert "--as is for a fit: a model keeps the roles of its fit" in (capsys.readouterr().err)
