"""The symmetry of products: of matrices whose symmetry is known, and of layers that share their projections."""

from __future__ import annotations

import pytest
import torch
from measured_book.evidence.results import load_result
from measured_book.rooms.projections.real import drawn_like, products, symmetry
from measured_transformer.parts.attention import MultiHeadAttention

RESULT = load_result("projections", "published")


def test_a_matrix_is_the_sum_of_a_symmetric_and_an_antisymmetric_half() -> None:
    matrix = torch.randn(3, 5, 5, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    even, odd = (matrix + matrix.mT) / 2, (matrix - matrix.mT) / 2
    share = even.square().sum((1, 2)) / matrix.square().sum((1, 2))
    torch.testing.assert_close(symmetry(matrix), 2 * share - 1)
    torch.testing.assert_close(symmetry(even), torch.ones(3, dtype=torch.float64))
    torch.testing.assert_close(symmetry(odd), -torch.ones(3, dtype=torch.float64))


def test_products_give_the_scores_of_each_head_at_distance_zero() -> None:
    torch.manual_seed(0)
    layer = MultiHeadAttention(12, 4, n_kv_heads=2, bias=False, scale=1.0).double()
    gain, x = torch.rand(12).double(), torch.randn(1, 1, 12).double()
    own = products(layer, gain)
    queries = layer.query(x * gain).view(4, 3)
    keys = layer.key(x * gain).view(2, 3).repeat_interleave(2, 0)
    torch.testing.assert_close(x[0, 0] @ own @ x[0, 0], (queries * keys).sum(1))


def test_a_layer_that_shares_its_projections_is_symmetric() -> None:
    layer = MultiHeadAttention(8, 2, bias=False)
    layer.key.weight = layer.query.weight
    assert symmetry(products(layer)).tolist() == pytest.approx([1, 1])


def test_drawn_weights_have_no_symmetry_and_the_published_values_lie_within_bounds() -> None:
    like = drawn_like(torch.zeros(3, 64, 64), 16, torch.Generator().manual_seed(1))
    assert like.shape == (3, 64, 64)
    assert symmetry(like).abs().max() < 0.1
    assert (abs(RESULT.layer) <= 1).all()
    assert abs(RESULT.layer.sel(weights="drawn")).max() < 0.02
