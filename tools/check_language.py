"""Check the words, names, docstrings and spelling of the repository against CONTRIBUTING.md.

Run by ``make lint``. Prints one ``path:line: message`` for each finding and fails if there is one.
The rules and their exceptions are in ``tools/language.toml``.
"""

import argparse
import ast
import importlib
import inspect
import os
import re
import subprocess
import sys
import tomllib
import types
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, TypeAlias

ROOT = Path(__file__).resolve().parents[1]
SUFFIXES = {".py", ".md", ".html", ".js", ".css", ".toml"}
SKIPPED_FOLDERS = {"build", "dist", "__pycache__", "altbi-demo", "node_modules"}
# Records of runs are data.
SKIPPED_PATHS = {"bench/results", "benchmarks/results"}
SOURCE_FOLDERS = ("src/", "bench/src/")
PUBLIC_MODULES = ("altbi", "altbi.torch", "altbi.distributed", "altbi.integrations.pyod")

# Checks of numpydoc for public names. The others are off for these reasons:
# - SS06 and ES01: a summary may take two lines, and many names need no more than a summary;
# - PR05, PR07 to PR10, RT02, RT04 and RT05: form of descriptions, which ruff format does not fix;
# - SA01 to SA04 and EX01: cross references and examples are written where they help;
# - GL05, GL07, GL09 and GL10: ruff's pydocstyle rules check them already.
NUMPYDOC_CHECKS = {
    "GL01", "GL02", "GL03", "GL06", "GL08",
    "PR01", "PR02", "PR03", "PR04", "PR06",
    "RT01", "RT03",
    "SS01", "SS02", "SS03", "SS04", "SS05",
    "YD01",
}  # fmt: skip

_SECTION = re.compile(r"^\s*(\w+)\n\s*-{3,}$", re.MULTILINE)
_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")


@dataclass(frozen=True)
class Finding:
    """One violation of a rule."""

    path: str
    line: int
    message: str

    def __str__(self) -> str:
        """Format the finding so that editors can jump to it."""
        return f"{self.path}:{self.line}: {self.message}"


@dataclass(frozen=True)
class Exemption:
    """A reviewed exception from the rules for words or names."""

    paths: tuple[str, ...]
    words: frozenset[str] = frozenset()
    names: tuple[str, ...] = ()

    def covers_word(self, path: str, word: str) -> bool:
        """Return whether the word is allowed in this file."""
        return bool({word, "*"} & self.words) and matches_any(path, self.paths)

    def covers_name(self, path: str, name: str) -> bool:
        """Return whether the name is allowed in this file."""
        return matches_any(name, self.names) and matches_any(path, self.paths)


@dataclass(frozen=True)
class Rules:
    """The contents of ``language.toml``."""

    words: frozenset[str]
    phrases: re.Pattern[str]
    summary_verbs: frozenset[str]
    names: tuple[tuple[tuple[str, ...], frozenset[str]], ...]
    exemptions: tuple[Exemption, ...] = field(default=())
    pending: tuple[str, ...] = field(default=())

    @classmethod
    def load(cls, path: Path) -> "Rules":
        """Load the rules from a TOML file."""
        raw = tomllib.loads(path.read_text(encoding="utf-8"))
        return cls(
            words=frozenset(raw["banned_words"]),
            phrases=_phrase_pattern(raw["banned_phrases"]),
            summary_verbs=frozenset(raw["banned_summary_verbs"]),
            names=tuple((tuple(each["in"]), frozenset(each["words"])) for each in raw["names"]),
            exemptions=tuple(
                Exemption(
                    tuple(each["in"]),
                    frozenset(each.get("words", ())),
                    tuple(each.get("names", ())),
                )
                for each in raw["allow"]
            ),
            pending=tuple(raw.get("pending", ())),
        )

    def is_pending(self, path: str) -> bool:
        """Return whether the file is not rewritten yet, so that its findings only count."""
        return any(fnmatchcase(path, pattern) for pattern in self.pending)

    def allows_word(self, path: str, word: str) -> bool:
        """Return whether an exception allows the word in this file."""
        return any(each.covers_word(path, word) for each in self.exemptions)

    def banned_component(self, path: str, name: str) -> str | None:
        """Return the first banned component of a name, or None."""
        lists = [words for paths, words in self.names if matches_any(path, paths)]
        banned = frozenset().union(*lists)
        found = next((word for word in split_words(name) if word in banned), None)
        if found and any(each.covers_name(path, name) for each in self.exemptions):
            return None
        return found


