"""The `bt-bootstrap` program: a well-known peer to enter a swarm through, and nothing more.

- `cli`: the command line
- `peer`: a fixed identity that holds the manifest; trains and serves nothing
"""
