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

pytestmark = pytest.mark.slow

PLAIN, REFERENCE, FOREST, NEIGHBOURS = "ALTBI", "ALTBI-I (reference)", "IForest", "kNN"
ALL = select(suite="all")
TWO_SEEDS = Question(seeds=(0, 1))


def describe_recipe(job):
    return SYSTEMS[job.system].describe(find_protocol(job.protocol).setting, smoke=job.smoke)


def build_run(job, auc=0.5, error=None):
    """Return the record of a job."""
    measures = (
        {} if error else {"auc": auc, "average_precision": auc / 2, "precision_at_n": auc / 4}
    )
    return Run(
        **{name: getattr(job, name) for name in Job.__slots__},
        **measures,
        error=error,
        **dict(zip(("source", "parameters"), describe_recipe(job), strict=True)),
        fit_seconds=1.0,
        score_seconds=0.5,
        peak_mib=10.0,
    )


def build_runs(question, aucs):
    """Return records of {system: {data set: (AUC of each seed, …)}}."""
    found = []
    for system, by_dataset in aucs.items():
        for name, values in by_dataset.items():
            for dataset in select([name]):
                for part in dataset.files:
                    jobs = question.list_jobs(part, SYSTEMS[system])
                    found += [build_run(job, auc) for job, auc in zip(jobs, values, strict=False)]
    return found


@pytest.fixture
def paper(monkeypatch):
    """Replace the numbers of the paper by simple ones."""
    names = [dataset.name for dataset in catalogue()]
    columns = {system.column for system in SYSTEMS.values()} | {"ALTBI"}
    table = {name: dict.fromkeys(columns, 0.5) for name in names}
    table["glass"] = dict.fromkeys(columns, 0.7)
    monkeypatch.setattr(comparison, "paper_table", lambda metric, setting: table)


