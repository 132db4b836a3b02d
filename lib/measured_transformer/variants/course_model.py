"""A Transformer language model of PyTorch's own layers, as courses build it: encoder layers and a mask.

The sheet that the book calls the exercise has its students complete such a model; PyTorch's tutorial on
language modelling builds another.
"""

from __future__ import annotations

import math
from typing import Any, Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from measured_transformer.models.config import Config
from measured_transformer.models.decoder import Decoder
from measured_transformer.parts.positions import sinusoidal_encoding


class CoursePositions(nn.Module):
    """Adds sinusoidal positions, which lie in a buffer: kept with the weights and not trained."""

    pe: Tensor

    def __init__(self, d_model: int, longest: int = 64) -> None:
        """Compute the table for positions 0 to longest - 1."""
        super().__init__()
        self.register_buffer("pe", sinusoidal_encoding(longest, d_model))

    def forward(self, x: Float[Tensor, "batch position d_model"]) -> Tensor:
        """The vectors, each with that of its position added."""
        return x + self.pe[: x.shape[1]]


class CourseModel(nn.Module):
    """Embedding, positions, encoder layers with a mask, and a linear map.

    Attributes:
        encoder: the embedding.
        positions: adds the positions.
        transformer: post-norm layers with ReLU, no dropout.
        decoder: the linear map from the last states to logits.
    """

    def __init__(
        self,
        vocab: int,
        d_model: int = 16,
        n_heads: int = 2,
        n_layers: int = 2,
        *,
        longest: int = 64,
    ) -> None:
        """Draw initial weights."""
        super().__init__()
        self.encoder = nn.Embedding(vocab, d_model)
        self.positions = CoursePositions(d_model, longest)
        layer = nn.TransformerEncoderLayer(
            d_model, n_heads, 4 * d_model, dropout=0.0, batch_first=True
        )
        self.transformer = nn.TransformerEncoder(layer, n_layers, enable_nested_tensor=False)
        self.decoder = nn.Linear(d_model, vocab)

    def forward(
        self,
        tokens: Int[Tensor, "batch position"],
        *,
        mask: Literal["causal", "none"] = "causal",
    ) -> Float[Tensor, "batch position vocab"]:
        """Logits of the next token at each position.

        Args:
            tokens: token numbers below the size of the vocabulary.
            mask: "none" lets every position see all others.
        """
        x = self.positions(math.sqrt(self.encoder.embedding_dim) * self.encoder(tokens))
        seen = None
        if mask == "causal":
            seen = nn.Transformer.generate_square_subsequent_mask(tokens.shape[1], dtype=x.dtype)
        return self.decoder(self.transformer(x, mask=seen))


@torch.no_grad()
def as_decoder(model: CourseModel) -> Decoder:
    """The library's post-norm decoder with the same weights."""
    first = model.transformer.layers[0]
    assert isinstance(first, nn.TransformerEncoderLayer)
    config = Config(
        vocab=model.encoder.num_embeddings,
        d_model=model.encoder.embedding_dim,
        n_layers=len(model.transformer.layers),
        n_heads=first.self_attn.num_heads,
        d_ff=first.linear1.out_features,
        positions="sinusoidal",
        placement="post",
        activation="relu",
        norm_eps=first.norm1.eps,
        head_bias=True,
    )
    found = Decoder(config).to(model.decoder.weight.dtype).eval()
    found.token_embedding.weight.copy_(model.encoder.weight)
    assert found.unembedding is not None
    found.unembedding.load_state_dict(model.decoder.state_dict())
    pairs: Any = zip(found.blocks, model.transformer.layers, strict=True)
    for block, layer in pairs:
        attention = block.attention
        parts = (attention.query, attention.key, attention.value)
        for name in ("weight", "bias"):
            joined = getattr(layer.self_attn, f"in_proj_{name}")
            for part, rows in zip(parts, joined.chunk(3), strict=True):
                getattr(part, name).copy_(rows)
        attention.output.load_state_dict(layer.self_attn.out_proj.state_dict())
        block.feedforward.up.load_state_dict(layer.linear1.state_dict())
        block.feedforward.down.load_state_dict(layer.linear2.state_dict())
        block.attention_norm.load_state_dict(layer.norm1.state_dict())
        block.feedforward_norm.load_state_dict(layer.norm2.state_dict())
    return found
