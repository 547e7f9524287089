"""How text is generated; loads no torch, so that command lines can name the modes."""

from typing import Literal

GenerateMode = Literal["ar", "draft", "sweep"]
"""`ar`: one byte from each traversal; `draft`: the same bytes in fewer traversals, which check
guesses; `sweep`: a chunk from each traversal, without regard of one another."""
