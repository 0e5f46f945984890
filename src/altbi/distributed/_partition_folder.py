"""A folder of Parquet files that are written apart: which are done, and what was found in each.

Beside the files stands a folder `_altbi`, which readers of tables pass over: the model, the plan,
and for each finished file what a report needs of it. All of it is Arrow and JSON.
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
from altbi.distributed._batches import load_once
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
from altbi.model._score_statistics import ScoreCounts

__all__ = ["PartitionFolder", "Plan", "opened"]

STATE = "_altbi"
_PLAN, _MODEL = "plan.json", "model.altbi"
_SENTENCE = "Not all parts are here yet. The command that wrote this goes on from what is there.\n"


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What to do with a part: how its columns are read, what they are for, how many to keep."""

    parser: ColumnParser
    selected: SelectedColumns
    top: int

    @property
    def state(self) -> dict[str, Any]:
        """The same in plain values."""
        return {"parser": self.parser.state, "selected": asdict(self.selected), "top": self.top}

    @classmethod
    def from_state(cls, state: dict[str, Any]) -> "Plan":
        """Give the plan of a state."""
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
    """A folder of parts.

    Parameters
    ----------
    folder : Path
        Where it is.
    plan : Plan
        What is done with each part.
    fingerprint : str
        Of model, table and plan: what has another one belongs to another job.
    """

    def __init__(self, folder: Path, plan: Plan, fingerprint: str) -> None:
        self.folder = folder
        self.plan = plan
        self.fingerprint = fingerprint

    @classmethod
    def begun(
        cls,
        folder: Path,
        plan: Plan,
        model: FittedModel,
        paths: Sequence[str],
        rows: Sequence[tuple[int, int]],
    ) -> "PartitionFolder":
        """Begin a folder, or go on with one of the same model, table and plan.

        Parameters
        ----------
        folder : Path
            Where it is, or will be.
        plan : Plan
            What is done with each part.
        model : FittedModel
            The model.
        paths : sequence of str
            The files of the table.
        rows : sequence of (int, int)
            First row and number of rows of each part.
        """
        folder, content = folder.absolute(), model.to_bytes()
        facts = {
            "version": __version__,
            "model": hashlib.sha256(content).hexdigest(),
            "files": [_facts_of(path) for path in paths],
            "parts": rows,
            "plan": plan.state,
        }
        text = json.dumps(facts, sort_keys=True)
        home = cls(folder, plan, hashlib.sha256(text.encode()).hexdigest())
        _refuse_others(folder, home.fingerprint)
        if all(map(home.is_done, range(len(rows)))):
            return home
        state = folder / STATE
        state.mkdir(parents=True, exist_ok=True)
        _write(folder / UNFINISHED_MARKER, _SENTENCE.encode())
        _write(state / _MODEL, content)
        kept = {"fingerprint": home.fingerprint, **json.loads(text)}
        _write(state / _PLAN, json.dumps(kept, indent=1).encode())
        return home

    def path(self, index: int) -> Path:
        """Name the file of a part."""
        return self.folder / f"part-{index:05}.parquet"

    def is_done(self, index: int) -> bool:
        """Tell whether the file of a part is there, written by this job."""
        try:
            mark = json.loads(self._beside(index, "json").read_bytes())
            size = self.path(index).stat().st_size
        except FileNotFoundError:
            return False
        return bool(mark["fingerprint"] == self.fingerprint and mark["bytes"] == size)

    def keep(self, index: int, found: ScoreSummary) -> None:
        """Write what was found in a part whose file is there; the mark that it is done is last."""
        cells, scores, rows = found.top.sort_by_row()
        places = [f"c{number}" for number in range(len(cells.column_names))]
        top = {"row": rows, "score": scores, **dict(zip(places, cells.columns, strict=True))}
        _write_arrow(self._beside(index, "top.arrow"), pa.table(top))
        _write_arrow(self._beside(index, "bins.arrow"), _bins_of(found.counts))
        if self.plan.selected.label is not None:
            _write_arrow(self._beside(index, "labels.arrow"), _labelled(found))
        drift = {name: getattr(found.drift, name) for name in _DRIFT_COUNTS}
        mark = {
            "fingerprint": self.fingerprint,
            "bytes": self.path(index).stat().st_size,
            "first_row": found.first_row,
            "rows": found.n_rows,
            "flagged": found.n_flagged,
            "surprises": drift,
        }
        _write(self._beside(index, "json"), json.dumps(mark).encode())

    def found(self, index: int) -> ScoreSummary:
        """Read what was found in a part."""
        mark = json.loads(self._beside(index, "json").read_bytes())
        found = ScoreSummary(self.plan.top, mark["first_row"])
        found.n_rows, found.n_flagged = mark["rows"], mark["flagged"]
        bins = _read_arrow(self._beside(index, "bins.arrow"))
        found.counts.add_bins(np.cumsum(bins["gap"].to_numpy()), bins["count"].to_numpy())
        counters = {name: Counter(mark["surprises"][name]) for name in _DRIFT_COUNTS}
        found.drift = Drift(**counters, rows=found.n_rows)
        top = _read_arrow(self._beside(index, "top.arrow"))
        cells = top.drop_columns(["row", "score"]).rename_columns(self.plan.selected.to_score)
        found.top.append(cells, top["score"].to_numpy(), top["row"].to_numpy())
        if self.plan.selected.label is not None:
            known = _read_arrow(self._beside(index, "labels.arrow"))
            scores, labels = known["score"].to_numpy(), known["label"].to_numpy()
            found.labelled.append((scores, labels.astype(np.bool_)))
        return found

    def finish(self) -> None:
        """Say that all parts are there; what lost workers left is removed."""
        for folder in (self.folder, self.folder / STATE):
            for left in folder.glob(".part-*.part"):
                left.unlink(missing_ok=True)
        (self.folder / UNFINISHED_MARKER).unlink(missing_ok=True)

    def _beside(self, index: int, ending: str) -> Path:
        return self.folder / STATE / f"part-{index:05}.{ending}"


