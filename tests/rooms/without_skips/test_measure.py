"""Paths, gradients, cuts and the cube, by hand and against automatic differentiation."""

import itertools
import math

import numpy as np
import pytest
import torch
from measured_book.evidence.results import load_results
from measured_book.measuring.judging import judge_room
from measured_book.rooms.without_skips import measure
from measured_book.rooms.without_skips.measure import (
    branch_gains,
    by_length,
    cubic_bound,
    deleted,
    every_path,
    farthest,
    finite_difference,
    last_gradient,
    shares,
)
from measured_transformer.analysis.gradients import jacobian, stream_gradients, sublayers
from measured_transformer.analysis.mirroring import mirror_attention
from measured_transformer.analysis.residual import ledger, random_model
from measured_transformer.internals.intervene import intervene
from measured_transformer.tasks.reversal import Reversal
from measured_transformer.training.losses import cross_entropy
from measured_transformer.training.seeding import make_generator

RESULTS = load_results("without_skips")


def test_no_tuned_learning_rate_stands_at_the_edge_of_its_grid():
    for arm, job in measure.six_trainings(0).items():
        assert measure.RATES[0] < job.settings["learning_rate"] < measure.RATES[-1], arm


def test_the_control_arms_solve_the_task_on_every_seed():
    assert float(RESULTS["six"].accuracy.sel(arm="both").min()) > 0.95
    assert float(RESULTS["cut_two"].uncut.min()) > 0.95
    assert float(RESULTS["cut_twelve"].uncut.min()) > 0.9


def test_two_tokens_meet_the_bound_exactly():
    """One head that compares and carries the tokens themselves, and e and -e: e tanh(e^2)."""
    for e in (0.1, 0.5, 2.0):
        x = torch.tensor([[e], [-e]], dtype=torch.float64)
        after = torch.softmax(x @ x.T, dim=-1) @ x
        assert float(after[0]) == pytest.approx(e * math.tanh(e * e))
        assert farthest(after) == pytest.approx(cubic_bound(farthest(x), 1.0, 1.0, 1))


def test_the_bound_holds_and_is_cubic_for_small_distances():
    cube = RESULTS["cube"]
    assert bool((cube.after.sel(kind="attention") <= cube.bound).all())
    assert cubic_bound(1e-3, 2.0, 3.0, 4) == pytest.approx(3 * 2 * 1e-9 / 8, rel=1e-5)


def test_distances_between_rows_are_those_of_the_two_that_are_farthest_apart():
    assert farthest(torch.tensor([[0.0, 0.0], [3.0, 4.0], [1.0, 0.0]])) == 5.0


def test_finite_differences_of_known_functions():
    x = torch.randn(2, 3, dtype=torch.float64)
    g = torch.randn(2, 3, dtype=torch.float64)
    before = x.clone()
    torch.testing.assert_close(finite_difference(torch.sin, x, g), g * x.cos(), rtol=0, atol=1e-9)
    assert torch.equal(x, before)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("placement", ["pre", "post"])
def test_paths_are_products_of_jacobian_matrices(placement, causal):
    model, tokens = random_model(
        3, causal=causal, placement=placement, n_layers=1, d_model=8, n_heads=2
    )
    tokens = tokens[:1, :2]
    states = ledger(model, tokens).states
    g = torch.randn_like(states[-1])
    found = every_path(model, states, g)
    assert len(found) == 4
    maps = []
    for k, (branch, norm) in enumerate(sublayers(model)):
        write = branch(states[k]).detach()
        maps.append((jacobian(branch, states[k]), jacobian(norm, states[k] + write)))
    for number, path in enumerate(found):
        expected = g.flatten()
        for k in (1, 0):
            through, past = maps[k]
            expected = expected @ past
            if number >> k & 1:
                expected = expected @ through
        torch.testing.assert_close(path.flatten(), expected)


