"""Networks for encoded rows, the schedule of Algorithm 1, and training procedures."""

from altbi.networks._backbones import IWAE, Backbone
from altbi.networks._interfaces import GenerativeModel, LossContributions, StackedSnapshots
from altbi.networks._iwae import IWAENetwork, default_sizes
from altbi.networks._parallel import map_blocks, map_in_threads
from altbi.networks._peak_search import PeakCheck, Spread, search_peak
from altbi.networks._procedures import AltbiTraining, OdimTraining, TrainingProcedure, run_isolated
from altbi.networks._schedule import Schedule
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
from altbi.networks._training import Adam, TrainingLabels, TrainingStep, train

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
