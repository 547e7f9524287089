"""Nothing that a stranger sends is ever run: no pickle, no marshal, no eval, in any module of ours."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGES = ("bt_p2p", "node", "bootstrap", "benchmarks")
MODULES = {
    *("pickle", "_pickle", "cPickle", "cloudpickle", "dill", "joblib", "jsonpickle"),
    *("marshal", "shelve", "torch.package", "torch.hub"),
}
CALLS = {
    *("eval", "exec", "compile", "__import__"),
    *("torch.load", "torch.jit.load", "torch.export.load", "yaml.load", "yaml.unsafe_load"),
    *("yaml.full_load", "numpy.load", "np.load"),
}


def dangers(source: str) -> list[str]:
    """What in a module could run code that is in data, by line."""
    found = []
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Import(names=names):
                used = [name.name for name in names]
            case ast.ImportFrom(module=str(module), names=names):
                used = [module, *(f"{module}.{name.name}" for name in names)]
            case ast.Call(func=ast.Name() | ast.Attribute() as func):
                used = [f"{ast.unparse(func)}()"]
            case _:
                continue
        found += [f"line {node.lineno}: {name}" for name in used if _is_danger(name)]
    return found


def _is_danger(name: str) -> bool:
    return name.removesuffix("()") in CALLS or any(
        name == module or name.startswith(f"{module}.") for module in MODULES
    )


@pytest.mark.parametrize(
    "source",
    [
        "import pickle",
        "import pickle as p",
        "from pickle import loads",
        "from torch import load",
        "import torch\ntorch.load(path)",
        "def f():\n    import marshal",
        "from torch import hub",
        "eval(text)",
        "yaml.load(text)",
        "np.load(path, allow_pickle=True)",
    ],
)
def test_dangers_are_seen(source: str) -> None:
    """Wherever and however they are written."""
    assert [] != dangers(source)


def test_no_module_of_ours_runs_code_from_data() -> None:
    """Weights are safetensors, messages are msgpack, files are JSON and TOML."""
    paths = [path for package in PACKAGES for path in sorted((ROOT / package).rglob("*.py"))]
    found = {
        str(path.relative_to(ROOT)): dangers(path.read_text(encoding="utf-8")) for path in paths
    }
    assert {} == {path: lines for path, lines in found.items() if lines}
    assert 100 < len(paths)
