"""The `bt-node` program.

- `cli`, `commands`: the command line; `exit_codes`, `stop`: how it ends
- `join`: from arguments into the swarm; `volunteer`: what happens there, with `rounds`, `keeper`,
  `sync` and `record`
- `client`: a visit to a swarm, for `status`, `generate` and `eval`
- `state_dir`, `snapshot`, `manifests`, `resources`: files and machine
- `tui`: what people see
- `demo`: a whole swarm on one machine
"""
