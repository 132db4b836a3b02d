r"""How symmetric scores are in two published models: an encoder and a decoder.

Without positions the scores of a layer, added up over its heads, are $x_i M x_j^\top$ with $M = W_Q W_K^\top$.
Of the squares of a matrix, its symmetric half holds $(1 + s)/2$ and its antisymmetric half $(1 - s)/2$; its
symmetry is this $s$.
"""

from __future__ import annotations

from typing import Any

import torch
from jaxtyping import Float
from measured_transformer.language.published import pretrained
from measured_transformer.models.decoder import Decoder
from measured_transformer.models.encoder import Encoder
from measured_transformer.parts.attention import MultiHeadAttention
from measured_transformer.training.seeding import make_generator
from torch import Tensor

from measured_book.measuring import measurement
from measured_book.smollm2.model import NEEDS, smollm2

ENCODER = "all-minilm-l6-v2"
MODELS = ("decoder", "encoder")
WEIGHTS = ("trained", "drawn")
"""As published, or drawn anew with as many heads of the same width."""


def symmetry(matrix: Float[Tensor, "*head d_model d_model"]) -> Float[Tensor, "*head"]:
    """From -1, where a matrix is the negative of its transpose, to 1, where it is symmetric.

    >>> symmetry(torch.tensor([[[0.0, 1.0], [-1.0, 0.0]], [[2.0, 1.0], [1.0, 0.0]], [[0.0, 1.0], [0.0, 0.0]]]))
    tensor([-1.,  1.,  0.])
    """
    exact = matrix.double()
    return ((exact * exact.mT).sum((-2, -1)) / exact.square().sum((-2, -1))).to(matrix)


@torch.no_grad()
def products(
    attention: MultiHeadAttention, gain: Float[Tensor, "d_model"] | None = None
) -> Float[Tensor, "head d_model d_model"]:
    """The matrix of each head between the two states whose score it gives, at distance zero and without biases.

    Args:
        attention: of a layer.
        gain: the weights of the norm before it, where there is one.
    """
    groups = attention.n_heads // attention.n_kv_heads
    query = attention.query.weight.unflatten(0, (attention.n_heads, -1))
    key = attention.key.weight.unflatten(0, (attention.n_kv_heads, -1))
    if gain is not None:
        query, key = query * gain, key * gain
    return query.mT @ key.repeat_interleave(groups, 0)


def of_layers(model: Decoder | Encoder) -> list[Float[Tensor, "head d_model d_model"]]:
    """The matrices of all layers."""
    found = []
    for block in model.blocks:
        assert isinstance(block.attention, MultiHeadAttention)
        norm: Any = block.attention_norm if model.config.placement == "pre" else None
        found.append(products(block.attention, None if norm is None else norm.weight))
    return found


@torch.no_grad()
def drawn_like(
    heads: Float[Tensor, "head d_model d_model"], width: int, generator: torch.Generator
) -> Float[Tensor, "head d_model d_model"]:
    """Products of matrices of the same shapes, of independent normal numbers."""
    count, d_model = heads.shape[:2]
    query, key = torch.randn(2, count, width, d_model, generator=generator)
    return query.mT @ key


@measurement(
    seeds=1,
    coords={"model": MODELS, "weights": WEIGHTS},
    tolerance={"layer": 1e-3, "head": 1e-3},
    pretrained=(*NEEDS, ENCODER),
)
@torch.no_grad()
def published(seed: int) -> dict[str, Any]:
    """The symmetry of a decoder's and of an encoder's scores, of layers and of heads, beside drawn weights.

    ``layer``: of the heads' sum, the mean over layers; ``head``: of single heads, the mean over all; ``above``:
    the share of layers whose heads' sum is more symmetric than that of drawn weights.
    """
    encoder = pretrained(ENCODER).model
    layer, head, above = [], [], []
    for name, model in zip(MODELS, (smollm2().model, encoder), strict=True):
        generator = make_generator(seed, f"projections of the {name}")
        trained = of_layers(model)
        drawn = [drawn_like(one, model.config.head_width, generator) for one in trained]
        sums = [[float(symmetry(one.sum(0))) for one in some] for some in (trained, drawn)]
        layer.append([sum(some) / len(some) for some in sums])
        head.append([float(symmetry(torch.cat(some)).mean()) for some in (trained, drawn)])
        above.append(sum(a > b for a, b in zip(*sums, strict=True)) / len(trained))
    return {
        "layer": (("model", "weights"), layer),
        "head": (("model", "weights"), head),
        "above": ("model", above),
    }
