"""Gains against drawn matrices, and preparations that change what they say and nothing else."""

import numpy as np
import pytest
import torch
from measured_transformer.analysis.states import rms
from measured_transformer.chapters.initialisation.measure import (
    gains,
    passage,
    powers_of_ten,
    through_matrices,
    xavier_variance,
)
from measured_transformer.models.config import Config
from measured_transformer.models.stack import initialise
from measured_transformer.tasks.reversal import Reversal
from measured_transformer.training.loop import make_model
from measured_transformer.training.seeding import make_generator, seeded
from measured_transformer.variants.initialisation import Scaled, ScaledWrites, write_deviation

CONFIG = Config(vocab=12, d_model=16, n_layers=3, n_heads=2, activation="relu")


def model(**changes):
    return make_model(CONFIG.replace(**changes), causal=False, seed=4)


def test_gains_are_those_of_drawn_matrices():
    forward, backward = gains(200, 600, 0.004)
    with seeded(0):
        weight = 0.004**0.5 * torch.randn(200, 600)
        x, g = torch.randn(400, 200), torch.randn(400, 600)
    assert float((x @ weight).square().mean()) == pytest.approx(forward, rel=0.05)
    assert float((g @ weight.T).square().mean()) == pytest.approx(backward, rel=0.05)


@pytest.mark.parametrize(("d_in", "d_out"), [(768, 3072), (64, 64), (3, 1)])
def test_xavier_is_pytorchs_and_has_a_mean_gain_of_one(d_in, d_out):
    variance = xavier_variance(d_in, d_out)
    assert np.mean(gains(d_in, d_out, variance)) == pytest.approx(1)
    weight = torch.empty(d_out, d_in)
    torch.nn.init.xavier_uniform_(weight)
    assert weight.abs().max().item() <= (3 * variance) ** 0.5


@pytest.mark.parametrize("wrong", [(0, 2, 0.1), (2, 0, 0.1), (2, 2, -0.1)])
def test_gains_refuse_what_is_no_matrix(wrong):
    with pytest.raises(ValueError, match="positive widths"):
        gains(*wrong)


def test_xavier_refuses_what_is_no_matrix():
    with pytest.raises(ValueError, match="positive widths"):
        xavier_variance(0, 3)


@pytest.mark.parametrize(
    ("factor", "activation", "per_layer"),
    [(1.0, "none", 1.0), (0.5, "none", 0.5), (2**0.5, "relu", 1.0)],
)
def test_sizes_multiply_by_the_factor(factor, activation, per_layer):
    sizes = through_matrices(8, 512, factor, activation=activation, seed=0, rows=256)
    np.testing.assert_allclose(sizes, per_layer ** np.arange(9.0), rtol=0.3)


def test_relu_halves_the_mean_square():
    sizes = through_matrices(1, 512, 1.0, activation="relu", seed=1, rows=512)
    assert (sizes[1] / sizes[0]) ** 2 == pytest.approx(0.5, rel=0.03)


def test_another_activation_is_refused(unhooked):
    with pytest.raises(ValueError, match="none or relu"):
        through_matrices(1, 4, 1.0, activation="tanh", seed=0)


def test_scaled_multiplies_the_matrices_of_the_blocks_alone():
    before, after = model(), model()
    Scaled(3.0)(after)
    changed = 0
    for (name, old), new in zip(before.named_parameters(), after.parameters(), strict=True):
        factor = 3.0 if name.startswith("blocks.") and old.ndim == 2 else 1.0
        changed += factor != 1.0
        torch.testing.assert_close(new, factor * old)
    assert changed == CONFIG.n_layers * 6


@pytest.mark.parametrize(
    ("rule", "factors"), [("gpt2", [6**-0.5] * 3), ("depth-index", [1, 2**-0.5, 3**-0.5])]
)
def test_writes_are_scaled_by_their_rule(rule, factors):
    before, after = model(), model()
    ScaledWrites(rule)(after)
    for (name, old), new in zip(before.named_parameters(), after.parameters(), strict=True):
        writes = name.endswith(("attention.output.weight", "feedforward.down.weight"))
        factor = factors[int(name.split(".")[1])] if writes else 1.0
        torch.testing.assert_close(new, factor * old)
        assert not writes or factor == 1 or not torch.equal(new, old)


def test_the_gpt2_rule_is_that_of_the_models():
    config = CONFIG.replace(initialisation="gpt2", d_model=128)
    made = make_model(config, causal=True, seed=0)
    for layer, block in enumerate(made.blocks, start=1):
        wanted = write_deviation(layer, 3, "gpt2")
        assert block.feedforward.down.weight.std().item() == pytest.approx(wanted, rel=0.03)


def test_rules_refuse_unknown_names_and_layers(unhooked):
    with pytest.raises(ValueError, match="from 1 to 4, got 5"):
        write_deviation(5, 4, "gpt2")
    with pytest.raises(ValueError, match="gpt2, depth-index, got 'index'"):
        write_deviation(1, 4, "index")


def test_a_passage_sees_every_state_and_the_gradient_of_the_loss():
    made = model().double()
    batch = Reversal(vocab=12, length=6).batch(make_generator(0, "evaluation"), 4)
    found = passage(made, batch)
    assert found.stream.shape == found.gradients.shape == (7,)
    embedded = made.embed(batch.inputs, _places(made, batch.inputs))[0]
    assert found.stream[0] == pytest.approx(embedded.square().mean().sqrt().item())
    assert (found.gradients > 0).all()


def test_post_norm_hides_a_factor_from_the_stream_and_pre_norm_does_not():
    batch = Reversal(vocab=12, length=6).batch(make_generator(0, "evaluation"), 4)
    change = {}
    for placement in ("pre", "post"):
        made = model(placement=placement)
        with seeded(0):
            initialise(made, made.config)
        Scaled(5.0)(made)
        change[placement] = powers_of_ten(passage(made.double(), batch).stream[None])[0]
    assert abs(change["post"]) < 0.2 < change["pre"]


def test_powers_of_ten_and_root_mean_square():
    np.testing.assert_allclose(powers_of_ten(np.array([[1.0, 7, 100], [10, 5, 1]])), [2, -1])
    states = torch.stack([torch.full((2, 3, 4), 3.0), torch.zeros(2, 3, 4)])
    states[1, :, :, :1] = 2.0
    np.testing.assert_allclose(rms(states), [3, 1])


def _places(made, tokens):
    from measured_transformer.models.token_positions import find_positions

    return find_positions(tokens, padding_mask=None, positions=None, earlier=None)
