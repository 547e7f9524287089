"""What hostile replicas do to a block, with and without protection: `python -m benchmarks.attacks`.

Replicas of one block train in one process and average with the library's own merge and gate, some
of them as attackers. Exact and repeatable.

cli.py        the options
config.py     a TOML file -> scenarios
attackers.py  what each kind of attacker brings
rounds.py     how a round ends: groups, shares, the gate of each replica
run.py        one scenario from its initial weights to its scores, and all of them
report.py     results -> JSON, Markdown and a picture
"""
