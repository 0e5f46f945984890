import platform
import re
import statistics
import sys
import warnings
from dataclasses import replace
from importlib.metadata import PackageNotFoundError, version
from types import ModuleType

import numpy as np
import pytest
import torch
from sklearn.metrics import roc_auc_score
from threadpoolctl import threadpool_info

from altbi import ALTBI, IWAE, ODIM, OutlierDetector, Schedule
from altbi.errors import MissingExtraError, ParameterError
from altbi.torch import Glow
from altbi_bench.catalogue import datasets
from altbi_bench.catalogue.datasets import DataFile, Dataset, select
from altbi_bench.catalogue.protocols import PROTOCOLS
from altbi_bench.catalogue.systems import SYSTEMS, Recipe, System, build_fit, find_systems
from altbi_bench.results_page.deep_baselines import COMPARED
from altbi_bench.runs import code_digest, measurement
from altbi_bench.runs.measurement import failed_run, measure, precision_at_n
from altbi_bench.runs.records import Job, append, read_runs
from altbi_bench.runs.runner import Question, keep_current
from altbi_bench.tables.comparison import paper_table

SETTINGS = ("unsupervised", "semisupervised")
SEEDED = [name for name, system in SYSTEMS.items() if system.seeded]
UNSEEDED = [name for name, system in SYSTEMS.items() if not system.seeded]
PYOD = [name for name, system in SYSTEMS.items() if system.recipe.package == "pyod"]
DEEP = [name for name, system in SYSTEMS.items() if system.is_deep]


def fitted(name, rows, seed=0, setting="unsupervised"):
    """Systems of our own are fitted with their smoke settings, all others as they are."""
    return build_fit(SYSTEMS[name], setting, seed, smoke=True)(rows)


def normal_rows(n_rows=200, n_features=3):
    return np.random.default_rng(0).normal(size=(n_rows, n_features))


