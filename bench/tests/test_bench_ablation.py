"""Tests of the ablations: variants, paired effects, charts and pages."""

import dataclasses
import json
import xml.etree.ElementTree as ET
from itertools import product
from pathlib import Path

import numpy as np
import pytest

import bench_jobs
from altbi import ALTBI, IWAE, Schedule
from altbi.errors import ParameterError, TableError
from altbi_bench.ablation.experiments import (
    RATIOS,
    ROWS,
    TECHNIQUES,
    compute_points,
    compute_technique_effects,
    filter_available,
    find_published_effect,
    list_figure_jobs,
    list_trace_jobs,
    list_variant_jobs,
    read_published,
)
from altbi_bench.ablation.tables import ablation_tables
from altbi_bench.ablation.training_analysis import (
    ALONE,
    AVERAGED,
    SINGLE,
    Memorisation,
    RiskRange,
    analyse_memorisation,
    compute_averaging_effect,
    compute_few_outliers_effect,
    compute_window_aucs,
    group_auc_by_share,
    measure_fluctuations,
)
from altbi_bench.catalogue.datasets import is_available, select
from altbi_bench.catalogue.systems import SYSTEMS
from altbi_bench.catalogue.variants import ALL_SYSTEMS, BASE, PANELS, VARIANTS, find_panels
from altbi_bench.cli import main
from altbi_bench.figures import run_figures
from altbi_bench.figures.charts import (
    FAMILIES,
    Bar,
    Dot,
    Shade,
    Stroke,
    draw_bars,
    draw_heat_map,
    draw_panels,
)
from altbi_bench.figures.page import write_figures
from altbi_bench.runs.records import Job, append, read_runs
from altbi_bench.statistics import paired_effect
from altbi_bench.traces.records import SERIES
from altbi_bench.traces.settings import SETTINGS
from altbi_bench.traces.trace import Trace, TraceJob

pytestmark = pytest.mark.slow

PAPER = Path(__file__).parents[2].parent / "shared" / "paper"
FIVE = (
    *("Classical/45_wine.npz", "Classical/14_glass.npz", "Classical/39_vertebral.npz"),
    *("Classical/37_Stamps.npz", "Classical/42_WBC.npz"),
)
FILES = ("Classical/45_wine.npz", "Classical/14_glass.npz", "Classical/39_vertebral.npz")


class TestVariants:
    def test_names_describe_the_changed_parameters(self):
        reference = {**Schedule().get_params(), **IWAE().get_params()}
        for name, system in VARIANTS.items():
            detector = system.recipe.build()
            built = {
                **(detector.schedule or Schedule()).get_params(),
                **(detector.backbone or IWAE()).get_params(),
            }
            changed = {key: built[key] for key in reference if built[key] != reference[key]}
            names = {"n_samples": "draws"}
            expected = [f"{names.get(key, key)} {value:g}" for key, value in changed.items()]
            assert sorted(name.removeprefix("ALTBI-I, ").split(", ")) == sorted(expected)
            assert detector.get_params(deep=False).keys() == ALTBI().get_params(deep=False).keys()

    def test_defaults_equal_the_reference(self):
        reference = {**Schedule().get_params(), **IWAE(learning_rate=1e-3).get_params()}
        for panel in PANELS.values():
            assert panel.default == reference[panel.parameter]
            assert panel.default in panel.values
            assert panel.find_system(panel.default) is BASE
            assert list(panel.values) == sorted(panel.values)

    def test_names_of_systems_and_variants_are_unique(self):
        assert set(ALL_SYSTEMS) == {*SYSTEMS, *VARIANTS}
        assert not set(SYSTEMS) & set(VARIANTS)
        assert len(VARIANTS) == 1 + sum(len(panel.values) - 1 for panel in PANELS.values())

    def test_panels_are_found_by_name(self):
        assert [panel.parameter for panel in find_panels(["n0", "rho"])] == ["rho", "n0"]
        assert find_panels(None) == list(PANELS.values())
        with pytest.raises(
            ParameterError, match=r"'rhoo'.*rho, gamma, n_samples, learning_rate, n0"
        ):
            find_panels(["rhoo"])


