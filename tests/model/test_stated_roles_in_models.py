"""Roles that the user states decide what the model does with a column."""

import re
import warnings

import msgspec
import numpy as np
import pandas as pd
import pytest
from model_files import FAST, rewrite

import altbi
from altbi import ALTBI, ODIM, OutlierDetector
from altbi.errors import ModelFileError, ParameterError, TableWarning
from altbi.model._file import read_header
from altbi.model._inspection import read_description, render

N_ROWS = 2000


def make_frame():
    """Return codes, quantities, keys and texts; the last row has a rare code."""
    rng = np.random.default_rng(0)
    codes = 149 * np.arange(60) + rng.integers(1003, 1053, 60)
    keys = np.append(rng.permutation(N_ROWS - 1) + 1, 7)
    words = rng.integers(0, 3000, (N_ROWS, 7))
    frame = pd.DataFrame(
        {
            "amount": rng.normal(50, 5, N_ROWS).round(2),
            "code": codes[rng.integers(0, 60, N_ROWS)],
            "count": rng.integers(0, 30, N_ROWS),
            "key": keys,
            "weight": rng.normal(size=N_ROWS),
            "ref": [f"R-{key:08}" for key in keys],
            "note": [" ".join(f"word{word}" for word in row) for row in words],
            "colour": rng.choice(["red", "green", "blue"], N_ROWS),
            "paid": rng.random(N_ROWS) < 0.3,
            "day": pd.Timestamp("2025-01-01") + pd.to_timedelta(rng.integers(0, 99, N_ROWS), "D"),
        }
    )
    frame.loc[N_ROWS - 1, ["code", "colour"]] = [codes[30] + 1, "bluu"]
    frame.loc[N_ROWS - 2 :, "weight"] = 0.125
    return frame


FRAME = make_frame()
LAST = FRAME.iloc[[-1]]

pytestmark = pytest.mark.filterwarnings("ignore::altbi.errors.TableWarning")


@pytest.fixture(scope="module")
def explain():
    """Return a function that explains rows by a detector with these roles; each is fitted once."""
    fitted = {}

    def explain_rows(rows, **roles):
        key = tuple(sorted(roles.items()))
        if key not in fitted:
            fitted[key] = OutlierDetector(n_reference=60, schedule=FAST, column_roles=roles)
            fitted[key].fit(FRAME)
        found = fitted[key].explain(rows)
        return dict(zip(found.columns, found.contributions.T, strict=True))

    return explain_rows


def test_roles_of_all_columns_are_stored():
    model = OutlierDetector(n_reference=60, schedule=FAST).fit(FRAME).model_
    assert {column.name: column.role.role for column in model.encoder.columns} == {
        "amount": "number", "code": "code", "count": "number", "key": "identifier",
        "weight": "number", "ref": "identifier", "note": "free text", "colour": "category",
        "paid": "boolean", "day": "date",
    }  # fmt: skip


def test_numbers_as_categories_count_by_their_rarity_alone(explain):
    rare = FRAME.iloc[[0, 1]].assign(count=[FRAME["count"].iloc[0], 10**6])
    usual, far = explain(rare, count="category")["count"]
    assert usual < 0.5
    rare["count"] = [int(FRAME["count"].max()) + 1, -(10**9)]
    unseen = explain(rare, count="category")["count"]
    assert unseen[0] == pytest.approx(unseen[1], rel=0.01)
    assert unseen[0] > 3
    assert far == pytest.approx(unseen[0], rel=0.01)
    as_number = explain(rare)["count"]
    assert as_number[1] > 3 * as_number[0]


def test_codes_as_numbers_count_by_their_position_alone(explain):
    assert explain(LAST)["code"][0] > 1
    assert explain(LAST, code="number")["code"][0] < 0.5
    far = LAST.assign(code=10**6)
    assert explain(far, code="number")["code"][0] > 5


@pytest.mark.parametrize("role", ["text", "identifier"])
def test_texts_that_are_not_compared_contribute_nothing(explain, role):
    assert explain(LAST)["colour"][0] > 1
    assert explain(LAST, colour=role)["colour"][0] == 0