class TestCatalogue:
    def test_every_system_stands_in_the_papers_tables_of_both_settings(self):
        columns = {setting: paper_table("auc", setting)["wine"] for setting in SETTINGS}

        for name, system in SYSTEMS.items():
            assert system.name == name
            assert (system.column is None) == (name in {"ALTBI", "RDA", "DSEBM", "DeepSAD"}), name
            assert system.column is None or system.column in columns["unsupervised"], name
            if name in PYOD or (name in DEEP and system.column):
                assert system.paper_column("semisupervised") in columns["semisupervised"], name

    def test_the_papers_one_altbi_of_the_semi_supervised_setting_is_the_reference(self):
        found = {
            name: system.paper_column("semisupervised")
            for name, system in SYSTEMS.items()
            if system.scales_itself
        }

        assert {name for name, column in found.items() if column} == {"ALTBI-I (reference)"}
        assert found["ALTBI-I (reference)"] == "ALTBI"
        assert SYSTEMS["ODIM"].paper_column("unsupervised") == "ODIM"

    def test_the_paper_s_own_bring_columns_to_one_scale_and_baselines_do_not(self):
        own = {name for name, system in SYSTEMS.items() if system.scales_itself}

        assert (len(own), len(PYOD), len(DEEP)) == (8, 13, 20)
        assert own == {name for name in SYSTEMS if name.startswith(("ALTBI", "ODIM"))}
        assert own | set(PYOD) | set(DEEP) == SYSTEMS.keys()

    def test_every_column_of_the_paper_has_a_system(self):
        columns = paper_table("auc", "unsupervised")["wine"]

        assert {system.column for system in SYSTEMS.values() if system.column} == columns.keys()
        assert len(columns) == 25

    def test_one_system_for_each_column_is_compared_with_ours(self):
        found = [SYSTEMS[name].column for name in COMPARED]

        assert found[0] is None
        assert sorted(found[1:]) == sorted(paper_table("auc", "unsupervised")["wine"])

    @pytest.mark.parametrize("name", DEEP)
    def test_a_deep_baseline_is_as_published_only_where_its_name_says_so(self, name):
        built = SYSTEMS[name].recipe.build()
        plain = type(built)()

        changed = {
            key: value
            for key, value in built.get_params().items()
            if value != plain.get_params()[key]
        }
        assert changed == SYSTEMS[name].recipe.parameters
        assert bool(changed) == ("(" in name)

    def test_names_come_in_the_order_of_the_catalogue_and_once(self):
        found = find_systems(["kNN", "ALTBI", "kNN"])

        assert [system.name for system in found] == ["ALTBI", "kNN"]
        assert find_systems([]) == []

    def test_an_unknown_name_is_refused(self):
        with pytest.raises(ParameterError, match=r"called 'knn' \(did you mean 'kNN'\?\)\."):
            find_systems(["kNN", "knn"])

    @pytest.mark.parametrize(
        ("name", "meant"), [("SimCLR", ""), ("simclr", " (did you mean 'SimCLR'?)")]
    )
    def test_a_system_that_is_not_run_here_is_refused_with_the_reason(self, name, meant):
        told = re.escape(f"called '{name}'{meant}.") + ".*; SimCLR needs images to crop"
        with pytest.raises(ParameterError, match=told):
            find_systems([name])

    def test_all_that_begin_as_an_unknown_one_are_offered(self):
        with pytest.raises(ParameterError, match=r"'ALTBI-I \(paper\)' or 'ALTBI-I \(reference\)'"):
            find_systems(["ALTBI-I"])

    def test_dependent_columns_leave_pcas_scores_finite(self):
        rows = np.random.default_rng(0).normal(size=(2_000, 3))
        rows = np.column_stack([rows, rows @ [1.0, -2.0, 0.5]])

        scores = build_fit(SYSTEMS["PCA"], "unsupervised", 0)(rows)(rows)

        assert np.isfinite(scores).all()

    @pytest.mark.parametrize(
        ("name", "source", "parameters", "counts"),
        [
            ("ALTBI-G (light)", "altbi:ALTBI", {"backbone": "glow", "score_by": "loss"}, True),
            ("ALTBI-G (light)", "altbi:ALTBI", {"backbone": "glow"}, True),
            ("ALTBI-G (light)", "altbi:ALTBI", {"score_by": "loss"}, False),
            ("ALTBI", "altbi:ALTBI", {}, True),
            ("ALTBI", "altbi:ALTBI", {"keep": 1}, False),
            ("ALTBI-I (reference)", "altbi:ALTBI.reference", {}, True),
            ("ODIM", "altbi:ODIM.reference", {}, True),
            ("ODIM", "altbi:ODIM", {}, False),
            ("DAGMM", "altbi.baselines:DAGMM", {}, True),
        ],
    )
    def test_earlier_records_match_by_frozen_recipes(self, name, source, parameters, counts):
        system = SYSTEMS[name]
        (job,) = Question(seeds=(0,)).list_jobs(select(["wine"])[0].files[0], system)
        earlier = replace(failed_run(job, "no"), source=source, parameters=parameters)

        assert bool(keep_current([earlier])) is counts
        assert keep_current([failed_run(job, "no")])
        assert not keep_current([replace(failed_run(job, "no"), parameters={"other": 1})])

    def test_systems_aside_are_left_out_unless_named(self):
        aside = ["ALTBI-I (untruncated)", "ALTBI-G (half reference)", *DEEP]

        assert [system.name for system in find_systems(aside)] == aside
        named = [system.name for system in find_systems()]
        assert named == [name for name in SYSTEMS if name not in aside]

    def test_untruncated_keeps_every_loss_in_both_settings(self):
        system = SYSTEMS["ALTBI-I (untruncated)"]

        built = [
            system.recipe_for(setting).build() for setting in ("unsupervised", "semisupervised")
        ]

        assert [(each.schedule.rho, each.schedule.T2) for each in built] == [(1, 80), (1, 90)]

    @pytest.mark.parametrize(
        ("name", "setting", "expected"),
        [
            ("ALTBI-I (paper)", "unsupervised", ALTBI.paper(random_state=5)),
            ("ALTBI-I (paper)", "semisupervised", ALTBI.paper(random_state=5)),
            ("ALTBI-I (reference)", "unsupervised", ALTBI(random_state=5)),
            (
                "ALTBI-I (reference)",
                "semisupervised",
                ALTBI(schedule=Schedule(T2=90), random_state=5),
            ),
            ("ALTBI", "unsupervised", OutlierDetector(random_state=5)),
            ("ALTBI", "semisupervised", OutlierDetector(keep=1, random_state=5)),
            (
                "ALTBI-G (light)",
                "unsupervised",
                ALTBI(backbone=Glow(), random_state=5),
            ),
            (
                "ALTBI-G (half reference)",
                "unsupervised",
                ALTBI(
                    backbone=Glow(flow_steps=16, hidden=(128, 128)),
                    schedule=Schedule(max_batch=500),
                    random_state=5,
                ),
            ),
            (
                "ALTBI-G (reference)",
                "unsupervised",
                ALTBI(backbone=Glow(flow_steps=16, hidden=(256, 256)), random_state=5),
            ),
            (
                "ALTBI-G (reference)",
                "semisupervised",
                ALTBI(backbone=Glow(), schedule=Schedule(T2=90), random_state=5),
            ),
            ("ODIM", "unsupervised", ODIM(spread="variance", random_state=5)),
        ],
    )
    def test_system_of_ours_has_its_detector(self, name, setting, expected):
        detector = SYSTEMS[name].recipe_for(setting).build({"random_state": 5})

        assert type(detector) is type(expected)
        assert detector.get_params(deep=False) == expected.get_params(deep=False)

    @pytest.mark.parametrize(
        ("name", "method"), [("kNN", "largest"), ("DTE-NP", "mean")], ids=["kNN", "DTE-NP"]
    )
    def test_neighbours_are_32_and_on_inliers_alone_5(self, name, method):
        many, few = (SYSTEMS[name].recipe_for(setting).build() for setting in SETTINGS)

        assert (many.n_neighbors, many.method) == (32, method)
        assert (few.n_neighbors, few.method) == (5, method)

    @pytest.mark.parametrize("name", sorted(set(PYOD) - {"kNN", "DTE-NP", "PCA"}))
    def test_other_systems_of_pyod_are_built_as_they_come(self, name):
        for setting in SETTINGS:
            assert SYSTEMS[name].recipe_for(setting) == SYSTEMS[name].recipe
        assert SYSTEMS[name].recipe.parameters == {}
        assert SYSTEMS[name].recipe.package == "pyod"

    def test_seeds_of_the_published_numbers_are_those_found_by_replaying(self):
        found = {name: system.dte_seeds for name, system in SYSTEMS.items()}

        assert found.pop("kNN") == found.pop("DTE-NP") == (0, 1, 2, 3, 4)
        assert {found.pop(name) for name in DEEP} == {(0,)}  # they are slow
        assert set(found.values()) == {(0, 1, 2, 3, 6)}

    @pytest.mark.parametrize("name", ["COPOD", "ECOD"])
    def test_a_system_whose_scores_depend_on_the_other_rows_says_so(self, name):
        rows = normal_rows()
        score = fitted(name, rows)

        alone, in_company = score(rows[:50].copy()), score(np.vstack([rows[:50], rows + 5]))[:50]

        assert not np.allclose(alone, in_company)
        assert "stacks training and test rows" in SYSTEMS[name].note


