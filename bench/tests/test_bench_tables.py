import csv
import io
import json
import re
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from altbi.errors import ParameterError, TableError
from altbi_bench.catalogue.datasets import catalogue, find_file, is_chosen_on, select
from altbi_bench.catalogue.protocols import PROTOCOLS, find_protocol
from altbi_bench.catalogue.systems import SYSTEMS, find_systems
from altbi_bench.cli import parser
from altbi_bench.results_page import deep_baselines, descriptions, page
from altbi_bench.results_page.findings import (
    describe_findings,
    describe_leaders,
    describe_standing,
    format_significance,
)
from altbi_bench.results_page.page import write_page
from altbi_bench.runs.records import Job, Run, read_runs
from altbi_bench.runs.runner import Question, keep_current
from altbi_bench.statistics import friedman
from altbi_bench.tables import comparison
from altbi_bench.tables.comparison import (
    compare,
    difference,
    find_failures,
    paper_table,
    shared_means,
)
from altbi_bench.tables.formatting import (
    format_cells,
    format_differences,
    format_missing,
    format_question,
)
from altbi_bench.tables.grids import markdown_grid

PLAIN, REFERENCE, FOREST, NEIGHBOURS = "ALTBI", "ALTBI-I (reference)", "IForest", "kNN"
ALL = select(suite="all")
TWO_SEEDS = Question(seeds=(0, 1))


def recipe(job):
    return SYSTEMS[job.system].describe(find_protocol(job.protocol).setting, smoke=job.smoke)


def a_run(job, auc=0.5, error=None):
    """A line as a run would write it."""
    measures = (
        {} if error else {"auc": auc, "average_precision": auc / 2, "precision_at_n": auc / 4}
    )
    return Run(
        **{name: getattr(job, name) for name in Job.__slots__},
        **measures,
        error=error,
        **dict(zip(("source", "parameters"), recipe(job), strict=True)),
        fit_seconds=1.0,
        score_seconds=0.5,
        peak_mib=10.0,
    )


def runs_of(question, aucs):
    """Lines of systems on data sets: {system: {data set: (AUC of each seed, …)}}."""
    found = []
    for system, by_dataset in aucs.items():
        for name, values in by_dataset.items():
            for dataset in select([name]):
                for part in dataset.files:
                    jobs = question.list_jobs(part, SYSTEMS[system])
                    found += [a_run(job, auc) for job, auc in zip(jobs, values, strict=False)]
    return found


@pytest.fixture
def paper(monkeypatch):
    """A paper with easy numbers."""
    names = [dataset.name for dataset in catalogue()]
    columns = {system.column for system in SYSTEMS.values()} | {"ALTBI"}
    table = {name: dict.fromkeys(columns, 0.5) for name in names}
    table["glass"] = dict.fromkeys(columns, 0.7)
    monkeypatch.setattr(comparison, "paper_table", lambda metric, setting: table)


