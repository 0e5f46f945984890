"""The commands: convert the arguments, call the library, print the result.

Modules that load torch are imported after the table was opened, so that errors about the table
appear immediately.
"""

from __future__ import annotations

import argparse
import json
import shlex
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from altbi.cli import name_stdout_errors
from altbi.cli._arguments import (
    check_engine,
    create_engine,
    open_input,
    read_selection,
    read_settings,
)
from altbi.cli._output_paths import resolve_output
from altbi.cli._progress import terminal_progress
from altbi.errors import escape_text
from altbi.io import (
    TableWriter,
    atomic_file,
    infer_format,
    no_progress,
    open_stream_writer,
    open_writer,
    report_errors_as,
)

if TYPE_CHECKING:
    import pyarrow as pa

    from altbi.model import FittedModel
    from altbi.model._score_source import ScoreSummary
    from altbi.pipeline import Pipeline, PreparedTable, WriterFactory
    from altbi.report import Summary


def detect(args: argparse.Namespace) -> None:
    """Run `altbi detect`: fit a detector, then score, explain and report all rows of the table.

    All files are written into the output folder. With ``--output -`` only the scores are written,
    to stdout, and warnings are printed to stderr; else a summary is printed. Either of a privacy
    budget and --release-scores without the other exits with code 2.
    """
    scores_format = args.format or "csv"
    page = not args.no_report
    scores = f"scores.{scores_format}" if args.engine is None else "scores"
    names = [scores, "reasons.csv", "duplicates.csv", "model.altbi"]
    names += ["report.html"] if page else []
    folder = resolve_output(args, "-altbi", names)
    check_engine(args)
    if args.epsilon is not None and not args.release_scores:
        args.wrong(
            "detect writes scores of the training rows, which a privacy budget does not cover: "
            "use fit, or pass --release-scores"
        )
    if args.release_scores and args.epsilon is None:
        args.wrong("--release-scores belongs to a privacy budget: pass --epsilon too")
    with open_pipeline(args) as pipeline:
        settings = read_settings(args, pipeline.source.schema.names)
        if folder is None:
            prepared = pipeline.fit(settings)
            scored = pipeline.score(prepared, _open_stdout(args.format, raw=args.raw))
            print_warnings(args, _collect_notes(pipeline, prepared, scored))
            return
        summary = pipeline.run(settings, folder, scores_format, report=page)
    files = [str(folder / name) for name in names]
    _print_summary(args, summary, files, page=page)


def fit(args: argparse.Namespace) -> None:
    """Run `altbi fit`: fit a model to the table, write the model file, and print a short text.

    Standard output is not possible, and exits with code 2.
    """
    path = resolve_output(args, ".altbi")
    if path is None:
        args.wrong("a model cannot be written to stdout: pass a file with --output")
        return
    with atomic_file(path) as temporary, open_pipeline(args) as pipeline:
        prepared = pipeline.fit(read_settings(args, pipeline.source.schema.names))
        with report_errors_as(path):
            temporary.write_bytes(prepared.model.to_bytes())
    from altbi.cli._printing import print_fit

    name = pipeline.source.name
    print_result(
        args,
        lambda: print_fit(name, prepared, path),
        lambda: _describe_fit(name, prepared, path),
    )


def score(args: argparse.Namespace) -> None:
    """Run `altbi score`: score the table with a model file, write the scores, and print a summary.

    If the scores go to stdout, only warnings are printed, to stderr. With an engine, the output is
    a folder.
    """
    if args.engine is not None:
        _score_partitions(args)
        return
    check_engine(args)
    path = resolve_output(args, f"-scores.{args.format or 'csv'}", stdout_for_stdin=True)
    with (
        open_output(path, args.format, raw=args.raw) as output,
        open_pipeline(args) as pipeline,
    ):
        prepared = pipeline.prepare(load_model(args))
        scored = pipeline.score(prepared, output)
        if path is None:
            print_warnings(args, _collect_notes(pipeline, prepared, scored))
            return
        summary = pipeline.summarize(prepared, scored, pipeline.explain_top(prepared, scored))
    _print_summary(args, summary, [str(path)], page=False)


