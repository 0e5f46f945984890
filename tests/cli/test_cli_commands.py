"""The commands on tables, through `main` and through the installed command."""

import csv
import gzip
import io
import json
import math
import os
import pty
import re
import select
import subprocess
import sys
from datetime import datetime
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
import pytest
import torch

from altbi import ALTBI
from altbi.cli import main
from altbi.cli._progress import ProgressLine, line_of
from altbi.cli._output import format_reasons
from altbi.detectors import load
from altbi.io import open_writer
from altbi.model._container import read_model

ALTBI_COMMAND = str(Path(sys.executable).with_name("altbi"))


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
def place(tmp_path_factory, table):
    """A folder with the table as CSV and a model of it."""
    folder = tmp_path_factory.mktemp("place")
    pyarrow.csv.write_csv(table, folder / "sizes.csv")
    ALTBI().fit(table.select(["size", "weight"])).save(folder / "sizes.altbi")
    return folder


@pytest.fixture(scope="module")
def scores(table, place):
    return ALTBI.load(place / "sizes.altbi").outlier_score(table.select(["size", "weight"]))


@pytest.fixture
def inside(tmp_path, place, monkeypatch):
    """Work in a new folder with the table in it."""
    (tmp_path / "sizes.csv").write_bytes((place / "sizes.csv").read_bytes())
    (tmp_path / "sizes.altbi").write_bytes((place / "sizes.altbi").read_bytes())
    monkeypatch.chdir(tmp_path)
    return tmp_path


def listing(folder):
    return sorted(path.name for path in folder.iterdir())


