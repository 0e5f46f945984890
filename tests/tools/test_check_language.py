"""Each check of the language finds what it is for, and nothing else."""

import ast
import sys
import textwrap
from pathlib import Path

import pytest

import check_language
from check_language import Finding, Rules

PARAMETERS = """
    Parameters
    ----------
    x : int
        The first value.
"""
MISSPELLED = "t" + "eh"  # codespell reads this file, too


@pytest.fixture(scope="module")
def rules():
    return Rules.load(check_language.ROOT / "tools" / "language.toml")


def names_in(rules, code, path="src/altbi/module.py"):
    return [each.message for each in check_language.check_names(path, ast.parse(code), rules)]


def summaries_in(rules, code):
    tree = ast.parse(textwrap.dedent(code))
    return [each.message for each in check_language.check_summaries("src/a.py", tree, rules)]


class TestWords:
    @pytest.mark.parametrize(
        ("text", "word"),
        [
            ("What is told.", "told"),
            ("n_lots = 5", "lots"),
            ("class RowsApart:", "apart"),
            ("REMEMBERED", "remembered"),
            ("Find the odd rows.", "odd rows"),
        ],
    )
    def test_banned_word_is_found_with_its_line(self, rules, text, word):
        (found,) = check_language.check_words("docs/page.md", f"First.\n{text}\n", rules)

        assert (found.path, found.line) == ("docs/page.md", 2)
        assert repr(word) in found.message

    @pytest.mark.parametrize("text", ["plots", "a department", "an odd number", "calendar, talent"])
    def test_similar_words_pass(self, rules, text):
        assert list(check_language.check_words("docs/page.md", text, rules)) == []

    def test_exception_is_for_its_file_only(self, rules):
        found = [
            list(check_language.check_words(path, "`n_lots`", rules))
            for path in ("CHANGELOG.md", "README.md")
        ]

        assert [len(each) for each in found] == [0, 1]


class TestNames:
    @pytest.mark.parametrize(
        "code",
        [
            "def settle_types(): ...",
            "class TableGap: ...",
            "def f(first_place): ...",
            "whole = 1",
            "self.odd = 1",
            "import numpy as lot",
            "for part in (): ...",
        ],
    )
    def test_definition_with_banned_component_is_found(self, rules, code):
        assert len(names_in(rules, code)) == 1

    @pytest.mark.parametrize(
        "code", ["text.strip()", "placement = 1", "x = path.parts", "peak_memory = 1"]
    )
    def test_uses_and_allowed_names_pass(self, rules, code):
        assert names_in(rules, code) == []

    def test_module_name_is_checked(self, rules):
        assert len(names_in(rules, "", path="src/altbi/_words.py")) == 1

    def test_rule_holds_in_its_folder_only(self, rules):
        found = [names_in(rules, "line = 1", path) for path in ("bench/src/a.py", "src/a.py")]

        assert [len(each) for each in found] == [1, 0]


class TestSummaries:
    def test_banned_verb_is_found_in_private_functions(self, rules):
        assert len(summaries_in(rules, 'def _f():\n    """Give a value."""')) == 1

    def test_missing_docstring_of_public_method_is_found(self, rules):
        code = '''
            class Public:
                """A class."""

                def method(self): ...
                def _private(self): ...
            '''

        (message,) = summaries_in(rules, code)

        assert "'method' has no docstring" in message

    def test_usual_docstrings_pass(self, rules):
        code = '''
            def f():
                """Return a value."""

            def _g(): ...

            class _Private:
                def method(self): ...
            '''

        assert summaries_in(rules, code) == []


