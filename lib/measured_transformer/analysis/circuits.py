r"""A head as two matrices of low rank: where it looks (QK) and what it carries there (OV).

A head's four projections only ever act in pairs. Its scores are $x_i W_Q W_K^\top x_j^\top$ times a scale, and
what it writes is a weighted sum of $x_j W_V W_O$. So the two products say all, each $d \times d$ and of rank at
most $d_h$; they are kept as factors here (`LowRank`). Vectors are rows and matrices act from the right.

Three things stand between these products and a real model, and none of them is swept under the carpet.

- Biases. Scores get a part that depends on the key, which changes the pattern, and parts that are the same for
  all keys, which the softmax forgets (unless rotary angles are at work). What a bias adds to the values is a
  constant, because weights sum to one. The output's bias is no head's.
- Norms. Before a block with pre-norm, what attention reads is a linear function of the stream divided by the
  norm's scale. `head_circuits` folds that function into the matrices, so that they read the stream divided by
  the scale (the tap `scale` of the norm), or leaves it out.
- Positions. Rotary angles make the QK product depend on the offset, so one has to be given.

Source: Elhage et al. (2021), "A Mathematical Framework for Transformer Circuits".
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import cast

import torch
from jaxtyping import Complex, Float
from torch import Tensor, nn

from measured_transformer.internals.places import select_one
from measured_transformer.models.decoder import Decoder
from measured_transformer.models.encoder import Encoder
from measured_transformer.models.stack import Stack
from measured_transformer.parts.attention import MultiHeadAttention
from measured_transformer.parts.block import Block
from measured_transformer.parts.latent import LatentAttention
from measured_transformer.parts.norms import LayerNorm, PlainLayerNorm, RMSNorm
from measured_transformer.parts.position_schemes import SCHEMES
from measured_transformer.parts.positions import rotation


@dataclass(frozen=True)
class LowRank:
    """A matrix as the product of a tall and a flat one; the whole is made only on request.

    Attributes:
        left: what the rows are read with.
        right: what is written.
    """

    left: Float[Tensor, "row inner"]
    right: Float[Tensor, "inner column"]

    @property
    def matrix(self) -> Float[Tensor, "row column"]:
        """The product."""
        return self.left @ self.right

    @property
    def T(self) -> LowRank:  # noqa: N802 - as tensors have it
        """The transpose."""
        return LowRank(self.right.T, self.left.T)

    def __matmul__(self, other: LowRank) -> LowRank:
        """The product of two, with the smaller inner width."""
        middle = self.right @ other.left
        if middle.shape[0] <= middle.shape[1]:
            return LowRank(self.left, middle @ other.right)
        return LowRank(self.left @ middle, other.right)

    def __rmul__(self, factor: float) -> LowRank:
        """The matrix times a number."""
        return LowRank(factor * self.left, self.right)

    def singular_values(self) -> Float[Tensor, "inner"]:
        """As many as the inner width, from the largest; all others are zero."""
        left, right = torch.linalg.qr(self.left).R, torch.linalg.qr(self.right.T).R
        return torch.linalg.svdvals(left @ right.T)

    def rank(self, *, tolerance: float | None = None) -> int:
        """Number of singular values above `tolerance` times the largest (rounding, unless given)."""
        values = self.singular_values()
        if tolerance is None:
            tolerance = max(self.left.shape[0], self.right.shape[1]) * torch.finfo(values.dtype).eps
        return int((values > tolerance * values.max()).sum())

    def norm(self) -> float:
        """The Frobenius norm, the root of the sum of the squared entries."""
        inner = (self.left.T @ self.left) * (self.right @ self.right.T)
        return math.sqrt(max(0.0, inner.sum().item()))

    def eigenvalues(self) -> Complex[Tensor, "inner"]:
        """Those of a square matrix that may differ from zero: the eigenvalues of `right @ left`.

        Raises:
            ValueError: when the matrix is not square.
        """
        if self.left.shape[0] != self.right.shape[1]:
            raise ValueError(
                "only square matrices have eigenvalues, got shape "
                f"{(self.left.shape[0], self.right.shape[1])}"
            )
        return torch.linalg.eigvals(self.right @ self.left)


@dataclass(frozen=True)
class QK:
    r"""Where a head looks: query $x_i$ and key $x_j$ score $x_i M x_j^\top + x_i a^\top + x_j b^\top + c$.

    The second and the last term are the same for all keys, so the pattern does not depend on them. With
    rotary positions every term depends on the offset between the two.

    Attributes:
        form: $M$, the scale of the dot products included.
        query_bias: $a$, what a query scores with every key.
        key_bias: $b$, what a key scores with every query.
        constant: $c$.
    """

    form: LowRank
    query_bias: Float[Tensor, "d_model"]
    key_bias: Float[Tensor, "d_model"]
    constant: Float[Tensor, ""]

    def scores(
        self,
        queries: Float[Tensor, "*batch query d_model"],
        keys: Float[Tensor, "*batch key d_model"],
    ) -> Float[Tensor, "*batch query key"]:
        """The scores, before any mask."""
        form = (queries @ self.form.left) @ (keys @ self.form.right.T).mT
        asked, told = queries @ self.query_bias, keys @ self.key_bias
        return form + asked[..., :, None] + told[..., None, :] + self.constant


@dataclass(frozen=True)
class OV:
    r"""What a head carries: a position that it attends to with weight $a$ adds $a\, (x_j M + b)$.

    Attributes:
        form: $M$.
        bias: $b$, which the head adds at every position, because weights sum to one.
    """

    form: LowRank
    bias: Float[Tensor, "d_model"]

    def writes(
        self,
        pattern: Float[Tensor, "*batch query key"],
        read: Float[Tensor, "*batch key d_model"],
    ) -> Float[Tensor, "*batch query d_model"]:
        """The head's output at each position, given its pattern (rows that sum to one)."""
        return pattern @ (read @ self.form.left) @ self.form.right + self.bias


