"""Experts in the place of a network: against a layer that computes only what is asked, and counted by hand."""

from dataclasses import replace

import pytest
import torch
from measured_transformer.internals.capture import capture
from measured_transformer.models.config import Config
from measured_transformer.models.decoder import Decoder
from measured_transformer.models.encoder_decoder import EncoderDecoder
from measured_transformer.parts.experts import most_likely
from measured_transformer.parts.feedforward import FeedForward
from measured_transformer.tasks.skill_tables import SkillTables
from measured_transformer.training.loop import make_model, train
from measured_transformer.training.stacked import train_stacked
from measured_transformer.variants.experts import (
    Experts,
    Routed,
    SigmoidRouted,
    balance_loss,
    capacity,
    operations,
    within_capacity,
)

D = 6


def layer(rules, activation="relu", seed=0):
    """A layer in float64 whose biases are not zero."""
    torch.manual_seed(seed)
    made = Experts(FeedForward(D, 4, activation=activation), rules).double()
    for name, parameter in made.named_parameters():
        if name.endswith("bias"):
            torch.nn.init.normal_(parameter)
    return made


def drawn(seed=0, tokens=5):
    torch.manual_seed(100 + seed)
    return torch.randn(2, tokens, D, dtype=torch.float64)


def one_expert(made, e):
    """An expert as a network of its own, without the bias of what is written."""
    rows = slice(e * made.routed.width, (e + 1) * made.routed.width)
    network = FeedForward(
        D, made.routed.width, activation="relu" if made.gate is None else "swiglu"
    ).double()
    with torch.no_grad():
        for mine, theirs in ((network.up, made.up), (network.gate, made.gate)):
            if mine is not None:
                mine.weight.copy_(theirs.weight[rows])
                mine.bias.copy_(theirs.bias[rows])
        network.down.weight.copy_(made.down.weight[:, rows])
        network.down.bias.zero_()
    return network


def sparse(made, x):
    """What the layer writes, expert by expert, each computing the tokens that asked it and no other."""
    rules, flat = made.routed, x.flatten(0, 1)
    probabilities = (flat @ made.router.weight.T).softmax(-1)
    top = (probabilities + made.push).topk(rules.active).indices
    weights = probabilities.gather(1, top)
    if rules.normalised:
        weights = weights / weights.sum(-1, keepdim=True)
    out = made.down.bias.expand(len(flat), -1).clone()
    places = rules.capacity_factor and capacity(
        len(flat), rules.experts, rules.active, rules.capacity_factor
    )
    for e in range(rules.experts):
        rows, which = (top == e).nonzero(as_tuple=True)
        if places is not None:
            rows, which = rows[:places], which[:places]
        if len(rows):
            out[rows] += weights[rows, which, None] * one_expert(made, e)(flat[None, rows])[0]
    for e in range(rules.experts, rules.experts + rules.shared):
        out += one_expert(made, e)(flat[None])[0]
    return out.view_as(x)


RULES = [
    Routed(4, 3),
    Routed(4, 3, active=2),
    Routed(4, 3, active=2, normalised=True),
    Routed(4, 3, active=4),
    Routed(4, 3, shared=2),
    Routed(4, 3, capacity_factor=0.5),
    Routed(4, 3, active=2, capacity_factor=0.8, shared=1),
]


@pytest.mark.parametrize("activation", ["relu", "swiglu"])
@pytest.mark.parametrize("rules", RULES, ids=str)
def test_computing_all_and_masking_is_computing_what_is_asked(rules, activation):
    for seed in range(5):
        made, x = layer(rules, activation, seed), drawn(seed)
        assert torch.allclose(made(x), sparse(made, x), atol=1e-12)


def test_gradients_are_those_of_a_sparse_layer_and_none_reach_the_experts_not_asked():
    made, x = layer(Routed(4, 3, active=2)), drawn(tokens=1)[:1]
    made.eval()
    asked = most_likely((x @ made.router.weight.T).softmax(-1), 2)[0, 0]
    made(x).square().sum().backward()
    for e in range(4):
        rows = slice(3 * e, 3 * e + 3)
        parts = (made.up.weight.grad[rows], made.down.weight.grad[:, rows])
        assert asked[e] or all((part == 0).all() for part in parts)
    assert (made.router.weight.grad != 0).any()


def test_one_expert_is_a_network():
    made, x = layer(Routed(1, 8)), drawn()
    network = one_expert(made, 0)
    network.down.bias.data.copy_(made.down.bias)
    assert torch.allclose(made(x), network(x), atol=1e-12)


