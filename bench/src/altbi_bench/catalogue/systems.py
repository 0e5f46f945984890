"""The compared systems by the paper's names: how they are built, and how records describe them.

Libraries are imported when a system is built. So the catalogue is fast to import, and the time of
an import is not part of the time of a fit.
"""

import importlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from altbi.errors import MissingExtraError
from altbi_bench.catalogue.datasets import Rows
from altbi_bench.catalogue.earlier_recipes import find_earlier_recipes
from altbi_bench.catalogue.suggestions import unknown_name_error

__all__ = [
    "IMAGE_ONLY",
    "SYSTEMS",
    "Fit",
    "Recipe",
    "Scores",
    "System",
    "build_fit",
    "find_systems",
    "merge_parameters",
]

Scores = NDArray[np.floating]
# A function that fits on rows and returns a function that scores rows; high means outlier. For the
# rows of the fit themselves, the latter returns the detector's training scores, in which a row is
# not its own neighbour.
Fit = Callable[[Rows], Callable[[Rows], Scores]]

# Seeds of the published numbers, found by repeating them; see docs/results.md.
DTE_SEEDS = (0, 1, 2, 3, 6)
DTE_NEIGHBOUR_SEEDS = (0, 1, 2, 3, 4)
DEEP = "altbi_bench.baselines:"
# Module of the baselines in older records.
EARLIER_DEEP = "altbi.baselines:"
DEEP_SEEDS = (0,)
SMOKE_ROWS = 50
# Marks a parameter whose value is an object: its other items are the arguments of this class.
CLASS = "class"


@final
@dataclass(frozen=True, slots=True)
class Recipe:
    """How a detector is built.

    Parameters
    ----------
    source : str
        Class or class method, as ``module:name``.
    parameters : Mapping
        Arguments, as plain values that JSON has. A dict with the key ``"class"`` describes an
        object: ``{"class": "altbi:Schedule", "rho": 1}`` is ``Schedule(rho=1)``.
    """

    source: str
    parameters: Mapping[str, Any] = field(default_factory=dict)

    @property
    def package(self) -> str:
        """The package whose version is recorded."""
        return self.source.partition(":")[0].partition(".")[0]

    def build(self, changes: Mapping[str, Any] | None = None) -> Any:  # noqa: ANN401
        """Import the class and construct the detector, with some parameters changed."""
        return _construct(self.source, merge_parameters(self.parameters, changes or {}))


def merge_parameters(first: Mapping[str, Any], second: Mapping[str, Any]) -> dict[str, Any]:
    """Return the parameters of both; those of nested objects are merged too.

    >>> merge_parameters({"schedule": {"rho": 1}}, {"schedule": {"T2": 4}, "keep": 1})
    {'schedule': {'rho': 1, 'T2': 4}, 'keep': 1}
    """
    merged = {**first, **second}
    for name in first.keys() & second.keys():
        if isinstance(first[name], Mapping) and isinstance(second[name], Mapping):
            merged[name] = merge_parameters(first[name], second[name])
    return merged


def _construct(source: str, parameters: Mapping[str, Any]) -> Any:  # noqa: ANN401
    module, _, name = source.partition(":")
    try:
        found: Any = importlib.import_module(module)
    except ImportError as cause:
        raise MissingExtraError(
            f"{module!r} cannot be imported ({cause}). Install it with: pip install altbi-bench"
        ) from cause
    for attribute in name.split("."):
        found = getattr(found, attribute)
    return found(**{name: _convert_value(value) for name, value in parameters.items()})


def _convert_value(value: Any) -> Any:  # noqa: ANN401
    """Return the object that a JSON value describes."""
    if isinstance(value, Mapping) and CLASS in value:
        return _construct(value[CLASS], {k: v for k, v in value.items() if k != CLASS})
    return tuple(value) if isinstance(value, list) else value


