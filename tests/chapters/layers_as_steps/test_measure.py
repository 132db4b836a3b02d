"""Lenses, edits of the order of layers and measures of contribution, on models whose inside is known."""

import copy
import math

import numpy as np
import pytest
import torch
from measured_transformer.analysis.handmade import composed_model, heads_model, reversal_model
from measured_transformer.analysis.lens import (
    fit_tuned_lens,
    largest_rise,
    logit_lens,
    probe_accuracies,
    rise_chosen_apart,
)
from measured_transformer.analysis.residual import ledger, random_model
from measured_transformer.chapters.layers_as_steps.measure import (
    contributions,
    direct_attribution,
    direct_logits,
    edit_costs,
    exchanged,
    layer_cosines,
    length_shares,
    rank_correlation,
    rearranged,
    repeated,
    share_of_pairs,
    skip_costs,
    skipped,
)
from measured_transformer.chapters.without_skips.measure import deleted
from measured_transformer.models.decoder import Decoder
from measured_transformer.tasks.induction import Induction
from measured_transformer.tasks.reversal import Reversal
from measured_transformer.tasks.task import Batch
from measured_transformer.training.loop import make_model
from torch import nn

INDUCTION = Induction(vocab=8, length=12, shortest=3, longest=4)
SAID = math.log(7 + math.e) - 1
"""The loss of a hand-made model that raises the right one of eight logits by one."""


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def random_batch(tokens: torch.Tensor, seed: int = 0) -> Batch:
    targets = torch.randint(11, tokens.shape, generator=generator(seed))
    scored = torch.rand(tokens.shape, generator=generator(seed + 1)) < 0.7
    scored[0, 0] = True
    return Batch(tokens, targets, scored)


# Reading early --------------------------------------------------------------------------------------


def test_the_logit_lens_reads_nothing_before_the_work_is_done_and_all_after_it():
    model = composed_model("k", vocab=8, length=12)
    found = logit_lens(model, INDUCTION.batch(generator(), 40))
    assert found.loss[:2] == pytest.approx(math.log(8))
    assert found.loss[2] == pytest.approx(SAID)
    assert found.accuracy[2] == 1


def test_the_last_reading_is_the_models_own():
    model, tokens = random_model(5, causal=True, n_layers=3)
    batch = random_batch(tokens)
    logits = model(tokens)[batch.scored]
    own = torch.nn.functional.cross_entropy(logits, batch.targets[batch.scored])
    found = logit_lens(model, batch)
    assert found.loss.shape == (4,)
    assert found.loss[-1] == pytest.approx(own.item())
    right = (logits.argmax(-1) == batch.targets[batch.scored]).double().mean()
    assert found.accuracy[-1] == pytest.approx(right.item())
    assert abs(found.loss[1] - own.item()) > 1e-4


def test_a_tuned_lens_translates_what_the_logit_lens_cannot_read():
    # The block copies the token from one part of the stream to the part that is read: before it, the token
    # is there, in the wrong place.
    model = heads_model(["self"], vocab=5, length=4)
    inputs = torch.randint(5, (60, 4), generator=generator())
    fit, other = (
        Batch(x, x, torch.ones_like(x, dtype=torch.bool)) for x in (inputs[:40], inputs[40:])
    )
    assert logit_lens(model, other).accuracy[0] < 0.5
    tuned = fit_tuned_lens(model, fit, seed=0, size=160, rate=0.5)
    assert tuned.read(model, other).accuracy[0] == 1
    assert tuned.gap[1][0] < 0.01 < tuned.gap[0][0]
    assert not tuned.weight[-1].any()
    assert tuned.read(model, other).loss[-1] == pytest.approx(logit_lens(model, other).loss[-1])


def test_a_tuned_lens_cannot_read_what_is_not_there_and_leaves_the_model_alone():
    model = reversal_model(vocab=5, length=4)
    batch = Reversal(5, 4).batch(generator(), 200)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    tuned = fit_tuned_lens(model, batch, seed=0, steps=100, rate=0.1)
    other = Reversal(5, 4).batch(generator(1), 200)
    assert tuned.read(model, other).accuracy[0] < 0.4  # one in five, and a little luck
    assert all(torch.equal(before[name], value) for name, value in model.state_dict().items())
    assert all(parameter.grad is None for parameter in model.parameters())


@pytest.mark.parametrize("wrong", [{"steps": 0}, {"size": 0}, {"rate": 0.0}])
def test_a_fit_needs_positive_numbers(wrong):
    model = reversal_model(vocab=5, length=4)
    with pytest.raises(ValueError, match="positive"):
        fit_tuned_lens(model, Reversal(5, 4).batch(generator(), 4), seed=0, **wrong)


