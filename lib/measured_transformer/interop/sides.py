"""One side of an encoder-decoder as a model of its own, with the other side's tokens held fixed.

Instruments of attribution, lenses and patching take one sequence of tokens; an `EncoderDecoder` takes two. So
it has to be said which of the two is asked about, and the other one is given beforehand. A side shares its
parts, and so its weights, with the model that it was made of; its taps are called as those of a `Decoder` or
an `Encoder`.

- `SourceSide`: on which tokens of the source does an answer depend?
- `TargetSide`: on which tokens written so far, and what can be read from the decoder's stream?
"""

from __future__ import annotations

from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from measured_transformer.models.cache import KeyValueCache
from measured_transformer.models.decoder import Decoder
from measured_transformer.models.encoder import Encoder
from measured_transformer.models.encoder_decoder import EncoderDecoder
from measured_transformer.models.stack import Stack

_PARTS = (
    *("token_embedding", "embedding_scale", "positions", "rotary", "relative"),
    *("token_type_embedding", "embedding_norm", "embedding_dropout", "embedding"),
    *("blocks", "layer_rotary", "_rotary_of", "final_norm", "final_state", "causal"),
)


class TargetSide(Decoder):
    """The writing side of an encoder-decoder: a language model that has read one source.

    Tokens written so far in, for each of them the logits of the next one out. Its taps are those of a `Decoder`
    whose blocks have `cross_attention` as well. The source is read once, when the side is made.

    >>> import torch
    >>> from measured_transformer.models.config import Config
    >>> model = EncoderDecoder(Config(vocab=10, d_model=16, n_layers=1, n_heads=2))
    >>> source, target = torch.tensor([[1, 2, 3, 4]]), torch.tensor([[5, 6]])
    >>> side = TargetSide(model, source)
    >>> bool(torch.equal(side(target), model(source, target)))
    True
    """

    def __init__(
        self,
        model: EncoderDecoder,
        source: Int[Tensor, "row source"],
        *,
        source_padding_mask: Bool[Tensor, "row source"] | None = None,
    ) -> None:
        """Read the source.

        Args:
            model: the whole; is left as it is, and its decoder's parts are shared.
            source: one row for all sequences that will be written, or a row for each.
            source_padding_mask: True for real tokens of the source.
        """
        nn.Module.__init__(self)
        self.config = model.config.of_decoder()
        _share(self, model.decoder)
        self.head_layer, self.unembedding = None, model.unembedding
        self.logits, self.training = model.logits, model.training
        self.memory = model.encode(source, padding_mask=source_padding_mask).detach()
        self.memory_padding_mask = source_padding_mask

    def forward(
        self,
        tokens: Int[Tensor, "batch position"],
        *,
        padding_mask: Bool[Tensor, "..."] | None = None,
        positions: Int[Tensor, "..."] | None = None,
        cache: KeyValueCache | None = None,
    ) -> Float[Tensor, "batch position vocab"]:
        """Logits of the next token at each position, as `Decoder` has them.

        Raises:
            ValueError: when there are several rows of the source, but not as many as of tokens; and as
                `Decoder`.
        """
        if cache is not None:
            raise ValueError("a side keeps no keys and values: decode with the whole model's cache")
        mask = self.memory_padding_mask
        x = self.stream(
            tokens,
            padding_mask=padding_mask,
            positions=positions,
            memory=_for_each(self.memory, len(tokens), "source"),
            memory_padding_mask=None if mask is None else _for_each(mask, len(tokens), "source"),
        )
        return self.unembed(x)


class SourceSide(Encoder):
    """The reading side of an encoder-decoder, in front of one target: tokens of the source in, answers out.

    The logits belong to the positions of the *target*: `answer_logit(-1, ...)` explains what comes after its
    last token. Taps are those of an `Encoder`, and under `writer` those of the decoder.

    >>> import torch
    >>> from measured_transformer.models.config import Config
    >>> model = EncoderDecoder(Config(vocab=10, d_model=16, n_layers=1, n_heads=2))
    >>> source, target = torch.tensor([[1, 2, 3, 4]]), torch.tensor([[5, 6]])
    >>> side = SourceSide(model, target)
    >>> bool(torch.equal(side(source), model(source, target)))
    True
    """

    def __init__(self, model: EncoderDecoder, target: Int[Tensor, "row target"]) -> None:
        """Keep the target.

        Args:
            model: the whole; is left as it is, and its parts are shared.
            target: what the decoder has written, its start token first: one row for all sequences that will be
                read, or a row for each.
        """
        nn.Module.__init__(self)
        self.config = model.config
        _share(self, model.encoder)
        self.writer = model.decoder
        self.pooler, self.head_layer, self.classifier = None, None, None
        self.unembedding = model.unembedding
        self.logits, self.training = model.logits, model.training
        self.target, self._whole = target, [model]  # in a list: no part of this one

    def forward(
        self,
        tokens: Int[Tensor, "batch position"],
        *,
        padding_mask: Bool[Tensor, "..."] | None = None,
        positions: Int[Tensor, "..."] | None = None,
        token_types: Int[Tensor, "..."] | None = None,
    ) -> Float[Tensor, "batch target vocab"]:
        """Logits of the next target token at each target position.

        Raises:
            ValueError: when there are several rows of the target, but not as many as of tokens; when
                `token_types` are given; and as `Encoder`.
        """
        if token_types is not None:
            raise ValueError("the source of an encoder-decoder has no token types")
        x = self.stream(tokens, padding_mask=padding_mask, positions=positions)
        return self._whole[0].decode(
            _for_each(self.target, len(tokens), "target"),
            self.apply_final_norm(x),
            memory_padding_mask=padding_mask,
        )

    def unembed(self, x: Float[Tensor, "batch position d_model"]) -> Tensor:
        """Raise an error: no logits are read from this stream.

        Raises:
            ValueError: always.
        """
        raise ValueError(
            "the stream of the source is read by cross-attention, and no unembedding belongs to it: for a "
            "lens take the TargetSide; to ask what the source's states hold, fit a probe (analysis.readers) or "
            "patch them (analysis.patching)"
        )


def _share(side: Stack, stack: Stack) -> None:
    """Give a side the parts of a stack."""
    for name in _PARTS:
        setattr(side, name, getattr(stack, name))


def _for_each(rows: Tensor, count: int, what: str) -> Tensor:
    """Repeat one row for each sequence."""
    if len(rows) not in (1, count):
        raise ValueError(
            f"expected one row of the {what} for all sequences or one for each of {count}, got {len(rows)}"
        )
    return rows.expand(count, *rows.shape[1:])
