"""Networks for encoded rows, the training schedule, and training procedures.

Names are imported when they are used, so that importing `Schedule` does not import torch.
"""

from typing import TYPE_CHECKING

from altbi._lazy import import_lazily

if TYPE_CHECKING:
    from altbi.networks._generative_model import (
        N_LANDMARKS,
        WORST_LOSS,
        Backbone,
        GenerativeModel,
        SnapshotArrays,
        StackedSnapshots,
        build_untrained,
        copy_state,
        select_landmarks,
        stack_snapshots,
        stack_states,
    )
    from altbi.networks._iwae import IWAE, IWAENetwork, default_sizes
    from altbi.networks._odim_training import OdimTraining, PeakCheck, Spread, search_peak
    from altbi.networks._schedule import Schedule, TrainingStep
    from altbi.networks._torch_modes import map_blocks, map_in_threads
    from altbi.networks._training import (
        Adam,
        AltbiTraining,
        TrainingLabels,
        TrainingProcedure,
        run_isolated,
        train,
    )

__all__ = [
    "IWAE", "N_LANDMARKS", "WORST_LOSS", "Adam", "AltbiTraining", "Backbone", "GenerativeModel",
    "IWAENetwork", "OdimTraining", "PeakCheck", "Schedule", "SnapshotArrays", "Spread",
    "StackedSnapshots", "TrainingLabels", "TrainingProcedure", "TrainingStep", "build_untrained",
    "copy_state", "default_sizes", "map_blocks", "map_in_threads", "run_isolated", "search_peak",
    "select_landmarks", "stack_snapshots", "stack_states", "train",
]  # fmt: skip

_NAMES = {
    "_generative_model": (
        "N_LANDMARKS", "WORST_LOSS", "Backbone", "GenerativeModel", "SnapshotArrays",
        "StackedSnapshots", "build_untrained", "copy_state", "select_landmarks", "stack_snapshots",
        "stack_states",
    ),
    "_iwae": ("IWAE", "IWAENetwork", "default_sizes"),
    "_odim_training": ("OdimTraining", "PeakCheck", "Spread", "search_peak"),
    "_schedule": ("Schedule", "TrainingStep"),
    "_torch_modes": ("map_blocks", "map_in_threads"),
    "_training": (
        "Adam", "AltbiTraining", "TrainingLabels", "TrainingProcedure", "run_isolated", "train",
    ),
}  # fmt: skip
_modules: dict[str, str] = {}
for _module, _names in _NAMES.items():
    _modules.update(dict.fromkeys(_names, f"{__name__}.{_module}"))
__getattr__ = import_lazily(__name__, _modules)
