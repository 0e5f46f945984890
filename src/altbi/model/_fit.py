"""Fit a model: sample, encode, train, select reference rows, set the threshold, check the data."""

import secrets
import warnings
from collections.abc import Generator, Iterator, Sequence
from dataclasses import replace
from typing import TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from altbi.encoding import MAX_COLUMNS, Column, TableEncoder, check_stated_names, infer_roles
from altbi.errors import ParameterError, TableError, TableWarning, TrainingError, quote
from altbi.io import ScanResult
from altbi.model._file import TrainingTable
from altbi.model._fitted_model import FittedModel
from altbi.model._labels import INLIER, OUTLIER, UNKNOWN, Labels
from altbi.model._settings import FitSettings, RandomState, ReferenceSettings
from altbi.model._threshold import compute_threshold
from altbi.networks import WORST_LOSS, SnapshotArrays, TrainingStep, select_landmarks
from altbi.rarities import Use, fit_value_rarities
from altbi.scorers import (
    LossScorer,
    SumScorer,
    fit_distance_scorer,
    fit_sum_scorer,
    fit_typical_rows,
)
from altbi.scorers._loss import compute_loss_ranges, compute_losses
from altbi.scorers._sum import has_number_terms
from altbi.table import Table, sample_rows

# Most rows of the sample that can become reference rows, and most rows that set the threshold.
MAX_CANDIDATES = 10_000
MAX_THRESHOLD_ROWS = 20_000
# Numbers of columns of numbers for which `whiten="auto"` whitens distances.
WHITENED_FEATURES = range(100, 4097)
# Rows for each distinct integer from which integers may be codes.
MIN_ROWS_BY_CODE = 5
# In fewer rows, equal steps of a column could be a coincidence.
MIN_COUNTER_ROWS = 10
# A network that only selects reference rows is sized for at most this many encoded features.
MAX_SELECTING_FEATURES = 512

Result = TypeVar("Result")
Fit = Generator[TrainingStep, None, FittedModel]


def check_number_of_columns(n_columns: int) -> None:
    """Raise a `TableError` for more columns than a model file can hold."""
    if n_columns > MAX_COLUMNS:
        raise TableError(
            f"the table has {n_columns} columns, but a fit supports at most {MAX_COLUMNS}. "
            "Leave out columns."
        )


def iter_fit(
    table: Table, settings: FitSettings, labels: Labels | None = None, *, warn: bool = True
) -> Fit:
    """Fit a model on a table: yield after each training step, and return the model.

    `labels` ``(n_rows,)`` are 1 for known inliers, -1 for known outliers, 0 for all others. A
    privacy budget does not use them. A table with fewer than 2 rows, or more than 100,000 columns,
    raises a `TableError`. A role that the settings state for a column that the table does not have,
    or that is not possible, raises a `ParameterError`. Problems of the sample or of the privacy
    ledger raise a `TableWarning`, unless `warn` is False.
    """
    if len(table) < 2:
        raise TableError("the table has 1 row, but a fit needs at least 2. Add more rows.")
    check_number_of_columns(len(table.names))
    check_stated_names(settings.column_roles, table.names)
    seed = resolve_seed(settings.random_state)
    if settings.privacy is not None:
        model: FittedModel = yield from settings.privacy.fit(table, settings, seed)
        if warn and model.ledger is not None:
            for problem in model.ledger.check(model.training_table.n_rows):
                warnings.warn(problem, TableWarning, stacklevel=4)
        return model
    return (yield from _fit_without_privacy(table, settings, labels, seed, warn=warn))


def record_history(
    steps: Generator[TrainingStep, None, Result], history: list[TrainingStep]
) -> Generator[TrainingStep, None, Result]:
    """Yield all steps of a generator, append each to the list `history`, and return its result."""
    while True:
        try:
            step = next(steps)
        except StopIteration as end:
            return cast(Result, end.value)
        history.append(step)
        yield step


