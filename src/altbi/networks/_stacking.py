"""Snapshots of a trained network as one object that scores rows."""

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from altbi.networks._backbones import Backbone
from altbi.networks._interfaces import GenerativeModel, StackedSnapshots
from altbi.networks._iwae import IWAENetwork
from altbi.networks._snapshots import Landmarks, Snapshots
from altbi.networks._stacked_iwae import StackedIWAE
from altbi.networks._torch_modes import PrivateRandomState, default_modes

__all__ = ["SnapshotArrays", "build_untrained", "stack_snapshots", "stack_states"]

# The weights of several snapshots by name; each array has the snapshots as its first axis.
SnapshotArrays = dict[str, NDArray[Any]]


def stack_states(states: list[dict[str, torch.Tensor]]) -> SnapshotArrays:
    """Return the state dicts of several snapshots as one array for each name."""
    return {
        name: torch.stack([state[name] for state in states]).cpu().numpy() for name in states[0]
    }


def build_untrained(
    backbone: Backbone,
    n_features: int,
    *,
    sized_for: int | None = None,
    batch_norm: bool = True,
) -> GenerativeModel:
    """Return an untrained network, whatever modes of torch the caller has set.

    A network of ours has shapes but no memory for its weights. One of the user's own may draw from
    torch's global random state, which is then a private one.
    """
    with default_modes(), PrivateRandomState.for_custom(backbone.is_custom, seed=0):
        return backbone.build(n_features, sized_for=sized_for, batch_norm=batch_norm)


def stack_snapshots(
    model: GenerativeModel,
    arrays: SnapshotArrays,
    landmarks: NDArray[np.float32] | None,
    feature_columns: NDArray[np.intp],
) -> StackedSnapshots:
    """Return the snapshots of a network as one object that evaluates them together.

    Parameters
    ----------
    model : GenerativeModel
        The network; its own weights are not used.
    arrays : dict
        The snapshots' weights.
    landmarks : ndarray of shape (n_landmarks, n_features) or None
        Typical values of each encoded feature. Explanations of networks other than the IWAE
        compare a row with them.
    feature_columns : ndarray of shape (n_features,)
        The column of the table to which each encoded feature belongs.

    Returns
    -------
    StackedSnapshots
        The snapshots.
    """
    with default_modes():
        states = {name: torch.from_numpy(array) for name, array in arrays.items()}
        if isinstance(model, IWAENetwork):
            return StackedIWAE(model, states)
        if landmarks is None:
            raise ValueError("landmarks are missing")
        columns = torch.from_numpy(feature_columns)
        return Snapshots(model, states, Landmarks(torch.from_numpy(landmarks), columns))
