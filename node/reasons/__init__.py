"""Why a node is idle, slow, alone or refused: one code for each state, with evidence and advice.

- `code`: the codes, and how much each matters.
- `catalogue`: what each means and what to do; the reference page is written from it.
- `reason`: one reason that holds for a node, with its evidence.
- `judge`: `reasons_of`, from a node's snapshot to its reasons.
- `outcome`: the code of a round that ended without an average.
- `watch`: logs reasons as they come and go.

Design: docs/design/0018-reasons.md.
"""
