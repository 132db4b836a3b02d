"""Tables of token vectors that are never trained."""

from __future__ import annotations

from dataclasses import dataclass

from measured_transformer.models.encoder_decoder import EncoderDecoder
from measured_transformer.training.loop import Model
from measured_transformer.variants.feedforward import FixedEmbeddings


@dataclass(frozen=True)
class FixedTables:
    """Freeze embedding and unembedding as drawn, and keep or remove the networks.

    Attributes:
        network: whether the blocks keep their feed-forward networks, with their norms.

    >>> from measured_transformer.models.config import Config
    >>> from measured_transformer.models.decoder import Decoder
    >>> model = Decoder(Config(vocab=4, d_model=8, n_heads=2, n_layers=1))
    >>> FixedTables()(model)
    >>> model.token_embedding.weight.requires_grad, model.blocks[0].feedforward.up.weight.requires_grad
    (False, True)
    """

    network: bool = True

    def __call__(self, model: Model) -> None:
        """Change the fresh model in place.

        Raises:
            ValueError: when the model is an encoder-decoder or has no unembedding.
        """
        if isinstance(model, EncoderDecoder) or model.unembedding is None:
            raise ValueError(f"expected a model with one unembedding, got {type(model).__name__}")
        FixedEmbeddings(self.network)(model)
        model.token_embedding.weight.requires_grad_(False)
        model.unembedding.weight.requires_grad_(False)