def test_detect_writes_a_folder_beside_the_table_and_says_so(inside, capsys, scores):
    code = main(["detect", "sizes.csv", "--id", "key", "--label", "bad"])

    out, err = capsys.readouterr()
    assert (code, err) == (0, "")
    assert listing(inside / "sizes-altbi") == [
        "model.altbi", "reasons.csv", "report.html", "scores.csv",
    ]  # fmt: skip
    with (inside / "sizes-altbi" / "scores.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert list(rows[0]) == ["row", "key", "score", "outlier"]
    assert [row["key"] for row in rows] == [f"{i:03}" for i in range(300)]
    assert [float(row["score"]) for row in rows] == scores.tolist()
    words = " ".join(out.split())
    assert "sizes.csv: 300 rows, 2 columns; learned from 300 rows" in words
    assert "AUC 1.0000, average precision 1.0000" in words
    assert re.search(r"17 +[0-9.]+ \*  size +40 ", out)
    assert "(key 017)" in out
    assert "sizes-altbi/report.html" in out
    assert max(map(len, out.splitlines())) <= 100
    page = (inside / "sizes-altbi" / "report.html").read_text()
    assert "altbi detect sizes.csv --id key --label bad" in page


def test_detect_says_the_same_as_json(inside, capsys):
    assert main(["detect", "sizes.csv", "--exclude", "key,bad", "--json", "-o", "a/b"]) == 0

    facts = json.loads(capsys.readouterr().out)
    assert (facts["rows"], facts["sample"]) == (300, 300)
    assert {column["name"] for column in facts["columns"]} == {"size", "weight"}
    assert facts["top"][0]["number"] == 17
    assert facts["score_by"] == "distance"
    assert facts["top"][0]["clues"][0]["column"] == "size"
    assert len(facts["top"][0]["clues"][0]["nearest"]) == 3
    assert not {"cells", "nearest"} & facts["top"][0].keys()
    assert facts["command"] == "altbi detect sizes.csv --exclude key,bad --json -o a/b"
    assert [Path(file).is_file() for file in facts["files"]] == [True] * 4


@pytest.mark.parametrize("format_", ["parquet", "arrow", "jsonl"])
def test_scores_come_in_other_formats_too(inside, capsys, scores, format_):
    output = f"out.{format_}"

    assert main(["score", "sizes.csv", "-m", "sizes.altbi", "-o", output, "--keep-columns"]) == 0

    read = {
        "parquet": pyarrow.parquet.read_table,
        "arrow": lambda path: pa.ipc.open_file(path).read_all(),
        "jsonl": lambda path: pa.Table.from_pylist(
            [json.loads(line) for line in Path(path).read_text().splitlines()]
        ),
    }[format_](output)
    assert read.column_names == ["row", "score", "outlier", "key", "size", "weight", "bad"]
    assert read["score"].to_pylist() == scores.tolist()
    assert read["key"].to_pylist()[:2] == ["000", "001"]
    assert "out." + format_ in capsys.readouterr().out


def test_score_reads_and_writes_standard_streams(inside, scores):
    with (inside / "sizes.csv").open("rb") as table:
        done = subprocess.run(
            [ALTBI_COMMAND, "score", "-", "--model", "sizes.altbi"],
            stdin=table,
            capture_output=True,
            check=False,
        )

    assert (done.returncode, done.stderr) == (0, b"")
    rows = list(csv.DictReader(io.StringIO(done.stdout.decode())))
    assert [float(row["score"]) for row in rows] == scores.tolist()
    assert listing(inside) == ["sizes.altbi", "sizes.csv"]


def test_detect_writes_scores_alone_to_standard_output(inside, capfdbinary, scores):
    assert main(["detect", "sizes.csv", "--exclude", "key,bad", "--output", "-"]) == 0

    rows = list(csv.DictReader(io.StringIO(capfdbinary.readouterr().out.decode())))
    assert [float(row["score"]) for row in rows] == scores.tolist()
    assert listing(inside) == ["sizes.altbi", "sizes.csv"]


def test_fit_writes_the_model_that_the_library_would(inside, capsys, place):
    assert main(["fit", "sizes.csv", "--columns", "size,weight", "-o", "again.altbi"]) == 0

    tensors, header = read_model(inside / "again.altbi")
    library_tensors, library_header = read_model(place / "sizes.altbi")
    assert tensors.keys() == library_tensors.keys()
    assert all(np.array_equal(tensors[name], library_tensors[name]) for name in tensors)
    # All that a data frame does not tell is how its cells stood in the file.
    readings = {"size": "numbers", "weight": "numbers"}
    assert header["table"].pop("writing") == {"readings": readings, "missing": []}
    assert library_header["table"].pop("writing") == {"readings": {}, "missing": []}
    assert header == library_header
    assert "again.altbi" in capsys.readouterr().out


def test_options_of_the_model_reach_it(inside, capsys):
    options = ["--contamination", "0.1", "--preset", "paper", "--max-rows", "100", "--seed", "5"]

    assert main(["fit", "sizes.csv", "--exclude", "key", "--json", *options]) == 0

    facts = json.loads(capsys.readouterr().out)
    assert facts["sample"] == 100
    model = ALTBI.load(inside / "sizes.altbi")
    assert (model.contamination, model.network, model.random_state) == (0.1, "paper", 5)


@pytest.mark.parametrize(
    ("method", "detector", "changed"),
    [
        (["altbi-glow"], "ALTBI", {"backbone": "glow", "flow_steps": "auto"}),
        (["odim", "--preset", "reference"], "ODIM", {"spread": "variance"}),
    ],
)
def test_the_method_can_be_chosen_and_its_files_are_known(
    inside, capsys, method, detector, changed
):
    assert main(["fit", "sizes.csv", "--columns", "size", "-o", "m", "--method", *method]) == 0

    model = load(inside / "m")
    assert type(model).__name__ == detector
    assert changed.items() <= model.get_params().items()
    capsys.readouterr()
    assert main(["score", "sizes.csv", "-m", "m", "--columns", "size", "-o", "-"]) == 0
    assert len(capsys.readouterr().out.splitlines()) == model.n_rows_in_ + 1


def test_a_preset_that_a_method_lacks_is_wrong_usage(inside, capsys):
    with pytest.raises(SystemExit) as stop:
        main(["fit", "sizes.csv", "--method", "odim", "--preset", "paper"])

    assert stop.value.code == 2
    assert "no preset paper of odim" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("options", "score_by"),
    [
        (["--score-by", "loss"], "loss"),
        (["--score-by", "loss", "--method", "altbi-glow"], "loss"),
        (["--preset", "reference"], "loss"),
        (["--preset", "reference", "--score-by", "distance"], "distance"),
        ([], "distance"),
    ],
)
def test_how_rows_are_scored_can_be_chosen(inside, options, score_by):
    assert main(["fit", "sizes.csv", "--columns", "size", "-q", "-o", "m", *options]) == 0

    assert load(inside / "m").score_by == score_by


