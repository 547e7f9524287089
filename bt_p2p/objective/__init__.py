"""Local objectives: what one block trains on alone, and how it is read at inference.

base.py        the `BlockObjective` port and what an objective needs of a block
registry.py    manifest -> objective
plain.py       next-byte cross entropy, with masked suffixes that train sweeps
diffusion.py   the paper: every block denoises one band of noise levels
noise.py       noise levels: bands, sampling, EDM coefficients, Euler step
end_to_end.py  the ordinary baseline: all layers as one block
compose.py     one distribution from the blocks' distributions
"""