def _fit_without_privacy(
    table: Table, settings: FitSettings, labels: Labels | None, seed: int, *, warn: bool
) -> Fit:
    """Fit a model without a privacy budget: yield each training step, and return the model.

    With `warn`, columns that are used otherwise than others of their kind, or that mostly hold rare
    categories where roles are not inferred, raise a `TableWarning`. The model scores
    by reference rows if the settings have some, else by loss. At most 20,000 rows set a threshold
    of the former.
    """
    sample, labels = sample_training_rows(table, labels, settings.max_rows, seed)
    is_paper = settings.reference is None
    encoder = TableEncoder().fit(
        sample, () if is_paper else infer_roles(sample, settings.column_roles)
    )
    rows = encoder.transform(sample)
    problems = encoder.check_sample(rows) if is_paper else encoder.describe_roles()
    for problem in problems if warn else ():
        warnings.warn(problem, TableWarning, stacklevel=5)

    history: list[TrainingStep] = []
    steps = settings.training.run(
        rows, labels, seed, sized_for=choose_sizing_features(settings, rows.shape[1])
    )
    arrays = yield from record_history(steps, history)
    if settings.reference is None:
        scorer, scores = fit_loss_scorer(arrays, settings, rows, encoder)
        typical = fit_typical_rows(scorer, encoder, rows)
        final: SumScorer | LossScorer = replace(scorer, typical=typical)
    else:
        final = _fit_reference_scorer(sample, rows, arrays, settings, labels, encoder, seed)
        judged = sample_rows(len(rows), MAX_THRESHOLD_ROWS, seed)
        scores = final.score_table(sample.take(judged), encoder)
    return FittedModel(
        settings=settings,
        training_table=TrainingTable(
            n_rows=table.n_source_rows or len(table),
            n_sample=len(sample),
            is_frame=table.is_frame,
            has_names=table.has_names,
            conventions=table.conventions,
        ),
        encoder=encoder,
        scorer=final,
        threshold=_choose_threshold(scores, settings),
        history=tuple(history),
    )


def sample_training_rows(
    table: Table, labels: Labels | None, max_rows: int, seed: int
) -> tuple[Table, Labels | None]:
    """Sample `max_rows` rows uniformly from a larger table, with their labels.

    Smaller tables are returned unchanged. All labelled outliers are added to the sample, unless
    there are more than `max_rows`, so it may exceed `max_rows`. If fewer than 2 rows without an
    outlier label are left, a `ParameterError` is raised.
    """
    if len(table) > max_rows:
        chosen = sample_rows(len(table), max_rows, seed)
        if labels is not None:
            outliers = np.flatnonzero(labels == OUTLIER)
            if len(outliers) <= max_rows:
                chosen = np.union1d(chosen, outliers)
            labels = labels[chosen]
        table = table.take(chosen)
    if labels is not None and (n_left := int((labels != OUTLIER).sum())) < 2:
        raise ParameterError(
            f"known_outlier leaves {n_left} of {len(labels)} rows to train on, but expected at "
            "least 2. Label fewer rows, or raise max_rows."
        )
    return table, labels


def choose_sizing_features(settings: FitSettings, n_features: int) -> int | None:
    """Return the number of encoded features for which a network's "auto" sizes are chosen.

    `n_features` is the number in the table. If the network only selects reference rows, the result
    is at most 512. None means that all features count.
    """
    return None if settings.reference is None else min(n_features, MAX_SELECTING_FEATURES)


