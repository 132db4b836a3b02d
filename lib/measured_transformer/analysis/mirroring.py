"""Attention to the mirrored position, block by block, in a model that reverses sequences."""

from __future__ import annotations

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from measured_transformer.internals.capture import capture
from measured_transformer.models.stack import Stack


@torch.no_grad()
def mirror_attention(
    model: Stack, tokens: Int[Tensor, "batch position"]
) -> Float[np.ndarray, "block"]:
    """The attention weight from position i to position n - 1 - i, for each block.

    Averaged over heads, positions and sequences. In the reversal task it tells in which block attention
    fetches the answer.
    """
    with capture(model, "*.attention.pattern") as seen:
        model(tokens)
    patterns = torch.stack(
        [seen[f"blocks.{i}.attention.pattern"] for i in range(model.config.n_layers)]
    )
    mirrored = patterns.flip(-1).diagonal(dim1=-2, dim2=-1).mean(dim=(1, 2, 3))
    return mirrored.detach().double().cpu().numpy()