def _score_partitions(args: argparse.Namespace) -> None:
    """Score a table with an engine, write one Parquet file for each partition, and print a summary.

    Partitions that an interrupted run has finished are not scored again. Options that do not suit
    an engine exit with code 2. A folder with files of another run raises a `ParameterError`.
    """
    from altbi.distributed._pipeline import DistributedPipeline

    path = resolve_output(args, "-scores")
    check_engine(args)
    if path is None:
        return
    with open_pipeline(args) as pipeline:
        if not isinstance(pipeline, DistributedPipeline):
            raise TypeError("an engine needs a distributed pipeline")
        prepared = pipeline.prepare(load_model(args))
        scored = pipeline.score_into(prepared, path)
        summary = pipeline.summarize(prepared, scored, pipeline.explain_top(prepared, scored))
    _print_summary(args, summary, [str(path)], page=False)


def explain(args: argparse.Namespace) -> None:
    """Run `altbi explain`: print or write the reasons of the scores of some rows.

    The rows are those of --rows, each once; by default all rows are scored to find the highest
    scores. With --output the reasons are a table file, or CSV on stdout for ``-``. Warnings are
    printed to stderr; those about drift only if all rows are scored.
    """
    path = None if args.output is None else resolve_output(args, "")
    with open_output(path, None, raw=args.raw) as output:
        with open_pipeline(args) as pipeline:
            from altbi.report._summarize import build_reasons_table

            prepared = pipeline.prepare(load_model(args))
            notes: Sequence[str] = prepared.notes
            if args.rows is None:
                scored = pipeline.score(prepared)
                explained = pipeline.explain_top(prepared, scored)
                notes = pipeline.summarize(prepared, scored, explained).notes
            else:
                explained = pipeline.explain_at(prepared, list(dict.fromkeys(args.rows)))
            reasons = build_reasons_table(explained, prepared.selected)
        if args.output is not None:
            with output(reasons.schema) as writer:
                writer.write(reasons)
        elif args.json:
            _write_json(reasons.to_pylist())
        else:
            from altbi.cli._printing import print_reasons

            with name_stdout_errors():
                print_reasons(reasons)
    print_warnings(args, notes)


def report(args: argparse.Namespace) -> None:
    """Run `altbi report`: score the table with a model file, and write the report page.

    With ``--output -`` the page goes to stdout, without a summary.
    """
    from altbi.report import render

    path = resolve_output(args, "-report.html")
    with open_pipeline(args) as pipeline:
        prepared = pipeline.prepare(load_model(args))
        scored = pipeline.score(prepared)
        summary = pipeline.summarize(prepared, scored, pipeline.explain_top(prepared, scored))
        summary = pipeline.add_duplicates(summary, prepared, "the report")
    page = render(summary).encode()
    if path is None:
        with name_stdout_errors():
            _get_binary_stdout().write(page)
        return
    with atomic_file(path) as temporary, report_errors_as(path):
        temporary.write_bytes(page)
    _print_summary(args, summary, [str(path)], page=True)


def inspect(args: argparse.Namespace) -> None:
    """Run `altbi inspect`: print the content of a model file, as JSON with --json, else as text."""
    import msgspec

    from altbi.model._inspection import read_description, render

    description = read_description(args.file)
    if args.json:
        _write_json(msgspec.to_builtins(description))
    else:
        with name_stdout_errors():
            sys.stdout.write(render(description))


def demo(args: argparse.Namespace) -> None:
    """Run `altbi demo`: find and print the outliers of an embedded table of biopsies.

    The table and all results are written into the folder --output.
    """
    from altbi._demo import run_demo
    from altbi.cli._printing import print_demo, summary_to_json

    found = run_demo(
        Path(args.output), args.seed, terminal_progress(quiet=args.json) or no_progress
    )
    if not args.json:
        with name_stdout_errors():
            print_demo(found)
        return
    counts = {
        "malignant": found.malignant,
        "in_top_ten": found.in_top_ten,
        "in_top_twenty": found.in_top_twenty,
    }
    _write_json(summary_to_json(found.summary, found.files) | counts)


def completion(args: argparse.Namespace) -> None:
    """Run `altbi completion`: print the script with which a shell completes commands."""
    import shtab

    from altbi.cli._parser import build_parser

    sys.stdout.write(shtab.complete(build_parser(), shell=args.shell) + "\n")


@contextmanager
def open_pipeline(args: argparse.Namespace) -> Iterator[Pipeline]:
    """Open the table, and yield the pipeline that processes it.

    The number of threads is set for the process. With --engine, the pipeline is a
    `DistributedPipeline`, and its workers are stopped at the end of the block.
    """
    with open_input(args) as source:
        from altbi.pipeline import Pipeline

        _set_threads(args.threads)
        selection = read_selection(args)
        options: dict[str, Any] = {
            "top": getattr(args, "top", 10),
            "raw": getattr(args, "raw", False),
            "command": shlex.join(["altbi", *args.arguments]),
            "on_progress": terminal_progress(quiet=args.quiet) or no_progress,
        }
        if getattr(args, "duplicates", None) is not None:
            options["duplicates"] = args.duplicates
        engine = create_engine(args) if "engine" in args else None
        if engine is None:
            yield Pipeline(source, selection, **options)
            return
        from altbi.distributed._pipeline import DistributedPipeline

        with engine:
            yield DistributedPipeline(source, selection, engine, **options)


