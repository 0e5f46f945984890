"""Digests of the code behind records."""

from functools import cache
from hashlib import sha256
from pathlib import Path

import altbi
import altbi_bench

__all__ = ["EARLIER_COMMITS", "code_digest", "describe_code"]

# Digest -> first commit with this state of the code; None: the state was never committed.
EARLIER_COMMITS = {
    "20d158dcef8e": "4ccc055",
    "3318cc010c60": "254c2b8",
    "375cfafb3cdd": "542f1da",
    "4b141e7cb51a": "da2e1ec",
    "4d0918e1af28": "3477778",
    "50e049a11de4": "2e5ba6f",
    "605191ec04e5": "0540ceb",
    "63ace6a2be76": "273fcc8",
    "658e2529f110": "9b0b974",
    "6a00c481196c": "fac8e18",
    "7261a2aaf71a": None,
    "76d1d0ec9682": None,
    "7ad3b88eb5c9": "940e5db",
    "84ebab59c087": "5d86b5a",
    "89108b14ccb2": "1fbb0af",
    "bb31ed705ef1": "1f1e372",
    "d1d6faac8953": None,
    "f6dbac67cc0a": "b56da78",
}


@cache
def code_digest() -> str:
    """Return the first 12 hex digits of a SHA-256 of the modules that scores depend on.

    These are the modules of `altbi` without its command line, and the baselines. Every record has
    the digest of its run, under ``"altbi code"``.

    Modules were moved and renamed when the benchmark left the product, so digests of the earlier
    layout cannot be recomputed. `EARLIER_COMMITS` is their frozen list: all digests of the records
    that were committed by then, and the last one before the move. Records with these digests are
    valid. New runs get digests of the new layout; the list does not grow.
    """
    digest = sha256()
    product, benchmark = (Path(str(each.__file__)).parent for each in (altbi, altbi_bench))
    for root, folder in ((product, product), (benchmark, benchmark / "baselines")):
        for module in sorted(folder.rglob("*.py")):
            name = module.relative_to(root)
            if name.parts[0] != "cli":
                digest.update(f"{name.as_posix()}\0".encode() + module.read_bytes())
    return digest.hexdigest()[:12]


def describe_code(digest: str | None) -> str:
    """Describe the code of a record; empty if it is the current code."""
    if digest == code_digest():
        return ""
    if digest in EARLIER_COMMITS:
        commit = EARLIER_COMMITS[digest]
        return f"altbi's code was {digest}, {f'commit {commit}' if commit else 'never committed'}"
    then = "not recorded" if digest is None else digest
    return f"altbi's code was {then}, by now it is {code_digest()}"
