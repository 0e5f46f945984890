import argparse
import json
import statistics
import subprocess
import sys
from functools import partial

import numpy as np
import pytest

from altbi import ALTBI
from altbi.bench import datasets, run, systems, tables
from altbi.bench.command import add_arguments, main
from altbi.bench.datasets import Dataset, load, select
from altbi.bench.run import Job, Run, append, mend, plan, quick, read, run_job, todo
from altbi.bench.tables import (
    averages,
    compare,
    difference,
    gaps,
    markdown_table,
    paper_table,
    report,
)
from altbi.errors import AltbiError, ParameterError, TableError

FIRST_COLUMN = "first column"


def first_column(seed):
    """Score by the first column, and with an odd seed by the reverse."""
    return lambda rows: lambda: rows[:, 0] * (-1) ** seed


@pytest.fixture
def tiny(tmp_path, monkeypatch):
    """Two tables under the paper's names, sizes of their own, and one system."""
    folder = tmp_path / "adbench"
    (folder / "Classical").mkdir(parents=True)
    catalogue = (
        Dataset("wine", "Classical/wine.npz", 6, 2, 2),
        Dataset("mnist", "Classical/mnist.npz", 4, 2, 1, comparable=False),
    )
    for dataset in catalogue:
        write(folder / dataset.file, dataset.n_rows, dataset.n_features, dataset.n_outliers)
    monkeypatch.setenv("ALTBI_ADBENCH", str(folder))
    monkeypatch.setattr(datasets, "DATASETS", catalogue)
    monkeypatch.setattr(run, "SYSTEMS", {FIRST_COLUMN: first_column})
    return folder


def write(path, n_rows, n_features, n_outliers, **arrays):
    """Outliers come last and are largest in every column."""
    X = np.arange(n_rows * n_features).reshape(n_rows, n_features)
    y = np.arange(n_rows) >= n_rows - n_outliers
    np.savez(path, **{"X": X, "y": y.astype(int), **arrays})


def result(job, auc=0.5, error=None):
    measures = {} if error else {"auc": auc, "average_precision": auc / 2}
    return Run(
        dataset=job.dataset, system=job.system, seed=job.seed, error=error, **measures,
        n_rows=6, n_features=2, n_outliers=2,
    )  # fmt: skip


def ignore(text):
    pass


class TestDatasets:
    def test_every_file_is_the_one_the_paper_describes(self, adbench):
        for dataset in select():
            X, y = load(dataset)

            assert X.shape == (dataset.n_rows, dataset.n_features), dataset.name
            assert (len(y), int(y.sum())) == (dataset.n_rows, dataset.n_outliers), dataset.name

    def test_all_but_mnist_are_comparable_and_in_the_papers_order(self):
        names = [dataset.name for dataset in select()]

        assert [dataset.name for dataset in select() if not dataset.comparable] == ["mnist"]
        assert names == [name for name in paper_table("auc") if name in names]
        assert len(names) == len(set(names)) == 45

    def test_numbers_are_floats_and_labels_whole(self, tiny):
        X, y = load(*select(["wine"]))

        assert (X.dtype, y.dtype, y.tolist()) == (np.float64, np.int64, [0, 0, 0, 0, 1, 1])

    @pytest.mark.parametrize(
        ("arrays", "found"),
        [
            ({"X": np.zeros((5, 2))}, r"X of shape \(5, 2\)"),
            ({"X": np.zeros((6, 3))}, r"X of shape \(6, 3\)"),
            ({"y": np.zeros(5)}, r"y of shape \(5,\)"),
            ({"y": np.array([0, 0, 0, 2, 1, 1])}, "labels 0 and 1"),
            ({"y": np.array([0, 0, 0, 0, 0, 1])}, "1 outliers"),
            ({"X": np.array([[0, 1]] * 6, dtype=object)}, "plain arrays"),
        ],
    )
    def test_a_file_that_differs_is_refused(self, tiny, arrays, found):
        write(tiny / "Classical/wine.npz", 6, 2, 2, **arrays)

        with pytest.raises(TableError, match=rf"(?s)wine\.npz: .*{found}"):
            load(*select(["wine"]))

    def test_a_file_that_is_no_archive_is_refused(self, tiny):
        (tiny / "Classical/wine.npz").write_bytes(b"PK\x03\x04 broken")

        with pytest.raises(TableError, match=r"wine\.npz: not an ADBench file"):
            load(*select(["wine"]))

    def test_a_missing_file_or_folder_says_what_to_set(self, tiny, monkeypatch, tmp_path):
        (tiny / "Classical/wine.npz").unlink()
        with pytest.raises(TableError, match=r"no such file.*set ALTBI_ADBENCH"):
            load(*select(["wine"]))

        monkeypatch.delenv("ALTBI_ADBENCH")
        monkeypatch.chdir(tmp_path)
        with pytest.raises(TableError, match=r"Set ALTBI_ADBENCH"):
            load(*select(["wine"]))

    def test_an_unknown_name_is_refused(self):
        with pytest.raises(ParameterError, match="'vine'"):
            select(["wine", "vine"])