@pytest.mark.parametrize("placement", ["pre", "post"])
@pytest.mark.parametrize("norm", ["layer", "none"])
def test_paths_sum_to_the_gradient_and_gather_by_length(placement, norm):
    model, tokens = random_model(6, placement=placement, norm=norm, n_layers=2)
    states = ledger(model, tokens).states
    g = torch.randn_like(states[-1])
    x = states[0].clone().requires_grad_()
    y = x
    for block in model.blocks:
        y = block(y)
    (true,) = torch.autograd.grad(y, x, g)
    single, gathered = every_path(model, states, g), by_length(model, states, g)
    torch.testing.assert_close(single.sum(0), true)
    torch.testing.assert_close(gathered.sum(0), true)
    for length in range(5):
        members = [p for p in range(16) if p.bit_count() == length]
        torch.testing.assert_close(gathered[length], single[members].sum(0))
    if placement == "pre":
        assert torch.equal(single[0], g)


def test_shares_add_up_to_one_and_may_be_negative():
    parts = torch.tensor([[2.0, 0.0], [0.0, 1.0], [-1.0, 0.0]], dtype=torch.float64)[:, None, None]
    found = shares(parts)
    np.testing.assert_allclose(found, [2 / 2, 1 / 2, -1 / 2])
    assert found.sum() == pytest.approx(1)


def test_gains_of_branches_against_jacobian_matrices():
    model, tokens = random_model(2, n_layers=1, placement="pre")
    tokens = tokens[:1]
    states = ledger(model, tokens).states
    g = torch.randn_like(states[0])
    found = branch_gains(model, states, g)
    for k, (branch, _) in enumerate(sublayers(model)):
        down = g.flatten() @ jacobian(branch, states[k])
        assert found[k] == pytest.approx(float(down.norm() / g.norm()))


def test_stream_gradients_against_differences_of_the_loss():
    model, _ = random_model(9, n_layers=1)
    batch = Reversal(vocab=11, length=3).batch(make_generator(0, "training"), 1)
    sizes = stream_gradients(model, batch)
    assert sizes.shape == (3,)
    states = ledger(model, batch.inputs).states

    def from_state(after):
        def loss(x):
            for block in model.blocks[after:]:
                x = block(x)
            return cross_entropy(model.unembed(x), batch.targets, batch.scored)

        return loss

    one = torch.ones((), dtype=torch.float64)
    for place, blocks_done in ((0, 0), (2, 1)):
        slow = finite_difference(from_state(blocks_done), states[place], one)
        assert sizes[place] == pytest.approx(float(slow.norm(dim=-1).mean()), rel=1e-5)
    last = last_gradient(model, states[-1], batch)
    torch.testing.assert_close(last, slow, rtol=1e-5, atol=1e-8)


def test_causal_paths_carry_nothing_back_from_earlier_positions():
    """The gradient at the first position's last state never reaches a later token's embedding."""
    model, tokens = random_model(12, causal=True, n_layers=2)
    states = ledger(model, tokens).states
    g = torch.zeros_like(states[-1])
    g[:, 0] = 1.0
    found = every_path(model, states, g)
    assert float(found[:, :, 1:].abs().max()) == 0.0
    assert float(found[:, :, 0].abs().max()) > 0
    assert len(list(itertools.product((0, 1), repeat=4))) == len(found)


def test_mirror_attention_of_uniform_and_of_planted_patterns():
    model, tokens = random_model(2, n_layers=2)
    n = tokens.shape[1]
    planted = torch.eye(n, dtype=torch.float64).flip(0)
    changes = {"blocks.0.attention.pattern": 1 / n, "blocks.1.attention.pattern": planted}
    with intervene(model, changes):
        np.testing.assert_allclose(mirror_attention(model, tokens), [1 / n, 1.0])


