"""Builds the sdist, from it the wheel, installs that in a clean environment, and tries it there.

    python -m tools.wheel_check                                  # with this Python
    python -m tools.wheel_check --python python3.12 --without-torch

Dependencies come from the package index at the versions of `constraints.txt`. With `--borrow` those of
this environment are used, and nothing is fetched. With `--without-torch` everything is installed but torch,
which is large, and the modules that need it are not imported.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from importlib import metadata
from pathlib import Path

ROOT = Path(__file__).parents[1]
SOURCES = ("bt_p2p", "node", "bootstrap", "pyproject.toml", "README.md", "LICENSE")
TRIAL = Path(__file__).with_name("wheel_trial.py")
_TIMEOUT_S = 1200.0


def main() -> None:
    """Run it as the arguments say."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else "")
    parser.add_argument("--python", default=sys.executable, help="Python to install it for")
    parser.add_argument("--borrow", action="store_true", help="use this environment's packages")
    parser.add_argument("--without-torch", action="store_true", help="install all but torch")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        wheel = build(folder)
        environment = folder / "environment"
        _run(arguments.python, "-m", "venv", "--without-pip", str(environment))
        python = environment / "bin" / "python"
        if arguments.borrow:
            borrow(python)
            install(python, "--no-deps", "--no-index", str(wheel))
        else:
            install_dependencies(python, wheel, has_torch=not arguments.without_torch)
        missing = ["torch"] if arguments.without_torch else []
        _run(str(python), "-I", str(TRIAL), *missing, cwd=folder)
    sys.stdout.write(f"{wheel.name} works with {arguments.python}\n")


def build(folder: Path) -> Path:
    """The wheel, built from an unpacked sdist, so that the sdist is known to be whole."""
    tree = folder / "tree"
    tree.mkdir()
    for name in SOURCES:
        source = ROOT / name
        if source.is_dir():
            shutil.copytree(source, tree / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(source, tree / name)
    _build("sdist", tree, folder)
    sdist = next(folder.glob("*.tar.gz"))
    with tarfile.open(sdist) as archive:
        archive.extractall(folder, filter="data")
    _build("wheel", folder / sdist.name.removesuffix(".tar.gz"), folder)
    wheel = next(folder.glob("*.whl"))
    with zipfile.ZipFile(wheel) as archive_of_wheel:
        tops = {name.partition("/")[0] for name in archive_of_wheel.namelist()}
    expected = {"bt_p2p", "node", "bootstrap", f"{'-'.join(wheel.name.split('-')[:2])}.dist-info"}
    if tops != expected:
        sys.exit(f"{wheel.name} holds {sorted(tops)}, not {sorted(expected)}")
    return wheel


def install(python: Path, *arguments: str) -> None:
    """Have this environment's pip install into another one."""
    _run(sys.executable, "-m", "pip", "--python", str(python), "install", "--quiet", *arguments)


def install_dependencies(python: Path, wheel: Path, *, has_torch: bool) -> None:
    """The wheel and what it needs, at the versions that were tested."""
    constraints = ("-c", str(ROOT / "constraints.txt"))
    if has_torch:
        pins = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
        install(python, *constraints, next(pin for pin in pins if pin.startswith("torch==")))
        install(python, *constraints, str(wheel))
        return
    needed = [text for text in metadata.requires("bt-p2p") or [] if "extra ==" not in text]
    of_hivemind = [text for text in metadata.requires("hivemind") or [] if "extra ==" not in text]
    wanted = [
        text for text in (*needed, *of_hivemind) if not text.startswith(("torch", "hivemind"))
    ]
    install(python, *constraints, *wanted)
    install(python, *constraints, "--no-deps", "hivemind", str(wheel))


def borrow(python: Path) -> None:
    """Let an environment see this one's packages, behind its own, and without editable ones."""
    own = subprocess.run(
        [str(python), "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"],
        capture_output=True,
        text=True,
        timeout=_TIMEOUT_S,
        check=True,
    ).stdout.strip()
    folders = [path for path in sys.path if path.endswith("site-packages")]
    Path(own, "borrowed.pth").write_text("".join(f"{path}\n" for path in folders))


def _build(kind: str, tree: Path, out: Path) -> None:
    code = f"import sys; from setuptools import build_meta; build_meta.build_{kind}(sys.argv[1])"
    _run(sys.executable, "-c", code, str(out), cwd=tree, is_quiet=True)


def _run(*command: str, cwd: Path = ROOT, is_quiet: bool = False) -> None:
    done = subprocess.run(
        command,
        cwd=cwd,
        timeout=_TIMEOUT_S,
        stdout=subprocess.PIPE if is_quiet else None,
        stderr=subprocess.STDOUT if is_quiet else None,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)} ended with {done.returncode}\n{done.stdout or ''}")


if __name__ == "__main__":
    main()