def test_odim_cannot_be_told_how_to_score(inside, capsys):
    with pytest.raises(SystemExit) as stop:
        main(["detect", "sizes.csv", "--method", "odim", "--score-by", "distance"])

    assert stop.value.code == 2
    assert "odim scores by loss alone: leave --score-by out" in capsys.readouterr().err


@pytest.fixture
def by_loss(inside):
    """A model of the same table that scores by loss."""
    options = ["--columns", "size,weight", "--score-by", "loss", "-o", "loss.altbi", "--quiet"]
    assert main(["fit", "sizes.csv", *options]) == 0
    return "loss.altbi"


def nearest_of(table, place, row):
    """The cells of the remembered rows nearest to a row, by column."""
    detector = ALTBI.load(place / "sizes.altbi")
    return detector.explain(table.select(["size", "weight"])).nearest(row).to_pydict()


def test_explain_quotes_the_nearest_normal_rows_for_machines(inside, capsys, table, place):
    assert main(["explain", "sizes.csv", "-m", "sizes.altbi", "--rows", "3,17", "--json"]) == 0
    lines = json.loads(capsys.readouterr().out)
    assert main(["explain", "sizes.csv", "-m", "sizes.altbi", "--rows", "3,17", "-o", "w.csv"]) == 0
    with (inside / "w.csv").open() as file:
        written = list(csv.DictReader(file))

    names = ["nearest_1", "nearest_2", "nearest_3"]
    assert list(lines[0]) == [
        "row", "score", "outlier", "reason", "column", "value", "expected", "deviations", "part",
        *names,
    ]  # fmt: skip
    for line in lines:
        cells = nearest_of(table, place, line["row"])[line["column"]]
        assert [float(line[name]) for name in names] == pytest.approx(cells, rel=1e-5)
    assert [[line[name] for name in names] for line in written] == [
        [line[name] for name in names] for line in lines
    ]


def test_explain_sets_rows_beside_the_nearest_normal_ones(inside, capsys):
    assert main(["explain", "sizes.csv", "-m", "sizes.altbi", "--rows", "17", "--json"]) == 0
    (line,) = json.loads(capsys.readouterr().out)
    assert main(["explain", "sizes.csv", "-m", "sizes.altbi", "--rows", "17"]) == 0

    out = capsys.readouterr().out
    head, cells = out.splitlines()[2:4]
    assert head.split() == ["beside", "normal", "rows:", "this", "row", "nearest", "2nd", "3rd"]
    assert cells.split() == ["size", "40", *(line[f"nearest_{rank}"] for rank in (1, 2, 3))]
    assert len(head) == len(cells) == 100


def test_a_missing_cell_is_named_beside_others():
    line = {"row": 1, "score": 2.0, "outlier": True, "column": "size", "value": ""}
    reasons = [line | {"expected": "1", "deviations": 3.0, "nearest_1": "1", "nearest_2": ""}]

    head, cells = format_reasons(pa.Table.from_pylist(reasons)).splitlines()[2:]

    assert head.split()[-2:] == ["nearest", "2nd"]
    assert cells.split() == ["size", "missing", "1", "missing"]


