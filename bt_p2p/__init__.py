"""The volunteer node for BlockTrain, as a library.

Packages, low to high; each imports only from those above it in this list:

- `errors`, `clock`: the error tree, the clock port
- `protocol`: what peers say to each other (manifest, lease, limits); no torch, no hivemind
- `model`, `objective`, `corpus`: one block, what it learns, from which text; knows no peers
- `training`, `averaging`, `chain`, `evaluation`: local steps, rounds, generation over peers
- `swarm`: the only package that imports hivemind; `testing`: fakes of the same ports
"""

__version__ = "0.1.0"
__all__ = ["__version__"]