class TestCells:
    def test_mean_and_spread_agree_with_hand_calculation(self, paper):
        runs = build_runs(TWO_SEEDS, {REFERENCE: {"glass": (0.70, 0.74), "wine": (0.40, 0.46)}})

        found = compare(runs, "auc", TWO_SEEDS)

        assert found.systems == (REFERENCE,)
        assert [line.dataset.name for line in found.results] == ["glass", "wine"]
        got = [line.ours[REFERENCE] for line in found.results]
        assert [cell.mean for cell in got] == pytest.approx([0.72, 0.43])
        assert [cell.std for cell in got] == pytest.approx([0.02 * 2**0.5, 0.03 * 2**0.5])
        found_difference = difference(found, REFERENCE)
        assert found_difference.n_tables == 2
        assert found_difference.mean_absolute == pytest.approx((0.02 + 0.07) / 2)
        assert found_difference.mean_signed == pytest.approx((0.02 - 0.07) / 2)
        assert (found_difference.ours, found_difference.paper) == pytest.approx((0.575, 0.6))
        assert found_difference.largest == ("wine", pytest.approx(-0.07))
        assert found_difference.spread == pytest.approx(0.025 * 2**0.5)

    def test_files_have_equal_weights_and_spreads_are_averaged(self):
        question = Question(seeds=(0, 1))
        dataset = select(["20news (RoBERTa)"])[0]
        system = SYSTEMS[REFERENCE]
        first, second = (question.list_jobs(part, system) for part in dataset.files[:2])
        runs = [
            build_run(job, auc)
            for job, auc in zip([*first, *second], (0.1, 0.3, 0.5, 0.9), strict=True)
        ]

        (line,) = compare(runs, "auc", question).results

        assert line.ours[REFERENCE].mean == pytest.approx(0.45)
        assert line.ours[REFERENCE].std == pytest.approx((0.2 + 0.4) / 2**0.5 / 2)
        assert line.title == "20news (RoBERTa), 2 of 6 files"

    def test_mean_covers_more_than_two_files(self):
        question = Question(seeds=(0,))
        parts = select(["20news (RoBERTa)"])[0].files[:3]
        jobs = [question.list_jobs(part, SYSTEMS[REFERENCE])[0] for part in parts]

        runs = [build_run(job, auc) for job, auc in zip(jobs, (0.1, 0.2, 0.9), strict=True)]

        (line,) = compare(runs, "auc", question).results
        assert line.ours[REFERENCE].mean == pytest.approx(0.4)

    @pytest.mark.parametrize("error", [None, "over the limit"])
    def test_file_of_few_systems_is_left_out(self, error):
        question = Question(seeds=(0,))
        parts = select(["20news (RoBERTa)"])[0].files[:3]
        systems = [REFERENCE, FOREST, NEIGHBOURS]
        runs = [
            build_run(question.list_jobs(part, SYSTEMS[name])[0], auc)
            for name in systems
            for part, auc in zip(parts[:2], (0.1, 0.3), strict=True)
        ]
        runs.append(build_run(question.list_jobs(parts[2], SYSTEMS[FOREST])[0], 0.9, error))

        (line,) = compare(runs, "auc", question, find_systems(systems)).results

        assert [line.ours[name].mean for name in systems] == [pytest.approx(0.2)] * 3
        assert line.title == "20news (RoBERTa), 2 of 6 files"

    def test_files_of_different_systems_are_all_counted(self):
        question = Question(seeds=(0,))
        parts = select(["20news (RoBERTa)"])[0].files[:3]
        systems = [REFERENCE, FOREST, NEIGHBOURS]
        jobs = [
            question.list_jobs(part, SYSTEMS[name])[0]
            for name, part in zip(systems, parts, strict=True)
        ]

        (line,) = compare(map(build_run, jobs), "auc", question, find_systems(systems)).results

        assert line.n_files_run == 3
        assert not any(line.ours.values())

    @pytest.mark.parametrize(("n_parts", "compared"), [(5, False), (6, True)])
    def test_difference_needs_all_files(self, n_parts, compared):
        question = Question("official", seeds=(0,))
        parts = select(["20news (RoBERTa)"])[0].files[:n_parts]
        runs = [build_run(question.list_jobs(part, SYSTEMS[REFERENCE])[0]) for part in parts]

        assert (difference(compare(runs, "auc", question), REFERENCE) is not None) is compared

    @pytest.mark.parametrize(("rows", "n_tables"), [(None, 2), (20_000, 1)])
    def test_difference_needs_all_rows(self, rows, n_tables):
        question = Question(rows=rows, seeds=(0,))
        runs = build_runs(question, {REFERENCE: {"smtp": (0.2,), "wine": (0.5,)}})

        assert difference(compare(runs, "auc", question), REFERENCE).n_tables == n_tables

    def test_unseeded_system_has_no_spread(self):
        runs = build_runs(TWO_SEEDS, {NEIGHBOURS: {"glass": (0.6,)}})

        (line,) = compare(runs, "auc", TWO_SEEDS).results

        assert (line.ours[NEIGHBOURS].mean, line.ours[NEIGHBOURS].std) == (0.6, None)

    def test_missing_seed_leaves_no_mean(self):
        runs = build_runs(TWO_SEEDS, {REFERENCE: {"glass": (0.6,)}, FOREST: {"glass": (0.6, 0.7)}})

        (line,) = compare(runs, "auc", TWO_SEEDS, find_systems([REFERENCE, FOREST])).results

        assert line.ours[REFERENCE] is None
        assert line.ours[FOREST].mean == pytest.approx(0.65)

    def test_missing_file_leaves_no_mean(self):
        question = Question(seeds=(0,))
        parts = select(["20news (BERT)"])[0].files[:2]
        jobs = {
            name: [question.list_jobs(part, SYSTEMS[name])[0] for part in parts]
            for name in (REFERENCE, FOREST)
        }
        runs = [build_run(job) for job in [*jobs[REFERENCE], jobs[FOREST][0]]]

        (line,) = compare(runs, "auc", question, find_systems([REFERENCE, FOREST])).results

        assert line.ours[REFERENCE] is not None
        assert line.ours[FOREST] is None

    def test_failure_counts_until_a_later_record(self):
        question = Question(seeds=(0,))
        (job,) = question.list_jobs(select(["glass"])[0].files[0], SYSTEMS[FOREST])
        failed = build_run(job, error="ValueError: no")

        assert (
            compare([failed], "auc", question, find_systems([FOREST])).results[0].ours[FOREST]
            is None
        )
        assert find_failures([failed], question, find_systems([FOREST]), ALL) == [failed]
        assert find_failures([failed], question, find_systems([FOREST]), select(["wine"])) == []
        stale = replace(failed, parameters={"n_estimators": 7})
        assert find_failures([stale], question, find_systems([FOREST]), ALL) == []
        again = [failed, build_run(job, 0.8)]
        assert compare(again, "auc", question).results[0].ours[FOREST].mean == 0.8
        assert find_failures(again, question, find_systems([FOREST]), ALL) == []

    @pytest.mark.parametrize(
        "change",
        [{"smoke": True}, {"protocol": "official"}, {"rows": 5_000}, {"seed": 7}],
        ids=str,
    )
    def test_other_jobs_are_excluded(self, change):
        runs = build_runs(TWO_SEEDS, {FOREST: {"glass": (0.1, 0.2)}})

        assert compare([replace(run, **change) for run in runs], "auc", TWO_SEEDS).results == ()

    def test_runs_on_all_rows_are_not_samples(self):
        complete, sample = Question(seeds=(0,)), Question(rows=20_000, seeds=(0,))
        runs = build_runs(complete, {FOREST: {"donors": (0.1,), "glass": (0.3,)}})

        found = compare(runs, "auc", sample)

        assert [line.dataset.name for line in found.results] == ["glass"]

    def test_missing_metric_leaves_no_mean(self):
        runs = [
            replace(run, precision_at_n=None)
            for run in build_runs(TWO_SEEDS, {FOREST: {"glass": (0.1, 0.2)}})
        ]

        assert compare(runs, "auc", TWO_SEEDS).results[0].ours[FOREST] is not None
        assert (
            compare(runs, "precision_at_n", TWO_SEEDS, find_systems([FOREST]))
            .results[0]
            .ours[FOREST]
            is None
        )

    def test_runs_with_outdated_recipes_are_excluded(self):
        runs = build_runs(TWO_SEEDS, {FOREST: {"glass": (0.1, 0.2)}})

        assert compare(runs, "auc", TWO_SEEDS).results
        for change in ({"parameters": {"n_estimators": 7}}, {"source": "other:Forest"}):
            assert compare([replace(run, **change) for run in runs], "auc", TWO_SEEDS).results == ()


class TestPaper:
    def test_unsupervised_tables_agree_with_the_paper(self):
        auc, precision = paper_table("auc"), paper_table("average_precision")

        assert len(auc) == len(precision) == 58
        assert {len(row) for row in (*auc.values(), *precision.values())} == {25}
        assert auc["Average"]["ALTBI-I"] == 0.762
        assert (auc["aloi"]["kNN"], precision["aloi"]["kNN"]) == (0.613, 0.048)

    def test_semi_supervised_tables_agree_with_the_paper(self):
        auc = paper_table("auc", "semisupervised")

        assert list(auc) == list(paper_table("auc"))
        assert auc["aloi"]["ALTBI"] == 0.539

    @pytest.mark.parametrize(
        ("metric", "setting"), [("precision_at_n", "unsupervised"), ("auc", "dte")]
    )
    def test_table_missing_in_the_paper_raises(self, metric, setting):
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
    def test_paper_numbers_belong_to_their_files(self, dataset, system, has_number):
        question = Question(seeds=(0,))
        (found,) = select([dataset])
        runs = [build_run(question.list_jobs(part, SYSTEMS[system])[0]) for part in found.files]

        (line,) = compare(runs, "auc", question).results

        assert (line.paper[system] is not None) is has_number

    def test_semi_supervised_comparison_has_one_altbi(self):
        question = Question("semi", seeds=(0,))
        part = select(["wine"])[0].files[0]
        names = [REFERENCE, "ALTBI-I (paper)", "ODIM", FOREST]
        runs = [build_run(question.list_jobs(part, SYSTEMS[name])[0]) for name in names]

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
    def test_differences_need_the_papers_protocol(self, protocol, system, metric, compared):
        question = Question(protocol, seeds=(0,))
        runs = build_runs(question, {system: {"wine": (0.5,)}})

        assert (difference(compare(runs, metric, question), system) is not None) is compared

    @pytest.mark.parametrize(
        ("protocol", "compared"), [("transductive", False), ("official", True)]
    )
    @pytest.mark.parametrize("metric", ["auc", "average_precision"])
    def test_image_differences_need_the_official_protocol(self, protocol, compared, metric):
        question = Question(protocol, seeds=(0,))
        runs = build_runs(question, {REFERENCE: {"MVTec-AD (ViT)": (0.5,)}})

        assert (difference(compare(runs, metric, question), REFERENCE) is not None) is compared


