"""The result of `altbi.detect`."""

import tempfile
from pathlib import Path
from typing import Any, final

import pyarrow as pa
import pyarrow.csv
import pyarrow.feather
import pyarrow.json
import pyarrow.parquet

from altbi.errors import import_extra
from altbi.model import FittedModel
from altbi.report import Summary, TopRow

__all__ = ["Detection"]

READERS = {
    ".csv": pyarrow.csv.read_csv,
    ".parquet": pyarrow.parquet.read_table,
    ".arrow": pyarrow.feather.read_table,
    ".jsonl": pyarrow.json.read_json,
    "": pyarrow.parquet.read_table,
}


@final
class Detection:
    """The outliers of a table. Scores are read from the output files when they are asked for.

    Attributes
    ----------
    folder : Path
        The folder with scores, reasons, model and report.
    summary : Summary
        Counts, threshold and the rows with the highest scores, as plain values.

    Examples
    --------
    >>> import numpy as np
    >>> import pyarrow as pa
    >>> import altbi
    >>> sizes = np.random.default_rng(0).normal(size=200)
    >>> sizes[17] = 9.0
    >>> detection = altbi.detect(pa.table({"size": sizes}), report=False)
    >>> detection.flagged().column_names
    ['row', 'score', 'outlier']
    >>> detection.top[0].reasons[0].column
    'size'
    """

    def __init__(
        self,
        folder: Path,
        scores_path: Path,
        summary: Summary,
        *,
        index: Any = None,  # noqa: ANN401 - a pandas index
        scratch: tempfile.TemporaryDirectory[str] | None = None,
    ) -> None:
        self.folder = folder
        self.summary = summary
        self._scores_path = scores_path
        self._index = index
        self._scratch = scratch  # removed with this object

    def __repr__(self) -> str:
        return f"Detection of {self.n_flagged:,} outliers among {self.n_rows:,} rows"

    @property
    def n_rows(self) -> int:
        """Number of rows that were scored."""
        return self.summary.rows

    @property
    def n_flagged(self) -> int:
        """Number of rows with a score above the threshold."""
        return self.summary.flagged

    @property
    def threshold(self) -> float:
        """Score above which a row is an outlier."""
        return self.summary.threshold

    @property
    def top(self) -> tuple[TopRow, ...]:
        """The rows with the highest scores, with their reasons."""
        return self.summary.top

    @property
    def report(self) -> Path | None:
        """The report page, if one was written."""
        path = self.folder / "report.html"
        return path if path.exists() else None

    def scores(self) -> pa.Table:
        """Return the scores file as a table.

        Returns
        -------
        pyarrow.Table
            Row number, ids, score and flag of every row.
        """
        table: pa.Table = READERS[self._scores_path.suffix](self._scores_path)
        return table

    def flagged(self) -> pa.Table:
        """Return the rows above the threshold.

        Returns
        -------
        pyarrow.Table
            The same columns as `scores`, highest score first.
        """
        table = self.scores()
        prefix = next(name for name in table.column_names if name.endswith("outlier"))
        names = {word: prefix[: -len("outlier")] + word for word in ("outlier", "score")}
        flagged = table.filter(table[names["outlier"]])
        return flagged.sort_by([(names["score"], "descending")])

    def reasons(self) -> pa.Table:
        """Return the reasons of the rows with the highest scores.

        Returns
        -------
        pyarrow.Table
            One line for each row and reason.
        """
        table: pa.Table = pyarrow.csv.read_csv(self.folder / "reasons.csv")
        return table

    def model(self) -> FittedModel:
        """Return the fitted model.

        Returns
        -------
        FittedModel
            The model that scored the rows.
        """
        return FittedModel.load(self.folder / "model.altbi")

    def to_pandas(self) -> Any:  # noqa: ANN401 - pandas is optional
        """Return the scores as a pandas data frame.

        Returns
        -------
        pandas.DataFrame
            Scores and flags, with the index of the table if it was a pandas data frame.
        """
        import_extra("pandas", extra="pandas")
        frame = self.scores().to_pandas()
        return frame if self._index is None else frame.set_axis(self._index, axis=0)
