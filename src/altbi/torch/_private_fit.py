"""Fit a model under a privacy budget."""

from __future__ import annotations

import secrets
from collections.abc import Generator
from dataclasses import replace
from typing import TYPE_CHECKING, cast

import numpy as np
import torch
from numpy.typing import NDArray

from altbi.encoding import Column, TableEncoder, declare_column, declare_columns
from altbi.errors import ParameterError, import_extra
from altbi.model._file import TrainingTable
from altbi.model._fit import record_history
from altbi.model._fitted_model import FittedModel
from altbi.model._privacy_accounting import Release, calibrate_noise, compute_rdp_epsilon
from altbi.model._privacy_ledger import Ledger
from altbi.model._settings import PRIVATE_CONTAMINATION
from altbi.networks import IWAE, AltbiTraining, SnapshotArrays, TrainingStep, stack_states
from altbi.scorers import LossScorer, fit_typical_rows
from altbi.table import Table, TextConventions
from altbi.torch._iwae_module import build_iwae
from altbi.torch._noisy_counts import NoisyCounts, split_delta, threshold_release
from altbi.torch._private_training import (
    NoisyPlan,
    Truncation,
    create_truncation,
    train_privately,
)
from altbi.torch._training import copy_state, isolate

if TYPE_CHECKING:
    from altbi.model._settings import FitSettings
    from altbi.torch._privacy_budget import PrivacyBudget

# Smallest and largest loss of an encoded feature in [0, 1] with log-variances in [-6, 2].
MIN_LOSS, MAX_LOSS = -7.0, 200.0
# Number of rows sampled from the network, from which typical values are computed.
N_MODEL_SAMPLES = 2000

Trained = tuple[SnapshotArrays, NDArray[np.float32]]


def fit_privately(
    budget: PrivacyBudget, table: Table, settings: FitSettings, seed: int
) -> Generator[TrainingStep, None, FittedModel]:
    """Fit a model under a budget: yield after each training step, and return the model.

    The initial weights and the noise for scoring come from the seed. Batches and privacy noise come
    from a secret source that cannot be reproduced. Raise a `ParameterError` if the budget does not
    allow the fit.
    """
    _check_table(budget, table, settings)
    estimates_categories = budget.bounds == "estimate" and "category" in table.kinds
    delta, categories_delta = split_delta(budget.delta, names_categories=estimates_categories)
    counts = NoisyCounts(budget.epsilon, delta, create_secret_generator())
    n_rows = counts.count(len(table))
    encoder = _fit_encoder(budget, table, counts)
    # Values outside the bounds count as values at the bounds.
    rows = encoder.transform(table).clip(0, 1)
    truncation = create_truncation(budget.truncation, rows.shape[1])
    plan = _plan_training(budget, settings, counts, n_rows, truncation)

    history: list[TrainingStep] = []
    steps = _train_network(settings, rows, plan, truncation, seed)
    arrays, sampled = yield from record_history(steps, history)
    counts.releases += plan.releases()
    scorer = _build_scorer(settings, arrays, sampled, encoder)
    model = FittedModel(
        settings=settings,
        training_table=TrainingTable(
            n_rows=n_rows,
            n_sample=n_rows,
            is_frame=table.is_frame,
            has_names=table.has_names,
            # The format of a column depends on its values, so a single row may change it.
            conventions=TextConventions(missing=table.conventions.missing),
        ),
        encoder=encoder,
        scorer=scorer,
        threshold=0.0,
        history=tuple(history),
    )
    threshold = _choose_threshold(model, table, counts, n_rows)
    rho = plan.schedule.rho
    ledger = Ledger(
        epsilon=float(budget.epsilon),
        delta=float(budget.delta),
        categories_delta=categories_delta,
        truncation=truncation.name if rho < 1 else "none",
        clip=float(budget.clip),
        guarantee=truncation.guaranteed or rho == 1,
        releases=tuple(counts.releases),
    )
    return replace(model, threshold=threshold, ledger=ledger)