class TestMeans:
    def test_means_use_shared_data_sets(self):
        runs = build_runs(
            TWO_SEEDS,
            {
                REFERENCE: {"glass": (0.2, 0.4), "wine": (0.9, 0.9)},
                FOREST: {"glass": (0.5, 0.7), "pima": (0.1, 0.1)},
            },
        )

        shared, means = shared_means(compare(runs, "auc", TWO_SEEDS))

        assert [line.dataset.name for line in shared] == ["glass"]
        assert means == pytest.approx({REFERENCE: 0.3, FOREST: 0.6})

    def test_failed_systems_have_no_means(self, tmp_path):
        question = Question(seeds=(0,))
        (part,) = select(["wine"])[0].files
        failed = build_run(question.list_jobs(part, SYSTEMS["HBOS"])[0], error="no bins")

        text = format_question(write_records(tmp_path, [failed]), question, None, ALL)

        assert "that all ran" not in text
        assert "45_wine, HBOS, seed 0, transductive: no bins" in text

    def test_no_shared_data_sets_have_no_means(self):
        runs = build_runs(
            TWO_SEEDS, {REFERENCE: {"wine": (0.9, 0.9)}, FOREST: {"pima": (0.1, 0.1)}}
        )

        assert shared_means(compare(runs, "auc", TWO_SEEDS)) == ([], {})