class TestRecipe:
    def test_arguments_of_the_call_win_over_those_of_the_recipe(self):
        recipe = Recipe("builtins:dict", {"a": 1, "b": 2})

        assert recipe.build({"b": 3, "c": 4}) == {"a": 1, "b": 3, "c": 4}
        assert recipe.parameters == {"a": 1, "b": 2}

    def test_nested_parameters_become_objects(self):
        nested = {"schedule": {"class": "altbi:Schedule", "rho": 1}}

        built = Recipe("altbi:ALTBI", nested).build({"schedule": {"T2": 90}})

        assert built.schedule == Schedule(rho=1, T2=90)
        network = {"class": "altbi:IWAE", "hidden": [4, 2]}
        assert Recipe("altbi:ALTBI", {"backbone": network}).build().backbone == IWAE(hidden=(4, 2))

    def test_a_name_may_lead_to_a_method(self):
        assert Recipe("altbi:ALTBI.paper").build().get_params() == ALTBI.paper().get_params()

    @pytest.mark.parametrize("module", ["pyod", "pyod.models.knn"])
    def test_a_missing_extra_is_one_sentence(self, monkeypatch, module):
        for name in [name for name in sys.modules if name.startswith(f"{module}.")]:
            monkeypatch.delitem(sys.modules, name)
        monkeypatch.setitem(sys.modules, module, None)

        with pytest.raises(MissingExtraError) as caught:
            build_fit(SYSTEMS["kNN"], "unsupervised", 0)

        text = str(caught.value)
        assert text.startswith("'pyod.models.knn' cannot be imported (")
        assert text.endswith("Install it with: pip install altbi-bench")
        assert "\n" not in text


