"""bt_p2p.training.trainer."""

from __future__ import annotations

import dataclasses
import math
import subprocess
import sys

import numpy as np
import pytest
import torch

from bt_p2p.errors import CheckpointError, ConfigError, OutOfMemoryError
from bt_p2p.model.block import initial_block
from bt_p2p.model.checkpoint import load_checkpoint, save_checkpoint
from bt_p2p.model.device import DeviceChoice
from bt_p2p.objective.base import BlockLoss
from bt_p2p.protocol.manifest import ModelSpec, ObjectiveSpec, OptimizerSpec, RunManifest
from bt_p2p.training.data import BatchSource
from bt_p2p.training.trainer import BlockTrainer

CPU = DeviceChoice(device=torch.device("cpu"), autocast_bf16=False, reason="test")
TEXT = np.frombuffer(b"the quick brown fox jumps over the lazy dog. " * 40, dtype=np.uint8)


def manifest_of(name: str = "plain", **changes: object) -> RunManifest:
    return RunManifest(
        name="tiny",
        model=ModelSpec(d_model=16, num_heads=2, num_blocks=2, layers_per_block=1, context=16),
        objective=ObjectiveSpec.model_validate(
            {"name": name, "sweep_max_bytes": 4, "codebook_dim": 8}
        ),
        optimizer=OptimizerSpec(learning_rate=0.01, warmup_steps=3, batch_size=4),
    ).model_copy(update=changes)


def trainer_of(
    manifest: RunManifest | None = None,
    *,
    block_index: int = 0,
    peer_id: str = "me",
    device: DeviceChoice = CPU,
) -> BlockTrainer:
    manifest = manifest or manifest_of()
    source = BatchSource(TEXT, manifest.model.context, manifest.optimizer.batch_size)
    return BlockTrainer(manifest, block_index, device, source, peer_id)


def same_weights(first: BlockTrainer, second: BlockTrainer) -> bool:
    mine, other = first.weights(), second.weights()
    return list(mine) == list(other) and all(torch.equal(mine[n], other[n]) for n in mine)


@pytest.mark.parametrize("name", ["plain", "diffusion"])
def test_the_loss_falls_on_a_tiny_text(name):
    """From ln 256 to well below it within forty steps."""
    trainer = trainer_of(manifest_of(name))
    results = [trainer.train_step() for _ in range(40)]
    assert math.log(256) == pytest.approx(results[0].cross_entropy, abs=0.1)
    assert results[-1].cross_entropy < 3.5
    assert results[-1].loss < results[0].loss - 1.5
    assert 0 == trainer.bad_steps


def test_bf16_learns_about_the_same():
    """Autocast changes digits, not the outcome."""
    rough_device = dataclasses.replace(CPU, autocast_bf16=True)
    exact, rough = trainer_of(), trainer_of(device=rough_device)
    for _ in range(20):
        exact_result, rough_result = exact.train_step(), rough.train_step()
    assert exact_result.cross_entropy == pytest.approx(rough_result.cross_entropy, abs=0.1)
    assert {torch.float32} == {tensor.dtype for tensor in rough.weights().values()}


@pytest.mark.parametrize("name", ["plain", "diffusion"])
def test_training_is_deterministic(name):
    """Same manifest, peer and round: the same weights, bit for bit, and the same reports."""
    first, second = (trainer_of(manifest_of(name)) for _ in range(2))
    torch.manual_seed(1)
    first_results = [first.train_step() for _ in range(3)]
    torch.manual_seed(2)
    assert first_results == [second.train_step() for _ in range(3)]
    assert same_weights(first, second)


def test_peers_and_rounds_see_other_data():
    """Replicas that saw the same batches would not help each other."""
    trainers = [trainer_of(), trainer_of(peer_id="you"), trainer_of()]
    trainers[2].start_round(1)
    losses = {trainer.train_step().loss for trainer in trainers}
    assert 3 == len(losses)