class TestFormatting:
    def test_grid_has_columns_of_the_paper(self, paper):
        runs = build_runs(TWO_SEEDS, {REFERENCE: {"glass": (0.70, 0.74), "mnist": (0.2, 0.2)}})

        grid = format_cells(compare(runs, "auc", TWO_SEEDS))

        assert grid == [
            ["data set", REFERENCE, "paper's ALTBI-I"],
            ["glass", "0.720 ± 0.028", "0.700"],
            ["mnist", "0.200 ± 0.000", "-"],
            ["mean of the 2 that all ran", "0.460", "-"],
        ]

    def test_differences_include_the_largest(self, paper):
        runs = build_runs(TWO_SEEDS, {REFERENCE: {"glass": (0.70, 0.74), "wine": (0.40, 0.46)}})

        (text,) = format_differences(compare(runs, "auc", TWO_SEEDS), markdown_grid)

        assert (
            f"| {REFERENCE} | 2 | 0.5750 | 0.6000 | -0.0250 | 0.0450 | wine -0.070 | 0.035 |"
            in text
        )

    def test_differences_use_all_data_sets(self, paper):
        aucs = {"glass": (0.70, 0.74), "wine": (0.40, 0.46), "pima": (0.90, 0.90)}
        runs = build_runs(TWO_SEEDS, {REFERENCE: aucs})

        (text,) = format_differences(compare(runs, "auc", TWO_SEEDS), markdown_grid)

        assert (
            f"| {REFERENCE} | 3 | 0.6833 | 0.5667 | +0.1167 | 0.1633 | pima +0.400 | 0.024 |"
            in text
        )

    @pytest.mark.parametrize(
        ("protocol", "named"),
        [("dte", "ALTBI-I"), ("official", "IForest"), ("split", "ALTBI-I, IForest")],
    )
    def test_numbers_from_another_protocol_are_listed(self, tmp_path, protocol, named):
        question = Question(protocol, seeds=(0,))
        runs = build_runs(question, {REFERENCE: {"glass": (0.5,)}, FOREST: {"glass": (0.6,)}})

        text = format_question(write_records(tmp_path, runs), question, None, ALL)

        assert f"\nThe paper's numbers of {named} come from another protocol" in text

    def test_kinds_of_data_from_another_protocol_are_listed(self, tmp_path):
        aucs = dict.fromkeys(["glass", "MVTec-AD (ViT)", "MVTec-AD (ResNet18)"], (0.5, 0.5))
        path = write_records(tmp_path, build_runs(TWO_SEEDS, {REFERENCE: aucs}))

        both, tables_alone, without_numbers = (
            format_question(path, TWO_SEEDS, None, select(names))
            for names in (list(aucs), ["glass"], ["glass", "MVTec-AD (ResNet18)"])
        )

        assert "\nThe paper's numbers of ALTBI-I on images come from another protocol" in both
        assert "another protocol" not in tables_alone + without_numbers

    def test_hidden_numbers_are_not_mentioned(self, tmp_path):
        question = Question("split", seeds=(0,))
        names = [PLAIN, REFERENCE, FOREST, NEIGHBOURS, "HBOS"]
        path = write_records(tmp_path, build_runs(question, {n: {"glass": (0.5,)} for n in names}))

        assert "another protocol" in format_question(path, question, find_systems(names[1:]), ALL)
        assert "another protocol" not in format_question(path, question, find_systems(names), ALL)

    def test_row_shows_the_number_of_files(self, tmp_path, paper):
        (dataset,) = select(["MVTec-AD (ViT)"])
        first, second = dataset.files[:2]
        question = Question("official", seeds=(0,))
        path = write_records(
            tmp_path,
            [
                build_run(question.list_jobs(part, SYSTEMS[REFERENCE])[0], auc)
                for part, auc in ((first, 0.7), (second, 0.9))
            ],
        )

        text = format_question(path, question, None, select([first.path]), markdown=True)

        assert "| MVTec-AD (ViT), 1 of 15 files | 0.700 | 0.500 |" in text
        assert "mean difference" not in text  # the paper's number is about all files

    def test_missing_runs_are_listed_with_reason(self):
        question = Question(seeds=(0,))
        part = select(["glass"])[0].files[0]
        failed = build_run(
            question.list_jobs(part, SYSTEMS[FOREST])[0], error="over the limit of 3 seconds"
        )
        ran = build_run(question.list_jobs(part, SYSTEMS[REFERENCE])[0])
        systems = find_systems([FOREST, REFERENCE, "LOF"])
        found = compare([failed, ran], "auc", question, systems)

        (text,) = format_missing([failed, ran], found, ALL, systems)

        assert text.splitlines() == [
            "- 14_glass, IForest, seed 0, transductive: over the limit of 3 seconds",
            "- LOF: not run with all seeds on glass",
        ]

    def test_plain_and_markdown_have_the_same_values(self, tmp_path, paper):
        path = write_records(tmp_path, build_runs(TWO_SEEDS, {FOREST: {"glass": (0.70, 0.74)}}))

        plain = format_question(path, TWO_SEEDS, None, ALL)
        markdown = format_question(path, TWO_SEEDS, None, ALL, markdown=True)

        assert "| glass | 0.720 ± 0.028 | 0.700 |" in markdown
        assert ["glass", "0.720", "±", "0.028", "0.700"] in [
            line.split() for line in plain.splitlines()
        ]

    def test_differences_follow_the_values(self, tmp_path, paper):
        aucs = {REFERENCE: {"glass": (0.70, 0.74), "wine": (0.40, 0.46)}}
        path = write_records(tmp_path, build_runs(TWO_SEEDS, aucs))

        text = format_question(path, TWO_SEEDS, None, ALL, markdown=True)

        values, differences = "| glass | 0.720", f"| {REFERENCE} | 2 | 0.5750 | 0.6000 | -0.0250 |"
        assert 0 < text.index(values) < text.index(differences)

    def test_system_without_runs_does_not_remove_means(self, tmp_path):
        aucs = {FOREST: {"glass": (0.7, 0.7), "wine": (0.2, 0.2)}, NEIGHBOURS: {"wine": (0.4,)}}
        path = write_records(tmp_path, build_runs(TWO_SEEDS, aucs))

        text = format_question(path, TWO_SEEDS, None, select(["glass"]), markdown=True)

        assert "| mean of the 1 that all ran | 0.700 |" in text
        assert "- kNN: not run with all seeds on glass" in text

    def test_only_selected_data_sets_are_shown(self, tmp_path):
        aucs = {FOREST: {"glass": (0.7, 0.7), "wine": (0.2, 0.2)}}
        path = write_records(tmp_path, build_runs(TWO_SEEDS, aucs))

        text = format_question(path, TWO_SEEDS, None, select(["wine"]))

        assert "wine" in text
        assert "glass" not in text

    def test_only_failures_on_selected_data_are_listed(self, tmp_path):
        question = Question(seeds=(0,))
        glass, wine = (select([name])[0].files[0] for name in ("glass", "wine"))
        runs = [
            build_run(question.list_jobs(wine, SYSTEMS[REFERENCE])[0]),
            build_run(question.list_jobs(wine, SYSTEMS["HBOS"])[0], error="no bins"),
            build_run(question.list_jobs(glass, SYSTEMS["LOF"])[0], error="no neighbours"),
        ]

        text = format_question(write_records(tmp_path, runs), question, None, select(["wine"]))

        assert "- 45_wine, HBOS, seed 0, transductive: no bins" in text
        assert "no neighbours" not in text

    def test_smoke_and_other_protocols_are_not_missing(self, tmp_path):
        question = Question(seeds=(0,))
        (part,) = select(["glass"])[0].files
        begun = [
            build_run(replace(question, **change).list_jobs(part, SYSTEMS[name])[0])
            for name, change in (("HBOS", {"smoke": True}), ("LOF", {"protocol": "dte"}))
        ]
        runs = [*build_runs(question, {FOREST: {"glass": (0.7,)}}), *begun]

        text = format_question(write_records(tmp_path, runs), question, None, ALL)

        assert "Missing" not in text

    def test_records_of_unknown_protocols_are_excluded(self):
        runs = build_runs(TWO_SEEDS, {FOREST: {"glass": (0.7, 0.9)}})

        assert keep_current([replace(runs[0], protocol="old"), runs[1]]) == [runs[1]]

    def test_run_without_newer_metric_is_not_missing(self, tmp_path):
        runs = build_runs(TWO_SEEDS, {FOREST: {"glass": (0.7, 0.7)}})
        path = write_records(tmp_path, [replace(run, precision_at_n=None) for run in runs])

        text = format_question(path, TWO_SEEDS, None, ALL)

        assert "Missing" not in text
        assert "0.700" in text

    def test_column_of_the_paper_is_not_repeated(self, tmp_path):
        untruncated = "ALTBI-I (untruncated)"
        semi = Question("semi", seeds=(0,))
        aucs = {name: {"glass": (0.7,)} for name in (REFERENCE, untruncated)}
        path = write_records(tmp_path, build_runs(semi, aucs))

        head = format_question(
            path, semi, find_systems([REFERENCE, untruncated]), ALL
        ).splitlines()[2]

        assert head.count("paper's") == 1
        assert head.split()[-2:] == ["paper's", "ALTBI"]

    def test_missing_file_raises(self, tmp_path):
        with pytest.raises(TableError, match=r"none\.jsonl: no such file of records"):
            format_question(tmp_path / "none.jsonl", TWO_SEEDS, None, ALL)

    def test_file_without_matching_records_raises(self, tmp_path):
        path = write_records(tmp_path, build_runs(TWO_SEEDS, {FOREST: {"glass": (0.7, 0.7)}}))

        with pytest.raises(TableError, match=r"lines\.jsonl: no record matches the request"):
            format_question(path, Question("dte"), None, ALL)