class TestScores:
    # Deep baselines made quick have hardly learned; files of their own test what they know.
    @pytest.mark.parametrize("name", [name for name in SYSTEMS if name not in ["LODA", *DEEP]])
    def test_a_far_row_comes_first_among_rows_seen_and_unseen(self, name):
        rows, test = normal_rows(), normal_rows(250)[200:]
        rows[17] = test[5] = 9.0

        score = fitted(name, rows)

        assert score(rows).shape == (200,)
        assert score(rows).argmax() == 17
        assert score(test).shape == (50,)
        assert score(test).argmax() == 5

    def test_loda_ranks_scattered_rows_high(self):
        # PyOD's LODA reads the density of the next bin, so that one far row need not come first.
        rows, y = normal_rows(), np.arange(200) < 10
        rows[y] *= 6

        assert roc_auc_score(y, fitted("LODA", rows)(rows)) > 0.9

    @pytest.mark.parametrize("name", SYSTEMS)
    def test_scores_depend_on_the_seed_alone(self, name):
        rows = np.random.default_rng(0).standard_t(2, size=(600, 5))

        scores = []
        for seed, global_seed in ((1, 1), (1, 2), *([(2, 1)] if name in SEEDED else [])):
            np.random.seed(global_seed)  # noqa: NPY002
            torch.manual_seed(global_seed)
            scores.append(fitted(name, rows, seed=seed)(rows if name in PYOD else rows[:100]))

        np.testing.assert_array_equal(scores[0], scores[1])
        if name in SEEDED:
            assert not np.array_equal(scores[0], scores[2])

    @pytest.mark.parametrize("name", SEEDED)
    @pytest.mark.parametrize("setting", SETTINGS)
    def test_seeded_ones_are_told_the_seed_of_the_job(self, name, setting):
        detector = SYSTEMS[name].recipe_for(setting).build({"random_state": 7})

        assert detector.get_params()["random_state"] == 7

    @pytest.mark.parametrize("name", UNSEEDED)
    def test_unseeded_ones_know_no_seed(self, name):
        known = SYSTEMS[name].recipe.build().get_params()

        # PyOD's PCA has one, which counts for a solver that it does not take by itself.
        assert ("random_state" in known) is (name == "PCA")
        assert known.get("random_state") is None

    @pytest.mark.parametrize("name", PYOD)
    def test_the_very_rows_of_the_fit_get_the_scores_that_pyod_keeps(self, name):
        rows, system = normal_rows(100), SYSTEMS[name]
        expected = system.recipe.build({"random_state": 3} if system.seeded else {}).fit(rows)

        score = fitted(name, rows, seed=3)

        np.testing.assert_array_equal(score(rows), expected.decision_scores_)
        np.testing.assert_array_equal(score(rows.copy()), expected.decision_function(rows))

    @pytest.mark.parametrize(
        ("setting", "k"), [("unsupervised", 32), ("semisupervised", 5)], ids=SETTINGS
    )
    def test_a_row_of_the_fit_is_not_its_own_neighbour(self, setting, k):
        rows = normal_rows(60)
        # By hand; the first of the sorted distances is that of a row to itself.
        distances = np.sort(np.linalg.norm(rows[:, None] - rows, axis=-1), axis=1)

        largest, mean = (fitted(name, rows, setting=setting) for name in ("kNN", "DTE-NP"))

        np.testing.assert_allclose(largest(rows), distances[:, k])
        np.testing.assert_allclose(largest(rows.copy()), distances[:, k - 1])
        np.testing.assert_allclose(mean(rows), distances[:, 1 : k + 1].mean(axis=1))
        np.testing.assert_allclose(mean(rows.copy()), distances[:, :k].mean(axis=1))

    @pytest.mark.parametrize("name", [name for name in SYSTEMS if SYSTEMS[name].smoke])
    def test_smoke_settings_are_arguments_that_change_what_is_built(self, name):
        system = SYSTEMS[name]

        for setting in SETTINGS:
            full, smoke = (
                system.recipe_for(setting).build(changes).get_params(deep=False)
                for changes in ({}, system.smoke)
            )
            changed = {key for key, value in smoke.items() if value != full[key]}
            assert changed == system.smoke.keys()


FILE = "Classical/0_toy.npz"
# By hand, for scores that rise from row to row: of the two outliers one is above all four
# inliers, the other above one; precision is 1 at the first, 2/5 at the second.
Y = np.array([0, 1, 0, 0, 0, 1])
AUC, AVERAGE_PRECISION, PRECISION_AT_N = 5 / 8, (1 + 2 / 5) / 2, 1 / 2


class Toy:
    """Scores by the first column, and keeps what it was given; like a detector of PyOD or ours."""

    def __init__(self, **parameters):
        self.parameters = parameters
        self.built.append(self)

    def fit(self, rows):
        self.rows = rows
        self.decision_scores_ = self.decision_function(rows)
        return self

    def decision_function(self, rows):
        self.scored = rows
        return rows[:, 0]

    def outlier_score(self, rows):
        return self.decision_function(rows)


@pytest.fixture
def bench(tmp_path, monkeypatch):
    """A catalogue of one file and two systems, `raw` and `standardised`, and how to change them."""
    threads = torch.get_num_threads()
    monkeypatch.setenv("ALTBI_ADBENCH", str(tmp_path))
    (tmp_path / "Classical").mkdir()
    bench = Bench(tmp_path, monkeypatch)
    bench.table(np.arange(12.0).reshape(6, 2) ** 2, Y)
    bench.detector()
    yield bench
    torch.set_num_threads(threads)
    measurement._load_file.cache_clear()
    measurement._warm_up.cache_clear()


