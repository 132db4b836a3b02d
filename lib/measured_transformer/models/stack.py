"""What the models share: embedding, a stack of blocks, a final norm. The only code that reads a `Config`."""

from __future__ import annotations

import math

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from measured_transformer.models.config import Config
from measured_transformer.parts.attention import MultiHeadAttention
from measured_transformer.parts.block import Block
from measured_transformer.parts.feedforward import FeedForward
from measured_transformer.parts.norms import make_norm
from measured_transformer.parts.positions import (
    LearnedPositions,
    SinusoidalPositions,
    alibi_bias,
    alibi_slopes,
    rotation,
)
from measured_transformer.parts.tap import Tap


class Stack(nn.Module):
    """Tokens in, residual stream out; the models add what they read from it.

    Taps: `embedding` (batch position d_model), the stream before the first block: tokens plus, where the
    scheme adds them, positions; those of each block under `blocks.{i}`; `final_norm.scale`; `logits`.
    """

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.config = config
        self.token_embedding = nn.Embedding(config.vocab, config.d_model)
        self.embedding_scale = (
            math.sqrt(config.d_model) if config.initialisation == "xavier" else 1.0
        )
        self.positions: SinusoidalPositions | LearnedPositions | None = None
        if config.positions == "sinusoidal":
            self.positions = SinusoidalPositions(config.d_model, base=config.rotary_base)
        elif config.positions == "learned":
            self.positions = LearnedPositions(config.max_length, config.d_model)
        self.embedding_dropout = nn.Dropout(config.dropout)
        self.embedding = Tap()
        self.blocks = nn.ModuleList(make_block(config) for _ in range(config.n_layers))
        self.final_norm = make_norm(
            config.norm if config.has_final_norm else "none",
            config.d_model,
            eps=config.norm_eps,
            bias=config.bias,
        )
        self.unembedding = nn.Linear(config.d_model, config.vocab, bias=False)
        self.logits = Tap()
        initialise(self)
        if config.tie_embeddings:
            self.unembedding.weight = self.token_embedding.weight

    def stream(
        self,
        tokens: Int[Tensor, "batch position"],
        *,
        causal: bool,
        padding_mask: Bool[Tensor, "batch position"] | None = None,
    ) -> Float[Tensor, "batch position d_model"]:
        """The residual stream after the last block, before the final norm.

        Raises:
            ValueError: when tokens are not whole numbers of shape (batch, position), lie outside the
                vocabulary, or are more than learned positions reach.
        """
        self._check(tokens)
        n = tokens.shape[1]
        x = self.embedding_scale * self.token_embedding(tokens)
        if self.positions is not None:
            x = x + self.positions(n)
        x = self.embedding(self.embedding_dropout(x))

        turn, bias = None, None
        if self.config.positions == "rotary":
            where = torch.arange(n, device=tokens.device)
            turn = rotation(
                where,
                self.config.head_width,
                base=self.config.rotary_base,
                pairing=self.config.rotary_pairing,
                dtype=x.dtype,
            )
        elif self.config.positions == "alibi":
            slopes = alibi_slopes(self.config.n_heads).to(device=tokens.device, dtype=x.dtype)
            bias = alibi_bias(slopes, n)

        for block in self.blocks:
            x = block(x, causal=causal, padding_mask=padding_mask, rotation=turn, score_bias=bias)
        return x

    def read(self, x: Float[Tensor, "batch position d_model"]) -> Tensor:
        """Logits that the model reads from a state of the stream: final norm, then unembedding."""
        return self.logits(self.unembedding(self.final_norm(x)))

    def _check(self, tokens: Tensor) -> None:
        if tokens.ndim != 2 or tokens.dtype not in (torch.int64, torch.int32):
            raise ValueError(
                "tokens must be whole numbers of shape (batch, position), got "
                f"{tokens.dtype} of shape {tuple(tokens.shape)}"
            )
        # Looking at values would stall an accelerator and break a compiled graph in two.
        if tokens.numel() and tokens.device.type == "cpu" and not torch.compiler.is_compiling():
            low, high = int(tokens.min()), int(tokens.max())
            if low < 0 or high >= self.config.vocab:
                raise ValueError(
                    f"tokens must lie in 0..{self.config.vocab - 1} (vocab={self.config.vocab}), "
                    f"got values from {low} to {high}"
                )


def make_block(config: Config) -> Block:
    """One block with the sizes and choices of the config."""
    return Block(
        MultiHeadAttention(
            config.d_model,
            config.n_heads,
            n_kv_heads=config.kv_heads,
            d_head=config.head_width,
            bias=config.bias,
            dropout=config.dropout,
        ),
        FeedForward(config.d_model, config.neurons, activation=config.activation, bias=config.bias),
        make_norm(config.norm, config.d_model, eps=config.norm_eps, bias=config.bias),
        make_norm(config.norm, config.d_model, eps=config.norm_eps, bias=config.bias),
        placement=config.placement,
        residual=config.residual,
        dropout=config.dropout,
    )


@torch.no_grad()
def initialise(model: Stack) -> None:
    """Draw all weights anew from PyTorch's generator, as `config.initialisation` says; biases are zero."""
    config = model.config
    for name, parameter in model.named_parameters():
        kind = name.split(".")[-1]
        if "norm" in name:
            parameter.fill_(1.0 if kind == "weight" else 0.0)
        elif kind == "bias":
            parameter.zero_()
        elif config.initialisation == "gpt2":
            writes = name.endswith(("attention.output.weight", "feedforward.down.weight"))
            nn.init.normal_(parameter, std=0.02 / math.sqrt(2 * config.n_layers if writes else 1))
        elif name.startswith("positions"):
            nn.init.normal_(parameter, std=math.sqrt(0.5))  # the size of a sinusoidal entry
        elif name.startswith(("token_embedding", "unembedding")):
            nn.init.normal_(parameter, std=config.d_model**-0.5)
        else:
            nn.init.xavier_uniform_(parameter)