class TestPublished:
    @pytest.mark.parametrize(
        ("file", "parameter"),
        [
            ("b6_rho", "rho"),
            ("b7_gamma", "gamma"),
            ("b8_k", "n_samples"),
            ("b9_lr", "learning_rate"),
        ],
    )
    def test_published_panels_agree_with_the_paper(self, file, parameter):
        if not PAPER.is_dir():
            pytest.skip("the paper is not available")
        lines = (PAPER / f"{file}.csv").read_text().splitlines()[1:]
        theirs = {float(a): float(b) for a, b in (line.split(",") for line in lines)}
        panel_name = PANELS[parameter].record_name or parameter
        ours = {float(v): auc for (name, v), auc in read_published().items() if name == panel_name}
        assert ours == theirs
        assert set(PANELS[parameter].values) == set(theirs)

    @pytest.mark.parametrize(
        ("cell", "auc"),
        [
            (("rho", "0.92"), 0.762),
            (("rho", "1"), 0.755),
            (("gamma", "1"), 0.761),
            (("draws", "100"), 0.753),
            (("learning_rate", "0.0001"), 0.712),
            (("window", "60-80"), 0.76),
        ],
    )
    def test_published_values_agree_with_known_ones(self, cell, auc):
        assert read_published()[cell] == auc
        assert len(read_published()) == 6 + 8 + 8 + 10 + 12

    def test_published_windows_agree_with_the_paper(self):
        if not PAPER.is_dir():
            pytest.skip("the paper is not available")
        lines = (PAPER / "b10_ensemble.csv").read_text().splitlines()[1:]
        theirs = {f"{a}-{c}": float(auc) for a, _, c, auc in (line.split(",") for line in lines)}
        ours = {window: auc for (name, window), auc in read_published().items() if name == "window"}
        assert ours == theirs
        assert set(theirs) < {f"{a}-{b}" for a, b in SETTINGS["reference"].windows}

    def test_published_effects_of_techniques_are_known(self):
        first, second, both = TECHNIQUES
        assert find_published_effect(first) == pytest.approx(0.007)
        assert find_published_effect(second) == pytest.approx(0.001)
        assert find_published_effect(both) is None


def build_runs(aucs, seeds=(0,), files=FILES):
    """Return records of {system: AUC on each file}."""
    return [
        bench_jobs.build_run(Job(file=file, system=name, seed=seed, rows=None), auc=auc)
        for name, values in aucs.items()
        for file, auc in zip(files, values, strict=False)
        for seed in seeds
    ]