def _bins_of(counts: ScoreCounts) -> pa.Table:
    """Give the bins as gaps between them, which are small and alike: little is left of them."""
    return pa.table({"gap": np.diff(counts.keys, prepend=0), "count": counts.counts})


_DRIFT_COUNTS = ("missing", "unseen", "outside", "others")


@lru_cache(maxsize=2)
def opened(folder: str, fingerprint: str) -> tuple[PartitionFolder, FittedModel]:
    """Give a folder that was begun elsewhere, and its model: once in each process."""
    state = Path(folder, STATE)
    facts = json.loads((state / _PLAN).read_bytes())
    if facts["version"] != __version__:
        raise EngineError(
            f"A worker has altbi {__version__}, but the job was begun with {facts['version']}. "
            "Install the same version on every machine."
        )
    if facts["fingerprint"] != fingerprint:
        raise EngineError(f"{folder}: another job has taken the folder over. Name another.")
    home = PartitionFolder(Path(folder), Plan.from_state(facts["plan"]), fingerprint)
    return home, load_once(str(state / _MODEL))


def _refuse_others(folder: Path, fingerprint: str) -> None:
    """Refuse a folder that something else has written."""
    if folder.exists() and not folder.is_dir():
        raise ParameterError(f"{folder}: it is a file, but expected a folder. Name another.")
    if not folder.exists() or not any(folder.iterdir()):
        return
    try:
        theirs = json.loads((folder / STATE / _PLAN).read_bytes())["fingerprint"]
    except (FileNotFoundError, ValueError, KeyError):
        theirs = None
    if theirs != fingerprint and not _only_begun(folder):
        raise ParameterError(
            f"{folder}: it holds what another job has written, with another model, other options "
            "or a table that has changed since. Remove the folder, or name another --output."
        )


def _only_begun(folder: Path) -> bool:
    """Tell whether a job was lost here before its plan was written."""
    names = {path.name for path in folder.iterdir() if not path.name.startswith(".")}
    state = folder / STATE
    return names <= {UNFINISHED_MARKER, STATE} and not (state / _PLAN).exists()


def _facts_of(path: str) -> tuple[str, int, int]:
    facts = Path(path).stat()
    return path, facts.st_size, facts.st_mtime_ns


def _labelled(found: ScoreSummary) -> pa.Table:
    scores = np.concatenate([scores for scores, _ in found.labelled])
    labels = np.concatenate([labels for _, labels in found.labelled])
    return pa.table({"score": scores, "label": labels})


def _write(path: Path, content: bytes) -> None:
    with atomic_file(path) as draft, report_errors_as(path):
        draft.write_bytes(content)


def _write_arrow(path: Path, table: pa.Table) -> None:
    whole, small = (
        table.unify_dictionaries().combine_chunks(),
        pa.ipc.IpcWriteOptions(compression="zstd"),
    )
    with (
        atomic_file(path) as draft,
        report_errors_as(path),
        pa.ipc.new_file(str(draft), whole.schema, options=small) as end,
    ):
        end.write_table(whole)


def _read_arrow(path: Path) -> pa.Table:
    with pa.OSFile(str(path)) as file, pa.ipc.open_file(file) as reader:
        return reader.read_all()
