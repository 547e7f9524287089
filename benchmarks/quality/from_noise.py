"""`python -m benchmarks.quality.from_noise`: diffusion scored as it generates, from pure noise."""

from __future__ import annotations

import json
import sys

import torch

from benchmarks.quality.cli import DEFAULT_DATA, DEFAULT_JOBS, ROOT
from benchmarks.quality.config import config_path, read_config
from benchmarks.quality.plan import plan_trainings
from benchmarks.quality.texts import TEST, load_texts
from benchmarks.quality.training import write_atomically
from benchmarks.traversals.models import load_trained
from bt_p2p.evaluation import score_blocks
from bt_p2p.model.block import initial_block

ARM = "diffusion_b2"
OUT = ROOT / "docs" / "results" / "quality" / "from-noise.json"


def main() -> int:
    """Score the trained arm both ways on the test text; returns the exit code."""
    texts = load_texts(DEFAULT_DATA if DEFAULT_DATA.exists() else None, cache_dir=DEFAULT_JOBS)
    trainings = plan_trainings(read_config(config_path("cpu")), texts.corpus)
    trained = load_trained(trainings, ARM, budget=None, seed=0, work=DEFAULT_JOBS)
    blocks = []
    for index, weights in enumerate(trained.weights):
        block = initial_block(trained.manifest, index).eval()
        block.load_weights(weights)
        blocks.append(block)
    found = {}
    for name, noise in {"context alone": None, "pure noise": torch.Generator()}.items():
        if noise is not None:
            noise.manual_seed(0)
        score = score_blocks(trained.manifest, blocks, texts.scored[TEST], noise=noise)
        found[name] = {
            "final_nats": score.final_nats,
            "per_block_nats": score.per_block_nats,
            "num_bytes": score.num_bytes,
        }
        print(f"{name}: {score.final_nats:.4f} nats/byte", file=sys.stderr)  # noqa: T201
    document = {"model": trained.title, "text": texts.names[TEST], "scores": found}
    write_atomically(OUT, json.dumps(document, indent=2) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
