"""Tests that figures in the README and the docs agree with the committed records."""

import re
import shlex
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

from altbi_bench.catalogue.datasets import select
from altbi_bench.catalogue.systems import find_systems
from altbi_bench.cli import main
from altbi_bench.results_page.findings import OURS
from altbi_bench.results_page.page import embeddings_comparison, main_comparison
from altbi_bench.results_page.summaries import PageRecords
from altbi_bench.runs.runner import Question
from altbi_bench.statistics import mean_ranks
from altbi_bench.tables.comparison import compare, difference, shared_means

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
# Names of systems in the README, and on the page of pools.
SYSTEM_NAMES = {
    "`OutlierDetector()`": "OutlierDetector",
    "the detector of altbi 0.1": "ALTBI() of 0.1",
    "`ALTBI()`, as in the authors' code": "ALTBI",
    "isolation forest": "IForest",
    "mean distance to 32 neighbours (DTE-NP)": "DTE-NP",
    "one-class SVM": "OCSVM",
}
SCRIPTS = "python (?:bench/scripts|benchmarks)/.*--no-runs.*"
NUMBERS = {3: "three", 4: "four", 5: "five", 10: "ten", 11: "eleven", 12: "twelve"}


@pytest.fixture
def evidence():
    """Return all committed records."""
    return PageRecords.read(ROOT / "bench" / "results", DOCS)


def format_number(number):
    return NUMBERS.get(number, f"{number}")


def count_systems(names):
    """Return the number of systems named in a sentence of the results page."""
    if of_all := re.fullmatch(r"each of the (\d+) others", names):
        return int(of_all[1])
    return 0 if names == "none" else len(names.split(", "))


def read_text(page):
    """Return a page as one line, so that line breaks do not matter."""
    return " ".join(page.read_text(encoding="utf-8").split())


def find_rows(text):
    """Return the rows of the tables in a text."""
    return [line for line in text.splitlines() if line.startswith("|")]


def read_table(page, head):
    """Return the rows of the first table with this header, by their first cell."""
    below = page.read_text(encoding="utf-8").split(f"\n{head}", 1)[1].split("\n\n", 1)[0]
    cells = [[cell.strip() for cell in row.strip("|").split("|")] for row in find_rows(below)[1:]]
    return {first: rest for first, *rest in cells}


def read_means(text):
    """Return the mean of the last column of the first table in a text, by its first cell."""
    rows = [row.strip("| ").split("|") for row in find_rows(text.split("\n\n")[0])[2:]]
    return {row[0].strip(): row[-1].split()[0] for row in rows}


def find_blocks(command):
    """Return the indented commands of the docs with the table rows below them."""
    found = []
    for page in sorted(DOCS.rglob("*.md")):
        _, *rest = re.split(rf"^    ({command})$", page.read_text(encoding="utf-8"), flags=re.M)
        for line, below in zip(rest[::2], rest[1::2], strict=True):
            own = find_rows(re.split(r"^(?:## |<!--|    \S)", below, maxsplit=1, flags=re.M)[0])
            if own:
                found.append(pytest.param(line, own, id=f"{page.stem}-{len(found)}"))
    return found


@cache
def run_script(script):
    """Return the output and the errors of a script that only prints tables."""
    done = subprocess.run(
        [sys.executable, ROOT / script, "--no-runs"], capture_output=True, text=True, cwd=ROOT
    )
    return done.stdout, done.stderr


class TestTablesOfCommands:
    @pytest.mark.parametrize(("command", "below"), find_blocks("altbi-bench tables --.*"))
    def test_tables_of_runs_are_as_printed(self, command, below, capsys, monkeypatch):
        monkeypatch.chdir(ROOT)

        main([*shlex.split(command)[1:], "--markdown"])

        # Precision at n, which comes last, is left out of the docs.
        assert find_rows(capsys.readouterr().out)[: len(below)] == below

    @pytest.mark.parametrize(("command", "below"), find_blocks(SCRIPTS))
    def test_tables_of_scripts_are_as_printed(self, command, below):
        output, errors = run_script(shlex.split(command)[1])

        # Some docs show some of the rows.
        printed = find_rows(output)
        assert [row for row in below if row not in printed] == [], errors

    def test_commands_are_found_in_the_docs(self):
        assert len(find_blocks("altbi-bench tables --.*")) >= 5
        assert len(find_blocks(SCRIPTS)) >= 11
        pages = {each.id.rsplit("-", 1)[0] for each in find_blocks(SCRIPTS)}
        assert pages >= {"mixed", "pools", "scorers"}


