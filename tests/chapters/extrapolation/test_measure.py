"""Angles that are slowed down, and how far a model gets beyond its trained length."""

import numpy as np
import pytest
import torch
from measured_transformer.chapters.extrapolation.measure import (
    by_bucket,
    interpolated,
    longest_within,
)
from measured_transformer.models.config import Config
from measured_transformer.parts.positions import rotation
from measured_transformer.training.loop import make_model

TINY = Config(vocab=8, d_model=16, n_heads=2, n_layers=2, max_length=12)


@pytest.mark.parametrize("how", ["positions", "base"])
def test_slowed_angles_are_those_of_smaller_positions(how: str) -> None:
    model = make_model(TINY.replace(positions="rotary"), causal=True, seed=0)
    x = torch.randn(1, 1, 33, 8, generator=torch.Generator().manual_seed(0))
    before = model.rotary(33).apply(x)
    with interpolated(model, 4, how=how):
        slowed = model.rotary(33).apply(x)
    torch.testing.assert_close(model.rotary(33).apply(x), before)
    if how == "positions":
        wanted = rotation(torch.arange(33) / 4, 8).apply(x)
        torch.testing.assert_close(slowed, wanted)
    else:  # the first pair as before, the last four times as slow
        torch.testing.assert_close(slowed[..., :2], before[..., :2])
        wanted = rotation(torch.arange(33) / 4, 8).apply(x)[..., 6:]
        torch.testing.assert_close(slowed[..., 6:], wanted)


def test_interpolation_needs_angles_and_more_than_one_pair_for_the_base() -> None:
    with (
        pytest.raises(ValueError, match="sinusoidal"),
        interpolated(make_model(TINY, causal=True, seed=0), 2),
    ):
        pass
    narrow = make_model(TINY.replace(positions="rotary", d_head=2), causal=True, seed=0)
    with pytest.raises(ValueError, match="one pair"), interpolated(narrow, 2, how="base"):
        pass
    assert narrow.rotary.d_head == 2


def test_buckets_leave_out_what_is_not_scored() -> None:
    values = np.array([[np.nan, 1.0, 2.0, 4.0], [3.0, 1.0, np.nan, 0.0]])
    assert by_bucket(values, 2).tolist() == [[1.0, 3.0], [2.0, 0.0]]
    with pytest.raises(ValueError, match="divide"):
        by_bucket(values, 3)


def test_the_longest_length_ends_at_the_first_bad_bucket_beyond_training() -> None:
    excess = np.array([9.0, 9.0, 0.1, 0.1, 0.1, 0.9, 0.1, 0.1])
    assert longest_within(excess, 0.4, trained=2, bucket=2) == 4
    assert longest_within(excess, 0.4, trained=4, bucket=2) == 4
    assert longest_within(excess, 0.5, trained=2, bucket=2) == 8  # the mean of a bucket counts
    assert longest_within(np.full(8, np.nan), 1.0, trained=2, bucket=2) == 2
    with pytest.raises(ValueError, match="trained"):
        longest_within(excess, 1.0, trained=3, bucket=2)
