"""Install the product alone into a new environment, and run all commands there.

    python tools/check_core_install.py

The environment must have neither PyTorch nor a chart library, and at most 530 MiB of packages.
"""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
ABSENT = ("torch", "altair", "vl_convert", "pandas", "altbi_bench")
MAX_MEBIBYTES = 530  # in the unit of du -m; 0.42 of what version 0.1 installed
COMMANDS = (
    "altbi --version",
    "altbi demo",
    "altbi detect {table} -o {folder}/found --id row",
    "altbi fit {table} --exclude row -o {folder}/model.altbi",
    "altbi score {table} --model {folder}/model.altbi -o {folder}/scores.parquet",
    "altbi explain {table} --model {folder}/model.altbi --rows 3",
    "altbi report {table} --model {folder}/model.altbi -o {folder}/page.html",
    "altbi inspect {folder}/model.altbi",
    "altbi detect {table} -o {folder}/odim --id row --method odim",
)


def run(command: list[str], folder: Path, *, expected: int = 0) -> str:
    """Run a command in a folder, and return its output; another exit code than expected exits."""
    environment = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "PYTHONHOME")}
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)
    if done.returncode != expected:
        raise SystemExit(f"{' '.join(command)} exited with {done.returncode}:\n{done.stderr}")
    return done.stdout + done.stderr


def main() -> None:
    """Install, run the commands, and check what is installed."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        run([sys.executable, "-m", "venv", "env"], folder)
        binaries = folder / "env" / "bin"
        run(
            [
                str(binaries / "pip"),
                "install",
                "-q",
                "-c",
                str(ROOT / "constraints.txt"),
                str(ROOT),
            ],
            folder,
        )
        table = folder / "table.csv"
        rows = [f"{i},{i * 37 % 101},{'ab'[i % 2]}" for i in range(300)]
        table.write_text("\n".join(["row,amount,kind", *rows]))
        for command in COMMANDS:
            program, *arguments = command.format(table=table, folder=folder).split()
            run([str(binaries / program), *arguments], folder)
            sys.stdout.write(f"ok: {command}\n")
        glow = ["detect", str(table), "--method", "altbi-glow", "-o", str(folder / "glow")]
        message = run([str(binaries / "altbi"), *glow], folder, expected=1)
        if "pip install 'altbi[torch]'" not in message:
            raise SystemExit(f"Without PyTorch, GLOW gives no advice: {message}")
        check_packages(binaries, folder)


def check_packages(binaries: Path, folder: Path) -> None:
    """Exit with a sentence if unwanted packages are installed, or too many."""
    code = f"import importlib.util as u; print([n for n in {ABSENT} if u.find_spec(n)])"
    found = run([str(binaries / "python"), "-c", code], folder).strip()
    if found != "[]":
        raise SystemExit(f"The product installs {found}, which it must not.")
    packages = next((folder / "env" / "lib").glob("python*/site-packages"))
    own_tools = ("pip", "setuptools", "pkg_resources", "_distutils_hack", "distutils-precedence")
    size = sum(
        file.lstat().st_size
        for file in packages.rglob("*")
        if file.is_file() and not file.relative_to(packages).parts[0].startswith(own_tools)
    )
    sys.stdout.write(f"site-packages: {size >> 20} MiB, without pip and setuptools\n")
    if size > MAX_MEBIBYTES << 20:
        raise SystemExit(f"The product installs more than {MAX_MEBIBYTES} MiB.")


if __name__ == "__main__":
    main()
