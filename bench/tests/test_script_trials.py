"""Tests of the scripts that repeat the choice of the sum of scorers and measure the result."""

import importlib.util
from pathlib import Path

import numpy as np

import filters
import one_class
import seed_spread
from altbi_bench.catalogue.pools import PoolTable
from altbi_bench.trials.records import Trials

# The script has the name of a package.
SPEC = importlib.util.spec_from_file_location(
    "trials_script", Path(__file__).parents[1] / "scripts" / "trials.py"
)
script = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(script)


def build_rows(n_outliers=5):
    """Return 60 rows and their labels; the outliers are a dense group."""
    generator = np.random.default_rng(0)
    X = generator.normal(size=(60, 2))
    X[:n_outliers] = X[:n_outliers] / 10 + 5
    return X, (np.arange(60) < n_outliers).astype(np.int64)


class TestTrials:
    def test_scores_and_sums_are_measured(self):
        found = dict(script.measure(*build_rows(), ["distance", "distance + 1 covariance"]))

        assert found.keys() == {"distance", "distance + 1 covariance"}
        assert all(each["auc"] > 0.9 for each in found.values())

    def test_sum_is_compared_with_its_base(self):
        records = [
            {"pool": "adbench", "table": table, "name": name, "auc": auc, "ap": auc}
            for table in "ab"
            for name, auc in (("distance", 0.5), ("distance + 1 covariance", 0.75))
        ]

        *_, row = script.format_rows(Trials(records))

        assert row[:3] == ["distance + 1 covariance", "0.750 / 0.750", "0.750 / 0.750"]
        assert row[5:7] == ["distance", "+0.2500 ± 0.0000"]


class TestFilters:
    def test_no_filter_keeps_outliers(self):
        found = dict(filters.measure(*build_rows(11), list(filters.FILTERS)))

        assert found.keys() == filters.FILTERS.keys()
        assert found["none"]["auc"] < found["IWAE"]["auc"]


class TestOneClass:
    def test_training_rows_are_half_of_the_normal_ones(self):
        y = np.array([0, 1, 0, 0, 1, 0])

        training, others = one_class.split_one_class(y)

        assert len(training) == 2
        assert not y[training].any()
        assert sorted([*training, *others]) == [0, 1, 2, 3, 4, 5]

    def test_all_detectors_find_far_rows(self):
        found = dict(one_class.measure(*build_rows(), list(one_class.DETECTORS)))

        assert {each["auc"] for each in found.values()} == {1.0}


class TestSeedSpread:
    def test_confirm_tables_are_left_out_by_default(self, monkeypatch):
        tables = [
            PoolTable("adbench", name, half, lambda: (np.zeros((501, 2)), np.zeros(501)))
            for name, half in (("a", "select"), ("45_wine", "confirm"))
        ]
        for name in ("list_select_tables", "list_tables"):
            monkeypatch.setattr(
                seed_spread, name, lambda folder, name=name: tables[: 1 + (name == "list_tables")]
            )

        found = [
            [each.name for each in seed_spread.list_spread_tables(Path(), with_small=small)]
            for small in (False, True)
        ]

        assert found == [["a"], ["a", "45_wine"]]

    def test_small_tables_have_rows_of_their_own(self):
        records = [
            {"table": table, "auc_std": std, "ap_std": std}
            for table, std in (("a", 0.1), ("b", 0.3), ("45_wine", 0.5))
        ]

        _, mean, largest, wine = seed_spread.format_rows(records)

        assert [mean[1], largest[1], wine[:2]] == ["0.2000", "0.3000", ["45_wine", "0.5000"]]