class TestCells:
    def test_mean_and_spread_agree_with_a_calculation_by_hand(self, paper):
        runs = runs_of(TWO_SEEDS, {REFERENCE: {"glass": (0.70, 0.74), "wine": (0.40, 0.46)}})

        found = compare(runs, "auc", TWO_SEEDS)

        assert found.systems == (REFERENCE,)
        assert [line.dataset.name for line in found.results] == ["glass", "wine"]
        got = [line.ours[REFERENCE] for line in found.results]
        assert [cell.mean for cell in got] == pytest.approx([0.72, 0.43])
        assert [cell.std for cell in got] == pytest.approx([0.02 * 2**0.5, 0.03 * 2**0.5])
        gap = difference(found, REFERENCE)
        assert gap.n_tables == 2
        assert gap.mean_absolute == pytest.approx((0.02 + 0.07) / 2)
        assert gap.mean_signed == pytest.approx((0.02 - 0.07) / 2)
        assert (gap.ours, gap.paper) == pytest.approx((0.575, 0.6))
        assert gap.largest == ("wine", pytest.approx(-0.07))
        assert gap.spread == pytest.approx(0.025 * 2**0.5)

    def test_files_of_a_data_set_weigh_the_same_and_spreads_are_averaged(self):
        question = Question(seeds=(0, 1))
        dataset = select(["20news (RoBERTa)"])[0]
        system = SYSTEMS[REFERENCE]
        first, second = (question.list_jobs(part, system) for part in dataset.files[:2])
        runs = [
            a_run(job, auc)
            for job, auc in zip([*first, *second], (0.1, 0.3, 0.5, 0.9), strict=True)
        ]

        (line,) = compare(runs, "auc", question).results

        assert line.ours[REFERENCE].mean == pytest.approx(0.45)
        assert line.ours[REFERENCE].std == pytest.approx((0.2 + 0.4) / 2**0.5 / 2)
        assert line.title == "20news (RoBERTa), 2 of 6 files"

    def test_more_than_two_files_have_a_mean_too(self):
        question = Question(seeds=(0,))
        parts = select(["20news (RoBERTa)"])[0].files[:3]
        jobs = [question.list_jobs(part, SYSTEMS[REFERENCE])[0] for part in parts]

        runs = [a_run(job, auc) for job, auc in zip(jobs, (0.1, 0.2, 0.9), strict=True)]

        (line,) = compare(runs, "auc", question).results
        assert line.ours[REFERENCE].mean == pytest.approx(0.4)

    @pytest.mark.parametrize("error", [None, "over the limit"])
    def test_a_file_that_few_have_begun_with_takes_no_number_away(self, error):
        question = Question(seeds=(0,))
        parts = select(["20news (RoBERTa)"])[0].files[:3]
        systems = [REFERENCE, FOREST, NEIGHBOURS]
        runs = [
            a_run(question.list_jobs(part, SYSTEMS[name])[0], auc)
            for name in systems
            for part, auc in zip(parts[:2], (0.1, 0.3), strict=True)
        ]
        runs.append(a_run(question.list_jobs(parts[2], SYSTEMS[FOREST])[0], 0.9, error))

        (line,) = compare(runs, "auc", question, find_systems(systems)).results

        assert [line.ours[name].mean for name in systems] == [pytest.approx(0.2)] * 3
        assert line.title == "20news (RoBERTa), 2 of 6 files"

    def test_files_that_each_another_system_has_begun_with_are_all_there(self):
        question = Question(seeds=(0,))
        parts = select(["20news (RoBERTa)"])[0].files[:3]
        systems = [REFERENCE, FOREST, NEIGHBOURS]
        jobs = [
            question.list_jobs(part, SYSTEMS[name])[0]
            for name, part in zip(systems, parts, strict=True)
        ]

        (line,) = compare(map(a_run, jobs), "auc", question, find_systems(systems)).results

        assert line.n_files_run == 3
        assert not any(line.ours.values())

    @pytest.mark.parametrize(("n_parts", "compared"), [(5, False), (6, True)])
    def test_the_paper_s_number_is_about_all_files(self, n_parts, compared):
        question = Question("official", seeds=(0,))
        parts = select(["20news (RoBERTa)"])[0].files[:n_parts]
        runs = [a_run(question.list_jobs(part, SYSTEMS[REFERENCE])[0]) for part in parts]

        assert (difference(compare(runs, "auc", question), REFERENCE) is not None) is compared

    @pytest.mark.parametrize(("rows", "n_tables"), [(None, 2), (20_000, 1)])
    def test_the_paper_s_number_is_about_all_rows(self, rows, n_tables):
        question = Question(rows=rows, seeds=(0,))
        runs = runs_of(question, {REFERENCE: {"smtp": (0.2,), "wine": (0.5,)}})

        assert difference(compare(runs, "auc", question), REFERENCE).n_tables == n_tables

    def test_one_run_of_an_unseeded_system_is_a_whole_cell_without_spread(self):
        runs = runs_of(TWO_SEEDS, {NEIGHBOURS: {"glass": (0.6,)}})

        (line,) = compare(runs, "auc", TWO_SEEDS).results

        assert (line.ours[NEIGHBOURS].mean, line.ours[NEIGHBOURS].std) == (0.6, None)

    def test_a_lacking_seed_leaves_no_number(self):
        runs = runs_of(TWO_SEEDS, {REFERENCE: {"glass": (0.6,)}, FOREST: {"glass": (0.6, 0.7)}})

        (line,) = compare(runs, "auc", TWO_SEEDS, find_systems([REFERENCE, FOREST])).results

        assert line.ours[REFERENCE] is None
        assert line.ours[FOREST].mean == pytest.approx(0.65)

    def test_a_lacking_file_leaves_no_number_where_another_system_ran_it(self):
        question = Question(seeds=(0,))
        parts = select(["20news (BERT)"])[0].files[:2]
        jobs = {
            name: [question.list_jobs(part, SYSTEMS[name])[0] for part in parts]
            for name in (REFERENCE, FOREST)
        }
        runs = [a_run(job) for job in [*jobs[REFERENCE], jobs[FOREST][0]]]

        (line,) = compare(runs, "auc", question, find_systems([REFERENCE, FOREST])).results

        assert line.ours[REFERENCE] is not None
        assert line.ours[FOREST] is None

    def test_a_failed_run_counts_until_a_later_line_replaces_it(self):
        question = Question(seeds=(0,))
        (job,) = question.list_jobs(select(["glass"])[0].files[0], SYSTEMS[FOREST])
        failed = a_run(job, error="ValueError: no")

        assert (
            compare([failed], "auc", question, find_systems([FOREST])).results[0].ours[FOREST]
            is None
        )
        assert find_failures([failed], question, find_systems([FOREST]), ALL) == [failed]
        assert find_failures([failed], question, find_systems([FOREST]), select(["wine"])) == []
        stale = replace(failed, parameters={"n_estimators": 7})
        assert find_failures([stale], question, find_systems([FOREST]), ALL) == []
        again = [failed, a_run(job, 0.8)]
        assert compare(again, "auc", question).results[0].ours[FOREST].mean == 0.8
        assert find_failures(again, question, find_systems([FOREST]), ALL) == []

    @pytest.mark.parametrize(
        "change",
        [{"smoke": True}, {"protocol": "official"}, {"rows": 5_000}, {"seed": 7}],
        ids=str,
    )
    def test_trials_and_other_protocols_samples_and_seeds_are_barred(self, change):
        runs = runs_of(TWO_SEEDS, {FOREST: {"glass": (0.1, 0.2)}})

        assert compare([replace(run, **change) for run in runs], "auc", TWO_SEEDS).results == ()

    def test_whole_runs_of_a_large_table_do_not_stand_for_its_sample(self):
        whole, sample = Question(seeds=(0,)), Question(rows=20_000, seeds=(0,))
        runs = runs_of(whole, {FOREST: {"donors": (0.1,), "glass": (0.3,)}})

        found = compare(runs, "auc", sample)

        assert [line.dataset.name for line in found.results] == ["glass"]

    def test_a_measure_that_older_lines_lack_leaves_no_number(self):
        runs = [
            replace(run, precision_at_n=None)
            for run in runs_of(TWO_SEEDS, {FOREST: {"glass": (0.1, 0.2)}})
        ]

        assert compare(runs, "auc", TWO_SEEDS).results[0].ours[FOREST] is not None
        assert (
            compare(runs, "precision_at_n", TWO_SEEDS, find_systems([FOREST]))
            .results[0]
            .ours[FOREST]
            is None
        )

    def test_runs_of_a_system_built_otherwise_are_absent(self):
        runs = runs_of(TWO_SEEDS, {FOREST: {"glass": (0.1, 0.2)}})

        assert compare(runs, "auc", TWO_SEEDS).results
        for change in ({"parameters": {"n_estimators": 7}}, {"source": "other:Forest"}):
            assert compare([replace(run, **change) for run in runs], "auc", TWO_SEEDS).results == ()


class TestPaper:
    def test_the_papers_numbers_are_the_papers(self):
        auc, precision = paper_table("auc"), paper_table("average_precision")

        assert len(auc) == len(precision) == 58
        assert {len(row) for row in (*auc.values(), *precision.values())} == {25}
        assert auc["Average"]["ALTBI-I"] == 0.762
        assert (auc["aloi"]["kNN"], precision["aloi"]["kNN"]) == (0.613, 0.048)

    def test_the_semi_supervised_numbers_are_the_papers(self):
        auc = paper_table("auc", "semisupervised")

        assert list(auc) == list(paper_table("auc"))
        assert auc["aloi"]["ALTBI"] == 0.539

    @pytest.mark.parametrize(
        ("metric", "setting"), [("precision_at_n", "unsupervised"), ("auc", "dte")]
    )
    def test_a_table_that_the_paper_lacks_is_refused(self, metric, setting):
        with pytest.raises(ParameterError, match="The paper has no table"):
            paper_table(metric, setting)

    @pytest.mark.parametrize(
        ("dataset", "system", "has_number"),
        [
            ("wine", REFERENCE, True),
            ("mnist", REFERENCE, False),
            ("mnist", FOREST, True),
            ("MVTec-AD (ViT)", REFERENCE, True),
            ("MVTec-AD (ViT)", FOREST, False),
            ("MVTec-AD (ResNet18)", REFERENCE, False),
            ("MVTec-AD (ResNet18)", FOREST, True),
        ],
    )
    def test_the_paper_stands_beside_the_very_files_it_is_about(self, dataset, system, has_number):
        question = Question(seeds=(0,))
        (found,) = select([dataset])
        runs = [a_run(question.list_jobs(part, SYSTEMS[system])[0]) for part in found.files]

        (line,) = compare(runs, "auc", question).results

        assert (line.paper[system] is not None) is has_number

    def test_on_inliers_alone_only_the_papers_one_altbi_is_compared(self):
        question = Question("semi", seeds=(0,))
        part = select(["wine"])[0].files[0]
        names = [REFERENCE, "ALTBI-I (paper)", "ODIM", FOREST]
        runs = [a_run(question.list_jobs(part, SYSTEMS[name])[0]) for name in names]

        (line,) = compare(runs, "auc", question).results

        number = paper_table("auc", "semisupervised")["wine"]
        assert line.paper[REFERENCE] == number["ALTBI"]
        assert line.paper["ALTBI-I (paper)"] is None
        assert line.paper["ODIM"] is None

    @pytest.mark.parametrize(
        ("protocol", "system", "metric", "compared"),
        [
            ("transductive", REFERENCE, "auc", True),
            ("transductive", FOREST, "auc", False),
            ("dte", REFERENCE, "auc", False),
            ("dte", FOREST, "average_precision", True),
            ("semi", REFERENCE, "auc", True),
            ("semi", REFERENCE, "average_precision", False),
            ("semi", FOREST, "auc", False),
            ("semi-code", REFERENCE, "average_precision", True),
            ("split", REFERENCE, "auc", False),
        ],
    )
    def test_differences_are_taken_under_the_papers_own_protocol(
        self, protocol, system, metric, compared
    ):
        question = Question(protocol, seeds=(0,))
        runs = runs_of(question, {system: {"wine": (0.5,)}})

        assert (difference(compare(runs, metric, question), system) is not None) is compared

    @pytest.mark.parametrize(
        ("protocol", "compared"), [("transductive", False), ("official", True)]
    )
    @pytest.mark.parametrize("metric", ["auc", "average_precision"])
    def test_of_images_the_authors_left_most_outliers_out(self, protocol, compared, metric):
        question = Question(protocol, seeds=(0,))
        runs = runs_of(question, {REFERENCE: {"MVTec-AD (ViT)": (0.5,)}})

        assert (difference(compare(runs, metric, question), REFERENCE) is not None) is compared