class TestReadme:
    README = ROOT / "README.md"

    def test_table_agrees_with_the_page_of_pools(self):
        page = (DOCS / "benchmark" / "pools.md").read_text(encoding="utf-8")
        auc, precision = (
            read_means(page.split(f"\n{metric}, half: confirm\n", 1)[1])
            for metric in ("AUC", "Average precision")
        )

        assert read_table(self.README, "| system | AUC |") == {
            label: [auc[name], precision[name]] for label, name in SYSTEM_NAMES.items()
        }

    def test_difference_from_the_paper_agrees_with_records(self, evidence):
        reference = "ALTBI-I (reference)"
        found = compare(
            evidence.runs,
            "auc",
            Question("transductive"),
            find_systems([reference]),
            select(suite="tables"),
        )
        reported = difference(found, reference)
        pairs = [(line.ours[reference], line.paper[reference]) for line in found.results]
        signed = [ours.mean - paper for ours, paper in pairs if ours and paper is not None]
        far = sum(abs(each) > 0.03 for each in signed)

        assert len(signed) == reported.n_tables
        assert (
            f"The mean difference is {reported.mean_signed:.3f}, the mean absolute difference "
            f"{reported.mean_absolute:.3f}, and {far} of {len(signed)} tables "
            "differ by more than 0.03."
        ) in read_text(DOCS / "benchmark" / "reproduction.md")


class TestAccuracy:
    PAGE = DOCS / "benchmark" / "accuracy.md"
    FAR = 0.08

    def test_listed_failures_agree_with_the_records(self, evidence):
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

        label = read_table(self.PAGE, "| data set | `OutlierDetector()` | best other |")

        assert f"higher by more than {self.FAR}" in read_text(self.PAGE)
        assert label == {
            name: [f"{ours[name]:.3f}", f"{best[name][1]} {best[name][0]:.3f}"] for name in far
        }

    def test_ranking_agrees_with_the_records(self, evidence):
        auc, precision = (main_comparison(evidence, name) for name in ("auc", "average_precision"))
        shared, means = shared_means(auc)
        next_auc, second = sorted(((mean, name) for name, mean in means.items()))[-2]
        ranks = sorted(mean_ranks(precision.scores).items(), key=lambda item: item[1])

        assert means[OURS] > next_auc
        assert (second, ranks[0][0]) == ("MCD", OURS)
        text = read_text(self.PAGE)
        assert (
            f"On the {len(shared)} tables that all {len(means)} systems completed, three seeds: "
            f"AUC {means[OURS]:.3f}, average precision {shared_means(precision)[1][OURS]:.3f}, "
            f"mean rank {mean_ranks(auc.scores)[OURS]:.1f}. By average precision the mean rank is "
            f"{ranks[0][1]:.1f} and that of the next system {ranks[1][1]:.1f}. The next mean AUC "
            f"is {next_auc:.3f} (robust covariance), {means[OURS] - next_auc:.3f} lower."
        ) in text

    def test_ranking_on_embeddings_agrees_with_the_records(self, evidence):
        found = [embeddings_comparison(evidence, name) for name in ("auc", "average_precision")]
        auc, precision = (shared_means(each)[1] for each in found)
        ranks = mean_ranks(found[0].scores)
        label = {name: f"{auc[name]:.3f} / {precision[name]:.3f}" for name in auc}
        first = (OURS, "ALTBI-I (reference)", "FeatureBagging")
        text = read_text(self.PAGE)

        assert (
            f"AUC / average precision are {label[first[0]]} for `OutlierDetector()`, "
            f"{label[first[1]]} for `ALTBI()` and {label[first[2]]} for FeatureBagging. Their mean "
            f"ranks among {len(auc)} systems are {ranks[first[0]]:.1f}, {ranks[first[1]]:.1f} and "
            f"{ranks[first[2]]:.1f}, so there is no clear winner."
        ) in text
        assert f"ODIM has {label['ODIM']} and the light flow {label['ALTBI-G (light)']}." in text
