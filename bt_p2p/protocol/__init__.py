"""What peers say to each other. Imports neither torch nor hivemind.

- `manifest`: the run manifest and the run id made from it
- `identity`: a peer's key file, peer id and signature
- `lease`: signed, short-lived records of who holds which block
- `overview`: the whole swarm at one moment, from leases
- `keys`: every DHT key; `limits`: every timeout and cap; `wire`: msgpack for hostile bytes
- `directory`: the port through which leases and manifests are written and read
"""
