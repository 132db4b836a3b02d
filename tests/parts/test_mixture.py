"""A mixture of experts: against networks asked one by one, in both ways of computing it, and by its rules."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from measured_transformer import load, save
from measured_transformer.analysis.ffn_memory import as_memory
from measured_transformer.analysis.folding import fold_norms
from measured_transformer.analysis.transcoders import neurons_as_features
from measured_transformer.internals.capture import capture
from measured_transformer.internals.intervene import intervene
from measured_transformer.models.config import Config, Layer
from measured_transformer.models.decoder import Decoder
from measured_transformer.models.sizes import count_flops, count_parameters
from measured_transformer.parts.experts import Clamp, Experts, MixtureOfExperts
from measured_transformer.parts.feedforward import FeedForward
from measured_transformer.parts.networks import PLAIN, Network
from measured_transformer.tasks.skill_tables import SkillTables
from measured_transformer.training.loop import train
from measured_transformer.training.stacked import train_stacked
from measured_transformer.variants.experts import Experts as Surgery
from measured_transformer.variants.experts import Routed
from torch.utils.flop_counter import FlopCounterMode

D, WIDTH = 6, 5
CASES = {
    "plain": (Experts(4, 2), "gelu", True),
    "gated": (Experts(5, 1), "swiglu", False),
    "normalised": (Experts(4, 3, normalised=True, router_bias=True), "swiglu", True),
    "sigmoid": (Experts(4, 2, scores="sigmoid", normalised=True, weight_scale=2.5), "relu", False),
    "biased choice": (Experts(4, 2, choice_bias=True), "silu", True),
    "shared": (Experts(4, 2, shared_width=3), "geglu", True),
    "shared with a gate": (Experts(4, 2, shared_width=3, shared_gate=True), "swiglu", False),
    "groups": (Experts(6, 2, groups=3, asked_groups=1, group_best=2), "relu", True),
    "clamped": (Experts(4, 2, clamp=Clamp(0.4, 1.7)), "swiglu", True),
}
every_case = pytest.mark.parametrize("name", CASES)


def layer(name: str) -> MixtureOfExperts:
    """A layer in float64 of which no parameter is zero."""
    settings, activation, bias = CASES[name]
    torch.manual_seed(0)
    made = MixtureOfExperts(D, WIDTH, settings, activation=activation, bias=bias).double()
    with torch.no_grad():
        for parameter in made.parameters():
            parameter.copy_(torch.randn_like(parameter))
    return made


def drawn() -> torch.Tensor:
    return torch.randn(2, 7, D, dtype=torch.float64, generator=torch.Generator().manual_seed(1))


def one_expert(made: MixtureOfExperts, e: int, x: torch.Tensor) -> torch.Tensor:
    """What one expert answers, from its rows and columns alone."""
    rows, settings = slice(e * WIDTH, (e + 1) * WIDTH), made.settings

    def read(part: torch.nn.Linear) -> torch.Tensor:
        found = part.weight[rows] @ x
        return found if part.bias is None else found + part.bias[rows]

    up = read(made.up)
    if made.gate is None:
        neurons = made.activate(up)
    elif settings.clamp is None:
        neurons = made.activate(read(made.gate)) * up
    else:
        limit, slope = settings.clamp.limit, settings.clamp.slope
        gate = read(made.gate)
        gate = torch.where(gate > limit, limit, gate)
        neurons = (up.clamp(-limit, limit) + 1) * gate / (1 + (-slope * gate).exp())
    answer = made.down.weight[:, rows] @ neurons
    return answer if made.down_bias is None else answer + made.down_bias[e]


def one_position(made: MixtureOfExperts, x: torch.Tensor) -> torch.Tensor:
    """What the layer writes for one position, by its rules step by step."""
    rules, logits = made.settings, made.router.weight @ x
    if made.router.bias is not None:
        logits = logits + made.router.bias
    scores = logits.softmax(0) if rules.scores == "softmax" else logits.sigmoid()
    ranked = scores if made.choice_bias is None else scores + made.choice_bias
    each = rules.n_experts // rules.groups
    groups = [range(g * each, (g + 1) * each) for g in range(rules.groups)]
    best = sorted(
        groups,
        key=lambda group: -sum(sorted(float(ranked[e]) for e in group)[-rules.group_best :]),
    )
    can_be_asked = [e for group in best[: rules.asked_groups] for e in group]
    asked = sorted(can_be_asked, key=lambda e: -float(ranked[e]))[: rules.per_token]
    total = sum(scores[e] for e in asked) if rules.normalised else 1.0
    written = sum(
        rules.weight_scale * scores[e] / total * one_expert(made, e, x) for e in asked
    ) + torch.zeros(D)
    if made.shared is not None:
        shared = made.shared(x[None, None])[0, 0]
        if made.shared_gate is not None:
            shared = (made.shared_gate.weight[0] @ x).sigmoid() * shared
        written = written + shared
    return written


@every_case
@torch.no_grad()
def test_each_position_gets_what_its_experts_answer(name):
    made, x = layer(name), drawn()
    expected = torch.stack([torch.stack([one_position(made, one) for one in row]) for row in x])
    torch.testing.assert_close(made(x), expected, rtol=1e-10, atol=1e-10)


@every_case
def test_both_ways_of_computing_have_the_same_values_and_gradients(name):
    made, x = layer(name), drawn().requires_grad_()
    leaves = [x, *(p for p in made.parameters() if p.requires_grad)]
    by_asked = made(x)
    first = torch.autograd.grad(by_asked.square().sum(), leaves)
    with capture(made, "neurons"):
        by_all = made(x)
    second = torch.autograd.grad(by_all.square().sum(), leaves)
    for one, other in zip((by_asked, *first), (by_all, *second), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-9)


@torch.no_grad()
def test_transforms_of_functions_work():
    made, x = layer("normalised"), drawn()
    each = torch.func.vmap(lambda one: made(one[None])[0])(x)
    torch.testing.assert_close(each, made(x), rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("normalised", [True, False])
@pytest.mark.parametrize("activation", ["relu", "swiglu"])
@torch.no_grad()
def test_equal_to_the_preparation_for_training(normalised, activation):
    """`variants.experts` replaces networks by hand; with its weights this layer writes the same."""
    rules = Routed(experts=4, width=WIDTH, active=2, normalised=normalised)
    old = Surgery(FeedForward(D, 8, activation=activation, bias=False), rules).double().eval()
    new = MixtureOfExperts(
        D, WIDTH, Experts(4, 2, normalised=normalised), activation=activation
    ).double()
    new.load_state_dict({k: v for k, v in old.state_dict().items() if k != "push"})
    x, names = drawn(), ("probabilities", "chosen", "pre_activation", "neurons", "out")
    with capture(old, *names) as theirs, capture(new, *names) as ours:
        torch.testing.assert_close(new(x), old(x), rtol=1e-12, atol=1e-12)
    for name in names:
        torch.testing.assert_close(ours[name], theirs[name], rtol=1e-12, atol=1e-12)


@torch.no_grad()
def test_normalised_weights_are_a_softmax_over_the_asked_alone():
    made, x = layer("normalised"), drawn()
    chosen, weights = made.route(x)
    logits = made.router(x).masked_fill(~chosen.bool(), -torch.inf)
    torch.testing.assert_close(weights, logits.softmax(-1), rtol=1e-10, atol=1e-12)


@torch.no_grad()
def test_a_choice_can_be_replaced():
    made, x = layer("plain"), drawn()

    def first_alone(chosen: torch.Tensor) -> torch.Tensor:
        replaced = torch.zeros_like(chosen)
        replaced[..., 0] = 1
        return replaced

    with intervene(made, {"chosen": first_alone}), capture(made, "probabilities") as seen:
        written = made(x)
    weight = seen["probabilities"][1, 3, 0]
    torch.testing.assert_close(written[1, 3], weight * one_expert(made, 0, x[1, 3]))


@torch.no_grad()
def test_half_precision_routes_in_float32():
    made, x = layer("plain").bfloat16(), drawn().bfloat16()
    with capture(made, "probabilities") as seen:
        assert made(x).dtype == torch.bfloat16
    assert seen["probabilities"].dtype == torch.float32


SIZES = {"vocab": 10, "d_model": 16, "n_layers": 2, "n_heads": 2, "d_ff": 24}
EXPERTS = Experts(4, 2, width=8, shared_width=6, shared_gate=True)


@pytest.mark.parametrize("initialisation", ["xavier", "gpt2"])
def test_each_expert_is_drawn_as_a_network_of_its_own(initialisation):
    config = Config(**SIZES, network=Experts(50, 2), initialisation=initialisation)
    network = Decoder(config).blocks[0].feedforward
    bound = (6 / (16 + 24)) ** 0.5
    for weight in (network.up.weight, network.down.weight):
        if initialisation == "xavier":
            assert 0.99 * bound < float(weight.detach().abs().max()) <= bound
    if initialisation == "gpt2":
        assert float(network.up.weight.detach().std()) == pytest.approx(0.02, rel=0.02)
        assert float(network.down.weight.detach().std()) == pytest.approx(0.01, rel=0.02)
    assert not network.down_bias.any()


@torch.no_grad()
def test_operations_are_those_of_the_asked_experts():
    model = Decoder(Config(**SIZES, network=EXPERTS)).eval()
    counter = FlopCounterMode(display=False)
    with counter, capture(model, "*.pattern"):
        model(torch.randint(10, (3, 5)))
    assert (
        counter.get_total_flops() == count_flops(model.config, "decoder", length=5, batch=3).total
    )
    plain = count_parameters(model.config.replace(network=PLAIN), "decoder")
    assert count_parameters(model.config, "decoder").norms == plain.norms


@torch.no_grad()
def test_a_model_is_kept_with_its_experts(tmp_path: Path):
    layers = (Layer(network=EXPERTS), Layer())
    model = Decoder(Config(**SIZES, layers=layers)).eval()
    again = load(save(model, tmp_path))
    tokens = torch.randint(10, (2, 6))
    assert again.config == model.config
    assert torch.equal(again(tokens), model(tokens))


def test_a_model_with_experts_learns():
    task = SkillTables(skills=2, items=4, answers=4, length=3)
    config = Config(vocab=task.vocab, d_model=8, n_heads=2, n_layers=1, network=Experts(4, 2))
    options = {"steps": 30, "learning_rate": 0.02}
    alone = train(config, task, seed=3, **options)
    assert sum(alone.losses[-5:]) < 0.9 * sum(alone.losses[:5])
    together = train_stacked(config, task, seeds=[3], **options)[0]
    assert together.losses == pytest.approx(alone.losses, rel=1e-4)


def test_a_network_of_ones_own_is_one_definition():
    class Doubled(Network):
        def make(self, config):
            return FeedForward(config.d_model, 2 * config.neurons)

    model = Decoder(Config(**SIZES, network=Doubled()))
    assert model.blocks[1].feedforward.up.out_features == 48


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"n_experts": 0, "per_token": 1}, "n_experts must be a whole number from 1 on, got 0"),
        ({"n_experts": 4, "per_token": 5}, "per_token must be at most 4"),
        ({"n_experts": 4, "per_token": 1, "width": 0}, "width must be a whole number from 1 on"),
        ({"n_experts": 4, "per_token": 1, "groups": 3}, "groups must divide n_experts=4, got"),
        ({"n_experts": 4, "per_token": 1, "asked_groups": 2}, "at most 1 asked_groups"),
        ({"n_experts": 4, "per_token": 3, "groups": 2}, "per_token must be at most 2"),
        ({"n_experts": 4, "per_token": 1, "groups": 4, "group_best": 2}, "a group_best of at most"),
        ({"n_experts": 4, "per_token": 1, "shared_gate": True}, "shared_gate needs a shared"),
        ({"n_experts": 4, "per_token": 1, "scores": "relu"}, "scores must be 'softmax' or"),
        ({"n_experts": 4, "per_token": 1, "normalised": 1}, "normalised must be True or False"),
        ({"n_experts": 4, "per_token": 1, "weight_scale": "2"}, "weight_scale must be a number"),
        ({"n_experts": 4, "per_token": 1, "clamp": 7.0}, "clamp must be a Clamp or None, got"),
    ],
    ids=str,
)
def test_what_does_not_fit_is_refused(unhooked, settings, message):
    with pytest.raises(ValueError, match=message):
        Experts(**settings)


def test_another_width_is_refused(unhooked):
    with pytest.raises(ValueError, match=r"x must have width d_model=6, got shape \(1, 2, 5\)"):
        layer("plain")(torch.zeros(1, 2, 5))
    with pytest.raises(ValueError, match="widths must be positive"):
        MixtureOfExperts(4, 0, Experts(2, 1))


def test_what_reads_the_weights_of_one_network_refuses(unhooked):
    for reads in (as_memory, neurons_as_features):
        with pytest.raises(ValueError, match="expected a FeedForward, got a MixtureOfExperts"):
            reads(layer("plain"))
    with pytest.raises(ValueError, match="MultiHeadAttention and FeedForward, got"):
        fold_norms(Decoder(Config(**SIZES, network=EXPERTS)))
