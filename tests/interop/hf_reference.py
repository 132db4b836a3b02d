"""Tiny random models of `transformers`, and what they compute at the precision that is asked for."""

from __future__ import annotations

import torch
from torch import Tensor, nn


def randomise(model: nn.Module, seed: int = 0) -> None:
    """Give every parameter a value of its own, so that no two can be taken for each other.

    Fresh models have zero biases and norms of ones: a mix-up of those would change nothing.
    """
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            noise = torch.randn(parameter.shape, generator=generator, dtype=torch.float64)
            centre = 1.0 if "norm" in name.lower() or ".ln_" in name else 0.0
            if parameter.ndim == 1:
                parameter.copy_(centre * (name.endswith("weight")) + 0.2 * noise)
            else:
                parameter.copy_(noise * min(parameter.shape[-2:]) ** -0.5)


def rms_norm(self: nn.Module, x: Tensor) -> Tensor:
    eps = self.variance_epsilon
    return self.weight * (x * torch.rsqrt(x.square().mean(-1, keepdim=True) + eps))


def rotary(self: nn.Module, x: Tensor, position_ids: Tensor) -> tuple[Tensor, Tensor]:
    theta, width = self.config.rope_parameters["rope_theta"], self.config.head_dim
    slow = theta ** (-torch.arange(0, width, 2, dtype=torch.float64) / width)
    angles = position_ids[..., None].double() * torch.cat((slow, slow))
    return angles.cos().to(x.dtype), angles.sin().to(x.dtype)
