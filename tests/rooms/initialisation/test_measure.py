"""What the chapter on initialisation measures, against what is known by other ways."""

import numpy as np
import pytest
import torch
from measured_book.evidence.results import load_results
from measured_book.evidence.rules import judge
from measured_book.evidence.schema import Equivalence
from measured_book.evidence.verdicts import Verdict
from measured_book.rooms.initialisation import measure, reading
from measured_book.rooms.initialisation.measure import (
    ScaledGroup,
    best_log_rate,
    gains,
    passage,
    through_matrices,
    xavier_variance,
)
from measured_transformer.analysis.states import rms
from measured_transformer.models.config import Config
from measured_transformer.tasks.reversal import Reversal
from measured_transformer.training.loop import make_model
from measured_transformer.training.seeding import make_generator, seeded
from measured_transformer.variants.initialisation import Scaled, ScaledWrites, write_deviation

RESULTS = load_results("initialisation")
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


def test_another_activation_is_refused(unhooked):
    with pytest.raises(ValueError, match="none or relu"):
        through_matrices(1, 4, 1.0, activation="tanh", seed=0)


@pytest.mark.parametrize(
    ("group", "ends"),
    [
        ("scores", ("query.weight", "key.weight")),
        ("values", ("value.weight", "output.weight")),
        ("network", ("up.weight", "down.weight")),
        ("embedding", ("token_embedding.weight",)),
        ("unembedding", ("unembedding.weight",)),
        ("rest", ("value.weight", "output.weight", "up.weight", "down.weight")),
    ],
)
def test_one_group_is_multiplied_and_nothing_else(group, ends):
    before, after = model(), model()
    ScaledGroup(group, 3.0)(after)
    for (name, old), new in zip(before.named_parameters(), after.named_parameters(), strict=True):
        wanted = 3.0 * old if name.endswith(ends) and "norm" not in name else old
        torch.testing.assert_close(new[1], wanted, msg=name)


def test_all_groups_of_the_blocks_are_all_of_their_matrices():
    one, other = model(), model()
    ScaledGroup("all", 3.0)(one)
    Scaled(3.0)(other)
    for a, b in zip(one.parameters(), other.parameters(), strict=True):
        torch.testing.assert_close(a, b)


def test_unknown_groups_and_factors_are_refused(unhooked):
    with pytest.raises(ValueError, match="group must be one of"):
        ScaledGroup("biases", 1.0)
    with pytest.raises(ValueError, match="positive and finite"):
        ScaledGroup("all", 0.0)


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
    embedded = made.embed(batch.inputs, made.resolve_positions(batch.inputs))[0]
    assert found.stream[0] == pytest.approx(embedded.square().mean().sqrt().item())
    assert (found.gradients > 0).all()


def test_root_mean_squares():
    states = torch.stack([torch.full((2, 3, 4), 3.0), torch.zeros(2, 3, 4)])
    states[1, :, :, :1] = 2.0
    np.testing.assert_allclose(rms(states), [3, 1])


def test_the_best_rate_is_the_vertex_of_a_parabola_and_an_edge_stays_an_edge():
    rates = 2.0 ** np.arange(-8, -2)
    losses = 1 + 0.1 * (np.log2(rates) + 5.3) ** 2
    assert best_log_rate(rates.tolist(), losses) == pytest.approx(-5.3)
    assert best_log_rate(rates.tolist(), np.arange(6.0)) == -8
    assert best_log_rate(rates.tolist(), -np.arange(6.0)) == -3


def test_a_slope_is_in_doublings_a_doubling():
    assert measure.slope([16, 32, 64], [-4.0, -4.5, -5.0]) == pytest.approx(-0.5)


def test_the_best_rate_of_no_width_lies_at_the_edge_of_the_grid():
    mean = RESULTS["transfer"].loss.mean("seed")
    best = mean.idxmin("rate").values
    assert (best > min(measure.WIDTH_RATES)).all()
    assert (best < max(measure.WIDTH_RATES)).all()


def test_no_tuned_rate_of_the_deep_models_lies_at_the_edge_of_its_grid():
    rates = RESULTS["rules"].learning_rate.values
    assert (rates > measure.DEEP_RATES[0]).all()
    assert (rates < measure.DEEP_RATES[-1]).all()


def test_with_mup_the_best_rate_has_no_slope_and_the_standard_way_could_have_shown_one():
    slopes = RESULTS["transfer"].slope
    rule = Equivalence(margin=reading.MARGIN, control=True)
    values = {
        "treatment": slopes.sel(rule="maximal-update").values,
        "baseline": np.zeros(slopes.sizes["seed"]),
        "control": slopes.sel(rule="standard").values,
    }
    assert judge(rule, values).verdict is Verdict.CONFIRMED


def test_steps_of_a_wider_model_are_larger_in_the_standard_way_alone():
    changes = RESULTS["coordinates"].change.sel(value="stream", update=5).mean("seed")
    standard, mup = (changes.sel(rule=rule) for rule in measure.WIDTH_RULES)
    assert float(standard.sel(width=512) / standard.sel(width=16)) > 32
    assert 0.5 < float(mup.sel(width=512) / mup.sel(width=16)) < 2


def test_multipliers_stand_for_learning_rates():
    difference = RESULTS["symmetry"].difference
    assert float(difference.sel(way="rates").max()) < 1e-9
    assert float(difference.sel(way="forgotten").min()) > 0.1
