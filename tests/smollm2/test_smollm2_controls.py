"""Controls: what they keep, and what they change."""

from __future__ import annotations

import pytest
import torch
from measured_book.smollm2 import controls, spectrum
from measured_transformer.training.seeding import make_generator
from scipy.stats import kstest
from small_smollm2 import small_model


def norms(seed=0):
    return torch.rand(6, 5, generator=torch.Generator().manual_seed(seed)).exp()


def test_matched_heads_write_as_much_and_are_others():
    group, exclude = [(0, 0), (2, 3), (5, 4)], {(1, 1), (1, 2)}
    found = controls.matched_heads(norms(), group, 20, seed=1, exclude=exclude, near=4)
    assert found == controls.matched_heads(norms(), group, 20, seed=1, exclude=exclude, near=4)
    assert len({tuple(one) for one in found}) > 10
    for one in found:
        assert len(set(one)) == 3
        assert not set(one) & ({*group} | exclude)
    free = sorted({(i, j) for i in range(6) for j in range(5)} - {*group} - exclude)
    for place, head in enumerate(group):
        by_log = sorted(free, key=lambda o: abs(float((norms()[o] / norms()[head]).log())))
        assert {one[place] for one in found} <= set(by_log[:6])  # two places may be taken by others
    ratios = [controls.norm_ratio(norms(), one, group) for one in found]
    assert max(ratios) < 1.3
    assert min(ratios) > 0.75


def test_too_few_heads_to_draw_from_is_said():
    every = [(i, j) for i in range(6) for j in range(5)]
    with pytest.raises(ValueError, match=r"at least 20 heads to draw from.* got 10 heads"):
        controls.matched_heads(norms(), every[:20], 1, seed=0)


def test_weights_of_the_same_spectrum_keep_singular_values_and_nothing_else():
    model = small_model()
    before = {name: p.clone() for name, p in model.named_parameters()}
    other = spectrum.same_spectrum(model, 0)
    for name, mine in model.named_parameters():
        assert torch.equal(mine, before[name])
        theirs = other.get_parameter(name)
        if theirs.ndim == 1 or not name.startswith("blocks."):
            assert torch.equal(mine, theirs)
            continue
        values = [torch.linalg.svdvals(one) for one in (mine, theirs)]
        torch.testing.assert_close(values[0], values[1], rtol=1e-5, atol=1e-5)
        alike = torch.cosine_similarity(mine.flatten(), theirs.flatten(), dim=0)
        assert abs(alike) < 0.2
    tokens = torch.tensor([[1, 2, 3]])
    assert not torch.allclose(other(tokens), model(tokens))
    assert other.unembedding.weight is other.token_embedding.weight
    again = spectrum.same_spectrum(model, 0)
    assert torch.equal(again(tokens), other(tokens))
    assert not torch.equal(spectrum.same_spectrum(model, 1)(tokens), other(tokens))


@pytest.mark.parametrize("rows", [3, 5])
def test_rotations_are_drawn_alike(rows):
    """The square of an entry of a random direction in n dimensions is Beta(1/2, (n - 1)/2), in every place."""
    generator = make_generator(0, "test")
    drawn = torch.stack([spectrum.orthonormal(rows, 3, generator) for _ in range(600)])
    eye = torch.eye(3).expand(600, 3, 3)
    torch.testing.assert_close(drawn.mT @ drawn, eye, rtol=0, atol=1e-5)
    for i in range(rows):
        for j in range(3):
            squared = drawn[:, i, j].square().double().numpy()
            assert kstest(squared, "beta", (0.5, (rows - 1) / 2)).pvalue > 1e-4
            assert 0.4 < (drawn[:, i, j] > 0).double().mean() < 0.6


def test_random_directions_are_as_long_and_can_be_at_right_angles():
    like = torch.randn(4, 5, 16, generator=torch.Generator().manual_seed(3))
    drawn = controls.directions_of_equal_length(like, 0)
    torch.testing.assert_close(drawn.norm(dim=-1), like.norm(dim=-1))
    assert float((drawn * like).sum(-1).abs().max()) > 0.1
    apart = controls.directions_of_equal_length(like.double(), 0, orthogonal=True)
    assert apart.dtype == torch.float64
    torch.testing.assert_close(apart.norm(dim=-1), like.norm(dim=-1).double())
    assert float((apart * like).sum(-1).abs().max()) < 1e-9
