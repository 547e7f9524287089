"""The swarm page of a bootstrap peer: what it sees of its runs, for people and for programs.

- `board`: reads the swarm again and again
- `history`: the loss of blocks, round after round
- `document`: one view as a JSON document, from which the page is made too
- `chart`: the curves of the loss
- `metrics`: one view as figures
- `html`: the page itself; `files` has its template, style, script and icon
- `app`: the routes
"""