class TestMeans:
    def test_means_are_over_the_data_sets_that_all_ran(self):
        runs = runs_of(
            TWO_SEEDS,
            {
                REFERENCE: {"glass": (0.2, 0.4), "wine": (0.9, 0.9)},
                FOREST: {"glass": (0.5, 0.7), "pima": (0.1, 0.1)},
            },
        )

        shared, means = shared_means(compare(runs, "auc", TWO_SEEDS))

        assert [line.dataset.name for line in shared] == ["glass"]
        assert means == pytest.approx({REFERENCE: 0.3, FOREST: 0.6})

    def test_what_only_failed_has_no_means(self, tmp_path):
        question = Question(seeds=(0,))
        (part,) = select(["wine"])[0].files
        failed = a_run(question.list_jobs(part, SYSTEMS["HBOS"])[0], error="no bins")

        text = format_question(written_lines(tmp_path, [failed]), question, None, ALL)

        assert "that all ran" not in text
        assert "45_wine, HBOS, seed 0, transductive: no bins" in text

    def test_nothing_shared_has_no_means(self):
        runs = runs_of(TWO_SEEDS, {REFERENCE: {"wine": (0.9, 0.9)}, FOREST: {"pima": (0.1, 0.1)}})

        assert shared_means(compare(runs, "auc", TWO_SEEDS)) == ([], {})


