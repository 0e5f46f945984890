"""Jobs of the paper's ablations, and the effect of one parameter at a time."""

import csv
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from importlib import resources
from typing import final

import numpy as np
from numpy.typing import NDArray

from altbi_bench.catalogue.datasets import Dataset, find_file, is_available, select
from altbi_bench.catalogue.systems import System
from altbi_bench.catalogue.variants import BASE, MAX_FEATURES, NEITHER, PANELS, Panel
from altbi_bench.runs.records import Job, Run, keep_latest
from altbi_bench.runs.runner import Question, keep_current, plan_jobs
from altbi_bench.statistics import Effect, paired_effect
from altbi_bench.traces.settings import SETTINGS
from altbi_bench.traces.trace import TraceJob

__all__ = [
    "ROWS",
    "TECHNIQUES",
    "Point",
    "compute_points",
    "compute_technique_effects",
    "filter_available",
    "list_figure_jobs",
    "list_trace_jobs",
    "list_variant_jobs",
    "read_published",
]

# Largest sample of a table. Batches are smaller, so that more rows would change little, except for
# a gamma of 1.05 and above.
ROWS = 5_000
# The paper's figures of single tables have more rows and more seeds.
FIGURE_ROWS, FIGURE_SEEDS = 20_000, range(10)
WITH_AND_WITHOUT = ("ionosphere", "letter", "vowels", "magic.gamma")
TRUNCATED = ("cardio", "shuttle")
RATIOS_OF, RATIOS = "pageblocks", tuple(percent / 100 for percent in range(1, 10))
# ALTBI-I without one or both techniques, which the effects are relative to.
TECHNIQUES = {
    "truncation (rho 0.92, not 1)": PANELS["rho"].find_system(1),
    "growing batches (gamma 1.03, not 1)": PANELS["gamma"].find_system(1),
    "both": NEITHER,
}
PUBLISHED_EFFECTS = {
    "truncation (rho 0.92, not 1)": ("rho", "0.92", "1"),
    "growing batches (gamma 1.03, not 1)": ("gamma", "1.03", "1"),
}


@final
@dataclass(frozen=True, slots=True)
class Point:
    """One value of a parameter: our mean AUC, its difference from the default, and the paper's."""

    value: float
    auc: float
    effect: Effect | None
    paper: float | None


@cache
def read_published() -> dict[tuple[str, str], float]:
    """Read the paper's Tables B.6 to B.10: (parameter, value) -> mean AUC; "T1-T2" for windows."""
    source = resources.files("altbi_bench") / "paper" / "ablation.csv"
    with source.open(encoding="utf-8") as file:
        return {(row["parameter"], row["value"]): float(row["auc"]) for row in csv.DictReader(file)}


# Jobs.


def list_variant_jobs(
    panels: Sequence[Panel], datasets: Sequence[Dataset], seeds: tuple[int, ...]
) -> list[Job]:
    """Return the jobs of some panels, and of the two techniques together."""
    question = Question("transductive", ROWS, seeds)
    jobs = plan_jobs(_select_narrow(datasets, MAX_FEATURES), [BASE, *TECHNIQUES.values()], question)
    for panel in panels:
        systems = [panel.find_system(value) for value in panel.values]
        jobs += plan_jobs(_select_narrow(datasets, panel.max_features), systems, question)
    return list(dict.fromkeys(jobs))


def _select_narrow(datasets: Sequence[Dataset], max_features: int) -> list[Dataset]:
    return [each for each in datasets if each.files[0].n_features <= max_features]


def list_trace_jobs(datasets: Sequence[Dataset], seeds: Iterable[int]) -> list[TraceJob]:
    """Return the jobs of observed trainings: each setting on each table."""
    return [
        TraceJob(file=each.path, setting=setting, seed=seed, rows=ROWS)
        for seed in seeds
        for dataset in _select_narrow(datasets, MAX_FEATURES)
        for each in dataset.files
        for setting in SETTINGS
    ]


def list_figure_jobs() -> list[TraceJob]:
    """Return the jobs of observed trainings for the paper's figures of single tables."""
    wanted = [
        *((name, setting, None) for name in WITH_AND_WITHOUT for setting in ("VAE", "VAE, both")),
        *((name, "VAE, both", None) for name in TRUNCATED),
        *((RATIOS_OF, "VAE", share) for share in RATIOS),
    ]
    return [
        TraceJob(
            file=find_table_file(name), setting=setting, seed=seed, rows=FIGURE_ROWS, share=share
        )
        for name, setting, share in wanted
        for seed in FIGURE_SEEDS
    ]


def find_table_file(name: str) -> str:
    """Return the path of a table by the paper's name."""
    (dataset,) = select([name])
    return dataset.files[0].path


def filter_available(jobs: Iterable[TraceJob]) -> list[TraceJob]:
    """Return the jobs whose files are available."""
    return [job for job in jobs if is_available(find_file(job.file)[1])]


# Effects.


def compute_points(runs: Sequence[Run], panel: Panel) -> tuple[list[Point], int, int]:
    """Return the points of a panel, and the numbers of shared tables and seeds."""
    systems = [panel.find_system(value) for value in panel.values]
    aucs, n_seeds = _average_seeds(runs, systems)
    if not n_seeds:
        return [], 0, 0
    base = aucs[BASE.name]
    points = [
        Point(
            value,
            float(aucs[system.name].mean()),
            None if system is BASE else paired_effect(aucs[system.name] - base),
            read_published().get((panel.record_name or panel.parameter, f"{value:g}")),
        )
        for value, system in zip(panel.values, systems, strict=True)
    ]
    return points, len(base), n_seeds


def compute_technique_effects(runs: Sequence[Run]) -> tuple[dict[str, Effect], int]:
    """Return the gain of ALTBI-I by each technique, and the number of seeds."""
    aucs, n_seeds = _average_seeds(runs, [BASE, *TECHNIQUES.values()])
    if not n_seeds:
        return {}, 0
    return {
        title: paired_effect(aucs[BASE.name] - aucs[without.name])
        for title, without in TECHNIQUES.items()
    }, n_seeds


def find_published_effect(title: str) -> float | None:
    """Return the gain by a technique in the paper's tables, if it has them."""
    if title not in PUBLISHED_EFFECTS:
        return None
    parameter, with_it, without = PUBLISHED_EFFECTS[title]
    return read_published()[parameter, with_it] - read_published()[parameter, without]


def _average_seeds(
    runs: Sequence[Run], systems: Sequence[System]
) -> tuple[Mapping[str, NDArray[np.float64]], int]:
    """Return mean AUC by system and table over the shared seeds, and their number."""
    found = {
        (job.system, job.file, job.seed): run.auc
        for job, run in keep_latest(keep_current(runs)).items()
        if run.error is None and _is_planned(job)
    }
    names = [system.name for system in systems]
    files = sorted({file for _, file, _ in found})
    seeds = sorted({seed for _, _, seed in found})
    files = [file for file in files if all((name, file, seeds[0]) in found for name in names)]
    complete = [s for s in seeds if all((n, f, s) in found for n in names for f in files)]
    if not files or not complete:
        return {}, 0
    return {
        name: np.array([[found[name, file, seed] for seed in complete] for file in files]).mean(
            axis=1
        )
        for name in names
    }, len(complete)


def _is_planned(job: Job) -> bool:
    """Return whether a job is in `list_variant_jobs` with any seed."""
    (planned,) = Question("transductive", ROWS, (job.seed,)).list_jobs(find_file(job.file)[1], BASE)
    return replace(planned, system=job.system) == job
