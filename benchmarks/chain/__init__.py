"""What generation over a chain of real holders costs: `python -m benchmarks.chain`.

Every holder is a process of its own with real libp2p sockets, and is dialled through a relay that
delays and throttles as a wide-area link does. The same answers are timed one byte per traversal
from holders one after another (a plain pipeline, the baseline) and side by side, with drafts, and
in sweeps. `faults` kills and freezes holders in the middle of answers, which must not change.

cli.py      the options
config.py   quick.toml, full.toml -> what to measure
relay.py    the program that is the network
holder.py   the program that is a holder
child.py    such a program, as its parent sees it
swarm.py    relays, holders and a client, started and ended together
timing.py   one answer, timed
measure.py  all answers of a config -> figures
faults.py   answers with a holder killed or frozen on the way
report.py   figures -> JSON, Markdown and a picture
"""
