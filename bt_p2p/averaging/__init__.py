"""Agreeing on weights with the other replicas of a block.

- `averager`: the port through which one round's average is made
- `schedule`: when rounds end, pure
- `admission`: whether the result of a round is adopted, pure
"""
