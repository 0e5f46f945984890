"""The passes over a table, partition by partition."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, final

from altbi.distributed._engine import Engine
from altbi.distributed._partition_folder import Plan
from altbi.distributed._partitions import scan_partitions, score_partitions
from altbi.io import (
    ColumnSelection,
    ExpectedType,
    ProgressCallback,
    ScanResult,
    SelectedColumns,
    Source,
    no_progress,
)
from altbi.model import FitSettings
from altbi.model._score_source import ScoreSummary
from altbi.pipeline import Pipeline, PreparedTable, read_seed

__all__ = ["DistributedPipeline"]


@final
class DistributedPipeline(Pipeline):
    """The passes over one table, run by an engine; scores become a folder of Parquet files.

    Parameters
    ----------
    source : Source
        The table.
    selection : ColumnSelection
        The roles of its columns.
    engine : Engine
        Where the passes run. It finds the table and the output under the same names.
    top, command, on_progress
        As for `altbi.pipeline.Pipeline`.
    """

    def __init__(
        self,
        source: Source,
        selection: ColumnSelection,
        engine: Engine,
        *,
        top: int = 200,
        command: str = "",
        on_progress: ProgressCallback = no_progress,
    ) -> None:
        super().__init__(source, selection, top=top, command=command, on_progress=on_progress)
        self.engine = engine

    def scores_name(self, scores_format: str) -> str:
        """Return the name of the folder of scores."""
        return "scores"

    def score_to_folder(
        self,
        prepared: PreparedTable,
        folder: Path,
        scores_format: str,
        temporary: Callable[[str], Path],
    ) -> ScoreSummary:
        """Score all partitions into the folder of scores."""
        return self.score_into(prepared, folder / self.scores_name(scores_format))

    def score_into(self, prepared: PreparedTable, folder: Path) -> ScoreSummary:
        """Score all partitions into a folder of Parquet files.

        A run that was interrupted continues from the files that are complete.
        """
        plan = Plan(parser=prepared.parser, selected=prepared.selected, top=self.top)
        return score_partitions(
            self.engine,
            self.source,
            prepared.partitions,
            plan,
            prepared.model,
            folder,
            on_progress=self.on_progress,
        )

    def _scan(
        self,
        selected: SelectedColumns,
        selection: ColumnSelection,
        limit: int,
        settings: FitSettings,
        expected: dict[str, ExpectedType] | None = None,
    ) -> tuple[ScanResult, tuple[Any, ...]]:
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
        super()._check_writable("parquet")
