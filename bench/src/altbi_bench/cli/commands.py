"""The commands of the benchmark: read the arguments, call the library, print the result."""

import argparse
import json
import shlex
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import asdict
from typing import TypeVar

from altbi.cli._progress import terminal_progress
from altbi.errors import TableError, escape_text
from altbi_bench.catalogue.datasets import (
    SOURCE,
    VARIABLE,
    Dataset,
    adbench_folder,
    catalogue,
    find_file,
    is_available,
    load,
    no_files_error,
    select,
)
from altbi_bench.catalogue.systems import IMAGE_ONLY, SYSTEMS, find_systems
from altbi_bench.catalogue.variants import Panel, find_panels
from altbi_bench.cli.parser import AUTO, FOLDER, ROWS, TABLE_DEFAULTS, build_parser
from altbi_bench.results_page.page import write_page
from altbi_bench.runs.code_digest import describe_code
from altbi_bench.runs.measurement import find_version
from altbi_bench.runs.records import Job, Run, keep_latest, read_runs
from altbi_bench.runs.runner import (
    DTE_PROTOCOLS,
    Limits,
    Question,
    keep_current,
    plan_jobs,
    run_all,
)
from altbi_bench.tables.formatting import format_question, no_records_error
from altbi_bench.tables.grids import markdown_grid, plain_grid

__all__ = [
    "ablation",
    "completion",
    "datasets",
    "figures",
    "quick",
    "records",
    "run",
    "systems",
    "tables",
]

Item = TypeVar("Item")
QUICK = ("ALTBI", "ALTBI-I (reference)", "IForest", "kNN")


def datasets(args: argparse.Namespace) -> int:
    """Print the data sets or files, or check the available files; return 1 if one is wrong."""
    if args.check:
        if args.files or args.json:
            args.wrong("--check does not list files: leave out --files and --json")
        return _check_files()
    facts = [
        {
            "dataset": dataset.label,
            "kind": dataset.kind,
            "domain": dataset.domain,
            "file": each.path,
            "rows": each.n_rows,
            "features": each.n_features,
            "outliers": each.n_outliers,
            "sha256": each.sha256,
            "available": is_available(each),
        }
        for dataset in catalogue()
        for each in dataset.files
    ]
    if args.json:
        sys.stdout.write(json.dumps(facts, indent=2) + "\n")
        return 0
    n_available = sum(bool(fact["available"]) for fact in facts)
    head = ["file" if args.files else "data set", "kind", "files", "rows", "features", "outliers"]
    body = [
        [
            dataset.label if not args.files else files[0].path,
            dataset.kind,
            f"{sum(map(is_available, files))} of {len(files)}",
            _sum_known(each.n_rows for each in files),
            str(files[0].n_features),
            _sum_known(each.n_outliers for each in files),
        ]
        for dataset in catalogue()
        for files in ([(each,) for each in dataset.files] if args.files else [dataset.files])
    ]
    folder = adbench_folder()
    sys.stdout.write(
        f"{plain_grid([head, *body])}\n\n{n_available} of {len(facts)} files are available"
        f"{'' if folder is None else f' in {folder}'}. The others are ADBench's: {SOURCE}\n"
        f"Put them into one folder with the names that --files shows, and set {VARIABLE} to it.\n"
    )
    return 0


def _check_files() -> int:
    """Read every available file, and print errors for those that a run would refuse."""
    files = [file for each in catalogue() for file in each.files if is_available(file)]
    if not files:
        raise no_files_error()
    n_wrong = 0
    for file in files:
        try:
            load(file)
        except TableError as error:
            n_wrong += 1
            sys.stderr.write(f"{escape_text(' '.join(str(error).split()))}\n")
    sys.stdout.write(f"{len(files) - n_wrong} of {len(files)} available files are as described.\n")
    return 1 if n_wrong else 0


def _sum_known(numbers: Iterator[int | None]) -> str:
    known = list(numbers)
    return "?" if None in known else f"{sum(filter(None, known)):,}"


