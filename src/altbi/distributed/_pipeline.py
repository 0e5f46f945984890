"""The pipeline of a table that is read and scored in partitions."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, final

from altbi.distributed._engines import Engine
from altbi.distributed._partition_folder import ScoringPlan
from altbi.distributed._partitions import scan_partitions, score_partitions
from altbi.duplicates import MAX_ROWS
from altbi.io import (
    ColumnSelection,
    ExpectedType,
    ProgressCallback,
    ScanResult,
    SelectedColumns,
    Source,
    no_progress,
)
from altbi.model import FitSettings, FittedModel
from altbi.model._score_source import ScoreSummary
from altbi.pipeline import Pipeline, PreparedTable, read_seed


@final
class DistributedPipeline(Pipeline):
    """A pipeline whose passes over the table run on an engine, partition by partition.

    The scores are a folder of Parquet files. An interrupted run continues with the partitions that
    are not finished. The engine sees the table and the output under the same paths.
    """

    def __init__(
        self,
        source: Source,
        selection: ColumnSelection,
        engine: Engine,
        *,
        top: int = 200,
        raw: bool = False,
        duplicates: int = MAX_ROWS,
        command: str = "",
        on_progress: ProgressCallback = no_progress,
    ) -> None:
        super().__init__(
            source,
            selection,
            top=top,
            raw=raw,
            duplicates=duplicates,
            command=command,
            on_progress=on_progress,
        )
        self.engine = engine

    def scores_name(self, scores_format: str) -> str:
        """Return "scores", the name of the folder of scores, for every format."""
        return "scores"

    def score_to_folder(
        self,
        prepared: PreparedTable,
        folder: Path,
        scores_format: str,
        temporary: Callable[[str], Path],
    ) -> ScoreSummary:
        """Score all partitions into the subfolder ``scores`` of an output folder.

        `scores_format` and `temporary` have no effect: each partition is written atomically as
        Parquet.
        """
        return self.score_into(prepared, folder / self.scores_name(scores_format))

    def score_into(self, prepared: PreparedTable, folder: Path) -> ScoreSummary:
        """Score all partitions into a folder of Parquet files, and return the summary of all rows.

        Partitions that an interrupted run has finished are not scored again. A folder with files of
        another run raises a `ParameterError`.
        """
        plan = ScoringPlan(parser=prepared.parser, selected=prepared.selected, top=self.top)
        return score_partitions(
            self.engine,
            self.source,
            prepared.partitions,
            plan,
            prepared.model,
            folder,
            on_progress=self.on_progress,
        )

    def _read_types(
        self, model: FittedModel, selected: SelectedColumns, selection: ColumnSelection
    ) -> PreparedTable:
        """Read the table once with the engine, also if its format has types.

        This infers how to parse each column for a fitted model, and counts the rows of each
        partition.
        """
        return self._infer_types(model, selected, selection)

    def _scan(
        self,
        selected: SelectedColumns,
        selection: ColumnSelection,
        limit: int,
        settings: FitSettings,
        expected: dict[str, ExpectedType] | None = None,
    ) -> tuple[ScanResult, tuple[Any, ...]]:
        """Make the first pass with the engine: infer the column types, and sample rows.

        At most `limit` rows are sampled. `expected` has the types that a fitted model expects, by
        column. The second value has the partitions that have rows.
        """
        return scan_partitions(
            self.engine,
            self.source,
            selected,
            selection,
            limit=limit,
            seed=read_seed(settings),
            expected=expected,
            on_progress=self.on_progress,
        )

    def _check_writable(self, scores_format: str) -> None:
        """Raise a `TableError` for columns that Parquet, or CSV for the ids, cannot have."""
        super()._check_writable("parquet")
