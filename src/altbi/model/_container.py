"""The container of a model file: safetensors with a JSON header, and no code.

The metadata of the safetensors file has one entry: the SHA-256 digest of header and tensors, a line
break, and the header. The digest detects damaged files. It is not a signature: it does not show who
wrote a file. Reading a file never imports or runs anything that it names.
"""

import hashlib
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from altbi.errors import ModelFileError

FORMAT_VERSION = 5
FORMAT = "altbi model"
ENTRY = "altbi"

FilePath = str | os.PathLike[str]
Tensors = Mapping[str, NDArray[Any]]
Fields = dict[str, Any]


def encode_model(tensors: Tensors, header: Fields) -> bytes:
    """Return the content of a model file: tensors, header and their digest.

    Name and version of the file format are added to the header. A number in the header that is not
    finite raises a `ModelFileError`.
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
    return content


def read_header(path: FilePath) -> Fields:
    """Read the header of a model file without its tensors; the digest is not checked.

    A file of another program or format version raises a `ModelFileError`.
    """
    with _open_container(path) as file:
        return _parse_header(path, _read_entry(file)[1])


def read_model(path: FilePath) -> tuple[dict[str, NDArray[Any]], Fields]:
    """Read the tensors and the header of a model file, and check their digest.

    A file that is damaged, or of another program or format version, raises a `ModelFileError`.
    """
    with _open_container(path) as file:
        digest, text = _read_entry(file)
        header = _parse_header(path, text)
        tensors = {name: _read_tensor(path, file, name) for name in file.keys()}  # noqa: SIM118
    if digest != _compute_digest(text, tensors):
        raise ModelFileError(
            f"{path}: the content does not match its checksum, so the file was changed or damaged. "
            "Save the model again."
        )
    return tensors, header


def _open_container(path: FilePath) -> Any:  # noqa: ANN401 - safetensors has no types
    """Open a safetensors file as a context manager.

    A file that is missing or unreadable raises an `OSError`, any other format a `ModelFileError`.
    """
    from safetensors import SafetensorError, safe_open

    # A missing or unreadable file raises the error of the operating system.
    with Path(path).open("rb"):
        pass
    try:
        return safe_open(path, framework="np")
    except SafetensorError as cause:
        raise ModelFileError(
            f"{path}: not a complete model file ({cause}). "
            "Expected a file written by `altbi fit` or `save`."
        ) from None


def _read_entry(file: Any) -> tuple[str, str]:  # noqa: ANN401
    """Return the digest and the text of the header; both are empty in files of other programs."""
    digest, _, text = (file.metadata() or {}).get(ENTRY, "").partition("\n")
    return digest, text


def _parse_header(path: FilePath, text: str) -> Fields:
    """Parse the JSON header; a file of another program or format version raises a `ModelFileError`.

    `text` is empty for safetensors files of other programs.
    """
    try:
        # Strict JSON: refuses NaN, infinity and lone surrogates.
        header = msgspec.json.decode(text) if text else None
    except (msgspec.DecodeError, RecursionError) as cause:
        raise ModelFileError(
            f"{path}: the header is not valid JSON ({cause}), so this is not a model of altbi. "
            "Expected a file written by `altbi fit` or `save`."
        ) from None
    if not isinstance(header, dict) or header.get("format") != FORMAT:
        raise ModelFileError(
            f"{path}: a safetensors file, but not a model of altbi. "
            "Expected a file written by `altbi fit` or `save`."
        )
    if header.get("format_version") != FORMAT_VERSION:
        raise ModelFileError(
            f"{path}: format version {header.get('format_version')!r}, but this altbi reads "
            f"version {FORMAT_VERSION}. Load it with the altbi that wrote it "
            f"({header.get('altbi_version', 'version unknown')!r})."
        )
    return header


def _read_tensor(path: FilePath, file: Any, name: str) -> NDArray[Any]:  # noqa: ANN401
    """Read one tensor; an unsupported type raises a `ModelFileError`."""
    try:
        return file.get_tensor(name)
    except (TypeError, ValueError, KeyError, AttributeError) as cause:
        raise ModelFileError(
            f"{path}: tensor {name!r} cannot be read ({cause}). Save the model again."
        ) from None


def _compute_digest(text: str, tensors: Tensors) -> str:
    """Compute the SHA-256 digest of header and tensors with their names, types and shapes."""
    digest = hashlib.sha256(text.encode())
    for name in sorted(tensors):
        tensor = np.ascontiguousarray(tensors[name])
        digest.update(f"\0{name}\0{tensor.dtype.str}\0{tensors[name].shape}\0".encode())
        digest.update(tensor.tobytes())
    return digest.hexdigest()
