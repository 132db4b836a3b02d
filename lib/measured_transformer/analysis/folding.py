r"""Folds norms into the linear maps that read them, and turns LayerNorm into RMSNorm.

Vectors are rows. What a map W with a bias b makes of a LayerNorm is
$z / \sigma \cdot C\, \text{diag}(\gamma)\, W + \beta W + b$, with the centring
$C = I - \mathbf 1^\top \mathbf 1 / d$: all but the division by $\sigma$ is one matrix and one bias.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import cast

import torch
from jaxtyping import Float
from torch import Tensor, nn

from measured_transformer.models.decoder import Decoder
from measured_transformer.parts.block import Block
from measured_transformer.parts.feedforward import FeedForward
from measured_transformer.parts.latent import LatentAttention
from measured_transformer.parts.norms import LayerNorm, RMSNorm
from measured_transformer.parts.positions import LearnedPositions, SinusoidalPositions
from measured_transformer.parts.tap import Tap


class Divide(nn.Module):
    """The rest of a folded LayerNorm: the division by the standard deviation.

    The mean is looked at for the deviation and stays in the vector.

    Tap: `scale`, the divisor sqrt(variance + eps), (batch, position, 1).
    """

    def __init__(self, eps: float) -> None:
        """Keep epsilon; there are no weights."""
        super().__init__()
        self.eps = eps
        self.scale = Tap()

    def forward(self, x: Float[Tensor, "*batch d_model"]) -> Float[Tensor, "*batch d_model"]:
        """The vectors, divided by their deviations."""
        variance = x.var(dim=-1, correction=0, keepdim=True)
        divided: Tensor = x / self.scale((variance + self.eps).sqrt())
        return divided


def fold_norms(model: Decoder) -> Decoder:
    """An equivalent model whose norms have no weights: they are folded into the linear maps that follow.

    The rows of a map W that reads a norm become those of (I - 1 1 / d) diag(gamma) W, its bias becomes
    beta W + b, and the norm becomes a `Divide`. RMSNorm has neither beta nor centring; its weight becomes one.
    The unembedding is no longer tied. The config is kept; a map may have a bias that it does not mention.

    Args:
        model: a pre-norm decoder; it is left as it was.

    Raises:
        ValueError: when a norm is not followed by linear maps alone: post-norm, a head other than 'linear',
            a norm behind the embedding.
    """
    folded = copy.deepcopy(model)
    for parent, name, norm, readers, factor in _norms_and_readers(folded):
        _fold(norm, readers, factor)
        if isinstance(norm, LayerNorm):
            with torch.no_grad():
                for reader in readers:  # centring a row before a map is centring the map's columns
                    reader.weight.sub_(reader.weight.mean(dim=1, keepdim=True))
            setattr(parent, name, Divide(norm.eps))
    return folded


def as_rms_model(model: Decoder) -> Decoder:
    """A decoder with RMSNorm that has the same logits as this one with LayerNorm.

    The mean of a state is on the stream only because something wrote it there. Take it out of all that is
    written (embedding, learned positions, both sublayers) and every state is centred; on centred vectors
    LayerNorm without weights is RMSNorm. Its weights are folded into the maps that follow. After Ashkboos et
    al. (2024), "SliceGPT".

    Args:
        model: a pre-norm decoder with LayerNorm; it is left as it was.

    Raises:
        ValueError: when the norm is another one, when positions are sinusoidal (their table is fixed, and not
            centred), or as `fold_norms`.
    """
    if model.config.norm != "layer":
        raise ValueError(f"expected a model with the norm 'layer', got {model.config.norm!r}")
    if not all(model.config.of_layer(i).attention_norm for i in range(model.config.n_layers)):
        raise ValueError(
            "expected every attention to read a norm, got attention_norm=False: it reads the stream's mean too"
        )
    if isinstance(model.positions, SinusoidalPositions):
        raise ValueError(
            "expected positions that can be centred, got 'sinusoidal', a table that is fixed"
        )
    twin = copy.deepcopy(model)
    for parent, name, norm, readers, factor in _norms_and_readers(twin):
        _fold(norm, readers, factor)
        kept = RMSNorm(model.config.d_model, eps=norm.eps)
        setattr(parent, name, kept.to(norm.weight))
    with torch.no_grad():
        tables = [twin.token_embedding, twin.token_type_embedding, twin.positions]
        for table in tables:
            if isinstance(table, (nn.Embedding, LearnedPositions)):
                for rows in table.parameters():
                    rows.sub_(rows.mean(dim=-1, keepdim=True))
        for block in cast("list[Block]", list(twin.blocks)):
            for writer in (block.attention.output, block.feedforward.down):
                for weight in writer.parameters():  # (d_model, in) and (d_model,)
                    weight.sub_(weight.mean(dim=0, keepdim=True))
    twin.config = model.config.replace(norm="rms", tie_embeddings=False)
    return twin


def _norms_and_readers(
    model: Decoder,
) -> Iterator[tuple[nn.Module, str, LayerNorm | RMSNorm, list[nn.Linear], float]]:
    """Each norm with its parent and name, the maps that read it, and a factor between the two.

    Unties the unembedding. Raises ValueError where something else reads a norm.
    """
    config = model.config
    if config.placement != "pre":
        raise ValueError("expected a pre-norm model; behind a post-norm the stream itself goes on")
    if config.head != "linear" or model.unembedding is None:
        raise ValueError(
            f"expected the head 'linear' behind the final norm, got {config.head!r}; "
            "something else than one linear map would read the norm"
        )
    if config.embedding_norm and config.norm != "none":
        raise ValueError("expected no norm behind the embedding: the stream itself reads it")
    for block in cast("list[Block]", list(model.blocks)):
        usual = isinstance(block.feedforward, FeedForward)
        if not usual or isinstance(block.attention, LatentAttention):
            raise ValueError(
                "expected blocks with MultiHeadAttention and FeedForward, got "
                f"{type(block.attention).__name__} and {type(block.feedforward).__name__}: norms are folded "
                "into the maps of those alone"
            )
    model.unembedding.weight = nn.Parameter(model.unembedding.weight.detach().clone())
    found: list[tuple[nn.Module, str, list[nn.Linear], float]] = []
    for block in cast("list[Block]", list(model.blocks)):
        attention, network = block.attention, block.feedforward
        asking: list[nn.Linear] = [attention.query, attention.key]
        if attention.value is not attention.key:
            asking.append(attention.value)
        hidden: list[nn.Linear] = [network.up]
        if network.gate is not None:
            hidden.append(network.gate)
        both = block.shared_norm
        found.append((block, "attention_norm", [*asking, *hidden] if both else asking, 1.0))
        if not both:
            found.append((block, "feedforward_norm", hidden, 1.0))
    found.append((model, "final_norm", [model.unembedding], config.logit_scale))
    for parent, name, readers, factor in found:
        norm = getattr(parent, name)
        if isinstance(norm, (LayerNorm, RMSNorm)):
            yield parent, name, norm, readers, factor


@torch.no_grad()
def _fold(norm: LayerNorm | RMSNorm, readers: list[nn.Linear], factor: float) -> None:
    """Move gamma and beta into the maps, in place; the norm's own become one and zero."""
    beta = norm.bias if isinstance(norm, LayerNorm) else None
    offset = norm.offset if isinstance(norm, RMSNorm) else 0.0
    for reader in readers:
        if beta is not None:
            added = factor * reader.weight @ beta
            before = torch.zeros_like(added) if reader.bias is None else reader.bias
            reader.bias = nn.Parameter(before + added)
        reader.weight.mul_(norm.weight + offset)
    norm.weight.fill_(1.0 - offset)
    if beta is not None:
        beta.zero_()