def module_circuits(
    attention: MultiHeadAttention,
    head: int,
    *,
    norm: nn.Module | None = None,
    turn: Float[Tensor, "d_head d_head"] | None = None,
) -> tuple[QK, OV]:
    """The two circuits of one head of one attention module, in terms of what the module is given.

    Args:
        attention: the module. A query head that shares its keys and values gets the shared ones.
        head: number of the query head, from the end when negative.
        norm: a norm in front of the module, to be folded in: the circuits then read vectors that are divided
            by the norm's scale, but neither centred nor weighted.
        turn: what a rotation does between a query and a key, as a matrix from the query's entries to the
            key's (`offset_rotation`).

    Raises:
        ValueError: when there is no such head, the norm is of another kind, `turn` does not fit, or attention
            is latent.
    """
    if isinstance(attention, LatentAttention):
        raise ValueError(
            "expected attention whose keys and values are read off the stream, got a LatentAttention"
        )
    head = select_one("head", head, attention.n_heads)
    d_head = attention.d_head
    shared = head // (attention.n_heads // attention.n_kv_heads)
    own = slice(head * d_head, (head + 1) * d_head)
    theirs = slice(shared * d_head, (shared + 1) * d_head)
    gain, shift = _folded(norm, attention.d_model, attention.query.weight)
    parts = {}
    for name, rows in (("query", own), ("key", theirs), ("value", theirs)):
        linear = cast(nn.Linear, attention.get_submodule(name))
        weight, bias = linear.weight.detach()[rows].T, linear.bias
        constant = shift @ weight
        parts[name] = (gain @ weight, constant if bias is None else constant + bias.detach()[rows])
    (query, query_bias), (key, key_bias), (value, value_bias) = parts.values()
    if turn is not None:
        if turn.shape != (d_head, d_head):
            raise ValueError(
                f"turn must be (d_head, d_head) = {(d_head, d_head)}, got {tuple(turn.shape)}"
            )
        query, query_bias = query @ turn.to(query), query_bias @ turn.to(query)
    scale = 1 / math.sqrt(d_head) if attention.scale is None else attention.scale
    output = attention.output.weight.detach()[:, own].T
    return (
        QK(
            LowRank(scale * query, key.T),
            scale * (query @ key_bias),
            scale * (key @ query_bias),
            scale * (query_bias @ key_bias),
        ),
        OV(LowRank(value, output), value_bias @ output),
    )


def head_circuits(
    model: Stack, layer: int, head: int, *, offset: int | None = None, fold_norm: bool = True
) -> tuple[QK, OV]:
    """The two circuits of a self-attention head of a model.

    They read the stream that enters the block, divided at each position by the scale of the norm in front of
    attention (`fold_norm`), or what attention itself is given, norm applied. In blocks with post-norm, or
    without norms, both are the stream.

    Args:
        model: a decoder, an encoder, or a stack of an encoder-decoder.
        layer: number of the block, from the end when negative.
        head: number of the query head, from the end when negative.
        offset: query position minus key position, for models with rotary positions.
        fold_norm: whether the norm's centring and weights go into the matrices.

    Raises:
        ValueError: when there is no such head or layer; when a model with rotary positions gets no offset or
            another gets one; when the scheme of positions adds something else to the scores.

    >>> from measured_transformer.analysis.handmade import previous_token_model
    >>> qk, ov = head_circuits(previous_token_model(vocab=5, length=4), 0, 0)
    >>> qk.form.rank(), ov.form.rank()
    (3, 5)
    """
    block = _block(model, layer)
    turn = None
    if model.rotary is not None:
        if offset is None:
            raise ValueError(
                "with rotary positions the QK circuit depends on how far apart query and key are: give "
                "offset (query position minus key position)"
            )
        turn = offset_rotation(model, offset)
    elif offset is not None:
        raise ValueError(
            f"only with rotary positions the QK circuit depends on the offset; this model's are "
            f"{model.config.positions!r}"
        )
    elif SCHEMES[model.config.positions].bias is not None:
        raise ValueError(
            f"{model.config.positions!r} positions add a bias to the scores that no product of weights "
            "holds; module_circuits(block.attention, head) gives the circuits without it"
        )
    norm = block.attention_norm if fold_norm and block.placement == "pre" else None
    return module_circuits(block.attention, head, norm=norm, turn=turn)


