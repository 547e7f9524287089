"""A whole swarm on one machine: `python -m node.demo`, which `make demo` runs.

- `processes`: the bootstrap peer and the volunteers, as the real programs
- `scenario`: what happens when, and what is written down
- `report`: the result, and whether it counts as a success
"""
