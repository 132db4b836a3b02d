"""What models with a tokenizer share: they cut texts into tokens, and hold the parts of another model."""

from __future__ import annotations

from collections.abc import Sequence
from numbers import Integral
from pathlib import Path

from jaxtyping import Bool, Int
from torch import Tensor, nn

from measured_transformer.inference.prompts import left_padded
from measured_transformer.interop.tokenizer import Tokenizer
from measured_transformer.language.shown import Tokens
from measured_transformer.models.config import Config

Texts = str | Sequence[str]
"""One text or several."""
_PARTS = ("_parameters", "_buffers", "_modules", "_non_persistent_buffers_set", "training")


class Reader(nn.Module):
    """A model that reads texts: it shares the parts of another, under the same names, and has a tokenizer.

    Attributes:
        tokenizer: cuts the texts.
        context: the largest number of tokens that the model reads at once; None where it knows no limit.
        about: where the weights come from, in a few words.
    """

    config: Config
    tokenizer: Tokenizer
    context: int | None
    about: str

    def _share(
        self,
        model: nn.Module,
        config: Config,
        tokenizer: Tokenizer,
        context: int | None,
        about: str,
    ) -> None:
        """Hold the parts and settings of a model, and what belongs to texts.

        Raises:
            ValueError: when the tokenizer has more tokens than the model, or the context is no positive number.
        """
        nn.Module.__init__(self)
        own = set(vars(self))
        for name, value in vars(model).items():
            if name not in own or name in _PARTS:
                vars(self)[name] = value
        if len(tokenizer) > config.vocab:
            raise ValueError(
                f"the tokenizer has {len(tokenizer)} tokens and the model only {config.vocab}: they do not "
                "belong together"
            )
        if context is None and config.positions == "learned":
            context = config.max_length
        if context is not None and (not isinstance(context, Integral) or context < 1):
            raise ValueError(f"context must be a positive whole number or None, got {context!r}")
        self.tokenizer, self.context, self.about = tokenizer, context, about

    def save(self, folder: str | Path) -> Path:
        """Write config, weights and tokenizer to a folder, from which `load` makes this model again."""
        from measured_transformer.language.saving import save

        return save(self, folder)

    def encode(self, text: str) -> Int[Tensor, "1 position"]:
        """The tokens of a text, by number, where the model is.

        Raises:
            ValueError: when the text has no token, or more than the model reads at once.
        """
        return self.batch([text])[0]

    def batch(
        self, texts: Sequence[str]
    ) -> tuple[Int[Tensor, "batch position"], Bool[Tensor, "batch position"] | None]:
        """The tokens of several texts, filled up on the left, and where they are real; None: everywhere.

        The last position is the end of every text. What fills up is seen by nobody, and moves no token.

        Raises:
            ValueError: when there is no text, or one has no token or more than the model reads at once.
        """
        return self._pad([self._cut(text) for text in texts])

    def tokens(self, text: str) -> Tokens:
        """The tokens of a text as strings, with their spaces."""
        return Tokens(self.tokenizer.tokens(text))

    def token(self, string: str) -> int:
        """The number of the token that a string is, with its space: `token(" Paris")`.

        Raises:
            ValueError: when the string takes several tokens or none; the message shows them.
        """
        return self.tokenizer.token(string)

    def where(self, text: str, word: str, *, which: int | None = None) -> list[int]:
        """The positions of the tokens that a word of a text is made of; see `Tokenizer.positions`.

        Raises:
            ValueError: when the word does not stand in the text, or stands there more often and `which` is not
                given.
        """
        return self.tokenizer.positions(text, word, which=which)

    def _cut(self, text: str, *, special: bool = True) -> list[int]:
        if not isinstance(text, str):
            raise ValueError(f"expected a text, got {type(text).__name__}")
        found = self.tokenizer.encode(text, special=special)
        if not found:
            raise ValueError(f"expected a text of at least one token, got {text!r}")
        self._check_length(len(found))
        return found

    def _check_length(self, length: int, new: int = 0) -> None:
        if self.context is None or length + new <= self.context:
            return
        more = f" and {new} new ones" if new else ""
        raise ValueError(
            f"this model reads at most {self.context} tokens at once, got {length}{more}: give it a shorter "
            "text" + (" or a smaller max_new_tokens" if new else "")
        )

    def _pad(
        self, rows: Sequence[Sequence[int]]
    ) -> tuple[Int[Tensor, "batch position"], Bool[Tensor, "batch position"] | None]:
        device = next(self.parameters()).device
        return left_padded(rows, vocab=self.config.vocab, device=device)

    def _read(
        self, given: Texts | Tensor, padding_mask: Tensor | None
    ) -> tuple[Tensor, Tensor | None]:
        """Tokens and the mask of real ones, from texts or from tokens."""
        if isinstance(given, Tensor):
            if given.ndim == 2:
                self._check_length(given.shape[1])
            return given, padding_mask
        if padding_mask is not None:
            raise ValueError("texts bring their own padding_mask: give one with tokens alone")
        if not isinstance(given, str | Sequence):
            raise ValueError(f"expected a text, texts or tokens, got {type(given).__name__}")
        return self.batch([given] if isinstance(given, str) else given)

    def _sizes(self) -> str:
        c = self.config
        reach = "" if self.context is None else f", context {self.context:,}"
        vocab = f"{len(self.tokenizer):,} tokens"
        return f"{c.n_layers} blocks, width {c.d_model}, {c.n_heads} heads, {vocab}{reach}"