def write_records(folder, runs, name="lines.jsonl"):
    path = folder / name
    path.write_text("".join(json.dumps(asdict(run)) + "\n" for run in runs))
    return path


class TestFindings:
    NAMES = ("glass", "hepatitis", "lymphography", "pima", "vertebral", "wbc", "wdbc", "wine")

    def runs(self, aucs):
        return build_runs(
            TWO_SEEDS,
            {
                system: {name: (auc, auc) for name, auc in by_name.items()}
                for system, by_name in aucs.items()
            },
        )

    def found(self, aucs, metric="auc"):
        return compare(self.runs(aucs), metric, TWO_SEEDS)

    def describe(self, aucs):
        auc, precision = (self.found(aucs, metric) for metric in ("auc", "average_precision"))
        return describe_findings(auc, precision, self.runs(aucs))

    def test_ranking_needs_our_system_and_others(self):
        assert describe_standing("There", self.found({PLAIN: {"wine": 0.7}})) == []
        assert (
            describe_standing(
                "There", self.found({FOREST: {"wine": 0.7}, NEIGHBOURS: {"wine": 0.6}})
            )
            == []
        )

    def test_leaders_by_mean_and_rank_are_reported(self):
        aucs = {
            PLAIN: {"glass": 0.9, "wine": 0.5, "wbc": 0.5},
            FOREST: {"glass": 0.1, "wine": 0.6, "wbc": 0.6},
            NEIGHBOURS: {"glass": 0.0, "wine": 0.0, "wbc": 0.0},
        }

        found_text = describe_leaders(self.found(aucs), self.found(aucs, "average_precision"))

        assert f"{PLAIN} has the highest mean AUC (0.633)" in found_text
        assert f"IForest the best mean rank (1.3). {PLAIN} has 0.633 (rank 1 of 3), " in found_text

    def test_five_largest_deficits_are_listed(self):
        ours = {name: 0.5 - index / 100 for index, name in enumerate(self.NAMES)}
        best = dict.fromkeys(self.NAMES, 0.9)

        (found_text, _) = (
            text
            for text in self.describe({PLAIN: ours, FOREST: best, NEIGHBOURS: best})
            if "furthest behind" in text
        )

        write_in_background = found_text.split("furthest behind the best other on ")[1]
        assert re.findall(r"(\w+) \(0\.", write_in_background) == list(reversed(self.NAMES))[:5]

    def test_insignificant_difference_is_reported_as_such(self):
        ours = dict.fromkeys(self.NAMES, 0.5)
        mixed = {name: 0.7 if index < 5 else 0.4 for index, name in enumerate(self.NAMES)}
        (found_text, *_) = (
            text
            for text in self.describe(
                {PLAIN: ours, FOREST: dict.fromkeys(self.NAMES, 0.8), NEIGHBOURS: mixed}
            )
            if text.startswith("AUC, by Wilcoxon")
        )

        assert found_text.endswith(
            f"{PLAIN} is better than none and worse than IForest; no difference is shown against "
            "kNN."
        )

    def test_floating_point_noise_is_a_shared_lead(self):
        ours, other = dict.fromkeys(self.NAMES, 0.3), dict.fromkeys(self.NAMES, 0.1 + 0.2)

        found_text = self.describe({PLAIN: ours, FOREST: other, NEIGHBOURS: other})

        assert any(
            "alone has the highest on 0 of 8 data sets, and shares it on 8." in t
            for t in found_text
        )

    def test_friedman_test_reports_both_statistics(self):
        aucs = {
            PLAIN: dict.fromkeys(self.NAMES, 0.5),
            FOREST: {name: 0.6 if name == "wine" else 0.4 for name in self.NAMES},
            NEIGHBOURS: dict.fromkeys(self.NAMES, 0.3),
        }
        main = self.found(aucs)

        found_text, by_hand = format_significance(main)[0], friedman(main.scores)

        assert f"chi² = {by_hand.statistic:.1f}, p = {by_hand.p_value:.2g} " in found_text
        assert f"F = {by_hand.f_statistic:.2f}, p = {by_hand.f_p_value:.2g})" in found_text

    def test_confirmation_needs_tables_of_both_kinds(self):
        aside = [name for name in self.NAMES if not is_chosen_on(select([name])[0].files[0].name)]
        assert 2 <= len(aside) < len(self.NAMES)

        for names, n_expected in ((self.NAMES, 1), (aside, 0)):
            ours, others = dict.fromkeys(names, 0.5), dict.fromkeys(names, 0.4)
            found_text = self.describe({PLAIN: ours, FOREST: others, NEIGHBOURS: others})

            assert sum("did not select its settings" in text for text in found_text) == n_expected


