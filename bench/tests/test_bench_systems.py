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

pytestmark = pytest.mark.slow

SETTINGS = ("unsupervised", "semisupervised")
SEEDED = [name for name, system in SYSTEMS.items() if system.seeded]
UNSEEDED = [name for name, system in SYSTEMS.items() if not system.seeded]
PYOD = [name for name, system in SYSTEMS.items() if system.recipe.package == "pyod"]
DEEP = [name for name, system in SYSTEMS.items() if system.is_deep]


def fit_system(name, rows, seed=0, setting="unsupervised"):
    """Fit a system, with smoke parameters if it has any, and return its score function."""
    return build_fit(SYSTEMS[name], setting, seed, smoke=True)(rows)


def sample_rows(n_rows=200, n_features=3):
    return np.random.default_rng(0).normal(size=(n_rows, n_features))


class TestCatalogue:
    def test_every_column_name_is_in_the_paper(self):
        columns = {setting: paper_table("auc", setting)["wine"] for setting in SETTINGS}

        for name, system in SYSTEMS.items():
            assert system.name == name
            assert (system.column is None) == (name in {"ALTBI", "RDA", "DSEBM", "DeepSAD"}), name
            assert system.column is None or system.column in columns["unsupervised"], name
            if name in PYOD or (name in DEEP and system.column):
                assert system.paper_column("semisupervised") in columns["semisupervised"], name

    def test_semi_supervised_altbi_column_is_the_reference(self):
        found = {
            name: system.paper_column("semisupervised")
            for name, system in SYSTEMS.items()
            if system.scales_itself
        }

        assert {name for name, column in found.items() if column} == {"ALTBI-I (reference)"}
        assert found["ALTBI-I (reference)"] == "ALTBI"
        assert SYSTEMS["ODIM"].paper_column("unsupervised") == "ODIM"

    def test_only_methods_of_the_paper_scale_themselves(self):
        own = {name for name, system in SYSTEMS.items() if system.scales_itself}

        assert (len(own), len(PYOD), len(DEEP)) == (8, 13, 20)
        assert own == {name for name in SYSTEMS if name.startswith(("ALTBI", "ODIM"))}
        assert own | set(PYOD) | set(DEEP) == SYSTEMS.keys()

    def test_every_column_of_the_paper_has_a_system(self):
        columns = paper_table("auc", "unsupervised")["wine"]

        assert {system.column for system in SYSTEMS.values() if system.column} == columns.keys()
        assert len(columns) == 25

    def test_compared_systems_cover_every_column(self):
        found = [SYSTEMS[name].column for name in COMPARED]

        assert found[0] is None
        assert sorted(found[1:]) == sorted(paper_table("auc", "unsupervised")["wine"])

    @pytest.mark.parametrize("name", DEEP)
    def test_changed_parameters_are_shown_in_the_name(self, name):
        built = SYSTEMS[name].recipe.build()
        plain = type(built)()

        changed = {
            key: value
            for key, value in built.get_params().items()
            if value != plain.get_params()[key]
        }
        assert changed == SYSTEMS[name].recipe.parameters
        assert bool(changed) == ("(" in name)

    def test_names_are_unique_in_catalogue_order(self):
        found = find_systems(["kNN", "ALTBI", "kNN"])

        assert [system.name for system in found] == ["ALTBI", "kNN"]
        assert find_systems([]) == []

    def test_unknown_name_raises(self):
        with pytest.raises(ParameterError, match=r"called 'knn' \(did you mean 'kNN'\?\)\."):
            find_systems(["kNN", "knn"])

    @pytest.mark.parametrize(
        ("name", "meant"), [("SimCLR", ""), ("simclr", " (did you mean 'SimCLR'?)")]
    )
    def test_image_only_system_raises_with_the_reason(self, name, meant):
        expected = re.escape(f"called '{name}'{meant}.") + ".*; SimCLR needs images to crop"
        with pytest.raises(ParameterError, match=expected):
            find_systems([name])

    def test_names_with_the_same_prefix_are_suggested(self):
        with pytest.raises(ParameterError, match=r"'ALTBI-I \(paper\)' or 'ALTBI-I \(reference\)'"):
            find_systems(["ALTBI-I"])

    def test_pca_scores_of_dependent_columns_are_finite(self):
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

    def test_optional_systems_must_be_named(self):
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
    def test_number_of_neighbours_depends_on_the_setting(self, name, method):
        many, few = (SYSTEMS[name].recipe_for(setting).build() for setting in SETTINGS)

        assert (many.n_neighbors, many.method) == (32, method)
        assert (few.n_neighbors, few.method) == (5, method)

    @pytest.mark.parametrize("name", sorted(set(PYOD) - {"kNN", "DTE-NP", "PCA"}))
    def test_other_pyod_systems_have_default_parameters(self, name):
        for setting in SETTINGS:
            assert SYSTEMS[name].recipe_for(setting) == SYSTEMS[name].recipe
        assert SYSTEMS[name].recipe.parameters == {}
        assert SYSTEMS[name].recipe.package == "pyod"

    def test_dte_seeds_are_those_of_the_reproduction(self):
        found = {name: system.dte_seeds for name, system in SYSTEMS.items()}

        assert found.pop("kNN") == found.pop("DTE-NP") == (0, 1, 2, 3, 4)
        assert {found.pop(name) for name in DEEP} == {(0,)}  # they are slow
        assert set(found.values()) == {(0, 1, 2, 3, 6)}

    @pytest.mark.parametrize("name", ["COPOD", "ECOD"])
    def test_note_says_that_scores_depend_on_rows(self, name):
        rows = sample_rows()
        score = fit_system(name, rows)

        alone, with_others = score(rows[:50].copy()), score(np.vstack([rows[:50], rows + 5]))[:50]

        assert not np.allclose(alone, with_others)
        assert "stacks training and test rows" in SYSTEMS[name].note


