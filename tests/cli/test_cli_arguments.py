import pytest

from altbi.cli import main
from altbi.cli._arguments import read_settings
from altbi.cli._parser import build_parser
from altbi.errors import ParameterError


@pytest.fixture
def table(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "sizes.csv").write_text("size\n1\n2\n3\n", encoding="utf-8")
    return "sizes.csv"


def parse(*arguments):
    return build_parser().parse_args(["fit", "sizes.csv", *arguments])


@pytest.mark.parametrize(
    ("method", "detector", "by_distance"),
    [
        ("recommended", "OutlierDetector", True),
        ("altbi", "ALTBI", False),
        ("altbi-paper", "ALTBI", False),
        ("altbi-glow", "ALTBI", False),
        ("odim", "ODIM", False),
    ],
)
def test_method_selects_the_detector(method, detector, by_distance):
    options = ["--contamination", "0.1", "--max-rows", "100", "--seed", "5"]

    settings = read_settings(parse("--method", method, *options))

    assert settings.detector == detector
    assert (settings.reference is not None) == by_distance
    assert (settings.contamination, settings.max_rows, settings.random_state) == (0.1, 100, 5)


def test_paper_method_equals_the_constructor():
    from altbi import ALTBI

    settings = read_settings(parse("--method", "altbi-paper"))

    assert settings.parameters == ALTBI.paper().settings().parameters


def test_threshold_replaces_contamination():
    assert read_settings(parse("--threshold", "1.5")).threshold == 1.5


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--epsilon", "0", "--bounds", "0", "1"], "--epsilon: '0', but expected a number above 0"),
        (["--epsilon", "inf", "--bounds", "0", "1"], "but expected a number above 0"),
        (["--epsilon", "1", "--delta", "1", "--bounds", "0", "1"], "between 0 and 1"),
        (["--epsilon", "1"], "--epsilon needs --bounds"),
        (["--epsilon", "1", "--bounds", "1", "0"], "--bounds 1 0: expected two numbers"),
        (["--epsilon", "1", "--bounds", "0", "nan"], "expected two numbers"),
        (["--epsilon", "1", "--bounds", "nowhere.json"], "expected two numbers"),
        (["--bounds", "0", "1"], "--bounds belongs to a privacy budget: pass --epsilon too"),
        (["--delta", "1e-5"], "pass --epsilon too"),
        (["--truncation", "trimmed"], "pass --epsilon too"),
        (["--epsilon", "1", "--bounds", "0", "1", "--method", "altbi-glow"], "not for altbi-glow"),
        (["--threshold", "nan"], "but expected a finite number"),
        (["--threshold", "1", "--method", "odim"], "--threshold is not for odim"),
        (["--threshold", "1", "--contamination", "0.1"], "omit one of them"),
        (["--output", "-"], "cannot be written to stdout"),
    ],
)
def test_inconsistent_fit_options_are_wrong_usage(table, tmp_path, capsys, options, message):
    with pytest.raises(SystemExit) as stopped:
        main(["fit", table, *options])

    assert stopped.value.code == 2
    assert message in capsys.readouterr().err
    assert not (tmp_path / "sizes.altbi").exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("detect sizes.csv --scheduler tcp://a:1", "--scheduler is for --engine dask"),
        ("detect sizes.csv --engine local --workers 2", "--workers is for --engine dask"),
        ("detect sizes.csv --engine dask --workers 2 --scheduler tcp://a:1", "its own workers"),
        ("detect sizes.csv --engine dask --tls-ca a", "are for --scheduler"),
        ("detect sizes.csv --engine dask --scheduler tls://a:1 --tls-ca a", "needs three files"),
        ("detect sizes.csv --engine local --format csv", "writes Parquet"),
        ("detect sizes.csv --engine local --output -", "cannot go to stdout"),
        ("detect sizes.csv --epsilon 1 --bounds 0 1", "--release-scores"),
        ("detect sizes.csv --release-scores", "pass --epsilon too"),
        ("explain sizes.csv -m a.altbi --top 10 --rows 1", "not allowed with argument"),
    ],
)
def test_inconsistent_options_are_wrong_usage(table, capsys, arguments, message):
    with pytest.raises(SystemExit) as stopped:
        main(arguments.split())

    assert stopped.value.code == 2
    assert message in capsys.readouterr().err


