"""How exactly tensors arrive."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from bt_p2p.chain.precision import (
    PRECISIONS,
    decode,
    encode,
    encoded_size_bytes,
    log_prob_precision,
    normalised,
    rounded,
)
from bt_p2p.errors import WireFormatError

SHAPE = (2, 3, 5)


@pytest.mark.parametrize(
    ("precision", "size_bytes"), [("float32", 120), ("float16", 60), ("int8", 30 + 6 * 4)]
)
def test_sizes_are_those_of_the_bytes(precision, size_bytes) -> None:
    assert size_bytes == encoded_size_bytes(SHAPE, precision)
    assert size_bytes == len(encode(torch.ones(SHAPE), precision))


@given(st.lists(st.floats(-(2.0**99), 2.0**99, width=32), min_size=4, max_size=4), st.data())
def test_values_arrive_as_near_as_the_precision_is(values, data) -> None:
    """Float32 exactly, float16 to a thousandth within its range, int8 to half a step of the row."""
    sent = torch.tensor([[values]])
    precision = data.draw(st.sampled_from(PRECISIONS))
    got = rounded(sent, precision)
    assert torch.isfinite(got).all()
    match precision:
        case "float32":
            assert torch.equal(sent, got)
        case "float16":
            torch.testing.assert_close(sent.clamp(-65504, 65504), got, rtol=1e-3, atol=1e-7)
        case "int8":
            step = float(sent.abs().max()) / 127
            assert float((sent - got).abs().max()) <= 0.501 * step


def test_a_row_of_zeros_stays_zeros() -> None:
    assert torch.equal(torch.zeros(SHAPE), rounded(torch.zeros(SHAPE), "int8"))


@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("change", [-1, 1])
def test_another_number_of_bytes_is_refused(precision, change) -> None:
    size_bytes = encoded_size_bytes(SHAPE, precision) + change
    with pytest.raises(WireFormatError, match="expected"):
        decode(bytes(size_bytes), SHAPE, precision)


@pytest.mark.parametrize("precision", PRECISIONS)
def test_log_probabilities_sum_to_one_again(precision) -> None:
    """Exact ones are left as they are; rounded ones stay near."""
    sent = torch.log_softmax(10 * torch.randn(4, 2, 256), dim=-1)
    arrived = rounded(sent, log_prob_precision(precision))
    got = normalised(arrived, log_prob_precision(precision))
    torch.testing.assert_close(torch.ones(4, 2), got.exp().sum(dim=-1), rtol=0, atol=1e-5)
    assert float((sent - got).abs().max()) < (1e-30 if precision == "float32" else 0.1)
    assert math.isclose(0.0, float((sent.exp() - got.exp()).abs().max()), abs_tol=5e-3)
