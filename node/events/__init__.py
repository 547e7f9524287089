"""What happened to a node, as facts with names: told once, read by whoever wants them.

- `event`: the kinds of events and their fields
- `changes`: two looks at the node or the swarm -> the events between them; pure
- `log`: events as lines of a file that cannot grow without bound nor stop the node
- `history`: such files, read again
- `replay`: events -> what the dashboard showed; pure, but for the clock

Design: docs/design/0019-events.md.
"""