class TestEffects:
    def test_effects_are_paired_by_table(self):
        base = [0.9, 0.8, 0.7, 0.6, 0.5]
        without = {
            each.name: [auc - (index + 1) * step / 100 for step, auc in enumerate(base)]
            for index, each in enumerate(TECHNIQUES.values())
        }
        runs = build_runs({BASE.name: base, **without}, files=FIVE)
        worse = {name: [auc - 0.1 for auc in aucs] for name, aucs in without.items()}
        runs += build_runs({BASE.name: base, **worse}, seeds=(1,), files=FIVE)
        effects, n_seeds = compute_technique_effects(runs)
        assert n_seeds == 2
        order = np.argsort(FIVE)
        for index, effect in enumerate(effects.values()):
            expected = paired_effect([(index + 1) * step / 100 + 0.05 for step in order])
            assert (effect.mean, effect.low, effect.high) == pytest.approx(
                (expected.mean, expected.low, expected.high)
            )
            assert not effect.is_chance

    def test_only_shared_tables_and_seeds_count(self):
        panel = PANELS["rho"]
        aucs = {panel.find_system(value).name: [0.6, 0.7, 0.8] for value in panel.values}
        runs = build_runs(aucs) + build_runs({BASE.name: [0.1, 0.1, 0.1]}, seeds=(1,))
        all_points = compute_points(runs, panel)
        assert all_points[1:] == (3, 1)
        incomplete = [
            run
            for run in runs
            if not (run.system == panel.find_system(1).name and run.file == FILES[2])
        ]
        points, n_tables, n_seeds = compute_points(incomplete, panel)
        assert (n_tables, n_seeds) == (2, 1)
        assert [point.auc for point in points] == pytest.approx([0.65] * len(panel.values))

    def test_points_have_effect_and_published_value(self):
        panel = PANELS["gamma"]
        aucs = {panel.find_system(value).name: [0.6 + value / 100] * 3 for value in panel.values}
        aucs[panel.find_system(1.1).name] = [0.2, 0.4, 0.6, 0.8, 0.9]
        aucs = {
            name: values if len(values) > 3 else values[:1] * 5 for name, values in aucs.items()
        }
        points, *_ = compute_points(build_runs(aucs, files=FIVE), panel)
        last = points[-1].effect
        expected = paired_effect(np.array([0.2, 0.4, 0.6, 0.8, 0.9])[np.argsort(FIVE)] - 0.6103)
        assert (last.low, last.high) == pytest.approx((expected.low, expected.high))
        assert [point.value for point in points] == list(panel.values)
        (default,) = [point for point in points if point.effect is None]
        assert default.value == 1.03
        assert points[0].effect.mean == pytest.approx(-0.0003)
        assert points[0].paper == 0.761

    def test_failed_and_smoke_runs_are_excluded(self):
        panel = PANELS["rho"]
        aucs = {panel.find_system(value).name: [0.6] * 3 for value in panel.values}
        runs = build_runs(aucs)
        broken = dataclasses.replace(runs[0], auc=None, average_precision=None, error="no")
        assert compute_points([*runs, broken], panel)[1] == 2
        trials = [dataclasses.replace(run, smoke=True) for run in runs]
        assert compute_points(trials, panel) == ([], 0, 0)

    def test_other_samples_protocols_and_recipes_are_excluded(self):
        panel = PANELS["rho"]
        runs = build_runs({panel.find_system(value).name: [0.6] * 3 for value in panel.values})
        for change in (
            {"rows": 50},
            {"protocol": "split"},
            {"parameters": {"rho": 0.123}},
        ):
            others = [dataclasses.replace(run, auc=0.1, **change) for run in runs]
            points, *_ = compute_points([*runs, *others], panel)
            assert [point.auc for point in points] == pytest.approx([0.6] * len(panel.values))

    def test_any_seeds_are_accepted(self):
        panel = PANELS["rho"]
        aucs = {panel.find_system(value).name: [0.6] * 3 for value in panel.values}
        assert compute_points(build_runs(aucs, seeds=(4, 7)), panel)[1:] == (3, 2)

    def test_no_records_have_no_points(self):
        assert compute_points([], PANELS["rho"]) == ([], 0, 0)
        assert compute_technique_effects([]) == ({}, 0)

    def test_interval_has_its_coverage(self):
        generator = np.random.default_rng(0)
        samples = generator.normal(0.01, 0.05, size=(300, 40))
        found = [paired_effect(sample) for sample in samples]
        assert 0.9 < np.mean([each.low <= 0.01 <= each.high for each in found]) < 0.99
        assert paired_effect([0.02] * 5).is_chance is False
        assert str(paired_effect([0.02] * 5)) == "+0.020 [+0.020, +0.020]"
        assert f"{paired_effect([0.02] * 5):.1f}" == "+0.0 [+0.0, +0.0]"
        assert str(paired_effect([0.02] * 4)) == "+0.020"  # too few for an interval
        assert paired_effect([0.02] * 4).is_chance
        assert paired_effect([-0.1, 0.1] * 5).is_chance
        with pytest.raises(ParameterError, match="no differences"):
            paired_effect([])


class TestJobs:
    def test_each_value_has_one_job_per_table(self, adbench):
        tables = select(["wine", "glass", "ionosphere"])
        jobs = list_variant_jobs(list(PANELS.values()), tables, (0, 1))
        assert len(jobs) == len(set(jobs))
        assert {job.rows for job in jobs} == {None}  # all smaller than the sample
        wide = {job.system for job in jobs if "Ionosphere" in job.file}
        narrow = {job.system for job in jobs if "glass" in job.file}
        assert narrow == {BASE.name, *VARIANTS}
        assert narrow - wide == {
            PANELS["n_samples"].find_system(k).name for k in (1, 5, 10, 20, 50, 70, 100)
        }

    def test_chosen_panel_includes_both_techniques(self, adbench):
        jobs = list_variant_jobs([PANELS["n0"]], select(["wine"]), (0,))
        names = {job.system for job in jobs}
        assert {each.name for each in TECHNIQUES.values()} <= names
        assert "ALTBI-I, n0 16" in names
        assert not any("learning" in name for name in names)

    def test_every_table_has_traces_of_every_setting(self, adbench):
        tables = select(suite="tables")
        narrow = [each for each in tables if each.files[0].n_features <= 200]
        jobs = list_trace_jobs(tables, (0, 1))
        assert len(set(jobs)) == len(jobs) == 2 * len(narrow) * len(SETTINGS)
        there = [each for each in narrow if is_available(each.files[0])]
        assert len(filter_available(jobs)) == 2 * len(there) * len(SETTINGS)
        assert {job.rows for job in jobs} == {ROWS}

    def test_figure_jobs_are_those_of_the_paper(self):
        jobs = list_figure_jobs()
        assert len(jobs) == len(set(jobs)) == 190
        tables = {(Path(job.file).stem.split("_")[1], job.setting, job.share) for job in jobs}
        four = product(("Ionosphere", "letter", "vowels", "magic.gamma"), ("VAE", "VAE, both"))
        assert tables == {
            *((name, setting, None) for name, setting in four),
            *((name, "VAE, both", None) for name in ("cardio", "shuttle")),
            *(("PageBlocks", "VAE", share) for share in RATIOS),
        }
        assert {job.share for job in jobs if "PageBlocks" in job.file} == {
            percent / 100 for percent in range(1, 10)
        }


