"""The result of `altbi.detect`."""

from pathlib import Path
from typing import Any, final

import pyarrow as pa
import pyarrow.csv
import pyarrow.feather
import pyarrow.json
import pyarrow.parquet

from altbi.errors import import_extra
from altbi.io import quote_names, unquote_formulas
from altbi.model import FittedModel
from altbi.report import Summary, TopRow

__all__ = ["Detection"]

READERS = {
    ".parquet": pyarrow.parquet.read_table,
    ".arrow": pyarrow.feather.read_table,
    "": pyarrow.parquet.read_table,
}


@final
class Detection:
    """The outliers of a table, as returned by `altbi.detect`.

    Scores and reasons are read from the output files on demand. Warnings about the data, for
    example on columns that are read as text, are in `notes`; they are not raised.

    Parameters
    ----------
    folder : Path
        The folder with scores, reasons, model and report.
    scores_path : Path
        The scores file in it, or a folder of Parquet files.
    scores_schema : pyarrow.Schema
        The columns of the scores file.
    summary : Summary
        Counts, threshold and the rows with the highest scores.
    index : pandas.Index, optional
        The index of the table, if it was a pandas data frame.
    owner : object, optional
        An object that removes the folder when it is garbage-collected; it lives as long as this.
    raw : bool, default=False
        Whether CSV files have texts such as ``=1+1`` unchanged, without an apostrophe before them.

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
        scores_schema: pa.Schema,
        summary: Summary,
        *,
        index: Any = None,  # noqa: ANN401 - a pandas index
        owner: object = None,
        raw: bool = False,
    ) -> None:
        self.folder = folder
        self.summary = summary
        self._scores_path = scores_path
        self._scores_schema = scores_schema
        self._index = index
        self._raw = raw
        self._owner = owner

    def __repr__(self) -> str:
        """Return one phrase with the numbers of flagged rows, of all rows and of warnings."""
        text = f"Detection of {self.n_flagged:,} outliers among {self.n_rows:,} rows"
        n_notes = len(self.notes)
        return f"{text} ({n_notes:,} warning{'s' * (n_notes > 1)} in notes)" if n_notes else text

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
        """Score above which a row is flagged as an outlier."""
        return self.summary.threshold

    @property
    def notes(self) -> tuple[str, ...]:
        """Warnings about the data, those that the command prints: one sentence or a few each."""
        return tuple(self.summary.notes)

    @property
    def top(self) -> tuple[TopRow, ...]:
        """The rows with the highest scores, with their reasons."""
        return self.summary.top

    @property
    def report(self) -> Path | None:
        """Path of the report page; None if it was not written."""
        path = self.folder / "report.html"
        return path if path.exists() else None

    def scores(self) -> pa.Table:
        """Read the scores of all rows from the scores file.

        Returns
        -------
        pyarrow.Table
            Row number, ids, score and flag of every row, in the order of the table. With
            `keep_columns`, also the other columns. CSV and JSON lines do not preserve all types.
        """
        texts = [field.name for field in self._scores_schema if _is_text(field.type)]
        if self._scores_path.suffix == ".csv":
            return _read_csv(self._scores_path, texts, raw=self._raw)
        if self._scores_path.suffix == ".jsonl":
            found = _read_json_lines(self._scores_path, texts)
            return found.select(self._scores_schema.names)
        table: pa.Table = READERS[self._scores_path.suffix](self._scores_path)
        return table

    def flagged(self) -> pa.Table:
        """Read the scores file, and return the rows above the threshold.

        Returns
        -------
        pyarrow.Table
            The columns of `scores`, highest score first.
        """
        table = self.scores()
        # Our columns have a prefix if an id or a kept column is called row, score or outlier.
        prefix = table.column_names[0].removesuffix("row")
        flagged = table.filter(table[f"{prefix}outlier"])
        return flagged.sort_by([(f"{prefix}score", "descending")])

    def reasons(self) -> pa.Table:
        """Read the reasons of the rows with the highest scores from ``reasons.csv``.

        Returns
        -------
        pyarrow.Table
            One record for each row and reason, with the columns of ``reasons.csv``. Values are
            text, because they come from columns of any type.
        """
        ids = [f"id_{name}" for name in self.summary.id_columns]
        nearest = [f"nearest_{number}" for number in (1, 2, 3)]
        texts = [*ids, "column", "value", "expected", *nearest]
        return _read_csv(self.folder / "reasons.csv", texts, raw=self._raw)

    def duplicates(self) -> pa.Table:
        """Read the duplicates from ``duplicates.csv``.

        Returns
        -------
        pyarrow.Table
            One record for each row of each group of duplicates. Values are text.

        Examples
        --------
        >>> import pyarrow as pa
        >>> import altbi
        >>> sizes = [float(number) ** 0.5 for number in range(200)]
        >>> table = pa.table({"size": [*sizes, 5.0], "weight": [*reversed(sizes), sizes[174]]})
        >>> altbi.detect(table, report=False).duplicates()["row"].to_pylist()
        [25, 200]
        """
        ids = [f"id_{name}" for name in self.summary.id_columns]
        path = self.folder / "duplicates.csv"
        return _read_csv(path, ["kind", "column", *ids, "value"], raw=self._raw)

    def model(self) -> FittedModel:
        """Load the fitted model from the output folder.

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
            The columns of `scores`. If the table was a pandas data frame, with the same index.

        Raises
        ------
        MissingExtraError
            If pandas is not installed.
        """
        import_extra("pandas", extra=None)
        frame = self.scores().to_pandas()
        return frame if self._index is None else frame.set_axis(self._index, axis=0)


def _is_text(type_: pa.DataType) -> bool:
    """Return whether a type is text, or a dictionary with texts as its values."""
    if pa.types.is_dictionary(type_):
        return _is_text(type_.value_type)
    return pa.types.is_string(type_) or pa.types.is_large_string(type_)


def _read_csv(path: Path, texts: list[str], *, raw: bool) -> pa.Table:
    """Read a CSV file. The columns `texts` stay text even if they look like numbers.

    The types of the other columns are inferred. Texts may contain newlines. Unless `raw`, the
    apostrophe before formulas is removed.
    """
    types = dict.fromkeys(texts if raw else quote_names(texts), pa.string())
    table = pyarrow.csv.read_csv(
        path,
        parse_options=pyarrow.csv.ParseOptions(newlines_in_values=True),
        convert_options=pyarrow.csv.ConvertOptions(column_types=types),
    )
    return table if raw else unquote_formulas(table)


def _read_json_lines(path: Path, texts: list[str]) -> pa.Table:
    """Read a JSON lines file. The columns `texts` stay text even if they look like dates.

    The types of the other columns are inferred. The columns `texts` come first.
    """
    schema = pa.schema([(name, pa.string()) for name in texts])
    options = pyarrow.json.ParseOptions(explicit_schema=schema)
    return pyarrow.json.read_json(path, parse_options=options)