class TestLook:
    def test_few_systems_have_the_paper_beside_them(self, paper):
        runs = runs_of(TWO_SEEDS, {REFERENCE: {"glass": (0.70, 0.74), "mnist": (0.2, 0.2)}})

        grid = format_cells(compare(runs, "auc", TWO_SEEDS))

        assert grid == [
            ["data set", REFERENCE, "paper's ALTBI-I"],
            ["glass", "0.720 ± 0.028", "0.700"],
            ["mnist", "0.200 ± 0.000", "-"],
            ["mean of the 2 that all ran", "0.460", "-"],
        ]

    def test_differences_name_the_largest(self, paper):
        runs = runs_of(TWO_SEEDS, {REFERENCE: {"glass": (0.70, 0.74), "wine": (0.40, 0.46)}})

        (text,) = format_differences(compare(runs, "auc", TWO_SEEDS), markdown_grid)

        assert (
            f"| {REFERENCE} | 2 | 0.5750 | 0.6000 | -0.0250 | 0.0450 | wine -0.070 | 0.035 |"
            in text
        )

    def test_differences_are_over_all_data_sets(self, paper):
        aucs = {"glass": (0.70, 0.74), "wine": (0.40, 0.46), "pima": (0.90, 0.90)}
        runs = runs_of(TWO_SEEDS, {REFERENCE: aucs})

        (text,) = format_differences(compare(runs, "auc", TWO_SEEDS), markdown_grid)

        assert (
            f"| {REFERENCE} | 3 | 0.6833 | 0.5667 | +0.1167 | 0.1633 | pima +0.400 | 0.024 |"
            in text
        )

    @pytest.mark.parametrize(
        ("protocol", "named"),
        [("dte", "ALTBI-I"), ("official", "IForest"), ("split", "ALTBI-I, IForest")],
    )
    def test_numbers_of_the_paper_from_another_protocol_are_named(self, tmp_path, protocol, named):
        question = Question(protocol, seeds=(0,))
        runs = runs_of(question, {REFERENCE: {"glass": (0.5,)}, FOREST: {"glass": (0.6,)}})

        text = format_question(written_lines(tmp_path, runs), question, None, ALL)

        assert f"\nThe paper's numbers of {named} come from another protocol" in text

    def test_kinds_of_data_with_numbers_from_another_protocol_are_named(self, tmp_path):
        aucs = dict.fromkeys(["glass", "MVTec-AD (ViT)", "MVTec-AD (ResNet18)"], (0.5, 0.5))
        path = written_lines(tmp_path, runs_of(TWO_SEEDS, {REFERENCE: aucs}))

        both, tables_alone, without_numbers = (
            format_question(path, TWO_SEEDS, None, select(names))
            for names in (list(aucs), ["glass"], ["glass", "MVTec-AD (ResNet18)"])
        )

        assert "\nThe paper's numbers of ALTBI-I on images come from another protocol" in both
        assert "another protocol" not in tables_alone + without_numbers

    def test_nothing_is_said_of_numbers_that_do_not_stand_there(self, tmp_path):
        question = Question("split", seeds=(0,))
        names = [PLAIN, REFERENCE, FOREST, NEIGHBOURS, "HBOS"]
        path = written_lines(tmp_path, runs_of(question, {n: {"glass": (0.5,)} for n in names}))

        assert "another protocol" in format_question(path, question, find_systems(names[1:]), ALL)
        assert "another protocol" not in format_question(path, question, find_systems(names), ALL)

    def test_one_file_of_a_data_set_is_a_row_that_says_so(self, tmp_path, paper):
        (whole,) = select(["MVTec-AD (ViT)"])
        first, second = whole.files[:2]
        question = Question("official", seeds=(0,))
        path = written_lines(
            tmp_path,
            [
                a_run(question.list_jobs(part, SYSTEMS[REFERENCE])[0], auc)
                for part, auc in ((first, 0.7), (second, 0.9))
            ],
        )

        text = format_question(path, question, None, select([first.path]), markdown=True)

        assert "| MVTec-AD (ViT), 1 of 15 files | 0.700 | 0.500 |" in text
        assert "mean difference" not in text  # the paper's number is about all files

    def test_what_is_missing_is_said_with_its_reason(self):
        question = Question(seeds=(0,))
        part = select(["glass"])[0].files[0]
        failed = a_run(
            question.list_jobs(part, SYSTEMS[FOREST])[0], error="over the limit of 3 seconds"
        )
        ran = a_run(question.list_jobs(part, SYSTEMS[REFERENCE])[0])
        systems = find_systems([FOREST, REFERENCE, "LOF"])
        found = compare([failed, ran], "auc", question, systems)

        (text,) = format_missing([failed, ran], found, ALL, systems)

        assert text.splitlines() == [
            "- 14_glass, IForest, seed 0, transductive: over the limit of 3 seconds",
            "- LOF: not run with all seeds on glass",
        ]

    def test_both_looks_hold_the_same_cells(self, tmp_path, paper):
        path = written_lines(tmp_path, runs_of(TWO_SEEDS, {FOREST: {"glass": (0.70, 0.74)}}))

        plain = format_question(path, TWO_SEEDS, None, ALL)
        markdown = format_question(path, TWO_SEEDS, None, ALL, markdown=True)

        assert "| glass | 0.720 ± 0.028 | 0.700 |" in markdown
        assert ["glass", "0.720", "±", "0.028", "0.700"] in [
            line.split() for line in plain.splitlines()
        ]

    def test_differences_stand_below_the_cells(self, tmp_path, paper):
        aucs = {REFERENCE: {"glass": (0.70, 0.74), "wine": (0.40, 0.46)}}
        path = written_lines(tmp_path, runs_of(TWO_SEEDS, aucs))

        text = format_question(path, TWO_SEEDS, None, ALL, markdown=True)

        assert f"| {REFERENCE} | 2 | 0.5750 | 0.6000 | -0.0250 |" in text

    def test_a_system_that_ran_elsewhere_does_not_take_the_means_away(self, tmp_path):
        aucs = {FOREST: {"glass": (0.7, 0.7), "wine": (0.2, 0.2)}, NEIGHBOURS: {"wine": (0.4,)}}
        path = written_lines(tmp_path, runs_of(TWO_SEEDS, aucs))

        text = format_question(path, TWO_SEEDS, None, select(["glass"]), markdown=True)

        assert "| mean of the 1 that all ran | 0.700 |" in text
        assert "- kNN: not run with all seeds on glass" in text

    def test_data_sets_nobody_asked_for_are_left_out(self, tmp_path):
        aucs = {FOREST: {"glass": (0.7, 0.7), "wine": (0.2, 0.2)}}
        path = written_lines(tmp_path, runs_of(TWO_SEEDS, aucs))

        text = format_question(path, TWO_SEEDS, None, select(["wine"]))

        assert "wine" in text
        assert "glass" not in text

    def test_a_system_that_failed_everywhere_is_named_and_one_elsewhere_is_not(self, tmp_path):
        question = Question(seeds=(0,))
        glass, wine = (select([name])[0].files[0] for name in ("glass", "wine"))
        runs = [
            a_run(question.list_jobs(wine, SYSTEMS[REFERENCE])[0]),
            a_run(question.list_jobs(wine, SYSTEMS["HBOS"])[0], error="no bins"),
            a_run(question.list_jobs(glass, SYSTEMS["LOF"])[0], error="no neighbours"),
        ]

        text = format_question(written_lines(tmp_path, runs), question, None, select(["wine"]))

        assert "- 45_wine, HBOS, seed 0, transductive: no bins" in text
        assert "no neighbours" not in text

    def test_a_trial_or_another_protocol_makes_no_system_missing(self, tmp_path):
        question = Question(seeds=(0,))
        (part,) = select(["glass"])[0].files
        begun = [
            a_run(replace(question, **change).list_jobs(part, SYSTEMS[name])[0])
            for name, change in (("HBOS", {"smoke": True}), ("LOF", {"protocol": "dte"}))
        ]
        runs = [*runs_of(question, {FOREST: {"glass": (0.7,)}}), *begun]

        text = format_question(written_lines(tmp_path, runs), question, None, ALL)

        assert "Missing" not in text

    def test_lines_of_protocols_nobody_knows_are_left_out(self):
        runs = runs_of(TWO_SEEDS, {FOREST: {"glass": (0.7, 0.9)}})

        assert keep_current([replace(runs[0], protocol="old"), runs[1]]) == [runs[1]]

    def test_a_run_from_before_a_measure_was_there_is_not_missing(self, tmp_path):
        runs = runs_of(TWO_SEEDS, {FOREST: {"glass": (0.7, 0.7)}})
        path = written_lines(tmp_path, [replace(run, precision_at_n=None) for run in runs])

        text = format_question(path, TWO_SEEDS, None, ALL)

        assert "Missing" not in text
        assert "0.700" in text

    def test_the_paper_s_column_stands_once_however_many_systems_have_it(self, tmp_path):
        untruncated = "ALTBI-I (untruncated)"
        semi = Question("semi", seeds=(0,))
        aucs = {name: {"glass": (0.7,)} for name in (REFERENCE, untruncated)}
        path = written_lines(tmp_path, runs_of(semi, aucs))

        head = format_question(
            path, semi, find_systems([REFERENCE, untruncated]), ALL
        ).splitlines()[2]

        assert head.count("paper's") == 1
        assert head.split()[-2:] == ["paper's", "ALTBI"]

    def test_a_file_that_is_not_there_is_said(self, tmp_path):
        with pytest.raises(TableError, match=r"none\.jsonl: no such file of records"):
            format_question(tmp_path / "none.jsonl", TWO_SEEDS, None, ALL)

    def test_lines_about_something_else_are_said(self, tmp_path):
        path = written_lines(tmp_path, runs_of(TWO_SEEDS, {FOREST: {"glass": (0.7, 0.7)}}))

        with pytest.raises(TableError, match=r"lines\.jsonl: no record matches the request"):
            format_question(path, Question("dte"), None, ALL)


def written_lines(folder, runs, name="lines.jsonl"):
    path = folder / name
    path.write_text("".join(json.dumps(asdict(run)) + "\n" for run in runs))
    return path