class TestRecipe:
    def test_arguments_override_the_recipe(self):
        recipe = Recipe("builtins:dict", {"a": 1, "b": 2})

        assert recipe.build({"b": 3, "c": 4}) == {"a": 1, "b": 3, "c": 4}
        assert recipe.parameters == {"a": 1, "b": 2}

    def test_nested_parameters_become_objects(self):
        nested = {"schedule": {"class": "altbi:Schedule", "rho": 1}}

        built = Recipe("altbi:ALTBI", nested).build({"schedule": {"T2": 90}})

        assert built.schedule == Schedule(rho=1, T2=90)
        network = {"class": "altbi:IWAE", "hidden": [4, 2]}
        assert Recipe("altbi:ALTBI", {"backbone": network}).build().backbone == IWAE(hidden=(4, 2))

    def test_source_may_name_a_method(self):
        assert Recipe("altbi:ALTBI.paper").build().get_params() == ALTBI.paper().get_params()

    @pytest.mark.parametrize("module", ["pyod", "pyod.models.knn"])
    def test_missing_extra_raises_with_one_line(self, monkeypatch, module):
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
    # Deep baselines hardly learn with smoke parameters. They have tests of their own.
    @pytest.mark.parametrize("name", [name for name in SYSTEMS if name not in ["LODA", *DEEP]])
    def test_distant_row_has_the_highest_score(self, name):
        rows, test = sample_rows(), sample_rows(250)[200:]
        rows[17] = test[5] = 9.0

        score = fit_system(name, rows)

        assert score(rows).shape == (200,)
        assert score(rows).argmax() == 17
        assert score(test).shape == (50,)
        assert score(test).argmax() == 5

    def test_loda_ranks_scattered_rows_high(self):
        # PyOD's LODA uses the density of the next bin, so one distant row may not be first.
        rows, y = sample_rows(), np.arange(200) < 10
        rows[y] *= 6

        assert roc_auc_score(y, fit_system("LODA", rows)(rows)) > 0.9

    @pytest.mark.parametrize("name", SYSTEMS)
    def test_scores_depend_on_the_seed_alone(self, name):
        rows = np.random.default_rng(0).standard_t(2, size=(600, 5))

        scores = []
        for seed, global_seed in ((1, 1), (1, 2), *([(2, 1)] if name in SEEDED else [])):
            np.random.seed(global_seed)  # noqa: NPY002
            torch.manual_seed(global_seed)
            scores.append(fit_system(name, rows, seed=seed)(rows if name in PYOD else rows[:100]))

        np.testing.assert_array_equal(scores[0], scores[1])
        if name in SEEDED:
            assert not np.array_equal(scores[0], scores[2])

    @pytest.mark.parametrize("name", SEEDED)
    @pytest.mark.parametrize("setting", SETTINGS)
    def test_seeded_systems_accept_a_random_state(self, name, setting):
        detector = SYSTEMS[name].recipe_for(setting).build({"random_state": 7})

        assert detector.get_params()["random_state"] == 7

    @pytest.mark.parametrize("name", UNSEEDED)
    def test_unseeded_systems_have_no_random_state(self, name):
        known = SYSTEMS[name].recipe.build().get_params()

        # PyOD's PCA has one for a solver that is not its default.
        assert ("random_state" in known) is (name == "PCA")
        assert known.get("random_state") is None

    @pytest.mark.parametrize("name", PYOD)
    def test_fitted_rows_get_decision_scores_of_pyod(self, name):
        rows, system = sample_rows(100), SYSTEMS[name]
        expected = system.recipe.build({"random_state": 3} if system.seeded else {}).fit(rows)

        score = fit_system(name, rows, seed=3)

        np.testing.assert_array_equal(score(rows), expected.decision_scores_)
        np.testing.assert_array_equal(score(rows.copy()), expected.decision_function(rows))

    @pytest.mark.parametrize(
        ("setting", "k"), [("unsupervised", 32), ("semisupervised", 5)], ids=SETTINGS
    )
    def test_fitted_row_is_not_its_own_neighbour(self, setting, k):
        rows = sample_rows(60)
        # The first of the sorted distances is that of a row to itself.
        distances = np.sort(np.linalg.norm(rows[:, None] - rows, axis=-1), axis=1)

        largest, mean = (fit_system(name, rows, setting=setting) for name in ("kNN", "DTE-NP"))

        np.testing.assert_allclose(largest(rows), distances[:, k])
        np.testing.assert_allclose(largest(rows.copy()), distances[:, k - 1])
        np.testing.assert_allclose(mean(rows), distances[:, 1 : k + 1].mean(axis=1))
        np.testing.assert_allclose(mean(rows.copy()), distances[:, :k].mean(axis=1))

    @pytest.mark.parametrize("name", [name for name in SYSTEMS if SYSTEMS[name].smoke])
    def test_smoke_parameters_change_the_detector(self, name):
        system = SYSTEMS[name]

        for setting in SETTINGS:
            full, smoke = (
                system.recipe_for(setting).build(changes).get_params(deep=False)
                for changes in ({}, system.smoke)
            )
            changed = {key for key, value in smoke.items() if value != full[key]}
            assert changed == system.smoke.keys()