def test_no_normal_rows_are_named_where_the_loss_is_the_score(inside, capsys, by_loss):
    assert main(["explain", "sizes.csv", "-m", by_loss, "--rows", "17", "--json"]) == 0
    assert not [name for name in json.loads(capsys.readouterr().out)[0] if "nearest" in name]

    assert main(["explain", "sizes.csv", "-m", by_loss, "--rows", "17"]) == 0
    assert main(["report", "sizes.csv", "-m", by_loss, "-o", "page.html"]) == 0
    assert "normal" not in capsys.readouterr().out
    page = (inside / "page.html").read_text()
    assert "own uncertainty about that cell" in page
    assert '"beside":[[],[]' in page


def test_explain_tells_rows_by_number_or_the_top(inside, capsys, scores):
    assert main(["explain", "sizes.csv", "-m", "sizes.altbi", "--rows", "3,17", "--json"]) == 0
    lines = json.loads(capsys.readouterr().out)
    assert {line["row"] for line in lines} == {3, 17}
    assert next(line["column"] for line in lines if line["row"] == 17) == "size"
    assert {line["score"] for line in lines} == set(scores[[3, 17]])

    assert main(["explain", "sizes.csv", "-m", "sizes.altbi", "--top", "2", "-o", "why.csv"]) == 0
    with (inside / "why.csv").open() as file:
        rows = [int(line["row"]) for line in csv.DictReader(file)]
    assert list(dict.fromkeys(rows)) == np.argsort(-scores)[:2].tolist()

    assert main(["explain", "sizes.csv", "-m", "sizes.altbi", "--rows", "17", "--id", "key"]) == 0
    out = capsys.readouterr().out
    assert re.search(r"17 +[0-9.]+ \*  size +40 ", out)
    assert "(key 017)" in out


def test_report_writes_the_page_of_another_table(inside, capsys):
    assert main(["report", "sizes.csv", "--model", "sizes.altbi"]) == 0

    assert "<!doctype html>" in (inside / "sizes-report.html").read_text()
    out = capsys.readouterr().out
    assert "sizes-report.html" in out
    assert "The model does not know the columns 'key', 'bad'; they were not used." in out


def test_quiet_means_quiet(inside, capfd):
    assert main(["detect", "sizes.csv", "--quiet", "--no-report"]) == 0

    assert capfd.readouterr() == ("", "")
    assert listing(inside / "sizes-altbi") == ["model.altbi", "reasons.csv", "scores.csv"]


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
def test_the_output_is_named_after_the_table(inside, name, output):
    data = (inside / "sizes.csv").read_bytes()
    (inside / name).parent.mkdir(exist_ok=True)
    (inside / name).write_bytes(gzip.compress(data) if name.endswith("gz") else data)

    assert main(["score", name, "-m", "sizes.altbi", "--quiet"]) == 0
    assert (inside / output).is_file()


@pytest.mark.parametrize(
    "words",
    [
        "score sizes.csv -m sizes.altbi -o ./sizes.csv",
        "explain sizes.csv -m sizes.altbi --rows 1 -o sizes.csv",
        "report sizes.csv -m sizes.altbi -o sizes.altbi",
        "fit sizes.csv -o sizes.csv",
        "detect scores.csv -o .",
    ],
)
def test_what_is_read_is_never_written_over(inside, capsys, words):
    data = (inside / "sizes.csv").read_bytes()
    (inside / "scores.csv").write_bytes(data)
    before = {path.name: path.read_bytes() for path in inside.iterdir()}

    with pytest.raises(SystemExit) as end:
        main(words.split())

    assert end.value.code == 2
    assert "cannot be the output" in capsys.readouterr().err
    assert {path.name: path.read_bytes() for path in inside.iterdir()} == before