def test_repeats_of_stated_identifiers_count(explain):
    once, twice, far = FRAME.iloc[[5]], FRAME.iloc[[-2]], FRAME.iloc[[5]].assign(weight=10**9)
    assert explain(twice)["weight"][0] < 1
    assert explain(far)["weight"][0] > 3
    assert explain(twice, weight="identifier")["weight"][0] > 1
    assert explain(once, weight="identifier")["weight"][0] == 0
    assert explain(far, weight="identifier")["weight"][0] == 0


def test_identifiers_as_numbers_count_by_their_position(explain):
    far = LAST.assign(key=10**9)
    assert explain(far)["key"][0] == 0
    assert explain(far, key="number")["key"][0] > 3


def test_free_text_as_category_counts(explain):
    unseen = FRAME.iloc[[5]].assign(note="9")
    assert explain(unseen)["note"][0] == 0
    assert explain(unseen, note="category")["note"][0] > 1


def test_booleans_as_categories_change_nothing(explain):
    assert explain(FRAME, paid="category")["paid"] == pytest.approx(explain(FRAME)["paid"])


def test_dates_as_identifiers_have_no_rarity(explain):
    far = FRAME.iloc[[5]].assign(day=pd.Timestamp("1900-01-01"))
    assert explain(far)["day"][0] > 1
    assert explain(far, day="identifier")["day"][0] == 0


def test_roles_may_be_stated_for_arrays():
    values = np.column_stack([np.random.default_rng(0).integers(0, 9, 300), np.arange(300)])
    name = altbi.table.as_table(values).names[0]
    detector = OutlierDetector(schedule=FAST, column_roles={name: "category"}).fit(values)
    high, higher = detector.explain([[10, 5], [10**6, 5]]).contributions[:, 0]
    assert high == pytest.approx(higher, rel=0.01)
    assert detector.encoder_.columns[0].use == "category"


@pytest.mark.parametrize(
    ("roles", "message"),
    [
        ({"zap": "category"}, "column_roles names 'zap', but no column has this name"),
        ({"colour": "number"}, "'colour' holds text, so it cannot have the role number"),
        ({"colour": "date"}, "expected a dict from names of columns to roles"),
        ({1: "number"}, "expected a dict from names of columns to roles"),
        (["category:colour"], "expected a dict from names of columns to roles"),
    ],
)
def test_invalid_roles_are_refused(roles, message):
    with pytest.raises(ParameterError, match=message):
        OutlierDetector(schedule=FAST, column_roles=roles).fit(FRAME)


def test_detect_refuses_roles_that_have_no_effect():
    for detector in (ALTBI(), ODIM()):
        with pytest.raises(ParameterError, match="uses each column by its type"):
            altbi.detect(FRAME, detector=detector, column_roles={"code": "category"})
    detector = OutlierDetector(column_roles={"code": "number"})
    with pytest.raises(ParameterError, match="Leave out one of them"):
        altbi.detect(FRAME, detector=detector, column_roles={"code": "category"})
    for options in ({"exclude": "code"}, {"id": "code"}):
        with pytest.raises(ParameterError, match="'code' is not searched"):
            altbi.detect(FRAME, column_roles={"code": "category"}, **options)


def test_frames_warn_about_roles_as_files_do(tmp_path):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        OutlierDetector(n_reference=60, schedule=FAST, column_roles={"key": "number"}).fit(FRAME)
    assert {each.category for each in caught} == {TableWarning}
    assert {each.filename for each in caught} == {__file__}
    texts = [str(each.message) for each in caught]
    assert [re.match(r"Column '(\w+)'", text)[1] for text in texts] == ["code", "ref", "note"]
    FRAME.to_csv(tmp_path / "table.csv", index=False)
    detector = OutlierDetector(n_reference=60, schedule=FAST, column_roles={"key": "number"})
    detection = altbi.detect(tmp_path / "table.csv", detector=detector, report=False)
    assert [note for note in detection.notes if note in texts] == texts


def test_many_role_warnings_are_counted():
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({f"c{n}": rng.permutation(300) + n for n in range(30)})
    with pytest.warns(TableWarning) as caught:
        OutlierDetector(n_reference=60, schedule=FAST).fit(frame.assign(x=rng.normal(size=300)))
    assert len(caught) == 21
    assert "10 more columns" in str(caught[-1].message)


@pytest.fixture
def path(tmp_path):
    roles = {"object": "category", "text": "text"}
    frame = pd.DataFrame({"object": FRAME["count"], "text": FRAME["colour"], "x": FRAME["amount"]})
    detector = OutlierDetector(n_reference=60, schedule=FAST, column_roles=roles).fit(frame)
    detector.save(tmp_path / "model.altbi")
    return tmp_path / "model.altbi"


