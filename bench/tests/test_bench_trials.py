"""Tests of the scores and sums that were tried, and of their records."""

import math

import numpy as np
import pytest

from altbi import OutlierDetector
from altbi.scorers._sum import COVARIANCE_WEIGHT, DISTANCE_WEIGHT, RARITY_WEIGHT
from altbi_bench.catalogue.pools import PoolTable
from altbi_bench.runs.json_records import read_json_records
from altbi_bench.trials.encoded_table import EncodedTable
from altbi_bench.trials.histograms import EqualBins, score_by_histograms, score_by_tails
from altbi_bench.trials.records import Trials, format_difference, measure_accuracy, run_missing
from altbi_bench.trials.scores import SCORES, score_by_covariance
from altbi_bench.trials.sums import CHOSEN, GATE, SUMS, Term, add_terms


@pytest.fixture(scope="module")
def rows():
    generator = np.random.default_rng(0)
    values = generator.normal(size=(120, 3))
    values[:, 2] = values[:, 0].round()
    return values


@pytest.fixture(scope="module")
def table(rows):
    return EncodedTable.encode(rows)


def build_record(pool, name, table, auc, ap=0.5):
    return {"pool": pool, "name": name, "table": table, "auc": auc, "ap": ap}


class TestScores:
    @pytest.mark.parametrize("name", SCORES)
    def test_scores_are_finite_and_vary(self, name, table):
        scores = SCORES[name](table)

        assert scores.shape == (120,)
        assert np.isfinite(scores).all()
        assert np.ptp(scores) > 0

    def test_detector_is_that_of_the_package(self, rows, table):
        expected = -OutlierDetector(random_state=0).fit(rows).score_samples(rows)

        assert np.array_equal(SCORES["detector"](table), expected)

    def test_covariance_removes_correlation(self):
        reference = np.random.default_rng(0).normal(size=(2000, 1)) * [1, 1]
        reference[:, 1] += np.random.default_rng(1).normal(size=2000) / 10

        along, across = score_by_covariance(np.array([[2.0, 2], [1, -1]]), reference, 1e-6)

        assert across > 20 * along

    def test_one_selection_differs_from_two(self, table):
        assert not np.array_equal(table.select_once(table.losses).rows, table.reference.rows)


class TestHistograms:
    def test_score_is_negative_log_share(self):
        training = np.array([[0.0], [0], [0], [4]])
        # Bins of 0, (0, 2], (2, 4] and above: counts 3, 0, 1 and 0, and 1 is added to each.
        scores = score_by_histograms(np.array([[0.0], [4]]), training, EqualBins(2, 0.0))

        assert scores == pytest.approx([math.log(7 / 4), math.log(7 / 2)])

    def test_tails_count_values_as_extreme(self):
        found = score_by_tails(np.array([[3.0], [9]]), np.array([[1.0], [2], [3], [4], [5]]))

        assert found["two-sided"] == pytest.approx([0, -math.log(2 * 0.5 / 6)])


class TestSums:
    def test_first_choice_equals_its_sum_of_terms(self, table):
        scores = add_terms(SUMS[CHOSEN].terms, lambda name: SCORES[name](table), table.n_features)

        expected = SCORES["groups: 5, weights 1, 1, 0.5"](table)
        assert scores == pytest.approx(expected, rel=1e-12)

    def test_chosen_groups_and_weights_are_the_detector(self, table):
        weights = ", ".join(
            f"{weight:g}" for weight in (DISTANCE_WEIGHT, COVARIANCE_WEIGHT, RARITY_WEIGHT)
        )

        scores = SCORES[f"groups: {OutlierDetector().n_groups}, weights {weights}"](table)

        # The signs of numbers are not part of these trials.
        fitted = table.fit_sum(table.detector_reference)
        assert scores == pytest.approx(fitted.score(table.z_scores), rel=1e-12)

    def test_names_of_sums_refer_to_scores(self):
        assert {term.score for each in SUMS.values() for term in each.terms} <= SCORES.keys()
        assert {each.base for each in SUMS.values()} <= SCORES.keys() | SUMS.keys()

    def test_gated_term_is_left_out_of_wide_tables(self):
        terms = Term("a", 1.0, "plain", is_gated=False), Term("b", 1.0, "plain")
        found = {"a": np.array([0.0, 2]), "b": np.array([2.0, 0])}

        narrow, wide = (add_terms(terms, found.__getitem__, n) for n in (GATE - 1, GATE))

        assert narrow.tolist() == [2, 2]
        assert wide.tolist() == [0, 2]


class TestRecords:
    def test_only_missing_names_are_measured(self, tmp_path):
        def measure(X, y, names):
            return [(name, measure_accuracy(y, X[:, 0])) for name in names]

        def run(names):
            return len(list(run_missing(path, [table], names, measure)))

        path = tmp_path / "trials.jsonl"
        rows = np.array([[0.0], [1], [2]])
        table = PoolTable("oddbench", "a", "select", lambda: (rows, np.array([0, 0, 1])))

        assert [run(["x"]), run(["x", "y"]), run(["x", "y"])] == [1, 1, 0]
        assert [each["name"] for each in read_json_records(path)] == ["x", "y"]
        assert read_json_records(path)[0]["auc"] == 1

    def test_difference_is_paired_and_averaged_over_pools(self):
        tables = [("p", "1", 0.5), ("p", "2", 0.7), ("q", "3", 0.1), ("q", "4", 0.9)]
        records = [build_record(pool, "old", name, auc) for pool, name, auc in tables]
        records += [
            build_record(pool, "new", name, auc + gain)
            for (pool, name, auc), gain in zip(tables, (0.1, 0.3, 0.2, 0.2), strict=True)
        ]

        found = Trials(records).compute_difference("new", "old", ["p", "q"], "auc")

        # The standard error is 0.1 in the first pool and 0 in the second.
        assert format_difference(found) == "+0.2000 ± 0.0500"