class TestSystems:
    def test_a_row_is_not_its_own_neighbour(self, monkeypatch):
        monkeypatch.setattr(systems, "NEIGHBOURS", 1)
        rows = np.array([[0.0], [1.0], [3.0], [10.0]])

        scores = systems.nearest_neighbours(0)(rows)()

        np.testing.assert_allclose(scores, np.array([1, 1, 2, 7]) / rows.std())

    def test_all_rows_are_scored_against_a_sample(self, monkeypatch):
        monkeypatch.setattr(systems, "NEIGHBOURS", 2)
        monkeypatch.setattr(systems, "NEIGHBOUR_ROWS", 20)
        rows = np.random.default_rng(0).normal(size=(60, 3))
        sample = np.random.default_rng(7).choice(60, 20, replace=False)
        Z = (rows - rows.mean(0)) / rows.std(0)
        distances = np.linalg.norm(Z[:, None] - Z[sample], axis=-1)
        # By hand: a row of the sample has itself taken away.
        distances[sample, np.arange(20)] = np.inf

        scores = systems.nearest_neighbours(7)(rows)()

        np.testing.assert_allclose(scores, np.sort(distances, axis=1)[:, 1])

    @pytest.mark.parametrize("name", systems.SYSTEMS)
    def test_a_system_ranks_a_far_row_first_and_repeats_itself(self, name):
        rows = np.random.default_rng(0).normal(size=(200, 3))
        rows[17] = 9.0

        first, second = (systems.SYSTEMS[name](3)(rows)() for _ in range(2))

        assert first.shape == (200,)
        assert first.argmax() == 17
        np.testing.assert_array_equal(first, second)

    @pytest.mark.parametrize(
        ("name", "preset"),
        [("ALTBI-I (paper)", ALTBI.paper), ("ALTBI-I (reference)", ALTBI.reference)],
    )
    def test_a_system_is_the_preset_of_its_name_with_the_seed_of_the_job(self, name, preset):
        rows = np.random.default_rng(0).normal(size=(100, 3))

        scores = systems.SYSTEMS[name](5)(rows)()

        expected = preset(random_state=5).fit(rows).anomaly_score(rows)
        np.testing.assert_array_equal(scores, expected)

    @pytest.mark.parametrize("name", ["ALTBI-I (paper)", "ALTBI-I (reference)", "IForest"])
    def test_the_seed_of_the_job_decides(self, name):
        rows = np.random.default_rng(0).normal(size=(100, 3))

        first, second = (systems.SYSTEMS[name](seed)(rows)() for seed in (1, 2))

        assert not np.array_equal(first, second)


