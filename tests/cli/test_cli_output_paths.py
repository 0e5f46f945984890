import pytest

from altbi.cli import main


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "sizes.csv").write_text("size\n1\n2\n3\n", encoding="utf-8")
    (tmp_path / "sizes.altbi").write_text("a model")
    (tmp_path / "scores.csv").write_text("size\n1\n")
    (tmp_path / "data").mkdir()
    for name in ("a.csv", "b.csv"):
        (tmp_path / "data" / name).write_text("size\n1\n")
    return tmp_path


def contents(folder):
    return {str(path): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("score sizes.csv -m sizes.altbi -o ./sizes.csv", "cannot be the output"),
        ("explain sizes.csv -m sizes.altbi --rows 1 -o sizes.csv", "cannot be the output"),
        ("report sizes.csv -m sizes.altbi -o sizes.altbi", "cannot be the output"),
        ("cells sizes.csv -m sizes.altbi -o sizes.csv", "cannot be the output"),
        ("fit sizes.csv -o sizes.csv", "cannot be the output"),
        ("detect scores.csv -o .", "cannot be the output"),
        ("score data -m sizes.altbi -o data/a.csv", "would become part of the table"),
        ("score data -m sizes.altbi -o data/deep/new.csv", "would become part of the table"),
        ("explain data -m sizes.altbi --rows 1 -o data/b.csv", "would become part of the table"),
        ("detect data -o data", "would become part of the table"),
        ("detect data -o data/out --engine local", "would become part of the table"),
        ("score data -m sizes.altbi -o data/out --engine local", "would become part of the table"),
    ],
)
def test_inputs_are_never_overwritten(folder, capsys, arguments, message):
    before = contents(folder)

    with pytest.raises(SystemExit) as stopped:
        main(arguments.split())

    assert stopped.value.code == 2
    assert message in capsys.readouterr().err
    assert contents(folder) == before


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("detect -", "pass a path with --output"),
        ("score sizes.csv -m m.altbi -o - --json", "both go to stdout"),
    ],
)
def test_missing_and_conflicting_outputs_are_wrong_usage(folder, capsys, arguments, message):
    with pytest.raises(SystemExit) as stopped:
        main(arguments.split())

    assert stopped.value.code == 2
    assert message in capsys.readouterr().err


@pytest.mark.parametrize("other", ["sizes.csv.gz", "sizes.zip", "sizes.parquet", "sizes"])
@pytest.mark.parametrize(
    ("arguments", "output"),
    [
        ("detect sizes.csv", "sizes-altbi"),
        ("fit sizes.csv", "sizes.altbi"),
        ("score sizes.csv -m data/model", "sizes-scores.csv"),
        ("cells sizes.csv", "sizes-cells.csv"),
        ("report sizes.csv -m data/model", "sizes-report.html"),
    ],
)
def test_outputs_of_other_tables_are_kept(folder, capsys, arguments, output, other):
    (folder / other).touch()
    (folder / output).touch() if "." in output else (folder / output).mkdir()
    before = contents(folder)

    with pytest.raises(SystemExit) as stopped:
        main(arguments.split())

    assert stopped.value.code == 2
    message = f"{output} exists, and may be the output for {other}: pass an --output"
    assert message in capsys.readouterr().err
    assert contents(folder) == before


@pytest.mark.parametrize("other", [None, "sizes.txt.old", "size.csv", "sizes.altbi2"])
def test_own_default_outputs_are_replaced(folder, other):
    (folder / "sizes.csv").write_text("size\n" + "\n".join(map(str, range(40))))
    (folder / "sizes.altbi").unlink()
    if other is not None:
        (folder / other).touch()

    for _ in range(2):
        assert main(["detect", "sizes.csv", "--no-report", "--quiet"]) == 0
    (folder / "sizes.csv.gz").touch()
    assert main(["detect", "sizes.csv", "--no-report", "--quiet", "-o", "sizes-altbi"]) == 0
    assert main(["fit", "sizes.csv", "--quiet"]) == 0  # there is no output yet


def test_file_as_output_folder_is_wrong_usage(folder, capsys):
    with pytest.raises(SystemExit) as stopped:
        main(["detect", "sizes.csv", "-o", "scores.csv"])

    assert stopped.value.code == 2
    message = "scores.csv is a file, but the output is a folder: pass another --output"
    assert message in capsys.readouterr().err
    assert (folder / "scores.csv").read_text() == "size\n1\n"