def test_bounds_are_read_from_a_file(table, tmp_path):
    (tmp_path / "bounds.json").write_text('{"size": [0, 5]}')

    settings = read_settings(parse("--epsilon", "1", "--bounds", "bounds.json"))

    assert settings.parameters["privacy"].bounds == {"size": [0, 5]}


@pytest.mark.parametrize("text", ["[1]", "{", "1"])
def test_invalid_bounds_files_are_errors(table, tmp_path, text):
    (tmp_path / "bounds.json").write_text(text)

    with pytest.raises(ParameterError, match=r"bounds\.json.*Expected bounds"):
        read_settings(parse("--epsilon", "1", "--bounds", "bounds.json"))


@pytest.mark.parametrize("texts", [["0", "1"], ["estimate"]])
def test_bounds_are_numbers_or_estimate(table, texts):
    bounds = read_settings(parse("--epsilon", "1", "--bounds", *texts)).parameters["privacy"].bounds

    assert bounds == ("estimate" if texts == ["estimate"] else (0.0, 1.0))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--encoding", "foo"], "encoding='foo', but expected a text encoding"),
        (["--delimiter", "ab"], "delimiter='ab', but expected one letter"),
        (["--input-format", "jsonl", "--delimiter", ";"], "to which it does not apply"),
    ],
)
@pytest.mark.parametrize("source", ["file", "stdin"])
def test_wrong_options_of_the_file_exit_with_two(
    tmp_path, monkeypatch, capsys, source, options, message
):
    path = tmp_path / "t.csv"
    path.write_text("a\n1\n2\n")
    table = str(path) if source == "file" else "-"
    arguments = ["detect", table, "-o", str(tmp_path / "out"), *options]
    with path.open() as file:
        monkeypatch.setattr("sys.stdin", file)
        with pytest.raises(SystemExit) as stopped:
            main(arguments)

    assert stopped.value.code == 2
    assert message in capsys.readouterr().err


def test_several_files_are_explained(capsys):
    with pytest.raises(SystemExit) as stopped:
        main(["detect", "a.csv", "b.csv", "c.csv"])

    assert stopped.value.code == 2
    message = capsys.readouterr().err
    assert "unrecognized arguments: b.csv c.csv. Expected one table: for several files" in message
    assert "*.csv" not in message

    with pytest.raises(SystemExit):
        main(["detect", "a.csv", "b.csv", "--frobnicate"])
    assert "Expected one table" not in capsys.readouterr().err


def test_help_lists_all_exit_codes(capsys):
    with pytest.raises(SystemExit):
        main(["--help"])

    codes = capsys.readouterr().out.partition("exit codes:")[2]
    assert "130 interrupted" in codes
    assert "143 terminated" in codes


@pytest.mark.parametrize(
    "options",
    [
        ["--skip", "1"],
        ["--no-header"],
        ["--encoding", "utf-8"],
        ["--delimiter", ";"],
        ["--input-format", "csv"],
    ],
)
def test_options_of_files_exclude_a_query(capsys, options):
    with pytest.raises(SystemExit) as stop:
        main(["detect", "--sql", "select 1 as a", *options])

    assert stop.value.code == 2
    name = options[0].replace("--no-", "--")
    assert f"{name} is not for --sql" in capsys.readouterr().err


def test_roles_of_columns_are_read():
    args = parse("--as", "category:zip,text:a,b", "--as", "number:a,b")
    with pytest.raises(ParameterError, match="'b' does not begin with a role"):
        read_settings(args, ["zip", "a", "b", "a,b"])
    args = parse("--as", "category:zip,text:a", "--as", "number:a,b")
    found = {"zip": "category", "a": "text", "a,b": "number"}
    assert read_settings(args, ["zip", "a", "b", "a,b"]).column_roles == found
    assert read_settings(parse(), ["zip"]).parameters["column_roles"] is None


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--method", "odim"], "--as is for --method recommended: odim uses each column by its"),
        (["--epsilon", "1"], "--as is not for a privacy budget, under which columns are declared"),
    ],
)
def test_roles_need_a_method_that_infers_them(capsys, options, message):
    with pytest.raises(SystemExit) as stopped:
        read_settings(parse("--as", "category:zip", *options), ["zip"])
    assert stopped.value.code == 2
    assert message in capsys.readouterr().err
