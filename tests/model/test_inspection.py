import json

import msgspec
import pytest
from model_files import rewrite

from altbi.errors import ModelFileError
from altbi.model._file import read_header
from altbi.model._inspection import read_description, render


def render_lines(path):
    return [" ".join(line.split()) for line in render(read_description(path)).splitlines()]


def test_description_shows_header_as_text(write_model, get_fitted):
    path = write_model("distance")
    model = get_fitted("distance").model_

    lines = render_lines(path)

    assert lines[0].startswith(f"{path}: OutlierDetector, written by altbi ")
    assert "training table 120 rows, 4 columns; trained on 120 of the rows" in lines
    assert (
        "reference rows 50 rows of the training table, as robust z-scores: protect the file like "
        "the table"
    ) in lines
    assert f"threshold rows with an outlier score above {model.threshold:.6g} are outliers" in lines
    assert f"last loss {model.history[-1].loss:.6g}" in lines
    assert "privacy none: the model was fitted without a privacy budget" in lines
    assert "keep=0.8" in " ".join(lines)
    size = model.encoder.columns[0]
    assert f"size number 0 {size.low:.6g} to {size.high:.6g}" in lines
    assert any(line.startswith("colour category 0 '") for line in lines)
    assert "day date 0 2026-01-01 00:00:00+00:00 to 2026-01-05 23:00:00+00:00" in lines


def test_models_by_loss_have_no_reference_rows(write_model):
    description = read_description(write_model("loss"))
    assert description.reference_rows == 0
    assert "reference rows  none: rows are scored by loss" in render(description)


@pytest.mark.slow
def test_description_of_private_model_has_ledger(write_model, get_fitted):
    path = write_model("private")
    ledger = get_fitted("private").model_.ledger

    description = read_description(path)

    assert (description.epsilon_rdp, description.epsilon_prv) == (
        ledger.epsilon_rdp,
        ledger.epsilon_prv,
    )
    assert description.delta == 1e-5
    assert description.last_loss is None
    text = render(description)
    assert "of 3 at delta 1e-05" in text
    assert "not covered: scores of the training rows" in text
    assert "last loss       not released" in text
    assert "training table  about" in text
    assert "no guarantee" not in text
    assert "share of rows   times  release" in text


def test_missing_guarantee_is_shown(write_model):
    path = write_model("private")
    privacy = read_header(path)["privacy"]
    rewrite(path, privacy=privacy | {"guarantee": False, "truncation": "previous", "covered": []})

    assert "no guarantee; epsilon" in render(read_description(path))


def test_text_from_the_file_is_escaped(write_model):
    path = write_model("loss")
    header = read_header(path)
    header["encoder"]["columns"][0]["name"] = "\x1b[2J"
    header["table"]["conventions"] = {
        "text_formats": {"size": "numbers with a decimal comma", "count": "numbers"},
        "missing": ["?\x1b\n"],
    }
    header["parameters"]["backbone"] = "\x1b]0;title\x07"
    rewrite(path, **header | {"altbi_version": "1\r\n2"})

    text = render(read_description(path))

    assert all(character.isprintable() for character in text.replace("\n", ""))
    assert "altbi 1\\r\\n2" in text
    assert "\\x1b[2J" in text
    last = "in text files   'size' as numbers with a decimal comma, '?\\x1b\\n' as missing"
    assert text.splitlines()[-1] == last


def test_description_is_plain_json(write_model):
    for name in ("distance", "private"):
        description = read_description(write_model(name))
        fields = json.loads(json.dumps(msgspec.to_builtins(description), allow_nan=False))
        names = [column["name"] for column in fields["columns"]]
        assert names == [column.name for column in description.columns]


@pytest.mark.parametrize(
    "change",
    [
        lambda header: header["encoder"]["columns"][0].update(low=9e9),
        lambda header: header["privacy"].update(epsilon_rdp=0.1),
        lambda header: header["table"].update(n_rows=-1),
        lambda header: header.update(history=[]),
    ],
    ids=["encoder", "privacy", "table", "history"],
)
def test_invalid_header_is_rejected(write_model, change):
    path = write_model("private")
    header = read_header(path)
    change(header)
    rewrite(path, **header)
    with pytest.raises(ModelFileError) as caught:
        read_description(path)
    assert str(caught.value).startswith(str(path))


def test_long_texts_and_lists_are_cut(write_model):
    path = write_model("loss")
    header = read_header(path)
    header["parameters"] |= {"schedule": "x" * 10**6, **{f"p{n}": 0 for n in range(80)}}
    header["encoder"]["columns"][0]["name"] = "n" * 10**6
    colour = header["encoder"]["columns"][1]
    colour["categories"] = ["c" * 10**6, *colour["categories"][1:]]
    formats = {f"column {n}": "a format" for n in range(500)}
    header["table"]["conventions"] = {"text_formats": formats, "missing": ["m" * 10**6] * 9}
    rewrite(path, **header | {"altbi_version": "1" * 10**6})

    text = render(read_description(path))

    assert len(text) < 10_000
    assert max(map(len, text.splitlines())) <= 120 + len(str(path))
    assert "409 more (all with --json)" in " ".join(text.split())
    assert len(read_description(path).conventions.text_formats) == 500


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda header: header["table"].update(n_rows=2**60), "n_rows"),
        (lambda header: header["parameters"].update({f"p{n}": 0 for n in range(101)}), "length"),
        (
            lambda header: header["table"]["conventions"].update(missing=["x"] * 100_001),
            "length <= 100000",
        ),
        (
            lambda header: header["encoder"].update(
                columns=[header["encoder"]["columns"][0] | {"name": str(n)} for n in range(100_001)]
            ),
            "length <= 100000",
        ),
        (
            lambda header: header["privacy"].update(releases=header["privacy"]["releases"] * 2000),
            "length <= 2000",
        ),
    ],
    ids=["rows", "parameters", "missing", "columns", "releases"],
)
def test_headers_larger_than_any_model_are_refused(write_model, change, message):
    path = write_model("private")
    header = read_header(path)
    change(header)
    rewrite(path, **header)
    with pytest.raises(ModelFileError, match=message):
        read_description(path)
