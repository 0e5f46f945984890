import pytest
from hypothesis import given
from hypothesis import strategies as st

from altbi.errors import ParameterError
from altbi.networks._schedule import Schedule

PAPER = Schedule()
REFERENCE = Schedule(T1=61, updates=5, first_truncated=2)


def test_the_paper_s_batches_grow_from_128_to_1322():
    sizes = [PAPER.batch_size_at(step, 10**6) for step in range(PAPER.steps)]

    assert sizes[:12] == [128] * 11 + [131]
    assert sizes[-1] == int(128 * 1.03**79) == 1322
    assert sizes == sorted(sizes)


def test_the_paper_truncates_from_the_first_step_after_the_warm_up():
    assert [PAPER.kept_share_at(step) for step in (0, 9, 10, 11, 89)] == [1, 1, 0.92, 0.92, 0.92]


def test_the_reference_truncates_one_step_late():
    assert [REFERENCE.kept_share_at(step) for step in (9, 10, 11)] == [1, 1, 0.92]


def test_the_paper_has_20_snapshots_and_the_reference_19():
    def taken(plan):
        return [step for step in range(plan.steps) if plan.is_snapshot(step)]

    assert taken(PAPER) == list(range(70, 90))
    assert taken(REFERENCE) == list(range(71, 90))


def test_a_limited_batch_stops_growing():
    plan = Schedule(max_batch=500)
    sizes = [plan.batch_size_at(step, 10**6) for step in range(plan.steps)]

    assert sizes[:57] == [PAPER.batch_size_at(step, 10**6) for step in range(57)]
    assert sizes[57:] == [500] * 33
    assert Schedule(max_batch=500, gamma=1e6).batch_size_at(89, 10**6) == 500
    assert plan.batch_size_at(89, 300) == 300


@given(n_rows=st.integers(2, 10**9), step=st.integers(0, 89), gamma=st.floats(1, 1e6))
def test_a_batch_is_never_larger_than_the_table(n_rows, step, gamma):
    size = Schedule(gamma=gamma).batch_size_at(step, n_rows)

    assert min(n_rows, 128) <= size <= n_rows


@pytest.mark.parametrize(
    "wrong",
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
def test_a_plan_that_makes_no_sense_is_refused_by_name(wrong):
    name = "T2" if "T1" in wrong else next(iter(wrong))

    with pytest.raises(ParameterError, match=f"Schedule: {name}=.* but expected"):
        Schedule(**wrong)