class TestFindings:
    NAMES = ("glass", "hepatitis", "lymphography", "pima", "vertebral", "wbc", "wdbc", "wine")

    def runs(self, aucs):
        return runs_of(
            TWO_SEEDS,
            {
                system: {name: (auc, auc) for name, auc in by_name.items()}
                for system, by_name in aucs.items()
            },
        )

    def found(self, aucs, metric="auc"):
        return compare(self.runs(aucs), metric, TWO_SEEDS)

    def told(self, aucs):
        auc, precision = (self.found(aucs, metric) for metric in ("auc", "average_precision"))
        return describe_findings(auc, precision, self.runs(aucs))

    def test_ours_alone_has_no_standing(self):
        assert describe_standing("There", self.found({PLAIN: {"wine": 0.7}})) == []
        assert (
            describe_standing(
                "There", self.found({FOREST: {"wine": 0.7}, NEIGHBOURS: {"wine": 0.6}})
            )
            == []
        )

    def test_one_that_leads_by_its_mean_but_not_by_its_rank_has_both_told(self):
        aucs = {
            PLAIN: {"glass": 0.9, "wine": 0.5, "wbc": 0.5},
            FOREST: {"glass": 0.1, "wine": 0.6, "wbc": 0.6},
            NEIGHBOURS: {"glass": 0.0, "wine": 0.0, "wbc": 0.0},
        }

        told = describe_leaders(self.found(aucs), self.found(aucs, "average_precision"))

        assert f"{PLAIN} has the highest mean AUC (0.633)" in told
        assert f"IForest the best mean rank (1.3). {PLAIN} has 0.633 (rank 1 of 3), " in told

    def test_five_data_sets_are_named_where_ours_is_behind(self):
        ours = {name: 0.5 - place / 100 for place, name in enumerate(self.NAMES)}
        best = dict.fromkeys(self.NAMES, 0.9)

        (told, _) = (
            text
            for text in self.told({PLAIN: ours, FOREST: best, NEIGHBOURS: best})
            if "furthest behind" in text
        )

        write_in_background = told.split("furthest behind the best other on ")[1]
        assert re.findall(r"(\w+) \(0\.", write_in_background) == list(reversed(self.NAMES))[:5]

    def test_a_difference_that_may_be_chance_is_neither_better_nor_worse(self):
        ours = dict.fromkeys(self.NAMES, 0.5)
        mixed = {name: 0.7 if place < 5 else 0.4 for place, name in enumerate(self.NAMES)}
        (told, *_) = (
            text
            for text in self.told(
                {PLAIN: ours, FOREST: dict.fromkeys(self.NAMES, 0.8), NEIGHBOURS: mixed}
            )
            if text.startswith("AUC, by Wilcoxon")
        )

        assert told.endswith(
            f"{PLAIN} is better than none and worse than IForest; no difference is shown against "
            "kNN."
        )

    def test_rounding_decides_no_lead(self):
        ours, other = dict.fromkeys(self.NAMES, 0.3), dict.fromkeys(self.NAMES, 0.1 + 0.2)

        told = self.told({PLAIN: ours, FOREST: other, NEIGHBOURS: other})

        assert any(
            "alone has the highest on 0 of 8 data sets, and shares it on 8." in t for t in told
        )

    def test_friedmans_test_is_told_with_both_of_its_statistics(self):
        aucs = {
            PLAIN: dict.fromkeys(self.NAMES, 0.5),
            FOREST: {name: 0.6 if name == "wine" else 0.4 for name in self.NAMES},
            NEIGHBOURS: dict.fromkeys(self.NAMES, 0.3),
        }
        main = self.found(aucs)

        told, by_hand = format_significance(main)[0], friedman(main.scores)

        assert f"chi² = {by_hand.statistic:.1f}, p = {by_hand.p_value:.2g} " in told
        assert f"F = {by_hand.f_statistic:.2f}, p = {by_hand.f_p_value:.2g})" in told

    def test_where_all_tables_were_set_aside_they_are_not_judged_again(self):
        aside = [name for name in self.NAMES if not is_chosen_on(select([name])[0].files[0].name)]
        assert 2 <= len(aside) < len(self.NAMES)

        for names, n_told in ((self.NAMES, 1), (aside, 0)):
            ours, others = dict.fromkeys(names, 0.5), dict.fromkeys(names, 0.4)
            told = self.told({PLAIN: ours, FOREST: others, NEIGHBOURS: others})

            assert sum("reserved for" in text for text in told) == n_told


