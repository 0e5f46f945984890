import importlib
import inspect
import json
import re
import resource
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import altbi
from altbi import OutlierDetector, Schedule

COMMAND = "import sys; from altbi.cli import main; sys.exit(main(sys.argv[1:]))"
HEAVY = {"numpy", "torch", "sklearn", "scipy", "pyarrow", "pandas", "polars", "pyod"} | {
    "safetensors", "altair", "vl_convert", "jinja2", "shtab", "dask", "distributed"
}  # fmt: skip
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
    [
        "import altbi; altbi.__version__; dir(altbi)",
        "from altbi import Schedule; Schedule()",
        "from altbi import AltbiError",
    ],
)
def test_light_names_import_nothing_heavy(code):
    assert heavy_imports(code) == set()


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
