"""Model files: safetensors and JSON, no code.

A file is one safetensors container. Its metadata hold a JSON header, readable without torch, and
the SHA-256 of header and tensors, so that a damaged file is noticed. A digest is no signature: it
does not tell who made a file. Loading can fail, but it never imports or runs what a file names.
"""

import hashlib
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from altbi.errors import ModelFileError

__all__ = ["FORMAT_VERSION", "encode_model", "read_header", "read_model"]

FORMAT_VERSION = 5
_FORMAT = "altbi model"
_ENTRY = "altbi"

Tensors = Mapping[str, NDArray[Any]]
Header = dict[str, Any]


def encode_model(tensors: Tensors, header: Header) -> bytes:
    """Return the content of a model file; numbers that are not finite raise a ValueError."""
    from safetensors.numpy import save

    text = json.dumps(
        {"format": _FORMAT, "format_version": FORMAT_VERSION, **header},
        allow_nan=False,
        sort_keys=True,
    )
    whole = {name: np.ascontiguousarray(tensor) for name, tensor in tensors.items()}
    # One entry only: safetensors writes several in an order that changes from call to call.
    content: bytes = save(whole, metadata={_ENTRY: f"{_digest(text, whole)}\n{text}"})
    return content


def read_header(path: str | os.PathLike[str]) -> Header:
    """Read what a file says of itself, without its tensors and without torch."""
    with _opened(path) as file:
        return _header(Path(path), _entry(file)[1])


def read_model(path: str | os.PathLike[str]) -> tuple[dict[str, NDArray[Any]], Header]:
    """Read tensors and header, and check that they belong together."""
    with _opened(path) as file:
        digest, text = _entry(file)
        header = _header(Path(path), text)
        tensors = {name: _tensor(Path(path), file, name) for name in file.keys()}  # noqa: SIM118
    if digest != _digest(text, tensors):
        raise ModelFileError(
            f"{path}: the file's content does not fit its checksum, so it was changed or damaged. "
            "Save the model again."
        )
    return tensors, header


def _opened(path: str | os.PathLike[str]) -> Any:  # noqa: ANN401 - safetensors has no types
    from safetensors import SafetensorError, safe_open

    # The operating system's own sentence for a missing or unreadable file is the clearest.
    with Path(path).open("rb"):
        pass
    try:
        return safe_open(path, framework="np")
    except SafetensorError as cause:
        raise ModelFileError(
            f"{path}: not a whole model file ({cause}). "
            "Expected a file that `altbi fit` or `save` wrote."
        ) from None


def _entry(file: Any) -> tuple[str, str]:  # noqa: ANN401
    """Give the checksum and the header's text; both are empty in a foreign file."""
    digest, _, text = (file.metadata() or {}).get(_ENTRY, "").partition("\n")
    return digest, text


def _header(path: Path, text: str) -> Header:
    """Parse and check the JSON header of a file."""
    try:
        header = json.loads(text)
    except (ValueError, RecursionError):
        header = None
    if not isinstance(header, dict) or header.get("format") != _FORMAT:
        raise ModelFileError(
            f"{path}: a safetensors file, but not a model of altbi. "
            "Expected a file that `altbi fit` or `save` wrote."
        )
    if header.get("format_version") != FORMAT_VERSION:
        raise ModelFileError(
            f"{path}: format version {header.get('format_version')!r}, but this altbi reads "
            f"version {FORMAT_VERSION}. Load it with the altbi that wrote it "
            f"({header.get('altbi_version', 'version unknown')!r})."
        )
    return header


def _tensor(path: Path, file: Any, name: str) -> NDArray[Any]:  # noqa: ANN401
    try:
        return file.get_tensor(name)
    except (TypeError, ValueError, KeyError, AttributeError) as cause:
        raise ModelFileError(
            f"{path}: tensor {name!r} cannot be read ({cause}). Save the model again."
        ) from None


def _digest(text: str, tensors: Tensors) -> str:
    """Hash header and tensors, names, types and shapes included."""
    digest = hashlib.sha256(text.encode())
    for name in sorted(tensors):
        tensor = tensors[name]
        digest.update(f"\0{name}\0{tensor.dtype.str}\0{tensor.shape}\0".encode())
        digest.update(np.ascontiguousarray(tensor).tobytes())
    return digest.hexdigest()
