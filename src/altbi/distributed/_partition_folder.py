"""The folder of scores that a distributed pipeline writes, with the state that lets it resume.

The scores of each partition are one Parquet file. The subfolder ``_altbi``, which readers of tables
skip, holds the model, the scoring plan, and the score summary of each finished partition.
"""

import hashlib
import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, final

import numpy as np
import pyarrow as pa
import pyarrow.ipc

from altbi._version import __version__
from altbi.distributed._score_batches import load_cached
from altbi.encoding import Drift
from altbi.errors import EngineError, ParameterError
from altbi.io import (
    UNFINISHED_MARKER,
    ColumnParser,
    Label,
    SelectedColumns,
    atomic_file,
    report_errors_as,
)
from altbi.model import FittedModel
from altbi.model._score_source import ScoreSummary

STATE_FOLDER = "_altbi"
PLAN_FILE, MODEL_FILE = "plan.json", "model.altbi"
UNFINISHED = "Some partitions are missing. Run the command that wrote this folder to continue.\n"
DRIFT_COUNTERS = ("missing", "unseen", "outside", "others")


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class ScoringPlan:
    """How to score a partition."""

    parser: ColumnParser  # converts the values of the table to the types that the model expects
    selected: SelectedColumns
    top: int  # number of rows with the highest scores to keep

    def to_json(self) -> dict[str, Any]:
        """Convert the plan to plain values for JSON."""
        return {"parser": self.parser.state, "selected": asdict(self.selected), "top": self.top}

    @classmethod
    def from_json(cls, state: dict[str, Any]) -> "ScoringPlan":
        """Build a plan from the values that `to_json` returned, after they were saved as JSON."""
        selected = state["selected"]
        label = selected["label"]
        if label is not None:
            label = Label(label["column"], label["value"], tuple(label["missing"]))
        names = {name: tuple(selected[name]) for name in ("features", "ids", "kept")}
        return cls(
            parser=ColumnParser.from_state(state["parser"]),
            selected=SelectedColumns(**names, label=label),
            top=state["top"],
        )


@final
class PartitionFolder:
    """A folder with the scores of a table, one file for each partition.

    `fingerprint` is a hash of model, table and plan. Files with another one belong to another run.
    """

    def __init__(self, folder: Path, plan: ScoringPlan, fingerprint: str) -> None:
        self.folder = folder
        self.plan = plan
        self.fingerprint = fingerprint

    @classmethod
    def create_or_resume(
        cls,
        folder: Path,
        plan: ScoringPlan,
        model: FittedModel,
        paths: Sequence[str],
        partitions: Sequence[tuple[int, int]],
    ) -> "PartitionFolder":
        """Create a folder, or resume one of the same model, table and plan.

        If partitions are missing, it writes the model, the plan, and a marker that the folder is
        unfinished. A file, or a folder with files of another run, raises a `ParameterError`.

        `paths` are the files of the table, which their sizes and modification times identify.
        `partitions` has the first row and the number of rows of each partition.
        """
        folder, content = folder.absolute(), model.to_bytes()
        run = {
            "version": __version__,
            "model": hashlib.sha256(content).hexdigest(),
            "files": [_describe_file(path) for path in paths],
            "partitions": partitions,
            "plan": plan.to_json(),
        }
        fingerprint = hashlib.sha256(json.dumps(run, sort_keys=True).encode()).hexdigest()
        created = cls(folder, plan, fingerprint)
        _check_same_run(folder, fingerprint)
        if all(map(created.is_done, range(len(partitions)))):
            return created
        state = folder / STATE_FOLDER
        state.mkdir(parents=True, exist_ok=True)
        _write_bytes(folder / UNFINISHED_MARKER, UNFINISHED.encode())
        _write_bytes(state / MODEL_FILE, content)
        saved = {"fingerprint": fingerprint, **run}
        _write_bytes(state / PLAN_FILE, json.dumps(saved, indent=1, sort_keys=True).encode())
        return created

    def scores_path(self, index: int) -> Path:
        """Return the path of the Parquet file for the scores of the partition at `index`."""
        return self.folder / f"part-{index:05}.parquet"

    def is_done(self, index: int) -> bool:
        """Return whether this run has written the scores and the summary of a partition.

        Files of another run, or a scores file whose size has changed, do not count.
        """
        try:
            record = json.loads(self._state_path(index, "json").read_bytes())
            size = self.scores_path(index).stat().st_size
        except FileNotFoundError:
            return False
        return bool(record["fingerprint"] == self.fingerprint and record["bytes"] == size)

    def write_summary(self, index: int, summary: ScoreSummary) -> None:
        """Write the summary of a partition into the state folder, and mark the partition as done.

        The scores file must exist. The JSON file is written last, because `is_done` reads it.
        """
        values, scores, rows = summary.top.sort_by_row()
        names = [f"c{number}" for number in range(len(values.column_names))]
        top = {"row": rows, "score": scores, **dict(zip(names, values.columns, strict=True))}
        _write_arrow(self._state_path(index, "top.arrow"), pa.table(top))
        # Differences between the sorted keys compress better than the keys.
        counts = summary.counts
        bins = {"difference": np.diff(counts.keys, prepend=0), "count": counts.counts}
        _write_arrow(self._state_path(index, "bins.arrow"), pa.table(bins))
        if self.plan.selected.label is not None:
            scores, labels = map(np.concatenate, zip(*summary.labelled, strict=True))
            labelled = pa.table({"score": scores, "label": labels})
            _write_arrow(self._state_path(index, "labels.arrow"), labelled)
        record = {
            "fingerprint": self.fingerprint,
            "bytes": self.scores_path(index).stat().st_size,
            "first_row": summary.first_row,
            "rows": summary.n_rows,
            "flagged": summary.n_flagged,
            "drift": {name: getattr(summary.drift, name) for name in DRIFT_COUNTERS},
        }
        _write_bytes(self._state_path(index, "json"), json.dumps(record).encode())

    def read_summary(self, index: int) -> ScoreSummary:
        """Read the summary of the partition at `index` that `write_summary` has saved."""
        record = json.loads(self._state_path(index, "json").read_bytes())
        summary = ScoreSummary(self.plan.top, record["first_row"])
        summary.n_rows, summary.n_flagged = record["rows"], record["flagged"]
        bins = _read_arrow(self._state_path(index, "bins.arrow"))
        keys = np.cumsum(bins["difference"].to_numpy())
        summary.counts.add_bins(keys, bins["count"].to_numpy())
        counters = {name: Counter(record["drift"][name]) for name in DRIFT_COUNTERS}
        summary.drift = Drift(**counters, rows=summary.n_rows)
        top = _read_arrow(self._state_path(index, "top.arrow"))
        values = top.drop_columns(["row", "score"]).rename_columns(self.plan.selected.to_score)
        summary.top.append(values, top["score"].to_numpy(), top["row"].to_numpy())
        if self.plan.selected.label is not None:
            labelled = _read_arrow(self._state_path(index, "labels.arrow"))
            scores, labels = labelled["score"].to_numpy(), labelled["label"].to_numpy()
            summary.labelled.append((scores, labels.astype(np.bool_)))
        return summary

    def finish(self) -> None:
        """Mark the folder as complete, and remove temporary files of lost workers."""
        for folder in (self.folder, self.folder / STATE_FOLDER):
            for left in folder.glob(".part-*.part"):
                left.unlink(missing_ok=True)
        (self.folder / UNFINISHED_MARKER).unlink(missing_ok=True)

    def _state_path(self, index: int, suffix: str) -> Path:
        """Return the path, in the state folder, of a file about the partition at `index`."""
        return self.folder / STATE_FOLDER / f"part-{index:05}.{suffix}"