def offset_rotation(model: Stack, offset: int) -> Float[Tensor, "d_head d_head"]:
    """What rotary positions do between a query and the key `offset` places before it, as a matrix.

    Raises:
        ValueError: when the model has no rotary positions.
    """
    if model.rotary is None:
        raise ValueError(f"expected rotary positions, got {model.config.positions!r}")
    places = torch.tensor([max(offset, 0), max(-offset, 0)])
    d_head, base, pairing = model.rotary.d_head, model.rotary.base, model.rotary.pairing
    turned = rotation(places, d_head, base=base, pairing=pairing, dtype=torch.float64)
    entries = torch.eye(d_head, dtype=torch.float64)[None, :, None].expand(1, d_head, 2, d_head)
    query, key = turned.apply(entries)[0].unbind(dim=1)
    return (query @ key.T).to(model.rotary.like)


# What they say about a head -------------------------------------------------------------------------


def copying_score(values: Complex[Tensor, "inner"]) -> float:
    r"""How far eigenvalues lie on the positive side: $\sum_i \operatorname{Re} \lambda_i / \sum_i |\lambda_i|$.

    Of a map from tokens to logits (`token_circuit`) it is 1 when every eigenvector is answered with more of
    itself, as in copying; -1 when with less; near 0 for a map that knows nothing of this. (That it copies each
    single token does not follow: that asks for the diagonal.)

    Raises:
        ValueError: when all eigenvalues are zero.
    """
    total = values.abs().sum().item()
    if total == 0:
        raise ValueError("a map that is zero copies nothing and forgets nothing")
    return values.real.sum().item() / total


def token_circuit(model: Decoder | Encoder, *forms: LowRank) -> LowRank:
    """From tokens to logits through the OV circuits of one or more heads, one after the other.

    Row: the token that is attended to; column: the token whose logit rises. The embedding's scale and the
    norms' weights and centring are in it, the norms' scales are not: they change the size of a row or of all,
    and the sign of nothing. Other layers on the way are left out.

    Raises:
        ValueError: when no form is given or the model does not read logits by one matrix.
    """
    if not forms:
        raise ValueError("expected the OV form of at least one head, got none")
    if model.unembedding is None or model.head_layer is not None:
        raise ValueError("a circuit to the logits needs a model with head='linear'")
    path = forms[0]
    for form in forms[1:]:
        path = path @ form
    embedding = model.embedding_scale * model.token_embedding.weight.detach()
    unembedding = model.unembedding.weight.detach()
    gain, _ = _folded(model.final_norm, model.config.d_model, unembedding)
    return LowRank(embedding @ path.left, path.right @ gain @ unembedding.T)


def composition(first: LowRank, second: LowRank) -> float:
    r"""The fit of what the first writes to what the second reads: $\|AB\| / \|A\| \|B\|$ (Frobenius norms).

    0 when the second reads nothing of it; at most 1. Directions that have nothing to do with one another reach
    `composition_baseline`, not 0.

    Raises:
        ValueError: when one of the two is zero.
    """
    size = first.norm() * second.norm()
    if size == 0:
        raise ValueError("a map that is zero composes with nothing")
    return (first @ second).norm() / size


def composition_baseline(d_model: int) -> float:
    r"""The root mean square of `composition` when nothing lines up: $1/\sqrt{d}$.

    Whatever the two maps are: turn the stream between them by a random rotation, and the mean of
    $\|A R B\|^2$ is exactly $\|A\|^2 \|B\|^2 / d$.

    Raises:
        ValueError: when the width is not positive.

    >>> composition_baseline(64)
    0.125
    """
    if d_model < 1:
        raise ValueError(f"the width must be positive, got {d_model}")
    return 1 / math.sqrt(d_model)


