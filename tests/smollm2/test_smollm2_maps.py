"""The linear map from early states to the last ones."""

from __future__ import annotations

import torch
from measured_book.smollm2 import maps


def test_a_linear_map_finds_a_linear_relation() -> None:
    draws = torch.Generator().manual_seed(0)
    x = torch.randn(600, 12, generator=draws) * torch.logspace(-2, 2, 12)
    y = x @ torch.randn(12, 12, generator=draws) / torch.logspace(-2, 2, 12) + 5
    mapped = maps.linear_map(x, y, 450)
    left = (mapped(x[450:]) - y[450:]).square().mean() / (y - y.mean(0)).square().mean()
    assert float(left) < 1e-3
