"""The commands on tables: read the arguments, call the library, say what came of it."""

import argparse
import json
import os
import shlex
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from altbi.cli.meter import terminal_meter
from altbi.cli.streams import binary_stdout, opened_table
from altbi.cli.words import PAGE_HINT, told_fit, told_reasons, told_summary, totals
from altbi.detectors import ALTBI
from altbi.files import Source, format_of, open_sink, stream_sink
from altbi.jobs import (
    Choice,
    Destination,
    Job,
    can_report,
    reasons_table,
    require_report,
    unwatched,
)
from altbi.report import render
from altbi.whole import whole_file

__all__ = ["detect", "explain", "fit", "report", "score"]


def detect(args: argparse.Namespace) -> None:
    """Fit, score, explain and report."""
    folder = _output(args, "-altbi")
    page = can_report() and not args.no_report
    with opened_table(args) as source:
        job = _job(args, source, _detector(args))
        if folder is None:
            job.score(job.fit(), _to_stdout(args.format))
            return
        format_ = args.format or "csv"
        summary = job.detect(folder, format_, page=page)
    names = [f"scores.{format_}", "reasons.csv", "model.altbi", *(["report.html"] if page else [])]
    files = [str(folder / name) for name in names]
    hint = "" if page or args.no_report else PAGE_HINT
    _say(args, lambda: told_summary(summary, files, hint), lambda: totals(summary, files))


def fit(args: argparse.Namespace) -> None:
    """Learn a model and write it."""
    path = _output(args, ".altbi")
    if path is None:
        args.wrong("a model cannot be written to stdout: name a file with --output")
        return
    with whole_file(path) as draft, opened_table(args) as source:
        job = _job(args, source, _detector(args))
        ready = job.fit()
        job.detector.save(draft)
    _say(args, lambda: told_fit(job, ready, path), lambda: _fit_facts(job, ready.notes, path))


def score(args: argparse.Namespace) -> None:
    """Score a table with a model."""
    ending = args.format or "csv"
    path = _output(args, f"-scores.{ending}", stdout_for_stdin=True)
    with _destination(path, args.format) as destination, opened_table(args) as source:
        job = _job(args, source, ALTBI.load(args.model))
        ready = job.prepare()
        found = job.score(ready, destination)
        if path is None:
            return
        summary = job.summary(ready, found, job.top_findings(ready, found))
    _say(args, lambda: told_summary(summary, [str(path)]), lambda: totals(summary, [str(path)]))


def explain(args: argparse.Namespace) -> None:
    """Say why rows have their scores."""
    path = None if args.output in (None, "-") else Path(args.output)
    with _destination(path, None) as destination:
        with opened_table(args) as source:
            job = _job(args, source, ALTBI.load(args.model))
            ready = job.prepare()
            if args.rows is None:
                findings = job.top_findings(ready, job.score(ready))
            else:
                findings = job.findings_at(ready, args.rows)
            reasons = reasons_table(findings, ready.chosen)
        if args.output is None:
            text = _json(reasons.to_pylist()) if args.json else told_reasons(reasons)
            sys.stdout.write(text)
            return
        with destination(reasons.schema) as sink:
            sink.write(reasons)


def report(args: argparse.Namespace) -> None:
    """Write the page about a table and a model."""
    require_report()
    path = _output(args, "-report.html")
    with opened_table(args) as source:
        job = _job(args, source, ALTBI.load(args.model))
        ready = job.prepare()
        found = job.score(ready)
        summary = job.summary(ready, found, job.top_findings(ready, found))
    page = render(summary).encode()
    if path is None:
        binary_stdout().write(page)
        return
    with whole_file(path) as draft:
        draft.write_bytes(page)
    _say(args, lambda: told_summary(summary, [str(path)]), lambda: totals(summary, [str(path)]))


def _job(args: argparse.Namespace, source: Source, detector: ALTBI) -> Job:
    """Gather what all jobs share."""
    _use_threads(args.threads)
    return Job(
        source,
        detector,
        Choice(
            columns=tuple(args.columns),
            exclude=tuple(args.exclude),
            ids=tuple(args.id),
            label=getattr(args, "label", None),
            missing=tuple(args.missing),
            keep=getattr(args, "keep_columns", False),
        ),
        top=getattr(args, "top", 10),
        command=shlex.join(["altbi", *args.words]),
        watch=terminal_meter(quiet=args.quiet) or unwatched,
    )


def _detector(args: argparse.Namespace) -> ALTBI:
    build = {"reference": ALTBI.reference, "paper": ALTBI.paper}[args.preset]
    return build(contamination=args.contamination, max_rows=args.max_rows, random_state=args.seed)


def _use_threads(threads: int | None) -> None:
    import pyarrow as pa
    import torch

    if threads is not None:
        torch.set_num_threads(threads)
        pa.set_cpu_count(threads)


def _output(
    args: argparse.Namespace, ending: str, *, stdout_for_stdin: bool = False
) -> Path | None:
    """Find where the output goes: None is stdout; without a word it is beside the table."""
    name = args.output
    if name is None and args.table == "-":
        if not stdout_for_stdin:
            args.wrong("--output is needed when the table comes from stdin")
        name = "-"
    if name == "-":
        if args.json:
            args.wrong("--json and the output both want stdout: name an output")
        return None
    if name is not None:
        return Path(name)
    table = Path(os.path.abspath(args.table))  # noqa: PTH100 - "data/.." must not lead elsewhere
    return table.with_name(_stem(table.name) + ending)


def _stem(name: str) -> str:
    """Give the name without the endings of format and compression."""
    stem, _, _ = name.lstrip(".").partition(".")
    return stem or name


@contextmanager
def _destination(path: Path | None, format_: str | None) -> Iterator[Destination]:
    """Give the place for rows: a file that appears when it is whole, or stdout."""
    if path is None:
        yield _to_stdout(format_)
        return
    written = format_ or format_of(str(path))
    with whole_file(path) as draft:
        yield lambda schema: open_sink(draft, str(path), written, schema)


def _to_stdout(format_: str | None) -> Destination:
    return lambda schema: stream_sink(binary_stdout(), format_ or "csv", schema)


def _fit_facts(job: Job, notes: tuple[str, ...], path: Path) -> dict[str, Any]:
    return {
        "table": job.source.name,
        "rows": job.detector.n_rows_in_,
        "sample": job.detector.n_sample_,
        "columns": job.detector.n_features_in_,
        "threshold": -job.detector.offset_,
        "notes": list(notes),
        "files": [str(path)],
    }


def _say(
    args: argparse.Namespace, text: Callable[[], str], facts: Callable[[], dict[str, Any]]
) -> None:
    """Tell the result on stdout."""
    if args.json:
        sys.stdout.write(_json(facts()))
    elif not args.quiet:
        sys.stdout.write(text())


def _json(facts: object) -> str:
    return json.dumps(facts, indent=2, allow_nan=False) + "\n"
