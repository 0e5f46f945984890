"""A fit under a privacy budget: what is released, in its order."""

from __future__ import annotations

import secrets
import warnings
from collections.abc import Iterator
from typing import TYPE_CHECKING, cast

import numpy as np
import torch
from numpy.typing import NDArray

from altbi.encode import Column, TableEncoder, declared_column, declared_columns
from altbi.ensemble import Ensemble
from altbi.errors import ParameterError, TableWarning, need
from altbi.explain import typical_of
from altbi.models import IWAE
from altbi.privacy.accounting import Release, calibrated, epsilon_of
from altbi.privacy.ledger import Ledger, parted_delta
from altbi.privacy.releases import Teller, threshold_release
from altbi.privacy.training import NoisyPlan, private_train
from altbi.privacy.truncation import Truncation, truncation_of
from altbi.table import Table, Writing

if TYPE_CHECKING:
    from altbi.detectors.altbi import ALTBI
    from altbi.train import Progress

__all__ = ["learn_privately"]

# What "auto" stands for where nothing may be estimated from the scores.
CONTAMINATION = 0.1
# Losses of a unit in [0, 1] with log-variances in [-6, 2], and some room.
LEAST_LOSS, MOST_LOSS = -7.0, 200.0
N_DREAMED = 2000


def learn_privately(detector: ALTBI, epsilon: float, table: Table, seed: int) -> Iterator[Progress]:
    """Go the whole way of a private fit; leaves all that a fitted detector has.

    The first weights and the draws for scoring come from the seed. All else that is drawn, batches
    and noise, comes from a source that nobody can repeat.
    """
    _check_table(detector, table)
    estimates_levels = detector.bounds == "estimate" and "category" in table.kinds
    delta, levels_delta = parted_delta(detector.delta, names_levels=estimates_levels)
    teller = Teller(epsilon, delta, secret_generator())
    n_rows = teller.count(len(table))
    detector.n_rows_in_ = detector.n_sample_ = n_rows
    # How a column is read is told by its cells: a single row may change it.
    detector.writing_ = Writing(missing=table.writing.missing)
    detector.encoder_ = _encoder(detector, table, teller)
    # What lies outside the bounds must not lead the training astray.
    rows = detector.encoder_.transform(table).clip(0, 1)
    truncation = truncation_of(detector.truncation, rows.shape[1])
    plan = _plan(detector, teller, n_rows, truncation)

    yield from detector._alone(_trained(detector, rows, plan, truncation, seed), seed)
    teller.releases += plan.releases()
    detector.offset_ = -_threshold(detector, table, teller, n_rows)
    detector.ledger_ = Ledger(
        epsilon=float(epsilon),
        delta=float(detector.delta),
        levels_delta=levels_delta,
        truncation=detector.truncation if detector.rho < 1 else "none",
        clip=float(detector.clip),
        guarantee=truncation.guaranteed or detector.rho == 1,
        releases=tuple(teller.releases),
    )
    for doubt in detector.ledger_.doubts(n_rows):
        warnings.warn(doubt, TableWarning, stacklevel=5)


def secret_generator() -> np.random.Generator:
    """Give a source of noise that nobody can guess."""
    return np.random.default_rng(secrets.randbits(256))


def _check_table(detector: ALTBI, table: Table) -> None:
    """Refuse what would break the promise; said before anything is released."""
    need("opacus", extra="privacy")
    n_rows = table.drawn_from or len(table)
    if n_rows > detector.max_rows:
        raise ParameterError(
            f"The table has {n_rows} rows, more than max_rows={detector.max_rows}, but a fit under "
            "a privacy budget learns from all rows. Raise max_rows."
        )
    if detector.bounds is None:
        raise ParameterError(
            f"epsilon={detector.epsilon}, but there are no bounds, and reading them from the table "
            "would give rows away. Give bounds=(low, high) for all columns, a dict with the bounds "
            "or levels of each, or bounds='estimate', which takes a tenth of the budget."
        )


def _encoder(detector: ALTBI, table: Table, teller: Teller) -> TableEncoder:
    if detector.bounds is not None and detector.bounds != "estimate":
        return TableEncoder.declare(declared_columns(table.names, table.kinds, detector.bounds))
    columns: dict[int, Column] = {
        number: declared_column(table.names[number], "boolean", (0, 1))
        for number, kind in enumerate(table.kinds)
        if kind == "boolean"
    }
    columns |= _estimated_ranges(table, teller) | _estimated_levels(table, teller)
    return TableEncoder.declare(tuple(columns[number] for number in range(len(table.names))))


