"""The commands of the benchmark: read the arguments, call the library, print the result."""

import argparse
import json
import shlex
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import asdict
from typing import TypeVar

from altbi._terminal import printable
from altbi.cli._progress import terminal_progress
from altbi.errors import TableError
from altbi_bench.catalogue.datasets import (
    SOURCE,
    VARIABLE,
    Dataset,
    adbench_folder,
    catalogue,
    find_part,
    is_available,
    load,
    no_files_error,
    select,
)
from altbi_bench.catalogue.systems import IMAGE_ONLY, SYSTEMS, find_systems
from altbi_bench.catalogue.variants import Panel, find_panels
from altbi_bench.cli.parser import ASKED, AUTO, FOLDER, ROWS, build_parser
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
from altbi_bench.tables.formatting import nothing_found, printed
from altbi_bench.tables.grids import markdown_grid, plain_grid

__all__ = [
    "ablation",
    "completion",
    "datasets",
    "figures",
    "lines",
    "quick",
    "run",
    "systems",
    "tables",
]

Item = TypeVar("Item")
QUICK = ("ALTBI", "ALTBI-I (reference)", "IForest", "kNN")


def datasets(args: argparse.Namespace) -> int:
    """List data sets, or files; or read the files at hand, 1 when one is not ADBench's."""
    if args.check:
        if args.files or args.json:
            args.wrong("--check lists nothing: leave out --files and --json")
        return _check_files()
    facts = [
        {
            "dataset": dataset.label,
            "kind": dataset.kind,
            "domain": dataset.domain,
            "file": part.file,
            "rows": part.n_rows,
            "features": part.n_features,
            "outliers": part.n_outliers,
            "sha256": part.sha256,
            "at_hand": is_available(part),
        }
        for dataset in catalogue()
        for part in dataset.parts
    ]
    if args.json:
        sys.stdout.write(json.dumps(facts, indent=2) + "\n")
        return 0
    there = sum(bool(fact["at_hand"]) for fact in facts)
    head = ["file" if args.files else "data set", "kind", "files", "rows", "features", "outliers"]
    body = [
        [
            dataset.label if not args.files else part.file,
            dataset.kind,
            f"{sum(map(is_available, parts))} of {len(parts)}",
            _total(part.n_rows for part in parts),
            str(part.n_features),
            _total(part.n_outliers for part in parts),
        ]
        for dataset in catalogue()
        for parts in ([(part,) for part in dataset.parts] if args.files else [dataset.parts])
        for part in parts[:1]
    ]
    folder = adbench_folder()
    sys.stdout.write(
        f"{plain_grid([head, *body])}\n\n{there} of {len(facts)} files are at hand"
        f"{'' if folder is None else f' in {folder}'}. The others are ADBench's: {SOURCE}\n"
        f"Put them into one folder with the names that --files shows, and set {VARIABLE} to it.\n"
    )
    return 0


def _check_files() -> int:
    """Read every file at hand, and name those that a run would refuse."""
    parts = [part for each in catalogue() for part in each.parts if is_available(part)]
    if not parts:
        raise no_files_error()
    wrong = 0
    for part in parts:
        try:
            load(part)
        except TableError as error:
            wrong += 1
            sys.stderr.write(f"{printable(' '.join(str(error).split()))}\n")
    sys.stdout.write(f"{len(parts) - wrong} of {len(parts)} files at hand are as described.\n")
    return 1 if wrong else 0


def _total(numbers: Iterator[int | None]) -> str:
    known = list(numbers)
    return "?" if None in known else f"{sum(filter(None, known)):,}"


def systems(args: argparse.Namespace) -> None:
    """List systems."""
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
        [*(str(fact[key]) for key in head[:3]), _words(fact["parameters"]), str(fact["note"])]
        for fact in facts
    ]
    absent = [[name, "not run", "", "", why] for name, why in IMAGE_ONLY.items()]
    sys.stdout.write(plain_grid([head, *body, *absent], numbers=False) + "\n")