def fit_loss_scorer(
    arrays: SnapshotArrays,
    settings: FitSettings,
    rows: NDArray[np.float32],
    encoder: TableEncoder,
) -> tuple[LossScorer, NDArray[np.float64]]:
    """Return a scorer by loss, and the scores ``(n_rows,)`` of the training rows.

    `arrays` are the trained weights of all snapshots, and `rows` the encoded features
    ``(n_rows, n_features_encoded)``. If the settings scale losses, each snapshot's losses are
    scaled by their range over these rows. The scorer has no statistics for explanations yet. Losses
    that are not finite raise a `TrainingError`.
    """
    backbone, n_features = settings.training.backbone, rows.shape[1]
    columns = encoder.feature_columns
    landmarks = select_landmarks(rows, columns) if backbone.needs_landmarks else None
    stacked = backbone.stack(
        arrays,
        n_features,
        sized_for=choose_sizing_features(settings, n_features),
        landmarks=landmarks,
        feature_columns=columns,
    )
    losses = compute_losses(stacked, rows)
    if not (np.abs(losses) < WORST_LOSS).all():
        raise TrainingError(
            "After training, the losses of training rows are not finite. "
            "Lower the backbone's learning_rate, or choose another backbone."
        )
    low, width = np.zeros(len(losses)), np.ones(len(losses))
    if settings.scale_losses:
        low, width = compute_loss_ranges(losses)
    scorer = LossScorer(stacked, low, width, arrays, landmarks)
    return scorer, scorer.combine(losses)


def _fit_reference_scorer(
    sample: Table,
    rows: NDArray[np.float32],
    arrays: SnapshotArrays,
    settings: FitSettings,
    labels: Labels | None,
    encoder: TableEncoder,
    seed: int,
) -> SumScorer:
    """Select reference rows with small losses, and return a sum of scorers that are based on them.

    `rows` are the encoded features of `sample`, and `arrays` the weights of the network that
    computes the losses. Labelled outliers are never selected. Of larger samples, 10,000 rows and at
    most as many labelled inliers are candidates.
    """
    reference = settings.reference
    assert reference is not None
    labels = np.full(len(rows), UNKNOWN, dtype=np.int8) if labels is None else labels
    candidates = np.flatnonzero(labels != OUTLIER)
    if len(candidates) > MAX_CANDIDATES:
        sampled = candidates[sample_rows(len(candidates), MAX_CANDIDATES, seed)]
        # Rows that a person has judged to be normal are always candidates.
        candidates = np.union1d(sampled, np.flatnonzero(labels == INLIER)[:MAX_CANDIDATES])
    _, losses = fit_loss_scorer(arrays, settings, rows[candidates], encoder)
    standardized = encoder.standardize(sample.take(candidates))
    distance, references = fit_distance_scorer(
        standardized,
        losses,
        keep=reference.keep,
        n_reference=reference.n_reference,
        n_groups=reference.n_groups,
        whiten=is_whitened(reference, encoder),
        seed=seed,
        is_inlier=labels[candidates] == INLIER,
    )
    values = fit_value_rarities(sample, choose_uses(encoder, sample))
    return fit_sum_scorer(
        distance,
        references,
        standardized,
        encoder.number_features,
        values,
        values.score(sample.take(candidates)),
    )


def choose_uses(encoder: TableEncoder, sample: Table) -> list[Use]:
    """Return what the rarities of each column's values are about.

    The signs of numbers count where covariance and rarity of numbers do. In data frames and files,
    integers with few distinct values may be codes, which occur in rules between columns, unless the
    user stated that they are numbers.
    """
    counts_numbers = has_number_terms(len(encoder.number_features))
    uses = list(map(_choose_use, encoder.columns))
    for number, use in enumerate(uses):
        if use == "number" and not counts_numbers:
            uses[number] = "other"
        elif use == "number" and sample.is_frame and not encoder.columns[number].is_stated:
            uses[number] = "integer" if _may_be_codes(sample, number) else "number"
    return uses


def _may_be_codes(sample: Table, number: int) -> bool:
    """Return whether a column has integers only, each of them five times or more on average."""
    values = sample.numbers([number])[:, 0]
    first = values[:100]
    if ((np.floor(first) != first) & ~np.isnan(first)).any():
        return False
    present = values[~np.isnan(values)]
    return bool(
        (np.floor(present) == present).all()
        and MIN_ROWS_BY_CODE * len(np.unique(present)) <= len(present)
    )


