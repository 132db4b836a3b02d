"""A model in the middle of its texts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from measured_transformer.inference.prompts import Prompts, left_padded, whole_numbers
from measured_transformer.inference.reading import join_projections, last_logits
from measured_transformer.models.cache import KeyValueCache
from measured_transformer.models.decoder import Decoder
from measured_transformer.models.encoder_decoder import EncoderDecoder
from measured_transformer.parts.kernels.linear import chosen_kernel, linear
from measured_transformer.parts.kernels.packed import FastestMap
from measured_transformer.parts.light import light
from measured_transformer.parts.position_schemes import SCHEMES


class Writer:
    """Reads the prompts once, then takes one token for each row and gives the next logits.

    Attributes:
        cache: keys and values of all that was read and written.
    """

    def __init__(
        self,
        model: Decoder | EncoderDecoder,
        prompts: Prompts,
        *,
        start: int | Sequence[int] | None,
        max_new_tokens: int,
        chunk: int | None,
    ) -> None:
        """Check and align the prompts; the arguments are those of `generate`.

        Raises:
            ValueError: when a prompt does not fit, `start` is missing or not wanted, or learned positions do
                not reach far enough.
        """
        vocab, device = model.config.vocab, next(model.parameters()).device
        tokens, real = left_padded(prompts, vocab=vocab, device=device)
        self.model = model
        self.source: Int[Tensor, "row source"] | None = None
        self.source_real: Bool[Tensor, "row source"] | None = None
        if isinstance(model, EncoderDecoder):
            if start is None:
                raise ValueError(
                    "an EncoderDecoder reads the prompts with its encoder; its decoder needs a start "
                    "token to begin with: give start (0 for T5)"
                )
            first = whole_numbers("start", start).reshape(-1)
            self.source, self.source_real = tokens, real
            tokens, real = left_padded([first] * len(tokens), vocab=vocab, device=device)
        elif start is not None:
            raise ValueError(
                f"start is for an EncoderDecoder, got {start!r}; a Decoder's text begins with its prompt"
            )
        length = tokens.shape[1] + max_new_tokens - 1  # the last new token is never read
        check_reach(model, int(tokens.shape[1]), length)
        self.tokens, self.real, self.chunk = tokens, real, chunk
        self.cache: KeyValueCache = model.make_cache(length)
        self._joined_bytes, self._maps = 0, list[FastestMap]()
        self._light = light(model)
        self._prepared = False

    @property
    def rows(self) -> int:
        """Number of texts."""
        return len(self.tokens)

    @property
    def copied_bytes(self) -> int:
        """Bytes of the copies of weights that were made to write faster.

        They are of the projections that are computed by one product and, in `linear_kernel("fastest")`, of the
        maps that oneDNN has laid out (`parts.kernels.packed`).
        """
        return self._joined_bytes + sum(one.bytes for one in self._maps)

    def begin(self) -> Float[Tensor, "row vocab"]:
        """Read the prompts, `chunk` positions at a time, and give the logits of the first new token."""
        n = self.tokens.shape[1]
        size = n if self.chunk is None else self.chunk
        for at in range(0, n, size):
            real = None if self.real is None else self.real[:, at : at + size]
            logits = self._read(self.tokens[:, at : at + size], real)
        return logits

    def next(self, tokens: Int[Tensor, "row"]) -> Float[Tensor, "row vocab"]:
        """Add one token to each text and give the logits of the one after it."""
        if not self._prepared and not torch.is_grad_enabled():
            self._prepare(len(tokens))  # for a prompt alone it costs more than it saves
        return self._read(tokens[:, None], None)

    def select(self, rows: Int[Tensor, "row"]) -> None:
        """Continue with these texts, in this order; one may come more than once."""
        self.cache.reorder(rows)
        if self.source is not None:
            self.source = self.source[rows]
        if self.source_real is not None:
            self.source_real = self.source_real[rows]

    def _prepare(self, rows: int) -> None:
        """Make the copies of weights by which one token for each row is read faster."""
        self._prepared = True
        model = self.model
        stack = model.decoder if isinstance(model, EncoderDecoder) else model
        fastest = chosen_kernel() == "fastest"

        def joined(weight: Tensor, bias: Tensor | None) -> Callable[[Tensor], Tensor]:
            self._joined_bytes += weight.numel() * weight.element_size()
            return packing(weight, bias) if fastest else partial(linear, weight=weight, bias=bias)

        def packing(weight: Tensor, bias: Tensor | None) -> FastestMap:
            self._maps.append(FastestMap(weight, bias, rows))
            return self._maps[-1]

        join_projections(stack, self.cache, joined)
        if fastest:
            self._light = light(
                model, lambda part: None if part.wide else packing(part.weight, part.bias)
            )

    def _read(self, tokens: Tensor, real: Tensor | None) -> Tensor:
        logits = last_logits(
            self._light,
            tokens,
            padding_mask=real,
            source=self.source,
            source_padding_mask=self.source_real,
            cache=self.cache,
        )
        return logits[:, -1]


def check_reach(model: Decoder | EncoderDecoder, prompt: int, length: int) -> None:
    """Raise ValueError when learned positions do not reach as far as a prompt with its text."""
    reach = model.config.max_length
    if SCHEMES[model.config.positions].limited and length > reach:
        raise ValueError(
            f"learned positions reach to {reach - 1}, got a longest prompt of {prompt} tokens and "
            f"max_new_tokens={length + 1 - prompt}; expected prompt + max_new_tokens <= {reach + 1}"
        )
