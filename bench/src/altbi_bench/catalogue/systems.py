"""The systems compared, under the paper's names: what each is, and how it is built for a job.

Libraries are imported when a system is built, so that the catalogue itself costs nothing and the
time of an import is not taken for the time of a fit.
"""

import importlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from altbi.errors import MissingExtraError
from altbi_bench.catalogue.datasets import Rows
from altbi_bench.catalogue.suggestions import no_such

__all__ = [
    "FOR_IMAGES",
    "SYSTEMS",
    "Fit",
    "Recipe",
    "Scores",
    "System",
    "find_systems",
    "ready_to_fit",
]

Scores = NDArray[np.floating]
# Fitted on rows; what comes back scores rows, high = outlier. Handed the very rows of the fit, it
# gives the scores that the detector keeps for them (a row is then not its own neighbour).
Fit = Callable[[Rows], Callable[[Rows], Scores]]

# Seeds of the published numbers: found by replaying them, see docs/results.md.
DTE_SEEDS = (0, 1, 2, 3, 6)
DTE_SEEDS_OF_NEIGHBOURS = (0, 1, 2, 3, 4)
DEEP = "altbi_bench.baselines:"
# Where the baselines were when the older records were written.
DEEP_BEFORE = "altbi.baselines:"
DEEP_SEEDS = (0,)


@final
@dataclass(frozen=True, slots=True)
class Recipe:
    """Where a detector comes from, as ``module:name``, and with which arguments it is built.

    Those in `since` keep it what it was when a default changed; lines of before do not name them.
    """

    source: str
    parameters: Mapping[str, Any] = field(default_factory=dict)
    since: Mapping[str, Any] = field(default_factory=dict)

    @property
    def package(self) -> str:
        """Name of the package whose version counts."""
        return self.source.partition(":")[0].partition(".")[0]

    def build(self, **more: Any) -> Any:  # noqa: ANN401 - detectors of several libraries
        """Import and construct the detector."""
        module, _, name = self.source.partition(":")
        try:
            found: Any = importlib.import_module(module)
        except ImportError as cause:
            raise MissingExtraError(
                f"{module!r} cannot be imported ({cause}). Install it with: pip install altbi-bench"
            ) from cause
        for each in name.split("."):
            found = getattr(found, each)
        return found(**{**self.parameters, **self.since, **more})


@final
@dataclass(frozen=True, slots=True)
class System:
    """One system of the comparison.

    Parameters
    ----------
    name : str
        Its name in all tables.
    column : str or None
        Its column in the paper's tables of the unsupervised setting, if it has one.
    recipe : Recipe
        How it is built.
    novelty : Recipe or None
        How it is built where the rows of the fit are all inliers, if otherwise.
    smoke : Mapping
        Arguments that make it quick and poor, for trying the benchmark itself.
    seeded : bool
        Whether the seed of a job changes its scores.
    dte_seeds : tuple of int
        Seeds of its published numbers under the protocol `dte`.
    aside : bool
        Whether it is run and shown only when asked for by name.
    note : str
        What a reader of its numbers should know.
    """

    name: str
    column: str | None
    recipe: Recipe
    novelty: Recipe | None = None
    smoke: Mapping[str, Any] = field(default_factory=dict)
    seeded: bool = True
    dte_seeds: tuple[int, ...] = DTE_SEEDS
    aside: bool = False
    note: str = ""

    @property
    def scales_itself(self) -> bool:
        """Whether it brings its columns to one scale; for all others they are standardised."""
        return self.recipe.package == "altbi"

    @property
    def is_deep(self) -> bool:
        """Whether it is one of the deep baselines."""
        return self.recipe.source.startswith(DEEP)

    def column_in(self, setting: str) -> str | None:
        """Its column in the paper's tables; those of the semi-supervised setting have one ALTBI."""
        if setting == "unsupervised" or not self.scales_itself:
            return self.column
        return "ALTBI" if self.name == "ALTBI-I (reference)" else None

    def recipe_for(self, setting: str) -> Recipe:
        """How it is built in one of the paper's settings."""
        return self.novelty or self.recipe if setting == "semisupervised" else self.recipe

    def told(self, setting: str, *, smoke: bool = False) -> tuple[str, dict[str, Any]]:
        """Say how it is built in a setting: its source, and its arguments but the seed."""
        recipe = self.recipe_for(setting)
        own = {**recipe.parameters, **recipe.since}
        return recipe.source, {**own, **(self.smoke if smoke else {})}

    def is_told(
        self, source: str, parameters: Mapping[str, Any], setting: str, *, smoke: bool
    ) -> bool:
        """Whether a line of now, or of before a default changed, is about this very system."""
        since = self.recipe_for(setting).since
        if source.startswith(DEEP_BEFORE):
            source = DEEP + source.removeprefix(DEEP_BEFORE)
        return (source, {**since, **parameters}) == self.told(setting, smoke=smoke)


