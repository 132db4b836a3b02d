"""The cosine that the case study's writes need: vectors with that cosine have the stated lengths."""

from __future__ import annotations

import numpy as np
import pytest
from measured_book.rooms.residual_stream.measure import STATED_GROWTH, needed_cosine
from measured_book.rooms.residual_stream.reading import leaning


@pytest.mark.parametrize("reading", sorted(STATED_GROWTH))
def test_writes_that_lean_so_make_the_stream_as_long_as_stated(reading: str):
    before, writes, after = STATED_GROWTH[reading]
    cosine = leaning(reading=reading)
    stream = np.array([before, 0.0])
    for length in writes:
        along = stream / np.linalg.norm(stream)
        across = np.array([-along[1], along[0]])
        stream = stream + length * (cosine * along + np.sqrt(1 - cosine**2) * across)
    assert np.linalg.norm(stream) == pytest.approx(after)


def test_it_is_not_the_mean_over_all_pairs():
    for reading, (before, writes, after) in STATED_GROWTH.items():
        assert abs(leaning(reading=reading) - needed_cosine(before, writes, after)) > 0.005
