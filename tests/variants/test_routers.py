"""Routers in training: losses against sums written out, tables against their rule, blocks against loops."""

import math
from collections import defaultdict

import pytest
import torch
from measured_transformer.internals.capture import capture
from measured_transformer.models.config import Config
from measured_transformer.models.encoder_decoder import EncoderDecoder
from measured_transformer.parts.experts import Experts, MixtureOfExperts
from measured_transformer.tasks.skill_tables import SkillTables
from measured_transformer.training.loop import make_model, train
from measured_transformer.training.stacked import train_stacked
from measured_transformer.variants.routers import (
    BLOCK,
    ByToken,
    ExpertsInBlocks,
    RouterLosses,
    z_loss,
)

TASK = SkillTables(skills=3, items=4, answers=4, length=5)
PLAIN = {"n_experts": 6, "per_token": 2, "width": 5, "normalised": True}


def config(network=None, **changes):
    given = {"d_model": 8, "n_heads": 2, "n_layers": 2, "bias": False, "activation": "gelu"}
    return Config(vocab=TASK.vocab, network=network or Experts(**PLAIN), **{**given, **changes})


def fresh(rules, network=None):
    """A model in float64, and tokens."""
    model = make_model(config(network), causal=True, seed=1)
    rules(model)
    return model.double(), torch.randint(
        TASK.vocab, (4, 7), generator=torch.Generator().manual_seed(0)
    )


def routers(model):
    return [part.router for part in model.modules() if isinstance(part, MixtureOfExperts)]


# Losses -------------------------------------------------------------------------------------------


def test_z_loss_of_two_tokens_by_hand():
    logits = torch.tensor([[0.0, math.log(3)], [math.log(2), math.log(5)]])
    expected = (math.log(4) ** 2 + math.log(7) ** 2) / 2
    assert z_loss(logits).item() == pytest.approx(expected, rel=1e-6)


def by_hand(model, tokens, balance, z, scores):
    """The loss with all its parts, from what the router was given."""
    with capture(model, *(f"blocks.{b}.feedforward.chosen" for b in range(2))) as seen:
        loss = model(tokens).square().mean()
        seen = dict(seen)
    inputs = []
    handles = [
        r.register_forward_pre_hook(lambda _, x: inputs.append(x[0])) for r in routers(model)
    ]
    model(tokens)
    for handle in handles:
        handle.remove()
    for b, (router, x) in enumerate(zip(routers(model), inputs, strict=True)):
        logits = x @ router.weight.T
        p = logits.softmax(-1) if scores == "softmax" else logits.sigmoid()
        p = (p / p.sum(-1, keepdim=True)).mean((0, 1))
        share = seen[f"blocks.{b}.feedforward.chosen"].mean((0, 1)) / PLAIN["per_token"]
        loss = loss + balance * PLAIN["n_experts"] * (share.detach() * p).sum()
        loss = loss + z * logits.exp().sum(-1).log().square().mean()
    return loss


@pytest.mark.parametrize("scores", ["softmax", "sigmoid"])
@pytest.mark.parametrize(("balance", "z"), [(0.5, 0.0), (0.0, 0.25), (0.5, 0.25)])
def test_gradients_are_those_of_the_losses_added_up(scores, balance, z):
    network = Experts(**PLAIN, scores=scores)
    model, tokens = fresh(RouterLosses(balance, z), network)
    plain, _ = fresh(lambda model: None, network)
    model.train()
    value = model(tokens).square().mean()
    value.backward()
    expected = by_hand(plain, tokens, balance, z, scores)
    expected.backward()
    assert value.item() == pytest.approx(plain(tokens).square().mean().item(), rel=1e-12)
    for mine, theirs in zip(model.parameters(), plain.parameters(), strict=True):
        assert torch.allclose(mine.grad, theirs.grad, atol=1e-12)


def test_a_frozen_router_stays_and_what_it_reads_is_trained():
    run = train(
        config(), TASK, seed=0, steps=5, learning_rate=0.01, prepare=RouterLosses(0.1, frozen=True)
    )
    before = make_model(config(), causal=True, seed=0)
    for mine, drawn in zip(routers(run.model), routers(before), strict=True):
        assert torch.equal(mine.weight, drawn.weight)
    assert not torch.equal(run.model.token_embedding.weight, before.token_embedding.weight)


def test_nothing_is_added_where_a_model_is_only_used():
    model, tokens = fresh(RouterLosses(100.0, 100.0))
    plain, _ = fresh(lambda model: None)
    for one in (model.eval(), plain.eval()):
        one(tokens).square().mean().backward()
    assert torch.equal(routers(model)[0].weight.grad, routers(plain)[0].weight.grad)


