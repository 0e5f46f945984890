import pytest

from altbi.errors import ModelFileError
from altbi.model._privacy_accounting import Release
from altbi.model._privacy_ledger import Ledger

DELTA = 1e-5
RELEASES = (Release("number of rows", 8.0), Release("gradients", 1.1, 0.02, 5))


def make_ledger(**changes):
    values = {"epsilon": 3.0, "delta": DELTA, "truncation": "tracked", "clip": 1.0}
    return Ledger(**values | {"releases": RELEASES} | changes)


@pytest.fixture(scope="module")
def state():
    return make_ledger().to_json()


def test_ledger_is_restored_from_json():
    ledger = make_ledger(categories_delta=1e-6)
    restored = Ledger.from_json(ledger.to_json())
    assert restored == ledger
    assert restored.epsilon_rdp == ledger.epsilon_rdp
    assert restored.epsilon_prv == ledger.epsilon_prv


def test_delta_for_categories_is_not_spent_twice(state):
    assert make_ledger(categories_delta=9e-6).epsilon_prv > state["epsilon_prv"]


def test_missing_guarantee_is_reported_first(state):
    ledger = make_ledger(guarantee=False, truncation="previous")
    without = ledger.to_json()
    assert not without["covered"]
    assert without["not_covered"][0].startswith("epsilon is not a guarantee")
    assert without["not_covered"][1:] == state["not_covered"]
    assert [text.split(":")[0] for text in ledger.check(100)] == [
        "Epsilon is not a guarantee for this model"
    ]


def test_large_delta_is_reported():
    (warning,) = make_ledger().check(n_rows=100_001)
    assert warning.startswith("delta=1e-05 is not below 1 / 100001")
    assert list(make_ledger().check(n_rows=99_999)) == []


def test_releases_of_one_kind_are_summarized():
    releases = [Release("gradients", 1.1, rate, 5) for rate in (0.3, 0.02)]
    ledger = make_ledger(releases=(Release("rows", 8.0), *releases))
    assert ledger.summarize_releases() == [
        ("rows", 8.0, 1.0, 1.0, 1),
        ("gradients", 1.1, 0.02, 0.3, 10),
    ]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"epsilon_rdp": 0.5, "epsilon_prv": 0.5}, "epsilon_rdp=0.5, but its releases cost"),
        ({"epsilon_rdp": None}, "epsilon_rdp"),
        ({"epsilon_prv": 99.0}, "epsilon_prv=99, but expected at most"),
        ({"epsilon_prv": -1.0}, "epsilon_prv"),
        ({"epsilon": 0.0}, "epsilon"),
        ({"clip": -1.0}, "clip"),
        ({"delta": 2.0}, "delta"),
        ({"categories_delta": 1.0}, "categories_delta < delta"),
        ({"guarantee": 1}, "guarantee"),
        ({"truncation": None}, "truncation"),
        ({"truncation": "previous"}, "truncation='previous', but a guarantee needs"),
        ({"extra": 1}, "unknown field `extra`"),
        ({"releases": []}, "releases"),
        ({"releases": "all"}, "releases"),
    ],
    ids=repr,
)
def test_inconsistent_ledger_is_rejected(state, change, message):
    with pytest.raises(ModelFileError, match=f"privacy ledger: .*{message}"):
        Ledger.from_json(state | change)


@pytest.mark.parametrize(
    "change",
    [
        {"noise": 100.0},
        {"noise": -1.0},
        {"noise": 1e200},
        {"noise": 1e-200},
        {"rate": 1.5},
        {"rate": 0.0},
        {"times": 0},
        {"times": 10**400},
        {"times": 1.5},
        {"what": None},
        {"extra": 1},
    ],
    ids=lambda change: str(change)[:20],
)
def test_invalid_release_is_rejected(state, change):
    releases = [state["releases"][0], state["releases"][1] | change]
    with pytest.raises(ModelFileError, match="privacy ledger: "):
        Ledger.from_json(state | {"releases": releases})


def test_state_of_other_type_is_rejected():
    with pytest.raises(ModelFileError, match="privacy ledger: Expected `object`"):
        Ledger.from_json([])