def test_model_file_keeps_roles_and_reasons(path):
    loaded = OutlierDetector.load(path)
    assert loaded.column_roles == {"object": "category", "text": "text"}
    columns = loaded.encoder_.columns
    assert [column.use for column in columns] == ["category", "free text", "number"]
    assert [column.is_stated for column in columns] == [True, True, False]
    assert columns[0].role.reason.startswith("Stated by the user. Inferred: number. 30 distinct")
    assert "distinct numbers from" in columns[2].role.reason
    stored = msgspec.to_builtins(columns[2].role)
    assert set(stored) == {"role", "reason", "n_distinct"}


@pytest.mark.parametrize(
    "change",
    [
        {"role": "free text"},
        {"role": "date"},
        {"role": "duplicate", "duplicate_of": 2},
        {"is_text": True},
        {"n_distinct": 10**6},
        {"reason": "x" * 401},
    ],
    ids=str,
)
def test_contradictory_roles_are_rejected(path, change):
    header = read_header(path)
    header["encoder"]["columns"][2]["role"] |= change
    rewrite(path, **header)
    with pytest.raises(ModelFileError):
        altbi.load(path)


def render_lines(path):
    return [" ".join(line.split()) for line in render(read_description(path)).splitlines()]


def test_inspect_lists_roles_and_reasons(path):
    lines = render_lines(path)
    start = lines.index("column role why: inferred, unless stated by the user")
    assert lines[start + 1].startswith("object category Stated by the user. Inferred: number. 30")
    assert "text free text Stated by the user. Inferred: category. 4 distinct texts." in lines
    assert any(line.startswith("x number 1,") for line in lines[start:])


def test_inspect_counts_usual_roles_of_wide_tables(tmp_path):
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({f"c{n}": rng.normal(size=60) for n in range(60)})
    detector = OutlierDetector(n_reference=20, schedule=FAST)
    detector.fit(frame.assign(key=range(60))).save(tmp_path / "wide.altbi")
    lines = render_lines(tmp_path / "wide.altbi")
    start = lines.index("column role why: inferred, unless stated by the user")
    assert lines[start + 1].startswith("key identifier A counter")
    assert lines[start + 2] == "and 60 more columns: 60 number (all with --json)"


def test_inspect_shows_that_no_roles_are_inferred(tmp_path):
    ALTBI(schedule=FAST).fit(FRAME[["amount", "colour"]]).save(tmp_path / "loss.altbi")
    assert "roles not inferred: each column is used as its kind" in render_lines(
        tmp_path / "loss.altbi"
    )


def test_hostile_roles_are_escaped(path):
    header = read_header(path)
    header["encoder"]["columns"][2]["role"] |= {"reason": "\x1b[2J\n", "remarks": ["\u202e"]}
    rewrite(path, **header)
    text = render(read_description(path))
    assert all(letter.isprintable() for letter in text.replace("\n", ""))
    assert "\\x1b[2J\\n" in text


def test_report_lists_roles(tmp_path):
    frame = FRAME.rename(columns={"count": "<b>count</b>"})
    detector = OutlierDetector(n_reference=60, schedule=FAST)
    roles = {"<b>count</b>": "category"}
    detection = altbi.detect(frame, tmp_path / "out", detector=detector, column_roles=roles)
    facts = {fact.name: fact for fact in detection.summary.columns}
    assert facts["<b>count</b>"].is_stated
    assert (facts["code"].role, facts["code"].is_usual) == ("code", False)
    assert (facts["amount"].role, facts["amount"].is_usual) == ("number", True)
    page = detection.report.read_text()
    assert "Stated by the user. Inferred: number. 30 distinct numbers from 0 to 29." in page
    assert "<b>count" not in page


def test_detect_column_roles_equal_those_of_the_detector(tmp_path):
    roles = {"code": "number", "note": "category"}
    detector = OutlierDetector(n_reference=60, schedule=FAST)
    found = altbi.detect(FRAME, detector=detector, column_roles=roles, report=False)
    stated = OutlierDetector(n_reference=60, schedule=FAST, column_roles=roles).fit(FRAME)
    assert found.scores()["score"].to_pylist() == stated.outlier_score(FRAME).tolist()
