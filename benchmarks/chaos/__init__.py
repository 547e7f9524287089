"""Does a swarm of real nodes live through what the world does to it?

    python -m benchmarks.chaos          a fault every few seconds, and an undisturbed twin beside it
    python -m benchmarks.chaos exits    every signal at every moment of a node's life

- `config`, `plan`: what happens to whom and when, from a seed
- `links`: relays in front of every peer, which cut and slow their links
- `fleet`: volunteers as the real programs, each behind its link and on its own disk
- `attacker`, `hostile`, `frames`: a replica that poisons averages, a client that sends garbage
- `faults`: does to a volunteer what the plan says
- `watch`: rounds, crashes, stalls and leaks, seen from outside
- `run`, `report`: the two swarms, and the table
- `exits`, `saver_node`: the signals, and a node that saves after every round
"""
