import importlib
import inspect
import json
import re
import resource
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import altbi
from altbi import OutlierDetector, Schedule

COMMAND = "import sys; from altbi.cli import main; sys.exit(main(sys.argv[1:]))"
PROGRAM = "from altbi.cli import main; sys.exit(main())"
HEAVY = {"numpy", "torch", "sklearn", "scipy", "pyarrow", "pandas", "polars", "pyod"} | {
    "safetensors", "altair", "vl_convert", "jinja2", "shtab", "dask", "distributed"
}  # fmt: skip
UNUSED = "sklearn,scipy.stats,pandas"
# Hides modules from a program: the first set is not installed, the second must not be imported.
HIDE = """
import sys
from importlib.machinery import PathFinder
missing, unused = ({name for name in names.split(",") if name} for names in sys.argv[1:3])
del sys.argv[1:3]
class Refuse:
    def create_module(self, spec):
        return None
    def exec_module(self, module):
        sys.stderr.write(f"{module.__name__} must not be imported\\n")
        raise ImportError(module.__name__)
class Finder:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in missing:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
        if name in unused:
            spec = PathFinder.find_spec(name, path)
            spec.loader = Refuse()
            return spec
sys.meta_path.insert(0, Finder())
"""
INSTALL = " is not installed. Install it with: pip install 'altbi[{}]'\n"
DEFAULT = re.compile(r"^(\w+) : .*default=(.+)$", re.MULTILINE)


def heavy_imports(code, *arguments):
    """Run a program, and return the heavy packages that it has imported."""
    listing = (
        "import atexit, json, sys\n"
        "atexit.register(lambda: sys.stderr.write('\\n' + json.dumps(sorted(sys.modules))))\n"
    )
    result = subprocess.run(
        [sys.executable, "-c", listing + code, *arguments], capture_output=True, text=True
    )
    assert result.returncode == 0, result.stderr
    return HEAVY & set(json.loads(result.stderr.splitlines()[-1]))


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    path = tmp_path_factory.mktemp("models") / "some.model"
    rows = np.random.default_rng(0).normal(size=(30, 2))
    OutlierDetector(schedule=Schedule(T0=1, T1=1, T2=2)).fit(rows).save(path)
    return str(path)


@pytest.mark.slow
def test_fit_imports_no_slow_modules():
    """Some modules of torch and scikit-learn take longer to import than a small table to fit."""
    code = (
        "import sys, numpy; from altbi import OutlierDetector\n"
        "OutlierDetector().fit(numpy.random.default_rng(0).normal(size=(60, 2)))\n"
        "print(json.dumps(sorted(sys.modules)))\n"
    )
    result = subprocess.run(
        [sys.executable, "-c", "import json\n" + code], capture_output=True, text=True, check=True
    )
    modules = json.loads(result.stdout)
    assert "altbi.detectors._odim" in modules
    assert not {"sympy", "sklearn.mixture", "torch._dynamo"} & set(modules)


@pytest.mark.slow
def test_the_listing_sees_an_import():
    assert "sklearn" in heavy_imports("import sklearn")


@pytest.mark.parametrize(
    "code",
    ["import altbi; altbi.__version__; dir(altbi)", "from altbi import AltbiError"],
)
def test_light_names_import_nothing_heavy(code):
    assert heavy_imports(code) == set()


def run_without(*arguments, code=PROGRAM, missing="torch,opacus", unused=""):
    """Run a program to which some modules are missing, and to which others refuse their import."""
    command = [sys.executable, "-c", HIDE + code, missing, unused, *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True)


@pytest.mark.parametrize("name", ["Schedule", "IWAE", "detect", "load"])
def test_core_names_need_neither_torch_nor_sklearn(name):
    done = run_without(code=f"from altbi import {name}", unused=UNUSED)

    assert (done.returncode, done.stderr) == (0, "")