def test_training_starts_from_the_runs_initial_weights():
    """As every peer can make them without a download."""
    manifest = manifest_of()
    trainer = trainer_of(manifest, block_index=1)
    expected = dict(initial_block(manifest, 1).named_parameters())
    assert list(expected) == list(trainer.weights())
    assert all(torch.equal(expected[n], tensor) for n, tensor in trainer.weights().items())
    with pytest.raises(ConfigError, match="no block 2"):
        trainer_of(manifest, block_index=2)


def test_weights_are_copies():
    """What was sent to a peer does not change while training goes on."""
    trainer = trainer_of()
    before = trainer.weights()
    kept = {name: tensor.clone() for name, tensor in before.items()}
    trainer.train_step()
    assert all(torch.equal(kept[name], before[name]) for name in kept)
    assert not any(tensor.requires_grad for tensor in before.values())


def test_loaded_weights_replace_the_old_ones():
    """An adopted average."""
    trainer, other = trainer_of(), trainer_of(block_index=1)
    trainer.train_step()
    trainer.load_weights(other.weights())
    assert same_weights(trainer, other)
    assert 1 == trainer.steps_since_fresh


@pytest.mark.parametrize("change", ["missing", "extra", "shape"])
def test_weights_that_do_not_fit_are_refused_whole(change):
    """The message names the first odd tensor; nothing is changed."""
    trainer, weights = trainer_of(), trainer_of(block_index=1).weights()
    if change == "missing":
        del weights["head.weight"]
    elif change == "extra":
        weights["head.weight2"] = torch.zeros(1)
    else:
        weights["head.weight"] = torch.zeros(1)
    with pytest.raises(ValueError, match=r"do not fit the block: head\.weight"):
        trainer.load_weights(weights)
    assert same_weights(trainer, trainer_of())


def test_rounds_count_their_own_steps_and_samples():
    """What the average is weighted by."""
    trainer = trainer_of()
    for _ in range(3):
        trainer.train_step()
    assert (0, 3, 12) == (trainer.round_index, trainer.step_in_round, trainer.samples_in_round)
    trainer.start_round(5)
    trainer.train_step()
    assert (5, 1, 4) == (trainer.round_index, trainer.step_in_round, trainer.samples_in_round)
    assert (4, 4) == (trainer.total_steps, trainer.steps_since_fresh)


def test_the_rate_follows_warm_up_and_round():
    """A third, two thirds, all of the peak; a tenth after the decay."""
    trainer = trainer_of()
    rates = [trainer.train_step().lr for _ in range(4)]
    assert [0.01 / 3, 0.02 / 3, 0.01, 0.01] == pytest.approx(rates)
    trainer.start_round(1000)
    assert 0.001 == pytest.approx(trainer.train_step().lr)


class BrokenObjective:
    """Stands in for numerical accidents: the loss, or only its gradient, is not finite."""

    def __init__(self, kind: str) -> None:
        self._kind = kind

    def loss(self, block, inputs_BT, targets_BT, generator):
        total = block(inputs_BT).logits_BTV.sum()
        # the square root of zero has an infinite slope, and 0 * inf is nan
        loss = total * float("nan") if self._kind == "loss" else (total * 0).sqrt()
        return BlockLoss(loss=loss, cross_entropy=1.0, num_bytes=64)


@pytest.mark.parametrize("kind", ["loss", "gradient"])
def test_a_step_that_is_not_finite_is_skipped_and_counted(kind):
    """Weights, moments and samples stay; the next batch is another one."""
    trainer, healthy = trainer_of(), trainer_of()
    objective = trainer._objective
    trainer._objective = BrokenObjective(kind)
    result = trainer.train_step()
    assert result.is_skipped
    assert (1, 0, 1) == (trainer.bad_steps, trainer.samples_in_round, trainer.step_in_round)
    assert same_weights(trainer, healthy)
    trainer._objective = objective
    result = trainer.train_step()
    assert not result.is_skipped
    assert (1, 4, 1) == (trainer.bad_steps, trainer.samples_in_round, trainer.steps_since_fresh)
    assert math.isfinite(result.loss)
    assert result.loss != healthy.train_step().loss