def build_trace(
    file, setting="reference", seed=0, *, share=None, rows=ROWS, windows=0.7, alone=0.65, **series
):
    """Return a trace whose series are constant by default."""
    setting_of = SETTINGS[setting]
    values = {name: [0.5] * setting_of.schedule.n_steps for name in SERIES}
    job = TraceJob(file=file, setting=setting, seed=seed, rows=rows, share=share)
    means = {f"{a}-{b}": windows for a, b in setting_of.windows}
    means |= {str(b): alone for _, b in setting_of.windows}
    more = {"n_rows": 100, "n_outliers": 9, "plan": setting_of.plan(), "windows": means}
    return Trace(**dataclasses.asdict(job), **{**values, **more, **series})


class TestTrainingAnalysis:
    def test_risk_range_excludes_warm_up_and_late_steps(self):
        inlier = [0.9] * 10 + list(np.linspace(0.8, 0.2, 100))
        outlier = [0.1] * 10 + [value + 0.1 for value in inlier[10:]]
        (found,) = analyse_memorisation(
            [build_trace(FILES[0], inlier_loss=inlier, outlier_loss=outlier)]
        )
        assert found.table == "wine"
        held = found.find_risk_range(0)
        assert held.a3 == pytest.approx(0.1)  # the warm-up does not count
        assert held.a2 == pytest.approx(0.8)
        assert held.a1 == pytest.approx(inlier[89])  # nor do steps after the 80th
        assert held.share == 1
        assert found.last_difference == pytest.approx(0.1)
        assert found.find_risk_range(0.11).share == 0
        assert found.find_risk_range(0.11).a1 is None

    def test_risk_range_ends_where_the_difference_fails(self):
        found = Memorisation("x", (0.9, 0.8, 0.3, 0.2, 0.1), (0.5, -0.1, 0.2, 0.05, 0.3), 0.3)
        assert found.find_risk_range(0) == RiskRange(0.1, 0.3, 0.05, 3 / 5)
        assert found.find_risk_range(0.06) == RiskRange(0.1, 0.1, 0.3, 1 / 5)
        assert found.find_risk_range(-1) == RiskRange(0.1, 0.9, -0.1, 1)

    def test_last_difference_is_that_of_the_snapshots(self):
        outlier = [0.5] * 110
        outlier[71:90] = [0.9] * 19  # steps 62 to 80 after a warm-up of 10
        (found,) = analyse_memorisation(
            [build_trace(FILES[0], inlier_loss=[0.5] * 110, outlier_loss=outlier)]
        )
        assert found.last_difference == pytest.approx(0.4)

    def test_seeds_are_averaged_first(self):
        traces = [
            build_trace(FILES[0], seed=seed, inlier_loss=[0.5] * 110, outlier_loss=[value] * 110)
            for seed, value in enumerate((0.4, 0.8))
        ]
        (found,) = analyse_memorisation(traces)
        assert found.find_risk_range(0).a3 == pytest.approx(0.1)

    def test_averages_are_compared_with_single_snapshots(self):
        aucs = np.zeros(110)
        aucs[np.array(SINGLE) + 9] = 0.6  # these steps after a warm-up of 10
        aucs = aucs.tolist()
        assert SINGLE == [55, 60, 65, 70, 75, 80, 90, 100]
        traces = [
            build_trace(file, seed=seed, auc=aucs, windows=windows)
            for file in FILES
            for seed, windows in enumerate((0.7, 0.8))
        ]
        found = compute_window_aucs(traces)
        assert found[AVERAGED] == pytest.approx([0.6] * 3)
        assert found[ALONE] == pytest.approx([0.65] * 3)
        assert found["60-80"] == pytest.approx([0.75] * 3)
        assert compute_averaging_effect(traces, AVERAGED).mean == pytest.approx(0.15)
        assert compute_averaging_effect(traces, ALONE).mean == pytest.approx(0.1)
        assert compute_averaging_effect([], ALONE) is None
        assert compute_window_aucs([]) == {}

    def test_fluctuation_is_the_mean_change_of_late_steps(self):
        restless = [0.9, 0.1] * 25 + [0.5, 0.6] * 25
        calm = [0.9, 0.1] * 25 + [0.5, 0.52] * 25
        traces = [
            build_trace(file, setting, auc=auc)
            for file in FILES
            for setting, auc in (("VAE", restless), ("VAE, growth", calm))
        ]
        traces.append(build_trace(FILES[0], "VAE", share=0.05, auc=[0.0, 1.0] * 50))
        (found,) = measure_fluctuations(traces)
        assert found.growing == pytest.approx(0.02)
        assert found.constant == pytest.approx(0.1)
        assert found.effect.mean == pytest.approx(-0.08)

    def test_auc_is_grouped_by_share_of_outliers(self):
        pages = "Classical/27_PageBlocks.npz"
        traces = [
            build_trace(pages, "VAE", seed, share=share, rows=20_000, auc=[0.0] * 90 + [auc] * 10)
            for share in RATIOS
            for seed, auc in enumerate((0.9 - share, 0.8 - share))
        ]
        half = build_trace(pages, "VAE", 2, share=0.05, rows=20_000)  # not there for all shares
        other = build_trace(FILES[0], "VAE", 0, share=0.05, rows=20_000)
        both = build_trace(pages, "VAE, both", 0, share=0.05, rows=20_000)
        found = group_auc_by_share([*traces, half, other, both, build_trace(FILES[0], "VAE")])
        assert list(found) == list(RATIOS)
        assert found[0.05] == pytest.approx([0.85, 0.75])
        effect = compute_few_outliers_effect(found)
        assert effect.mean == pytest.approx(0.06)
        assert group_auc_by_share(traces[:-2]) == {}

    def test_failed_trainings_and_other_samples_are_excluded(self):
        good = build_trace(FILES[0])
        assert analyse_memorisation([dataclasses.replace(good, error="no")]) == []
        assert analyse_memorisation([dataclasses.replace(good, rows=20_000)]) == []


