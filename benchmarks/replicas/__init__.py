"""What replicas of one block gain and cost: `python -m benchmarks.replicas sim|swarm`.

`sim` trains N replicas of one block in one process with the library's own `BlockTrainer` and
admission: full and partial participation, late updates, and outer optimizers. Exact and repeatable.
`swarm` trains real peers in real processes on this machine: three blocks without replicas, then
three blocks with two replicas each.

cli.py      the options
config.py   sim.toml -> scenarios
rounds.py   how a round ends: who contributes, who adopts, and the outer optimizer
sim.py      one scenario from its initial weights to its scores, and all of them
swarm.py    the real peers
report.py   results -> JSON, Markdown and a picture
"""
