"""What people see in a terminal. Nothing here talks to the swarm.

- `terminal`: the console, and what it can do
- `format`: numbers and strangers' strings as short text
- `words`: facts about the swarm and this node as sentences
- `canvas`: room, colours, lines and frames that fit
- `block_table`: who holds which block, as rows
- `panels`: an overview and a snapshot -> something rich can draw; pure
- `dashboard`: the loop behind `bt-node status`
- `snapshot_text`: the same facts once, as plain text or as JSON
- `progress`: what `bt-node join` reports while it runs
"""
