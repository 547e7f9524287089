"""How long does it take from `bt-node join` to the first average that a newcomer is part of?

    python -m benchmarks.newcomer

- `swarm`: donors that train on, and newcomers one after another, each as the real program
- `words`: what a node says of its download
- `report`: the table
"""