def composition_by_chance(
    first: LowRank, second: LowRank, *, draws: int = 200, seed: int = 0
) -> Float[Tensor, "draw"]:
    """`composition` of the same two maps with a random rotation of the stream between them, many times.

    Raises:
        ValueError: when one of the two is zero or there are no draws.
    """
    size = first.norm() * second.norm()
    if size == 0 or draws < 1:
        raise ValueError(
            f"expected two maps that are not zero and at least one draw, got draws={draws}"
        )
    # Only the singular values matter, and where one space of directions lies seen from the other.
    d = first.right.shape[1]
    values = [one.singular_values().to("cpu", torch.float64) for one in (first, second)]
    generator = torch.Generator().manual_seed(seed)
    found = []
    for _ in range(draws):
        drawn = torch.randn(d, len(values[0]), generator=generator, dtype=torch.float64)
        directions = torch.linalg.qr(drawn).Q[: len(values[1])]
        cross = values[1][: directions.shape[0], None] * directions * values[0][None, :]
        found.append(cross.norm().item() / size)
    return torch.tensor(found, dtype=torch.float64)


@dataclass(frozen=True)
class Compositions:
    """How heads of an earlier layer and heads of a later one fit together, by `composition`.

    Attributes:
        q, k, v: (earlier head, later head): what the earlier writes against what the later reads for its
            queries, its keys and its values.
        baseline: what directions without relation reach.
    """

    q: Float[Tensor, "earlier later"]
    k: Float[Tensor, "earlier later"]
    v: Float[Tensor, "earlier later"]
    baseline: float


def compositions(
    model: Stack, earlier: int, later: int, *, offset: int | None = None
) -> Compositions:
    """All composition scores between the heads of two layers.

    Args:
        model: with norms before its sublayers, or none.
        earlier, later: numbers of the two blocks, from the end when negative.
        offset: as for `head_circuits`, of the later head's queries and keys.

    Raises:
        ValueError: as `head_circuits`; when the layers stand in another order, or norms stand on the stream:
            what an earlier head wrote is then no summand of what the later one reads.

    >>> from measured_transformer.analysis.handmade import composed_model
    >>> found = compositions(composed_model("q", vocab=5, length=4), 0, 1)
    >>> round(found.q.item(), 3), found.k.item(), found.v.item()
    (0.447, 0.0, 0.0)
    """
    earlier, later = (select_one("layer", each, len(model.blocks)) for each in (earlier, later))
    if not earlier < later:
        raise ValueError(f"expected earlier < later, got layers {earlier} and {later}")
    block = _block(model, later)
    if block.placement == "post" and not isinstance(block.attention_norm, nn.Identity):
        raise ValueError(
            "with norms on the stream (placement='post') what a head wrote is rescaled before a later head "
            "reads it; composition by products of weights needs pre-norm or no norms"
        )
    if not block.residual:
        raise ValueError(
            "without the residual connection heads of later layers do not read earlier writes"
        )
    apart = 0 if model.rotary is not None else None  # the OV circuits do not depend on it
    heads = range(model.config.n_heads)
    writers = [head_circuits(model, earlier, h, offset=apart)[1].form for h in heads]
    readers = [head_circuits(model, later, h, offset=offset) for h in heads]
    found = torch.tensor(
        [
            [
                [
                    composition(writer, qk.form),
                    composition(writer, qk.form.T),
                    composition(writer, ov.form),
                ]
                for qk, ov in readers
            ]
            for writer in writers
        ],
        dtype=torch.float64,
    )
    q, k, v = found.unbind(dim=-1)
    return Compositions(q, k, v, composition_baseline(model.config.d_model))


def virtual_pattern(patterns: Sequence[Float[Tensor, "*batch query key"]]) -> Tensor:
    """The joint pattern of a chain of heads: the product of their patterns, the first layer's given first.

    With the product of their OV forms it is a *virtual head*: what arrives over this one path.

    Raises:
        ValueError: when there is no pattern.
    """
    if not patterns:
        raise ValueError("expected at least one pattern, got none")
    whole = patterns[0]
    for pattern in patterns[1:]:
        whole = pattern @ whole
    return whole


def _block(model: Stack, layer: int) -> Block:
    return cast(Block, model.blocks[select_one("layer", layer, len(model.blocks))])


def _folded(norm: nn.Module | None, d_model: int, like: Tensor) -> tuple[Tensor, Tensor]:
    """The matrix and the constant of a norm's linear part: what it does to a vector divided by its scale."""
    identity = torch.eye(d_model, dtype=like.dtype, device=like.device)
    nothing = torch.zeros(d_model, dtype=like.dtype, device=like.device)
    if norm is None or isinstance(norm, nn.Identity):
        return identity, nothing
    if isinstance(norm, RMSNorm):
        return torch.diag(norm.weight.detach() + norm.offset), nothing
    if isinstance(norm, PlainLayerNorm):
        return identity - 1 / d_model, nothing
    if isinstance(norm, LayerNorm):
        gain = (identity - 1 / d_model) * norm.weight.detach()
        return gain, nothing if norm.bias is None else norm.bias.detach()
    raise ValueError(f"expected a LayerNorm, an RMSNorm or no norm, got {type(norm).__name__}")
