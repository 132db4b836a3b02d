"""Right answers of other forms than the page's solution, which the exercises on the network accept as well."""

import numpy as np
import pytest
import torch
from measured_book.exercises import check


@pytest.mark.parametrize("w2", [[1, -2], [[1], [-2]], torch.tensor([[1.0], [-2.0]])])
@pytest.mark.parametrize("b2", [0, 0.0, [0], np.zeros(1), torch.zeros(1)])
def test_one_output_may_be_a_column_and_its_bias_a_list(w2, b2):
    result = check("feed_forward.exclusive_or", ([[1, 1], [1, 1]], [0, -1], w2, b2))
    assert result.passed, result


def test_other_neurons_can_do_it_too():
    # |x - y| of two ramps, and one minus them with a bias: one neuron each way
    for answer in (
        ([[1, -1], [-1, 1]], [0, 0], [1, 1], 0),
        ([[1, -1], [1, -1]], [-1, 1], [[-1], [-1]], [1]),
    ):
        assert check("feed_forward.exclusive_or", answer).passed


def test_two_numbers_by_hand_may_be_a_tensor():
    assert check("feed_forward.by_hand", torch.tensor([-4.0, 2.0])).passed
