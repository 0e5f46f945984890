"""A fitted detector as a model file, and back."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict
from datetime import date
from os import PathLike
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from altbi.encode import TableEncoder
from altbi.ensemble import LEAST_WIDTH, Ensemble
from altbi.errors import ModelFileError, ParameterError
from altbi.explain import Typical
from altbi.memory import Memory
from altbi.models import N_LANDMARKS, label_of
from altbi.privacy.ledger import Ledger
from altbi.storage import read_model, require, write_model
from altbi.table import Writing
from altbi.train import Progress
from altbi.version import __version__

if TYPE_CHECKING:
    from torch import Tensor

    from altbi.detectors.generative import GenerativeDetector
    from altbi.models import Backbone

    Loaded = TypeVar("Loaded", bound=GenerativeDetector)

__all__ = ["load", "save"]

_SNAPSHOT = "snapshot."
_LANDMARKS = "landmarks"
_MEMORY = "memory"
_WHITENING = "whitening"
# What stands before the label of a model that is the user's own.
_OWN = "own:"
_NUMBERS = ("low", "width", "baseline", "usual", "neutral")


def save(detector: GenerativeDetector, path: str | PathLike[str]) -> None:
    """Write parameters, schema, snapshots and threshold."""
    tensors = _tensors(detector)
    _check_unchanged(detector, tensors)
    header = {
        "altbi_version": __version__,
        "detector": type(detector).__name__,
        "parameters": _plain_parameters(detector),
        "table": {
            "rows": detector.n_rows_in_,
            "sample": detector.n_sample_,
            "remembered": _remembered(detector),
            "columns": detector.n_features_in_,
            "frame": detector.fitted_on_frame_,
            "named": hasattr(detector, "feature_names_in_"),
            "writing": detector.writing_.to_json(),
        },
        "offset": detector.offset_,
        "encoder": detector.encoder_.to_json(),
        "history": [asdict(progress) for progress in detector.history_],
        "privacy": None if detector.ledger_ is None else detector.ledger_.to_json(),
    }
    write_model(path, tensors, header)


def _remembered(detector: GenerativeDetector) -> int:
    return 0 if detector.memory_ is None else len(detector.memory_.rows)


def _tensors(detector: GenerativeDetector) -> dict[str, NDArray[Any]]:
    """Give what scores rows: remembered ones, or snapshots with all that belongs to them."""
    if (memory := detector.memory_) is not None:
        whitening = {} if memory.whitening is None else {_WHITENING: memory.whitening}
        return {_MEMORY: memory.rows, **whitening}
    tensors = {_SNAPSHOT + name: state for name, state in detector.snapshots_.items()}
    tensors["low"] = detector.ensemble_.low
    tensors["width"] = detector.ensemble_.width
    tensors |= asdict(detector.typical_)
    if detector.backbone != "iwae":
        tensors[_LANDMARKS] = detector.landmarks_
    return tensors


def load(
    detector_class: type[Loaded], path: str | PathLike[str], backbone: Backbone | None = None
) -> Loaded:
    """Read a detector back; whatever does not fit together is refused."""
    tensors, header = read_model(path)
    try:
        return _restored(detector_class, path, tensors, header, backbone)
    except (KeyError, TypeError, ValueError, AttributeError, RuntimeError, OverflowError) as cause:
        if isinstance(cause, ModelFileError) and str(cause).startswith(str(path)):
            raise
        if backbone is not None:
            raise ModelFileError(
                f"{path}: it cannot be loaded with the backbone {label_of(backbone)} "
                f"({_sentence(cause)}). Hand in the model that it was fitted with."
            ) from cause
        raise ModelFileError(
            f"{path}: the file's header makes no sense ({_sentence(cause)}). Save the model again."
        ) from None


def _restored(
    detector_class: type[Loaded],
    path: str | PathLike[str],
    tensors: dict[str, NDArray[Any]],
    header: dict[str, Any],
    backbone: Backbone | None,
) -> Loaded:
    _check_class(path, detector_class, header["detector"])
    parameters = _parameters(header["parameters"])
    _bring_backbone(path, parameters, backbone)
    detector = detector_class(**parameters)
    detector._check_parameters()
    detector.encoder_ = TableEncoder.from_json(header["encoder"])
    detector.ledger_ = _ledger(path, detector, header["privacy"])
    detector.history_ = [_progress(path, detector, entry) for entry in header["history"]]
    _check_tensors(path, detector, tensors)
    sizes = detector._memory_sizes()
    detector.memory_ = (
        Memory(tensors[_MEMORY], sizes[1], tensors.get(_WHITENING)) if sizes else None
    )
    if detector.memory_ is None:
        _restore_snapshots(detector, tensors)
    require(path, detector._is_whole(detector.history_), "its history has gaps")
    _restore_facts(path, detector, header)
    return detector


def _restore_snapshots(detector: GenerativeDetector, tensors: dict[str, NDArray[Any]]) -> None:
    """Set what scores rows by their losses."""
    detector.snapshots_ = {
        name.removeprefix(_SNAPSHOT): tensor
        for name, tensor in tensors.items()
        if name.startswith(_SNAPSHOT)
    }
    if _LANDMARKS in tensors:
        detector.landmarks_ = tensors[_LANDMARKS]
    detector.typical_ = Typical(*(tensors[name] for name in ("baseline", "usual", "neutral")))
    detector.ensemble_ = Ensemble(
        detector._stacked(detector.encoder_.width), tensors["low"], tensors["width"]
    )


def _progress(
    path: str | PathLike[str], detector: GenerativeDetector, entry: dict[str, Any]
) -> Progress:
    progress = Progress(**entry)
    private = detector.ledger_ is not None
    require(path, private == (progress.loss is None), "its losses do not fit its ledger")
    shares = (progress.kept, progress.loss or 0.0)
    counts = {type(progress.step), type(progress.batch_size)}
    plain = counts == {int} and {type(share) for share in shares} == {float}
    require(path, plain and all(map(math.isfinite, shares)), "its history makes no sense")
    return progress


def _ledger(
    path: str | PathLike[str], detector: GenerativeDetector, state: object
) -> Ledger | None:
    """Read what a private fit has released; a budget without a ledger is no model of ours."""
    is_private = getattr(detector, "epsilon", None) is not None
    require(path, is_private == (state is not None), "its ledger does not fit its parameters")
    if not is_private:
        return None
    ledger = Ledger.from_json(state)
    names = ("epsilon", "delta", "clip")
    same = all(getattr(detector, name) == getattr(ledger, name) for name in names)
    require(path, same, "its ledger is that of another budget")
    return ledger


def _check_class(path: str | PathLike[str], detector_class: type[object], name: object) -> None:
    wanted = detector_class.__name__
    require(path, isinstance(name, str), "it does not name its detector")
    if name != wanted:
        raise ModelFileError(
            f"{path}: it holds the detector {name!r}, but expected {wanted!r}. "
            "Load it with the class of that name."
        )


def _bring_backbone(
    path: str | PathLike[str], parameters: dict[str, Any], backbone: Backbone | None
) -> None:
    """Put the caller's own model where the file has only a label for it."""
    label = parameters.get("backbone", "iwae")
    is_own = isinstance(label, str) and label.startswith(_OWN)
    if is_own and backbone is None:
        raise ModelFileError(
            f"{path}: its model is someone's own, called {label.removeprefix(_OWN)!r}. "
            "Hand the class in, in Python: ALTBI.load(path, backbone=MyModel)."
        )
    if backbone is not None and not is_own:
        raise ModelFileError(
            f"{path}: its model is altbi's {label!r}, but a backbone was handed in. "
            "Load it without one."
        )
    if is_own:
        parameters["backbone"] = backbone


