"""The feed-forward network against formulas written out."""

import math

import numpy as np
import pytest
import torch
from measured_transformer.internals.capture import capture
from measured_transformer.internals.intervene import intervene
from measured_transformer.parts.feedforward import FeedForward
from scipy.special import erf

TIGHT = {"rtol": 0, "atol": 1e-12}

CURVES = {
    "relu": lambda z: np.maximum(z, 0),
    "gelu": lambda z: z * 0.5 * (1 + erf(z / math.sqrt(2))),
    "gelu_tanh": lambda z: 0.5 * z * (1 + np.tanh(math.sqrt(2 / math.pi) * (z + 0.044715 * z**3))),
    "swiglu": lambda z: z / (1 + np.exp(-z)),
}


def normal(*shape, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=generator, dtype=torch.float64)


def made(activation, bias=True):
    network = FeedForward(6, 10, activation=activation, bias=bias).double()
    for i, parameter in enumerate(network.parameters()):
        parameter.data = normal(*parameter.shape, seed=i + 1)
    return network


@pytest.mark.parametrize("activation", CURVES)
@pytest.mark.parametrize("bias", [False, True])
def test_equal_to_the_formula(activation, bias):
    network, x = made(activation, bias), normal(2, 5, 6)
    kept = x.clone()
    weight = {n: p.detach().numpy() for n, p in network.named_parameters()}

    def affine(name, z):
        return z @ weight[f"{name}.weight"].T + weight.get(f"{name}.bias", 0.0)

    curve, z = CURVES[activation], x.numpy()
    if activation == "swiglu":
        before = affine("gate", z)
        neurons = curve(before) * affine("up", z)
    else:
        before = affine("up", z)
        neurons = curve(before)
    out = affine("down", neurons)

    with capture(network) as seen:
        ours = network(x)
    for name, value in (("pre_activation", before), ("neurons", neurons), ("out", out)):
        torch.testing.assert_close(seen[name], torch.from_numpy(value), **TIGHT)
    torch.testing.assert_close(ours, torch.from_numpy(out), **TIGHT)
    torch.testing.assert_close(network(x), ours, **TIGHT)
    assert torch.equal(x, kept)
    assert any(n.endswith("bias") for n in weight) == bias
    assert any(n.startswith("gate") for n in weight) == (activation == "swiglu")


@pytest.mark.parametrize("activation", CURVES)
def test_every_position_goes_through_it_alone(activation):
    network, x = made(activation), normal(2, 5, 6)
    changed = x.clone()
    changed[:, 3] += 1
    difference = (network(x) - network(changed)).abs().amax((0, 2))
    assert (difference > 1e-6).tolist() == [False, False, False, True, False]
    order = torch.tensor([4, 2, 0, 1, 3])
    torch.testing.assert_close(network(x[:, order]), network(x)[:, order], **TIGHT)


def test_the_output_is_the_sum_of_what_each_neuron_writes():
    network, x = made("gelu"), normal(2, 5, 6)
    with capture(network, "neurons") as seen:
        out = network(x)
    writes = seen["neurons"][..., None] * network.down.weight.T
    torch.testing.assert_close(writes.sum(-2) + network.down.bias, out, **TIGHT)
    with intervene(network, {"neurons": 0.0}):
        torch.testing.assert_close(network(x), network.down.bias.expand(2, 5, 6), **TIGHT)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"d_model": 4, "d_ff": 8, "activation": "tanh"}, "relu.*got 'tanh'"),
        ({"d_model": 0, "d_ff": 8}, "d_model=0"),
        ({"d_model": 4, "d_ff": 0}, "d_ff=0"),
    ],
)
def test_impossible_networks_are_refused(unhooked, arguments, message):
    with pytest.raises(ValueError, match=message):
        FeedForward(**arguments)


def test_another_width_is_refused(unhooked):
    with pytest.raises(ValueError, match=r"d_model=6, got shape \(2, 5, 7\)"):
        made("relu")(normal(2, 5, 7))