class TestRun:
    def test_a_run_holds_measures_and_versions(self, tiny):
        good = run_job(Job("wine", FIRST_COLUMN, 0), *load(*select(["wine"])))
        bad = run_job(Job("wine", FIRST_COLUMN, 1), *load(*select(["wine"])))

        assert (good.auc, good.average_precision, good.error) == (1.0, 1.0, None)
        # Both outliers come last of six: precision 1/5, then 2/6.
        assert bad.auc == 0
        assert bad.average_precision == pytest.approx((1 / 5 + 2 / 6) / 2)
        assert (good.n_rows, good.n_features, good.n_outliers) == (6, 2, 2)
        assert set(good.versions) == {"altbi", "torch", "scikit-learn"}
        assert good.fit_seconds >= 0
        assert good.score_seconds >= 0

    @pytest.mark.parametrize(
        ("scores", "error"),
        [
            (np.full(6, np.nan), "NaN"),
            (np.zeros(5), "inconsistent"),
            (np.full(6, np.inf), "infinity"),
        ],
    )
    def test_unusable_scores_are_an_error(self, tiny, monkeypatch, scores, error):
        monkeypatch.setitem(run.SYSTEMS, FIRST_COLUMN, lambda seed: lambda rows: lambda: scores)

        found = run_job(Job("wine", FIRST_COLUMN, 0), *load(*select(["wine"])))

        assert found.error.startswith("ValueError: ")
        assert error in found.error
        assert found.auc is None

    def test_small_tables_come_first(self, tiny):
        assert plan(None, None, 2) == [
            Job(name, FIRST_COLUMN, seed) for name in ("mnist", "wine") for seed in (0, 1)
        ]

    @pytest.mark.parametrize(("systems", "seeds"), [(["other"], 1), (None, 0)])
    def test_a_plan_that_makes_no_sense_is_refused(self, tiny, systems, seeds):
        with pytest.raises(ParameterError):
            plan(None, systems, seeds)

    def test_failed_and_missing_jobs_are_left_and_the_last_line_counts(self):
        jobs = [Job("wine", "A", seed) for seed in range(4)]
        runs = [
            result(jobs[0]),
            result(jobs[1], error="broken"),
            result(jobs[2], error="broken"),
            result(jobs[2]),
        ]

        assert todo(jobs, runs) == [jobs[1], jobs[3]]

    def test_lines_come_back_as_they_were(self, tmp_path):
        runs = [result(Job("wine", "A", 0), auc=0.1 + 0.2), result(Job("wine", "A", 1), error="no")]
        for each in runs:
            append(tmp_path / "new" / "lines", each)

        assert read(tmp_path / "new" / "lines") == runs
        assert read(tmp_path / "none") == []

    def test_quick_resumes_and_retries_a_failure(self, tiny, tmp_path, monkeypatch):
        calls = []

        def moody(rows, seed):
            calls.append((len(rows), seed))
            if len(calls) == 2:
                raise RuntimeError("bad day")
            return first_column(0)(rows)

        monkeypatch.setitem(run.SYSTEMS, FIRST_COLUMN, lambda seed: partial(moody, seed=seed))
        lines, told = tmp_path / "lines", []

        jobs, first = quick(lines, None, 2, told.append)
        assert [each.error for each in first] == [None, "RuntimeError: bad day", None, None]
        assert told[1] == f"[2/4] mnist, {FIRST_COLUMN}, seed 1: RuntimeError: bad day"
        assert len(gaps(jobs, first)) == 1

        jobs, second = quick(lines, None, 2, told.append)
        assert calls[4:] == [(4, 1)]
        assert gaps(jobs, second) == []
        assert told[-1].startswith(f"[4/4] mnist, {FIRST_COLUMN}, seed 1: AUC 1.000 in ")

    @pytest.mark.parametrize("cut", [1, 20])
    def test_a_half_written_line_is_run_again(self, tiny, tmp_path, cut):
        lines = tmp_path / "lines"
        quick(lines, ["wine"], 2, ignore)
        lines.write_bytes(lines.read_bytes()[:-cut])
        assert [each.seed for each in read(lines)] == [0]

        _, runs = quick(lines, ["wine"], 2, ignore)

        assert [each.seed for each in runs] == [0, 1]
        assert all(json.loads(line) for line in lines.read_text().splitlines())

    def test_mending_leaves_whole_lines_alone(self, tmp_path):
        append(tmp_path / "lines", result(Job("wine", "A", 0)))
        before = (tmp_path / "lines").read_bytes()

        mend(tmp_path / "lines")

        assert (tmp_path / "lines").read_bytes() == before

    @pytest.mark.parametrize(
        "line", ["{", "[]", "{}", '{"dataset": "wine"}', "NaN", "AUC", "SEED", "\udcff"]
    )
    def test_any_other_unreadable_line_is_named(self, tmp_path, line):
        good = result(Job("wine", "A", 0))
        append(tmp_path / "lines", good)
        text = (tmp_path / "lines").read_text()
        line = {
            "NaN": text.replace("0.5", "NaN"),
            "AUC": text.replace("0.5", "null"),
            "SEED": text.replace('"seed": 0', '"seed": "0"'),
        }.get(line, line + "\n")
        with (tmp_path / "lines").open("ab") as lines:
            lines.write(line.encode("utf-8", "surrogateescape"))

        with pytest.raises(TableError, match="lines, line 2: not a run"):
            read(tmp_path / "lines")

    def test_a_missing_file_is_known_before_the_first_run(self, tiny, tmp_path):
        (tiny / "Classical/wine.npz").unlink()

        with pytest.raises(AltbiError, match=r"wine\.npz"):
            quick(tmp_path / "lines", None, 1, ignore)

        assert not (tmp_path / "lines").exists()


