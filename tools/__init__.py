"""Programs for those who work on bt_p2p; no package that is installed holds them.

- `cli_reference`: writes `docs/reference/cli.md` from the command lines themselves
- `wheel_check`: builds sdist and wheel, installs the wheel in clean environments, and tries it there
"""
