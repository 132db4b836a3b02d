"""What networks bend with and how wide they are, against PyTorch, closed forms and counted parameters."""

import math

import numpy as np
import pytest
import torch
from jaxtyping import TypeCheckError
from measured_book.rooms.activations_and_widths.measure import (
    KINDS,
    PRODUCT_RATES,
    activation_arms,
    at_equal_parameters,
    at_width,
    learned_product,
    product_network,
    products,
)
from measured_book.rooms.activations_and_widths.reading import fitted_loss, log_errors
from measured_transformer.models.config import Config
from measured_transformer.models.decoder import Decoder
from measured_transformer.models.encoder_decoder import EncoderDecoder
from measured_transformer.training.loop import make_model
from measured_transformer.variants.feedforward import squared_relu, with_squared_relu
from xarray import DataArray, Dataset

ROOM = "activations_and_widths"
READER = Config(vocab=256, d_model=32, n_layers=2, n_heads=2, activation="relu")


def counted(config: Config) -> int:
    return sum(q.numel() for q in Decoder(config).parameters())


# The square of ReLU --------------------------------------------------------------------------------


def test_the_square_of_relu_is_a_square_on_one_side_only():
    x = torch.linspace(-3, 3, 61, dtype=torch.float64)
    assert torch.equal(squared_relu(x), torch.where(x > 0, x**2, torch.zeros_like(x)))
    at = x.clone().requires_grad_()
    (slope,) = torch.autograd.grad(squared_relu(at).sum(), at)
    assert torch.allclose(slope, 2 * x.clamp_min(0))


def test_a_prepared_model_has_the_same_weights_and_squares_its_neurons():
    plain, squared = (make_model(READER, causal=True, seed=4) for _ in range(2))
    with_squared_relu(squared)
    for one, other in zip(plain.parameters(), squared.parameters(), strict=True):
        assert torch.equal(one, other)
    x = torch.randn(2, 5, 32, generator=torch.Generator().manual_seed(0))
    for block in squared.blocks:
        network = block.feedforward
        neurons = torch.nn.functional.linear(x, network.up.weight, network.up.bias)
        by_hand = torch.nn.functional.linear(
            neurons.clamp_min(0) ** 2, network.down.weight, network.down.bias
        )
        assert torch.allclose(network(x), by_hand, atol=1e-6)
    tokens = torch.randint(256, (1, 6), generator=torch.Generator().manual_seed(0))
    assert (plain(tokens) - squared(tokens)).abs().max() > 1e-3


def test_only_models_with_relu_are_prepared():
    with pytest.raises(ValueError, match="got 'gelu'"):
        with_squared_relu(Decoder(READER.replace(activation="gelu")))
    with pytest.raises(ValueError, match="EncoderDecoder"):
        with_squared_relu(EncoderDecoder(READER))


# Arms ----------------------------------------------------------------------------------------------


def test_all_activations_have_as_many_parameters_within_a_hundredth():
    arms = activation_arms(READER.replace(activation="gelu"))
    assert {name: arm.config.activation for name, arm in arms.items()} == {
        "relu": "relu",
        "gelu": "gelu",
        "swiglu": "swiglu",
        "geglu": "geglu",
        "squared": "relu",
    }
    sizes = {name: counted(arm.config) for name, arm in arms.items()}
    assert sizes["relu"] == sizes["gelu"] == sizes["squared"]
    assert sizes["swiglu"] == sizes["geglu"] == pytest.approx(sizes["relu"], rel=0.01)
    assert arms["squared"].options["prepare"] is with_squared_relu
    with pytest.raises(ValueError, match="without a gate"):
        activation_arms(READER.replace(activation="swiglu"))


@pytest.mark.parametrize("ratio", [0.5, 1, 2, 4, 8])
def test_widths_are_changed_with_and_without_more_parameters(ratio: float):
    fixed, equal = at_width(READER, ratio), at_equal_parameters(READER, ratio)
    assert (fixed.d_model, fixed.neurons) == (32, 32 * ratio)
    assert equal.neurons == ratio * equal.d_model
    assert counted(equal) == pytest.approx(counted(READER), rel=0.05)
    assert (equal.d_model > 32) == (ratio < 4)
    for other in (equal.d_model - 2, equal.d_model + 2):  # no neighbour comes nearer
        near = READER.replace(d_model=other, d_ff=round(ratio * other))
        assert abs(counted(near) - counted(READER)) >= abs(counted(equal) - counted(READER))


