"""Angles between states of the stream, against ones known beforehand."""

import numpy as np
import pytest
import torch
from measured_transformer.analysis.states import turns


def test_turns_are_the_angles_that_were_made():
    angles = np.radians([0.0, 30.0, 90.0, 90.001])
    lengths = torch.tensor([1.0, 7.0, 0.1, 3.0])
    plane = torch.tensor(np.stack([np.cos(angles), np.sin(angles)], 1), dtype=torch.float64)
    states = (plane * lengths[:, None]).view(4, 1, 1, 2).expand(4, 2, 3, 2)
    assert turns(states) == pytest.approx([30.0, 60.0, 0.001], rel=1e-5)


def test_turns_are_averaged_over_tokens():
    start = torch.tensor([[[[1.0, 0.0], [1.0, 0.0]]]])
    end = torch.tensor([[[[0.0, 2.0], [3.0, 0.0]]]])
    assert turns(torch.cat([start, end])) == pytest.approx([45.0])


def test_one_state_has_no_turn():
    with pytest.raises(ValueError, match="two states"):
        turns(torch.ones(1, 2, 3, 4))