def _restore_facts(
    path: str | PathLike[str], detector: GenerativeDetector, header: dict[str, Any]
) -> None:
    """Set what the header says about threshold and training table."""
    offset, table = header["offset"], header["table"]
    require(path, type(offset) is float and math.isfinite(offset), "its threshold is no number")
    columns, rows, sample = (table[key] for key in ("columns", "rows", "sample"))
    require(path, {type(columns), type(rows), type(sample)} == {int}, "it does not count rows")
    require(path, columns == len(detector.encoder_.names), "its columns do not agree")
    require(path, 2 <= sample <= rows, "its sample is larger than its table")
    remembered = table["remembered"]
    known = type(remembered) is int and remembered == _remembered(detector)
    require(path, known, "it does not count the rows it holds")
    require(path, {type(table["frame"]), type(table["named"])} == {bool}, "its names are unclear")
    detector.offset_ = offset
    detector.n_features_in_, detector.n_rows_in_, detector.n_sample_ = columns, rows, sample
    detector.fitted_on_frame_ = table["frame"]
    detector.writing_ = Writing.from_json(table.get("writing"))
    if table["named"]:
        detector.feature_names_in_ = np.asarray(detector.encoder_.names, dtype=object)


def _check_tensors(
    path: str | PathLike[str], detector: GenerativeDetector, tensors: dict[str, NDArray[Any]]
) -> None:
    """Compare the tensors with those that the parameters ask for, before anything is computed."""
    if not _fit(detector, tensors):
        own = not isinstance(detector.backbone, str)
        require(path, own, "its tensors do not fit its parameters")
        raise ParameterError("its tensors do not fit")
    state = {} if _MEMORY in tensors else detector._blank_state(detector.encoder_.width)
    for name, tensor in tensors.items():
        require(path, tensor.dtype == _dtype(name, state), f"{name!r} has a wrong type")
        require(path, bool(np.isfinite(tensor).all()), f"{name!r} is not finite")
        if name.endswith(("mix.sign", "mix.permutation")):
            require(path, _is_rotation_part(tensor), f"{name!r} belongs to no mix")
        if name == "width" or name.endswith("running_var"):
            least = LEAST_WIDTH if name == "width" else 0
            require(path, bool((tensor >= least).all()), f"{name!r} is not positive")


