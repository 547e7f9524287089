"""Measurements that take longer than tests and end in figures for people; never installed.

quality/   cross entropy of blocks trained alone against the same model trained end to end
"""
