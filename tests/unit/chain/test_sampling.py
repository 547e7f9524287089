"""bt_p2p.chain.sampling: from distributions to bytes."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from bt_p2p.chain.sampling import Sampling, sample_bytes
from bt_p2p.errors import ConfigError


def generator(seed: int = 0) -> torch.Generator:
    """A fixed source of chance."""
    return torch.Generator().manual_seed(seed)


def log_probs(*probs: float) -> Tensor:
    """These bytes from 0 on; all others are impossible."""
    log_probs_V = torch.full((256,), -math.inf)
    log_probs_V[: len(probs)] = torch.tensor(probs).log()
    return log_probs_V


def counts(log_probs_V: Tensor, sampling: Sampling, num_draws: int = 3_000) -> Tensor:
    """How often each byte is drawn."""
    everywhere = log_probs_V.expand(num_draws, 256)
    drawn = sample_bytes(everywhere, sampling, seed=3, position=0)
    return torch.bincount(torch.tensor(drawn), minlength=256)


def kept_literally(probs: list[float], top_p: float) -> set[int]:
    """The likeliest bytes, one by one, until together they have top_p."""
    kept: set[int] = set()
    total = 0.0
    for byte in sorted(range(len(probs)), key=lambda byte: -probs[byte]):
        if total >= top_p:
            break
        kept.add(byte)
        total += probs[byte]
    return kept


@pytest.mark.parametrize("temperature", [0.0, 1e-320, 1e-9])
def test_no_temperature_takes_the_likeliest_byte(temperature: float) -> None:
    """Zero, and numbers too small to divide by."""
    positions = torch.log_softmax(torch.randn(8, 256, generator=generator(1)), dim=-1)
    expected = positions.argmax(dim=-1).tolist()
    sampling = Sampling(temperature=temperature)
    assert expected == sample_bytes(positions, sampling, seed=0, position=0)


def test_the_same_seed_draws_the_same_bytes() -> None:
    """Another one draws others, and so does another position."""
    flat = torch.full((64, 256), -math.log(256))
    first = sample_bytes(flat, Sampling(), seed=1, position=7)
    assert first == sample_bytes(flat, Sampling(), seed=1, position=7)
    assert first != sample_bytes(flat, Sampling(), seed=2, position=7)
    assert first[1:] == sample_bytes(flat[1:], Sampling(), seed=1, position=8)
    assert 40 < len(set(first)) <= 64


def test_similar_distributions_mostly_draw_the_same_byte() -> None:
    """More than independent draws would, which is what drafting lives on."""
    logits = 2 * torch.randn(2000, 256, generator=generator(1))
    other = logits + 0.3 * torch.randn(2000, 256, generator=generator(2))
    first, second = (
        sample_bytes(torch.log_softmax(each, dim=-1), Sampling(temperature=1.0), seed=5, position=0)
        for each in (logits, other)
    )
    same = sum(a == b for a, b in zip(first, second, strict=True)) / 2000
    independent = float((torch.softmax(logits, -1) * torch.softmax(other, -1)).sum(-1).mean())
    assert same > 0.6 > 5 * independent


@pytest.mark.parametrize("temperature", [0.5, 1.0, 2.0])
def test_draws_follow_the_distribution(temperature: float) -> None:
    """Chi-square of p^(1/T), four degrees of freedom, far below one in a thousand (18.5)."""
    probs = [0.4, 0.3, 0.15, 0.1, 0.05]
    powers = [p ** (1 / temperature) for p in probs]
    found = counts(log_probs(*probs), Sampling(temperature=temperature))
    assert 0 == int(found[5:].sum())
    total = int(found.sum())
    expected = [total * power / sum(powers) for power in powers]
    chi_square = sum((int(found[byte]) - mean) ** 2 / mean for byte, mean in enumerate(expected))
    assert chi_square < 18.5


@pytest.mark.parametrize("top_p", [0.01, 0.3, 0.41, 0.69, 0.71, 0.9, 0.99, 1.0])
def test_top_p_keeps_the_bytes_a_literal_reading_keeps(top_p: float) -> None:
    """The smallest set of likeliest bytes that reaches top_p."""
    probs = [0.1, 0.4, 0.05, 0.3, 0.15]
    found = counts(log_probs(*probs), Sampling(temperature=1.0, top_p=top_p))
    assert kept_literally(probs, top_p) == set(found.nonzero().flatten().tolist())


@pytest.mark.parametrize("seed", range(5))
def test_top_p_is_right_on_random_distributions(seed: int) -> None:
    """Nothing outside the set is ever drawn, at any temperature."""
    logits = 3 * torch.randn(256, generator=generator(seed), dtype=torch.float64)
    probs = torch.softmax(logits / 0.7, dim=-1).tolist()
    found = counts(torch.log_softmax(logits, dim=-1), Sampling(temperature=0.7, top_p=0.6), 2000)
    assert set(found.nonzero().flatten().tolist()) <= kept_literally(probs, 0.6)


def test_top_p_renormalises_what_it_keeps() -> None:
    """Two bytes of 0.4 and 0.2 become two thirds and one third."""
    found = counts(log_probs(0.4, 0.2, 0.2, 0.1, 0.1), Sampling(temperature=1.0, top_p=0.5))
    share = float(found.max() / found.sum())
    assert abs(share - 2 / 3) < 0.03


@pytest.mark.parametrize("temperature", [-0.1, 10.1, math.nan, math.inf])
def test_temperatures_out_of_range_are_refused(temperature: float) -> None:
    """The message names the value."""
    with pytest.raises(ConfigError, match=f"temperature {temperature} is outside 0 to 10"):
        Sampling(temperature=temperature)


@pytest.mark.parametrize("top_p", [0.0, -0.5, 1.01, math.nan])
def test_top_p_out_of_range_is_refused(top_p: float) -> None:
    """Nothing at all cannot be drawn from."""
    with pytest.raises(ConfigError, match=f"top-p {top_p} is outside"):
        Sampling(top_p=top_p)
