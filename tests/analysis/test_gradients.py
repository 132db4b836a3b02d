"""Paths, shares and Jacobians, against autograd, products of matrices and functions with known slopes."""

import pytest
import torch
from measured_transformer.analysis.gradients import jacobian, sublayers
from measured_transformer.analysis.residual import random_model


def test_jacobian_of_a_matrix_is_its_transpose_because_vectors_are_rows():
    W = torch.randn(3, 2, dtype=torch.float64)
    x = torch.randn(3, dtype=torch.float64)
    J = jacobian(lambda x: x @ W, x)
    torch.testing.assert_close(J, W.T)
    g = torch.randn(2, dtype=torch.float64)
    torch.testing.assert_close(g @ J, g @ W.T)


def test_sublayers_refuse_what_they_cannot_follow():
    for changes in ({"positions": "rotary"}, {"positions": "alibi"}, {"residual": False}):
        model, _ = random_model(1, d_model=8, n_heads=2, **changes)
        with pytest.raises(ValueError, match="expected residual connections"):
            sublayers(model)
