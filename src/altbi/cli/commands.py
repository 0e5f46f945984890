"""The commands on tables: read the arguments, call the library, say what came of it.

What brings torch along is imported after the table was opened: a table that cannot be read is said
at once.
"""

from __future__ import annotations

import argparse
import json
import shlex
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

from altbi.cli.engine import check_engine, engine_of
from altbi.cli.meter import terminal_meter
from altbi.cli.private import private_changes
from altbi.cli.streams import binary_stdout, opened_table
from altbi.cli.words import PAGE_HINT, told_fit, told_reasons, told_summary, totals
from altbi.files import Source, format_of, open_sink, stream_sink
from altbi.report import can_report, render, require_report
from altbi.whole import told_as, whole_file

if TYPE_CHECKING:
    from altbi.detectors import GenerativeDetector
    from altbi.engines import Engine
    from altbi.jobs import Destination, Job

__all__ = ["detect", "explain", "fit", "report", "score"]

_PACKED = (".gz", ".bz2", ".zst", ".lz4", ".xz", ".zip")
_TABLES = (
    *(".csv", ".tsv", ".txt", ".parquet", ".pq", ".arrow", ".feather", ".ipc"),
    *(".jsonl", ".ndjson", ".json", ".npz", ".npy"),
)


def detect(args: argparse.Namespace) -> None:
    """Fit, score, explain and report."""
    format_ = args.format or "csv"
    page = can_report() and not args.no_report
    scores = f"scores.{format_}" if args.engine is None else "scores"
    names = [scores, "reasons.csv", "model.altbi", *(["report.html"] if page else [])]
    folder = _output(args, "-altbi", names)
    check_engine(args)
    if args.epsilon is not None and not args.release_scores:
        args.wrong(
            "detect writes scores of the rows that it learns from, which a privacy budget does not "
            "cover: use fit, or say --release-scores"
        )
    with opened_table(args) as source, _engine(args) as engine:
        job = _job(args, source, _detector(args), engine)
        if folder is None:
            job.score(job.fit(), _to_stdout(args.format))
            return
        summary = job.detect(folder, format_, page=page)
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
        with told_as(path):
            job.detector.save(draft)
    _say(args, lambda: told_fit(job, ready, path), lambda: _fit_facts(job, ready.notes, path))


def score(args: argparse.Namespace) -> None:
    """Score a table with a model."""
    if args.engine is not None:
        _score_apart(args)
        return
    check_engine(args)
    ending = args.format or "csv"
    path = _output(args, f"-scores.{ending}", stdout_for_stdin=True)
    with _destination(path, args.format) as destination, opened_table(args) as source:
        job = _job(args, source, _loaded(args))
        ready = job.prepare()
        found = job.score(ready, destination)
        if path is None:
            return
        summary = job.summary(ready, found, job.top_findings(ready, found))
    _say(args, lambda: told_summary(summary, [str(path)]), lambda: totals(summary, [str(path)]))


def _score_apart(args: argparse.Namespace) -> None:
    """Score a table with a model, part by part."""
    path = _output(args, "-scores")
    check_engine(args)
    if path is None:
        return
    with opened_table(args) as source, _engine(args) as engine:
        job = _job(args, source, _loaded(args), engine)
        ready = job.prepare()
        found = job.score_into(ready, path)
        summary = job.summary(ready, found, job.top_findings(ready, found))
    _say(args, lambda: told_summary(summary, [str(path)]), lambda: totals(summary, [str(path)]))


def explain(args: argparse.Namespace) -> None:
    """Say why rows have their scores."""
    path = None if args.output is None else _output(args, "")
    with _destination(path, None) as destination:
        with opened_table(args) as source:
            job = _job(args, source, _loaded(args))
            ready = job.prepare()
            if args.rows is None:
                findings = job.top_findings(ready, job.score(ready))
            else:
                findings = job.findings_at(ready, args.rows)
            reasons = job.reasons(ready, findings)
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
        job = _job(args, source, _loaded(args))
        ready = job.prepare()
        found = job.score(ready)
        summary = job.summary(ready, found, job.top_findings(ready, found))
    page = render(summary).encode()
    if path is None:
        binary_stdout().write(page)
        return
    with whole_file(path) as draft, told_as(path):
        draft.write_bytes(page)
    _say(args, lambda: told_summary(summary, [str(path)]), lambda: totals(summary, [str(path)]))


