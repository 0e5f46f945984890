"""The commands on tables: read the arguments, call the library, print the result.

Modules that load torch are imported after the table was opened, so that an unreadable table is
reported at once.
"""

from __future__ import annotations

import argparse
import json
import shlex
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from altbi.cli._engine import check_engine, create_engine
from altbi.cli._output_paths import resolve_output
from altbi.cli._progress import terminal_progress
from altbi.cli._streams import binary_stdout, open_input
from altbi.io import (
    ColumnSelection,
    Source,
    atomic_file,
    infer_format,
    no_progress,
    open_stream_writer,
    open_writer,
    report_errors_as,
)

if TYPE_CHECKING:
    from altbi.model import FittedModel
    from altbi.pipeline import Pipeline, PreparedTable, WriterFactory
    from altbi.report import Summary

__all__ = ["detect", "explain", "fit", "report", "score"]


def detect(args: argparse.Namespace) -> None:
    """Fit, score, explain and report."""
    from altbi.report import can_report

    scores_format = args.format or "csv"
    page = can_report() and not args.no_report
    scores = f"scores.{scores_format}" if args.engine is None else "scores"
    names = [scores, "reasons.csv", "model.altbi", *(["report.html"] if page else [])]
    folder = resolve_output(args, "-altbi", names)
    check_engine(args)
    if args.epsilon is not None and not args.release_scores:
        args.wrong(
            "detect writes scores of the training rows, which a privacy budget does not cover: "
            "use fit, or pass --release-scores"
        )
    with _open_pipeline(args) as pipeline:
        from altbi.cli._detector_options import read_settings

        settings = read_settings(args)
        if folder is None:
            pipeline.score(pipeline.fit(settings), _open_stdout(args.format))
            return
        summary = pipeline.run(settings, folder, scores_format, report=page)
    files = [str(folder / name) for name in names]
    _print_summary(args, summary, files, hint=not page and not args.no_report)


def fit(args: argparse.Namespace) -> None:
    """Fit a model and write it."""
    path = resolve_output(args, ".altbi")
    if path is None:
        args.wrong("a model cannot be written to stdout: pass a file with --output")
        return
    with atomic_file(path) as temporary, _open_pipeline(args) as pipeline:
        from altbi.cli._detector_options import read_settings
        from altbi.cli._output import format_fit

        prepared = pipeline.fit(read_settings(args))
        with report_errors_as(path):
            temporary.write_bytes(prepared.model.to_bytes())
    name = pipeline.source.name
    _print(
        args,
        lambda: format_fit(name, prepared, path),
        lambda: _fit_facts(name, prepared, path),
    )


def score(args: argparse.Namespace) -> None:
    """Score a table with a model."""
    if args.engine is not None:
        _score_partitions(args)
        return
    check_engine(args)
    path = resolve_output(args, f"-scores.{args.format or 'csv'}", stdout_for_stdin=True)
    with _open_output(path, args.format) as output, _open_pipeline(args) as pipeline:
        prepared = pipeline.prepare(_load(args))
        scored = pipeline.score(prepared, output)
        if path is None:
            return
        summary = pipeline.summarize(prepared, scored, pipeline.explain_top(prepared, scored))
    _print_summary(args, summary, [str(path)])


def _score_partitions(args: argparse.Namespace) -> None:
    """Score a table with a model, partition by partition."""
    from altbi.distributed import DistributedPipeline

    path = resolve_output(args, "-scores")
    check_engine(args)
    if path is None:
        return
    with _open_pipeline(args) as pipeline:
        if not isinstance(pipeline, DistributedPipeline):
            raise TypeError("an engine needs a distributed pipeline")
        prepared = pipeline.prepare(_load(args))
        scored = pipeline.score_into(prepared, path)
        summary = pipeline.summarize(prepared, scored, pipeline.explain_top(prepared, scored))
    _print_summary(args, summary, [str(path)])


def explain(args: argparse.Namespace) -> None:
    """Print or write the reasons of rows."""
    from altbi.report._explained_rows import build_reasons_table

    path = None if args.output is None else resolve_output(args, "")
    with _open_output(path, None) as output:
        with _open_pipeline(args) as pipeline:
            prepared = pipeline.prepare(_load(args))
            if args.rows is None:
                explained = pipeline.explain_top(prepared, pipeline.score(prepared))
            else:
                explained = pipeline.explain_at(prepared, args.rows)
            reasons = build_reasons_table(explained, prepared.selected)
        if args.output is None:
            from altbi.cli._output import format_reasons

            text = _to_json(reasons.to_pylist()) if args.json else format_reasons(reasons)
            sys.stdout.write(text)
            return
        with output(reasons.schema) as writer:
            writer.write(reasons)