def load_model(args: argparse.Namespace) -> FittedModel:
    """Load the model file of --model; an invalid file raises a `ModelFileError`.

    The option --as, which is for a fit, exits with code 2.
    """
    if getattr(args, "column_roles", None):
        args.wrong("--as is for a fit: a model keeps the roles of its fit")
    from altbi.model import FittedModel

    return FittedModel.load(args.model)


def _set_threads(threads: int | None) -> None:
    """Limit the threads of BLAS, scoring and Arrow in this process; None changes nothing."""
    import pyarrow as pa

    from altbi._threads import limit_threads

    if threads is not None:
        limit_threads(threads)
        pa.set_cpu_count(threads)


@contextmanager
def open_output(path: Path | None, format_: str | None, *, raw: bool) -> Iterator[WriterFactory]:
    """Yield a function that opens the output for a given schema.

    The output is a file, or stdout if `path` is None. The file is written under a temporary name,
    and renamed when the block ends without an error. Without a format, it follows from the suffix
    of the path; on stdout it is CSV. `raw` is whether CSV has formulas unchanged.
    """
    if path is None:
        yield _open_stdout(format_, raw=raw)
        return
    written = format_ or infer_format(str(path))
    with atomic_file(path) as temporary:
        yield lambda schema: open_writer(temporary, str(path), written, schema, raw=raw)


def _open_stdout(format_: str | None, *, raw: bool) -> WriterFactory:
    """Return a function that opens stdout as a table writer; the default format is CSV."""
    return lambda schema: _open_stdout_writer(format_ or "csv", schema, raw=raw)


@contextmanager
def _open_stdout_writer(format_: str, schema: pa.Schema, *, raw: bool) -> Iterator[TableWriter]:
    """Yield a writer to stdout, which disk errors name."""
    with (
        name_stdout_errors(),
        open_stream_writer(_get_binary_stdout(), format_, schema, raw=raw) as writer,
    ):
        yield writer


def _get_binary_stdout() -> BinaryIO:
    """Flush standard output, and return its binary stream, so that bytes follow the text."""
    sys.stdout.flush()
    return sys.stdout.buffer


def _describe_fit(name: str, prepared: PreparedTable, path: Path) -> dict[str, Any]:
    """Return the facts about a fitted model that `altbi fit --json` prints."""
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
    args: argparse.Namespace, summary: Summary, files: list[str], *, page: bool
) -> None:
    """Print the result for a scored table, as text, or as JSON with --json.

    `page` is whether a report page was written; the text then has fewer warnings.
    """
    from altbi.cli._printing import print_summary, summary_to_json

    print_result(
        args,
        lambda: print_summary(summary, files, page=page),
        lambda: summary_to_json(summary, files),
    )


def _collect_notes(
    pipeline: Pipeline, prepared: PreparedTable, scored: ScoreSummary
) -> Sequence[str]:
    """Return the warnings about the data and its scores, those of a summary."""
    explained = pipeline.explain_top(prepared, scored)
    return pipeline.summarize(prepared, scored, explained).notes


def print_warnings(args: argparse.Namespace, notes: Sequence[str]) -> None:
    """Print warnings to stderr, one in each line; print nothing with --quiet."""
    if not args.quiet and sys.stderr is not None:
        sys.stderr.writelines(f"altbi: warning: {escape_text(note)}\n" for note in notes)


def print_result(
    args: argparse.Namespace, print_text: Callable[[], None], to_json: Callable[[], dict[str, Any]]
) -> None:
    """Print a result as JSON with --json, nothing with --quiet, and otherwise as text.

    --json has precedence over --quiet. Only the chosen function is called.
    """
    if args.json:
        _write_json(to_json())
    elif not args.quiet:
        with name_stdout_errors():
            print_text()


def _write_json(value: object) -> None:
    """Print a value as indented JSON; NaN or infinity raises a `ValueError`."""
    import msgspec

    # With an indentation, `json.dumps` takes ten times as long.
    text = msgspec.json.format(json.dumps(value, allow_nan=False), indent=2)
    with name_stdout_errors():
        sys.stdout.write(text + "\n")
