"""Load a model from a file, with every value checked."""

from importlib import import_module
from itertools import zip_longest
from typing import Any

import numpy as np
from numpy.typing import NDArray

from altbi._parameters import ParameterObject
from altbi.encoding import LIMIT, MAX_STANDARDIZED, TableEncoder
from altbi.errors import AltbiError, MissingExtraError, ModelFileError, describe_cause, quote
from altbi.model._file import (
    SNAPSHOT,
    FilePath,
    Header,
    Tensors,
    invalid_file_error,
    parse_header,
    read_content,
    require,
)
from altbi.model._fit import choose_sizing_features, is_whitened
from altbi.model._fitted_model import FittedModel
from altbi.model._privacy_ledger import Ledger
from altbi.model._settings import FitSettings, build_settings
from altbi.networks import N_LANDMARKS, WORST_LOSS, StateShapes
from altbi.rarities import ValueRarities
from altbi.scorers import (
    CovarianceScorer,
    DistanceScorer,
    LossScorer,
    RarityScorer,
    Scale,
    SumScorer,
    TypicalRows,
)
from altbi.scorers._distance import limit_groups
from altbi.scorers._loss import LEAST_WIDTH, compute_losses
from altbi.scorers._rarity import N_RARITIES
from altbi.scorers._sum import LEAST_SPREAD, LEAST_UNIT, has_number_terms

# Classes of parameter objects that a model file may contain, and their modules.
PARAMETER_OBJECTS = {
    "Schedule": "altbi.networks",
    "IWAE": "altbi.networks",
    "Glow": "altbi.torch",
    "PrivacyBudget": "altbi.torch",
}
CUSTOM = "CustomBackbone"
FLOAT64_TENSORS = (
    "low", "width", "baseline", "usual", "neutral", "covariance.center", "covariance.whitening",
    "rarity.low", "rarity.high", "rarity.rarities", "units", "spreads",
)  # fmt: skip
# Largest absolute values of tensors that a fit can produce, with reserves. They keep scores finite:
# no score by loss exceeds 2 * WORST_LOSS / LEAST_WIDTH.
MAX_VALUES = {
    "reference": MAX_STANDARDIZED,
    "landmarks": LIMIT,
    "neutral": LIMIT,
    "low": WORST_LOSS,
    "width": 2 * WORST_LOSS,
    "baseline": 1e100,
    "usual": 1e100,
    "covariance.center": MAX_STANDARDIZED,
    "covariance.whitening": 1e9,
    "rarity.low": MAX_STANDARDIZED,
    "rarity.high": MAX_STANDARDIZED,
    "rarity.rarities": 100,
    "units": 1e100,
    "spreads": 1e100,
}
# Least size of the largest number in a column of the whitening, unless the column is 0.
LEAST_WHITENING = 1e-6
LEAST_VALUES = {
    "width": LEAST_WIDTH,
    "rarity.rarities": 0,
    "units": LEAST_UNIT,
    "spreads": LEAST_SPREAD,
}


def load_model(path: FilePath, backbone: Any = None) -> FittedModel:  # noqa: ANN401 - user's network
    """Read a model from a file, and check every value; see `FittedModel.load`.

    `backbone` is the user's own network if the model was fitted with one. All errors in the content
    raise a `ModelFileError` with the path.
    """
    tensors, text = read_content(path)
    header = parse_header(path, text)
    custom = _resolve_custom_backbone(path, header, backbone)
    try:
        return _restore_model(path, header, tensors, custom)
    except MissingExtraError:
        raise
    except ModelFileError as error:
        raise (
            error if str(error).startswith(str(path)) else invalid_file_error(path, error)
        ) from None
    except (AltbiError, KeyError, TypeError, ValueError, RuntimeError, OverflowError) as error:
        if custom is None:
            raise invalid_file_error(path, error) from None
        raise ModelFileError(
            f"{path}: the file cannot be loaded with this backbone ({describe_cause(error)}). "
            "Pass the network that the model was fitted with."
        ) from error