def _engine(args: argparse.Namespace) -> AbstractContextManager[Engine | None]:
    return engine_of(args) or nullcontext()


def _job(
    args: argparse.Namespace,
    source: Source,
    detector: GenerativeDetector,
    engine: Engine | None = None,
) -> Job:
    """Gather what all jobs share."""
    from altbi.jobs import Choice, Job, unwatched

    _use_threads(args.threads)
    return Job(
        source,
        detector,
        Choice(
            columns=tuple(args.columns),
            exclude=tuple(args.exclude),
            ids=tuple(args.id),
            label=args.label,
            missing=tuple(args.missing),
            keep=getattr(args, "keep_columns", False),
        ),
        top=getattr(args, "top", 10),
        command=shlex.join(["altbi", *args.words]),
        watch=terminal_meter(quiet=args.quiet) or unwatched,
        engine=engine,
    )


def _loaded(args: argparse.Namespace) -> GenerativeDetector:
    from altbi.detectors import load

    return load(args.model)


def _detector(args: argparse.Namespace) -> GenerativeDetector:
    from altbi.detectors import ALTBI, ODIM

    methods = {
        "altbi": (ALTBI, {}),
        "altbi-glow": (ALTBI, {"backbone": "glow"}),
        "odim": (ODIM, {}),
    }
    detector, changes = methods[args.method]
    if args.preset == "paper" and args.method != "altbi":
        args.wrong(f"there is no preset paper of {args.method}: use reference, or leave it out")
    if args.score_by:
        if args.method == "odim":
            args.wrong("odim scores by loss alone: leave --score-by out")
        changes["score_by"] = args.score_by
    changes |= private_changes(args)
    build = getattr(detector, args.preset) if args.preset else detector
    return build(
        contamination=args.contamination, max_rows=args.max_rows, random_state=args.seed, **changes
    )


def _use_threads(threads: int | None) -> None:
    import pyarrow as pa
    import torch

    if threads is not None:
        torch.set_num_threads(threads)
        pa.set_cpu_count(threads)


def _output(
    args: argparse.Namespace,
    ending: str,
    names: Sequence[str] = ("",),
    *,
    stdout_for_stdin: bool = False,
) -> Path | None:
    """Find where the output goes: None is stdout; without a word it is beside the table.

    `names` are the files in it, if it is a folder; none may be what the command reads.
    """
    output = args.output
    if output is None and args.table == "-":
        if not stdout_for_stdin:
            args.wrong("--output is needed when the table comes from stdin")
        output = "-"
    if output == "-":
        if args.json:
            args.wrong("--json and the output both want stdout: name an output")
        return None
    path = _beside(Path(args.table), ending) if output is None else Path(output)
    for name in names:
        _refuse_what_is_read(args, path / name)
    return path


def _beside(table: Path, ending: str) -> Path:
    """Name an output after the table, without the endings of format and compression."""
    table = table if table.name not in ("", "..") else table.resolve()
    stem = table.name
    for endings in (_PACKED, _TABLES):
        stem = next((stem[: -len(e)] for e in endings if stem.lower().endswith(e)), stem)
    return table.with_name((stem or table.name) + ending)


def _refuse_what_is_read(args: argparse.Namespace, path: Path) -> None:
    for read in (args.table, getattr(args, "model", "-")):
        if read != "-" and path.exists() and Path(read).exists() and path.samefile(read):
            args.wrong(f"{path} is read, so that it cannot be the output: name another --output")
    # An engine writes a folder of Parquet files.
    file = path if getattr(args, "engine", None) is None or path.suffix else path / "0.parquet"
    if args.table != "-" and Path(args.table).is_dir() and _is_data_in(Path(args.table), file):
        args.wrong(f"{path} would be a part of the table that is read: name another --output")


def _is_data_in(folder: Path, path: Path) -> bool:
    """Tell whether a file in this place would be read as a part of a folder."""
    from altbi.files import is_part_of_table

    folder, path = folder.resolve(), path.resolve()
    return path.is_relative_to(folder) and is_part_of_table(path.relative_to(folder))


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
