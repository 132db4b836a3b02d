"""Encoder-decoder: one stack reads the source, the other writes the target and looks into the first."""

from __future__ import annotations

from pathlib import Path

from jaxtyping import Bool, Float, Int
from torch import Tensor

from measured_transformer.models.cache import KeyValueCache
from measured_transformer.models.checks import check_config
from measured_transformer.models.config import Config
from measured_transformer.models.head import capped, make_unembedding, refuse_classes, scaled
from measured_transformer.models.stack import Stack, initialise
from measured_transformer.parts.part import Part
from measured_transformer.parts.tap import Tap


class EncoderDecoder(Part):
    """Source and target tokens in, for each target position the logits of the next target token out.

    One vocabulary serves both sides, and as in Vaswani et al. (2017) and T5 one embedding matrix, unless
    `config.shared_embedding` is False.

    Taps: those of `Stack` under `encoder` and `decoder`, the decoder's blocks with `cross_attention`; `logits`
    (batch position vocab).

    >>> from measured_transformer.models.config import Config
    >>> import torch
    >>> model = EncoderDecoder(Config(vocab=10, d_model=16, n_layers=1, n_heads=2))
    >>> model(torch.tensor([[1, 2, 3, 4]]), torch.tensor([[5, 6]])).shape
    torch.Size([1, 2, 10])
    """

    def __init__(self, config: Config) -> None:
        """Draw fresh weights.

        Raises:
            ValueError: when the config asks for what only an `Encoder` has.
        """
        check_config(config)
        refuse_classes(config, "an EncoderDecoder")
        if config.pooler or config.head == "mlm" or config.token_types:
            raise ValueError(
                "pooler, head='mlm' and token_types are for Encoder, got "
                f"pooler={config.pooler}, head={config.head!r}, token_types={config.token_types}"
            )
        super().__init__()
        self.config = config
        self.encoder = Stack(config, causal=False)
        other = config.n_decoder_heads is not None or config.d_decoder_ff is not None
        self.decoder = Stack(
            config.of_decoder() if other else config,
            causal=True,
            n_layers=config.decoder_layers,
            cross_attention=True,
        )
        self.unembedding = make_unembedding(config)
        self.logits = Tap()
        initialise(self, config)
        if config.shared_embedding:
            self.decoder.token_embedding.weight = self.encoder.token_embedding.weight
        if config.tie_embeddings and self.unembedding is not None:
            self.unembedding.weight = self.decoder.token_embedding.weight

    def forward(
        self,
        source: Int[Tensor, "batch source"],
        target: Int[Tensor, "batch target"],
        *,
        source_padding_mask: Bool[Tensor, "..."] | None = None,
        target_padding_mask: Bool[Tensor, "..."] | None = None,
        source_positions: Int[Tensor, "..."] | None = None,
        target_positions: Int[Tensor, "..."] | None = None,
        cache: KeyValueCache | None = None,
    ) -> Float[Tensor, "batch target vocab"]:
        """Logits of the next target token at each target position.

        Args:
            source: tokens that the encoder reads.
            target: tokens that the decoder has written so far, its start token first; with a cache, those
                that come next.
            source_padding_mask, target_padding_mask: shaped like the tokens, True for real ones.
            source_positions, target_positions: shaped like the tokens, where positions should not be counted
                from the real ones.
            cache: from `make_cache`; the source is read in the first call with it and then kept.

        Raises:
            ValueError: when shapes, kinds or values do not fit; see `Stack.stream`.
        """
        if cache is None or cache.memory is None:
            memory = self.encode(
                source, padding_mask=source_padding_mask, positions=source_positions
            )
        else:
            memory = cache.memory
        return self.decode(
            target,
            memory,
            padding_mask=target_padding_mask,
            positions=target_positions,
            memory_padding_mask=source_padding_mask,
            cache=cache,
        )

    def encode(
        self,
        source: Int[Tensor, "batch source"],
        *,
        padding_mask: Bool[Tensor, "..."] | None = None,
        positions: Int[Tensor, "..."] | None = None,
    ) -> Float[Tensor, "batch source d_model"]:
        """The encoder's final state: the memory that the decoder reads."""
        x = self.encoder.stream(source, padding_mask=padding_mask, positions=positions)
        return self.encoder.apply_final_norm(x)

    def decode(
        self,
        target: Int[Tensor, "batch target"],
        memory: Float[Tensor, "batch source d_model"],
        *,
        padding_mask: Bool[Tensor, "..."] | None = None,
        positions: Int[Tensor, "..."] | None = None,
        memory_padding_mask: Bool[Tensor, "..."] | None = None,
        cache: KeyValueCache | None = None,
    ) -> Float[Tensor, "batch target vocab"]:
        """Logits of the next target token, from a memory; with `config.head == "none"` the final state.

        The memory's keys and values are projected in the first call with a cache and then kept.
        """
        if cache is not None:
            cache.memory = memory
        x = self.decoder.stream(
            target,
            padding_mask=padding_mask,
            positions=positions,
            memory=memory,
            memory_padding_mask=memory_padding_mask,
            cache=cache,
        )
        return self.unembed(x)

    def unembed(self, x: Float[Tensor, "batch target d_model"]) -> Tensor:
        """The logits of a state of the decoder's stream: final norm, unembedding."""
        state = self.decoder.apply_final_norm(x)
        if self.unembedding is None:
            return state
        logits = self.unembedding(scaled(state, self.config.logit_scale))
        return self.logits(capped(logits, self.config.logit_cap))

    def make_cache(self, capacity: int = 0) -> KeyValueCache:
        """An empty cache for the decoder, with room for `capacity` target positions at first."""
        return self.decoder.make_cache(capacity)

    def save(self, folder: str | Path) -> Path:
        """Write config and weights to a folder, from which `models.saving.load` makes this model again."""
        from measured_transformer.models.saving import save

        return save(self, folder)