def test_the_largest_rise_and_the_one_chosen_apart():
    losses = np.array([[3.0, 2.0, 2.5, 1.0], [3.0, 2.0, 1.5, 1.0]])
    assert largest_rise(losses).tolist() == [0.5, -0.5]
    rng = np.random.default_rng(0)
    noise = rng.normal(size=(2, 4000, 6))
    assert largest_rise(noise[0]).mean() > 1  # of noise around nothing: it finds a rise always
    assert abs(rise_chosen_apart(*noise).mean()) < 0.1


def test_probes_read_what_a_linear_map_can_read_and_no_more():
    labels = torch.randint(3, (80, 6), generator=generator())
    line = labels[..., None].float() + 0.1 * torch.randn(80, 6, 1, generator=generator(1))
    noise = torch.randn(80, 6, 3, generator=generator(2))
    states = torch.stack([torch.cat([line, noise[..., :2]], -1), noise])
    fitted = torch.arange(80) < 40
    found = probe_accuracies(states, labels, fitted, n_labels=3)
    assert found[0] > 0.98  # the middle label lies between the others: least squares would miss it
    assert 0.2 < found[1] < 0.47


def test_probes_are_scored_on_sequences_that_they_were_not_fitted_on():
    states = torch.randn(1, 8, 3, 64, generator=generator())  # more entries than examples
    labels = torch.randint(2, (8, 3), generator=generator(3))
    found = probe_accuracies(states, labels, torch.arange(8) < 4, n_labels=2)
    assert found[0] < 0.9
    with pytest.raises(ValueError, match="others to be scored"):
        probe_accuracies(states, labels, torch.ones(8, dtype=torch.bool), n_labels=2)
    with pytest.raises(ValueError, match="labels from 0 to 0"):
        probe_accuracies(states, labels, torch.arange(8) < 4, n_labels=1)


# Another order --------------------------------------------------------------------------------------


@pytest.mark.parametrize("order", [[0, 2, 1], [2, 0], [0, 1, 1, 2], [1], []])
def test_another_order_is_the_model_built_in_that_order(order):
    model, tokens = random_model(4, n_layers=3)
    built = make_model(
        model.config.replace(n_layers=max(1, len(order))), causal=False, seed=0
    ).double()
    own = {k: v for k, v in model.state_dict().items() if not k.startswith("blocks.")}
    for new, old in enumerate(order):
        block = model.blocks[old].state_dict()
        own |= {f"blocks.{new}.{name}": value for name, value in block.items()}
    built.load_state_dict(own, strict=bool(order))
    expected = built.eval()(tokens) if order else model.unembed(ledger(model, tokens).states[0])
    whole = model(tokens)
    with rearranged(model, order):
        assert torch.equal(model(tokens), expected)
    assert torch.equal(model(tokens), whole)
    assert not torch.allclose(expected, whole)


def test_the_order_comes_back_after_an_error():
    model, tokens = random_model(4, n_layers=3)
    whole = model(tokens)
    with pytest.raises(RuntimeError, match="on the way"), rearranged(model, [2]):
        raise RuntimeError("on the way")
    assert torch.equal(model(tokens), whole)
    with pytest.raises(ValueError, match="from 0 to 2, got \\[3\\]"), rearranged(model, [0, 3]):
        pass


def test_a_skipped_layer_is_one_whose_branches_are_cut():
    model, tokens = random_model(7, n_layers=3)
    batch = random_batch(tokens)
    with (
        deleted(model, "blocks.1.attention", "branch"),
        deleted(model, "blocks.1.feedforward", "branch"),
    ):
        cut = logit_lens(model, batch).loss[-1]
    costs = edit_costs(model, batch)
    assert costs.skip[1] == pytest.approx(cut - costs.whole)
    assert skip_costs(model, batch) == pytest.approx(costs.skip)
    assert costs.whole == pytest.approx(logit_lens(model, batch).loss[-1])


def test_edits_of_a_relay_cost_and_edits_of_idle_layers_do_not():
    relay = composed_model("k", vocab=8, length=12)  # block 2 reads what block 1 has written
    batch = INDUCTION.batch(generator(), 40)
    costs = edit_costs(relay, batch)
    assert costs.whole == pytest.approx(SAID)
    assert (costs.skip > 0.5).all()
    assert costs.neighbours.tolist() == [costs.swap[0, 1]]
    assert costs.swap[0, 1] > 0.5
    assert (np.diagonal(costs.swap) == 0).all()
    idle, tokens = random_model(2, n_layers=3)
    with torch.no_grad():
        for name, parameter in idle.named_parameters():
            if "attention.output" in name or "feedforward.down" in name:
                parameter.zero_()
    costs = edit_costs(idle, random_batch(tokens))
    assert np.abs(costs.skip).max() == np.abs(costs.repeat).max() == np.abs(costs.swap).max() == 0