class Bench:
    def __init__(self, folder, monkeypatch):
        self.folder = folder
        self.monkeypatch = monkeypatch

    def table(self, X, y):
        np.savez(self.folder / FILE, X=X, y=y)
        self.X, self.y = X, y
        part = DataFile(FILE, *X.shape, int(y.sum()))
        catalogue = (Dataset("toy", "", "table", "Toys", (part,)),)
        self.monkeypatch.setattr(datasets, "catalogue", lambda: catalogue)
        measurement._load_file.cache_clear()

    def detector(self, **methods):
        """Let both systems be a toy with other methods; ours and PyOD's differ in the package."""
        self.built = []
        toy = type("Toy", (Toy,), {"built": self.built, **methods})
        for module in ("altbi.toy", "pyod.toy"):
            self.monkeypatch.setitem(sys.modules, module, ModuleType(module))
            sys.modules[module].Toy = toy
        systems = {
            name: System(
                name,
                "kNN",
                Recipe(source, {"size": 1}),
                novelty=Recipe(source, {"size": 2}),
                smoke={"speed": 3},
            )
            for name, source in (("raw", "altbi.toy:Toy"), ("standardised", "pyod.toy:Toy"))
        }
        self.monkeypatch.setattr(measurement, "ALL_SYSTEMS", systems)
        measurement._warm_up.cache_clear()

    def run(self, system="standardised", protocol="transductive", seed=0, threads=1, **more):
        job = Job(file=FILE, system=system, seed=seed, protocol=protocol, **more)
        return measure(job, threads)


class TestPrecisionAtN:
    @pytest.mark.parametrize(
        ("y", "scores", "expected"),
        [
            ([0, 1, 0, 0, 0, 1], [0, 1, 2, 3, 4, 5], 1 / 2),
            ([0, 0, 1, 1], [0, 1, 2, 3], 1),
            ([1, 1, 0, 0], [0, 1, 2, 3], 0),
            # One place for three rows that are level, one of them an outlier.
            ([1, 0, 0, 1], [2, 2, 2, 9], (1 + 1 / 3) / 2),
            ([1, 0, 0, 0], [5, 5, 5, 5], 1 / 4),
            ([1, 1, 1], [1, 2, 3], 1),
        ],
    )
    def test_it_agrees_with_a_calculation_by_hand(self, y, scores, expected):
        y, scores = np.array(y), np.array(scores, dtype=float)

        assert precision_at_n(y, scores) == pytest.approx(expected)
        assert precision_at_n(y[::-1], scores[::-1]) == pytest.approx(expected)


