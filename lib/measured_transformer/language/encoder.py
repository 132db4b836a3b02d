"""An encoder with its tokenizer: texts in, the states of their tokens or one vector for each text out.

>>> from measured_transformer.models.config import Config
>>> config = Config(vocab=256, d_model=32, n_layers=2, head="none")
>>> encoder = TextEncoder(Encoder(config), Tokenizer.of_bytes())
>>> encoder("Hi!").shape, encoder.vectors(["Hi!", "Hello"]).shape
(torch.Size([1, 3, 32]), torch.Size([2, 32]))
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn import functional as F

from measured_transformer.inference.generate import evaluating
from measured_transformer.interop.huggingface import from_huggingface
from measured_transformer.interop.tokenizer import Tokenizer
from measured_transformer.language.reading import Reader, Texts
from measured_transformer.models.encoder import Encoder


class TextEncoder(Reader, Encoder):
    """An `Encoder` that reads texts as well as tokens. Its weights are those of the encoder, not copies.

    Attributes:
        tokenizer: cuts texts into tokens.
        context: the largest number of tokens that the model was made for; longer texts are refused.
        about: where the weights come from, in a few words.
    """

    def __init__(
        self,
        model: Encoder,
        tokenizer: Tokenizer,
        *,
        context: int | None = None,
        about: str = "",
    ) -> None:
        """Put a model and its tokenizer together; as for `LanguageModel`.

        Raises:
            ValueError: when the model is no encoder, has fewer tokens than the tokenizer, or the context is no
                positive number.
        """
        if not isinstance(model, Encoder):
            raise ValueError(f"expected an Encoder, got {type(model).__name__}")
        self._share(model, model.config, tokenizer, context, about)
        self._whole = [model]  # in a list: no part of this one, so that names stay as they are

    @classmethod
    def from_huggingface(
        cls, folder: str | Path, *, dtype: torch.dtype | None = None
    ) -> TextEncoder:
        """The model and the tokenizer of a local folder of the Hugging Face format.

        Raises:
            FileNotFoundError, ImportError, ValueError: as `interop.from_huggingface` and
                `Tokenizer.from_huggingface`.
        """
        model = from_huggingface(folder, dtype=dtype)
        tokenizer = Tokenizer.from_huggingface(folder)
        return cls(model, tokenizer, about=Path(folder).name)  # type: ignore[arg-type]

    @property
    def model(self) -> Encoder:
        """The encoder, which takes tokens alone."""
        return self._whole[0]

    def __repr__(self) -> str:
        """Where the weights come from, and the sizes."""
        return f"TextEncoder({self.about + '; ' if self.about else ''}{self._sizes()})"

    def forward(
        self,
        tokens: Texts | Int[Tensor, "batch position"],
        *,
        padding_mask: Bool[Tensor, "..."] | None = None,
        positions: Int[Tensor, "..."] | None = None,
        token_types: Int[Tensor, "..."] | None = None,
    ) -> Float[Tensor, "batch position _"]:
        """What the encoder gives at each position: its final states, or logits where it has a head.

        Args:
            tokens: a text, several texts, or tokens as for an `Encoder`. Texts of different lengths are filled
                up on the left; `batch` tells where.
            padding_mask, positions, token_types: as for an `Encoder`; `padding_mask` with tokens alone.

        Raises:
            ValueError: when a text has no token or more than `context`; and as `Encoder`.
        """
        read, real = self._read(tokens, padding_mask)
        states: Tensor = self.model(
            read, padding_mask=real, positions=positions, token_types=token_types
        )
        return states

    def vectors(self, texts: Sequence[str]) -> Float[Tensor, "text d_model"]:
        """One vector for each text, of length one: the mean of its tokens' final states.

        That is what sentence encoders such as all-MiniLM are trained for: the product of two vectors says how
        alike their texts are. Of a model that was not, it is a mean and no more.

        Raises:
            ValueError: when the encoder has a head, which takes the place of the final states; when there is no
                text, or one has no token or more than `context`.
        """
        if self.config.head != "none":
            raise ValueError(
                f"vectors are made of final states, and this encoder has a head ({self.config.head!r})"
            )
        if isinstance(texts, str):
            raise ValueError(f"expected a list of texts, got one text: [{texts!r:.50}]")
        tokens, real = self.batch(texts)
        with evaluating(self.model), torch.no_grad():
            states = self.model(tokens, padding_mask=real)
        shares = torch.ones_like(tokens) if real is None else real
        summed = (states * shares[:, :, None].to(states)).sum(dim=1)
        return F.normalize(summed, dim=-1)