def _phrase_pattern(phrases: Sequence[str]) -> re.Pattern[str]:
    alternatives = "|".join(re.escape(each) for each in sorted(phrases, key=len, reverse=True))
    return re.compile(rf"\b(?:{alternatives})\b", re.IGNORECASE)


def matches_any(text: str, patterns: Sequence[str]) -> bool:
    """Return whether a text matches one of the patterns, with regard to case."""
    return any(fnmatchcase(text, each) for each in patterns)


def split_words(text: str) -> list[str]:
    """Return the words of a text in lower case, with identifiers split at ``_`` and capitals."""
    return [word.lower() for word in _WORD.findall(text)]


def list_files(root: Path) -> list[str]:
    """Return the paths of all files to check, relative to ``root``."""
    found: list[str] = []
    for folder, subfolders, names in os.walk(root):
        parent = Path(folder).relative_to(root)
        subfolders[:] = sorted(each for each in subfolders if _is_checked(parent / each))
        found += [
            (parent / name).as_posix() for name in sorted(names) if Path(name).suffix in SUFFIXES
        ]
    return found


def _is_checked(folder: Path) -> bool:
    if folder.name.startswith(".") or folder.name.endswith(".egg-info"):
        return False
    return folder.name not in SKIPPED_FOLDERS and folder.as_posix() not in SKIPPED_PATHS


def check_words(path: str, text: str, rules: Rules) -> Iterator[Finding]:
    """Yield the banned words and phrases of a file."""
    for number, line in enumerate(text.splitlines(), start=1):
        banned = dict.fromkeys(word for word in split_words(line) if word in rules.words)
        phrases = dict.fromkeys(each.lower() for each in rules.phrases.findall(line))
        for found in (*banned, *phrases):
            if not rules.allows_word(path, found):
                yield Finding(path, number, f"banned word {found!r}. Use the glossary's term.")


def check_names(path: str, tree: ast.AST, rules: Rules) -> Iterator[Finding]:
    """Yield the names defined in a module that contain a banned word."""
    reported = set()
    for name, line in [(Path(path).stem, 1), *_defined_names(tree)]:
        word = rules.banned_component(path, name)
        if word and (name, word) not in reported:
            reported.add((name, word))
            yield Finding(path, line, f"name {name!r} contains {word!r}. Use the glossary's term.")


def _defined_names(tree: ast.AST) -> Iterator[tuple[str, int]]:
    for node in ast.walk(tree):
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                yield node.name, node.lineno
            case ast.arg():
                yield node.arg, node.lineno
            case ast.Name(ctx=ast.Store()):
                yield node.id, node.lineno
            case ast.Attribute(ctx=ast.Store()):
                yield node.attr, node.lineno
            case ast.alias(asname=str(name)) | ast.ExceptHandler(name=str(name)):
                yield name, node.lineno


def check_summaries(path: str, tree: ast.Module, rules: Rules) -> Iterator[Finding]:
    """Yield the docstrings that are missing or whose summary starts with a banned verb."""
    for node, is_public in _documentable(tree, is_public=True):
        docstring = ast.get_docstring(node)
        if docstring is None and is_public:
            yield Finding(path, node.lineno, f"{node.name!r} has no docstring. Add a summary.")
        first = (docstring or "").split(" ", 1)[0].rstrip(".,:")
        if first in rules.summary_verbs:
            message = f"summary of {node.name!r} starts with {first!r}. Use a verb such as Return."
            yield Finding(path, node.lineno, message)


_Definition: TypeAlias = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef


def _documentable(
    body: ast.Module | ast.ClassDef, is_public: bool
) -> Iterator[tuple[_Definition, bool]]:
    """Yield functions, classes and methods, and whether their docstring is required."""
    for node in body.body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            is_required = is_public and not node.name.startswith("_") and not _is_overload(node)
            yield node, is_required
            if isinstance(node, ast.ClassDef):
                yield from _documentable(node, is_required)


def _is_overload(node: _Definition) -> bool:
    return any(
        ast.unparse(each).split(".")[-1] in {"overload", "override"} for each in node.decorator_list
    )


def check_public_docstrings(root: Path, modules: Sequence[str]) -> Iterator[Finding]:
    """Yield what numpydoc finds in the docstrings of all public names."""
    from numpydoc.validate import validate

    for name in dict.fromkeys(_public_names(modules)):
        result = validate(name)
        checks = NUMPYDOC_CHECKS - ({"PR01"} if _is_record(result["docstring"]) else set())
        for code, message in result["errors"]:
            if code in checks:
                path = _relative(result["file"] or "", root)
                yield Finding(path, result["file_line"] or 1, f"{name}: {code} {message}")