@pytest.mark.parametrize("factors", [{"balance": -0.1}, {"z": -0.1}])
def test_negative_factors_are_refused(factors):
    with pytest.raises(ValueError, match="must not be negative"):
        RouterLosses(**factors)


@pytest.mark.parametrize("rules", [RouterLosses(0.1), ByToken()])
def test_models_without_experts_are_refused(rules):
    model = make_model(Config(vocab=5, d_model=8, n_heads=2), causal=True, seed=0)
    with pytest.raises(ValueError, match=r"parts\.experts\.Experts"):
        rules(model)


# A table ------------------------------------------------------------------------------------------


def test_a_token_asks_the_same_experts_wherever_it_stands_and_weighs_them_alike():
    model, tokens = fresh(ByToken())
    names = [
        f"blocks.{b}.feedforward.{tap}" for b in range(2) for tap in ("chosen", "probabilities")
    ]
    with capture(model, *names) as seen:
        model(tokens)
    tables = []
    for b in range(2):
        chosen, weights = (seen[f"blocks.{b}.feedforward.{t}"] for t in ("chosen", "probabilities"))
        assert torch.equal(weights, chosen / PLAIN["per_token"])
        asked = defaultdict(set)
        for token, row in zip(tokens.flatten().tolist(), chosen.flatten(0, 1), strict=True):
            asked[token].add(tuple(row.nonzero().flatten().tolist()))
        assert {len(kinds) for kinds in asked.values()} == {1}
        tables.append(dict(asked))
    assert tables[0] != tables[1]  # each layer has its own
    assert len({next(iter(kinds)) for kinds in tables[0].values()}) > 1


def test_a_table_is_kept_with_the_weights_and_not_trained():
    run = train(config(), TASK, seed=0, steps=5, learning_rate=0.01, prepare=ByToken())
    other = make_model(config(), causal=True, seed=9)
    ByToken()(other)
    other.load_state_dict(run.model.state_dict())
    fresh_one = make_model(config(), causal=True, seed=0)
    ByToken()(fresh_one)
    for table, same in zip(routers(other), routers(fresh_one), strict=True):
        assert torch.equal(table.logits, same.logits)
    tokens = torch.arange(6).view(2, 3)
    assert torch.equal(other.eval()(tokens), run.model.eval()(tokens))


def test_only_decoders_have_a_table():
    with pytest.raises(ValueError, match="expected a Decoder"):
        ByToken()(EncoderDecoder(Config(vocab=5, d_model=8, n_heads=2)))


# Blocks -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("settings", [
    {"per_token": 1}, {"per_token": 3}, {"per_token": 2, "normalised": True, "scores": "sigmoid"},
])  # fmt: skip
@pytest.mark.parametrize("tokens", [1, BLOCK, 3 * BLOCK + 1])
def test_blocks_give_values_and_gradients_of_loops_over_experts(settings, tokens):
    found = []
    for kind in (Experts, ExpertsInBlocks):
        torch.manual_seed(3)
        layer = kind(n_experts=5, width=4, **settings).make(config()).double()
        with torch.no_grad():
            layer.router.weight[2] = -layer.router.weight[0]  # seldom asked together
            layer.router.weight[4] = 0.0
        x = torch.randn(2, tokens, 8, dtype=torch.float64, requires_grad=True)
        out = layer(x)
        out.square().sum().backward()
        found.append([out, x.grad, *(p.grad for p in layer.parameters())])
    for loops, blocks in zip(*found, strict=True):
        assert torch.allclose(loops, blocks, atol=1e-12)


def test_experts_that_nobody_asks_have_no_block():
    layer = ExpertsInBlocks(n_experts=4, per_token=1, width=3).make(config())
    with torch.no_grad():
        layer.router.weight.zero_()  # all ask the first of equals
    out = layer(torch.randn(1, 9, 8))
    out.sum().backward()
    asked = layer.up.weight.grad.view(4, -1).abs().sum(1) > 0
    assert asked.sum() == 1


@pytest.mark.parametrize("changes", [{"activation": "swiglu"}, {"bias": True}])
def test_blocks_refuse_gates_and_biases(changes):
    with pytest.raises(ValueError, match="without gate and biases"):
        config(ExpertsInBlocks(**PLAIN), **changes)


@pytest.mark.parametrize(
    "rules", [RouterLosses(0.1, 0.1), RouterLosses(0.1, frozen=True), ByToken()]
)
def test_a_stack_trains_what_each_member_trains_alone(rules):
    asked = {"steps": 4, "learning_rate": 0.02, "prepare": rules}
    network = ExpertsInBlocks(**PLAIN)
    together = train_stacked(config(network), TASK, [0, 1], **asked)
    for seed, run in enumerate(together):
        alone = train(config(network), TASK, seed=seed, **asked)
        assert run.losses.tolist() == pytest.approx(alone.losses.tolist(), rel=1e-4)