class TestMeasured:
    @pytest.mark.parametrize("system", ["raw", "standardised"])
    def test_measures_agree_with_a_calculation_by_hand(self, bench, system):
        run = bench.run(system)

        assert run.error is None
        assert run.auc == pytest.approx(AUC)
        assert run.average_precision == pytest.approx(AVERAGE_PRECISION)
        assert run.precision_at_n == pytest.approx(PRECISION_AT_N)
        assert (run.n_train, run.n_test, run.n_features, run.n_outliers) == (6, 6, 2, 2)

    def test_the_line_tells_of_its_job_and_comes_back_from_a_file(self, bench, tmp_path):
        run = bench.run(seed=4, rows=100, smoke=True)

        assert run.job == Job(file=FILE, system="standardised", seed=4, rows=100, smoke=True)
        append(tmp_path / "lines", run)
        assert read_runs(tmp_path / "lines") == [run]

    def test_counts_are_those_of_the_rows_fitted_on_and_of_those_scored(self, bench):
        bench.table(np.arange(80.0).reshape(40, 2), np.arange(40) >= 30)

        run = bench.run(protocol="split")

        assert (run.n_train, run.n_test, run.n_outliers) == (28, 12, 3)

    def test_a_sample_stands_for_a_larger_table(self, bench):
        bench.table(np.arange(80.0).reshape(40, 2), (np.arange(40) >= 30).astype(int))

        run = bench.run(rows=12)

        assert (run.n_test, run.n_outliers, run.rows) == (12, 3, 12)

    def test_no_labels_reach_the_system(self, bench):
        bench.run()

        assert bench.built[-1].rows.shape == bench.X.shape
        # Neither do they come as a parameter.
        assert bench.built[-1].parameters == {"size": 1, "random_state": 0}

    def test_ours_get_the_rows_as_they_are(self, bench):
        bench.table(
            np.random.default_rng(0).normal(5, 3, size=(60, 2)), labels := np.arange(60) % 2
        )

        for protocol in PROTOCOLS:
            assert bench.run("raw", protocol).error is None

            split = PROTOCOLS[protocol].split(labels, *datasets.catalogue(), 0)
            np.testing.assert_array_equal(bench.built[-1].rows, bench.X[split.train])
            np.testing.assert_array_equal(bench.built[-1].scored, bench.X[split.test])

    @pytest.mark.parametrize("protocol", PROTOCOLS)
    def test_pyods_get_columns_standardised_by_the_rows_of_the_fit(self, bench, protocol):
        bench.table(
            np.random.default_rng(0).normal(5, 3, size=(60, 2)), labels := np.arange(60) % 2
        )

        assert bench.run("standardised", protocol).error is None

        split = PROTOCOLS[protocol].split(labels, *datasets.catalogue(), 0)
        # DTE's code does it by the rows of the test, of which those of the fit are a bootstrap.
        by = bench.X[split.test if protocol == "dte" else split.train]
        Z = (bench.X - by.mean(axis=0)) / by.std(axis=0)
        np.testing.assert_allclose(bench.built[-1].rows, Z[split.train])
        np.testing.assert_allclose(bench.built[-1].scored, Z[split.test])

    @pytest.mark.parametrize("protocol", PROTOCOLS)
    def test_kept_scores_count_where_the_rows_of_the_fit_are_scored(self, bench, protocol):
        def fit(self, rows):
            self.decision_scores_ = -rows[:, 0]
            return self

        bench.table(np.arange(80.0).reshape(40, 2), (np.arange(40) >= 30).astype(int))
        bench.detector(fit=fit)

        run = bench.run("standardised", protocol)

        assert run.auc == (0 if protocol in ("transductive", "official") else 1)

    def test_the_setting_of_the_protocol_decides_what_is_built_and_told(self, bench):
        bench.table(np.arange(80.0).reshape(40, 2), (np.arange(40) >= 30).astype(int))

        for protocol, size in (("transductive", 1), ("split", 1), ("semi", 2), ("semi-dte", 2)):
            run = bench.run(protocol=protocol, seed=8)

            assert run.parameters == {"size": size}, protocol
            assert bench.built[-1].parameters == {"size": size, "random_state": 8}, protocol
            assert run.source == "pyod.toy:Toy"

    def test_smoke_parameters_are_used_and_stand_in_the_line(self, bench):
        run = bench.run(smoke=True)

        assert run.smoke
        assert run.parameters == {"size": 1, "speed": 3}
        assert bench.built[-1].parameters == {"size": 1, "speed": 3, "random_state": 0}

    def test_without_smoke_the_warm_up_alone_is_quick(self, bench):
        run = bench.run()

        warm_up, job = bench.built
        assert warm_up.parameters["speed"] == 3
        assert "speed" not in job.parameters
        assert "speed" not in run.parameters

    def test_a_system_is_warmed_up_once(self, bench):
        for _ in range(2):
            bench.run()

        assert len(bench.built) == 3

    def test_versions_are_those_of_the_packages_that_the_numbers_come_from(self, bench):
        common = {name: version(name) for name in ("altbi", "numpy", "torch", "scikit-learn")}
        common |= {
            "altbi code": code_digest.code_digest(),
            "processor": measurement.describe_processor(),
        }

        assert bench.run("raw").versions == common
        assert bench.run("standardised").versions == common | {"pyod": version("pyod")}

    @pytest.mark.parametrize(
        ("flags", "told"),
        [
            ("fpu avx2 avx512f", "Quick One 7, AVX-512"),
            ("fpu avx2", "Quick One 7, AVX2"),
            ("fpu", "Quick One 7"),
        ],
    )
    def test_the_processor_is_named_with_what_it_takes_sums_with(
        self, tmp_path, monkeypatch, flags, told
    ):
        about = tmp_path / "cpuinfo"
        about.write_text(f"processor\t: 0\nmodel name\t: Quick One 7\nflags\t\t: {flags}\n\n")
        monkeypatch.setattr(measurement, "_CPU_INFO", about)

        assert measurement.describe_processor.__wrapped__() == told

    def test_a_processor_that_nobody_describes_is_named_by_its_kind(self, tmp_path, monkeypatch):
        monkeypatch.setattr(measurement, "_CPU_INFO", tmp_path / "none")
        monkeypatch.setattr("platform.processor", lambda: "")

        assert measurement.describe_processor.__wrapped__() == platform.machine()

    def test_the_code_has_another_name_when_a_module_changes_but_not_for_the_benchmark(
        self, tmp_path, monkeypatch
    ):
        product, benchmark = tmp_path / "product", tmp_path / "benchmark"
        judging = (product / "cli/main.py", benchmark / "runs/runner.py")
        judged = (product / "a.py", product / "models/b.py", benchmark / "baselines/c.py")
        for module in (*judging, *judged):
            module.parent.mkdir(parents=True, exist_ok=True)
            module.write_text("x = 1\n")
        monkeypatch.setattr(code_digest.altbi, "__file__", str(product / "__init__.py"))
        monkeypatch.setattr(code_digest.altbi_bench, "__file__", str(benchmark / "__init__.py"))
        digest = code_digest.code_digest.__wrapped__
        first = digest()
        for module in judging:
            module.write_text("x = 2\n")
        assert digest() == first
        found = {first}
        for module in judged:
            module.write_text("x = 2\n")
            found.add(digest())
        judged[0].rename(product / "d.py")
        assert len(found | {digest()}) == 5

    def test_warnings_stand_in_the_line_shortened_and_each_once(self, bench):
        def fit(self, rows):
            for text in ("second\nand more", "second", "first", "x" * 99):
                warnings.warn(text, stacklevel=1)
            return Toy.fit(self, rows)

        bench.detector(fit=fit)

        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            run = bench.run()

        assert run.error is None
        assert run.warnings == ["first", "second", "x" * 59 + "…"]

    def test_three_warnings_are_enough(self, bench):
        def decision_function(self, rows):
            for letter in "edcba":
                warnings.warn(letter, DeprecationWarning, stacklevel=1)
            return rows[:, 0]

        bench.detector(decision_function=decision_function)

        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            assert bench.run().warnings == ["a", "b", "c"]

    def test_a_quiet_system_has_no_warnings(self, bench):
        assert bench.run().warnings == []

    @pytest.mark.parametrize(
        ("scores", "error"),
        [
            (np.full(6, np.nan), "NaN"),
            (np.array([0, 1, 2, 3, 4, np.inf]), "infinity"),
            (np.zeros(5), "inconsistent"),
        ],
    )
    def test_unusable_scores_are_an_error(self, bench, tmp_path, scores, error):
        bench.detector(decision_function=lambda self, rows: scores)

        run = bench.run()

        assert run.error.startswith("ValueError: ")
        assert error in run.error
        assert (run.auc, run.average_precision, run.precision_at_n) == (None, None, None)
        append(tmp_path / "lines", run)
        assert read_runs(tmp_path / "lines") == [run]

    @pytest.mark.parametrize("step", ["__init__", "fit", "decision_function"])
    def test_a_system_that_breaks_is_an_error_with_all_that_is_known(self, bench, step):
        def broken(self, *rows, **parameters):
            raise RuntimeError("bad day")

        bench.detector(**{step: broken})

        run = bench.run(smoke=True)

        assert run.error == "RuntimeError: bad day"
        assert run.auc is None
        assert run.source == "pyod.toy:Toy"
        assert run.parameters == {"size": 1, "speed": 3}
        assert "pyod" in run.versions

    def test_a_missing_file_is_an_error_that_says_what_to_do(self, bench):
        (bench.folder / FILE).unlink()

        assert bench.run().error.startswith("TableError: ")
        assert "set ALTBI_ADBENCH" in bench.run().error

    def test_a_missing_extra_is_a_line_of_one_sentence(self, bench, monkeypatch):
        def without_pyod(name):
            if name == "pyod":
                raise PackageNotFoundError(name)
            return version(name)

        monkeypatch.setitem(sys.modules, "pyod.toy", None)
        monkeypatch.setattr(measurement, "version", without_pyod)

        run = bench.run()

        assert run.error.startswith("MissingExtraError: 'pyod.toy' cannot be imported")
        assert run.error.endswith("Install it with: pip install altbi-bench")
        assert "pyod" not in run.versions
        assert "numpy" in run.versions

    @pytest.mark.parametrize("y", [np.zeros(6, dtype=int), np.ones(6, dtype=int)])
    def test_rows_of_one_class_are_an_error_before_the_fit(self, bench, tmp_path, y):
        bench.table(bench.X, y)

        run = bench.run()

        assert f"{y.sum()} of the 6 rows to score are outliers" in run.error
        assert bench.built == []
        append(tmp_path / "lines", run)

    def test_a_split_that_leaves_no_outlier_to_score_is_an_error(self, bench):
        bench.table(np.arange(80.0).reshape(40, 2), (np.arange(40) == 30).astype(int))

        assert "0 of the 12 rows to score are outliers" in bench.run(protocol="split").error

    def test_a_failure_told_from_outside_is_a_line_of_the_same_kind(self, bench):
        job = Job(file=FILE, system="raw", seed=2, smoke=True)

        run = failed_run(job, "over the limit")

        assert (run.job, run.error, run.auc) == (job, "over the limit", None)
        assert run.parameters == {"size": 1, "speed": 3}

    @pytest.mark.parametrize("system", ["raw", "standardised"])
    def test_a_system_that_spoils_its_rows_spoils_no_later_job(self, bench, system):
        def fit(self, rows):
            Toy.fit(self, rows.copy())
            rows[:] = 0
            return self

        bench.detector(fit=fit)
        bench.run(system)
        bench.detector()

        assert bench.run(system).auc == AUC

    @pytest.mark.parametrize("threads", [1, 2])
    def test_libraries_are_held_to_the_threads_that_the_line_tells(self, bench, threads):
        seen = []

        def fit(self, rows):
            pools = {pool["num_threads"] for pool in threadpool_info()}
            seen.append((torch.get_num_threads(), pools))
            return Toy.fit(self, rows)

        bench.detector(fit=fit)

        run = bench.run(threads=threads)

        assert run.threads == threads
        assert seen[-1] == (threads, {threads})

    def test_seconds_are_told_of_fit_and_scoring(self, bench, monkeypatch):
        now = [100.0]
        monkeypatch.setattr(measurement.time, "perf_counter", lambda: now[0])

        def fit(self, rows):
            now[0] += 4
            self.decision_scores_ = None
            return self

        def decision_function(self, rows):
            now[0] += 3
            return rows[:, 0]

        bench.table(np.arange(80.0).reshape(40, 2), (np.arange(40) >= 30).astype(int))
        bench.detector(fit=fit, decision_function=decision_function)

        run = bench.run(protocol="semi")

        # Nothing else counts: not the warm-up, not reading, not comparing.
        assert (run.fit_seconds, run.score_seconds) == (4.0, 3.0)

    def test_memory_is_what_the_job_took_at_most_and_not_an_earlier_one(self, bench):
        def fit(self, rows):
            if self.parameters["random_state"] == 1:
                np.ones(2**24)  # 128 MiB, given back at once
            return Toy.fit(self, rows)

        bench.detector(fit=fit)

        large, small = (bench.run(seed=seed).peak_mib for seed in (1, 2))

        if large is None:
            pytest.skip("this system does not tell the memory of a process")
        assert 120 < large < 200
        assert small < 64

    def test_where_the_system_does_not_tell_memory_there_is_none_in_the_line(
        self, bench, monkeypatch
    ):
        monkeypatch.setattr(measurement, "_reset_peak", lambda: None)

        run = bench.run()

        assert (run.peak_mib, run.error) == (None, None)

    @pytest.mark.parametrize("name", ["ALTBI-I (reference)", "ODIM", "IForest", "LODA", "OCSVM"])
    def test_the_callers_random_state_is_untouched(self, bench, monkeypatch, name):
        bench.table(normal_rows(60), (np.arange(60) >= 50).astype(int))
        monkeypatch.setattr(measurement, "ALL_SYSTEMS", SYSTEMS)
        before = np.random.get_state(legacy=False), torch.get_rng_state()  # noqa: NPY002

        assert bench.run(name, smoke=True).error is None

        after = np.random.get_state(legacy=False), torch.get_rng_state()  # noqa: NPY002
        np.testing.assert_equal(after[0], before[0])
        assert torch.equal(after[1], before[1])

    def test_the_callers_random_state_is_untouched_by_a_system_that_breaks(self, bench):
        def fit(self, rows):
            np.random.random()  # noqa: NPY002
            raise RuntimeError("bad day")

        bench.detector(fit=fit)
        before = np.random.get_state(legacy=False)  # noqa: NPY002

        assert bench.run().error == "RuntimeError: bad day"

        np.testing.assert_equal(np.random.get_state(legacy=False), before)  # noqa: NPY002

    def test_what_is_drawn_unasked_follows_the_seed_of_the_job_also_in_the_first_one(self, bench):
        def fit(self, rows):
            drawn.append(np.random.random())  # noqa: NPY002
            return Toy.fit(self, rows)

        drawn = []
        bench.detector(fit=fit)
        for seed in (3, 4, 3):
            bench.run(seed=seed)

        _, first, second, third = drawn  # the warm-up's is before
        assert first == third != second
        assert first == np.random.RandomState(3).random()


