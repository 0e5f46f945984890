"""A fitted ALTBI as a model file, and back."""

from __future__ import annotations

import math
from dataclasses import asdict
from os import PathLike
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from altbi.encode import TableEncoder
from altbi.ensemble import LEAST_WIDTH, Ensemble
from altbi.errors import ModelFileError, ParameterError
from altbi.explain import Typical
from altbi.storage import read_model, require, write_model
from altbi.train import Progress
from altbi.version import __version__

if TYPE_CHECKING:
    from altbi.detectors.altbi import ALTBI

    Loaded = TypeVar("Loaded", bound=ALTBI)

__all__ = ["load", "save"]

_SNAPSHOT = "snapshot."
_NUMBERS = ("low", "width", "baseline", "usual", "neutral")


def save(detector: ALTBI, path: str | PathLike[str]) -> None:
    """Write parameters, schema, snapshots and threshold."""
    tensors = {_SNAPSHOT + name: state for name, state in detector.snapshots_.items()}
    tensors["low"] = detector.ensemble_.low
    tensors["width"] = detector.ensemble_.width
    tensors |= asdict(detector.typical_)
    _check_unchanged(detector, tensors)
    header = {
        "altbi_version": __version__,
        "detector": "ALTBI",
        "parameters": _plain_parameters(detector),
        "table": {
            "rows": detector.n_rows_in_,
            "sample": detector.n_sample_,
            "columns": detector.n_features_in_,
            "frame": detector.fitted_on_frame_,
            "named": hasattr(detector, "feature_names_in_"),
        },
        "offset": detector.offset_,
        "encoder": detector.encoder_.to_json(),
        "history": [asdict(progress) for progress in detector.history_],
    }
    write_model(path, tensors, header)


def load(detector_class: type[Loaded], path: str | PathLike[str]) -> Loaded:
    """Read a detector back; whatever does not fit together is refused."""
    tensors, header = read_model(path)
    try:
        return _restored(detector_class, path, tensors, header)
    except (KeyError, TypeError, ValueError, AttributeError, RuntimeError, OverflowError) as cause:
        if isinstance(cause, ModelFileError) and str(cause).startswith(str(path)):
            raise
        raise ModelFileError(
            f"{path}: the file's header makes no sense ({_sentence(cause)}). Save the model again."
        ) from None


def _restored(
    detector_class: type[Loaded],
    path: str | PathLike[str],
    tensors: dict[str, NDArray[Any]],
    header: dict[str, Any],
) -> Loaded:
    require(path, header["detector"] == "ALTBI", f"its detector {header['detector']!r} is unknown")
    detector = detector_class(**_parameters(header["parameters"]))
    detector._check_parameters()
    detector.encoder_ = TableEncoder.from_json(header["encoder"])
    detector.snapshots_ = {
        name.removeprefix(_SNAPSHOT): tensor
        for name, tensor in tensors.items()
        if name.startswith(_SNAPSHOT)
    }
    _check_tensors(path, detector, tensors)
    detector.typical_ = Typical(*(tensors[name] for name in ("baseline", "usual", "neutral")))
    detector.ensemble_ = Ensemble(
        detector._stacked(detector.encoder_.width), tensors["low"], tensors["width"]
    )
    detector.history_ = [Progress(**progress) for progress in header["history"]]
    require(path, len(detector.history_) == detector._schedule().steps, "its history has gaps")
    _restore_facts(path, detector, header)
    return detector


def _restore_facts(path: str | PathLike[str], detector: ALTBI, header: dict[str, Any]) -> None:
    """Set what the header says about threshold and training table."""
    offset, table = header["offset"], header["table"]
    require(path, type(offset) is float and math.isfinite(offset), "its threshold is no number")
    columns, rows, sample = (table[key] for key in ("columns", "rows", "sample"))
    require(path, {type(columns), type(rows), type(sample)} == {int}, "it does not count rows")
    require(path, columns == len(detector.encoder_.names), "its columns do not agree")
    require(path, 2 <= sample <= rows, "its sample is larger than its table")
    require(path, {type(table["frame"]), type(table["named"])} == {bool}, "its names are unclear")
    detector.offset_ = offset
    detector.n_features_in_, detector.n_rows_in_, detector.n_sample_ = columns, rows, sample
    detector.fitted_on_frame_ = table["frame"]
    if table["named"]:
        detector.feature_names_in_ = np.asarray(detector.encoder_.names, dtype=object)


def _check_tensors(
    path: str | PathLike[str], detector: ALTBI, tensors: dict[str, NDArray[Any]]
) -> None:
    """Compare the tensors with those that the parameters ask for, before anything is computed."""
    require(
        path,
        {name: tensor.shape for name, tensor in tensors.items()} == _shapes(detector),
        "its tensors do not fit its parameters",
    )
    for name, tensor in tensors.items():
        require(path, tensor.dtype == _dtype(name), f"{name!r} has a wrong type")
        require(path, bool(np.isfinite(tensor).all()), f"{name!r} is not finite")
        if name == "width" or name.endswith("running_var"):
            least = LEAST_WIDTH if name == "width" else 0
            require(path, bool((tensor >= least).all()), f"{name!r} is not positive")


def _check_unchanged(detector: ALTBI, tensors: dict[str, NDArray[Any]]) -> None:
    detector._check_parameters()
    if {name: tensor.shape for name, tensor in tensors.items()} != _shapes(detector):
        raise ParameterError(
            "The parameters were changed after fit, and no longer belong to what was learned. "
            "Fit again before saving."
        )


def _shapes(detector: ALTBI) -> dict[str, tuple[int, ...]]:
    """Shapes of the tensors that belong to the parameters."""
    count = detector._schedule().T2 - detector._schedule().T1
    # A blank model has shapes but no memory, however large a hostile header makes it.
    model = detector._blank_model(detector.encoder_.width)
    columns, units = len(detector.encoder_.names), detector.encoder_.width
    return {
        **{_SNAPSHOT + name: (count, *state.shape) for name, state in model.state_dict().items()},
        "low": (count,),
        "width": (count,),
        "baseline": (columns,),
        "usual": (units,),
        "neutral": (units,),
    }


def _dtype(name: str) -> type[np.generic]:
    if name.endswith("num_batches_tracked"):
        return np.int64
    return np.float64 if name in _NUMBERS else np.float32


def _plain_parameters(detector: ALTBI) -> dict[str, Any]:
    """Turn parameters into what JSON can hold; a generator is stored as None."""
    parameters = detector.get_params()
    if isinstance(parameters["random_state"], np.random.RandomState):
        parameters["random_state"] = None
    return {name: _plain(value) for name, value in parameters.items()}


def _plain(value: Any) -> Any:  # noqa: ANN401
    if isinstance(value, tuple | list):
        return [_plain(item) for item in value]
    return value.item() if isinstance(value, np.generic) else value


def _parameters(stored: dict[str, Any]) -> dict[str, Any]:
    return {
        name: tuple(value) if isinstance(value, list) else value for name, value in stored.items()
    }


def _sentence(cause: BaseException) -> str:
    return f"missing {cause}" if isinstance(cause, KeyError) else str(cause).rstrip(".")
