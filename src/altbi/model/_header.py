"""The header of a model file: what a file says about its model. Needs no torch."""

from os import PathLike
from typing import Annotated, Any

import msgspec

from altbi.errors import ModelFileError
from altbi.networks import TrainingStep
from altbi.table import TextConventions

Path = str | PathLike[str]
Count = Annotated[int, msgspec.Meta(ge=0)]

DETECTORS = ("OutlierDetector", "ALTBI", "ODIM")


class TrainingTable(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What a model knows about the table that it was fitted on.

    Attributes
    ----------
    n_rows, n_sample : int
        Rows of the table, and of the sample that was used for training.
    is_frame : bool
        Whether its columns had types, as in a data frame or a file.
    has_names : bool
        Whether its columns had names.
    conventions : TextConventions
        How its values were written in a text file.
    """

    n_rows: int
    n_sample: int
    is_frame: bool
    has_names: bool
    conventions: TextConventions


class Header(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """The header of a model file.

    Attributes
    ----------
    format, format_version : str, int
        Name and version of the file format.
    altbi_version : str
        The version of altbi that wrote the file.
    detector : str
        Name of the detector.
    parameters : dict
        Its parameters; parameter objects are dicts with the class name under "object".
    n_reference : int
        Number of reference rows that the file holds; 0 for scores by loss.
    table : TrainingTable
        The training table.
    threshold : float
        Rows with a score above it are outliers.
    encoder : dict
        State of the encoder.
    history : tuple of TrainingStep
        The training steps.
    privacy : dict or None
        The privacy ledger.
    """

    format: str
    format_version: int
    altbi_version: str
    detector: str
    parameters: dict[str, Any]
    n_reference: Count
    table: TrainingTable
    threshold: float
    encoder: dict[str, Any]
    history: tuple[TrainingStep, ...]
    privacy: dict[str, Any] | None


def parse_header(path: Path, fields: dict[str, Any]) -> Header:
    """Return the checked header of the file at `path`.

    Values of a wrong type, or values that contradict each other, raise a `ModelFileError`.
    """
    try:
        header = msgspec.convert(fields, Header)
    except msgspec.ValidationError as error:
        raise invalid_file(path, error) from None
    table = header.table
    require(path, header.detector in DETECTORS, f"it holds the detector {header.detector!r}")
    require(path, 2 <= table.n_sample <= table.n_rows, "its sample is larger than its table")
    require(path, header.n_reference <= table.n_sample, "it holds more rows than its sample")
    is_private = header.privacy is not None
    hides_loss = all((step.loss is None) == is_private for step in header.history)
    require(path, hides_loss, "its losses do not match its privacy ledger")
    require(path, len(header.history) > 0, "its training history is empty")
    return header


def require(path: Path, holds: bool, problem: str) -> None:
    """Raise a `ModelFileError` with the problem unless a condition holds."""
    if not holds:
        raise ModelFileError(f"{path}: {problem}. Save the model again.")


def invalid_file(path: Path, error: Exception) -> ModelFileError:
    """Return the error for a file whose content is not valid, with the cause in parentheses."""
    return ModelFileError(
        f"{path}: the file is not valid ({describe_error(error)}). Save the model again."
    )


def describe_error(error: Exception) -> str:
    """Return the message of an error without its last full stop.

    For a `KeyError` it is "missing", followed by the key.
    """
    return f"missing {error}" if isinstance(error, KeyError) else str(error).rstrip(".")