def create_secret_generator() -> np.random.Generator:
    """Create a generator with a secret random 256-bit seed; each call returns another one."""
    return np.random.default_rng(secrets.randbits(256))


def _check_table(budget: PrivacyBudget, table: Table, settings: FitSettings) -> None:
    """Check that the fit can keep the guarantee, before anything is released.

    Raise an error if Opacus is not installed, if the table has more than `max_rows` rows, or if
    bounds are missing.
    """
    import_extra("opacus", extra="privacy")
    n_rows = table.n_source_rows or len(table)
    if n_rows > settings.max_rows:
        raise ParameterError(
            f"PrivacyBudget: the table has {n_rows} rows, more than max_rows={settings.max_rows}, "
            "but a fit under a privacy budget uses all rows. Raise max_rows."
        )
    if budget.bounds is None:
        raise ParameterError(
            "PrivacyBudget: bounds=None, but bounds computed from the table would reveal rows. "
            "Pass bounds=(low, high) for all columns, a dict with the bounds or categories of each "
            "column, or bounds='estimate', which spends a tenth of the budget."
        )


def _fit_encoder(budget: PrivacyBudget, table: Table, counts: NoisyCounts) -> TableEncoder:
    """Return an encoder with declared columns, or with columns estimated from noisy counts.

    The bounds "estimate" spend budget, which `counts` records. Declared bounds spend none.
    """
    if budget.bounds is not None and budget.bounds != "estimate":
        return TableEncoder.from_columns(declare_columns(table.names, table.kinds, budget.bounds))
    columns: dict[int, Column] = {
        index: declare_column(table.names[index], "boolean", (0, 1))
        for index, kind in enumerate(table.kinds)
        if kind == "boolean"
    }
    columns |= _estimate_ranges(table, counts) | _estimate_categories(table, counts)
    return TableEncoder.from_columns(tuple(columns[index] for index in range(len(table.names))))


def _estimate_ranges(table: Table, counts: NoisyCounts) -> dict[int, Column]:
    """Return the numeric and date columns by index, with bounds from noisy counts.

    Without such columns, return an empty dict and spend no budget.
    """
    indices = [i for i, kind in enumerate(table.kinds) if kind in ("number", "date")]
    if not indices:
        return {}
    low, high = counts.bounds(table.numbers(indices))
    return {
        index: declare_column(table.names[index], table.kinds[index], bounds)
        for index, *bounds in zip(indices, low.tolist(), high.tolist(), strict=True)
    }


def _estimate_categories(table: Table, counts: NoisyCounts) -> dict[int, Column]:
    """Return the categorical columns by index, with categories from noisy counts.

    Without such columns, return an empty dict and spend no budget.
    """
    indices = [i for i, kind in enumerate(table.kinds) if kind == "category"]
    if not indices:
        return {}
    frequent = counts.categories(
        [table.categories(index) for index in indices], TableEncoder().max_categories
    )
    return {
        index: declare_column(table.names[index], "category", categories)
        for index, categories in zip(indices, frequent, strict=True)
    }


def _plan_training(
    budget: PrivacyBudget,
    settings: FitSettings,
    counts: NoisyCounts,
    n_rows: int,
    truncation: Truncation,
) -> NoisyPlan:
    """Return the plan with the smallest possible noise, or with the steps that a noise allows.

    The releases so far and the planned release of the threshold count towards the budget. Raise a
    `ParameterError` if the given noise does not allow a single step.
    """
    schedule = cast(AltbiTraining, settings.training).schedule
    others = list(counts.releases)
    if settings.threshold is None:
        others.append(threshold_release(counts))

    def plan(noise: float, steps: int) -> NoisyPlan:
        """Return the plan with this noise and number of steps."""
        return NoisyPlan(
            schedule=schedule,
            n_rows=n_rows,
            clip=budget.clip,
            noise=noise,
            count_share=truncation.count_share if schedule.rho < 1 else 0.0,
            steps=steps,
        )

    def releases(noise: float, steps: int) -> list[Release]:
        """Return all releases of a fit with this noise and number of steps."""
        return [*others, *plan(noise, steps).releases()]

    steps = schedule.n_steps
    if budget.noise == "auto":
        noise = calibrate_noise(lambda noise: releases(noise, steps), counts.epsilon, counts.delta)
        return plan(noise, steps)
    while (
        steps and compute_rdp_epsilon(releases(budget.noise, steps), counts.delta) > counts.epsilon
    ):
        steps -= 1
    if not steps:
        raise ParameterError(
            f"PrivacyBudget: noise={budget.noise}, but a single step would exceed "
            f"epsilon={budget.epsilon}. Raise noise, or pass noise='auto'."
        )
    return plan(budget.noise, steps)