def systems(args: argparse.Namespace) -> None:
    """Print the systems."""
    facts = [
        {
            "system": system.name,
            "column": system.column,
            "source": system.recipe.source,
            "version": find_version(system.recipe.package) or "not installed",
            "parameters": dict(system.recipe.parameters),
            "on inliers alone": asdict(system.novelty) if system.novelty else None,
            "seeded": system.seeded,
            "scaling": "its own" if system.scales_itself else "standardised on the rows of the fit",
            "note": system.note,
        }
        for system in SYSTEMS.values()
    ]
    if args.json:
        sys.stdout.write(json.dumps(facts, indent=2) + "\n")
        return
    head = ["system", "source", "version", "parameters", "note"]
    body = [
        [
            *(str(fact[key]) for key in head[:3]),
            _format_parameters(fact["parameters"]),
            str(fact["note"]),
        ]
        for fact in facts
    ]
    absent = [[name, "not run", "", "", why] for name, why in IMAGE_ONLY.items()]
    sys.stdout.write(plain_grid([head, *body, *absent], numbers=False) + "\n")


def _format_parameters(parameters: object) -> str:
    pairs = parameters.items() if isinstance(parameters, dict) else ()
    return ", ".join(f"{name}={value!r}" for name, value in pairs) or "defaults"


def run(args: argparse.Namespace) -> int:
    """Run the jobs without a record; return 1 if a job failed."""
    smoke = args.suite == "smoke" and args.datasets is None
    question = _build_question(args, smoke=smoke)
    # The smoke suite runs all systems; otherwise some are run on request only.
    names = list(SYSTEMS) if smoke and args.systems is None else args.systems
    jobs = plan_jobs(select(args.datasets, args.suite), find_systems(names), question)
    path = args.records or FOLDER / ("smoke.jsonl" if smoke else f"{args.protocol}.jsonl")
    progress = _build_progress(quiet=args.quiet)
    limits = Limits(args.processes, args.threads, args.limit)
    if args.engine is not None and args.processes != 1:
        args.wrong("an engine replaces --processes: leave one of them out")
    from altbi.cli._arguments import create_engine

    with create_engine(args) or nullcontext() as engine:
        done = run_all(path, jobs, limits, progress, retry=args.retry, engine=engine)
    last = keep_latest(keep_current(read_runs(path)))
    failed = [last[job] for job in jobs if last[job].error is not None]
    for each in failed:
        sys.stderr.write(f"{each.job.title}: {escape_text(' '.join(str(each.error).split()))}\n")
    before = {each.job for each in failed} - {each.job for each in done}
    sys.stdout.write(
        f"{len(done)} {'job' if len(done) == 1 else 'jobs'} done, {len(jobs) - len(done)} "
        f"existed, {len(failed)} failed: {path}\n"
        + (f"{len(before)} of them failed earlier; --retry runs them again.\n" if before else "")
    )
    return 1 if failed else 0


def _build_question(args: argparse.Namespace, *, smoke: bool = False) -> Question:
    default = None if args.protocol in DTE_PROTOCOLS else ROWS
    rows = default if args.rows == AUTO else args.rows
    return Question(args.protocol, rows, args.seeds, smoke)


def _build_progress(*, quiet: bool) -> Callable[[Iterator[Item], int], Iterator[Item]]:
    meter = terminal_progress(quiet=quiet)

    def show(runs: Iterator[Item], total: int) -> Iterator[Item]:
        return runs if meter is None else iter(meter("running", runs, total, lambda _: 1))

    return show


def tables(args: argparse.Namespace) -> None:
    """Print the tables of one protocol, or write the page of all protocols."""
    if args.page is not None:
        if others := [
            name for name, usual in TABLE_DEFAULTS.items() if getattr(args, name) != usual
        ]:
            args.wrong(f"the page uses all records: leave out --{', --'.join(others)}")
        write_page(args.page, args.records or FOLDER)
        return
    path = args.records or FOLDER / f"{args.protocol}.jsonl"
    question = _build_question(args)
    chosen = None if args.systems is None else find_systems(args.systems)
    found = select(args.datasets, args.suite)
    sys.stdout.write(format_question(path, question, chosen, found, markdown=args.markdown))


def records(args: argparse.Namespace) -> None:
    """Print the records behind numbers of the tables."""
    path = args.records or FOLDER / f"{args.protocol}.jsonl"
    question = _build_question(args)
    wanted = {
        job
        for dataset in select(args.datasets, args.suite)
        for file in dataset.files
        for system in find_systems(args.systems)
        for job in question.list_jobs(file, system)
    }
    runs = read_runs(path)
    found = [(number, run) for number, run in enumerate(runs, 1) if run.job in wanted]
    if not found:
        raise no_records_error(path, runs)
    for number, each in found:
        stale = "" if keep_current([each]) else " (outdated: the system is built differently now)"
        start = f"{path}, line {number}: {each.job.title}{stale}{_describe_code(each)}"
        sys.stdout.write(f"{start}\n{_format_run(each)}\n")