def _estimated_ranges(table: Table, teller: Teller) -> dict[int, Column]:
    numbers = [n for n, kind in enumerate(table.kinds) if kind in ("number", "date")]
    if not numbers:
        return {}
    low, high = teller.bounds(table.numbers(numbers))
    return {
        number: declared_column(table.names[number], table.kinds[number], ends)
        for number, *ends in zip(numbers, low.tolist(), high.tolist(), strict=True)
    }


def _estimated_levels(table: Table, teller: Teller) -> dict[int, Column]:
    numbers = [n for n, kind in enumerate(table.kinds) if kind == "category"]
    if not numbers:
        return {}
    found = teller.levels([table.levels(number) for number in numbers], TableEncoder().max_levels)
    return {
        number: declared_column(table.names[number], "category", levels)
        for number, levels in zip(numbers, found, strict=True)
    }


def _plan(detector: ALTBI, teller: Teller, n_rows: int, truncation: Truncation) -> NoisyPlan:
    """Find the noise for all steps, or, with a noise that is given, the steps that it allows."""
    schedule = detector._schedule()
    later = [] if detector.threshold is not None else [threshold_release(teller)]
    fixed = [*teller.releases, *later]

    def plan(noise: float, steps: int) -> NoisyPlan:
        return NoisyPlan(
            schedule=schedule,
            n_rows=n_rows,
            clip=detector.clip,
            noise=noise,
            count_share=truncation.count_share if schedule.rho < 1 else 0.0,
            steps=steps,
        )

    def releases(noise: float, steps: int) -> list[Release]:
        return [*fixed, *plan(noise, steps).releases()]

    if detector.noise == "auto":
        noise = calibrated(
            lambda noise: releases(noise, schedule.steps), teller.epsilon, teller.delta
        )
        return plan(noise, schedule.steps)
    steps = schedule.steps
    while steps and epsilon_of(releases(detector.noise, steps), teller.delta) > teller.epsilon:
        steps -= 1
    if not steps:
        raise ParameterError(
            f"noise={detector.noise}: a single step would cost more than epsilon="
            f"{detector.epsilon}. Give more noise, or leave it to 'auto'."
        )
    return plan(detector.noise, steps)


def _trained(
    detector: ALTBI,
    rows: NDArray[np.float32],
    plan: NoisyPlan,
    truncation: Truncation,
    seed: int,
) -> Iterator[Progress]:
    """Train, and keep the snapshots; if the budget ends before the first, the last state."""
    within = torch.Generator().manual_seed(secrets.randbits(32))  # the model's draws in training
    public = torch.Generator().manual_seed(seed)
    model = cast(IWAE, detector._fresh_model(rows.shape[1], public))
    snapshots: list[dict[str, torch.Tensor]] = []
    detector.history_ = []
    for progress in private_train(
        model,
        torch.from_numpy(rows),
        plan,
        truncation,
        learning_rate=detector._learning_rate(),
        weight_decay=detector.weight_decay,
        generator=within,
        secret=secret_generator(),
    ):
        detector.history_.append(progress)
        last = progress.step == plan.steps - 1
        if plan.schedule.is_snapshot(progress.step) or (last and not snapshots):
            # How far the other generator has come would tell how many rows were drawn.
            model.generator = public
            model.redraw()
            model.generator = within
            snapshots.append({k: v.clone() for k, v in model.state_dict().items()})
        yield progress
    detector._keep_snapshots(snapshots)
    # What is usual is told by rows that the model dreams of: the table's own may not be used again.
    dreamed = model.eval().dreamed(N_DREAMED, public).clamp(0, 1).numpy()
    _judge(detector, dreamed)


def _judge(detector: ALTBI, dreamed: NDArray[np.float32]) -> None:
    """Make one scorer of the snapshots, and learn what is usual from rows that nobody owns."""
    stacked = detector._stacked(dreamed.shape[1])
    count = stacked.n_snapshots
    detector.memory_ = None
    detector.ensemble_ = Ensemble(stacked, np.zeros(count), np.ones(count))
    detector.typical_ = typical_of(detector.ensemble_, detector.encoder_, dreamed)


def _threshold(detector: ALTBI, table: Table, teller: Teller, n_rows: int) -> float:
    if detector.threshold is not None:
        return float(detector.threshold)
    share = CONTAMINATION if detector.contamination == "auto" else detector.contamination
    scores, _ = detector._scored(table)
    units = detector.encoder_.width
    return teller.threshold(scores, LEAST_LOSS * units, MOST_LOSS * units, share, n_rows)