def report(args: argparse.Namespace) -> None:
    """Write the report page about a table and a model."""
    from altbi.report import render, require_report

    require_report()
    path = resolve_output(args, "-report.html")
    with _open_pipeline(args) as pipeline:
        prepared = pipeline.prepare(_load(args))
        scored = pipeline.score(prepared)
        summary = pipeline.summarize(prepared, scored, pipeline.explain_top(prepared, scored))
    page = render(summary).encode()
    if path is None:
        binary_stdout().write(page)
        return
    with atomic_file(path) as temporary, report_errors_as(path):
        temporary.write_bytes(page)
    _print_summary(args, summary, [str(path)])


@contextmanager
def _open_pipeline(args: argparse.Namespace) -> Iterator[Pipeline]:
    """Open the table, and yield a pipeline for it."""
    with open_input(args) as source:
        if getattr(args, "engine", None) is None:
            yield _create_pipeline(args, source)
            return
        with create_engine(args) as engine:
            from altbi.distributed import DistributedPipeline

            yield DistributedPipeline(source, _read_selection(args), engine, **_options(args))


def _create_pipeline(args: argparse.Namespace, source: Source) -> Pipeline:
    from altbi.pipeline import Pipeline

    return Pipeline(source, _read_selection(args), **_options(args))


def _read_selection(args: argparse.Namespace) -> ColumnSelection:
    return ColumnSelection(
        columns=tuple(args.columns),
        exclude=tuple(args.exclude),
        ids=tuple(args.id),
        label=args.label,
        missing=tuple(args.missing),
        keep=getattr(args, "keep_columns", False),
    )


def _options(args: argparse.Namespace) -> dict[str, Any]:
    """Return the options that all pipelines share, and set the number of threads."""
    _set_threads(args.threads)
    return {
        "top": getattr(args, "top", 10),
        "command": shlex.join(["altbi", *args.words]),
        "on_progress": terminal_progress(quiet=args.quiet) or no_progress,
    }


def _load(args: argparse.Namespace) -> FittedModel:
    from altbi.model import FittedModel

    return FittedModel.load(args.model)


def _set_threads(threads: int | None) -> None:
    import pyarrow as pa
    import torch

    if threads is not None:
        torch.set_num_threads(threads)
        pa.set_cpu_count(threads)


@contextmanager
def _open_output(path: Path | None, format_: str | None) -> Iterator[WriterFactory]:
    """Yield a function that opens the output: a file that appears when complete, or stdout."""
    if path is None:
        yield _open_stdout(format_)
        return
    written = format_ or infer_format(str(path))
    with atomic_file(path) as temporary:
        yield lambda schema: open_writer(temporary, str(path), written, schema)


def _open_stdout(format_: str | None) -> WriterFactory:
    return lambda schema: open_stream_writer(binary_stdout(), format_ or "csv", schema)


def _fit_facts(name: str, prepared: PreparedTable, path: Path) -> dict[str, Any]:
    table = prepared.model.training_table
    return {
        "table": name,
        "rows": table.n_rows,
        "sample": table.n_sample,
        "columns": len(prepared.model.encoder.names),
        "threshold": prepared.model.threshold,
        "notes": list(prepared.notes),
        "files": [str(path)],
    }


def _print_summary(
    args: argparse.Namespace, summary: Summary, files: list[str], *, hint: bool = False
) -> None:
    from altbi.cli._output import PAGE_HINT, format_summary, summary_to_json

    _print(
        args,
        lambda: format_summary(summary, files, PAGE_HINT if hint else ""),
        lambda: summary_to_json(summary, files),
    )


def _print(
    args: argparse.Namespace, text: Callable[[], str], facts: Callable[[], dict[str, Any]]
) -> None:
    """Print the result as text or JSON."""
    if args.json:
        sys.stdout.write(_to_json(facts()))
    elif not args.quiet:
        sys.stdout.write(text())


def _to_json(facts: object) -> str:
    return json.dumps(facts, indent=2, allow_nan=False) + "\n"
