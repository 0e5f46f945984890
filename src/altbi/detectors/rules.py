"""The rules for the detectors' parameters."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, cast, get_args

import numpy as np

from altbi.parameters import is_count, is_number
from altbi.privacy.truncation import TruncationName
from altbi.threshold import is_contamination

if TYPE_CHECKING:
    from altbi.detectors.altbi import ALTBI
    from altbi.detectors.odim import ODIM

__all__ = ["altbi_rules", "model_rules", "odim_rules", "seed_rule"]

Rules = dict[str, tuple[bool, str]]

# Far more than a network needs; a hostile model file must not keep anyone busy.
_MAX_LAYERS = 100


def altbi_rules(detector: ALTBI) -> Rules:
    """Rules for ALTBI's own parameters; those of the schedule are the schedule's."""
    flow = detector.backbone == "glow"
    lots = int(detector.n_lots) if is_count(detector.n_lots) else 1
    return {
        "backbone": (
            _is_backbone(detector.backbone),
            "'iwae', 'glow', or a class, function or nn.Module that maps rows to losses",
        ),
        **model_rules(detector),
        "hidden": (
            _are_widths(detector.hidden, exactly=2 if flow else None),
            "'auto' or two widths" if flow else "'auto' or a tuple of widths",
        ),
        "learning_rate": (
            detector.learning_rate == "auto" or _is_rate(detector.learning_rate),
            "'auto' or a number above 0",
        ),
        "flow_steps": (
            _is_size(detector.flow_steps, _MAX_LAYERS),
            f"'auto' or a whole number from 1 to {_MAX_LAYERS}",
        ),
        "network": (detector.network in ("reference", "paper"), "'reference' or 'paper'"),
        "score_by": (detector.score_by in ("distance", "loss"), "'distance' or 'loss'"),
        "keep": (is_number(detector.keep, 0, 1) and detector.keep > 0, "a share in (0, 1]"),
        "n_lots": (is_count(detector.n_lots), "a whole number of at least 1"),
        "whiten": (
            detector.whiten == "auto" or isinstance(detector.whiten, bool),
            "True, False or 'auto'",
        ),
        "n_remembered": (
            is_count(detector.n_remembered, 2 * lots),
            f"a whole number of at least {2 * lots}, two for each lot",
        ),
        "push": (is_number(detector.push, 0), "a number of at least 0"),
        "trust": (is_number(detector.trust, 0, 1) and detector.trust > 0, "a share in (0, 1]"),
        "device": (isinstance(detector.device, str), "'auto' or a name that torch has"),
        "average": (detector.average in ("scaled", "plain"), "'scaled' or 'plain'"),
        "threshold": (
            detector.threshold is None or is_number(detector.threshold),
            "a finite number or None",
        ),
        **privacy_rules(detector),
    }


def privacy_rules(detector: ALTBI) -> Rules:
    """Rules for what a privacy budget needs."""
    rules: Rules = {
        "epsilon": (
            detector.epsilon is None or (is_number(detector.epsilon, 0) and detector.epsilon > 0),
            "a number above 0, or None",
        ),
        "delta": (
            is_number(detector.delta, 0, 1) and 0 < detector.delta < 1,
            "a number between 0 and 1",
        ),
        "bounds": (
            _are_bounds(detector.bounds),
            "(low, high), a dict of bounds and levels by column, 'estimate' or None",
        ),
        "clip": (is_number(detector.clip, 0) and detector.clip > 0, "a number above 0"),
        "noise": (
            detector.noise == "auto" or (is_number(detector.noise, 0) and detector.noise > 0),
            "a number above 0, or 'auto'",
        ),
        "truncation": (
            detector.truncation in get_args(TruncationName),
            f"one of {get_args(TruncationName)}",
        ),
    }
    if detector.epsilon is None:
        # Who gives bounds wants privacy, and must not go without it unawares.
        return rules | {"bounds": (detector.bounds is None, "None without epsilon")}
    at_hand = "with epsilon, which has no other at hand"
    return rules | {
        "backbone": (detector.backbone == "iwae", f"'iwae' {at_hand}"),
        "network": (detector.network == "reference", f"'reference' {at_hand}"),
        "device": (detector.device in ("auto", "cpu"), "'auto' or 'cpu' with epsilon"),
    }


def model_rules(detector: ALTBI | ODIM) -> Rules:
    """Rules that both detectors share."""
    return {
        "draws": (is_count(detector.draws), "a whole number of at least 1"),
        "hidden": (_are_widths(detector.hidden), "'auto' or a tuple of widths"),
        "latent": (_is_size(detector.latent), "'auto' or a whole number of at least 1"),
        "learning_rate": (
            _is_rate(detector.learning_rate),
            "a number above 0",
        ),
        "weight_decay": (is_number(detector.weight_decay, 0), "a number of at least 0"),
        "contamination": (
            is_contamination(detector.contamination),
            "a share in (0, 0.5] or 'auto'",
        ),
        "max_rows": (is_count(detector.max_rows, 2), "a whole number of at least 2 rows"),
        "random_state": seed_rule(detector.random_state),
    }


def seed_rule(random_state: object) -> tuple[bool, str]:
    """Rule for the seed of a fit."""
    expected = "a whole number from 0 to 2**63 - 1, a RandomState or None"
    if is_count(random_state, 0):
        return int(cast(int, random_state)) < 2**63, expected
    return random_state is None or isinstance(random_state, np.random.RandomState), expected


def odim_rules(detector: ODIM) -> Rules:
    """Rules for ODIM's parameters."""
    whole = "a whole number of at least 1"
    return {
        "n_models": (is_count(detector.n_models), whole),
        "batch_size": (is_count(detector.batch_size, 2), "a whole number of at least 2 rows"),
        "check_every": (is_count(detector.check_every), whole),
        "patience": (is_count(detector.patience), whole),
        "max_updates": (is_count(detector.max_updates), whole),
        "spread": (detector.spread in ("deviation", "variance"), "'deviation' or 'variance'"),
        **model_rules(detector),
    }


def _is_backbone(value: object) -> bool:
    return value in ("iwae", "glow") if isinstance(value, str) else callable(value)


def _are_bounds(value: object) -> bool:
    if isinstance(value, Mapping):
        return all(isinstance(name, str) for name in value)
    if isinstance(value, str):
        return value == "estimate"
    return value is None or isinstance(value, tuple | list)


def _is_size(value: object, most: int | None = None) -> bool:
    if isinstance(value, str):
        return value == "auto"
    return is_count(value) and (most is None or int(cast(int, value)) <= most)


def _is_rate(value: object) -> bool:
    return is_number(value, 0) and value != 0


def _are_widths(value: object, exactly: int | None = None) -> bool:
    if isinstance(value, tuple | list):
        fits = 0 < len(value) <= _MAX_LAYERS and (exactly is None or len(value) == exactly)
        return fits and all(map(is_count, value))
    return isinstance(value, str) and value == "auto"