def _altbi(
    name: str,
    column: str | None,
    preset: str,
    changes: Mapping[str, Any] | None = None,
    since: Mapping[str, Any] | None = None,
    **more: Any,  # noqa: ANN401
) -> System:
    parameters = {**(changes or {}), **({"backbone": "glow"} if column == "ALTBI-G" else {})}
    source = "altbi:ALTBI" if preset == "plain" else f"altbi:ALTBI.{preset}"
    quick = {"T1": 2, "T2": 4} | ({"flow_steps": 1} if column == "ALTBI-G" else {})
    return System(name, column, Recipe(source, parameters, since or {}), smoke=quick, **more)


def _novelty(**parameters: Any) -> dict[str, Any]:  # noqa: ANN401
    return {
        "novelty": Recipe("altbi:ALTBI.novelty", parameters),
        "note": "on inliers alone with the authors' longer schedule, ALTBI.novelty",
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
        dte_seeds=DTE_SEEDS_OF_NEIGHBOURS,
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
    """Take a deep baseline; all stand aside, because they are slow."""
    method = name.partition(" (")[0]
    fields: dict[str, Any] = {"smoke": {"max_rows": 50, "epochs": 1}, "dte_seeds": DEEP_SEEDS}
    recipe = Recipe(DEEP + method.replace("-", ""), parameters or {})
    column = method if in_tables else None
    return System(name, column, recipe, aside=True, note=note, **{**fields, **more})


_FEW_ROWS = {"max_rows": 50}
_PUBLISHED = "as in the code behind the published numbers: "
_STACKS = "puts the rows of the fit and of the query together: a score depends on its neighbours"
SYSTEMS = {
    system.name: system
    for system in (
        _altbi(
            "ALTBI",
            None,
            "plain",
            novelty=Recipe("altbi:ALTBI", {"keep": 1}),
            note="distance to remembered rows, not in the paper; on inliers alone keep=1",
        ),
        _altbi("ALTBI-I (paper)", "ALTBI-I", "paper"),
        _altbi("ALTBI-I (reference)", "ALTBI-I", "reference", **_novelty()),
        _altbi(
            "ALTBI-I (untruncated)",
            "ALTBI-I",
            "reference",
            {"rho": 1},
            aside=True,
            **_novelty(rho=1),
        ),
        _altbi("ALTBI-G (light)", "ALTBI-G", "plain", since={"score_by": "loss"}),
        _altbi("ALTBI-G (reference)", "ALTBI-G", "reference", **_novelty(backbone="glow")),
        _altbi(
            "ALTBI-G (half reference)",
            "ALTBI-G",
            "reference",
            {"hidden": [128, 128], "max_batch": 500},  # as lines have it: JSON knows no tuples
            aside=True,
            note="the authors' own setting for InternetAds",
        ),
        System(
            "ODIM",
            "ODIM",
            Recipe("altbi:ODIM.reference"),
            smoke={"n_models": 1, "patience": 1},
            note="variances in place of deviations, as in the authors' code",
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
        # them: on tables with dependent columns every score would be infinite.
        System(
            "PCA",
            "PCA",
            Recipe("pyod.models.pca:PCA", {"svd_solver": "full"}),
            seeded=False,
            note="its formula depends on the signs of eigenvectors",
        ),
        _neighbours(
            "DTE-NP",
            "mean distance to 32 neighbours, on inliers alone to 5; no one number of neighbours "
            "gives the published ones there",
            method="mean",
        ),
        _deep("DAGMM"),
        _deep(
            "DAGMM (as published)",
            _PUBLISHED
            + "it never learns (but its determinant is right, and scores are not random)",
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
            _PUBLISHED + "centres are met while the network changes",
            parameters={"running_centres": True},
            smoke=_FEW_ROWS,
        ),
        _deep("GOAD (25 epochs)", "longer than published", parameters={"epochs": 25}),
        _deep(
            "ICL",
            "2,000 epochs, as published: hours for a table of some thousand rows",
        ),
        _deep(
            "ICL (100 epochs)",
            "a twentieth of the published epochs",
            parameters={"epochs": 100},
        ),
        _deep("PlanarFlow"),
        _deep(
            "PlanarFlow (as published)",
            _PUBLISHED + "scored without its base density (but no layer folds space)",
            parameters={"log_det_only": True},
        ),
        _deep("DDPM"),
        _deep("DTE-IG"),
        _deep(
            "DTE-IG (as published)",
            _PUBLISHED + "scored by an output of which the loss sees only the square",
            parameters={"raw_output": True},
        ),
        _deep("DTE-C"),
        _deep(
            "DTE-C (as published)",
            _PUBLISHED + "softmax is taken twice",
            parameters={"softmax_twice": True},
        ),
        _deep("RDA", "related work, without a column in the paper", in_tables=False),
        _deep("DSEBM", "related work, without a column in the paper", in_tables=False),
        _deep(
            "DeepSAD",
            "related work; without known rows, DeepSVDD after an autoencoder",
            in_tables=False,
            smoke={"max_rows": 50, "epochs": 1, "first_epochs": 1},
        ),
    )
}
# Related work that cannot be run here: what it learns from are changes of pictures.
FOR_IMAGES = {
    "SimCLR": "needs pictures to crop and colour; ADBench has numbers that a network made of them",
    "CSI": "needs pictures to rotate; ADBench has numbers that a network made of them",
}


def find_systems(names: Sequence[str] | None = None) -> list[System]:
    """Take systems by name, in the order of the catalogue; without names all that differ."""
    if unknown := [name for name in names or () if name not in SYSTEMS]:
        asked = {name.lower() for name in unknown}
        absent = [f"{name} {why}" for name, why in FOR_IMAGES.items() if name.lower() in asked]
        where = "; ".join(["`altbi-bench systems` lists all", *absent])
        raise no_such("system that can be run", unknown, [*SYSTEMS, *FOR_IMAGES], where)
    wanted = [each.name for each in SYSTEMS.values() if not each.aside] if names is None else names
    return [system for system in SYSTEMS.values() if system.name in wanted]


def ready_to_fit(system: System, setting: str, seed: int, *, smoke: bool = False) -> Fit:
    """Build a system for a job."""
    more = {"random_state": seed} if system.seeded else {}
    detector = system.recipe_for(setting).build(**more, **(system.smoke if smoke else {}))
    ours = system.scales_itself or system.is_deep
    return _with_altbi(detector) if ours else _with_pyod(detector)


def _with_altbi(detector: Any) -> Fit:  # noqa: ANN401
    return lambda rows: detector.fit(rows).outlier_score


def _with_pyod(detector: Any) -> Fit:  # noqa: ANN401
    def fit(rows: Rows) -> Callable[[Rows], Scores]:
        detector.fit(rows)
        return lambda test: (
            detector.decision_scores_ if test is rows else detector.decision_function(test)
        )

    return fit
