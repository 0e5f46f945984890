"""The Python examples of README and docs run, and links between pages hold."""

import functools
import re
import tempfile
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import altbi
from altbi.distributed._partition_folder import STATE_FOLDER

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = [*ROOT.glob("*.md"), *DOCS.rglob("*.md")]


def payments():
    rng = np.random.default_rng(0)
    table = pd.DataFrame(
        {
            "date": pd.Timestamp("2026-01-01") + pd.to_timedelta(rng.integers(0, 90, 300), "D"),
            "amount": np.exp(rng.normal(4, 0.5, 300)).round(2),
            "country": rng.choice(["NL", "DE", None], 300, p=[0.7, 0.2, 0.1]),
            "paid": rng.random(300) < 0.9,
        }
    )
    table.loc[42, "amount"] = 95_000.0
    return table.assign(invoice=range(300))


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A working directory with the table that the examples read."""
    monkeypatch.chdir(tmp_path)
    payments().to_csv("payments.csv", index=False)
    return tmp_path


def run_examples(page):
    """Run the Python examples of a page in order, and return their variables."""
    examples = re.findall(r"```python\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL)
    assert examples
    variables = {}
    for example in examples:
        exec(compile(example, page.name, "exec"), variables)
    return variables


def test_readme_example_finds_the_outlier(folder, capsys):
    found = run_examples(ROOT / "README.md")

    assert found["scores"].argmax() == 42
    assert 42 in found["flagged"].index
    assert "expected" in capsys.readouterr().out
    assert (folder / "payments.altbi").exists()


def test_readme_call_of_detect_works(folder):
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    (call,) = re.findall(r"`(altbi\.detect\(.*?\))`", text)
    (detector,) = re.findall(r"`detector=(.*?)`", text)
    names = {"altbi": altbi, "OutlierDetector": altbi.OutlierDetector}

    assert eval(call, names).folder == Path("found")
    assert eval(call.replace('"found", ', ""), names).folder.is_relative_to(tempfile.gettempdir())
    assert eval(detector, names).contamination == 0.01


def test_detect_example_finds_the_outlier(folder, capsys):
    detection = run_examples(DOCS / "commands.md")["detection"]

    assert (detection.top[0].number, detection.top[0].ids) == (42, ("42",))
    first, *notes = capsys.readouterr().out.splitlines()
    assert first == f"{detection.n_flagged} amount"
    assert [note.split()[:2] for note in notes] == [["Column", "'country'"]]
    assert (folder / "found" / "report.html").exists()


@pytest.mark.slow
def test_custom_backbone_examples_find_the_outlier(folder, capsys):
    found = run_examples(DOCS / "custom-backbones.md")

    output = capsys.readouterr().out
    assert found["scores"].argmax() == found["flow_scores"].argmax() == 42
    assert output.startswith("42\n")
    assert "x0 1.5 expected" in output
    assert "x1 1.5 expected" in output
    assert (folder / "table.altbi").exists()


@pytest.mark.slow
def test_privacy_example_keeps_its_budget(capsys):
    found = run_examples(DOCS / "privacy.md")

    spent, guarantee = capsys.readouterr().out.split()
    assert 2 < float(spent) <= 3
    assert guarantee == "True"
    assert len(found["scores"]) == 500


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_links_lead_to_existing_files_and_headings(page):
    broken = []
    for target in re.findall(r"\]\((?!https?:)([^)]+)\)", page.read_text(encoding="utf-8")):
        path, _, heading = target.partition("#")
        file = (page.parent / path).resolve() if path else page
        if not file.exists() or (heading and heading not in headings(file)):
            broken.append(target)

    assert broken == []


@functools.cache
def headings(page):
    """Return GitHub's anchors of a page's headings, or of the lines of another file."""
    text = page.read_text(encoding="utf-8")
    if page.suffix != ".md":
        return {f"L{number}" for number in range(1, text.count("\n") + 2)}
    titles = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


def test_readme_has_at_most_100_lines():
    assert len((ROOT / "README.md").read_text(encoding="utf-8").splitlines()) <= 100


@pytest.mark.parametrize("page", ["README.md", "docs/commands.md"])
def test_examples_state_that_they_need_pandas(page):
    examples = re.findall(r"```python\n(.*?)```", (ROOT / page).read_text("utf-8"), re.DOTALL)
    with_pandas = [example for example in examples if "pandas" in example]

    assert with_pandas
    assert all("pip install pandas" in example for example in with_pandas)


@pytest.mark.parametrize("page", ["README.md", "docs/scale.md", "docs/benchmark/README.md"])
def test_benchmark_commands_follow_their_installation(page):
    text = (ROOT / page).read_text("utf-8")
    first = re.search(r"altbi-bench \w|python benchmarks/", text)

    assert first is not None
    assert "pip install . ./bench" in text[: first.start()]


def test_state_folder_of_engines_is_documented():
    text = (DOCS / "commands.md").read_text("utf-8")

    assert f"`scores/{STATE_FOLDER}`" in text


def test_speed_of_methods_links_to_measurements():
    (paragraph,) = (
        text
        for text in (DOCS / "commands.md").read_text("utf-8").split("\n\n")
        if "slow" in text and "odim" in text
    )

    assert "(benchmark/systems.md#cost)" in paragraph
    assert not re.search(r"\d+ times", paragraph)


@pytest.mark.parametrize("documented", [altbi.Detection, altbi.FittedModel])
def test_public_attributes_are_documented(documented):
    page = (DOCS / "commands.md").read_text()
    table = page.partition(f"| `{documented.__name__}` | contents |")[2].partition("\n\n")[0]
    names = {name for name in dir(documented) if not name.startswith("_")}
    names |= set(re.findall(r"^    (\w+) :", documented.__doc__.partition("Attributes")[2], re.M))

    first_cells = " ".join(line.split("|")[1] for line in table.splitlines()[1:])
    assert set(re.findall(r"`(\w+)[`(]", first_cells)) == names