class TestTables:
    @pytest.fixture
    def paper(self, monkeypatch):
        numbers = {"glass": 0.70, "wine": 0.50, "mnist": 0.9}
        table = {
            name: dict.fromkeys(tables.SETTINGS["unsupervised"], x) for name, x in numbers.items()
        }
        monkeypatch.setattr(tables, "paper_table", lambda metric, setting: table)

    def jobs(self, *names, seeds=2):
        return [Job(name, "ALTBI-I (reference)", seed) for name in names for seed in range(seeds)]

    def runs(self, jobs):
        aucs = {"glass": (0.70, 0.74), "wine": (0.40, 0.46), "mnist": (0.2, 0.4)}
        return [result(job, aucs[job.dataset][job.seed]) for job in jobs]

    def test_numbers_agree_with_a_calculation_by_hand(self, paper):
        jobs = self.jobs("mnist", "wine", "glass")

        found = compare(jobs, self.runs(jobs), "auc")

        cells = {line.dataset.name: line.ours["ALTBI-I (reference)"] for line in found.lines}
        assert list(cells) == ["glass", "wine", "mnist"]
        assert [cell.mean for cell in cells.values()] == pytest.approx([0.72, 0.43, 0.3])
        assert [cell.std for cell in cells.values()] == pytest.approx(
            [0.02 * 2**0.5, 0.03 * 2**0.5, 0.1 * 2**0.5]
        )
        assert averages(found, comparable=False) == pytest.approx(
            {"ALTBI-I (reference)": 1.45 / 3}
            | dict.fromkeys(("paper ALTBI-I", "paper IForest", "paper kNN"), 2.1 / 3)
        )
        assert averages(found, comparable=True)["ALTBI-I (reference)"] == pytest.approx(0.575)
        gap = difference(found, *tables.REPRODUCED)
        assert gap.n_tables == 2
        assert gap.mean_absolute == pytest.approx(0.045)
        assert gap.mean_signed == pytest.approx(-0.025)
        assert [name for name, _, _ in gap.large] == ["wine"]

    def test_a_lacking_run_leaves_no_number_and_is_listed(self, paper):
        jobs = self.jobs("glass", "wine")
        runs = self.runs(jobs)[:-1]

        found = compare(jobs, runs, "auc")

        assert found.lines[1].ours["ALTBI-I (reference)"] is None
        assert averages(found, comparable=False)["ALTBI-I (reference)"] is None
        assert gaps(jobs, runs) == ["wine, ALTBI-I (reference), seed 1: not run"]
        assert "wine, ALTBI-I (reference), seed 1: not run" in report(jobs, runs)

    def test_a_failed_run_is_listed_until_a_later_line_replaces_it(self, paper):
        jobs = self.jobs("glass", seeds=1)
        failed = result(jobs[0], error="ValueError: no")

        assert gaps(jobs, [failed]) == ["glass, ALTBI-I (reference), seed 0: ValueError: no"]
        assert gaps(jobs, [failed, result(jobs[0])]) == []
        assert "Missing: 1 of 1 runs" in report(jobs, [failed])

    def test_both_looks_hold_the_same_cells(self, paper):
        jobs = self.jobs("glass", "wine", "mnist")
        runs = self.runs(jobs)

        markdown, plain = report(jobs, runs, markdown=True), report(jobs, runs)

        assert "| glass | 0.720 ± 0.028 | 0.700 | 0.700 | 0.700 |\n" in markdown
        assert "mean of the comparable 2 | 0.575 | 0.600" in markdown
        assert "mean -0.0250, mean absolute 0.0450; more than 0.03 apart: 1." in markdown
        words = [line.split() for line in plain.splitlines()]
        assert ["glass", "0.720", "±", "0.028", "0.700", "0.700", "0.700"] in words

    def test_lines_nobody_asked_for_are_left_out(self, paper):
        jobs = self.jobs("glass", "wine")

        assert report(jobs[:2], self.runs(jobs)) == report(jobs[:2], self.runs(jobs[:2]))

    def test_the_papers_numbers_are_the_papers(self):
        auc, precision = paper_table("auc"), paper_table("average_precision")

        assert len(auc) == len(precision) == 58
        assert {len(row) for row in (*auc.values(), *precision.values())} == {25}
        assert auc["Average"]["ALTBI-I"] == 0.762
        assert (auc["aloi"]["kNN"], precision["aloi"]["kNN"]) == (0.613, 0.048)

    def test_the_semi_supervised_numbers_are_the_papers(self):
        auc, precision = (
            paper_table(metric, "semisupervised") for metric in ("auc", "average_precision")
        )

        assert list(auc) == list(precision) == list(paper_table("auc"))
        assert {len(row) for row in (*auc.values(), *precision.values())} == {23}
        assert (auc["aloi"]["ALTBI"], precision["aloi"]["ALTBI"]) == (0.539, 0.04)
        # The paper's last row is the mean of all others.
        for table in (auc, precision):
            for method, average in table.pop("Average").items():
                mean = statistics.fmean(row[method] for row in table.values())
                assert mean == pytest.approx(average, abs=0.001)

    @pytest.mark.parametrize("words", [("auc", "supervised"), ("f1", "semisupervised")])
    def test_a_table_the_paper_lacks_is_refused(self, words):
        with pytest.raises(ParameterError, match="Expected one of auc"):
            paper_table(*words)

    def test_the_setting_decides_what_stands_beside_our_numbers(self):
        jobs = self.jobs("glass", "wine")

        found = compare(jobs, self.runs(jobs), "auc", "semisupervised")

        paper = {name: row["ALTBI"] for name, row in paper_table("auc", "semisupervised").items()}
        assert [line.paper for line in found.lines] == [
            {"ALTBI": paper["glass"]}, {"ALTBI": paper["wine"]}
        ]  # fmt: skip
        assert set(averages(found, comparable=True)) == {"ALTBI-I (reference)", "paper ALTBI"}
        text = markdown_table(found)
        assert text.startswith("| data set | ALTBI-I (reference) | paper ALTBI |\n")
        assert f"| glass | 0.720 ± 0.028 | {paper['glass']:.3f} |\n" in text
        # All tables are comparable: their mean is not shown twice.
        assert text.count("| mean of ") == 1


