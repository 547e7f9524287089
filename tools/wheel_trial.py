"""What an installed bt_p2p has to do, run by the Python of the environment that holds it.

`python -I wheel_trial.py MISSING...` is run outside of the source tree by `wheel_check`; it needs nothing
but the standard library. MISSING are packages that this environment lacks on purpose.
"""

from __future__ import annotations

import importlib
import os
import pkgutil
import subprocess
import sys
import tempfile
from importlib import metadata, resources
from pathlib import Path

PACKAGES = ("bt_p2p", "node", "bootstrap")
PROGRAMS = {"bt-node": "doctor", "bt-bootstrap": "--manifest"}
"""With something that the help has to name."""
FOR_DEVELOPERS = ("pytest", "hypothesis", "mypy", "tests", "benchmarks")
_TIMEOUT_S = 60.0


def main() -> None:
    """Try everything; the first thing that is wrong ends it."""
    missing = set(sys.argv[1:])
    try_metadata()
    try_programs()
    try_completion()
    print(try_imports(missing))  # noqa: T201 - its output is what it is for
    if not missing:
        try_first_steps()


def try_metadata() -> None:
    """The package knows its version, licence and that it is typed."""
    version = metadata.version("bt-p2p")
    check(f"bt-node {version} (protocol " in run("bt-node", "--version"), "bt-node --version")
    check(f"bt-bootstrap {version} (protocol " in run("bt-bootstrap", "--version"), "--version")
    check(metadata.metadata("bt-p2p")["License-Expression"] == "Apache-2.0", "the licence")
    check(resources.files("bt_p2p").joinpath("py.typed").is_file(), "py.typed is installed")
    for name in ("page.html", "page.css", "page.js", "icon.svg"):
        file = resources.files("bootstrap") / "page" / "files" / name
        check(file.is_file(), f"{name} of the swarm page is installed")


def try_programs() -> None:
    """Both are in the environment and tell their options, without loading torch."""
    for program, part in PROGRAMS.items():
        check(part in run(program, "--help"), f"{program} --help names {part}")


def try_completion() -> None:
    """The shell is taught what there is."""
    words = {"_BT_NODE_COMPLETE": "complete_bash", "COMP_WORDS": "bt-node doc", "COMP_CWORD": "1"}
    check("doctor" in run("bt-node", **words), "bash completes bt-node doc")
    with tempfile.TemporaryDirectory() as home:
        program = program_path("bt-node")
        # the shell is found by looking at the process above, so there has to be one
        run("/bin/bash", "-c", f"{program} --install-completion; :", HOME=home)
        shown = run("/bin/bash", "-c", f"{program} --show-completion; :", HOME=home)
        check("_BT_NODE_COMPLETE" in shown, "bt-node --show-completion")
        written = [path.read_text() for path in Path(home).rglob("*") if path.is_file()]
        check(any("_BT_NODE_COMPLETE" in text for text in written), "bt-node --install-completion")


def try_imports(missing: set[str]) -> str:
    """Every module can be imported, from this environment and not from a source tree."""
    environment = Path(sys.prefix).resolve()
    imported, without = 0, 0
    for package in PACKAGES:
        top = importlib.import_module(package)
        where = Path(str(top.__file__)).resolve()
        check(where.is_relative_to(environment), f"{package} is imported from {where}")
        for module in pkgutil.walk_packages(top.__path__, f"{package}.", onerror=lambda _: None):
            try:
                importlib.import_module(module.name)
                imported += 1
            except ModuleNotFoundError as exc:
                check(exc.name in missing, f"{module.name} needs {exc.name}")
                without += 1
    check(not set(FOR_DEVELOPERS) & set(sys.modules), "no module needs a package for developers")
    check(imported > 0, "modules were found")
    return f"{imported} modules imported, {without} not, as {sorted(missing)} is not installed"


def try_first_steps() -> None:
    """A run is founded, and this machine examined."""
    with tempfile.TemporaryDirectory() as folder:
        home = {"HOME": folder, "XDG_STATE_HOME": folder}
        run("bt-node", "init", "--output", f"{folder}/manifest.json", **home)
        text = run("bt-node", "doctor", "--quick", "--manifest", f"{folder}/manifest.json", **home)
        check("this machine can join" in text, "bt-node doctor --quick")


def run(program: str, *arguments: str, **environment: str) -> str:
    """Run a program of this environment; what it printed."""
    done = subprocess.run(
        [str(program_path(program)), *arguments],
        capture_output=True,
        text=True,
        timeout=_TIMEOUT_S,
        env={**{k: v for k, v in os.environ.items() if k != "PYTHONPATH"}, **environment},
        check=False,
    )
    check(done.returncode == 0, f"{program} {' '.join(arguments)}: {done.stderr}")
    return done.stdout


def program_path(name: str) -> Path:
    """Where the environment has it."""
    return Path(name) if name.startswith("/") else Path(sys.prefix, "bin", name)


def check(is_so: bool, what: str) -> None:
    """End with what is wrong."""
    if not is_so:
        sys.exit(f"not so in {sys.prefix}: {what}")


if __name__ == "__main__":
    main()
