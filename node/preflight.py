"""What can fail on this machine when it joins a run, checked before time is spent on it."""

from __future__ import annotations

from pathlib import Path

from bt_p2p.averaging.schedule import slowest_upload_bytes_per_s
from bt_p2p.corpus.corpus import Corpus, load_corpus, require_context
from bt_p2p.errors import ConfigError
from bt_p2p.model.sizes import block_sizes
from bt_p2p.protocol.assignment import check_block, check_span
from bt_p2p.protocol.manifest import RunManifest
from node.doctor import machine
from node.doctor.finding import error_of
from node.doctor.quick import look_at_machine, look_at_run
from node.join_options import JoinOptions
from node.manners.settings import Settings
from node.resources import check_disk, check_memory
from node.tui.progress import JoinReporter


def look_first(
    options: JoinOptions, identity_path: Path, manifest: RunManifest | None, reporter: JoinReporter
) -> None:
    """The quick part of the doctor: tell warnings, and end at problems before anything is begun.

    Raises:
        ConfigError: the first problem.
    """
    found = look_at_machine(
        options.state_dir,
        identity_path=identity_path,
        host=options.host,
        port=options.port,
        device=options.device,
        look_at_device=machine.named_device,
    )
    if manifest is not None:
        found += look_at_run(manifest, options.state_dir, span=options.span)
    problem = error_of(found)
    if problem is not None:
        raise problem
    for finding in found:
        if finding.severity == "warning" and finding.check != "memory":  # told with its parts
            reporter.line(f"{finding.check}: {finding.text}; {finding.fix}")


def checked_corpus(manifest: RunManifest, options: JoinOptions) -> Corpus:
    """Everything about this run that can fail on this machine, before time is spent on it."""
    if options.block is not None:
        check_block(options.block, manifest.model.num_blocks)
    if options.span is not None:
        check_span(options.span, options.block, manifest.model.num_blocks)
    _check_upload(manifest, options.settings)
    sizes = block_sizes(manifest.model, manifest.objective, batch_size=1)
    check_disk(options.state_dir.run_folder(manifest.run_id), sizes)
    corpus = load_corpus(manifest.corpus, data=options.data, cache_dir=options.state_dir.cache_dir)
    require_context(corpus, manifest.model.context)
    return corpus


def checked_memory(manifest: RunManifest, options: JoinOptions) -> int:
    """Parts in which a step fits into memory; refuses a block that does not fit at all."""
    batch_size = manifest.optimizer.batch_size
    return check_memory(
        block_sizes(manifest.model, manifest.objective, batch_size=batch_size),
        batch_size=batch_size,
        num_copies=0 if options.span is None else len(options.span) - 1,
        cap_bytes=options.settings.memory_bytes,
    )


def _check_upload(manifest: RunManifest, settings: Settings) -> None:
    """Refuse a cap with which this node would spoil every round for the others of its group.

    Raises:
        ConfigError: with the numbers.
    """
    size_bytes = block_sizes(manifest.model, manifest.objective, batch_size=1).weights_size_bytes
    if manifest.rounds.compression == "float16":
        size_bytes //= 2
    needed = slowest_upload_bytes_per_s(size_bytes, manifest.rounds.round_s)
    if settings.upload_bytes_per_s is not None and settings.upload_bytes_per_s < needed:
        raise ConfigError(
            f"upload_bytes_per_s is {settings.upload_bytes_per_s}, but averages of this run, with "
            f"{size_bytes} bytes of weights, need {needed}; allow more, or join a run with smaller blocks"
        )