class TestCommand:
    def parsed(self, *words):
        parser = argparse.ArgumentParser()
        add_arguments(parser)
        return parser.parse_args(words)

    def test_tables_go_to_the_output_and_failures_to_the_exit_code(
        self, tiny, tmp_path, monkeypatch, capsys
    ):
        args = self.parsed("--lines", str(tmp_path / "lines"), "--seeds", "1", "--markdown")
        monkeypatch.setitem(run.SYSTEMS, FIRST_COLUMN, lambda seed: 1 / 0)
        assert main(args) == 1
        assert "wine, first column, seed 0: ZeroDivisionError" in capsys.readouterr().out

        monkeypatch.setitem(run.SYSTEMS, FIRST_COLUMN, first_column)
        assert main(args) == 0
        assert "| wine | 1.000 |" in capsys.readouterr().out

    def test_options_choose_what_is_run(self, tiny, tmp_path, monkeypatch):
        monkeypatch.setitem(run.SYSTEMS, "another", first_column)
        args = self.parsed(
            "--lines", str(tmp_path / "lines"), "--datasets", "wine", "--only-system", FIRST_COLUMN
        )

        assert main(args) == 0
        assert [each.job for each in read(tmp_path / "lines")] == [
            Job("wine", FIRST_COLUMN, seed) for seed in range(3)
        ]

    def test_no_seed_is_wrong_usage(self):
        with pytest.raises(SystemExit, match="2"):
            self.parsed("--seeds", "0")

    def test_nothing_heavy_is_imported_before_a_system_runs(self):
        heavy = subprocess.run(
            [
                sys.executable,
                "-c",
                "import sys, altbi.bench.command as command; early = 'numpy' in sys.modules;"
                "import altbi.bench.run, altbi.bench.tables;"
                "sys.stdout.write(f\"{early} {'torch' in sys.modules}\")",
            ],
            capture_output=True,
            text=True,
            check=True,
        )

        assert heavy.stdout == "False False"
