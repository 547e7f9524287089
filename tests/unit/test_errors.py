"""The error tree: it pickles, and its drawing is true."""

from __future__ import annotations

import inspect
import pickle  # noqa: TID251  # hivemind pickles errors between processes
import re

import pytest

from bt_p2p import errors

KEYWORD_ONLY = {
    "blamed": {"12D3peer": "sent nonsense"},
    "late": frozenset({"12D3peer"}),
    "peer_id": "12D3KooWExample",
    "missing_blocks": (1, 3),
}
"""A value for each keyword-only argument of any error."""
NODE = re.compile(r"^(?P<branches>.*?)(?P<name>\w+Error)\b(?: \((?P<also>\w+)\))?")


def error_classes() -> list[type[errors.BtError]]:
    """Every error class that the module defines."""
    return [
        value
        for value in vars(errors).values()
        if isinstance(value, type) and issubclass(value, errors.BtError)
    ]


def drawn_tree() -> dict[str, tuple[str | None, str | None]]:
    """Class name -> parent and second parent, as the module docstring draws them."""
    drawing = (inspect.getdoc(errors) or "").split("\n\n")[1]
    tree: dict[str, tuple[str | None, str | None]] = {}
    ancestors: list[tuple[int, str]] = []
    for line in drawing.splitlines():
        match = NODE.match(line)
        assert match is not None, f"no error class in the line {line!r}"
        column, name = len(match["branches"]), match["name"]
        while ancestors and ancestors[-1][0] >= column:
            ancestors.pop()
        tree[name] = (ancestors[-1][1] if ancestors else None, match["also"])
        ancestors.append((column, name))
    return tree


def make(cls: type[errors.BtError]) -> errors.BtError:
    """An instance with every keyword-only argument given."""
    parameters = inspect.signature(cls.__init__).parameters.values()
    keywords = {p.name: KEYWORD_ONLY[p.name] for p in parameters if p.kind is p.KEYWORD_ONLY}
    return cls("what failed; what to do next", **keywords)


@pytest.mark.parametrize("cls", error_classes())
def test_error_survives_pickling(cls):
    """A pickled error comes back with its type, its message and its facts."""
    error = make(cls)
    copy = pickle.loads(pickle.dumps(error))
    expected = (cls, str(error), error.args, vars(error))
    assert expected == (type(copy), str(copy), copy.args, vars(copy))


def test_keyword_only_facts_are_kept():
    """Facts given as keyword-only arguments are attributes."""
    assert "12D3KooWExample" == make(errors.PeerTimeoutError).peer_id
    assert (1, 3) == make(errors.NoRouteError).missing_blocks


def test_raised_error_with_a_cause_survives_pickling():
    """An error pickles as well after it was raised from another."""
    with pytest.raises(errors.PeerTimeoutError) as caught:
        raise make(errors.PeerTimeoutError) from OSError("connection reset")
    copy = pickle.loads(pickle.dumps(caught.value))
    assert ("what failed; what to do next", "12D3KooWExample") == (str(copy), copy.peer_id)


def test_drawing_shows_every_error():
    """The module docstring draws each error class once, and no other."""
    assert sorted(cls.__name__ for cls in error_classes()) == sorted(drawn_tree())


@pytest.mark.parametrize("cls", error_classes())
def test_drawing_shows_the_right_parent(cls):
    """An error hangs below its first base class, and a second base in brackets is one."""
    parent, also = drawn_tree()[cls.__name__]
    assert parent == (None if cls is errors.BtError else cls.__bases__[0].__name__)
    assert also is None or also in [base.__name__ for base in cls.__bases__]


@pytest.mark.parametrize("cls", error_classes())
def test_error_has_a_docstring(cls):
    """Each error says in a docstring of its own when it is raised."""
    assert "__doc__" in vars(cls)
    assert vars(cls)["__doc__"]