def _choose_use(column: Column) -> Use:
    """Return what the rarities of a column's values are about."""
    uses: dict[str, Use] = {
        "boolean": "category",
        "category": "category",
        "code": "category",
        "date": "date",
        "duplicate": "copy",
        "identifier": "identifier",
        "number": "number",
    }
    return uses.get(column.use, "other")


def is_whitened(reference: ReferenceSettings, encoder: TableEncoder) -> bool:
    """Return whether distances are whitened: measured after removing correlations of features.

    "auto" whitens tables of 100 to 4,096 numbers.
    """
    if reference.whiten == "auto":
        return len(encoder.number_features) in WHITENED_FEATURES
    return reference.whiten


def _choose_threshold(scores: NDArray[np.float64], settings: FitSettings) -> float:
    """Return the threshold of the settings, or compute it from scores and contamination."""
    if settings.threshold is not None:
        return float(settings.threshold)
    return compute_threshold(scores, settings.contamination)


def resolve_seed(random_state: RandomState) -> int:
    """Return the seed of a fit as an integer; NumPy's global random state is never used.

    None returns a new random seed. A `RandomState` is sampled, which changes its state.
    """
    if random_state is None:
        return secrets.randbits(31)
    if isinstance(random_state, int | np.integer):
        return int(random_state)
    return int(random_state.randint(2**31 - 1))


def check_data(found: ScanResult, model: FittedModel) -> Iterator[str]:
    """Yield one sentence for each problem of the training sample.

    They concern types, missing values, constants, rare categories, duplicates and row counters.
    Under a privacy budget, only problems of the first pass and of the privacy ledger are reported,
    which reveal nothing about rows.
    """
    yield from found.notes
    if model.ledger is not None:
        yield from model.ledger.check(model.training_table.n_rows)
        return
    features = model.encoder.transform(found.sample)
    has_rarities = isinstance(model.scorer, SumScorer)
    yield from model.encoder.describe_problems(has_rarities=has_rarities)
    yield from _check_duplicates(features)
    if not has_rarities:
        yield from model.encoder.check_sample(features)
    columns = [c for c in model.encoder.columns if c.is_used and not c.is_stated]
    yield from _check_counters(found, [column.name for column in columns])


def _check_duplicates(features: NDArray[np.float32]) -> Iterator[str]:
    """Yield one warning if several rows have the same encoded features; none otherwise.

    Rows are compared by their hash values.
    """
    n_rows = len(features)
    n_duplicates = n_rows - len({hash(row.tobytes()) for row in features})
    if n_duplicates:
        yield (
            f"{n_duplicates} of {n_rows} rows of the training sample ({n_duplicates / n_rows:.2%}) "
            "are duplicates, or differ from other rows only in rare categories."
        )


def _check_counters(found: ScanResult, names: Sequence[str]) -> Iterator[str]:
    """Yield a sentence for each of these columns that only numbers the rows, such as a row id.

    Samples of fewer than 10 rows yield none.
    """
    sample, rows = found.sample, found.sample_rows
    if len(rows) < MIN_COUNTER_ROWS:
        return
    for number, name in enumerate(sample.names):
        if name not in names or sample.kinds[number] != "number":
            continue
        if _is_counter(sample.numbers([number])[:, 0], rows):
            yield (
                f"Column {quote(name)} rises by the same step from row to row, so it only numbers "
                "the rows. Exclude it (exclude, or --exclude), or use it as row id (id, or --id)."
            )


def _is_counter(values: NDArray[np.float64], rows: NDArray[np.int64]) -> bool:
    """Return whether values rise or fall by the same step from row to row of the table.

    `rows` holds the row numbers of the values. Constants and columns with missing values return
    False.
    """
    step = (values[1] - values[0]) / (rows[1] - rows[0])
    return bool(step != 0 and (values == values[0] + (rows - rows[0]) * step).all())
