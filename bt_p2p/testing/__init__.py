"""In-memory stand-ins for every port, for tests of the library and of programs that use it.

They keep the promises of the ports, errors and deadlines included: one contract test runs on each
of them and on its hivemind twin. Nothing here imports hivemind or opens a socket.

- `clock`: time that moves only when a test says so
- `directory`: leases and manifests in a dictionary that several peers share
- `averager`: rounds of replicas that meet on one hub
- `block_rpc`: blocks asked by a method call, with `faults` between caller and holder
- `tiny`: the smallest valid manifests, identities, leases, weights and services
"""