def test_widths_that_make_no_network_are_told():
    with pytest.raises(ValueError, match=r"0\.3 times 32"):
        at_width(READER, 0.3)
    with pytest.raises(ValueError, match="0 times 32"):
        at_width(READER, 0)
    with pytest.raises(ValueError, match="got -1"):
        at_equal_parameters(READER, -1)


# A product by hand ---------------------------------------------------------------------------------

A, B = torch.linspace(-3, 3, 25).double(), torch.linspace(-2, 2, 17).double()
PRODUCT = B[:, None] * A


@pytest.mark.parametrize("bend", ["squared", "swiglu"])
def test_squares_and_gates_multiply_exactly(bend):
    found = products(product_network(bend), A, B)
    assert torch.allclose(found, PRODUCT, atol=1e-12)


def test_relu_gives_the_smaller_one_with_the_sign_of_the_product():
    found = products(product_network("relu"), A, B)
    smaller = torch.minimum(A.abs(), B[:, None].abs()) * PRODUCT.sign()
    assert torch.allclose(found, smaller, atol=1e-12)
    assert (found - PRODUCT).abs().max() > 3


def test_gelu_multiplies_small_numbers_only():
    found = products(product_network("gelu"), A, B)

    def pair(s):
        return s * torch.erf(s / math.sqrt(2))

    closed = math.sqrt(math.pi / 2) / 4 * (pair(A + B[:, None]) - pair(A - B[:, None]))
    assert torch.allclose(found, closed, atol=1e-12)
    near = products(product_network("gelu"), A / 100, B / 100)
    assert torch.allclose(near, PRODUCT / 1e4, rtol=1e-3, atol=1e-12)
    assert (found - PRODUCT).abs().max() > 1


def test_networks_write_the_product_alone_and_have_the_neurons_that_the_chapter_counts():
    for bend, neurons in (("relu", 4), ("gelu", 4), ("squared", 4), ("swiglu", 2)):
        network = product_network(bend)
        assert network.up.out_features == neurons
        x = torch.randn(1, 7, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
        assert torch.equal(network(x)[..., 1], torch.zeros(1, 7, dtype=torch.float64))
    with pytest.raises((ValueError, TypeCheckError), match="silu"):
        product_network("silu")


# A product that is learned -------------------------------------------------------------------------


def test_products_are_learned_at_some_rate_and_the_same_seed_gives_the_same():
    errors = learned_product("squared", 8, 0, steps=300)
    assert errors.shape == (len(PRODUCT_RATES),)
    assert errors.min() < 0.3
    assert torch.equal(errors, learned_product("squared", 8, 0, steps=300))
    assert not torch.equal(errors, learned_product("squared", 8, 1, steps=300))


@pytest.mark.parametrize("kind", KINDS)
def test_every_activation_learns_better_than_a_guess(kind):
    # the product of two numbers from -2 to 2 has the standard deviation 4/3
    errors = learned_product(kind, 8, 0, steps=200)
    assert errors.min() < 0.9


def test_the_rate_of_a_seed_is_chosen_by_the_others():
    # the first seed alone is best at the second rate
    errors = np.array([[0.9, 0.1], [0.2, 0.4], [0.2, 0.4]])
    multiplied = Dataset(
        {"error": (("seed", "rate", "kind", "neurons"), errors[..., None, None])},
        coords={"seed": [0, 1, 2], "rate": [1.0, 2.0], "kind": ["relu"], "neurons": [4]},
    )
    found = np.exp(log_errors(multiplied).squeeze().values)
    assert found == pytest.approx([0.9, 0.4, 0.4])


# What is judged -------------------------------------------------------------------------------------


def test_a_straight_line_is_read_at_the_widths():
    ratios = np.array([1, 2, 4, 8])
    losses = DataArray(
        np.stack([3 - 0.1 * np.log2(ratios), 2 + 0.2 * np.log2(ratios)]),
        dims=("seed", "ratio"),
        coords={"ratio": ratios, "seed": [0, 1]},
    )
    widths = Dataset({"loss": losses.expand_dims(held=["stream"])})
    assert fitted_loss(widths, held="stream", ratio=1.0).values == pytest.approx([3, 2])
    assert fitted_loss(widths, held="stream", ratio=4.0).values == pytest.approx([2.8, 2.4])