@pytest.mark.parametrize("name", ["plain", "diffusion"])
def test_a_restored_trainer_continues_bit_for_bit(tmp_path, name):
    """Through the disk, in the middle of a round, with moments and counters."""
    manifest = manifest_of(name)
    path = tmp_path / "block.safetensors"
    original = trainer_of(manifest)
    original.start_round(2)
    for _ in range(3):
        original.train_step()
    save_checkpoint(path, *original.state())
    restored = trainer_of(manifest)
    restored.restore(load_checkpoint(path))
    expected = [original.train_step() for _ in range(3)]
    assert expected == [restored.train_step() for _ in range(3)]
    assert same_weights(original, restored)
    for counter in ("round_index", "step_in_round", "samples_in_round", "total_steps"):
        assert getattr(original, counter) == getattr(restored, counter), counter


def test_a_trainer_without_steps_can_be_saved_and_restored(tmp_path):
    """Its optimizer has no moments yet."""
    path = tmp_path / "block.safetensors"
    save_checkpoint(path, *trainer_of().state())
    restored = trainer_of()
    restored.train_step()
    restored.restore(load_checkpoint(path))
    assert trainer_of().train_step() == restored.train_step()


def test_checkpoints_of_another_run_or_block_are_refused(tmp_path):
    """Both are named; the weights stay."""
    path = tmp_path / "block.safetensors"
    save_checkpoint(path, *trainer_of(block_index=1).state())
    trainer = trainer_of()
    with pytest.raises(CheckpointError, match=r"is of block 1 of run tiny-.*, not of block 0"):
        trainer.restore(load_checkpoint(path))
    other_run = trainer_of(manifest_of(seed=1), block_index=1)
    with pytest.raises(CheckpointError, match=r"another folder for each run"):
        other_run.restore(load_checkpoint(path))
    assert same_weights(trainer, trainer_of())


@pytest.mark.parametrize("lost", ["weight/head.weight", "moment1/head.weight", "total_steps"])
def test_incomplete_checkpoints_change_nothing(tmp_path, lost):
    """All of it is checked before any of it is used."""
    path = tmp_path / "block.safetensors"
    original = trainer_of()
    original.train_step()
    tensors, facts = original.state()
    tensors.pop(lost, None)
    facts.pop(lost, None)
    save_checkpoint(path, tensors, facts)
    trainer = trainer_of()
    with pytest.raises(CheckpointError, match="does not fit this block"):
        trainer.restore(load_checkpoint(path))
    assert same_weights(trainer, trainer_of())
    assert 0 == trainer.total_steps


class HungryObjective:
    """Its own objective, but memory holds only so many sequences at once."""

    def __init__(self, objective, error, *, max_sequences: int) -> None:
        self._objective = objective
        self._error = error
        self._max_sequences = max_sequences

    def loss(self, block, inputs_BT, targets_BT, generator):
        result = self._objective.loss(block, inputs_BT, targets_BT, generator)
        if inputs_BT.shape[0] > self._max_sequences:
            raise self._error
        return result


OUT_OF_MEMORY = {
    "cpu": RuntimeError(
        "[enforce fail at alloc_cpu.cpp] DefaultCPUAllocator: can't allocate memory"
    ),
    "cuda": torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB"),
    "mps": RuntimeError("MPS backend out of memory (MPS allocated: 8 GB)"),
    "python": MemoryError(),
}