def _is_record(docstring: str) -> bool:
    """Return whether users read the attributes of a class, but do not construct it."""
    sections = set(_SECTION.findall(docstring))
    return "Attributes" in sections and "Parameters" not in sections


def _relative(path: str, root: Path) -> str:
    resolved = (root / path).resolve()
    return resolved.relative_to(root).as_posix() if resolved.is_relative_to(root) else str(resolved)


def _public_names(modules: Sequence[str]) -> Iterator[str]:
    """Yield the dotted names of exported objects and of the public methods that they define."""
    for module_name in modules:
        module = importlib.import_module(module_name)
        for name in getattr(module, "__all__", ()):
            exported = getattr(module, name)
            if not name.startswith("_") and callable(exported):  # constants have no docstring
                yield f"{module_name}.{name}"
            if inspect.isclass(exported):
                yield from (f"{module_name}.{name}.{each}" for each in _public_methods(exported))


def _public_methods(owner: type) -> Iterator[str]:
    """Yield the public methods and properties that are defined in the owner's package."""
    package = owner.__module__.split(".")[0]
    for name, member in inspect.getmembers(owner):
        function = _underlying_function(member)
        if function and not name.startswith("_") and function.__module__.split(".")[0] == package:
            yield name


def _underlying_function(member: object) -> types.FunctionType | None:
    found: Any = member.fget if isinstance(member, property) else member
    found = inspect.unwrap(getattr(found, "__func__", found)) if callable(found) else None
    return found if isinstance(found, types.FunctionType) else None


def start_spelling(root: Path) -> subprocess.Popen[str]:
    """Start codespell, which reads its options from ``pyproject.toml``, in the background."""
    command = [sys.executable, "-m", "codespell_lib"]
    return subprocess.Popen(
        command, cwd=root, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )


def collect_spelling(process: subprocess.Popen[str]) -> Iterator[Finding]:
    """Yield the misspellings that codespell has found."""
    output, _ = process.communicate()
    for line in output.splitlines():
        match = re.fullmatch(r"(?:\./)?(.+?):(\d+): (.+)", line)
        if match:
            yield Finding(match[1], int(match[2]), f"misspelling: {match[3]}")
    if process.returncode not in (0, 65):
        yield Finding("pyproject.toml", 1, f"codespell failed: {output.strip()}")


def check_files(root: Path, rules: Rules) -> Iterator[Finding]:
    """Yield the findings in the words, names and summaries of all files below ``root``."""
    for path in list_files(root):
        text = (root / path).read_text(encoding="utf-8")
        yield from check_words(path, text, rules)
        if path.endswith(".py") and path.startswith(SOURCE_FOLDERS):
            tree = ast.parse(text, filename=path)
            yield from check_names(path, tree, rules)
            yield from check_summaries(path, tree, rules)


def print_findings(findings: Sequence[Finding], show_counts: bool) -> None:
    """Print the findings, or only their number in each package."""
    if not show_counts:
        sys.stdout.writelines(f"{each}\n" for each in findings)
        return
    counts = Counter(_package(each.path) for each in findings)
    sys.stdout.writelines(f"{count:6} {package}\n" for package, count in sorted(counts.items()))


def _package(path: str) -> str:
    """Return the folder of a file, at most four levels deep."""
    return "/".join(Path(path).parent.parts[:4]) or "."


def main(arguments: Sequence[str] | None = None) -> int:
    """Run all checks and return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--counts", action="store_true", help="print the findings per package")
    options = parser.parse_args(arguments)
    spelling = start_spelling(ROOT)
    # Check this working tree, even if another one is installed.
    sys.path[:0] = [str(ROOT / folder) for folder in SOURCE_FOLDERS]
    rules = Rules.load(ROOT / "tools" / "language.toml")
    in_files = list(check_files(ROOT, rules))
    findings = [each for each in in_files if not rules.is_pending(each.path)]
    n_pending = len(in_files) - len(findings)
    findings += check_public_docstrings(ROOT, PUBLIC_MODULES)
    findings += collect_spelling(spelling)
    print_findings(findings, options.counts)
    if n_pending:
        sys.stdout.write(f"{n_pending} findings in files that are not rewritten yet\n")
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