def test_all_experts_are_a_weighted_sum():
    made, x = layer(Routed(3, 4, active=3)), drawn()
    p = (x @ made.router.weight.T).softmax(-1)
    summed = sum(p[..., e : e + 1] * one_expert(made, e)(x) for e in range(3)) + made.down.bias
    assert torch.allclose(made(x), summed, atol=1e-12)


# Rules --------------------------------------------------------------------------------------------


def test_sigmoid_scores_are_divided_by_the_sum_of_those_asked():
    torch.manual_seed(0)
    made = Decoder(Config(vocab=4, d_model=D, n_heads=2, n_layers=1)).double()
    SigmoidRouted(experts=4, width=3, active=2, normalised=True)(made)
    made.double()
    routed, x = made.blocks[0].feedforward, drawn()
    scores = (x @ routed.router.weight.T).sigmoid()
    asked = scores.topk(2, -1).indices
    weights = torch.zeros_like(scores).scatter(-1, asked, scores.gather(-1, asked))
    weights = (weights / weights.sum(-1, keepdim=True)).repeat_interleave(3, -1)
    written = routed.down(routed.activate(routed.up(x)) * weights)
    torch.testing.assert_close(routed(x), written, rtol=0, atol=1e-12)


def test_sigmoid_scores_learn():
    model = Decoder(Config(vocab=4, d_model=8, n_heads=2, n_layers=1))
    SigmoidRouted(experts=4, width=3, active=2, normalised=True)(model)
    model(torch.tensor([[0, 1, 2]])).square().sum().backward()
    assert float(model.blocks[0].feedforward.router.weight.grad.abs().max()) > 0


def test_the_most_likely_are_asked():
    scores = torch.tensor([[0.1, 0.5, 0.4], [0.6, 0.3, 0.1]])
    assert most_likely(scores, 1).tolist() == [[False, True, False], [True, False, False]]
    assert most_likely(scores, 2).tolist() == [[False, True, True], [True, True, False]]
    assert most_likely(scores, 3).all()
    for k in (0, 4):
        with pytest.raises(ValueError, match="between 1 and"):
            most_likely(scores, k)


@pytest.mark.parametrize(
    ("tokens", "experts", "k", "factor", "places"),
    [(12, 4, 1, 1.25, 4), (12, 4, 1, 1.0, 3), (12, 4, 2, 1.0, 6), (10, 4, 1, 1.0, 3), (10, 4, 1, 0.4, 1)],
)  # fmt: skip
def test_places_are_counted(tokens, experts, k, factor, places):
    assert capacity(tokens, experts, k, factor) == places
    with pytest.raises(ValueError, match="positive capacity factor"):
        capacity(tokens, experts, k, 0.0)


def test_who_comes_first_is_served_and_exactly_as_many_as_there_are_places():
    torch.manual_seed(0)
    chosen = most_likely(torch.rand(40, 5), 2)
    for places in (1, 5, 40):
        served = within_capacity(chosen, places)
        assert torch.equal(served.sum(0), chosen.sum(0).clamp_max(places))
        assert not (served & ~chosen).any()
        for e in range(5):
            asked = chosen[:, e].nonzero()[:, 0]
            assert torch.equal(served[:, e].nonzero()[:, 0], asked[:places])


def test_a_dropped_token_passes_by_the_skip_connection_alone():
    made, x = layer(Routed(2, 3, capacity_factor=0.2)), drawn()
    with capture(made, "chosen") as seen:
        written = made(x)
    dropped = seen["chosen"].sum(-1) == 0
    assert dropped.any()
    assert (~dropped).any()
    bias = made.down.bias.expand_as(written)
    assert torch.allclose(written[dropped], bias[dropped], atol=1e-12)
    assert (written - bias)[~dropped].abs().amax(-1).min() > 1e-3


def test_the_balancing_loss_is_one_when_even_and_the_number_of_experts_when_all_goes_to_one():
    even = torch.full((8, 4), 0.25)
    chosen = torch.eye(4).bool().repeat(2, 1)
    assert balance_loss(even, chosen).item() == pytest.approx(1)
    one = torch.eye(4)[:1].repeat(8, 1)
    assert balance_loss(one, one.bool()).item() == pytest.approx(4)
    two = most_likely(torch.rand(8, 4), 2)
    assert balance_loss(even, two).item() == pytest.approx(1)


def test_operations_by_hand():
    # two matrices of 6 by 4, two operations for each entry; a router of 6 by 5
    assert operations(6, 4) == 96
    assert operations(6, 4, gated=True) == 144
    assert operations(6, 4, experts=5, active=2, shared=1) == 3 * 96 + 60
    assert operations(6, 4, experts=5, dense=True) == 5 * 96 + 60


# Training -----------------------------------------------------------------------------------------