SVG = "{http://www.w3.org/2000/svg}"


def find_texts(svg):
    return [each.text for each in ET.fromstring(svg).iter(f"{SVG}text")]


class TestCharts:
    def test_bars_have_names_numbers_and_a_legend(self):
        rows = [Bar("one & <only>", 0.8, 0.01, "classic"), Bar("other", 0.7, None, "deep")]
        svg = draw_bars(rows, title="AUC", kinds=FAMILIES, lowest=0.4)
        found = find_texts(svg)
        assert {"one & <only>", "other", "0.800", "0.700", "AUC", "classic", "deep"} <= set(found)
        assert svg.count(FAMILIES["classic"]) >= 2  # the bar and the legend
        assert "<script" not in svg

    def test_panels_have_titles_series_and_axes(self):
        dots = [Dot(value, value / 2, 0.1, 0.9) for value in (0.01, 0.1, 1.0)]
        figures = {
            "first": [Stroke("ours", dots), Stroke("paper", dots[:2])],
            "second": [Stroke("ours", [Dot(step, 0.5) for step in range(50)])],
        }
        svg = draw_panels(figures, x_title="x", y_title="AUC", logarithmic=frozenset({"first"}))
        found = find_texts(svg)
        assert {"first", "second", "ours", "paper", "x", "AUC", "0.01", "0.1", "1"} <= set(found)

    def test_grid_shows_every_number(self):
        cells = [Shade(x, y, 0.7 + 0.01 * index) for index, (x, y) in enumerate(["ab", "cd"])]
        assert {"0.700", "0.710", "a", "b", "c", "d", "T1"} <= set(
            find_texts(draw_heat_map(cells, x_title="T1", y_title="T2"))
        )

    def test_charts_are_reproducible(self):
        rows = [Bar("a", 0.8, 0.01, "classic")]
        one, other = (draw_bars(rows, title="t", kinds=FAMILIES, lowest=0.4) for _ in range(2))
        assert one == other


@pytest.fixture
def folder(tmp_path):
    """Write records of some systems, variants and trainings."""
    results = tmp_path / "results"
    results.mkdir()
    for index, name in enumerate(["ALTBI", "ALTBI-I (reference)", "IForest", "kNN"]):
        for file, seed in product(FILES, range(3)):
            job = Job(file=file, system=name, seed=seed)
            append(results / "transductive.jsonl", bench_jobs.build_run(job, 0.9 - index / 20))
            semi = dataclasses.replace(job, protocol="semi")
            append(results / "semi.jsonl", bench_jobs.build_run(semi, 0.8 + index / 50))
    for index, name in enumerate([BASE.name, *VARIANTS]):
        for file in FILES:
            line = bench_jobs.build_run(Job(file=file, system=name, seed=0), 0.8 - index / 200)
            append(results / "ablation.jsonl", line)
    for setting, file in product(SETTINGS, FILES):
        steps = SETTINGS[setting].schedule.n_steps
        trace = build_trace(file, setting, inlier_loss=[0.3] * steps, outlier_loss=[0.5] * steps)
        append(results / "traces.jsonl", trace)
    return results


