import pytest
from hypothesis import given
from hypothesis import strategies as st

from altbi import ALTBI, Schedule
from altbi.errors import ParameterError

PAPER = ALTBI.paper().schedule
DEFAULT = Schedule()


def test_batches_grow_from_128_to_1322():
    sizes = [PAPER.batch_size_at(step, 10**6) for step in range(PAPER.n_steps)]

    assert sizes[:12] == [128] * 11 + [131]
    assert sizes[-1] == int(128 * 1.03**79) == 1322
    assert sizes == sorted(sizes)


def test_truncation_starts_at_first_truncated():
    steps = (0, 9, 10, 11, 89)

    assert [PAPER.kept_share_at(step) for step in steps] == [1, 1, 0.92, 0.92, 0.92]
    assert [DEFAULT.kept_share_at(step) for step in steps] == [1, 1, 1, 0.92, 0.92]


def test_paper_has_20_snapshots_and_default_19():
    def snapshots(schedule):
        return [step for step in range(schedule.n_steps) if schedule.is_snapshot(step)]

    assert snapshots(PAPER) == list(range(70, 90))
    assert snapshots(DEFAULT) == list(range(71, 90))
    assert (PAPER.n_snapshots, DEFAULT.n_snapshots) == (20, 19)


def test_max_batch_limits_batches():
    schedule = Schedule(max_batch=500)
    sizes = [schedule.batch_size_at(step, 10**6) for step in range(schedule.n_steps)]

    assert sizes[:57] == [DEFAULT.batch_size_at(step, 10**6) for step in range(57)]
    assert sizes[57:] == [500] * 33
    assert Schedule(max_batch=500, gamma=1e6).batch_size_at(89, 10**6) == 500
    assert schedule.batch_size_at(89, 300) == 300


@given(n_rows=st.integers(2, 10**9), step=st.integers(0, 89), gamma=st.floats(1, 1e6))
def test_batch_is_never_larger_than_table(n_rows, step, gamma):
    size = Schedule(gamma=gamma).batch_size_at(step, n_rows)

    assert min(n_rows, 128) <= size <= n_rows


def test_auto_updates_are_resolved():
    assert DEFAULT.resolve_updates(5).n_updates == 5
    assert Schedule(updates=3).resolve_updates(5).n_updates == 3


@pytest.mark.parametrize(
    "invalid",
    [
        {"n0": 1},
        {"n0": 12.5},
        {"gamma": 0.9},
        {"gamma": float("inf")},
        {"gamma": "1.03"},
        {"rho": 0},
        {"rho": 1.01},
        {"rho": float("nan")},
        {"T0": -1},
        {"T1": 80},
        {"T2": True},
        {"updates": 0},
        {"first_truncated": 0},
        {"max_batch": 127},
        {"n0": "a", "max_batch": 5},
        {"max_batch": 500.0},
    ],
)
def test_invalid_parameter_raises(invalid):
    name = "T2" if "T1" in invalid else next(iter(invalid))

    with pytest.raises(ParameterError, match=f"Schedule: {name}=.* but expected"):
        Schedule(**invalid).validate()


def test_long_values_are_cut_in_messages():
    with pytest.raises(ParameterError) as caught:
        Schedule(n0="x" * 10_000).validate()

    assert str(caught.value).startswith("Schedule: n0='xxx")
    assert len(str(caught.value)) < 300