def _describe_code(run: Run) -> str:
    """Return a remark on the code of a run, if it differs from the current code."""
    about = describe_code(run.versions.get("altbi code")) if run.source.startswith("altbi") else ""
    return f" ({escape_text(about)})" if about else ""


def _format_run(run: Run) -> str:
    """Format the content of a record, and the command that repeats the run."""
    dataset = find_file(run.file)[0]
    name = dataset.label if len(dataset.files) == 1 else run.file
    command = ["altbi-bench", "run", "--datasets", name, "--systems", run.system]
    command += ["--protocol", run.protocol, "--seeds", f"{run.seed},", "--records", "again.jsonl"]
    command += ["--rows", "all" if run.rows is None else str(run.rows)]
    facts = {
        name: value
        for name, value in asdict(run).items()
        if name not in Job.__slots__ and value not in (None, {}, [])
    }
    return f"  {json.dumps(facts)}\n  {shlex.join(command)}"


def quick(args: argparse.Namespace) -> int:
    """Run a small comparison, and print its tables."""
    args.systems, args.protocol, args.suite = list(QUICK), "transductive", "tables"
    code = run(args)
    args.page = None
    tables(args)
    return code


def ablation(args: argparse.Namespace) -> int:
    """Run ablations and observed trainings without a record, and print tables."""
    from altbi_bench.ablation.tables import ablation_tables
    from altbi_bench.figures.figure import ABLATION, TRACES
    from altbi_bench.traces.records import current_traces, read_traces

    runs_path, traces_path = args.records / ABLATION, args.records / TRACES
    panels, chosen = find_panels(args.settings), select(args.datasets, "tables")
    files = {each.path for dataset in chosen for each in dataset.files}
    if not args.no_runs:
        _run_ablations(args, panels, chosen, files)
    runs = [run for run in read_runs(runs_path) if run.file in files and not run.smoke]
    traces = [trace for trace in current_traces(read_traces(traces_path)) if trace.file in files]
    if not runs and not traces:
        command = "`altbi-bench ablation` without --no-runs"
        raise no_records_error(runs_path, read_runs(runs_path), command)
    grid = markdown_grid if args.markdown else plain_grid
    tables = ablation_tables(runs, [] if args.settings else traces, grid, panels)
    sys.stdout.write("\n\n".join(tables) + "\n")
    last = {run.job.title: run.error for run in keep_latest(keep_current(runs)).values()}
    last |= {trace.job.title: trace.error for trace in traces}
    failed = {title: reason for title, reason in last.items() if reason is not None}
    for title, reason in failed.items():
        sys.stderr.write(f"{title}: {escape_text(' '.join(reason.split()))}\n")
    return 1 if failed else 0


def _run_ablations(
    args: argparse.Namespace, panels: Sequence[Panel], chosen: Sequence[Dataset], files: set[str]
) -> None:
    """Run jobs without a record; trainings are observed only if no settings are given."""
    from altbi_bench.ablation.experiments import (
        filter_available,
        list_figure_jobs,
        list_trace_jobs,
        list_variant_jobs,
    )
    from altbi_bench.figures.figure import ABLATION, TRACES
    from altbi_bench.traces.records import run_traces

    limits, retry = Limits(args.processes, args.threads, args.limit), args.retry
    jobs = list_variant_jobs(panels, chosen, args.seeds)
    run_all(args.records / ABLATION, jobs, limits, _build_progress(quiet=args.quiet), retry=retry)
    if args.settings is None:
        requested = [*list_figure_jobs(), *list_trace_jobs(chosen, args.seeds)]
        traces = filter_available(job for job in requested if job.file in files)
        run_traces(
            args.records / TRACES, traces, limits, _build_progress(quiet=args.quiet), retry=retry
        )


def figures(args: argparse.Namespace) -> None:
    """Write the page of figures."""
    from altbi_bench.figures.page import write_figures

    write_figures(args.page, args.records)


def completion(args: argparse.Namespace) -> None:
    """Print the script for shell completion of commands, options and file names."""
    import shtab

    sys.stdout.write(shtab.complete(build_parser(), shell=args.shell) + "\n")