@pytest.mark.parametrize(
    "words",
    [
        "score parts -m sizes.altbi -o parts/a.csv",
        "score parts -m sizes.altbi -o parts/deep/new.csv",
        "explain parts -m sizes.altbi --rows 1 -o parts/b.csv",
        "detect parts -o parts",
        "detect parts -o parts/found --engine local",
        "score parts -m sizes.altbi -o parts/found --engine local",
    ],
)
def test_no_output_becomes_part_of_the_folder_that_is_read(inside, capsys, words):
    (inside / "parts").mkdir()
    for name in ("a.csv", "b.csv"):
        (inside / "parts" / name).write_bytes((inside / "sizes.csv").read_bytes())

    with pytest.raises(SystemExit) as end:
        main(words.split())

    assert end.value.code == 2
    assert "would be a part of the table" in capsys.readouterr().err
    assert listing(inside / "parts") == ["a.csv", "b.csv"]


@pytest.mark.parametrize("output", ["parts/model", "parts/_model.csv", "elsewhere.altbi"])
def test_what_is_no_data_may_be_written_into_the_folder(inside, output):
    (inside / "parts").mkdir()
    (inside / "parts" / "a.csv").write_bytes((inside / "sizes.csv").read_bytes())

    assert main(["fit", "parts", "--columns", "size", "-o", output, "--quiet"]) == 0
    assert (inside / output).is_file()


@pytest.mark.parametrize("threads", ["1", "2"])
def test_threads_change_no_score(inside, threads, scores):
    done = subprocess.run(
        [ALTBI_COMMAND, "score", "sizes.csv", "-m", "sizes.altbi", "-o", "-", "--threads", threads],
        capture_output=True,
        check=True,
    )

    rows = list(csv.DictReader(io.StringIO(done.stdout.decode())))
    assert [float(row["score"]) for row in rows] == scores.tolist()


def on_a_terminal(*command):
    """Run a command whose standard error is a terminal; gives what it writes there."""
    leader, follower = pty.openpty()
    child = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=follower)
    os.close(follower)
    written = b""
    while select.select([leader], [], [], 60)[0]:
        try:
            part = os.read(leader, 1 << 16)
        except OSError:  # the last writer has gone
            break
        written += part
    os.close(leader)
    child.communicate()
    assert child.returncode == 0
    return written.decode()


def test_a_terminal_sees_progress_and_a_clean_line_at_the_end(inside):
    said = on_a_terminal(ALTBI_COMMAND, "fit", "sizes.csv", "--exclude", "key")

    assert re.search(r"training  \d+ of 90 steps  \d+ %  [\d,]+ steps/s  \d+:\d\d left", said)
    assert said.split("\r")[-2].strip() == ""
    assert said.split("\r")[-1] == ""


def test_a_terminal_that_is_told_quiet_sees_nothing(inside):
    assert on_a_terminal(ALTBI_COMMAND, "fit", "sizes.csv", "--quiet") == ""


def test_the_meter_passes_items_on_and_forgets_nothing(monkeypatch):
    clock = iter(range(100))
    monkeypatch.setattr("altbi.cli._progress.time.monotonic", lambda: next(clock))
    screen = io.StringIO()

    items = list(ProgressLine(screen)("scoring", [[1, 2], [3]], 4, len))

    assert items == [[1, 2], [3]]
    assert line_of("scoring", 2, 4, 1.0) in screen.getvalue()
    assert line_of("scoring", 3, 4, 2.0) in screen.getvalue()


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish", "tcsh"])
def test_every_shell_gets_its_script(capsys, shell):
    assert main(["completion", shell]) == 0

    script = capsys.readouterr().out
    assert all(name in script for name in ("detect", "inspect", "contamination"))


def test_bash_completes_commands_options_and_files(inside, capsys):
    main(["completion", "bash"])
    (inside / "altbi.bash").write_text(capsys.readouterr().out)
    program = (
        "source ./altbi.bash\n"
        'try() { COMP_WORDS=(altbi "$@"); COMP_CWORD=$#; '
        '_shtab_altbi altbi "${!#}" "${COMP_WORDS[-2]}"; echo "${COMPREPLY[@]}"; }\n'
        "try det; try detect --contam; try detect siz; try inspect siz\n"
    )

    done = subprocess.run(["bash", "-c", program], capture_output=True, text=True, check=True)

    assert done.stdout.splitlines()[:2] == ["detect", "--contamination"]
    for files in done.stdout.splitlines()[2:]:
        assert set(files.split()) == {"sizes.altbi", "sizes.csv"}


