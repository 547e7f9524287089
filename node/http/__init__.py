"""A small read-only HTTP server beside a program: figures, health, and pages of the bootstrap peer.

- `place`: where to listen, and what becomes of a port in use
- `brief_connection`: one request for each connection, within seconds, and few at once
- `read_only`: who may ask what, and the headers of every answer
- `thread`: the server in a thread of its own
- `exposition`: figures as Prometheus reads them
- `node_metrics`, `node_health`: what a node tells of itself
- `node_app`: its routes
"""
