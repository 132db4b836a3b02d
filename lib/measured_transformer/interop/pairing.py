"""Converts rotary weights from one pairing to the other.

Meta's code and weights of Llama turn neighbours together (entries 0 and 1, 2 and 3); the code that reads
Llama's weights as converted for Hugging Face turns entry i of a head with entry i + d/2. What a pair is called
makes no difference to a score, which is a sum over pairs, so reordering the rows of the query and the key
projection within each head turns weights of one kind into weights of the other.
"""

from __future__ import annotations

import torch
from jaxtyping import Int, Shaped
from torch import Tensor

from measured_transformer.parts.positions import Pairing


def pairing_order(d_head: int, *, to: Pairing) -> Int[Tensor, "d_head"]:
    """For each place, the entry of a head in the other pairing that moves there.

    Args:
        d_head: width of a head, an even number.
        to: the pairing wanted.

    Raises:
        ValueError: when the width is odd or not positive.

    >>> pairing_order(6, to="halves").tolist(), pairing_order(6, to="interleaved").tolist()
    ([0, 2, 4, 1, 3, 5], [0, 3, 1, 4, 2, 5])
    """
    if d_head < 2 or d_head % 2:
        raise ValueError(f"pairs need an even number of entries, got d_head={d_head}")
    shape = (-1, 2) if to == "halves" else (2, -1)
    return torch.arange(d_head).view(shape).T.flatten()


def convert_pairing(
    weight: Shaped[Tensor, "row *column"], d_head: int, *, to: Pairing
) -> Shaped[Tensor, "row *column"]:
    """Convert the weight (or bias) of a query or key projection to the other pairing.

    Values and outputs are left as they are: they are not turned.

    Args:
        weight: rows `h * d_head` to `(h + 1) * d_head` belong to head h, as in `nn.Linear`.
        d_head: width of a head.
        to: the pairing wanted; the weight has the other one.

    Raises:
        ValueError: when the rows are no whole number of heads, and as `pairing_order`.
    """
    order = pairing_order(d_head, to=to)
    if len(weight) % d_head:
        raise ValueError(f"expected whole heads of {d_head} rows each, got {len(weight)} rows")
    return weight.unflatten(0, (-1, d_head))[:, order].flatten(0, 1)