def _words(parameters: object) -> str:
    pairs = parameters.items() if isinstance(parameters, dict) else ()
    return ", ".join(f"{name}={value!r}" for name, value in pairs) or "defaults"


def run(args: argparse.Namespace) -> int:
    """Run what is left; 1 when a job failed."""
    smoke = args.suite == "smoke" and args.datasets is None
    question = _question(args, smoke=smoke)
    # Made quick, all systems take part; else those aside only when they are named.
    names = list(SYSTEMS) if smoke and args.systems is None else args.systems
    jobs = plan_jobs(select(args.datasets, args.suite), find_systems(names), question)
    path = args.lines or FOLDER / ("smoke.jsonl" if smoke else f"{args.protocol}.jsonl")
    on_progress = _watch(quiet=args.quiet)
    limits = Limits(args.processes, args.threads, args.limit)
    if args.engine is not None and args.processes != 1:
        args.wrong("an engine takes the place of --processes: leave one of them out")
    from altbi.cli._engine import create_engine

    engine = create_engine(args)  # also checks the options
    with nullcontext() if args.engine is None else engine as chosen:
        done = run_all(path, jobs, limits, on_progress, retry=args.retry, engine=chosen)
    last = keep_latest(keep_current(read_runs(path)))
    failed = [last[job] for job in jobs if last[job].error is not None]
    for each in failed:
        sys.stderr.write(f"{each.job.title}: {printable(' '.join(str(each.error).split()))}\n")
    before = {each.job for each in failed} - {each.job for each in done}
    sys.stdout.write(
        f"{len(done)} {'job' if len(done) == 1 else 'jobs'} done, {len(jobs) - len(done)} were "
        f"there, {len(failed)} failed: {path}\n"
        + (f"{len(before)} of them failed before; --retry runs them again.\n" if before else "")
    )
    return 1 if failed else 0


def _question(args: argparse.Namespace, *, smoke: bool = False) -> Question:
    default = None if args.protocol in DTE_PROTOCOLS else ROWS
    rows = default if args.rows == AUTO else args.rows
    return Question(args.protocol, rows, args.seeds, smoke)


def _watch(*, quiet: bool) -> Callable[[Iterator[Item], int], Iterator[Item]]:
    meter = terminal_progress(quiet=quiet)

    def watched(runs: Iterator[Item], total: int) -> Iterator[Item]:
        return runs if meter is None else meter("running", runs, total, lambda _: 1)

    return watched


def tables(args: argparse.Namespace) -> None:
    """Print the tables of one protocol, or write the page of all."""
    if args.page is not None:
        if others := [name for name, usual in ASKED.items() if getattr(args, name) != usual]:
            args.wrong(f"the page is made of all lines: leave out --{', --'.join(others)}")
        write_page(args.page, args.lines or FOLDER)
        return
    path = args.lines or FOLDER / f"{args.protocol}.jsonl"
    question = _question(args)
    chosen = None if args.systems is None else find_systems(args.systems)
    found = select(args.datasets, args.suite)
    sys.stdout.write(printed(path, question, chosen, found, markdown=args.markdown))


def lines(args: argparse.Namespace) -> None:
    """Show the lines behind cells."""
    path = args.lines or FOLDER / f"{args.protocol}.jsonl"
    question = _question(args)
    wanted = {
        job
        for dataset in select(args.datasets, args.suite)
        for part in dataset.parts
        for system in find_systems(args.systems)
        for job in question.list_jobs(part, system)
    }
    runs = read_runs(path)
    found = [(number, run) for number, run in enumerate(runs, 1) if run.job in wanted]
    if not found:
        raise nothing_found(path, runs)
    for number, each in found:
        stale = (
            "" if keep_current([each]) else " (the system is built otherwise by now: not counted)"
        )
        start = f"{path}, line {number}: {each.job.title}{stale}{_other_code(each)}"
        sys.stdout.write(f"{start}\n{_told(each)}\n")


