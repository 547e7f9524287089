"""What people see in a terminal. Nothing here talks to the swarm.

- `terminal`: the console, and what it can do
- `format`: numbers and strangers' strings as short text
- `event_words`: events as lines
- `words`: facts about the swarm and this node as sentences
- `canvas`: room, colours, lines and frames that fit
- `grid`: rows of cells under column titles
- `block_table`: how well each block is held, and how it learns, as rows
- `peer_table`: who takes part, as rows
- `trends`: what the losses of blocks did while somebody watched
- `node_rows`: what there is to say of a node, a line each
- `panels`: an overview and a snapshot -> something rich can draw; pure
- `feed`: the newest answers of the swarm and of this machine
- `screen`: a whole terminal, painted and given back
- `keys`: what is typed
- `dashboard`: the loop behind `bt-node status`
- `picture`: a drawing as an SVG file
- `snapshot_text`: the same facts once, as plain text or as JSON
- `progress`: what `bt-node join` reports while it runs
"""