@lru_cache(maxsize=2)
def open_folder(folder: str, fingerprint: str) -> tuple[PartitionFolder, FittedModel]:
    """Open a folder that another process has created, and load its model.

    Both are cached for the last two folders. Another version of altbi, or another fingerprint,
    raises an `EngineError`.
    """
    state = Path(folder, STATE_FOLDER)
    run = json.loads((state / PLAN_FILE).read_bytes())
    if run["version"] != __version__:
        raise EngineError(
            f"A worker has altbi {__version__}, but the run was started with {run['version']}. "
            "Install the same version on every machine."
        )
    if run["fingerprint"] != fingerprint:
        raise EngineError(f"{folder}: another run uses this folder now. Choose another folder.")
    opened = PartitionFolder(Path(folder), ScoringPlan.from_json(run["plan"]), fingerprint)
    return opened, load_cached(str(state / MODEL_FILE))


def _check_same_run(folder: Path, fingerprint: str) -> None:
    """Raise a `ParameterError` for a file, or a folder with files of another run or program.

    A folder may be absent or empty, or have this fingerprint. It may also have files of a run that
    stopped before it had written its plan.
    """
    if folder.exists() and not folder.is_dir():
        raise ParameterError(f"{folder}: it is a file, but expected a folder. Choose another path.")
    if not folder.exists() or not any(folder.iterdir()):
        return
    try:
        found = json.loads((folder / STATE_FOLDER / PLAN_FILE).read_bytes())["fingerprint"]
    except (FileNotFoundError, ValueError, KeyError):
        found = None
    if found != fingerprint and not _has_no_plan(folder):
        raise ParameterError(
            f"{folder}: it has files of another run, with another model, other options, or a table "
            "that has changed since. Remove the folder, or pass another --output."
        )


def _has_no_plan(folder: Path) -> bool:
    """Return whether the folder only has files of a run that stopped before it wrote its plan.

    Hidden files are ignored.
    """
    names = {path.name for path in folder.iterdir() if not path.name.startswith(".")}
    state = folder / STATE_FOLDER
    return names <= {UNFINISHED_MARKER, STATE_FOLDER} and not (state / PLAN_FILE).exists()


def _describe_file(path: str) -> tuple[str, int, int]:
    """Return the path, the size in bytes and the modification time in nanoseconds of a file."""
    stat = Path(path).stat()
    return path, stat.st_size, stat.st_mtime_ns


def _write_bytes(path: Path, content: bytes) -> None:
    """Write a file atomically; disk errors state its path, not that of the temporary file."""
    with atomic_file(path) as temporary, report_errors_as(path):
        temporary.write_bytes(content)


def _write_arrow(path: Path, table: pa.Table) -> None:
    """Write a table atomically as a compressed Arrow file.

    Chunks are combined, because an Arrow file allows only one dictionary for each column.
    """
    table = table.unify_dictionaries().combine_chunks()
    options = pa.ipc.IpcWriteOptions(compression="zstd")
    with (
        atomic_file(path) as temporary,
        report_errors_as(path),
        pa.ipc.new_file(str(temporary), table.schema, options=options) as writer,
    ):
        writer.write_table(table)


def _read_arrow(path: Path) -> pa.Table:
    """Read all rows of an Arrow file."""
    with pa.OSFile(str(path)) as file, pa.ipc.open_file(file) as reader:
        return reader.read_all()