class TestPublicDocstrings:
    @pytest.fixture
    def validate(self, tmp_path, monkeypatch):
        def run(code):
            (tmp_path / "sample_module.py").write_text(textwrap.dedent(code), encoding="utf-8")
            monkeypatch.syspath_prepend(tmp_path)
            monkeypatch.delitem(sys.modules, "sample_module", raising=False)
            return list(check_language.check_public_docstrings(tmp_path, ["sample_module"]))

        return run

    def test_undocumented_parameter_is_found_with_its_line(self, validate):
        found = validate(
            '''
            __all__ = ["double"]

            def double(x):
                """
                Return twice a number.

                Returns
                -------
                float
                    The product.
                """
                return 2 * x
            '''
        )

        (finding,) = found
        assert (finding.path, finding.line) == ("sample_module.py", 4)
        assert "PR01" in finding.message

    def test_methods_are_checked(self, validate):
        found = validate(
            '''
            __all__ = ["Doubler"]

            class Doubler:
                """A class."""

                def double(self):
                    return 2
            '''
        )

        assert ["GL08" in each.message for each in found] == [True]

    @pytest.mark.parametrize(("sections", "n_findings"), [("", 0), (PARAMETERS, 1)])
    def test_records_need_no_parameters(self, validate, sections, n_findings):
        found = validate(
            f'''
__all__ = ["Pair"]

class Pair:
    """A pair.
{sections}
    Attributes
    ----------
    x : int
        The first value.
    """

    def __init__(self, x, y):
        self.x = x
'''
        )

        assert ["PR01" in each.message for each in found] == [True] * n_findings

    def test_names_that_are_not_exported_pass(self, validate):
        assert validate("__all__ = []\n\ndef double(x): ...\n") == []


class TestFiles:
    @pytest.fixture
    def repository(self, tmp_path):
        def write(path, text=""):
            (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / path).write_text(text, encoding="utf-8")
            return tmp_path

        return write

    def test_only_sources_are_listed(self, repository):
        for path in (
            ".venv/a.py",
            "bench/results/a.md",
            "src/a.egg-info/a.md",
            "a.csv",
            "docs/a.md",
        ):
            root = repository(path)

        assert check_language.list_files(root) == ["docs/a.md"]

    def test_names_are_checked_in_the_sources_only(self, repository, rules):
        repository("tests/test_a.py", "gap = 1\n")
        root = repository("src/a.py", "gap = 1\n")

        assert [each.path for each in check_language.check_files(root, rules)] == ["src/a.py"]

    def test_misspelling_is_found_with_its_line(self, repository):
        root = repository("page.md", f"First.\nThis is {MISSPELLED} end.\n")

        (found,) = check_language.collect_spelling(check_language.start_spelling(root))

        assert (found.path, found.line) == ("page.md", 2)
        assert f"{MISSPELLED} ==> the" in found.message

    def test_correct_spelling_passes(self, repository):
        root = repository("page.md", "This is the end.\n")

        assert list(check_language.collect_spelling(check_language.start_spelling(root))) == []


class TestOutput:
    def test_finding_is_printed_for_editors(self, capsys):
        check_language.print_findings([Finding("src/a.py", 3, "wrong.")], show_counts=False)

        assert capsys.readouterr().out == "src/a.py:3: wrong.\n"

    def test_counts_are_per_package(self, capsys):
        paths = ["src/altbi/io/_a.py", "src/altbi/io/_b.py", "docs/a.md"]

        check_language.print_findings([Finding(each, 1, "") for each in paths], show_counts=True)

        assert capsys.readouterr().out.split() == ["1", "docs", "2", "src/altbi/io"]

    @pytest.mark.parametrize(("findings", "code"), [([], 0), ([Finding("a", 1, "")], 1)])
    def test_exit_code_says_whether_something_was_found(self, monkeypatch, capsys, findings, code):
        monkeypatch.setattr(sys, "path", [*sys.path])
        monkeypatch.setattr(check_language, "start_spelling", lambda root: None)
        monkeypatch.setattr(check_language, "collect_spelling", lambda process: [])
        monkeypatch.setattr(check_language, "check_files", lambda root, rules: findings)
        monkeypatch.setattr(check_language, "check_public_docstrings", lambda root, modules: [])

        assert check_language.main([]) == code


def test_rules_file_names_a_reason_for_each_exception():
    import tomllib

    path = Path(check_language.ROOT) / "tools" / "language.toml"
    allowed = tomllib.loads(path.read_text(encoding="utf-8"))["allow"]

    assert all(each["reason"].endswith(".") for each in allowed)
