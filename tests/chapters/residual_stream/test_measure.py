"""Paths and states of the stream, by hand and against automatic differentiation."""

import itertools

import numpy as np
import pytest
import torch
from measured_transformer.analysis.gradients import jacobian, stream_gradients, sublayers
from measured_transformer.analysis.residual import (
    Ledger,
    ledger,
    mean_norm,
    random_model,
    stream_norms,
    write_cosines,
    write_ratios,
)
from measured_transformer.chapters.residual_stream.measure import (
    branch_gains,
    by_length,
    deleted,
    embedding_part,
    every_path,
    finite_difference,
    growth,
    kept_cosines,
    last_gradient,
    mirror_attention,
    needed_cosine,
    shares,
    step_ratios,
)
from measured_transformer.internals.intervene import intervene
from measured_transformer.tasks.reversal import Reversal
from measured_transformer.training.losses import cross_entropy
from measured_transformer.training.seeding import make_generator


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


def by_hand() -> Ledger:
    """The stream of two numbers of the chapter: (3, 1), then (-1, 2) and (1, 1) are written."""
    states = torch.tensor([[3.0, 1.0], [2.0, 3.0], [3.0, 4.0]])[:, None, None]
    writes = torch.tensor([[-1.0, 2.0], [1.0, 1.0]])[:, None, None]
    return Ledger(("blocks.0.attention", "blocks.0.feedforward"), states, writes)


def test_measures_of_a_stream_of_two_numbers():
    account = by_hand()
    assert account.step_errors().tolist() == [0.0, 0.0]
    assert account.sum_error() == 0.0
    assert account.blocks.flatten().tolist() == [3.0, 1.0, 3.0, 4.0]
    np.testing.assert_allclose(stream_norms(account.states), [10**0.5, 13**0.5, 5], rtol=1e-6)
    np.testing.assert_allclose(write_ratios(account), [(5 / 10) ** 0.5, (2 / 13) ** 0.5], rtol=1e-6)
    np.testing.assert_allclose(
        write_cosines(account), [-1 / 50**0.5, 5 / 26**0.5], rtol=1e-5, atol=1e-7
    )
    np.testing.assert_allclose(kept_cosines(account.blocks), [13 / 250**0.5], rtol=1e-5)
    np.testing.assert_allclose(step_ratios(account.blocks), [3 / 10**0.5], rtol=1e-6)
    assert mean_norm(account.states[-1]) == pytest.approx(5)


def test_growth_of_an_exponential_is_its_rate():
    assert growth(np.exp(0.3 * np.arange(7))) == pytest.approx(0.3)
    assert growth(np.full(4, 2.0)) == pytest.approx(0.0)


def test_the_embeddings_part_is_all_of_a_stream_that_nobody_writes_to():
    for placement in ("pre", "post"):
        model, tokens = random_model(7, placement=placement, n_layers=3)
        with torch.no_grad():
            for block in model.blocks:
                for last in (block.attention.output, block.feedforward.down):
                    last.weight.zero_()
                    last.bias.zero_()
                for norm in (block.attention_norm, block.feedforward_norm):
                    norm.bias.zero_()
        torch.testing.assert_close(embedding_part(model, tokens), ledger(model, tokens).states)


def test_the_embeddings_part_is_linear_in_the_embedding_at_fixed_divisors():
    """Parts of the embedding, the writes and the biases, each sent through the norms, make the state."""
    model, tokens = random_model(8, placement="post", n_layers=1)
    account, block = ledger(model, tokens), model.blocks[0]
    first = account.states[0] + account.writes[0]
    scale = (first.var(dim=-1, keepdim=True, unbiased=False) + 1e-5).sqrt()
    embedding = account.states[0] - account.states[0].mean(dim=-1, keepdim=True)
    expected = embedding / scale * block.attention_norm.weight
    torch.testing.assert_close(embedding_part(model, tokens)[1], expected)


def test_embedding_part_refuses_a_norm_it_does_not_know():
    model, tokens = random_model(8, placement="post", norm="rms")
    with pytest.raises(ValueError, match="'rms'"):
        embedding_part(model, tokens)


def test_mirror_attention_of_uniform_and_of_planted_patterns():
    model, tokens = random_model(2, n_layers=2)
    n = tokens.shape[1]
    planted = torch.eye(n, dtype=torch.float64).flip(0)
    changes = {"blocks.0.attention.pattern": 1 / n, "blocks.1.attention.pattern": planted}
    with intervene(model, changes):
        np.testing.assert_allclose(mirror_attention(model, tokens), [1 / n, 1.0])


def test_needed_cosine_recovers_the_angle():
    rng = np.random.default_rng(0)
    x, w = rng.normal(size=(2, 5))
    lengths = [float(np.linalg.norm(v)) for v in (x, w, x + w)]
    cosine = float(x @ w) / (lengths[0] * lengths[1])
    assert needed_cosine(lengths[0], [lengths[1]], lengths[2]) == pytest.approx(cosine)
    assert needed_cosine(1.0, [1.0, 1.0], 3.0) == pytest.approx(1)
    assert needed_cosine(1.0, [1.0, 1.0], 3.1) > 1


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
