"""What one head cannot do: two maps at once, and one number that two of them need."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from jaxtyping import Float
from measured_transformer.analysis.handmade import set_head
from measured_transformer.parts.attention import MultiHeadAttention
from measured_transformer.training.seeding import seeded
from torch import Tensor

# What one head cannot do ----------------------------------------------------------------------------


def map_values(
    patterns: Float[Tensor, "head query key"], forms: Float[Tensor, "head d_model d_model"]
) -> Float[Tensor, "value"]:
    r"""The singular values of $X \mapsto \sum_h A_h X W_h$, a sum of products of two maps each.

    How many are not zero is the number of heads, with patterns that do not depend on the input, that the map
    needs. The root of the sum of the squares of all but the first is a lower bound for what a single such head
    misses: the root of the mean square over inputs with independent standard normal entries (Eckart and
    Young 1936). It is only a bound, because the best product may need negative weights or a form of a rank that
    a head does not have.
    """
    products = torch.einsum("hij,hde->ijde", patterns, forms)
    return torch.linalg.svdvals(products.flatten(2).flatten(0, 1))


@dataclass(frozen=True)
class TwoMaps:
    r"""A target that brings two positions at once, $y_i = c_{i-1} W_1 + c_{i-3} W_2$, and heads that reach it.

    Attributes:
        attention: two heads with hand-set weights; without residual connection.
        x: the stream: random contents $c$, and the place, one entry for each.
        target: the answers from the fourth position on, zero where the place stands.
        bound: what any single head that looks at places misses at least, as a share of the target (root mean
            squares over contents); negative weights, which no head has, would reach it.
        one_head: what the best single head that looks at places misses.
    """

    attention: MultiHeadAttention
    x: Float[Tensor, "1 position d_model"]
    target: Float[Tensor, "answer d_model"]
    bound: float
    one_head: float


@torch.no_grad()
def two_maps(seed: int, *, length: int = 8, width: int = 4) -> TwoMaps:
    """Draw contents and two matrices, and write two heads that look one and three places back.

    Args:
        seed: of contents and matrices.
        length: number of positions, more than three.
        width: entries of a content.
    """
    with seeded(seed):
        contents = torch.randn(length, width, dtype=torch.float64)
        forms = torch.randn(2, width, width, dtype=torch.float64)
    d_model = width + length
    eye = torch.eye(d_model, dtype=torch.float64)
    content, place = eye[:, :width], eye[:, width:]
    attention = MultiHeadAttention(
        d_model, 2, d_head=max(width, length), bias=False, scale=1.0
    ).double()
    shifts = []
    for head, back in enumerate((1, 3)):
        shift = torch.diag(torch.ones(length - back, dtype=torch.float64), -back)
        set_head(
            attention,
            head,
            query=60.0 * place @ shift,
            key=place,
            value=content,
            output=forms[head] @ content.T,
        )
        shifts.append(shift[3:])
    patterns = torch.stack(shifts)
    values = map_values(patterns, forms)
    target = torch.einsum("hij,jd,hde->ie", patterns, contents, forms)
    bound = values[1:].square().sum().sqrt() / values.square().sum().sqrt()
    x = torch.cat((contents, torch.eye(length, dtype=torch.float64)), dim=1)[None]
    return TwoMaps(attention, x, target @ content.T, bound.item(), one_head_misses(forms))


def one_head_misses(forms: Float[Tensor, "2 d_model d_model"]) -> float:
    r"""What the best single head misses of $c_{i-1} W_1 + c_{i-3} W_2$, as a share of its size.

    With weights a and b on the two places (others only add noise), the best form is
    $(a W_1 + b W_2) / (a^2 + b^2)$, which catches $\lVert a W_1 + b W_2 \rVert^2 / (a^2 + b^2)$. Without a sign
    to mind, that is at most the larger eigenvalue of the table of inner products; where its eigenvector has two
    signs, a head does best that ignores one of the places.

    >>> round(one_head_misses(torch.stack((torch.eye(2), -torch.eye(2))).double()), 3)
    0.707
    """
    flat = forms.flatten(1)
    inner = flat @ flat.T
    values, vectors = torch.linalg.eigh(inner)
    caught = values[-1] if vectors[:, -1].prod() >= 0 else inner.diagonal().max()
    return (1 - caught / inner.trace()).clamp(min=0).sqrt().item()


def on_a_circle(
    angles: Float[Tensor, "query"], *, keys: int, sharpness: float
) -> Float[Tensor, "query key"]:
    r"""The weights of a head that is two wide, its keys evenly on a circle, for queries of these directions.

    >>> on_a_circle(torch.tensor([0.0, 3.14159]), keys=8, sharpness=20.0).argmax(-1)
    tensor([0, 4])

    Args:
        angles: directions of the queries, in radians.
        keys: how many there are; the first at an angle of zero.
        sharpness: length of query times length of key, the scale included.
    """
    places = 2 * math.pi * torch.arange(keys).to(angles) / keys
    queries, points = (torch.stack((t.cos(), t.sin()), dim=1) for t in (angles, places))
    return (sharpness * queries @ points.T).softmax(-1)


def on_a_line(
    queries: Float[Tensor, "query"], keys: Float[Tensor, "key"]
) -> Float[Tensor, "query key"]:
    """The weights of a head that is one wide: no key that lies between two others is ever looked at most.

    >>> on_a_line(torch.tensor([-9.0, 9.0]), torch.tensor([0.0, 1.0, 2.0])).argmax(-1)
    tensor([0, 2])
    """
    return torch.outer(queries, keys).softmax(-1)
