"""Neurons as keys and values: sums against the module, and measures on neurons that are known."""

import pytest
import torch
from measured_transformer.analysis import ffn_memory as memory
from measured_transformer.parts.feedforward import FeedForward
from measured_transformer.training.seeding import seeded
from torch import nn


@pytest.mark.parametrize("activation", ["relu", "gelu", "swiglu", "geglu"])
@pytest.mark.parametrize("bias", [False, True])
def test_the_sum_over_neurons_is_the_network(activation, bias):
    for seed in range(10):
        assert memory.sum_error(seed, activation=activation, bias=bias) < 1e-12
        left_out = memory.sum_error(seed, activation=activation, bias=bias, leave_one_out=True)
        assert left_out > 1e-3


def test_a_memory_is_two_layers_of_pytorch():
    with seeded(0):
        network = FeedForward(3, 4, activation="gelu").double()
        x = torch.randn(2, 3, dtype=torch.float64)
    found = memory.as_memory(network)
    up, down = nn.Linear(3, 4).double(), nn.Linear(4, 3).double()
    up.weight.data, up.bias.data = found.keys, found.key_biases
    down.weight.data, down.bias.data = found.values.T, found.bias
    assert torch.allclose(down(nn.functional.gelu(up(x))), found(x), atol=1e-12)
    assert torch.allclose(found.write(x, 2), found.neuron(x, 2)[:, None] * found.values[2])
