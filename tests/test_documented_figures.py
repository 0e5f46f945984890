"""Figures in README and docs are those of the committed lines; docs/results.md is made of them."""

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from altbi.bench.findings import OURS
from altbi.bench.page import main_comparison
from altbi.bench.parts import Evidence
from altbi.bench.statistics import mean_ranks
from altbi.bench.tables import shared_means
from altbi.cli import main

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
# What the README calls some of the systems.
KNOWN_AS = {
    "`ALTBI()`": OURS,
    "robust covariance (MCD)": "MCD",
    "isolation forest": "IForest",
    "`ALTBI.reference()`, after the authors' code": "ALTBI-I (reference)",
    "distance to the 32nd neighbour": "kNN",
}
NUMBERS = {4: "four"}


def text_of(page):
    """A page as one line, so that sentences are found wherever they break."""
    return " ".join(page.read_text(encoding="utf-8").split())


def rows(text):
    """The rows of the tables in a text, as they stand."""
    return [line for line in text.splitlines() if line.startswith("|")]


def table(page, head):
    """The cells of the first table of a page whose head begins so, by what stands first."""
    below = page.read_text(encoding="utf-8").split(f"\n{head}", 1)[1].split("\n\n", 1)[0]
    cells = [[cell.strip() for cell in row.strip("|").split("|")] for row in rows(below)[1:]]
    return {first: rest for first, *rest in cells}


def blocks(command):
    """Commands of the docs, indented, each with the rows of tables that stand below it."""
    found = []
    for page in sorted(DOCS.glob("*.md")):
        _, *rest = re.split(rf"^    ({command})$", page.read_text(encoding="utf-8"), flags=re.M)
        for line, below in zip(rest[::2], rest[1::2], strict=True):
            own = rows(re.split(r"^(?:## |<!--|    \S)", below, maxsplit=1, flags=re.M)[0])
            if own:
                found.append(pytest.param(line, own, id=f"{page.stem}-{len(found)}"))
    return found


class TestTablesBelowACommandAreWhatItPrints:
    @pytest.mark.parametrize(("command", "below"), blocks("altbi bench tables --.*"))
    def test_runs(self, command, below, capsys, monkeypatch):
        monkeypatch.chdir(ROOT)

        main([*shlex.split(command)[1:], "--markdown"])

        # Precision at n, which comes last, is left out of the docs.
        assert rows(capsys.readouterr().out)[: len(below)] == below

    @pytest.mark.parametrize(("command", "below"), blocks("python benchmarks/.*--no-runs.*"))
    def test_other_lines(self, command, below):
        script = ROOT / shlex.split(command)[1]

        done = subprocess.run(
            [sys.executable, script, "--no-runs"], capture_output=True, text=True, cwd=ROOT
        )

        # Some docs show some of the rows.
        said = rows(done.stdout)
        assert [row for row in below if row not in said] == [], done.stderr

    def test_they_are_found(self):
        assert len(blocks("altbi bench tables --.*")) >= 5
        assert len(blocks("python benchmarks/.*--no-runs.*")) >= 6


class TestReadme:
    README = ROOT / "README.md"

    def test_its_table_is_of_the_page_of_results(self):
        of_page = table(DOCS / "results.md", "| system | AUC |")

        of_readme = table(self.README, "| system | AUC |")

        assert of_readme.keys() == KNOWN_AS.keys()
        for name, (auc, precision, rank) in of_readme.items():
            there = of_page[KNOWN_AS[name]]
            assert [auc, precision] == there[:2], name
            assert rank == f"{float(there[3]):.1f}", name

    def test_its_sentences_are_of_the_page_of_results(self):
        results, readme = text_of(DOCS / "results.md"), text_of(self.README)

        def found(pattern):
            return re.search(pattern, results).groups()

        shared, systems = found(r"Over the (\d+) data sets that all (\d+) systems")
        (alone,) = found(r"AUC, among .*? alone has the highest on (\d+ of \d+)")
        (confirmed,) = found(r"only to confirm .*? is better than (.*?) and worse")
        (precision,) = found(r"Average precision, by .*? is better than (.*?) and worse")

        assert f"over the {shared} ADBench tables that have runs of all {systems} systems" in readme
        assert f"On {alone} tables it alone has the highest AUC" in readme
        assert f"that is shown against {len(confirmed.split(', '))}, not against" in readme
        assert f"it is shown against {NUMBERS[len(precision.split(', '))]} only" in readme


class TestAccuracy:
    PAGE = DOCS / "accuracy.md"
    FAR = 0.08

    @pytest.fixture
    def evidence(self):
        return Evidence.of(ROOT / "results", DOCS)

    def test_where_it_fails_is_where_another_is_far_ahead(self, evidence):
        scores = main_comparison(evidence).scores
        ours = scores.pop(OURS)
        best = {
            name: max((cells[name], system) for system, cells in scores.items() if name in cells)
            for name in ours
        }
        far = sorted(
            (name for name in ours if best[name][0] - ours[name] > self.FAR),
            key=lambda name: ours[name] - best[name][0],
        )

        told = table(self.PAGE, "| data set | `ALTBI()` | best other |")

        assert f"higher by more than {self.FAR}" in text_of(self.PAGE)
        assert told == {
            name: [f"{ours[name]:.3f}", f"{best[name][1]} {best[name][0]:.3f}"] for name in far
        }

    def test_its_standing_among_all_is_that_of_the_lines(self, evidence):
        auc, precision = (main_comparison(evidence, name) for name in ("auc", "average_precision"))
        shared, means = shared_means(auc)
        next_auc, second = sorted(((mean, name) for name, mean in means.items()))[-2]
        ranks = sorted(mean_ranks(precision.scores).items(), key=lambda item: item[1])

        assert means[OURS] > next_auc
        assert (second, ranks[0][0]) == ("MCD", OURS)
        assert (
            f"On the {len(shared)} that all {len(means)} systems ran, three seeds: "
            f"{means[OURS]:.3f}, {shared_means(precision)[1][OURS]:.3f}, mean rank "
            f"{mean_ranks(auc.scores)[OURS]:.1f} ({ranks[0][1]:.1f} by average precision, next "
            f"{ranks[1][1]:.1f}), which is {means[OURS] - next_auc:.3f} of AUC ahead of the next "
            f"(robust covariance, {next_auc:.3f})"
        ) in text_of(self.PAGE)
