"""Tests of the tables of the pools."""

import pytest

from altbi_bench.catalogue.pools import POOLS
from altbi_bench.runs.pools import OURS
from altbi_bench.tables.pools import (
    CANDIDATE,
    Difference,
    PoolScores,
    apply_rule,
    left_out_rows,
    metric_rows,
    slow_rows,
)
from bench_pools import build_record


def build_pools(system, *values, **fields):
    """Return records of a system on tables "t0", "t1", ... of every pool."""
    return [
        build_record(system, f"t{number}", value, pool=pool, **fields)
        for pool in POOLS
        for number, value in enumerate(values)
    ]


def find_row(records, system, metric="auc", half="confirm"):
    """Return the cells of a system in the table of a metric."""
    rows = metric_rows(PoolScores(records, metric, half))
    return next(cells for name, *cells in rows if name == system)


class TestMetricRows:
    def test_cells_are_means_and_paired_differences(self):
        records = [*build_pools(OURS, 0.5, 0.7), *build_pools("MCD", 0.6, 1.0)]

        assert find_row(records, "MCD")[0] == "0.800 (+0.200 ± 0.100)"
        assert find_row(records, "MCD", "ap")[0] == "0.400 (+0.100 ± 0.050)"

    def test_last_cell_is_the_mean_over_pools(self):
        # Pools have a quarter of the weight each, whatever their sizes are.
        many = [build_record(OURS, f"more{number}", 0.1, pool="adbench") for number in range(6)]
        records = [*build_pools(OURS, 0.5, 0.7), *many, *build_pools("MCD", 0.6, 1.0)]

        assert find_row(records, OURS)[-1].startswith("0.506 ")
        assert find_row(records, "MCD")[-1] == "0.800 (+0.200 ± 0.050)"

    def test_seeds_of_a_table_are_averaged(self):
        records = [*build_pools(OURS, 0.5, 0.7), *build_pools(OURS, 0.7, 0.9, seed=1)]

        assert find_row(records, OURS)[0] == "0.700 (alone)"

    @pytest.mark.parametrize(
        ("values", "rank"),
        [((0.5, 0.7), "first"), ((0.5, 0.9), "within 1 SE"), ((0.6, 0.8), "not first")],
    )
    def test_rank_of_ours_is_marked(self, values, rank):
        records = [*build_pools(OURS, 0.5, 0.7), *build_pools("MCD", *values)]
        records += build_pools("LOF", 0.1, 0.2)

        assert find_row(records, OURS)[0] == f"0.600 ({rank})"

    def test_tables_of_the_other_half_are_left_out(self):
        records = [
            build_record(OURS, "a", 0.5),
            build_record(OURS, "b", 0.9, half="select"),
            build_record(OURS, "c", 0.8, pool="adbench", half="select"),
        ]

        assert find_row(records, OURS)[:3] == ["0.800 (alone)", "-", "0.500 (alone)"]
        assert find_row(records, OURS, half="select")[2] == "0.900 (alone)"

    def test_failed_seed_leaves_out_the_table(self):
        records = [*build_pools(OURS, 0.5, 0.7), *build_pools("MCD", 0.6, 0.9)]
        records.append(build_record("MCD", "t1", None, seed=1))

        assert find_row(records, "MCD")[2] == "0.600 on 1 (+0.100 ± -)"

    def test_head_counts_the_tables(self):
        head, *_ = metric_rows(PoolScores(build_pools(OURS, 0.5, 0.7), "auc", "confirm"))

        assert head[1:3] == ["adbench (2)", "embeddings (2)"]


class TestCandidate:
    def read_verdict(self, *values, last_pool=None):
        """Return the verdict on a candidate; the last pool may have other values."""
        records = [*build_pools(OURS, 0.5, 0.7), *build_pools(CANDIDATE, *values)]
        for record in records:
            if last_pool and (record["pool"], record["system"]) == (POOLS[-1], CANDIDATE):
                record["auc"] = last_pool[int(record["table"][1])]
        return apply_rule(PoolScores(records, "auc", "confirm"))

    @pytest.mark.parametrize(
        ("values", "verdict"),
        # Over four pools, the standard error is half that of one.
        [((0.51, 0.71), "passes"), ((0.5, 0.75), "does not pass"), ((0.51, 0.73), "passes")],
    )
    def test_mean_must_rise_by_two_errors(self, values, verdict):
        assert self.read_verdict(*values).startswith(f"{verdict}: mean over pools +")

    @pytest.mark.parametrize(
        ("last_pool", "verdict"), [((0.496, 0.696), "passes"), ((0.494, 0.694), "does not pass")]
    )
    def test_no_pool_may_lose_much(self, last_pool, verdict):
        found = self.read_verdict(0.6, 0.8, last_pool=last_pool)

        assert found.startswith(f"{verdict}: ")
        assert f"lowest pool {POOLS[-1]} -0.00" in found

    def test_candidate_has_a_row_without_a_rank(self):
        records = [*build_pools(OURS, 0.5, 0.7), *build_pools(CANDIDATE, 0.6, 0.8)]

        assert find_row(records, CANDIDATE)[0] == "0.700 (+0.100 ± 0.000)"
        assert find_row(records, OURS)[0] == "0.600 (alone)"


class TestLeftOutRows:
    def test_failures_and_missing_tables_are_counted(self):
        records = [*build_pools(OURS, 0.5, 0.7), *build_pools("MCD", 0.6)]
        records += [build_record("MCD", "t1", None, pool="adbench", seed=seed) for seed in (0, 1)]

        rows = {
            name: cells for name, *cells in left_out_rows(PoolScores(records, "auc", "confirm"))
        }

        assert rows["MCD"] == ["4", "1", "3", "t1: no"]
        assert OURS not in rows

    def test_slow_systems_have_no_missing_tables(self):
        records = [*build_pools(OURS, 0.5, 0.7), *build_pools("ODIM", 0.6)]

        names = [name for name, *_ in left_out_rows(PoolScores(records, "auc", "confirm"))]

        assert "MCD" in names
        assert "ODIM" not in names


class TestSlowRows:
    def test_slow_systems_are_compared_on_their_tables(self):
        records = [*build_pools(OURS, 0.5, 0.7, 0.9), *build_pools("ODIM", 0.6, 1.0)]
        both = [PoolScores(records, metric, "confirm") for metric in ("auc", "ap")]

        rows = {name: cells for name, *cells in slow_rows(both)}

        assert rows["ODIM"][:4] == ["8", "0.800", "0.600", "+0.200 ± 0.038"]
        assert rows["ODIM"][4:6] == ["0.400", "0.300"]
        assert rows["GLOW"] == ["0", *"------"]


class TestDifference:
    def test_error_of_a_mean_is_that_of_independent_ones(self):
        found = Difference.mean_of([Difference(0.1, 0.03), Difference(0.3, 0.04)])

        assert str(found) == "+0.200 ± 0.025"