TASK = SkillTables(skills=2, items=4, answers=4, length=3)
CONFIG = Config(vocab=TASK.vocab, d_model=8, n_layers=2, n_heads=2, activation="relu")


def test_the_balancing_loss_reaches_the_router_and_changes_nothing_else():
    x = drawn()
    gradients = {}
    for alpha in (0.0, 0.5):
        made = layer(Routed(4, 3, balance=alpha)).train()
        written = made(x)
        written.sum().backward()
        gradients[alpha] = made.router.weight.grad.clone()
        assert torch.equal(written, layer(Routed(4, 3))(x))
    made = layer(Routed(4, 3))
    p = (x.flatten(0, 1) @ made.router.weight.T).softmax(-1)
    loss = 0.5 * balance_loss(p, most_likely(p.detach(), 1))
    (own,) = torch.autograd.grad(loss, made.router.weight)
    assert own.abs().max() > 1e-4
    assert torch.allclose(gradients[0.5] - gradients[0.0], own, atol=1e-12)


def test_the_recorded_loss_is_the_cross_entropy_alone():
    options = {"steps": 1, "learning_rate": 0.01, "seed": 3}
    first = [
        train(CONFIG, TASK, prepare=Routed(4, 3, balance=alpha), **options).losses[0]
        for alpha in (0.0, 10.0)
    ]
    assert first[0] == first[1]


def test_biases_rise_where_too_few_ask_and_only_in_training():
    made, x = layer(Routed(3, 4, push=0.1)), drawn(tokens=20)
    made.eval()(x)
    assert not made.push.any()
    made.train()(x)
    load = most_likely((x @ made.router.weight.T).softmax(-1), 1).double().mean((0, 1))
    assert torch.allclose(made.push, 0.1 * (1 / 3 - load).sign())
    for _ in range(200):
        made(x)
    with capture(made, "chosen") as seen:
        made.eval()(x)
    assert seen["chosen"].mean((0, 1)).max() < 0.45


@pytest.mark.parametrize(
    "rules",
    [Routed(4, 3, balance=0.1), Routed(4, 3, push=0.1), Routed(4, 3, active=2, capacity_factor=1.0),
     SigmoidRouted(4, 3, active=2, normalised=True)],
)  # fmt: skip
def test_experts_train_in_a_stack_as_they_do_alone(rules):
    options = {"steps": 5, "learning_rate": 0.01, "batch_size": 8, "prepare": rules}
    for seed, run in zip((1, 2), train_stacked(CONFIG, TASK, [1, 2], **options), strict=True):
        alone = train(CONFIG, TASK, seed=seed, **options)
        assert alone.losses == pytest.approx(run.losses, abs=1e-5)
        for one, other in zip(alone.model.blocks, run.model.blocks, strict=True):
            assert torch.equal(one.feedforward.push, other.feedforward.push)
            assert torch.allclose(
                one.feedforward.router.weight, other.feedforward.router.weight, atol=1e-4
            )


def test_equal_models_get_equal_experts_and_others_do_not():
    def prepared(seed):
        model = make_model(CONFIG, causal=True, seed=seed)
        Routed(4, 3)(model)
        return model

    one, same, other = prepared(1), prepared(1), prepared(2)
    first, second = (one.blocks[i].feedforward.up.weight for i in (0, 1))
    assert torch.equal(first, same.blocks[0].feedforward.up.weight)
    assert not torch.equal(first, other.blocks[0].feedforward.up.weight)
    assert not torch.equal(first, second)


def test_a_frozen_router_stays():
    run = train(CONFIG, TASK, steps=3, learning_rate=0.1, seed=0, prepare=Routed(4, 3, frozen=True))
    fresh = make_model(CONFIG, causal=True, seed=0)
    Routed(4, 3)(fresh)
    for i in (0, 1):
        assert torch.equal(
            run.model.blocks[i].feedforward.router.weight,
            fresh.blocks[i].feedforward.router.weight,
        )


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"experts": 0}, "at least one expert"),
        ({"width": 0}, "at least one expert"),
        ({"shared": -1}, "negative number of shared"),
        ({"active": 5}, "between 1 and 4"),
        ({"capacity_factor": 0.0}, "positive capacity_factor"),
        ({"balance": -1.0}, "must not be negative"),
        ({"push": -1.0}, "must not be negative"),
        ({"normalised": True}, "no gradient"),
    ],
)
def test_what_does_not_fit_is_refused(changes, words):
    with pytest.raises(ValueError, match=words):
        replace(Routed(4, 3), **changes)


def test_an_encoder_decoder_is_refused():
    with pytest.raises(ValueError, match="EncoderDecoder"):
        Routed(4, 3)(EncoderDecoder(CONFIG))
    Routed(4, 3)(Decoder(CONFIG))