@np.errstate(all="ignore")  # invalid weights may overflow; scores are checked below
def _restore_model(path: FilePath, header: Header, tensors: Tensors, backbone: Any) -> FittedModel:  # noqa: ANN401
    """Build the model from a checked header and its tensors.

    `backbone` replaces the backbone of the parameters unless it is None. Invalid contents raise
    errors of several types, which `load_model` converts.
    """
    parameters = {
        # Its keys are names of columns, such as "object".
        name: value if name == "column_roles" else _from_plain(value)
        for name, value in header.parameters.items()
    }
    if backbone is not None:
        parameters["backbone"] = backbone
    settings = build_settings(header.detector, parameters)
    encoder = TableEncoder.from_state(header.encoder)
    ledger = _restore_ledger(path, header, settings)
    require(path, settings.training.is_complete(header.history), "its history is incomplete")
    if settings.reference is not None:
        scorer: SumScorer | LossScorer = _restore_sum_scorer(
            path, settings, encoder, tensors, header.values
        )
    else:
        scorer = _restore_loss_scorer(path, settings, encoder, tensors, header)
    model = FittedModel(
        settings=settings,
        training_table=header.table,
        encoder=encoder,
        scorer=scorer,
        threshold=header.threshold,
        history=header.history,
        ledger=ledger,
    )
    is_right = header.n_reference == model.n_reference
    require(path, is_right, "its number of reference rows is wrong")
    # A network of the user's own is not part of the file.
    is_finite = backbone is not None or _has_finite_scores(scorer)
    require(path, is_finite, "its scores of typical rows are not finite")
    return model


def _has_finite_scores(scorer: SumScorer | LossScorer) -> bool:
    """Return whether typical rows have finite scores.

    For a sum of scorers, these are the most extreme rows, without a missing value and with each
    single one. For scores by loss, it is the median of the training rows, whose losses must be
    below `WORST_LOSS` as in a fit. Extreme rows are not tried, because the losses of a valid
    network may overflow; `FittedModel.score` refuses rows without a finite score.
    """
    if isinstance(scorer, SumScorer):
        return bool(np.isfinite(scorer.score(_build_extreme_rows(scorer))).all())
    if scorer.typical is None:
        raise ValueError("the scorer has no statistics of training rows")
    losses = compute_losses(scorer.stacked, scorer.typical.neutral[None].astype(np.float32))
    return bool((np.abs(losses) < WORST_LOSS).all())


def _build_extreme_rows(scorer: SumScorer) -> NDArray[np.float32]:
    """Return the rows with the largest and the smallest values, and with missing values.

    In wide tables, missing values are not tried: only the covariance fills them in.
    """
    n_features = scorer.distance.rows.shape[1]
    extreme = np.float32(MAX_STANDARDIZED)
    rows = np.array([[extreme], [-extreme]]).repeat(n_features, axis=1)
    if scorer.covariance is None:
        return rows
    missing = np.full((len(scorer.numbers), n_features), extreme)
    missing[np.arange(len(scorer.numbers)), scorer.numbers] = np.nan
    return np.concatenate([rows, missing])


def _restore_ledger(path: FilePath, header: Header, settings: FitSettings) -> Ledger | None:
    """Return the privacy ledger of a header, or None without a privacy budget.

    A ledger that does not match the budget in the parameters raises a `ModelFileError`.
    """
    budget: Any = settings.privacy
    is_private = header.privacy is not None
    require(path, (budget is not None) == is_private, "its ledger does not match its parameters")
    if not is_private:
        return None
    ledger = Ledger.from_json(header.privacy)
    is_same = all(
        getattr(budget, name) == getattr(ledger, name) for name in ("epsilon", "delta", "clip")
    )
    require(path, is_same, "its ledger belongs to another budget")
    return ledger


def _restore_sum_scorer(
    path: FilePath,
    settings: FitSettings,
    encoder: TableEncoder,
    tensors: Tensors,
    values: ValueRarities | None,
) -> SumScorer:
    """Build the sum of scorers from its tensors and the rarities of values.

    Tensors of unexpected names, shapes, types or values raise a `ModelFileError`. Settings without
    reference rows raise a `ValueError`, and missing reference rows a `KeyError`.
    """
    reference, size = settings.reference, encoder.n_features_encoded
    numbers = encoder.number_features
    has_terms = has_number_terms(len(numbers))
    _check_rarities(path, encoder, values)
    if reference is None:
        raise ValueError("scores by loss have no reference rows")
    n_rows = len(tensors["reference"])
    shapes: dict[str, tuple[int, ...]] = {"reference": (n_rows, size)}
    if is_whitened(reference, encoder):
        shapes["whitening"] = (size, size)
    shapes |= _describe_terms(len(numbers))
    is_sized = 2 <= n_rows <= reference.n_reference
    require(
        path,
        is_sized and _collect_shapes(tensors) == shapes,
        "its tensors do not fit its parameters",
    )
    _check_tensors(path, tensors, {})
    if has_terms:
        _check_terms(path, tensors)
    n_groups = limit_groups(reference.n_groups, n_rows)
    distance = DistanceScorer(tensors["reference"], n_groups, tensors.get("whitening"))
    units, spreads = tensors["units"].tolist(), tensors["spreads"].tolist()
    scales = tuple(Scale(*pair) for pair in zip_longest(units, spreads))
    if not has_terms:
        return SumScorer(distance, None, None, scales, numbers, values)
    return SumScorer(
        distance,
        CovarianceScorer(tensors["covariance.center"], tensors["covariance.whitening"]),
        RarityScorer(tensors["rarity.low"], tensors["rarity.high"], tensors["rarity.rarities"]),
        scales,
        numbers,
        values,
    )


