"""Which block of a model that reverses sequences looks at the mirrored position."""

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
    """For each block the attention weight that position i gives to position n - 1 - i.

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
