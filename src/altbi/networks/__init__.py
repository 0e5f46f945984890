"""Networks for encoded rows, the training schedule, and training procedures, in NumPy.

Networks written in PyTorch have the same interfaces; they are in `altbi.torch`.
"""

from altbi.networks._backbone import (
    MAX_LAYERS,
    N_LANDMARKS,
    WORST_LOSS,
    Backbone,
    Objective,
    StateShapes,
    TrainedNetwork,
    are_layer_sizes,
    is_positive,
    select_landmarks,
)
from altbi.networks._iwae import IWAE, default_sizes
from altbi.networks._odim_training import OdimTraining, PeakCheck, Spread, train_until_peak
from altbi.networks._schedule import Schedule, TrainingStep
from altbi.networks._snapshots import (
    LossContributions,
    SnapshotArrays,
    StackedSnapshots,
    stack_states,
)
from altbi.networks._training import AltbiTraining, TrainingLabels, TrainingProcedure, train

__all__ = [
    "IWAE", "MAX_LAYERS", "N_LANDMARKS", "WORST_LOSS", "AltbiTraining", "Backbone",
    "LossContributions", "Objective", "OdimTraining", "PeakCheck", "Schedule", "SnapshotArrays",
    "Spread", "StackedSnapshots", "StateShapes", "TrainedNetwork", "TrainingLabels",
    "TrainingProcedure", "TrainingStep", "are_layer_sizes", "default_sizes", "is_positive",
    "select_landmarks", "stack_states", "train", "train_until_peak",
]  # fmt: skip
