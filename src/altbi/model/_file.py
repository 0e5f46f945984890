"""The model file: safetensors with a JSON header, and no code.

The metadata of the safetensors file has one entry: the SHA-256 digest of header and tensors, a line
break, and the header. The digest detects damaged files. It is not a signature: it does not show who
wrote a file. Reading a file never imports or runs anything that it names.
"""

import hashlib
import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import date
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import msgspec
import numpy as np
from numpy.typing import NDArray

from altbi._parameters import ParameterObject
from altbi._version import __version__
from altbi.encoding import EncoderState
from altbi.errors import ModelFileError, describe_cause, quote
from altbi.io import atomic_file, report_errors_as
from altbi.networks import TrainingStep
from altbi.rarities import ValueRarities
from altbi.table import TextConventions

if TYPE_CHECKING:  # these import this module
    from altbi.model._fitted_model import FittedModel
    from altbi.scorers import LossScorer, SumScorer

FORMAT_VERSION = 10
FORMAT = "altbi model"
ENTRY = "altbi"
SNAPSHOT = "snapshot."  # prefix of the names of network weights
DETECTORS = ("OutlierDetector", "ALTBI", "ODIM")
# The header of a model with 100,000 columns has about 32 MiB. That of the safetensors file also
# has one entry for each tensor; networks have at most some hundred.
MAX_HEADER_BYTES = 1 << 26
MAX_TENSORS = 10_000
_LENGTH_BYTES = 8  # of the length at the start of a safetensors file

FilePath = str | os.PathLike[str]
Tensors = dict[str, NDArray[Any]]
Fields = dict[str, Any]
Decoded = TypeVar("Decoded")
Count = Annotated[int, msgspec.Meta(ge=0, le=2**53)]