def test_orders():
    assert skipped(3, 0) == [1, 2]
    assert repeated(3, 2) == [0, 1, 2, 2]
    assert exchanged(4, 1, 3) == [0, 3, 2, 1]


# Contributions --------------------------------------------------------------------------------------


@pytest.mark.parametrize("norm", ["layer", "rms", "none"])
@pytest.mark.parametrize("causal", [True, False])
def test_direct_logits_add_up_to_the_logits(norm, causal):
    for seed in range(5):
        model, tokens = random_model(seed, norm=norm, causal=causal)
        batch = random_batch(tokens, seed)
        logits = model(tokens)[batch.scored]
        answer = logits.gather(1, batch.targets[batch.scored][:, None])[:, 0]
        expected = (answer - logits.mean(-1)).mean().item()
        parts = direct_logits(model, batch)
        assert parts.shape == (2 * model.config.n_layers + 2,)
        assert parts.sum() == pytest.approx(expected, abs=1e-9)
        assert abs(parts[1]) > 1e-6
        assert np.array_equal(direct_attribution(model, batch), parts[1:-1])


def test_direct_logits_need_writes_that_can_be_told_apart():
    model, tokens = random_model(0, placement="post")
    with pytest.raises(ValueError, match="post"):
        direct_logits(model, random_batch(tokens))
    model, tokens = random_model(0, head="none")
    with pytest.raises(ValueError, match="linear"):
        direct_logits(model, random_batch(tokens))


def test_contributions_of_a_relay_are_what_its_construction_says():
    model = composed_model("k", vocab=8, length=12)
    found = contributions(
        model, INDUCTION.batch(generator(), 40), INDUCTION.batch(generator(1), 40)
    )
    first, network, second, last = range(4)
    assert found.names[second] == "blocks.1.attention"
    assert found.length[[network, last]].tolist() == [0, 0]
    assert found.length.sum() == pytest.approx(1)
    assert found.attribution[first] == pytest.approx(
        0
    )  # it speaks to block 2, not to the unembedding
    assert found.attribution[second] == pytest.approx(1 - 1 / 8)
    for rise in (found.zero, found.mean):
        assert (rise[[first, second]] > 0.5).all()
        assert np.abs(rise[[network, last]]).max() < 1e-9


def test_cosines_of_layers_are_those_of_their_writes():
    model, tokens = random_model(3, n_layers=3)
    account = ledger(model, tokens)
    cosines = layer_cosines(account)
    writes = account.writes[::2] + account.writes[1::2]
    for i in range(3):
        for j in range(3):
            each = torch.cosine_similarity(writes[i], writes[j], dim=-1)
            assert cosines[i, j] == pytest.approx(each.mean().item())
    assert length_shares(account)[0] == pytest.approx(
        (
            account.writes[0].norm(dim=-1).mean() / account.writes.norm(dim=-1).mean((1, 2)).sum()
        ).item()
    )


def test_a_share_of_pairs_counts_each_pair_once():
    cosines = np.array([[1.0, -0.5, 0.2], [-0.5, 1.0, -0.05], [0.2, -0.05, 1.0]])
    assert share_of_pairs(cosines) == pytest.approx(2 / 3)
    assert share_of_pairs(cosines, below=-0.1) == pytest.approx(1 / 3)


def test_ranks_need_numbers_that_differ():
    assert rank_correlation(np.arange(4.0), -(np.arange(4.0) ** 3)) == pytest.approx(-1)
    with pytest.raises(ValueError, match="at least two"):
        rank_correlation(np.arange(3.0), np.arange(4.0))
    with pytest.raises(ValueError, match="the same"):
        rank_correlation(np.ones(3), np.arange(3.0))


def test_a_decoder_can_be_edited_too():
    model, tokens = random_model(1, causal=True, n_layers=2)
    assert isinstance(model, Decoder)
    batch = random_batch(tokens)
    other = copy.deepcopy(model)
    other.blocks = nn.ModuleList([other.blocks[1], other.blocks[0]])

    def loss(one):
        logits = one(batch.inputs)[batch.scored]
        return float(nn.functional.cross_entropy(logits, batch.targets[batch.scored]))

    cost = loss(other) - loss(model)
    assert edit_costs(model, batch).swap[0, 1] == pytest.approx(cost, abs=1e-6)
    assert abs(cost) > 1e-3  # or the test would show nothing