@pytest.mark.parametrize("error", OUT_OF_MEMORY.values(), ids=OUT_OF_MEMORY.keys())
def test_a_step_that_does_not_fit_is_done_in_parts(error, caplog):
    """Twice as many each time, told once each; it stays one step on the whole batch."""
    spec = ObjectiveSpec(sweep_fraction=0.0)  # nothing is drawn, so parts see what the whole sees
    whole = trainer_of(manifest_of(objective=spec))
    parts = trainer_of(manifest_of(objective=spec))
    parts._objective = HungryObjective(parts._objective, error, max_sequences=1)
    with caplog.at_level("WARNING"):
        results = [parts.train_step()]
    expected_gradients = dict(whole.block.named_parameters())
    expected_results = [whole.train_step()]
    for name, parameter in parts.block.named_parameters():
        torch.testing.assert_close(parameter.grad, expected_gradients[name].grad)
    results += [parts.train_step() for _ in range(2)]
    expected_results += [whole.train_step() for _ in range(2)]
    assert [4, 4] == [parts.num_parts, parts.samples_in_round // 3]
    assert ["in 2 parts", "in 4 parts"] == [
        record.getMessage().partition("done ")[2].partition(" from")[0] for record in caplog.records
    ]
    for expected, result in zip(expected_results, results, strict=True):
        assert expected.loss == pytest.approx(result.loss, rel=1e-3)
        assert expected.cross_entropy == pytest.approx(result.cross_entropy, rel=1e-3)
        assert expected.num_bytes == result.num_bytes


def test_parts_from_the_start_need_no_failure():
    """As many as the batch has sequences at most."""
    manifest = manifest_of()
    source = BatchSource(TEXT, manifest.model.context, manifest.optimizer.batch_size)
    trainer = BlockTrainer(manifest, 0, CPU, source, "me", num_parts=64)
    assert 4 == trainer.num_parts
    assert not trainer.train_step().is_skipped


def test_when_not_even_one_sequence_fits_the_advice_is_given():
    """The weights are as they were."""
    trainer = trainer_of()
    trainer._objective = HungryObjective(trainer._objective, OUT_OF_MEMORY["cpu"], max_sequences=0)
    with pytest.raises(OutOfMemoryError, match=r"even with one sequence at a time \(.*\); close"):
        trainer.train_step()
    assert same_weights(trainer, trainer_of())


def test_a_fault_that_is_not_about_memory_is_raised():
    """It must not be tried again in parts."""
    trainer = trainer_of()
    trainer._objective = HungryObjective(
        trainer._objective, RuntimeError("mat1 and mat2 shapes"), max_sequences=0
    )
    with pytest.raises(RuntimeError, match="shapes"):
        trainer.train_step()
    assert 1 == trainer.num_parts


UNDER_A_LIMIT = """
import resource
import psutil
import torch
from bt_p2p.errors import OutOfMemoryError
from tests.unit.training.test_trainer import manifest_of, trainer_of, ModelSpec, OptimizerSpec

def limit(room_mib):
    used = psutil.Process().memory_info().data
    resource.setrlimit(resource.RLIMIT_DATA, (used + room_mib * 2**20, -1))

torch.set_num_threads(1)
trainer_of().train_step()  # what torch keeps for itself is there
model = ModelSpec(d_model=32, num_heads=2, num_blocks=2, layers_per_block=1, context=256)
trainer = trainer_of(manifest_of(model=model, optimizer=OptimizerSpec(batch_size=640)))
limit(450)
trainer.train_step()
print(trainer.num_parts, trainer.steps_since_fresh)
limit(0)
try:
    trainer_of(manifest_of(model=model, optimizer=OptimizerSpec(batch_size=640))).train_step()
except OutOfMemoryError as exc:
    print(type(exc).__name__)
"""


@pytest.mark.slow
@pytest.mark.timeout(180)  # about 5 s on an idle machine, most of it imports
@pytest.mark.skipif(sys.platform != "linux", reason="other systems do not limit data this way")
def test_a_real_limit_on_memory_is_lived_with():
    """A batch that takes about 900 MiB: with half of that in parts, with nothing an error."""
    done = subprocess.run(
        [sys.executable, "-c", UNDER_A_LIMIT],
        capture_output=True,
        text=True,
        check=True,
        timeout=50,
    )
    num_parts, num_steps, error = done.stdout.split()
    assert int(num_parts) > 1
    assert ("1", "OutOfMemoryError") == (num_steps, error)