@final
@dataclass(frozen=True, slots=True)
class System:
    """One system of the comparison.

    Parameters
    ----------
    name : str
        Name in all tables.
    column : str or None
        Column in the paper's tables of the unsupervised setting, if there is one.
    recipe : Recipe
        How it is built.
    novelty : Recipe or None
        How it is built if all rows of the fit are inliers; None: as `recipe`.
    smoke : Mapping
        Parameters that make it fast and inaccurate, for trying the benchmark itself.
    seeded : bool
        Whether the seed of a job changes its scores.
    dte_seeds : tuple of int
        Seeds of its published numbers under the protocol `dte`.
    on_request : bool
        Whether it is run and shown only when it is requested by name.
    note : str
        Remark for readers of its numbers.
    """

    name: str
    column: str | None
    recipe: Recipe
    novelty: Recipe | None = None
    smoke: Mapping[str, Any] = field(default_factory=dict)
    seeded: bool = True
    dte_seeds: tuple[int, ...] = DTE_SEEDS
    on_request: bool = False
    note: str = ""

    @property
    def scales_itself(self) -> bool:
        """Whether it scales the columns itself; for all others they are standardised."""
        return self.recipe.package == "altbi"

    @property
    def is_deep(self) -> bool:
        """Whether it is one of the deep baselines."""
        return self.recipe.source.startswith(DEEP)

    def paper_column(self, setting: str) -> str | None:
        """Return the column in the paper's tables; semi-supervised tables have a single ALTBI."""
        if setting == "unsupervised" or not self.scales_itself:
            return self.column
        return "ALTBI" if self.name == "ALTBI-I (reference)" else None

    def recipe_for(self, setting: str) -> Recipe:
        """Return the recipe for one of the paper's settings."""
        return self.novelty or self.recipe if setting == "semisupervised" else self.recipe

    def describe(self, setting: str, *, smoke: bool = False) -> tuple[str, dict[str, Any]]:
        """Return the source and the parameters for records; the seed is left out."""
        recipe = self.recipe_for(setting)
        return recipe.source, merge_parameters(recipe.parameters, self.smoke if smoke else {})

    def matches(
        self, source: str, parameters: Mapping[str, Any], setting: str, *, smoke: bool
    ) -> bool:
        """Return whether a record with this source and these parameters is about this system.

        Records from before the detectors had their current names match by a frozen list.
        """
        if (source, parameters) in find_earlier_recipes(self.name, setting):
            return not smoke
        if source.startswith(EARLIER_DEEP):
            source = DEEP + source.removeprefix(EARLIER_DEEP)
        return (source, parameters) == self.describe(setting, smoke=smoke)


def _schedule(**parameters: Any) -> dict[str, Any]:  # noqa: ANN401
    return {"schedule": {CLASS: "altbi:Schedule", **parameters}}


def _glow(**parameters: Any) -> dict[str, Any]:  # noqa: ANN401
    return {"backbone": {CLASS: "altbi.torch:Glow", **parameters}}


def _altbi(
    name: str,
    column: str | None,
    source: str = "altbi:ALTBI",
    parameters: Mapping[str, Any] | None = None,
    **fields: Any,  # noqa: ANN401
) -> System:
    smoke = _schedule(T1=2, T2=4) | (_glow(flow_steps=1) if column == "ALTBI-G" else {})
    if source.endswith(".paper"):
        smoke = {"max_rows": SMOKE_ROWS}
    return System(name, column, Recipe(source, parameters or {}), smoke=smoke, **fields)


def _novelty(**parameters: Any) -> dict[str, Any]:  # noqa: ANN401
    return {
        "novelty": Recipe("altbi:ALTBI", merge_parameters(parameters, _schedule(T2=90))),
        "note": "on inliers alone with the authors' longer schedule, T2=90",
    }


def _pyod(name: str, source: str, *, seeded: bool = True, **more: Any) -> System:  # noqa: ANN401
    return System(name, name, Recipe(f"pyod.models.{source}"), seeded=seeded, **more)