FILE = "Classical/0_toy.npz"
# Scores grow from row to row. One outlier is above all four inliers, the other above one.
# Precision is 1 at the first outlier and 2/5 at the second.
Y = np.array([0, 1, 0, 0, 0, 1])
AUC, AVERAGE_PRECISION, PRECISION_AT_N = 5 / 8, (1 + 2 / 5) / 2, 1 / 2


class Toy:
    """Detector that scores by the first column and records its arguments."""

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
    """Return a changeable catalogue of one file and two systems, `raw` and `standardised`."""
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
        """Replace methods of both systems, which differ in their package."""
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
            # Three rows, one of them an outlier, tie for one rank.
            ([1, 0, 0, 1], [2, 2, 2, 9], (1 + 1 / 3) / 2),
            ([1, 0, 0, 0], [5, 5, 5, 5], 1 / 4),
            ([1, 1, 1], [1, 2, 3], 1),
        ],
    )
    def test_precision_at_n_agrees_with_hand_calculation(self, y, scores, expected):
        y, scores = np.array(y), np.array(scores, dtype=float)

        assert precision_at_n(y, scores) == pytest.approx(expected)
        assert precision_at_n(y[::-1], scores[::-1]) == pytest.approx(expected)


class TestMeasured:
    @pytest.mark.parametrize("system", ["raw", "standardised"])
    def test_metrics_agree_with_hand_calculation(self, bench, system):
        run = bench.run(system)

        assert run.error is None
        assert run.auc == pytest.approx(AUC)
        assert run.average_precision == pytest.approx(AVERAGE_PRECISION)
        assert run.precision_at_n == pytest.approx(PRECISION_AT_N)
        assert (run.n_train, run.n_test, run.n_features, run.n_outliers) == (6, 6, 2, 2)

    def test_record_has_its_job_and_is_readable(self, bench, tmp_path):
        run = bench.run(seed=4, rows=100, smoke=True)

        assert run.job == Job(file=FILE, system="standardised", seed=4, rows=100, smoke=True)
        append(tmp_path / "lines", run)
        assert read_runs(tmp_path / "lines") == [run]

    def test_counts_are_of_training_and_test_rows(self, bench):
        bench.table(np.arange(80.0).reshape(40, 2), np.arange(40) >= 30)

        run = bench.run(protocol="split")

        assert (run.n_train, run.n_test, run.n_outliers) == (28, 12, 3)

    def test_larger_table_is_sampled(self, bench):
        bench.table(np.arange(80.0).reshape(40, 2), (np.arange(40) >= 30).astype(int))

        run = bench.run(rows=12)

        assert (run.n_test, run.n_outliers, run.rows) == (12, 3, 12)

    def test_no_labels_reach_the_system(self, bench):
        bench.run()

        assert bench.built[-1].rows.shape == bench.X.shape
        # Labels are not passed as a parameter either.
        assert bench.built[-1].parameters == {"size": 1, "random_state": 0}

    def test_own_systems_get_unscaled_rows(self, bench):
        bench.table(
            np.random.default_rng(0).normal(5, 3, size=(60, 2)), labels := np.arange(60) % 2
        )

        for protocol in PROTOCOLS:
            assert bench.run("raw", protocol).error is None

            split = PROTOCOLS[protocol].split(labels, *datasets.catalogue(), 0)
            np.testing.assert_array_equal(bench.built[-1].rows, bench.X[split.train])
            np.testing.assert_array_equal(bench.built[-1].scored, bench.X[split.test])

    @pytest.mark.parametrize("protocol", PROTOCOLS)
    def test_pyod_systems_get_rows_standardised_by_training(self, bench, protocol):
        bench.table(
            np.random.default_rng(0).normal(5, 3, size=(60, 2)), labels := np.arange(60) % 2
        )

        assert bench.run("standardised", protocol).error is None

        split = PROTOCOLS[protocol].split(labels, *datasets.catalogue(), 0)
        # DTE's code standardises by the test rows. Training rows are a bootstrap of them.
        by = bench.X[split.test if protocol == "dte" else split.train]
        Z = (bench.X - by.mean(axis=0)) / by.std(axis=0)
        np.testing.assert_allclose(bench.built[-1].rows, Z[split.train])
        np.testing.assert_allclose(bench.built[-1].scored, Z[split.test])

    @pytest.mark.parametrize("protocol", PROTOCOLS)
    def test_decision_scores_are_used_for_fitted_rows(self, bench, protocol):
        def fit(self, rows):
            self.decision_scores_ = -rows[:, 0]
            return self

        bench.table(np.arange(80.0).reshape(40, 2), (np.arange(40) >= 30).astype(int))
        bench.detector(fit=fit)

        run = bench.run("standardised", protocol)

        assert run.auc == (0 if protocol in ("transductive", "official") else 1)

    def test_protocol_determines_recipe_and_recorded_parameters(self, bench):
        bench.table(np.arange(80.0).reshape(40, 2), (np.arange(40) >= 30).astype(int))

        for protocol, size in (("transductive", 1), ("split", 1), ("semi", 2), ("semi-dte", 2)):
            run = bench.run(protocol=protocol, seed=8)

            assert run.parameters == {"size": size}, protocol
            assert bench.built[-1].parameters == {"size": size, "random_state": 8}, protocol
            assert run.source == "pyod.toy:Toy"

    def test_smoke_parameters_are_used_and_recorded(self, bench):
        run = bench.run(smoke=True)

        assert run.smoke
        assert run.parameters == {"size": 1, "speed": 3}
        assert bench.built[-1].parameters == {"size": 1, "speed": 3, "random_state": 0}

    def test_only_the_warm_up_uses_smoke_parameters(self, bench):
        run = bench.run()

        warm_up, job = bench.built
        assert warm_up.parameters["speed"] == 3
        assert "speed" not in job.parameters
        assert "speed" not in run.parameters

    def test_system_is_warmed_up_once(self, bench):
        for _ in range(2):
            bench.run()

        assert len(bench.built) == 3

    def test_versions_of_used_packages_are_recorded(self, bench):
        common = {name: version(name) for name in ("altbi", "numpy", "torch", "scikit-learn")}
        common |= {
            "altbi code": code_digest.code_digest(),
            "processor": measurement.describe_processor(),
        }

        assert bench.run("raw").versions == common
        assert bench.run("standardised").versions == common | {"pyod": version("pyod")}

    @pytest.mark.parametrize(
        ("flags", "expected"),
        [
            ("fpu avx2 avx512f", "Quick One 7, AVX-512"),
            ("fpu avx2", "Quick One 7, AVX2"),
            ("fpu", "Quick One 7"),
        ],
    )
    def test_processor_is_described_with_vector_instructions(
        self, tmp_path, monkeypatch, flags, expected
    ):
        about = tmp_path / "cpuinfo"
        about.write_text(f"processor\t: 0\nmodel name\t: Quick One 7\nflags\t\t: {flags}\n\n")
        monkeypatch.setattr(measurement, "_CPU_INFO", about)

        assert measurement.describe_processor.__wrapped__() == expected

    def test_unknown_processor_is_described_by_machine(self, tmp_path, monkeypatch):
        monkeypatch.setattr(measurement, "_CPU_INFO", tmp_path / "none")
        monkeypatch.setattr("platform.processor", lambda: "")

        assert measurement.describe_processor.__wrapped__() == platform.machine()

    def test_code_digest_depends_on_measured_modules_only(self, tmp_path, monkeypatch):
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

    def test_warnings_are_recorded_once_and_shortened(self, bench):
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

    def test_at_most_three_warnings_are_recorded(self, bench):
        def decision_function(self, rows):
            for letter in "edcba":
                warnings.warn(letter, DeprecationWarning, stacklevel=1)
            return rows[:, 0]

        bench.detector(decision_function=decision_function)

        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            assert bench.run().warnings == ["a", "b", "c"]

    def test_system_without_warnings_records_none(self, bench):
        assert bench.run().warnings == []

    @pytest.mark.parametrize(
        ("scores", "error"),
        [
            (np.full(6, np.nan), "NaN"),
            (np.array([0, 1, 2, 3, 4, np.inf]), "infinity"),
            (np.zeros(5), "inconsistent"),
        ],
    )
    def test_invalid_scores_are_recorded_as_error(self, bench, tmp_path, scores, error):
        bench.detector(decision_function=lambda self, rows: scores)

        run = bench.run()

        assert run.error.startswith("ValueError: ")
        assert error in run.error
        assert (run.auc, run.average_precision, run.precision_at_n) == (None, None, None)
        append(tmp_path / "lines", run)
        assert read_runs(tmp_path / "lines") == [run]

    @pytest.mark.parametrize("step", ["__init__", "fit", "decision_function"])
    def test_failure_is_recorded_with_its_recipe(self, bench, step):
        def raise_error(self, *rows, **parameters):
            raise RuntimeError("bad day")

        bench.detector(**{step: raise_error})

        run = bench.run(smoke=True)

        assert run.error == "RuntimeError: bad day"
        assert run.auc is None
        assert run.source == "pyod.toy:Toy"
        assert run.parameters == {"size": 1, "speed": 3}
        assert "pyod" in run.versions

    def test_missing_file_error_has_a_remedy(self, bench):
        (bench.folder / FILE).unlink()

        assert bench.run().error.startswith("TableError: ")
        assert "set ALTBI_ADBENCH" in bench.run().error

    def test_missing_extra_is_recorded_as_error(self, bench, monkeypatch):
        def hide_pyod(name):
            if name == "pyod":
                raise PackageNotFoundError(name)
            return version(name)

        monkeypatch.setitem(sys.modules, "pyod.toy", None)
        monkeypatch.setattr(measurement, "version", hide_pyod)

        run = bench.run()

        assert run.error.startswith("MissingExtraError: 'pyod.toy' cannot be imported")
        assert run.error.endswith("Install it with: pip install altbi-bench")
        assert "pyod" not in run.versions
        assert "numpy" in run.versions

    @pytest.mark.parametrize("y", [np.zeros(6, dtype=int), np.ones(6, dtype=int)])
    def test_single_class_fails_before_the_fit(self, bench, tmp_path, y):
        bench.table(bench.X, y)

        run = bench.run()

        assert f"{y.sum()} of the 6 rows to score are outliers" in run.error
        assert bench.built == []
        append(tmp_path / "lines", run)
        assert read_runs(tmp_path / "lines") == [run]

    def test_split_without_test_outliers_fails(self, bench):
        bench.table(np.arange(80.0).reshape(40, 2), (np.arange(40) == 30).astype(int))

        assert "0 of the 12 rows to score are outliers" in bench.run(protocol="split").error

    def test_failed_run_has_job_and_parameters(self, bench):
        job = Job(file=FILE, system="raw", seed=2, smoke=True)

        run = failed_run(job, "over the limit")

        assert (run.job, run.error, run.auc) == (job, "over the limit", None)
        assert run.parameters == {"size": 1, "speed": 3}

    @pytest.mark.parametrize("system", ["raw", "standardised"])
    def test_modified_rows_do_not_affect_later_jobs(self, bench, system):
        def fit(self, rows):
            Toy.fit(self, rows.copy())
            rows[:] = 0
            return self

        bench.detector(fit=fit)
        bench.run(system)
        bench.detector()

        assert bench.run(system).auc == AUC

    @pytest.mark.parametrize("threads", [1, 2])
    def test_libraries_use_the_recorded_threads(self, bench, threads):
        seen = []

        def fit(self, rows):
            pools = {pool["num_threads"] for pool in threadpool_info()}
            seen.append((torch.get_num_threads(), pools))
            return Toy.fit(self, rows)

        bench.detector(fit=fit)

        run = bench.run(threads=threads)

        assert run.threads == threads
        assert seen[-1] == (threads, {threads})

    def test_seconds_are_of_fit_and_scoring(self, bench, monkeypatch):
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

        # The warm-up, reading and the metrics are not included.
        assert (run.fit_seconds, run.score_seconds) == (4.0, 3.0)

    def test_peak_memory_is_of_the_job_alone(self, bench):
        def fit(self, rows):
            if self.parameters["random_state"] == 1:
                np.ones(2**24)  # 128 MiB, freed immediately
            return Toy.fit(self, rows)

        bench.detector(fit=fit)

        large, small = (bench.run(seed=seed).peak_mib for seed in (1, 2))

        if large is None:
            pytest.skip("peak memory is not available on this system")
        assert 120 < large < 200
        assert small < 64

    def test_unknown_peak_memory_is_recorded_as_none(self, bench, monkeypatch):
        monkeypatch.setattr(measurement, "_reset_peak", lambda: None)

        run = bench.run()

        assert (run.peak_mib, run.error) == (None, None)

    @pytest.mark.parametrize("name", ["ALTBI-I (reference)", "ODIM", "IForest", "LODA", "OCSVM"])
    def test_global_random_state_is_unchanged(self, bench, monkeypatch, name):
        bench.table(sample_rows(60), (np.arange(60) >= 50).astype(int))
        monkeypatch.setattr(measurement, "ALL_SYSTEMS", SYSTEMS)
        before = np.random.get_state(legacy=False), torch.get_rng_state()  # noqa: NPY002

        assert bench.run(name, smoke=True).error is None

        after = np.random.get_state(legacy=False), torch.get_rng_state()  # noqa: NPY002
        np.testing.assert_equal(after[0], before[0])
        assert torch.equal(after[1], before[1])

    def test_global_random_state_survives_a_failure(self, bench):
        def fit(self, rows):
            np.random.random()  # noqa: NPY002
            raise RuntimeError("bad day")

        bench.detector(fit=fit)
        before = np.random.get_state(legacy=False)  # noqa: NPY002

        assert bench.run().error == "RuntimeError: bad day"

        np.testing.assert_equal(np.random.get_state(legacy=False), before)  # noqa: NPY002

    def test_global_random_numbers_follow_the_job_seed(self, bench):
        def fit(self, rows):
            samples.append(np.random.random())  # noqa: NPY002
            return Toy.fit(self, rows)

        samples = []
        bench.detector(fit=fit)
        for seed in (3, 4, 3):
            bench.run(seed=seed)

        _, first, second, third = samples  # the first sample is of the warm-up
        assert first == third != second
        assert first == np.random.RandomState(3).random()


class TestPublishedNumbers:
    """Numbers of DTE's tables, which the paper copies, reproduced by the benchmark."""

    @pytest.mark.parametrize(
        ("name", "system", "protocol", "mean", "deviation"),
        [
            ("cardio", "kNN", "dte", "0.8302", "0.0185"),
            ("wine", "COPOD", "dte", "0.8646", "0.0466"),
            ("vowels", "LOF", "dte", "0.9318", "0.0107"),
            # All seeds have the same rows.
            ("letter", "LOF", "semi-dte", "0.4483", "0.0000"),
            ("fault", "HBOS", "semi-dte", "0.5306", "0.0000"),
            # Resampled below 1,000 rows. Only the mean is published; other seeds give 0.774.
            ("pima", "kNN", "semi-dte", "0.7694", "0.0187"),
        ],
    )
    def test_published_auc_is_reproduced_to_four_digits(
        self, adbench, name, system, protocol, mean, deviation
    ):
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
