"""Networks for encoded rows, the training schedule, and training procedures.

Names are imported when they are used, so that importing `Schedule` does not import torch.
"""

from typing import TYPE_CHECKING

from altbi._lazy import import_lazily

if TYPE_CHECKING:
    from altbi.networks._backbones import IWAE, Backbone
    from altbi.networks._interfaces import GenerativeModel, LossContributions, StackedSnapshots
    from altbi.networks._iwae import IWAENetwork, default_sizes
    from altbi.networks._parallel import map_blocks, map_in_threads
    from altbi.networks._peak_search import PeakCheck, Spread, search_peak
    from altbi.networks._procedures import (
        AltbiTraining,
        OdimTraining,
        TrainingProcedure,
        run_isolated,
    )
    from altbi.networks._schedule import Schedule, TrainingStep
    from altbi.networks._snapshots import (
        N_LANDMARKS,
        WORST_LOSS,
        SnapshotArrays,
        build_untrained,
        copy_state,
        select_landmarks,
        stack_snapshots,
        stack_states,
    )
    from altbi.networks._training import Adam, TrainingLabels, train

__all__ = [
    "IWAE",
    "N_LANDMARKS",
    "WORST_LOSS",
    "Adam",
    "AltbiTraining",
    "Backbone",
    "GenerativeModel",
    "IWAENetwork",
    "LossContributions",
    "OdimTraining",
    "PeakCheck",
    "Schedule",
    "SnapshotArrays",
    "Spread",
    "StackedSnapshots",
    "TrainingLabels",
    "TrainingProcedure",
    "TrainingStep",
    "build_untrained",
    "copy_state",
    "default_sizes",
    "map_blocks",
    "map_in_threads",
    "run_isolated",
    "search_peak",
    "select_landmarks",
    "stack_snapshots",
    "stack_states",
    "train",
]

__getattr__ = import_lazily(
    __name__,
    {
        "Adam": "altbi.networks._training",
        "AltbiTraining": "altbi.networks._procedures",
        "Backbone": "altbi.networks._backbones",
        "GenerativeModel": "altbi.networks._interfaces",
        "IWAE": "altbi.networks._backbones",
        "IWAENetwork": "altbi.networks._iwae",
        "LossContributions": "altbi.networks._interfaces",
        "N_LANDMARKS": "altbi.networks._snapshots",
        "OdimTraining": "altbi.networks._procedures",
        "PeakCheck": "altbi.networks._peak_search",
        "Schedule": "altbi.networks._schedule",
        "SnapshotArrays": "altbi.networks._snapshots",
        "Spread": "altbi.networks._peak_search",
        "StackedSnapshots": "altbi.networks._interfaces",
        "TrainingLabels": "altbi.networks._training",
        "TrainingProcedure": "altbi.networks._procedures",
        "TrainingStep": "altbi.networks._schedule",
        "WORST_LOSS": "altbi.networks._snapshots",
        "build_untrained": "altbi.networks._snapshots",
        "copy_state": "altbi.networks._snapshots",
        "default_sizes": "altbi.networks._iwae",
        "map_blocks": "altbi.networks._parallel",
        "map_in_threads": "altbi.networks._parallel",
        "run_isolated": "altbi.networks._procedures",
        "search_peak": "altbi.networks._peak_search",
        "select_landmarks": "altbi.networks._snapshots",
        "stack_snapshots": "altbi.networks._snapshots",
        "stack_states": "altbi.networks._snapshots",
        "train": "altbi.networks._training",
    },
)