class TestPage:
    def test_page_has_figures_and_lists_missing_ones(self, folder):
        page = folder.parent / "docs" / "figures.md"
        write_figures(page, folder)
        text = page.read_text()
        figures = {path.stem for path in (page.parent / "figures").iterdir()}
        assert {"systems", "semi", "ablation", "windows", "memorisation"} <= figures
        assert not {"ratio", "techniques", "private"} & figures
        for name in figures:
            assert f"](figures/{name}.svg)" in text
        assert text.count("Not drawn: its runs are missing.") == 10 - len(figures)
        assert "in all steps on 3 of 3 tables" in " ".join(text.split())
        assert "ALTBI-I (reference) has rank 2 of 4" in text

    def test_outdated_figure_is_removed(self, folder):
        page = folder.parent / "figures.md"
        write_figures(page, folder)
        picture, mine = (
            folder.parent / "figures" / "windows.svg",
            folder.parent / "figures" / "a.svg",
        )
        mine.write_text("mine")
        assert picture.is_file()
        (folder / "traces.jsonl").unlink()
        write_figures(page, folder)
        assert not picture.exists()
        assert "figures/windows.svg" not in page.read_text()
        assert mine.read_text() == "mine"

    def test_missing_run_is_listed(self, folder):
        path = folder / "ablation.jsonl"
        gone = [
            line
            for line in path.read_text().splitlines()
            if not ('"ALTBI-I, n0 16"' in line and "glass" in line)
        ]
        path.write_text("\n".join(gone) + "\n")
        page = folder.parent / "figures.md"
        write_figures(page, folder)
        text = page.read_text()
        assert "\n- ALTBI-I, n0 16: glass\n" in text
        assert "n0 (in the paper a figure without numbers), 2 tables of up to 200 columns" in text

    def test_command_prints_the_tables(self, folder, capsys):
        assert main(["ablation", "--no-runs", "--records", str(folder)]) == 0
        output = capsys.readouterr().out
        assert "rho (in the paper Table B.6), 3 tables of up to 200 columns, 1 seed:" in output
        assert "0.92  0.800              default  0.762" in output
        assert "0.96  0.780               -0.020  0.758" in output
        assert "3 of 3" in output

    def test_failed_run_sets_the_exit_code(self, folder, capsys):
        failed = bench_jobs.build_run(
            Job(file=FILES[0], system=BASE.name, seed=0), error="it broke"
        )
        append(folder / "ablation.jsonl", failed)
        assert main(["ablation", "--no-runs", "--records", str(folder)]) == 1
        assert "it broke" in capsys.readouterr().err

    def test_smoke_runs_do_not_change_failures(self, folder, capsys):
        job = Job(file=FILES[0], system=BASE.name, seed=0)
        arguments = ["ablation", "--no-runs", "--records", str(folder)]
        append(
            folder / "ablation.jsonl",
            bench_jobs.build_run(dataclasses.replace(job, smoke=True), error="poor"),
        )
        assert main(arguments) == 0
        assert "poor" not in capsys.readouterr().err
        append(folder / "ablation.jsonl", bench_jobs.build_run(job, error="it broke"))
        append(
            folder / "ablation.jsonl", bench_jobs.build_run(dataclasses.replace(job, smoke=True))
        )
        assert main(arguments) == 1
        assert "it broke" in capsys.readouterr().err

    def test_outdated_failure_is_ignored(self, folder, capsys):
        job = Job(file=FILES[0], system=BASE.name, seed=0)
        stale = bench_jobs.build_run(job, error="it broke", parameters={"n0": 7})
        append(folder / "ablation.jsonl", stale)
        assert main(["ablation", "--no-runs", "--records", str(folder)]) == 0
        assert "it broke" not in capsys.readouterr().err
        write_figures(folder.parent / "figures.md", folder)
        assert "it broke" not in (folder.parent / "figures.md").read_text()

    def test_unknown_setting_is_an_error(self, folder, capsys):
        code = main(["ablation", "--settings", "rhoo", "--records", str(folder)])
        assert code == 1
        assert "No setting is called 'rhoo'" in capsys.readouterr().err

    def test_command_writes_the_page(self, folder, tmp_path):
        page = tmp_path / "here" / "mine.md"
        assert main(["figures", "--records", str(folder), "--page", str(page)]) == 0
        assert (page.parent / "mine" / "systems.svg").is_file()
        assert "](mine/systems.svg)" in page.read_text()

    def test_only_selected_settings_are_printed(self, folder, capsys):
        arguments = ["ablation", "--no-runs", "--records", str(folder)]
        assert main([*arguments, "--settings", "gamma", "--datasets", "wine,glass"]) == 0
        output = capsys.readouterr().out
        assert "gamma (in the paper Table B.7), 2 tables" in output
        assert "Table B.6" not in output
        assert "Assumption 1" not in output

    def test_folder_without_records_is_an_error(self, tmp_path, capsys):
        code = main(["ablation", "--no-runs", "--records", str(tmp_path / "none")])
        assert code == 1
        error = capsys.readouterr().err
        assert (
            "no such file of records. `altbi-bench ablation` without --no-runs writes them" in error
        )

    def test_only_smoke_records_are_an_error(self, folder, tmp_path, capsys):
        (run, *_) = read_runs(folder / "ablation.jsonl")
        append(tmp_path / "ablation.jsonl", dataclasses.replace(run, smoke=True))

        assert main(["ablation", "--no-runs", "--records", str(tmp_path)]) == 1

        assert "all records are of smoke runs" in capsys.readouterr().err

    def test_folder_as_page_is_an_error(self, folder, capsys):
        page = folder.parent / "docs"
        page.mkdir()
        assert main(["figures", "--records", str(folder), "--page", str(page)]) == 1
        assert "docs: a folder, but expected a file" in capsys.readouterr().err
        assert not list(page.iterdir())

    def test_named_setting_runs_without_trainings(self, tmp_path, adbench, capsys, monkeypatch):
        def write_runs(path, jobs, *_, **__):
            for job in jobs:
                append(path, bench_jobs.build_run(job))

        monkeypatch.setattr("altbi_bench.cli.commands.run_all", write_runs)
        arguments = ["ablation", "--datasets", "wine", "--settings", "rho", "--quiet"]
        assert main([*arguments, "--records", str(tmp_path)]) == 0
        assert "rho (in the paper Table B.6), 1 tables" in capsys.readouterr().out
        assert not (tmp_path / "traces.jsonl").exists()

    def test_command_runs_missing_jobs(self, tmp_path, adbench, capsys, monkeypatch):
        arguments = ["ablation", "--datasets", "wine", "--quiet"]
        panel = dataclasses.replace(PANELS["rho"], values=(0.92, 1))
        monkeypatch.setattr("altbi_bench.cli.commands.find_panels", lambda _: [panel])
        monkeypatch.setattr("altbi_bench.ablation.experiments.SETTINGS", {"VAE": SETTINGS["VAE"]})
        assert main([*arguments, "--records", str(tmp_path)]) == 0
        output = capsys.readouterr().out
        assert "rho (in the paper Table B.6), 1 tables of up to 200 columns, 1 seed:" in output
        runs = (tmp_path / "ablation.jsonl").read_text()
        traces = (tmp_path / "traces.jsonl").read_text()
        assert len(runs.splitlines()) == 4  # two values, growth, neither
        assert len(traces.splitlines()) == 1
        assert main([*arguments, "--records", str(tmp_path)]) == 0
        assert (tmp_path / "ablation.jsonl").read_text() == runs
        assert (tmp_path / "traces.jsonl").read_text() == traces

    def test_committed_page_agrees_with_committed_records(self, tmp_path):
        root = Path(__file__).parents[2]
        (tmp_path / "bench").symlink_to(root / "bench")
        write_figures(tmp_path / "docs" / "figures.md", tmp_path / "bench" / "results")
        made = (tmp_path / "docs" / "figures.md").read_text()
        assert made == (root / "docs" / "figures.md").read_text()
        pictures_made = {each.name for each in (tmp_path / "docs" / "figures").iterdir()}
        committed = root / "docs" / "figures"
        assert pictures_made == {each.name for each in committed.iterdir()}
        # Positions depend on the fonts of the machine, so only texts are compared.
        for name in pictures_made:
            ours, theirs = (
                find_texts((where / name).read_text())
                for where in (tmp_path / "docs" / "figures", committed)
            )
            assert ours == theirs, name

    def test_figures_of_single_tables_report_effects(self, folder):
        for seed in range(10):
            for table, shift in (("18_Ionosphere", 0.1), ("20_letter", 0.0)):
                for setting, base in (("VAE", 0.5), ("VAE, both", 0.5 + shift)):
                    trace = build_trace(
                        f"Classical/{table}.npz",
                        setting,
                        seed,
                        rows=20_000,
                        auc=[0.1] * 90 + [base] * 10,
                    )
                    append(folder / "traces.jsonl", trace)
            kept = [0.2] * 10 + [0.08] * 10 + [0.05] * 70 + [0.03] * 10
            trace = build_trace(
                "Classical/6_cardio.npz", "VAE, both", seed, rows=20_000, kept_outliers=kept
            )
            append(folder / "traces.jsonl", trace)
            for share in RATIOS:
                trace = build_trace(
                    "Classical/27_PageBlocks.npz",
                    "VAE",
                    seed,
                    share=share,
                    rows=20_000,
                    auc=[0.9 - share] * 100,
                )
                append(folder / "traces.jsonl", trace)
        page = folder.parent / "figures.md"
        write_figures(page, folder)
        text = page.read_text()
        assert "ionosphere +0.100 [+0.100, +0.100], letter +0.000 [+0.000, +0.000]" in text
        assert "the interval is above 0 on 1 of 2" in text
        assert "cardio 8.0% and 3.0%, of 9.0% in the table" in text
        assert "the interval is below 0 on 1 of 1" in text
        assert "than with 7 to 9 % by +0.060 [+0.060, +0.060]" in text
        assert "this is confirmed here" in text

    def test_privacy_comparison_uses_shared_tables(self, folder):
        settings = ("loss", "loss, neither", "epsilon 10", "epsilon 10, neither")
        names = ("wine", "pima", "stamps", "cardio", "skin", "census")
        lines = [
            {
                "kind": "auc",
                "table": name,
                "setting": setting,
                "seed": seed,
                "auc": 0.9 - index / 50,
            }
            for name in names
            for index, setting in enumerate(settings)
            for seed in (0, 1)
        ]
        lines += [{"kind": "left out", "share": 0.5}, {**lines[0], "table": "musk"}]
        lines.append({**lines[0], "seed": 2, "auc": None})
        (folder / "privacy.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in lines))
        page = folder.parent / "figures.md"
        write_figures(page, folder)
        text = page.read_text()
        assert "Mean test AUC over 5 tables" in text
        assert "without noise +0.020 [+0.020, +0.020], in the paper's table" in text
        svg = (folder.parent / "figures" / "private.svg").read_text()
        paper = (PAPER / "b11_dp.csv").read_text().splitlines() if PAPER.is_dir() else []
        assert {"0.900", "0.880", "0.860", "0.840"} <= set(find_texts(svg))
        theirs = run_figures._read_published_private()
        assert len(theirs["wine"]) == 4
        if paper:
            expected = next(line for line in paper if line.startswith("wine,1.03,0.92,no,"))
            assert theirs["wine"]["loss"] == float(expected.split(",")[-1])

    @pytest.mark.parametrize(
        "line", ["[1]", '{"kind": "auc"}', '{"kind": "auc", "table": "a", "setting": 1, "seed": 0}']
    )
    def test_invalid_privacy_record_raises_with_its_line(self, folder, line):
        (folder / "privacy.jsonl").write_text(line + "\n")
        with pytest.raises(TableError, match=r"privacy\.jsonl, line 1: not a record"):
            write_figures(folder.parent / "figures.md", folder)

    def test_page_needs_only_one_table(self, tmp_path):
        (tmp_path / "results").mkdir()
        append(tmp_path / "results" / "traces.jsonl", build_trace(FILES[0]))
        page = tmp_path / "docs" / "my" / "figures.md"
        write_figures(page, tmp_path / "results")
        text = page.read_text()
        assert "](../../results/traces.jsonl)" in text
        assert "- observed training, VAE: all 1 tables" in text
        assert "- 190 trainings of figures, first " in text

    def test_repeated_failure_is_not_listed(self, folder):
        job = Job(file=FILES[0], system=BASE.name, seed=0)
        for line in (bench_jobs.build_run(job, error="it `broke`"), bench_jobs.build_run(job, 0.8)):
            append(folder / "ablation.jsonl", line)
        append(folder / "traces.jsonl", build_trace(FILES[0], error="<b>no</b>\n"))
        page = folder.parent / "figures.md"
        write_figures(page, folder)
        text = page.read_text()
        assert "broke" not in text
        assert "`<b>no</b>`" in text

    def test_families_are_those_of_the_paper(self):
        family = run_figures._find_family
        assert [family(name) for name in ("ALTBI", "ODIM", "DTE-NP", "DDPM", "GOAD", "kNN")] == [
            *("memorisation", "memorisation", "diffusion", "diffusion", "deep", "classic")
        ]


def test_no_records_have_no_tables():
    assert ablation_tables([], []) == []