class TrainingTable(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What a model knows about the table that it was fitted on."""

    n_rows: Count
    n_sample: Count  # rows that were used for training
    is_frame: bool  # whether its columns had types, as in a data frame or a file
    has_names: bool
    conventions: TextConventions  # how its values were written in a text file


class _Preamble(msgspec.Struct):
    """The fields of a header that show whether this version of altbi can read the others."""

    format: Any = None
    format_version: Any = None
    altbi_version: Any = "version unknown"


class Header(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """The header of a model file."""

    format: str
    format_version: int
    altbi_version: str  # of the altbi that wrote the file
    detector: str
    # Parameter objects are dicts with the class name under "object".
    parameters: Annotated[dict[str, Any], msgspec.Meta(max_length=100)]
    n_reference: Count  # reference rows in the file; 0 for scores by loss
    values: ValueRarities | None  # None for scores by loss
    table: TrainingTable
    threshold: float
    encoder: EncoderState  # not checked for contradictions
    history: tuple[TrainingStep, ...]
    privacy: dict[str, Any] | None  # the privacy ledger


def save_model(model: "FittedModel", path: FilePath) -> None:
    """Write a model to a file atomically; a number that is not finite raises a `ModelFileError`."""
    content = model_to_bytes(model)
    with atomic_file(path) as temporary, report_errors_as(path):
        temporary.write_bytes(content)


def model_to_bytes(model: "FittedModel") -> bytes:
    """Return the content of a model file; a custom backbone is stored by name, without its code.

    A number that is not finite raises a `ModelFileError`.
    """
    parameters = dict(model.settings.parameters)
    if model.settings.training.backbone.is_custom:
        parameters["backbone"] = model.settings.training.backbone
    header = {
        "altbi_version": __version__,
        "detector": model.settings.detector,
        "parameters": to_plain(parameters),
        "n_reference": model.n_reference,
        "values": msgspec.to_builtins(getattr(model.scorer, "values", None)),
        "table": msgspec.to_builtins(model.training_table),
        "threshold": model.threshold,
        "encoder": model.encoder.to_json(),
        "history": [msgspec.to_builtins(step) for step in model.history],
        "privacy": None if model.ledger is None else model.ledger.to_json(),
    }
    return encode_model(_collect_tensors(model.scorer), header)


def _collect_tensors(scorer: "SumScorer | LossScorer") -> Tensors:
    """Return the arrays of a scorer by their names in a model file.

    A scorer by loss without statistics of training rows (`typical`) raises a `ValueError`.
    """
    from altbi.scorers import SumScorer

    if isinstance(scorer, SumScorer):
        return _collect_sum_tensors(scorer)
    if scorer.typical is None:
        raise ValueError("the scorer has no statistics of training rows")
    tensors = {SNAPSHOT + name: array for name, array in scorer.arrays.items()}
    tensors |= {"low": scorer.low, "width": scorer.width}
    tensors |= {name: getattr(scorer.typical, name) for name in ("baseline", "usual", "neutral")}
    if scorer.landmarks is not None:
        tensors["landmarks"] = scorer.landmarks
    return tensors


def _collect_sum_tensors(scorer: "SumScorer") -> Tensors:
    """Return the arrays of a sum of scorers by their names in a model file."""
    tensors: Tensors = {"reference": scorer.distance.rows}
    if scorer.distance.whitening is not None:
        tensors["whitening"] = scorer.distance.whitening
    if scorer.covariance is not None:
        for name in ("center", "whitening"):
            tensors[f"covariance.{name}"] = getattr(scorer.covariance, name)
    if scorer.rarity is not None:
        for name in ("low", "high", "rarities"):
            tensors[f"rarity.{name}"] = getattr(scorer.rarity, name)
    tensors["units"] = np.array([each.unit for each in scorer.scales if each.unit is not None])
    tensors["spreads"] = np.array([scale.spread for scale in scorer.scales])
    return tensors


def to_plain(value: Any) -> Any:  # noqa: ANN401 - any parameter
    """Return a parameter as JSON can hold it; this loses information for some types.

    A `RandomState` becomes None, a class, function or module its name, a date its ISO text, a tuple
    a list. A parameter object becomes a dict with its class name under "object".
    """
    if isinstance(value, ParameterObject):
        params = {name: to_plain(item) for name, item in value.get_params().items()}
        return {"object": type(value).__name__, **params}
    if isinstance(value, tuple | list):
        return [to_plain(item) for item in value]
    if isinstance(value, Mapping):
        return {str(name): to_plain(item) for name, item in value.items()}
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, np.random.RandomState):
        return None
    if isinstance(value, np.generic):
        return value.item()
    if callable(value):
        return import_module("altbi.torch._custom").backbone_label(value)
    return value


def encode_model(tensors: Mapping[str, NDArray[Any]], header: Fields) -> bytes:
    """Return the content of a model file: tensors, header and their digest.

    Name and version of the file format are added to the header. A header with a number that is not
    finite, or with more than `MAX_HEADER_BYTES`, raises a `ModelFileError`.
    """
    from safetensors.numpy import save

    fields = {"format": FORMAT, "format_version": FORMAT_VERSION, **header}
    try:
        text = json.dumps(fields, allow_nan=False, sort_keys=True)
    except ValueError as cause:
        raise ModelFileError(
            f"The model cannot be saved, because it holds a number that is not finite ({cause}). "
            "Fit it again with finite parameters."
        ) from None
    contiguous = {name: np.ascontiguousarray(tensor) for name, tensor in tensors.items()}
    # safetensors would write several entries in an order that changes from call to call.
    content: bytes = save(contiguous, metadata={ENTRY: f"{_compute_digest(text, tensors)}\n{text}"})
    n_bytes = int.from_bytes(content[:_LENGTH_BYTES], "little")
    if n_bytes > MAX_HEADER_BYTES:
        raise ModelFileError(
            f"The model cannot be saved: names, categories and parameters take {n_bytes} bytes, "
            f"more than {MAX_HEADER_BYTES}. Leave out columns, or shorten their names and texts."
        )
    return content


def read_header(path: FilePath) -> Fields:
    """Read the header of a model file as a dict, without its tensors; its values are unchecked.

    A file of another program or format version raises a `ModelFileError`.
    """
    text = read_header_text(path)
    return _decode_header(path, text, Fields)


def read_model(path: FilePath) -> tuple[Tensors, Fields]:
    """Read the tensors of a model file, and its header as a dict, and check their digest.

    The values of the header are unchecked. A file that is damaged, or of another program or format
    version, raises a `ModelFileError`.
    """
    tensors, text = read_content(path)
    return tensors, _decode_header(path, text, Fields)


def read_header_text(path: FilePath) -> str:
    """Read the header of a model file, without its tensors, as JSON text; see `read_header`.

    Only the fields that show the format are decoded.
    """
    with _open_container(path) as file:
        text = _read_entry(file)[1]
    _check_format(path, text)
    return text


def read_content(path: FilePath) -> tuple[Tensors, str]:
    """Read the tensors of a model file, and its header as JSON text; see `read_model`."""
    with _open_container(path) as file:
        digest, text = _read_entry(file)
        _check_format(path, text)
        tensors = {name: _read_tensor(path, file, name) for name in file.keys()}  # noqa: SIM118
    if digest != _compute_digest(text, tensors):
        raise ModelFileError(
            f"{path}: the content does not match its checksum, so the file was changed or damaged. "
            "Save the model again."
        )
    return tensors, text


@contextmanager
def _open_container(path: FilePath) -> Iterator[Any]:
    """Yield an open safetensors file.

    A file that is missing or unreadable raises an `OSError`. Any other format, and a header or
    number of tensors that no model has, raise a `ModelFileError`. The size of the header is checked
    before it is parsed.
    """
    from safetensors import SafetensorError, safe_open

    with Path(path).open("rb") as stream:
        n_bytes = int.from_bytes(stream.read(_LENGTH_BYTES), "little")
        n_available = os.fstat(stream.fileno()).st_size - _LENGTH_BYTES
    # Other files, whose first bytes are a length by chance, are refused by safetensors.
    if MAX_HEADER_BYTES < n_bytes <= n_available:
        raise ModelFileError(
            f"{path}: its header has {n_bytes} bytes, but a model of altbi has at most "
            f"{MAX_HEADER_BYTES}. Expected a file written by `altbi fit` or `save`."
        )
    try:
        file: Any = safe_open(path, framework="np")
    except SafetensorError as cause:
        raise ModelFileError(
            f"{path}: not a complete model file ({cause}). "
            "Expected a file written by `altbi fit` or `save`."
        ) from None
    with file:
        n_tensors = len(file.keys())
        if n_tensors > MAX_TENSORS:
            raise ModelFileError(
                f"{path}: it holds {n_tensors} tensors, but a model of altbi has at most "
                f"{MAX_TENSORS}. Expected a file written by `altbi fit` or `save`."
            )
        yield file


def _read_entry(file: Any) -> tuple[str, str]:  # noqa: ANN401
    """Return SHA-256 digest and JSON text of the header of an open model file.

    Both are empty for safetensors files of other programs.
    """
    digest, _, text = (file.metadata() or {}).get(ENTRY, "").partition("\n")
    return digest, text


def _check_format(path: FilePath, text: str) -> None:
    """Raise a `ModelFileError` for the header of another program or format version.

    `text` is empty for safetensors files of other programs.
    """
    preamble = _decode_header(path, text or "{}", _Preamble)
    if preamble.format != FORMAT:
        raise ModelFileError(
            f"{path}: a safetensors file, but not a model of altbi. "
            "Expected a file written by `altbi fit` or `save`."
        )
    if preamble.format_version != FORMAT_VERSION:
        raise ModelFileError(
            f"{path}: format version {quote(preamble.format_version)}, but this altbi reads "
            f"version {FORMAT_VERSION}. Load it with the altbi that wrote it "
            f"({quote(preamble.altbi_version)})."
        )


def _decode_header(path: FilePath, text: str, type_: type[Decoded]) -> Decoded:
    """Decode the JSON text of a header as a type; a struct skips the fields that it does not have.

    Text that is not strict JSON raises a `ModelFileError`. Strict JSON has no NaN, infinity or lone
    surrogates. Values of a wrong type raise the same error.
    """
    try:
        return msgspec.json.decode(text, type=type_)
    except (msgspec.DecodeError, RecursionError) as cause:
        raise ModelFileError(
            f"{path}: the header is not valid JSON ({cause}), so this is not a model of altbi. "
            "Expected a file written by `altbi fit` or `save`."
        ) from None


def _read_tensor(path: FilePath, file: Any, name: str) -> NDArray[Any]:  # noqa: ANN401
    """Read a tensor of an open safetensors file; an unsupported type raises a `ModelFileError`."""
    try:
        return file.get_tensor(name)
    except (TypeError, ValueError, KeyError, AttributeError) as cause:
        raise ModelFileError(
            f"{path}: tensor {quote(name)} cannot be read ({cause}). Save the model again."
        ) from None


def _compute_digest(text: str, tensors: Mapping[str, NDArray[Any]]) -> str:
    """Compute the SHA-256 hex digest of header and tensors: names, types, shapes and values."""
    digest = hashlib.sha256(text.encode())
    for name in sorted(tensors):
        tensor = np.ascontiguousarray(tensors[name])
        digest.update(f"\0{name}\0{tensor.dtype.str}\0{tensors[name].shape}\0".encode())
        digest.update(tensor.tobytes())
    return digest.hexdigest()


def parse_header(path: FilePath, text: str) -> Header:
    """Decode a header, as `read_header_text` returns it, and check its values.

    Values of a wrong type, or values that contradict each other, raise a `ModelFileError`. The
    columns of the encoder and the privacy ledger are not checked for contradictions.
    """
    try:
        header = msgspec.json.decode(text, type=Header)
    except (msgspec.DecodeError, RecursionError) as error:
        raise invalid_file_error(path, error) from None
    table = header.table
    require(path, header.detector in DETECTORS, f"it holds the detector {quote(header.detector)}")
    require(path, 2 <= table.n_sample <= table.n_rows, "its sample is larger than its table")
    require(path, header.n_reference <= table.n_sample, "it holds more rows than its sample")
    is_private = header.privacy is not None
    hides_loss = all((step.loss is None) == is_private for step in header.history)
    require(path, hides_loss, "its losses do not match its privacy ledger")
    require(path, len(header.history) > 0, "its training history is empty")
    return header


def require(path: FilePath, holds: bool, problem: str) -> None:
    """Raise a `ModelFileError` with the path and the problem unless the condition `holds`."""
    if not holds:
        raise ModelFileError(f"{path}: {problem}. Save the model again.")


def invalid_file_error(path: FilePath, error: Exception) -> ModelFileError:
    """Return (do not raise) the `ModelFileError` for a file with content that is not valid.

    The message has the cause, `error`, in parentheses.
    """
    return ModelFileError(
        f"{path}: the file is not valid ({describe_cause(error)}). Save the model again."
    )