class TestPage:
    DATASETS = ("glass", "wine", "pima", "cardio", "letter", "thyroid")

    @pytest.fixture
    def folder(self, tmp_path):
        """Write records of three systems on six tables, of which the second is always best."""
        aucs = {
            PLAIN: dict.fromkeys(self.DATASETS, (0.5, 0.6, 0.7)),
            FOREST: dict.fromkeys(self.DATASETS, (0.8, 0.9, 0.7)),
            NEIGHBOURS: dict.fromkeys(self.DATASETS, (0.4,)),
        }
        results = tmp_path / "results"
        results.mkdir()
        write_records(results, build_runs(page.MAIN, aucs), "transductive.jsonl")
        write_records(
            results, build_runs(page.PUBLISHED, {FOREST: {"wine": [0.7] * 5}}), "dte.jsonl"
        )
        write_records(results, build_runs(page.SEMI, {FOREST: {"wine": (0.7,) * 3}}), "semi.jsonl")
        return results

    @pytest.fixture
    def written(self, folder):
        path = folder.parent / "docs" / "results.md"
        path.parent.mkdir()
        write_page(path, folder)
        return path

    def test_page_reports_the_leader(self, written):
        text = written.read_text()

        assert (
            "Over the 6 data sets that all 3 systems ran, IForest has the highest mean AUC (0.800)"
            in text
        )
        assert f"{PLAIN} has 0.600 (rank 2 of 3), 0.300 and 2.0." in text

    def write_and_read_page(self, folder, aucs, question=page.MAIN):
        folder.mkdir()
        write_records(folder, build_runs(question, aucs), f"{question.protocol}.jsonl")
        write_page(folder / "page.md", folder)
        return (folder / "page.md").read_text().splitlines()

    def test_page_reports_deficits(self, tmp_path):
        ours = dict(zip(self.DATASETS, (0.9, 0.5, 0.6, 0.7, 0.8, 0.8), strict=True))
        aucs = {
            PLAIN: {name: (auc,) * 3 for name, auc in ours.items()},
            FOREST: dict.fromkeys(self.DATASETS, (0.8,) * 3),
            NEIGHBOURS: dict.fromkeys(self.DATASETS, (0.4,)) | {"wine": (0.9,)},
        }

        text = self.write_and_read_page(tmp_path / "results", aucs)

        for metric, halves in (("AUC", 1), ("Average precision", 2)):
            values = [f"{auc / halves:.3f}" for auc in (0.5, 0.9, 0.6, 0.8, 0.7)]
            assert (
                f"{metric}, among these 3 systems: {PLAIN} alone has the highest on 1 of 6 data "
                "sets, and shares it on 2. It is furthest behind the best other on wine "
                f"({values[0]}, kNN {values[1]}), pima ({values[2]}, IForest {values[3]}), cardio "
                f"({values[4]}, IForest {values[3]})."
            ) in text

    def test_data_set_without_competitors_is_no_lead(self, tmp_path):
        aucs = {
            PLAIN: dict.fromkeys((*self.DATASETS, "wdbc"), (0.9,) * 3),
            FOREST: dict.fromkeys(self.DATASETS, (0.8,) * 3),
            NEIGHBOURS: dict.fromkeys(self.DATASETS, (0.4,)),
        }

        text = self.write_and_read_page(tmp_path / "results", aucs)

        start = "AUC, among these 3 systems"
        assert f"{start}: {PLAIN} alone has the highest on 6 of 6 data sets." in text

    def test_held_out_tables_are_tested_separately(self, tmp_path):
        """The least p of six tables is 2 / 2**6 = 0.031, doubled for two pairs."""
        aside = ("glass", "wine", "cardio", "thyroid", "vowels", "hepatitis")
        names = (*aside, "pima", "letter", "wdbc")
        aucs = {
            PLAIN: dict.fromkeys(names, (0.9,) * 3),
            FOREST: dict.fromkeys(names, (0.8,) * 3),
            NEIGHBOURS: dict.fromkeys(names, (0.4,)),
        }

        text = self.write_and_read_page(tmp_path / "results", aucs)

        (found_text,) = (line for line in text if "did not select" in line)
        assert f"{len(aside)} of them did not select its settings" in found_text
        assert found_text.endswith(
            f"{PLAIN} is better than none and worse than none; no difference is shown against "
            "IForest, kNN."
        )

    def test_single_leader_is_reported_once(self, tmp_path):
        names = (*self.DATASETS, "vowels", "wdbc")
        aucs = {
            PLAIN: dict.fromkeys(names, (0.9,) * 3),
            FOREST: dict.fromkeys(names, (0.8,) * 3),
            NEIGHBOURS: dict.fromkeys(names, (0.4,)),
        }

        text = self.write_and_read_page(tmp_path / "results", aucs)

        assert (
            f"Over the 8 data sets that all 3 systems ran, {PLAIN} has the highest mean AUC "
            "(0.900), the highest mean average precision (0.450), and the best mean rank (1.0)."
        ) in text
        start = "AUC, among these 3 systems"
        assert f"{start}: {PLAIN} alone has the highest on 8 of 8 data sets." in text
        (found_text,) = (line for line in text if line.startswith("AUC, by Wil"))
        assert found_text.endswith(
            f"{PLAIN} is better than each of the 2 others and worse than none."
        )

    @pytest.mark.parametrize(
        ("forest", "found_text"),
        [
            (0.8, f"IForest has the highest mean AUC (0.800), {PLAIN} has 0.700 (rank 2 of 2)."),
            (0.6, f"{PLAIN} has the highest mean AUC (0.700), IForest the second highest (0.600)."),
        ],
    )
    def test_page_reports_the_semi_supervised_ranking(self, tmp_path, forest, found_text):
        aucs = {PLAIN: {"wine": (0.7,) * 3}, FOREST: {"wine": (forest,) * 3}}

        text = self.write_and_read_page(tmp_path / "results", aucs, page.SEMI)

        start = "Fitted on inliers alone, over the 1 data sets that all 2 systems ran, "
        assert start + found_text in text

    def test_every_value_links_to_its_record(self, written):
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
    def test_links_are_relative_to_the_page(self, folder, page_in, monkeypatch):
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

    def test_text_and_figure_share_the_critical_difference(self, uneven, tmp_path):
        """Three systems on the eight shared tables of nine: 2.343 * sqrt(12 / 48)."""
        assert re.search(
            r"mean ranks differ significantly if their difference exceeds 1\.17", uneven
        )
        assert "1.17" in (tmp_path / "page/ranks.svg").read_text()

    def test_tables_and_figures_are_written(self, written):
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
        assert row["difference"] == ""  # the paper's baselines used other rows
        assert (row["files"], row["of files"], row["seeds"]) == ("1", "1", "3")
        row = by_cell["wine", PLAIN]
        assert (row["ours"], row["paper"], row["difference"]) == ("0.600000", "", "")

    @pytest.fixture
    def uneven(self, tmp_path):
        """Write a page on which ours is better than kNN and worse than IForest."""
        names = ("glass", "wine", "pima", "cardio", "letter", "thyroid", "vowels", "wdbc")
        steps = [0.01 * (1 + index) for index in range(len(names))]
        aucs = {
            PLAIN: {name: (0.5 + s, 0.5, 0.5) for name, s in zip(names, steps, strict=True)},
            FOREST: {name: (0.7 + s,) * 3 for name, s in zip(names, steps, strict=True)},
            NEIGHBOURS: {name: (0.4 - s,) for name, s in zip(names, steps, strict=True)},
        }
        runs = build_runs(page.MAIN, aucs)
        runs = [
            replace(run, fit_seconds=1.0 + index, score_seconds=100.0, peak_mib=5.0 + index)
            for index, run in enumerate(runs)
        ]
        runs[23] = replace(runs[23], fit_seconds=1000.0)  # mean and median differ
        lone = build_runs(page.MAIN, {FOREST: {"musk": (0.9,) * 3}})
        results = tmp_path / "results"
        results.mkdir()
        write_records(results, [*runs, *lone], "transductive.jsonl")
        write_page(tmp_path / "page.md", results)
        return (tmp_path / "page.md").read_text()

    def read_rows_after(self, text, head):
        lines = text[text.index(head) :].split("\n\n")[0].splitlines()[2:]
        return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]

    def test_page_reports_significant_wins_and_losses(self, uneven):
        """All eight differences have one sign: p = 2 / 2**8 = 0.0078, doubled for two pairs."""
        for metric in ("AUC", "Average precision"):
            (found_text,) = (
                line for line in uneven.splitlines() if line.startswith(f"{metric}, by Wil")
            )
            assert found_text.endswith(f"(5 %): {PLAIN} is better than kNN and worse than IForest.")
        rows = self.read_rows_after(uneven, f"| {PLAIN} against")
        assert rows == [
            ["IForest", "8", "-0.230", "-0.230", "0", "8", "0.0078", "0.016"],
            ["kNN", "8", "+0.160", "+0.160", "8", "0", "0.0078", "0.016"],
        ]
        assert "has not run there: musk." in uneven

    def test_costs_are_median_seconds_and_peak_memory(self, uneven):
        """Runs are numbered in order: 24 of ours, 24 of IForest, 8 of kNN."""
        rows = self.read_rows_after(uneven, "| system | AUC")
        assert [(row[0], row[-3], row[-2], row[-1]) for row in rows] == [
            ("IForest", "136.50", "52", "9 of 9"),
            (PLAIN, "112.50", "28", "8 of 9"),
            ("kNN", "152.50", "60", "8 of 9"),
        ]
        assert [row[4] for row in rows] == ["1.00", "2.00", "3.00"]

    def test_outdated_records_are_excluded(self, folder):
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

    def test_only_files_of_protocols_are_read(self, folder):
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
    def test_page_of_few_runs_says_so(self, tmp_path, systems, names):
        runs = build_runs(
            page.MAIN, {name: dict.fromkeys(names, (0.5, 0.6, 0.7)) for name in systems}
        )
        (tmp_path / "results").mkdir()
        write_records(tmp_path / "results", runs, "transductive.jsonl")

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
    def test_every_failure_is_listed_with_its_reason(self, folder, question, file):
        (part,) = select(["donors"])[0].files
        failed = build_run(question.list_jobs(part, SYSTEMS["LODA"])[0], error="over the limit")
        with (folder / f"{file}.jsonl").open("a") as lines:
            lines.write(json.dumps(asdict(failed)) + "\n")

        write_page(folder.parent / "page.md", folder)

        found_text = (folder.parent / "page.md").read_text().split("## Not run")[1]
        assert f"- {failed.job.title}: over the limit\n" in found_text

    def test_system_without_all_seeds_is_listed(self, folder):
        runs = build_runs(page.MAIN, {"LODA": dict.fromkeys(self.DATASETS, (0.5,))})
        with (folder / "transductive.jsonl").open("a") as lines:
            lines.writelines(json.dumps(asdict(run)) + "\n" for run in runs)

        write_page(folder.parent / "page.md", folder)

        found_text = (folder.parent / "page.md").read_text().split("## Not run")[1]
        names = "cardio, glass, letter, pima, thyroid, wine"
        assert f"- LODA: not run with all seeds on {names}\n" in found_text

    def test_complete_files_need_large_tables_and_fast_systems(self, folder):
        (wine,), (donors,) = (select([name])[0].files for name in ("wine", "donors"))
        runs = [
            build_run(page.ALL_ROWS.list_jobs(part, SYSTEMS[name])[0], error=f"{name} is ill")
            for part, name in ((wine, "LODA"), (donors, "kNN"), (donors, "HBOS"))
        ]
        with (folder / "transductive.jsonl").open("a") as lines:
            lines.writelines(json.dumps(asdict(run)) + "\n" for run in runs)

        write_page(folder.parent / "page.md", folder)

        found_text = (folder.parent / "page.md").read_text().split("## Not run")[1]
        # All rows of a small file are in the main comparison, which lists its failure once.
        assert found_text.count("LODA is ill") == found_text.count("HBOS is ill") == 1
        assert "kNN is ill" not in found_text

    def test_incomplete_images_have_no_table(self, folder):
        parts = select(["SVHN (ViT)"])[0].files[:2]
        systems = [PLAIN, FOREST]
        runs = [
            build_run(page.MAIN.list_jobs(part, SYSTEMS[name])[0])
            for name, part in zip(systems, parts, strict=True)
        ]
        with (folder / "transductive.jsonl").open("a") as lines:
            lines.writelines(json.dumps(asdict(run)) + "\n" for run in runs)

        write_page(folder.parent / "page.md", folder)

        found_text = (folder.parent / "page.md").read_text().split("## Images and texts")[1]
        assert found_text.split("## Whole files")[0].endswith("\n\nNo records yet.\n\n")

    def test_sample_size_equals_the_default_option(self):
        assert descriptions.SAMPLE == parser.ROWS

    def test_csv_tables_have_six_digits(self, folder):
        runs = build_runs(page.MAIN, {"HBOS": {"wine": (0.123456,)}})
        with (folder / "transductive.jsonl").open("a") as lines:
            lines.writelines(json.dumps(asdict(run)) + "\n" for run in runs)

        write_page(folder.parent / "page.md", folder)

        assert "wine,1,1,HBOS,0.123456,," in (folder.parent / "page/b2.csv").read_text()

    def test_data_sets_without_records_are_listed(self, written, folder):
        with (folder / "transductive.jsonl").open("a") as lines:
            (run,) = build_runs(page.MAIN, {NEIGHBOURS: {"speech": (0.4,)}})
            lines.write(json.dumps(asdict(replace(run, smoke=True))) + "\n")
            (run,) = build_runs(page.MAIN, {NEIGHBOURS: {"vowels": (0.4,)}})
            lines.write(json.dumps(asdict(run)) + "\n")
        write_page(written, folder)
        text = written.read_text()
        assert "- IForest: not run with all seeds on vowels" in text
        absent = text.split("These data sets were not run: ")[1].split(". Nor")[0].split(", ")

        assert "speech" in absent
        assert "agnews (BERT)" in absent
        assert "wine" not in absent

    def test_tables_with_few_outliers_are_listed(self, folder):
        lines = folder / "transductive.jsonl"
        runs = [json.loads(line) for line in lines.read_text().splitlines()]
        counts = {"45_wine": 6, "14_glass": 9, "29_Pima": 10}
        runs = [run | {"n_outliers": counts.get(Path(run["file"]).stem, 50)} for run in runs]
        lines.write_text("".join(json.dumps(run) + "\n" for run in runs))

        write_page(folder.parent / "page.md", folder)

        text = (folder.parent / "page.md").read_text()
        assert "Fewer than 10 outliers are in glass (9), wine (6)." in text

    def test_embeddings_have_a_summary_of_complete_systems(self, folder):
        images = ("MVTec-AD (ResNet18)", "SVHN (ViT)")
        aucs = {
            PLAIN: dict.fromkeys(images, (0.5, 0.6, 0.7)),
            NEIGHBOURS: dict.fromkeys(images, (0.4,)),
            FOREST: {images[0]: (0.9, 0.9, 0.9)},
        }
        with (folder / "transductive.jsonl").open("a") as lines:
            lines.writelines(json.dumps(asdict(run)) + "\n" for run in build_runs(page.MAIN, aucs))

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

    def test_deep_baselines_are_compared_with_one_seed(self, folder):
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
                lines.writelines(
                    json.dumps(asdict(run)) + "\n" for run in build_runs(question, aucs)
                )

        write_page(folder.parent / "page.md", folder)

        text = (folder.parent / "page.md").read_text()
        part, again = text.split("## With the deep baselines")[1].split("## The deep baselines ")
        grids = [
            [line.strip("| ").split(" | ") for line in grid.splitlines() if line[:1] == "|"][2:]
            for grid in part.split("### AUC")[0].split("The same with ICL")
        ]
        # Only the first seed counts: 0.5 for ours, whose three seeds have the mean 0.6.
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
        (found_text,) = (line for line in text.splitlines() if line.startswith("With ICL"))
        assert "over the 2 data sets that all 5 systems ran, ICL (100 epochs) has" in found_text
        assert [row[0] for row in grids[1]][:2] == ["ICL (100 epochs)", FOREST]
        assert {row[-1] for row in grids[1]} == {"6 of 6", "2 of 6"}
        assert "| DAGMM | 1 | 0.4000 |" in again
        over_seeds = part.split("Fast systems have three seeds:")[1]
        assert [line for line in over_seeds.splitlines() if line[:1] == "|"][2:] == [
            f"| RDA | {len(self.DATASETS)} | 0.200 | 0.100 | 0.100 |"
        ]

    def test_section_of_deep_baselines_needs_runs(self, written):
        assert "With the deep baselines" not in written.read_text()

    def test_records_must_be_a_folder(self, folder, tmp_path):
        with pytest.raises(TableError, match="the folder with the records of all protocols"):
            write_page(tmp_path / "page.md", folder / "dte.jsonl")

    def test_folder_without_records_raises(self, tmp_path):
        with pytest.raises(TableError, match="no records of runs"):
            write_page(tmp_path / "page.md", tmp_path)

    def test_committed_jobs_are_unique(self):
        folder = Path(__file__).parents[1] / "results"
        n_done = 0
        for protocol in PROTOCOLS:
            done = [
                run.job
                for run in keep_current(read_runs(folder / f"{protocol}.jsonl"))
                if not run.error
            ]
            assert len(done) == len(set(done)), protocol
            n_done += len(done)
        assert n_done > 0

    def test_committed_page_agrees_with_committed_records(self, tmp_path):
        root = Path(__file__).parents[2]
        (tmp_path / "docs").mkdir()
        (tmp_path / "bench").symlink_to(root / "bench")

        write_page(tmp_path / "docs" / "results.md", tmp_path / "bench" / "results")

        names = {path.name for path in (tmp_path / "docs" / "results").iterdir()}
        assert names == {path.name for path in (root / "docs" / "results").iterdir()}
        for made in (tmp_path / "docs").rglob("*.*"):
            committed = root / "docs" / made.relative_to(tmp_path / "docs")
            assert made.read_text() == committed.read_text(), committed.name