class TestPage:
    DATASETS = ("glass", "wine", "pima", "cardio", "letter", "thyroid")

    @pytest.fixture
    def folder(self, tmp_path):
        """Three systems on six tables, of which the second is always best."""
        aucs = {
            PLAIN: dict.fromkeys(self.DATASETS, (0.5, 0.6, 0.7)),
            FOREST: dict.fromkeys(self.DATASETS, (0.8, 0.9, 0.7)),
            NEIGHBOURS: dict.fromkeys(self.DATASETS, (0.4,)),
        }
        results = tmp_path / "results"
        results.mkdir()
        written_lines(results, runs_of(page.MAIN, aucs), "transductive.jsonl")
        written_lines(results, runs_of(page.PUBLISHED, {FOREST: {"wine": [0.7] * 5}}), "dte.jsonl")
        written_lines(results, runs_of(page.SEMI, {FOREST: {"wine": (0.7,) * 3}}), "semi.jsonl")
        return results

    @pytest.fixture
    def written(self, folder):
        path = folder.parent / "docs" / "results.md"
        path.parent.mkdir()
        write_page(path, folder)
        return path

    def test_it_says_who_leads_whoever_it_is(self, written):
        text = written.read_text()

        assert (
            "Over the 6 data sets that all 3 systems ran, IForest has the highest mean AUC (0.800)"
            in text
        )
        assert f"{PLAIN} has 0.600 (rank 2 of 3), 0.300 and 2.0." in text

    def page_of(self, folder, aucs, question=page.MAIN):
        folder.mkdir()
        written_lines(folder, runs_of(question, aucs), f"{question.protocol}.jsonl")
        write_page(folder / "page.md", folder)
        return (folder / "page.md").read_text().splitlines()

    def test_it_says_where_ours_is_behind(self, tmp_path):
        ours = dict(zip(self.DATASETS, (0.9, 0.5, 0.6, 0.7, 0.8, 0.8), strict=True))
        aucs = {
            PLAIN: {name: (auc,) * 3 for name, auc in ours.items()},
            FOREST: dict.fromkeys(self.DATASETS, (0.8,) * 3),
            NEIGHBOURS: dict.fromkeys(self.DATASETS, (0.4,)) | {"wine": (0.9,)},
        }

        text = self.page_of(tmp_path / "results", aucs)

        for metric, halves in (("AUC", 1), ("Average precision", 2)):
            told = [f"{auc / halves:.3f}" for auc in (0.5, 0.9, 0.6, 0.8, 0.7)]
            assert (
                f"{metric}, among these 3 systems: {PLAIN} alone has the highest on 1 of 6 data "
                "sets, and shares it on 2. It is furthest behind the best other on wine "
                f"({told[0]}, kNN {told[1]}), pima ({told[2]}, IForest {told[3]}), cardio "
                f"({told[4]}, IForest {told[3]})."
            ) in text

    def test_a_data_set_that_only_ours_ran_is_no_lead(self, tmp_path):
        aucs = {
            PLAIN: dict.fromkeys((*self.DATASETS, "wdbc"), (0.9,) * 3),
            FOREST: dict.fromkeys(self.DATASETS, (0.8,) * 3),
            NEIGHBOURS: dict.fromkeys(self.DATASETS, (0.4,)),
        }

        text = self.page_of(tmp_path / "results", aucs)

        start = "AUC, among these 3 systems"
        assert f"{start}: {PLAIN} alone has the highest on 6 of 6 data sets." in text

    def test_the_tables_that_ours_was_not_chosen_on_are_judged_apart(self, tmp_path):
        """Six of them: at best p = 2 / 2**6 = 0.031, doubled for two pairs."""
        aside = ("glass", "wine", "cardio", "thyroid", "vowels", "hepatitis")
        names = (*aside, "pima", "letter", "wdbc")
        aucs = {
            PLAIN: dict.fromkeys(names, (0.9,) * 3),
            FOREST: dict.fromkeys(names, (0.8,) * 3),
            NEIGHBOURS: dict.fromkeys(names, (0.4,)),
        }

        text = self.page_of(tmp_path / "results", aucs)

        (told,) = (line for line in text if "reserved for" in line)
        assert f"{len(aside)} of them were reserved" in told
        assert told.endswith(
            f"{PLAIN} is better than none and worse than none; no difference is shown against "
            "IForest, kNN."
        )

    def test_one_that_leads_everywhere_is_named_once(self, tmp_path):
        names = (*self.DATASETS, "vowels", "wdbc")
        aucs = {
            PLAIN: dict.fromkeys(names, (0.9,) * 3),
            FOREST: dict.fromkeys(names, (0.8,) * 3),
            NEIGHBOURS: dict.fromkeys(names, (0.4,)),
        }

        text = self.page_of(tmp_path / "results", aucs)

        assert (
            f"Over the 8 data sets that all 3 systems ran, {PLAIN} has the highest mean AUC "
            "(0.900), the highest mean average precision (0.450), and the best mean rank (1.0)."
        ) in text
        start = "AUC, among these 3 systems"
        assert f"{start}: {PLAIN} alone has the highest on 8 of 8 data sets." in text
        (told,) = (line for line in text if line.startswith("AUC, by Wil"))
        assert told.endswith(f"{PLAIN} is better than each of the 2 others and worse than none.")

    @pytest.mark.parametrize(
        ("forest", "told"),
        [
            (0.8, f"IForest has the highest mean AUC (0.800), {PLAIN} has 0.700 (rank 2 of 2)."),
            (0.6, f"{PLAIN} has the highest mean AUC (0.700), IForest the second highest (0.600)."),
        ],
    )
    def test_it_says_how_ours_stands_on_inliers_alone(self, tmp_path, forest, told):
        aucs = {PLAIN: {"wine": (0.7,) * 3}, FOREST: {"wine": (forest,) * 3}}

        text = self.page_of(tmp_path / "results", aucs, page.SEMI)

        start = "Fitted on inliers alone, over the 1 data sets that all 2 systems ran, "
        assert start + told in text

    def test_every_cell_leads_to_its_line(self, written):
        n_links, systems = 0, []
        for row in written.read_text().splitlines():
            texts = [cell.strip() for cell in row.strip("|").split("|")]
            systems = texts if texts[0] == "data set" else systems
            for system, cell in zip(systems, texts, strict=False):
                if link := re.fullmatch(r"\[.*\]\((.*\.jsonl)#L(\d+)\)", cell):
                    lines = (written.parent / link[1]).read_text().splitlines()
                    line = json.loads(lines[int(link[2]) - 1])
                    dataset, _ = find_file(line["file"])
                    assert (dataset.label, line["system"], line["seed"]) == (
                        texts[0],
                        system,
                        0,
                    )
                    n_links += 1
        assert n_links == 2 * 3 * 6 + 1 + 2

    @pytest.mark.parametrize("page_in", [".", "docs", "docs/deep/down", "results"])
    def test_links_lead_to_the_lines_wherever_the_page_stands(self, folder, page_in, monkeypatch):
        monkeypatch.chdir(folder.parent)
        home = Path(page_in)

        write_page(home / "page.md", Path("results"))

        page_links = re.findall(r"\]\(([^)]*\.jsonl)#L\d+\)", (home / "page.md").read_text())
        rows = csv.DictReader(io.StringIO((home / "page/b2.csv").read_text()))
        table_links = [row["first line"].partition("#")[0] for row in rows]
        assert page_links
        assert table_links
        assert all((home / link).is_file() for link in page_links)
        assert all((home / "page" / link).is_file() for link in table_links)

    def test_the_distance_of_the_figure_is_that_of_the_text(self, uneven, tmp_path):
        """Three systems on the eight tables that all ran, not on nine: 2.343 * sqrt(12 / 48)."""
        assert "mean ranks differ significantly if their difference exceeds 1.17" in uneven
        assert "1.17" in (tmp_path / "page/ranks.svg").read_text()

    def test_tables_and_figures_stand_beside_it(self, written):
        beside = written.with_suffix("")

        names = sorted(path.name for path in beside.iterdir())
        assert names == [
            "b2-dte.csv", "b2.csv", "b3-dte.csv", "b3.csv", "b4.csv", "b5.csv",
            "ranks.svg", "seconds.svg",
        ]  # fmt: skip
        for name in ("ranks.svg", "seconds.svg"):
            assert f"](results/{name})" in written.read_text()
        rows = list(csv.DictReader(io.StringIO((beside / "b2.csv").read_text())))
        by_cell = {(row["data set"], row["system"]): row for row in rows}
        row = by_cell["wine", FOREST]
        assert (row["ours"], row["std"], row["paper"]) == ("0.800000", "0.100000", "0.786000")
        assert row["difference"] == ""  # the paper's baselines saw other rows
        assert (row["files"], row["of files"], row["seeds"]) == ("1", "1", "3")
        row = by_cell["wine", PLAIN]
        assert (row["ours"], row["paper"], row["difference"]) == ("0.600000", "", "")

    @pytest.fixture
    def uneven(self, tmp_path):
        """Ours wins against the neighbours, loses to the forest, and costs differ."""
        names = ("glass", "wine", "pima", "cardio", "letter", "thyroid", "vowels", "wdbc")
        steps = [0.01 * (1 + place) for place in range(len(names))]
        aucs = {
            PLAIN: {name: (0.5 + s, 0.5, 0.5) for name, s in zip(names, steps, strict=True)},
            FOREST: {name: (0.7 + s,) * 3 for name, s in zip(names, steps, strict=True)},
            NEIGHBOURS: {name: (0.4 - s,) for name, s in zip(names, steps, strict=True)},
        }
        runs = runs_of(page.MAIN, aucs)
        runs = [
            replace(run, fit_seconds=1.0 + place, score_seconds=100.0, peak_mib=5.0 + place)
            for place, run in enumerate(runs)
        ]
        runs[23] = replace(runs[23], fit_seconds=1000.0)  # a mean would not be the median
        lone = runs_of(page.MAIN, {FOREST: {"musk": (0.9,) * 3}})
        results = tmp_path / "results"
        results.mkdir()
        written_lines(results, [*runs, *lone], "transductive.jsonl")
        write_page(tmp_path / "page.md", results)
        return (tmp_path / "page.md").read_text()

    def rows_after(self, text, head):
        lines = text[text.index(head) :].split("\n\n")[0].splitlines()[2:]
        return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]

    def test_it_says_against_whom_ours_wins_and_loses(self, uneven):
        """Eight of eight one way: p = 2 / 2**8 = 0.0078, doubled for two pairs."""
        for metric in ("AUC", "Average precision"):
            (told,) = (line for line in uneven.splitlines() if line.startswith(f"{metric}, by Wil"))
            assert told.endswith(f"(5 %): {PLAIN} is better than kNN and worse than IForest.")
        rows = self.rows_after(uneven, f"| {PLAIN} against")
        assert rows == [
            ["IForest", "8", "-0.230", "-0.230", "0", "8", "0.0078", "0.016"],
            ["kNN", "8", "+0.160", "+0.160", "8", "0", "0.0078", "0.016"],
        ]
        assert "has not run there: musk." in uneven

    def test_costs_are_medians_of_fit_and_scoring_and_the_most_memory(self, uneven):
        """Runs are numbered as they were made: 24 of ours, 24 of the forest, 8 of the others."""
        rows = self.rows_after(uneven, "| system | AUC")
        assert [(row[0], row[-3], row[-2], row[-1]) for row in rows] == [
            ("IForest", "136.50", "52", "9 of 9"),
            (PLAIN, "112.50", "28", "8 of 9"),
            ("kNN", "152.50", "60", "8 of 9"),
        ]
        assert [row[4] for row in rows] == ["1.00", "2.00", "3.00"]

    def test_lines_of_another_make_of_a_system_do_not_count(self, folder):
        lines = folder / "transductive.jsonl"
        runs = [json.loads(line) for line in lines.read_text().splitlines()]
        stale = [run | {"auc": 0.01, "parameters": {"n0": 7}} for run in runs]
        lines.write_text("".join(json.dumps(run) + "\n" for run in [*runs, *stale]))

        write_page(folder.parent / "page.md", folder)

        text = (folder.parent / "page.md").read_text()
        assert "IForest has the highest mean AUC (0.800)" in text
        linked = [int(number) for number in re.findall(r"transductive\.jsonl#L(\d+)", text)]
        assert linked
        assert max(linked) <= len(runs)

    def test_only_the_files_of_protocols_count(self, folder):
        runs = [json.loads(line) for line in (folder / "transductive.jsonl").open()]
        bad = [run | {"auc": 0.01} for run in runs]
        (folder / "trial.jsonl").write_text("".join(json.dumps(run) + "\n" for run in bad))

        write_page(folder.parent / "page.md", folder)

        assert "IForest has the highest mean AUC (0.800)" in (folder.parent / "page.md").read_text()

    @pytest.mark.parametrize(
        ("systems", "names"),
        [
            ((PLAIN, FOREST), ("glass", "wine", "pima")),
            ((PLAIN, FOREST, NEIGHBOURS), ("glass",)),
            ((FOREST, NEIGHBOURS, "HBOS"), ("glass", "wine", "pima")),
        ],
    )
    def test_few_runs_make_a_page_that_says_so(self, tmp_path, systems, names):
        runs = runs_of(page.MAIN, {name: dict.fromkeys(names, (0.5, 0.6, 0.7)) for name in systems})
        (tmp_path / "results").mkdir()
        written_lines(tmp_path / "results", runs, "transductive.jsonl")

        write_page(tmp_path / "page.md", tmp_path / "results")

        text = (tmp_path / "page.md").read_text()
        assert "There are too few runs for a comparison." in text
        assert "| glass |" in text
        assert "ranks.svg" not in text

    @pytest.mark.parametrize(
        ("question", "file"),
        [
            (page.ALL_ROWS, "transductive"),
            (page.MAIN, "transductive"),
            (page.PUBLISHED, "dte"),
            (page.SEMI, "semi"),
        ],
        ids=["whole", "main", "published", "semi"],
    )
    def test_every_failure_is_told_with_its_reason(self, folder, question, file):
        (part,) = select(["donors"])[0].files
        failed = a_run(question.list_jobs(part, SYSTEMS["LODA"])[0], error="over the limit")
        with (folder / f"{file}.jsonl").open("a") as lines:
            lines.write(json.dumps(asdict(failed)) + "\n")

        write_page(folder.parent / "page.md", folder)

        told = (folder.parent / "page.md").read_text().split("## Not run")[1]
        assert f"- {failed.job.title}: over the limit\n" in told

    def test_a_system_that_lacks_seeds_everywhere_is_named(self, folder):
        runs = runs_of(page.MAIN, {"LODA": dict.fromkeys(self.DATASETS, (0.5,))})
        with (folder / "transductive.jsonl").open("a") as lines:
            lines.writelines(json.dumps(asdict(run)) + "\n" for run in runs)

        write_page(folder.parent / "page.md", folder)

        told = (folder.parent / "page.md").read_text().split("## Not run")[1]
        names = "cardio, glass, letter, pima, thyroid, wine"
        assert f"- LODA: not run with all seeds on {names}\n" in told

    def test_of_whole_files_only_large_ones_and_quick_systems_are_asked_for(self, folder):
        (wine,), (donors,) = (select([name])[0].files for name in ("wine", "donors"))
        runs = [
            a_run(page.ALL_ROWS.list_jobs(part, SYSTEMS[name])[0], error=f"{name} is ill")
            for part, name in ((wine, "LODA"), (donors, "kNN"), (donors, "HBOS"))
        ]
        with (folder / "transductive.jsonl").open("a") as lines:
            lines.writelines(json.dumps(asdict(run)) + "\n" for run in runs)

        write_page(folder.parent / "page.md", folder)

        told = (folder.parent / "page.md").read_text().split("## Not run")[1]
        # A small file is whole in the main comparison: its failure is told there, and once.
        assert told.count("LODA is ill") == told.count("HBOS is ill") == 1
        assert "kNN is ill" not in told

    def test_images_that_no_system_has_run_whole_have_no_table(self, folder):
        parts = select(["SVHN (ViT)"])[0].files[:2]
        systems = [PLAIN, FOREST]
        runs = [
            a_run(page.MAIN.list_jobs(part, SYSTEMS[name])[0])
            for name, part in zip(systems, parts, strict=True)
        ]
        with (folder / "transductive.jsonl").open("a") as lines:
            lines.writelines(json.dumps(asdict(run)) + "\n" for run in runs)

        write_page(folder.parent / "page.md", folder)

        told = (folder.parent / "page.md").read_text().split("## Images and texts")[1]
        assert told.split("## Whole files")[0].endswith("\n\nNo records yet.\n\n")

    def test_the_sample_is_that_of_the_command(self):
        assert descriptions.SAMPLE == parser.ROWS

    def test_tables_have_six_digits(self, folder):
        runs = runs_of(page.MAIN, {"HBOS": {"wine": (0.123456,)}})
        with (folder / "transductive.jsonl").open("a") as lines:
            lines.writelines(json.dumps(asdict(run)) + "\n" for run in runs)

        write_page(folder.parent / "page.md", folder)

        assert "wine,1,1,HBOS,0.123456,," in (folder.parent / "page/b2.csv").read_text()

    def test_data_sets_without_a_line_and_lacking_cells_are_named(self, written, folder):
        with (folder / "transductive.jsonl").open("a") as lines:
            (run,) = runs_of(page.MAIN, {NEIGHBOURS: {"speech": (0.4,)}})
            lines.write(json.dumps(asdict(replace(run, smoke=True))) + "\n")
            (run,) = runs_of(page.MAIN, {NEIGHBOURS: {"vowels": (0.4,)}})
            lines.write(json.dumps(asdict(run)) + "\n")
        write_page(written, folder)
        text = written.read_text()
        assert "- IForest: not run with all seeds on vowels" in text
        absent = text.split("These data sets were not run: ")[1].split(". Nor")[0].split(", ")

        assert "speech" in absent
        assert "agnews (BERT)" in absent
        assert "wine" not in absent

    def test_tables_with_a_handful_of_outliers_are_named(self, folder):
        lines = folder / "transductive.jsonl"
        runs = [json.loads(line) for line in lines.read_text().splitlines()]
        counts = {"45_wine": 6, "14_glass": 9, "29_Pima": 10}
        runs = [run | {"n_outliers": counts.get(Path(run["file"]).stem, 50)} for run in runs]
        lines.write_text("".join(json.dumps(run) + "\n" for run in runs))

        write_page(folder.parent / "page.md", folder)

        text = (folder.parent / "page.md").read_text()
        assert "Fewer than 10 outliers are in glass (9), wine (6)." in text

    def test_images_and_texts_have_a_summary_of_the_systems_that_ran_on_all(self, folder):
        images = ("MVTec-AD (ResNet18)", "SVHN (ViT)")
        aucs = {
            PLAIN: dict.fromkeys(images, (0.5, 0.6, 0.7)),
            NEIGHBOURS: dict.fromkeys(images, (0.4,)),
            FOREST: {images[0]: (0.9, 0.9, 0.9)},
        }
        with (folder / "transductive.jsonl").open("a") as lines:
            lines.writelines(json.dumps(asdict(run)) + "\n" for run in runs_of(page.MAIN, aucs))

        write_page(folder.parent / "page.md", folder)

        text = (folder.parent / "page.md").read_text()
        part = text.split("## Images and texts")[1].split("### AUC")[0]
        rows = [line.strip("| ").split(" | ") for line in part.splitlines() if line[:1] == "|"]
        assert [row[0] for row in rows[2:]] == [PLAIN, NEIGHBOURS]
        assert rows[2][1:5] == ["0.600", "0.300", "0.150", "1.00"]
        assert rows[2][-1] == "2 of 2"
        assert "over the 2 data sets that all 2 ran:" in part
        assert (
            f"On images and texts, over the 2 data sets that all 2 systems ran, {PLAIN} has the "
            "highest mean AUC (0.600), kNN the second highest (0.400)."
        ) in text.splitlines()

    def test_deep_baselines_stand_beside_all_others_with_one_seed(self, folder):
        once = {
            "DAGMM": dict.fromkeys(self.DATASETS, (0.3,)),
            "ICL (100 epochs)": dict.fromkeys(self.DATASETS[:2], (0.95,)),
        }
        replayed = {"DAGMM": {"wine": (0.4,)}}
        thrice = {"RDA": dict.fromkeys(self.DATASETS, (0.1, 0.2, 0.3))}
        for name, question, aucs in (
            ("transductive", deep_baselines.FIRST_SEED, once),
            ("dte", deep_baselines.PUBLISHED, replayed),
            ("transductive", Question("transductive", 20_000), thrice),
        ):
            with (folder / f"{name}.jsonl").open("a") as lines:
                lines.writelines(json.dumps(asdict(run)) + "\n" for run in runs_of(question, aucs))

        write_page(folder.parent / "page.md", folder)

        text = (folder.parent / "page.md").read_text()
        part, again = text.split("## With the deep baselines")[1].split("## The deep baselines ")
        grids = [
            [line.strip("| ").split(" | ") for line in grid.splitlines() if line[:1] == "|"][2:]
            for grid in part.split("### AUC")[0].split("The same with ICL")
        ]
        # The first seed alone counts: 0.5 for ours, whose three have the mean 0.6.
        assert [(row[0], row[1]) for row in grids[0]] == [
            (FOREST, "0.800"),
            (PLAIN, "0.500"),
            (NEIGHBOURS, "0.400"),
            ("DAGMM", "0.300"),
        ]
        assert (
            "With the deep baselines, on tables of up to 10,000 rows and with one seed, over the 6 "
            "data sets that all 4 systems ran, IForest has the highest mean AUC (0.800), "
            "the highest mean average precision (0.400), and the best mean rank (1.0). "
            f"{PLAIN} has 0.500 (rank 2 of 4), 0.250 and 2.0."
        ) in text.splitlines()
        (told,) = (line for line in text.splitlines() if line.startswith("With ICL"))
        assert "over the 2 data sets that all 5 systems ran, ICL (100 epochs) has" in told
        assert [row[0] for row in grids[1]][:2] == ["ICL (100 epochs)", FOREST]
        assert {row[-1] for row in grids[1]} == {"6 of 6", "2 of 6"}
        assert "| DAGMM | 1 | 0.4000 |" in again
        over_seeds = part.split("Fast systems have three seeds:")[1]
        assert [line for line in over_seeds.splitlines() if line[:1] == "|"][2:] == [
            f"| RDA | {len(self.DATASETS)} | 0.200 | 0.100 | 0.100 |"
        ]

    def test_without_runs_of_deep_baselines_there_is_no_word_of_them(self, written):
        assert "With the deep baselines" not in written.read_text()

    def test_one_file_of_lines_is_not_enough(self, folder, tmp_path):
        with pytest.raises(TableError, match="the folder with the records of all protocols"):
            write_page(tmp_path / "page.md", folder / "dte.jsonl")

    def test_a_folder_without_lines_is_said(self, tmp_path):
        with pytest.raises(TableError, match="no records of runs"):
            write_page(tmp_path / "page.md", tmp_path)

    def test_no_committed_job_was_run_twice(self):
        folder = Path(__file__).parents[1] / "results"
        for protocol in PROTOCOLS:
            done = [
                run.job
                for run in keep_current(read_runs(folder / f"{protocol}.jsonl"))
                if not run.error
            ]
            assert len(done) == len(set(done)), protocol

    def test_the_committed_page_is_made_of_the_committed_lines(self, tmp_path):
        root = Path(__file__).parents[2]
        (tmp_path / "docs").mkdir()
        (tmp_path / "bench").symlink_to(root / "bench")

        write_page(tmp_path / "docs" / "results.md", tmp_path / "bench" / "results")

        for made in (tmp_path / "docs").rglob("*.*"):
            committed = root / "docs" / made.relative_to(tmp_path / "docs")
            assert made.read_text() == committed.read_text(), committed.name