def _other_code(run: Run) -> str:
    """Describe the code of a run of ours, if it is another state than the current one."""
    about = describe_code(run.versions.get("altbi code")) if run.source.startswith("altbi") else ""
    return f" ({printable(about)})" if about else ""


def _told(run: Run) -> str:
    """Say what a line holds, and the command that would write it again."""
    dataset = find_part(run.file)[0]
    name = dataset.label if len(dataset.parts) == 1 else run.file
    words = ["altbi-bench", "run", "--datasets", name, "--systems", run.system]
    words += ["--protocol", run.protocol, "--seeds", f"{run.seed},", "--lines", "again.jsonl"]
    words += ["--rows", "all" if run.rows is None else str(run.rows)]
    facts = {
        name: value
        for name, value in asdict(run).items()
        if name not in Job.__slots__ and value not in (None, {}, [])
    }
    return f"  {json.dumps(facts)}\n  {shlex.join(words)}"


def quick(args: argparse.Namespace) -> int:
    """Run, then print."""
    args.systems, args.protocol, args.suite = list(QUICK), "transductive", "tables"
    code = run(args)
    args.page = None
    tables(args)
    return code


def ablation(args: argparse.Namespace) -> int:
    """Run what is left of the ablations and of the trainings to watch, then print."""
    from altbi_bench.ablation.tables import ablation_tables
    from altbi_bench.figures.figure import ABLATION, TRACES
    from altbi_bench.traces.records import current_traces, read_traces

    runs_at, traces_at = args.lines / ABLATION, args.lines / TRACES
    panels, chosen = find_panels(args.settings), select(args.datasets, "tables")
    files = {part.file for dataset in chosen for part in dataset.parts}
    if not args.no_runs:
        _ablate(args, panels, chosen, files)
    runs = [run for run in read_runs(runs_at) if run.file in files and not run.smoke]
    traces = [trace for trace in current_traces(read_traces(traces_at)) if trace.file in files]
    if not runs and not traces:
        do = "`altbi-bench ablation` without --no-runs"
        raise nothing_found(runs_at, read_runs(runs_at), do)
    grid = markdown_grid if args.markdown else plain_grid
    tables = ablation_tables(runs, [] if args.settings else traces, grid, panels)
    sys.stdout.write("\n\n".join(tables) + "\n")
    last = {run.job.title: run.error for run in keep_latest(keep_current(runs)).values()}
    last |= {trace.job.title: trace.error for trace in traces}
    failed = {title: reason for title, reason in last.items() if reason is not None}
    for title, reason in failed.items():
        sys.stderr.write(f"{title}: {printable(' '.join(reason.split()))}\n")
    return 1 if failed else 0


def _ablate(
    args: argparse.Namespace, panels: Sequence[Panel], chosen: Sequence[Dataset], files: set[str]
) -> None:
    """Run what the lines lack; trainings are watched where no setting was asked for by name."""
    from altbi_bench.ablation.experiments import at_hand, figure_jobs, trace_jobs, variant_jobs
    from altbi_bench.figures.figure import ABLATION, TRACES
    from altbi_bench.traces.records import run_traces

    limits, retry = Limits(args.processes, args.threads, args.limit), args.retry
    jobs = variant_jobs(panels, chosen, args.seeds)
    run_all(args.lines / ABLATION, jobs, limits, _watch(quiet=args.quiet), retry=retry)
    if args.settings is None:
        asked = [*figure_jobs(), *trace_jobs(chosen, args.seeds)]
        watched = at_hand(job for job in asked if job.file in files)
        run_traces(args.lines / TRACES, watched, limits, _watch(quiet=args.quiet), retry=retry)


def figures(args: argparse.Namespace) -> None:
    """Write the page of figures."""
    from altbi_bench.figures.page import write_figures

    write_figures(args.page, args.lines)


def completion(args: argparse.Namespace) -> None:
    """Print the script that makes a shell complete the commands, their options and file names."""
    import shtab

    sys.stdout.write(shtab.complete(build_parser(), shell=args.shell) + "\n")
