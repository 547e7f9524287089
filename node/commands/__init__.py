"""One module for each command; they may import torch and hivemind, which `node.cli` must not."""
