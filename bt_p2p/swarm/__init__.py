"""The hivemind side of every port, and the only package that imports hivemind.

- `process`: starts and stops a peer: DHT child, peer-to-peer daemon, RPC loop
- `hardening`: closes known holes of hivemind 1.1.12 before any child is forked
- `bridge`: the only waits on another process or loop, each with a deadline
- `directory`, `validators`: leases and manifests in the DHT
- `averager`: rounds of same-block replicas over `DecentralizedAverager`
- `streams`, `block_rpc`: framed binary streams between peers; blocks served over them
- `reach`: which initial peers answer, and why the others do not
"""