def _train_network(
    settings: FitSettings,
    rows: NDArray[np.float32],
    plan: NoisyPlan,
    truncation: Truncation,
    seed: int,
) -> Generator[TrainingStep, None, Trained]:
    """Train the network, yield after each step, and return snapshots and sampled rows.

    The 2,000 rows are sampled from the trained network and clamped to [0, 1]. If the budget ends
    before the first snapshot, the last state is the snapshot.
    """
    backbone = cast(IWAE, settings.training.backbone)
    secret = torch.Generator().manual_seed(secrets.randbits(32))  # Monte Carlo samples in training
    public = torch.Generator().manual_seed(seed)
    # BatchNorm would mix the rows of a batch.
    with isolate(None):
        model = build_iwae(backbone.choose_sizes(rows.shape[1], batch_norm=False))
        model.initialize(public)
    snapshots: list[SnapshotArrays] = []
    for step in train_privately(
        model,
        torch.from_numpy(rows),
        plan,
        truncation,
        learning_rate=backbone.resolve_learning_rate(private=True),
        weight_decay=backbone.weight_decay,
        generator=secret,
        secret=create_secret_generator(),
    ):
        is_last = step.step == plan.steps - 1
        if plan.schedule.is_snapshot(step.step) or (is_last and not snapshots):
            # The state of the secret generator would reveal how many rows were sampled.
            with isolate(None):
                model.generator = public
                model.resample_noise()
                model.generator = secret
            snapshots.append(copy_state(model))
        yield step
    # Typical values are computed from sampled rows, because the table must not be used again.
    with isolate(None):
        sampled = model.eval().sample_rows(N_MODEL_SAMPLES, public).clamp(0, 1).numpy()
    return stack_states(snapshots), sampled


def _build_scorer(
    settings: FitSettings,
    arrays: SnapshotArrays,
    sampled: NDArray[np.float32],
    encoder: TableEncoder,
) -> LossScorer:
    """Return the scorer of the snapshots, with typical values of rows sampled from the network.

    The score is the plain mean of the losses, without scaling.
    """
    stacked = settings.training.backbone.stack(arrays, sampled.shape[1], batch_norm=False)
    n_snapshots = stacked.n_snapshots
    scorer = LossScorer(stacked, np.zeros(n_snapshots), np.ones(n_snapshots), arrays)
    return replace(scorer, typical=fit_typical_rows(scorer, encoder, sampled))


def _choose_threshold(model: FittedModel, table: Table, counts: NoisyCounts, n_rows: int) -> float:
    """Return the threshold of the settings, or one computed from noisy counts of scores.

    The second case spends budget, which `counts` records. The contamination "auto" is
    `PRIVATE_CONTAMINATION`.
    """
    settings = model.settings
    if settings.threshold is not None:
        return float(settings.threshold)
    share = PRIVATE_CONTAMINATION if settings.contamination == "auto" else settings.contamination
    scores, _ = model.score_table(table)
    size = model.encoder.n_features_encoded
    return counts.threshold(scores, MIN_LOSS * size, MAX_LOSS * size, share, n_rows)