def _neighbours(name: str, note: str, **method: str) -> System:
    source = "pyod.models.knn:KNN"
    return System(
        name,
        name,
        Recipe(source, {"n_neighbors": 32, **method}),
        novelty=Recipe(source, {"n_neighbors": 5, **method}),
        seeded=False,
        dte_seeds=DTE_NEIGHBOUR_SEEDS,
        note=note,
    )


def _deep(
    name: str,
    note: str = "",
    *,
    parameters: Mapping[str, Any] | None = None,
    in_tables: bool = True,
    **more: Any,  # noqa: ANN401
) -> System:
    """Return a deep baseline; all are on request only, because they are slow."""
    method = name.partition(" (")[0]
    fields: dict[str, Any] = {
        "smoke": {"max_rows": SMOKE_ROWS, "epochs": 1},
        "dte_seeds": DEEP_SEEDS,
    }
    recipe = Recipe(DEEP + method.replace("-", ""), parameters or {})
    column = method if in_tables else None
    return System(name, column, recipe, on_request=True, note=note, **{**fields, **more})


_FEW_ROWS = {"max_rows": SMOKE_ROWS}
_PUBLISHED = "as in the code behind the published numbers: "
_STACKS = "stacks training and test rows, so that a score depends on the other rows of the call"
SYSTEMS = {
    system.name: system
    for system in (
        _altbi(
            "ALTBI",
            None,
            "altbi:OutlierDetector",
            novelty=Recipe("altbi:OutlierDetector", {"keep": 1}),
            note="distance to reference rows, not in the paper; on inliers alone keep=1",
        ),
        _altbi("ALTBI-I (paper)", "ALTBI-I", "altbi:ALTBI.paper"),
        _altbi("ALTBI-I (reference)", "ALTBI-I", **_novelty()),
        _altbi(
            "ALTBI-I (untruncated)",
            "ALTBI-I",
            parameters=_schedule(rho=1),
            on_request=True,
            **_novelty(**_schedule(rho=1)),
        ),
        _altbi("ALTBI-G (light)", "ALTBI-G", parameters=_glow()),
        _altbi(
            "ALTBI-G (reference)",
            "ALTBI-G",
            parameters=_glow(flow_steps=16, hidden=[256, 256]),
            # The records of this setting are of the light flow.
            **_novelty(**_glow()),
        ),
        _altbi(
            "ALTBI-G (half reference)",
            "ALTBI-G",
            parameters=_glow(flow_steps=16, hidden=[128, 128]) | _schedule(max_batch=500),
            on_request=True,
            note="the authors' own setting for InternetAds",
        ),
        System(
            "ODIM",
            "ODIM",
            Recipe("altbi:ODIM", {"spread": "variance"}),
            smoke={"n_models": 1, "patience": 1},
            note="variances instead of standard deviations, as in the authors' code",
        ),
        _pyod("CBLOF", "cblof:CBLOF"),
        _pyod("COPOD", "copod:COPOD", seeded=False, note=_STACKS),
        _pyod("ECOD", "ecod:ECOD", seeded=False, note=_STACKS),
        _pyod("FeatureBagging", "feature_bagging:FeatureBagging"),
        _pyod("HBOS", "hbos:HBOS", seeded=False),
        _pyod("IForest", "iforest:IForest"),
        _neighbours(
            "kNN",
            "distance to the 32nd neighbour, on inliers alone to the 5th, as published",
        ),
        _pyod("LODA", "loda:LODA"),
        _pyod("LOF", "lof:LOF", seeded=False),
        _pyod("MCD", "mcd:MCD"),
        _pyod("OCSVM", "ocsvm:OCSVM", seeded=False, note="SVDD with this kernel is the same"),
        # scikit-learn's newer solver for many rows sets small variances to 0, and PyOD divides by
        # them: on tables with dependent columns, all scores would be infinite.
        System(
            "PCA",
            "PCA",
            Recipe("pyod.models.pca:PCA", {"svd_solver": "full"}),
            seeded=False,
            note="its formula depends on the signs of eigenvectors",
        ),
        _neighbours(
            "DTE-NP",
            "mean distance to 32 neighbours, on inliers alone to 5; no single number of "
            "neighbours reproduces the published numbers there",
            method="mean",
        ),
        _deep("DAGMM"),
        _deep(
            "DAGMM (as published)",
            _PUBLISHED
            + "its weights are not trained (determinant and random scores are corrected)",
            parameters={"untrained": True},
        ),
        _deep("DeepSVDD"),
        _deep(
            "DeepSVDD (as published)",
            _PUBLISHED + "the centre is that of another network",
            parameters={"foreign_centre": True},
        ),
        _deep("DROCC"),
        _deep("GOAD", "one pass over the rows, as published", smoke=_FEW_ROWS),
        _deep(
            "GOAD (as published)",
            _PUBLISHED + "centres are averaged while the network changes",
            parameters={"running_centres": True},
            smoke=_FEW_ROWS,
        ),
        _deep("GOAD (25 epochs)", "longer than published", parameters={"epochs": 25}),
        _deep(
            "ICL",
            "2,000 epochs, as published: hours for a table of a few thousand rows",
        ),
        _deep(
            "ICL (100 epochs)",
            "a twentieth of the published epochs",
            parameters={"epochs": 100},
        ),
        _deep("PlanarFlow"),
        _deep(
            "PlanarFlow (as published)",
            _PUBLISHED + "scored without its base density (but all layers are invertible)",
            parameters={"log_det_only": True},
        ),
        _deep("DDPM"),
        _deep("DTE-IG"),
        _deep(
            "DTE-IG (as published)",
            _PUBLISHED + "scored by an output of which only the square is in the loss",
            parameters={"raw_output": True},
        ),
        _deep("DTE-C"),
        _deep(
            "DTE-C (as published)",
            _PUBLISHED + "softmax is applied twice",
            parameters={"softmax_twice": True},
        ),
        _deep("RDA", "related work, without a column in the paper", in_tables=False),
        _deep("DSEBM", "related work, without a column in the paper", in_tables=False),
        _deep(
            "DeepSAD",
            "related work; without labels, DeepSVDD after pretraining an autoencoder",
            in_tables=False,
            smoke={"max_rows": SMOKE_ROWS, "epochs": 1, "first_epochs": 1},
        ),
    )
}
# Related work that cannot be run here, because it learns from transformations of images.
IMAGE_ONLY = {
    "SimCLR": "needs images to crop and recolour, but ADBench has only embeddings of images",
    "CSI": "needs images to rotate, but ADBench has only embeddings of images",
}