@pytest.mark.parametrize(
    ("text", "options", "columns"),
    [
        ("a;b\n1;x\n2;y\n3;x\n", ["--delimiter", ","], {"a;b": "category"}),
        ("1,2\n3,4\n5,6\n", ["--header"], {"1": "number", "2": "number"}),
        ("a,b\n1,2\n3,4\n5,6\n", ["--no-header"], {"x0": "category", "x1": "category"}),
        ("a\n1\n?\n3\n", ["--missing", "?"], {"a": "number"}),
    ],
)
def test_how_to_read_the_table_reaches_the_reader(tmp_path, monkeypatch, text, options, columns):
    monkeypatch.chdir(tmp_path)
    Path("t.csv").write_text(text)

    assert main(["fit", "t.csv", "--quiet", "-o", "t.altbi", *options]) == 0

    encoder = ALTBI.load("t.altbi").encoder_
    assert dict(zip(encoder.names, encoder.kinds, strict=True)) == columns


def test_the_encoding_reaches_the_reader(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("t.csv").write_bytes("ž,b\n1,2\n3,4\n".encode("cp1250"))

    assert main(["fit", "t.csv", "--quiet", "-o", "t.altbi", "--encoding", "cp1250"]) == 0

    assert ALTBI.load("t.altbi").encoder_.names == ("ž", "b")


def test_a_label_is_compared_by_score_and_report_too(inside, capsys):
    for command in ("score", "report"):
        assert main([command, "sizes.csv", "-m", "sizes.altbi", "--label", "bad", "--json"]) == 0
        assert json.loads(capsys.readouterr().out)["metrics"]["auc"] == 1.0


def test_a_table_cannot_speak_to_the_terminal(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    evil = "\x1b[2J\x9b"
    rows = [f"{evil}{i},{evil},{i % 5}" for i in range(50)]
    head, last = f"key{evil},word{evil},n{evil}", f"{evil},odd{evil},90"
    Path("t.csv").write_text("\n".join([head, *rows, last]))

    assert main(["detect", "t.csv", "--id", f"key{evil}", "--no-report"]) == 0
    assert main(["explain", "t.csv", "-m", "t-altbi/model.altbi", "--id", f"key{evil}"]) == 0

    out = capsys.readouterr().out
    assert all(line.isprintable() for line in out.split("\n"))
    assert out.count("\\x1b[2J") >= 4


def test_threads_are_those_asked_for(inside):
    before = torch.get_num_threads(), pa.cpu_count()
    try:
        assert main(["fit", "sizes.csv", "--exclude", "key", "--quiet", "--threads", "1"]) == 0
        assert (torch.get_num_threads(), pa.cpu_count()) == (1, 1)
    finally:
        torch.set_num_threads(before[0])
        pa.set_cpu_count(before[1])


def test_json_lines_are_json_where_a_number_is_none(tmp_path):
    table = pa.table({"x": [1.5, math.nan, -math.inf], "many": [[1.0], [math.nan], None]})

    with open_writer(tmp_path / "t.jsonl", "t.jsonl", "jsonl", table.schema) as sink:
        sink.write(table)

    lines = (tmp_path / "t.jsonl").read_text(encoding="utf-8").splitlines()
    assert [json.loads(line, parse_constant=pytest.fail) for line in lines] == [
        {"x": 1.5, "many": [1.0]},
        {"x": None, "many": [None]},
        {"x": None, "many": None},
    ]


def test_categories_of_each_chunk_go_into_one_arrow_file(tmp_path):
    chunks = [pa.table({"k": pa.array(words).dictionary_encode()}) for words in ("ab", "ca")]

    with open_writer(tmp_path / "t.arrow", "t.arrow", "arrow", chunks[0].schema) as sink:
        for chunk in chunks:
            sink.write(chunk)

    assert pa.ipc.open_file(tmp_path / "t.arrow").read_all()["k"].to_pylist() == list("abca")


@pytest.mark.parametrize(
    ("column", "said"),
    [
        (pa.array([[1]] * 40), "column 'odd' is of the type list<.*>, which csv files cannot hold"),
        (pa.array([b"\xff"] * 40), "cannot hold a column in this format .*UTF8"),
    ],
)
def test_what_a_format_cannot_hold_is_one_sentence(tmp_path, capsys, column, said):
    table = pa.table({"x": np.arange(40.0), "odd": column})
    pyarrow.parquet.write_table(table, tmp_path / "t.parquet")
    out = tmp_path / "out"

    words = ["detect", str(tmp_path / "t.parquet"), "--columns", "x", "--keep-columns", "--quiet"]
    assert main([*words, "-o", str(out)]) == 1

    assert re.search(said, capsys.readouterr().err)
    assert not out.exists() or not listing(out)


def test_json_lines_hold_dates_as_iso_and_any_letter(tmp_path):
    day = datetime(2024, 2, 29, 12, 30)
    table = pa.table({"day": pa.array([day, None]), "word": ["é", None]})

    with open_writer(tmp_path / "t.jsonl", "t.jsonl", "jsonl", table.schema) as sink:
        sink.write(table)

    first, second = (tmp_path / "t.jsonl").read_text(encoding="utf-8").splitlines()
    assert json.loads(first) == {"day": "2024-02-29 12:30:00", "word": "é"}
    assert "é" in first
    assert json.loads(second) == {"day": None, "word": None}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--epsilon", "0", "--bounds", "0", "1"], "--epsilon: '0', but expected a number above 0"),
        (["--epsilon", "inf", "--bounds", "0", "1"], "but expected a number above 0"),
        (["--epsilon", "1", "--delta", "1", "--bounds", "0", "1"], "between 0 and 1"),
        (["--epsilon", "1"], "--epsilon wants --bounds"),
        (["--epsilon", "1", "--bounds", "1", "0"], "--bounds 1 0: expected two numbers"),
        (["--epsilon", "1", "--bounds", "0", "nan"], "expected two numbers"),
        (["--epsilon", "1", "--bounds", "nowhere.json"], "a JSON file that is there"),
        (["--delta", "1e-5"], "give --epsilon too"),
        (["--truncation", "trimmed"], "give --epsilon too"),
        (["--epsilon", "1", "--bounds", "0", "1", "--method", "altbi-glow"], "not for altbi-glow"),
        (["--threshold", "nan"], "but expected a finite number"),
    ],
)
def test_a_budget_that_makes_no_sense_is_wrong_usage(tmp_path, capsys, options, message):
    table = tmp_path / "sizes.csv"
    table.write_text("size\n1\n2\n3\n", encoding="utf-8")

    with pytest.raises(SystemExit) as ended:
        main(["fit", str(table), *options])

    assert ended.value.code == 2
    assert message in capsys.readouterr().err
    assert not (tmp_path / "sizes.altbi").exists()


def test_a_private_fit_says_what_to_doubt(tmp_path, capsys):
    table = tmp_path / "sizes.csv"
    table.write_text("size\n" + "\n".join(map(str, range(40))), encoding="utf-8")

    options = ["--epsilon", "5", "--delta", "0.3", "--bounds", "0", "40"]
    assert main(["fit", str(table), *options, "--truncation", "previous"]) == 0

    said = " ".join(capsys.readouterr().out.split())
    assert "is not below one in about" in said
    assert "Epsilon is no guarantee here" in said
    assert "learned from about" in said
    assert main(["inspect", str(tmp_path / "sizes.altbi")]) == 0
    assert "not told" in capsys.readouterr().out
    model = str(tmp_path / "sizes.altbi")
    assert main(["score", str(table), "--model", model, "-o", str(tmp_path / "scores.csv")]) == 0
    assert "learned from about" in " ".join(capsys.readouterr().out.split())
