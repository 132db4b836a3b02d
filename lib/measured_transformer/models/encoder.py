"""Encoder-only model: every position sees the whole sequence."""

from __future__ import annotations

from pathlib import Path

from jaxtyping import Bool, Float, Int
from torch import Tensor

from measured_transformer.models.checks import check_config
from measured_transformer.models.config import Config
from measured_transformer.models.head import (
    capped,
    make_classifier,
    make_head_layer,
    make_unembedding,
    scaled,
)
from measured_transformer.models.stack import Stack, initialise
from measured_transformer.parts.heads import Pooler
from measured_transformer.parts.tap import Tap


class Encoder(Stack):
    """A bidirectional model (BERT-style): tokens in, for each position logits over the vocabulary out.

    With ``head="tokens"`` the logits are those of the classes of each position, with ``head="sequence"`` those
    of the classes of each sequence.

    Taps: those of `Stack`, and `logits` (batch position vocab; batch position label; batch label).

    >>> from measured_transformer.models.config import Config
    >>> import torch
    >>> model = Encoder(Config(vocab=10, d_model=16, n_layers=1, n_heads=2))
    >>> model(torch.tensor([[1, 2, 3]])).shape
    torch.Size([1, 3, 10])
    """

    def __init__(self, config: Config) -> None:
        """Draw fresh weights."""
        check_config(config)
        super().__init__(config, causal=False)
        self.pooler = (
            Pooler(config.d_model, activation=config.pooler_activation) if config.pooler else None
        )
        self.head_layer = make_head_layer(config)
        self.unembedding = make_unembedding(config)
        self.classifier = make_classifier(config)
        self.logits = Tap()
        initialise(self, config)
        if config.tie_embeddings and self.unembedding is not None:
            self.unembedding.weight = self.token_embedding.weight

    def forward(
        self,
        tokens: Int[Tensor, "batch position"],
        *,
        padding_mask: Bool[Tensor, "..."] | None = None,
        positions: Int[Tensor, "..."] | None = None,
        token_types: Int[Tensor, "..."] | None = None,
    ) -> Float[Tensor, "batch ..."]:
        """Logits of each position's answer (batch, position, vocab), or with `config.head == "none"` its state.

        With "tokens" and "sequence" the logits of classes, see `classify`.

        Args:
            tokens: token numbers below `config.vocab`.
            padding_mask: (batch, position), True for real tokens, False for padding.
            positions: (batch, position), where they should not be counted from the real tokens.
            token_types: (batch, position), each token's type below `config.token_types`.

        Raises:
            ValueError: when shapes, kinds or values do not fit; see `Stack.stream`.
        """
        resolved = self.resolve_positions(
            tokens, padding_mask=padding_mask, positions=positions, token_types=token_types
        )
        x, rotation, score_bias = self.embed(tokens, resolved, token_types)
        x = self.run_blocks(x, resolved, rotation, score_bias)
        return self.unembed(x)

    def unembed(self, x: Float[Tensor, "batch position d_model"]) -> Tensor:
        """The logits of a state of the stream: final norm, head, unembedding.

        With `config.head == "none"` the final state itself; with "tokens" and "sequence" the logits of classes.
        """
        state = self.apply_final_norm(x)
        if self.config.head in ("tokens", "sequence"):
            return self.logits(self.classify(state))
        if self.unembedding is None:
            return state
        if self.head_layer is not None:
            state = self.head_layer(state)
        logits = self.unembedding(scaled(state, self.config.logit_scale))
        return self.logits(capped(logits, self.config.logit_cap))

    def pool(
        self, final_state: Float[Tensor, "batch position d_model"]
    ) -> Float[Tensor, "batch d_model"]:
        """One vector for each sequence, from its final state at the first position.

        The final state is what the tap `final_state` shows, and what the model returns when it has no head.

        Raises:
            ValueError: when the model has no pooler.
        """
        if self.pooler is None:
            raise ValueError("this model has no pooler: make it with Config(pooler=True)")
        return self.pooler(final_state)

    def classify(
        self, final_state: Float[Tensor, "batch position d_model"]
    ) -> Float[Tensor, "batch *position label"]:
        """Logits of the classes: with ``head="tokens"`` of each position, else of each sequence.

        Those of a sequence are read from what `pool` gives. A model with ``head="mlm"`` and two labels answers
        both of BERT's questions: which tokens were hidden, and whether the second sentence follows the first.

        Raises:
            ValueError: when the model has no classes.
        """
        if self.classifier is None:
            raise ValueError("this model has no classes: make it with Config(head=..., labels=...)")
        if self.config.head == "tokens":
            return self.classifier(final_state)
        return self.classifier(self.pool(final_state))

    def save(self, folder: str | Path) -> Path:
        """Write config and weights to a folder, from which `models.saving.load` makes this model again."""
        from measured_transformer.models.saving import save

        return save(self, folder)