def _is_rotation_part(tensor: NDArray[Any]) -> bool:
    """Tell whether tensors hold signs, or permutations."""
    if tensor.ndim == 2:
        return bool((np.abs(tensor) == 1).all())
    whole = np.isin(tensor, (0, 1)).all()
    return bool(whole and (tensor.sum(1) == 1).all() and (tensor.sum(2) == 1).all())


def _check_unchanged(detector: GenerativeDetector, tensors: dict[str, NDArray[Any]]) -> None:
    detector._check_parameters()
    sizes, memory = detector._memory_sizes(), detector.memory_
    other_neighbours = sizes and memory and memory.n_lots != sizes[1]
    if other_neighbours or not _fit(detector, tensors):
        raise ParameterError(
            "The parameters were changed after fit, and no longer belong to what was learned. "
            "Fit again before saving."
        )


def _fit(detector: GenerativeDetector, tensors: dict[str, NDArray[Any]]) -> bool:
    """Tell whether tensors are those that the parameters ask for, by name and shape."""
    shapes = {name: tensor.shape for name, tensor in tensors.items()}
    if (sizes := detector._memory_sizes()) is None:
        return shapes == _shapes(detector)
    remembered, width = (shapes.get(_MEMORY) or (0,))[0], detector.encoder_.width
    whole = {_MEMORY: (remembered, width)}
    if detector._whitens():
        whole[_WHITENING] = (width, width)
    return shapes == whole and 2 <= remembered <= sizes[0]


def _shapes(detector: GenerativeDetector) -> dict[str, tuple[int, ...]]:
    """Shapes of the tensors that belong to the parameters."""
    count = detector._snapshot_count()
    columns, units = len(detector.encoder_.names), detector.encoder_.width
    landmarks = {} if detector.backbone == "iwae" else {_LANDMARKS: (N_LANDMARKS, units)}
    # A blank model has shapes but no memory, however large a hostile header makes it.
    state = detector._blank_state(units)
    return {
        **{_SNAPSHOT + name: (count, *tensor.shape) for name, tensor in state.items()},
        **landmarks,
        "low": (count,),
        "width": (count,),
        "baseline": (columns,),
        "usual": (units,),
        "neutral": (units,),
    }


def _dtype(name: str, state: dict[str, Tensor]) -> np.dtype[Any]:
    if name.startswith(_SNAPSHOT):
        return np.dtype(str(state[name.removeprefix(_SNAPSHOT)].dtype).removeprefix("torch."))
    return np.dtype(np.float64 if name in _NUMBERS else np.float32)


def _plain_parameters(detector: GenerativeDetector) -> dict[str, Any]:
    """Turn parameters into what JSON can hold; a generator is stored as None."""
    parameters = detector.get_params()
    if isinstance(parameters["random_state"], np.random.RandomState):
        parameters["random_state"] = None
    if not isinstance(detector.backbone, str):
        parameters["backbone"] = _OWN + label_of(detector.backbone)
    return {name: _plain(value) for name, value in parameters.items()}


def _plain(value: Any) -> Any:  # noqa: ANN401
    if isinstance(value, tuple | list):
        return [_plain(item) for item in value]
    if isinstance(value, Mapping):
        return {name: _plain(item) for name, item in value.items()}
    if isinstance(value, date):
        return value.isoformat()
    return value.item() if isinstance(value, np.generic) else value


def _parameters(stored: dict[str, Any]) -> dict[str, Any]:
    return {
        name: tuple(value) if isinstance(value, list) else value for name, value in stored.items()
    }


def _sentence(cause: BaseException) -> str:
    return f"missing {cause}" if isinstance(cause, KeyError) else str(cause).rstrip(".")
