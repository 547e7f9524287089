"""How text is generated; loads no torch, so that command lines can name the choices."""

from typing import Literal

GenerateMode = Literal["ar", "draft", "sweep"]
"""`ar`: one byte from each traversal; `draft`: the same bytes in fewer traversals, which check
guesses; `sweep`: a chunk from each traversal, without regard of one another."""

Precision = Literal["float32", "float16", "int8"]
"""How exactly tensors travel between peers; see `precision`."""