def test_hidden_modules_cannot_be_imported():
    for name in (*UNUSED.split(","), "torch"):
        done = run_without(code=f"import {name}", unused=UNUSED)
        assert "ImportError" in done.stderr or "ModuleNotFoundError" in done.stderr, name


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Return a folder with a table and the path of its model file."""
    path = tmp_path_factory.mktemp("tables")
    rng = np.random.default_rng(0)
    rows = zip(*rng.normal(size=(2, 120)), rng.choice(["red", "blue"], 120), strict=True)
    lines = [f"{size:.4f},{weight:.4f},{colour}" for size, weight, colour in rows]
    (path / "t.csv").write_text("\n".join(["size,weight,colour", *lines]))
    done = run_without("fit", path / "t.csv", "-o", path / "t.altbi", unused=UNUSED)
    assert done.returncode == 0, done.stderr
    return path


@pytest.mark.parametrize(
    "command",
    [
        "detect t.csv --output {out}",
        "detect t.csv --method altbi --output {out}",
        pytest.param("detect t.csv --method odim --output {out}", marks=pytest.mark.slow),
        "fit t.csv --output {out}/t.altbi",
        "score t.csv --model t.altbi --output {out}/s.csv",
        "score t.csv --model t.altbi --output {out}/s.parquet",
        "explain t.csv --model t.altbi",
        "cells t.csv --model t.altbi --output {out}/c.csv",
        "report t.csv --model t.altbi --output {out}/page.html",
        "inspect t.altbi",
        "demo --output {out}",
    ],
)
def test_commands_run_without_torch_and_sklearn(command, folder, tmp_path, monkeypatch):
    monkeypatch.chdir(folder)

    done = run_without(*command.format(out=tmp_path).split(), unused=UNUSED)

    assert done.returncode == 0, done.stderr
    assert "must not be imported" not in done.stderr


@pytest.mark.parametrize(
    ("command", "extra"),
    [
        ("detect t.csv --method altbi-glow --output {out}", "torch"),
        ("fit t.csv --exclude colour --epsilon 3 --bounds -4 4 --output {out}/p", "privacy"),
    ],
)
def test_command_names_the_missing_extra(command, extra, folder, tmp_path, monkeypatch):
    monkeypatch.chdir(folder)

    done = run_without(*command.format(out=tmp_path).split())

    assert (done.returncode, done.stderr.count("\n")) == (1, 1), done.stderr
    assert done.stderr.endswith(INSTALL.format(extra))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("code", "extra"),
    [
        ("from altbi.torch import Glow", "torch"),
        ("from altbi.torch import CustomBackbone", "torch"),
        ("import altbi.torch as t; altbi.ALTBI(backbone=t.Glow())", "torch"),
        (
            "from altbi.torch import PrivacyBudget as P; fit(privacy=P(3, bounds=(-4, 4)))",
            "privacy",
        ),
    ],
)
def test_python_names_the_missing_extra(code, extra):
    start = (
        "import numpy, altbi\n"
        "X = numpy.random.default_rng(0).normal(size=(60, 2))\n"
        "def fit(**parameters): altbi.ALTBI(**parameters).fit(X)\n"
        "try:\n    "
    )
    end = "\nexcept altbi.AltbiError as error:\n    print(type(error).__name__, error)"

    done = run_without(code=start + code + end)

    assert done.stdout.startswith("MissingExtraError "), done.stderr
    assert done.stdout.endswith(INSTALL.format(extra))


@pytest.mark.slow
def test_private_model_is_scored_without_torch(folder, tmp_path, monkeypatch):
    monkeypatch.chdir(folder)
    private = ("--exclude", "colour", "--epsilon", "3", "--bounds", "-4", "4")
    path, scores = tmp_path / "private.altbi", tmp_path / "scores.csv"
    fitted = run_without("fit", "t.csv", *private, "-o", path, missing="")
    assert fitted.returncode == 0, fitted.stderr

    done = run_without("score", "t.csv", "-m", path, "-o", scores, unused=UNUSED)

    assert done.returncode == 0, done.stderr
    found = np.loadtxt(scores, delimiter=",", skiprows=1, usecols=1)
    columns = np.loadtxt("t.csv", delimiter=",", skiprows=1, usecols=(0, 1))
    table = pa.table({"size": columns[:, 0], "weight": columns[:, 1]})
    np.testing.assert_allclose(found, altbi.load(path).score(table), rtol=1e-12)


@pytest.mark.parametrize("name", ["", "detect", "score", "demo", "inspect"])
def test_help_imports_nothing_heavy(name):
    assert heavy_imports(COMMAND, *name.split(), "--help") == set()


def test_inspect_needs_neither_torch_nor_sklearn(model):
    imported = heavy_imports(COMMAND, "inspect", model)

    assert "safetensors" in imported
    assert imported.isdisjoint({"torch", "sklearn", "pandas"})


def replace_modules(**names):
    """Return a program that replaces modules of altbi, which import torch, by ones with a name."""
    lines = ["import sys, types"]
    for module, name in names.items():
        lines.append(f"module = sys.modules['altbi.{module}'] = types.ModuleType('{module}')")
        lines.append(f"module.{name} = types.SimpleNamespace")
    return "\n".join(lines) + "\n"


def test_report_page_is_rendered_without_slow_libraries(tmp_path):
    code = replace_modules(networks="TrainingStep") + (
        "from pathlib import Path; from altbi.report import render\n"
        "sys.path.append(sys.argv[2]); from example_summary import create_summary\n"
        "Path(sys.argv[1]).write_text(render(create_summary()), encoding='utf-8')\n"
        "assert 'scipy.stats' not in sys.modules"
    )
    path = tmp_path / "report.html"
    imported = heavy_imports(code, str(path), str(Path(__file__).parent / "report"))

    assert path.read_text().startswith("<!doctype html>")
    assert imported <= {"numpy", "jinja2"}


def test_report_package_alone_imports_nothing_heavy():
    assert heavy_imports("import altbi.report") == set()


def test_comparison_with_labels_needs_no_sklearn():
    code = (
        "from altbi.report._metrics import compute_auc, compute_average_precision as compute\n"
        "assert compute_auc([0, 1], [1, 2]) == compute([0, 1], [1, 2]) == 1"
    )
    assert heavy_imports(code) == {"numpy"}


def test_table_of_the_demo_needs_no_sklearn():
    code = replace_modules(model="build_settings", pipeline="detect") + (
        "from altbi._demo import create_table\nassert create_table(0).num_rows == 367"
    )
    assert heavy_imports(code).isdisjoint({"sklearn", "scipy", "torch"})


def test_help_costs_less_than_half_a_second_of_cpu():
    assert min(cpu_seconds_of_help() for _ in range(3)) < 0.5


def cpu_seconds_of_help():
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, "-c", COMMAND, "--help"], check=True, capture_output=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def test_every_public_name_can_be_imported():
    assert [name for name in altbi.__all__ if not hasattr(altbi, name)] == []
    assert set(altbi.__all__) <= set(dir(altbi))


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = altbi.nothing


def classes_with_defaults():
    modules = ("altbi", "altbi.torch", "altbi.distributed", "altbi.integrations.pyod")
    packages = [importlib.import_module(name) for name in modules]
    found = [getattr(package, name) for package in packages for name in package.__all__]
    classes = {item for item in found if inspect.isclass(item) and documented_defaults(item)}
    return sorted(classes, key=lambda cls: (cls.__module__, cls.__name__))


def documented_defaults(cls):
    return dict(DEFAULT.findall(inspect.getdoc(cls) or ""))


def test_all_defaults_are_documented():
    documented = (altbi.OutlierDetector, altbi.ALTBI, altbi.ODIM, altbi.Schedule, altbi.IWAE)
    assert set(documented) <= set(classes_with_defaults())
    for cls in documented:
        assert list(documented_defaults(cls)) == list(inspect.signature(cls).parameters)


@pytest.mark.parametrize(
    "cls", classes_with_defaults(), ids=lambda cls: f"{cls.__module__}.{cls.__name__}"
)
def test_documented_defaults_are_the_real_ones(cls):
    documented = documented_defaults(cls)
    parameters = inspect.signature(cls).parameters

    assert documented == {name: repr(parameters[name].default) for name in documented}