def find_systems(names: Sequence[str] | None = None) -> list[System]:
    """Return systems by name, in the order of the catalogue; without names, the default ones."""
    if unknown := [name for name in names or () if name not in SYSTEMS]:
        requested = {name.lower() for name in unknown}
        absent = [f"{name} {why}" for name, why in IMAGE_ONLY.items() if name.lower() in requested]
        where = "; ".join(["`altbi-bench systems` lists all", *absent])
        known = [*SYSTEMS, *IMAGE_ONLY]
        raise unknown_name_error("system that can be run", unknown, known, where)
    if names is None:
        return [system for system in SYSTEMS.values() if not system.on_request]
    return [system for system in SYSTEMS.values() if system.name in names]


def build_fit(system: System, setting: str, seed: int, *, smoke: bool = False) -> Fit:
    """Build the detector of a job, and return the function that fits it."""
    changes = {"random_state": seed} if system.seeded else {}
    detector = system.recipe_for(setting).build({**changes, **(system.smoke if smoke else {})})
    is_ours = system.scales_itself or system.is_deep
    return _fit_altbi(detector) if is_ours else _fit_pyod(detector)


def _fit_altbi(detector: Any) -> Fit:  # noqa: ANN401
    return lambda rows: detector.fit(rows).outlier_score


def _fit_pyod(detector: Any) -> Fit:  # noqa: ANN401
    def fit(rows: Rows) -> Callable[[Rows], Scores]:
        detector.fit(rows)
        return lambda test: (
            detector.decision_scores_ if test is rows else detector.decision_function(test)
        )

    return fit