@pytest.mark.parametrize("sublayer", ["attention", "feedforward"])
def test_deleting_against_blocks_written_by_hand(sublayer):
    model, tokens = random_model(11, placement="pre", n_layers=2)
    states = ledger(model, tokens).states

    def last(block, x, what):
        attend = block.attention(block.attention_norm(x))
        keep, add = 1.0, 1.0
        if sublayer == "attention":
            keep, add = (0.0, 1.0) if what == "skip" else (1.0, 0.0)
        x = keep * x + add * attend
        keep, add = 1.0, 1.0
        if sublayer == "feedforward":
            keep, add = (0.0, 1.0) if what == "skip" else (1.0, 0.0)
        return keep * x + add * block.feedforward(block.feedforward_norm(x))

    for what in ("branch", "skip"):
        with torch.no_grad():
            expected = model.unembed(last(model.blocks[1], states[2], what))
            with deleted(model, f"blocks.1.{sublayer}", what):
                found = model(tokens)
        torch.testing.assert_close(found, expected)
        assert not torch.allclose(found, model(tokens))


def test_deleting_needs_a_pre_norm_model_with_skip_connections():
    for changes in ({"placement": "post"}, {"residual": False}):
        model, _ = random_model(1, **changes)
        with (
            pytest.raises(ValueError, match="expected"),
            deleted(model, "blocks.0.attention", "skip"),
        ):
            pass
    model, _ = random_model(1)
    with pytest.raises(KeyError, match="blocks"), deleted(model, "blocks.9.attention", "branch"):
        pass


def test_gradients_of_weights_against_differences_of_the_loss():
    model, _ = random_model(9, n_layers=2)
    batch = Reversal(vocab=11, length=3).batch(make_generator(0, "training"), 1)
    found = measure.weight_gradients(model, batch)
    assert found.shape == (len(measure.MATRICES), 2)
    key = model.blocks[1].attention.key.weight

    def loss(x):
        before = key.detach().clone()
        key.copy_(x)
        value = cross_entropy(model(batch.inputs), batch.targets, batch.scored)
        key.copy_(before)
        return value

    one = torch.ones((), dtype=torch.float64)
    slow = finite_difference(loss, key.detach().clone(), one)
    assert found[1, 1] == pytest.approx(math.log10(float(slow.norm())), abs=1e-4)


def test_no_score_matters_where_all_tokens_are_alike():
    """Twelve blocks without skips: queries and keys get rounding, values do not."""
    model = measure.fresh(7, residual=False, n_layers=8).double()
    found = measure.weight_gradients(model, measure.batch_of(7, 4))
    assert found[:2, -1].max() < -10
    assert found[2:, -1].min() > -2


def test_the_straight_path_has_the_share_that_all_paths_leave_it():
    model = measure.fresh(5, n_layers=2).double()
    batch = measure.batch_of(5, 4)
    states = ledger(model, batch.inputs).states
    by_lengths = by_length(model, states, last_gradient(model, states[-1], batch))
    found = measure.straight_shares(model, batch)
    assert found[0] == pytest.approx(shares(by_lengths)[0])
    assert found[-1] == pytest.approx(1)


def test_gains_without_skips_are_those_of_the_sublayers_at_their_own_states():
    gains = measure.bare_gains(3, "pre")
    model = measure.fresh(3, residual=False).double()
    account = ledger(model, measure.batch_of(3, 16).inputs)
    block = model.blocks[0]
    torch.testing.assert_close(
        block.attention(block.attention_norm(account.states[0])).detach(), account.states[1]
    )
    assert len(gains) == 2
    assert 0 < min(gains) < max(gains) < 1


def test_claims_about_weights_are_judged_on_seeds_that_nobody_had_looked_at():
    scope = judge_room("without_skips").scope
    for name in ("attended", "gains"):
        assert scope.evaluate(name).seed.values.tolist() == list(range(100, 340, 10))
    assert scope.evaluate("attended_in_six").seed.values.tolist() == list(range(100, 200, 10))


def test_the_second_block_fetches_in_every_model_of_two_blocks():
    cuts = RESULTS["cut_two"]
    fetching = cuts.by_role.sel(where="fetching")
    np.testing.assert_array_equal(fetching, cuts.accuracy.sel(sublayer=2).transpose(*fetching.dims))
