"""A model in the middle of its texts."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from measured_transformer.inference.prompts import Prompts, left_padded, whole_numbers
from measured_transformer.inference.step import flat_layers, one_step
from measured_transformer.models.cache import KeyValueCache
from measured_transformer.models.decoder import Decoder
from measured_transformer.models.encoder_decoder import EncoderDecoder


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
        self.stack = model.decoder if isinstance(model, EncoderDecoder) else model
        self.layers = flat_layers(self.stack)
        self.memory: Float[Tensor, "row source d_model"] | None = None
        self.memory_real: Bool[Tensor, "row source"] | None = None
        if isinstance(model, EncoderDecoder):
            if start is None:
                raise ValueError(
                    "an EncoderDecoder reads the prompts with its encoder; its decoder needs a start "
                    "token to begin with: give start (0 for T5)"
                )
            first = whole_numbers("start", start).reshape(-1)
            self.source, self.memory_real = tokens, real
            tokens, real = left_padded([first] * len(tokens), vocab=vocab, device=device)
        elif start is not None:
            raise ValueError(
                f"start is for an EncoderDecoder, got {start!r}; a Decoder's text begins with its prompt"
            )
        length = tokens.shape[1] + max_new_tokens - 1  # the last new token is never read
        check_reach(model, int(tokens.shape[1]), length)
        self.tokens, self.real, self.chunk = tokens, real, chunk
        self.cache: KeyValueCache = model.make_cache(length)

    @property
    def rows(self) -> int:
        """Number of texts."""
        return len(self.tokens)

    def begin(self) -> Float[Tensor, "row vocab"]:
        """Read the prompts, `chunk` positions at a time, and give the logits of the first new token."""
        if isinstance(self.model, EncoderDecoder):
            self.memory = self.model.encode(self.source, padding_mask=self.memory_real)
        n = self.tokens.shape[1]
        size = n if self.chunk is None else self.chunk
        for at in range(0, n, size):
            real = None if self.real is None else self.real[:, at : at + size]
            logits = self._read(self.tokens[:, at : at + size], real)
        return logits

    def next(self, tokens: Int[Tensor, "row"]) -> Float[Tensor, "row vocab"]:
        """Add one token to each text and give the logits of the one after it."""
        if self.layers is None:
            return self._read(tokens[:, None], None)
        stream = one_step(self.stack, self.layers, tokens, self.cache, self.memory_real)
        return self._logits(stream)

    def select(self, rows: Int[Tensor, "row"]) -> None:
        """Continue with these texts, in this order; one may come more than once."""
        self.cache.reorder(rows)
        if self.memory is not None:
            self.memory = self.memory[rows]
        if self.memory_real is not None:
            self.memory_real = self.memory_real[rows]

    def _read(self, tokens: Tensor, real: Tensor | None) -> Tensor:
        return self._logits(
            self.stack.stream(
                tokens,
                padding_mask=real,
                memory=self.memory,
                memory_padding_mask=self.memory_real,
                cache=self.cache,
            )
        )

    def _logits(self, stream: Tensor) -> Tensor:
        logits: Tensor = self.model.unembed(stream[:, -1:])[:, -1]
        # Sums of many small probabilities need more digits than half precision has.
        return logits.float() if logits.dtype in (torch.float16, torch.bfloat16) else logits


def check_reach(model: Decoder | EncoderDecoder, prompt: int, length: int) -> None:
    """Raise ValueError when learned positions do not reach as far as a prompt with its text."""
    reach = model.config.max_length
    if model.config.positions == "learned" and length > reach:
        raise ValueError(
            f"learned positions reach to {reach - 1}, got a longest prompt of {prompt} tokens and "
            f"max_new_tokens={length + 1 - prompt}; expected prompt + max_new_tokens <= {reach + 1}"
        )