def _check_rarities(path: FilePath, encoder: TableEncoder, values: ValueRarities | None) -> None:
    """Raise a `ModelFileError` if the rarities of values belong to other columns."""
    columns = encoder.columns
    is_complete = values is not None and len(values.columns) == len(columns)
    require(path, is_complete, "its rarities do not fit its columns")
    assert values is not None
    known = {column.name for column in columns}
    names = values.rules.names if values.rules is not None else ()
    require(path, known.issuperset(names), "its rules are about other columns")


def _check_terms(path: FilePath, tensors: Tensors) -> None:
    """Raise a `ModelFileError` for tensors of covariance and rarity that contradict each other."""
    is_ordered = tensors["rarity.low"] <= tensors["rarity.high"]
    require(path, bool(is_ordered.all()), "'rarity.high' is below 'rarity.low'")
    largest = np.abs(tensors["covariance.whitening"]).max(axis=0)
    is_usual = (largest == 0) | (largest >= LEAST_WHITENING)
    require(path, bool(is_usual.all()), "'covariance.whitening' has a value that no fit produces")


def _describe_terms(size: int) -> dict[str, tuple[int, ...]]:
    """Return the shapes of all tensors but the reference rows' of a sum, for `size` numbers."""
    if not has_number_terms(size):
        return {"units": (1,), "spreads": (2,)}
    return {
        "covariance.center": (size,),
        "covariance.whitening": (size, size),
        "rarity.low": (size,),
        "rarity.high": (size,),
        "rarity.rarities": (size, N_RARITIES),
        "units": (2,),  # rarity has none
        "spreads": (3,),
    }


def _restore_loss_scorer(
    path: FilePath, settings: FitSettings, encoder: TableEncoder, tensors: Tensors, header: Header
) -> LossScorer:
    """Build the scorer by loss from its tensors.

    Tensors of unexpected names, shapes, types or values raise a `ModelFileError`. Shapes are
    compared with those of the described network, which allocates no memory, however large a hostile
    header makes it.
    """
    size, backbone = encoder.n_features_encoded, settings.training.backbone
    options: dict[str, Any] = {
        "sized_for": choose_sizing_features(settings, size),
        "batch_norm": settings.privacy is None,
    }
    state = backbone.describe_state(size, **options)
    n_snapshots = settings.training.count_snapshots(header.history)
    expected = _compute_expected_shapes(settings, state, encoder, n_snapshots)
    require(path, _collect_shapes(tensors) == expected, "its tensors do not fit its parameters")
    _check_tensors(path, tensors, state)
    arrays = {
        name.removeprefix(SNAPSHOT): tensor
        for name, tensor in tensors.items()
        if name.startswith(SNAPSHOT)
    }
    landmarks = tensors.get("landmarks")
    return LossScorer(
        stacked=backbone.stack(
            arrays, size, landmarks=landmarks, feature_columns=encoder.feature_columns, **options
        ),
        low=tensors["low"],
        width=tensors["width"],
        arrays=arrays,
        landmarks=landmarks,
        typical=TypicalRows(tensors["baseline"], tensors["usual"], tensors["neutral"]),
    )


def _collect_shapes(tensors: Tensors) -> dict[str, tuple[int, ...]]:
    """Return the shape of each tensor by name."""
    return {name: tensor.shape for name, tensor in tensors.items()}


def _compute_expected_shapes(
    settings: FitSettings, state: StateShapes, encoder: TableEncoder, n_snapshots: int
) -> dict[str, tuple[int, ...]]:
    """Return the shapes that all tensors of a scorer by loss must have, by name."""
    n_columns, size = len(encoder.names), encoder.n_features_encoded
    needs_landmarks = settings.training.backbone.needs_landmarks
    landmarks = {"landmarks": (N_LANDMARKS, size)} if needs_landmarks else {}
    return {
        **{SNAPSHOT + name: (n_snapshots, *shape) for name, (shape, _) in state.items()},
        **landmarks,
        "low": (n_snapshots,),
        "width": (n_snapshots,),
        "baseline": (n_columns,),
        "usual": (size,),
        "neutral": (size,),
    }