class TestPublishedNumbers:
    """Numbers of DTE's tables, which the paper takes over; replayed through the harness."""

    @pytest.mark.parametrize(
        ("name", "system", "protocol", "mean", "deviation"),
        [
            ("cardio", "kNN", "dte", "0.8302", "0.0185"),
            ("wine", "COPOD", "dte", "0.8646", "0.0466"),
            ("vowels", "LOF", "dte", "0.9318", "0.0107"),
            # The same rows for all seeds: nothing varies.
            ("letter", "LOF", "semi-dte", "0.4483", "0.0000"),
            ("fault", "HBOS", "semi-dte", "0.5306", "0.0000"),
            # Drawn anew below 1,000 rows, and only the mean is published; other seeds give 0.774.
            ("pima", "kNN", "semi-dte", "0.7694", "0.0187"),
        ],
    )
    def test_they_come_out_to_four_digits(self, adbench, name, system, protocol, mean, deviation):
        (dataset,) = select([name])
        (part,) = dataset.files

        jobs = Question(protocol).list_jobs(part, SYSTEMS[system])
        runs = [measure(job, threads=1) for job in jobs]

        aucs = [run.auc for run in runs]
        assert f"{statistics.fmean(aucs):.4f}" == mean
        assert f"{statistics.stdev(aucs):.4f}" == deviation
        setting = PROTOCOLS[protocol].setting
        cell = paper_table("auc", setting)[name][SYSTEMS[system].paper_column(setting)]
        assert f"{statistics.fmean(aucs):.3f}" == f"{cell:.3f}"