def _check_tensors(path: FilePath, tensors: Tensors, state: StateShapes) -> None:
    """Raise a `ModelFileError` for tensors of a wrong type, or with impossible values.

    Values must be finite and of a size that a fit can produce, variances not negative, ranges of
    losses positive, and rotations valid. `state` has shape and type of each of the network's
    weights.
    """
    for name, tensor in tensors.items():
        require(
            path, tensor.dtype == _choose_expected_dtype(name, state), f"{name!r} has a wrong type"
        )
        require(path, bool(np.isfinite(tensor).all()), f"{name!r} is not finite")
        is_usual = bool((np.abs(tensor) <= MAX_VALUES.get(name, np.inf)).all())
        require(path, is_usual, f"{name!r} has a value that no fit produces")
        if name.endswith(("mix.sign", "mix.permutation")):
            require(path, _is_rotation(tensor), f"{name!r} is not a rotation")
        if name in LEAST_VALUES or name.endswith("running_var"):
            least = LEAST_VALUES.get(name, 0)
            require(path, bool((tensor >= least).all()), f"{name!r} is not at least {least:g}")


def _choose_expected_dtype(name: str, state: StateShapes) -> np.dtype[Any]:
    """Return the type that a tensor must have.

    A snapshot's tensor has the type of the network's weight in `state`. Others are float64 if they
    are listed in `FLOAT64_TENSORS`, else float32.
    """
    if name.startswith(SNAPSHOT):
        return state[name.removeprefix(SNAPSHOT)][1]
    return np.dtype(np.float64 if name in FLOAT64_TENSORS else np.float32)


def _is_rotation(tensor: NDArray[Any]) -> bool:
    """Return whether an array holds only 1 and -1, or only permutation matrices.

    Arrays with two axes must hold signs, arrays with three axes permutation matrices, one for each
    index of the first axis.
    """
    if tensor.ndim == 2:
        return bool((np.abs(tensor) == 1).all())
    is_binary = np.isin(tensor, (0, 1)).all()
    return bool(is_binary and (tensor.sum(1) == 1).all() and (tensor.sum(2) == 1).all())


def _resolve_custom_backbone(path: FilePath, header: Header, backbone: Any) -> Any:  # noqa: ANN401
    """Return the user's own backbone for a file that needs one, and None for other files.

    A plain network is wrapped in a `CustomBackbone` with the stored options. A backbone that is
    missing, or not needed, raises a `ModelFileError`.
    """
    stored = header.parameters.get("backbone")
    is_custom = isinstance(stored, dict) and stored.get("object") == CUSTOM
    if not is_custom and backbone is None:
        return None
    if not is_custom:
        raise ModelFileError(
            f"{path}: the model was not fitted with a network of your own, but a backbone was "
            "passed. Load it without one."
        )
    label = stored.get("module") if isinstance(stored, dict) else None
    if backbone is None:
        raise ModelFileError(
            f"{path}: the model was fitted with the network {quote(label)}, which the file does "
            "not hold. Pass it in Python: altbi.load(path, backbone=MyNetwork)."
        )
    if isinstance(backbone, ParameterObject):
        return backbone
    options = {
        name: value
        for name, value in (stored.items() if isinstance(stored, dict) else ())
        if name in ("learning_rate", "weight_decay", "device")
    }
    return import_module("altbi.torch").CustomBackbone(backbone, **options)


def _from_plain(value: Any) -> Any:  # noqa: ANN401
    """Convert a parameter in a model file to its value; this is the inverse of `to_plain`.

    Lists become tuples, and a custom backbone becomes None. Only known classes are created: others
    raise a `ModelFileError`.
    """
    if isinstance(value, list):
        return tuple(_from_plain(item) for item in value)
    if isinstance(value, dict) and "object" in value:
        name = value["object"]
        if name == CUSTOM:
            return None  # the caller passes the network
        if name not in PARAMETER_OBJECTS:
            raise ModelFileError(f"a parameter has the unknown type {quote(name)}")
        params = {key: _from_plain(item) for key, item in value.items() if key != "object"}
        return getattr(import_module(PARAMETER_OBJECTS[name]), name)(**params)
    if isinstance(value, dict):
        return {key: _from_plain(item) for key, item in value.items()}
    return value
