"""A language model: a `Decoder` with its tokenizer, which reads and writes texts.

>>> from measured_transformer.models.config import Config
>>> config = Config(vocab=256, d_model=32, n_layers=2, positions="rotary")
>>> lm = LanguageModel(Decoder(config), Tokenizer.of_bytes(), about="fresh weights")
>>> lm
LanguageModel(fresh weights; 2 blocks, width 32, 4 heads, 256 tokens)
>>> lm.tokens("Hi!")
['H', 'i', '!']
>>> lm("Hi!").shape
torch.Size([1, 3, 256])
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import overload

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from measured_transformer.inference.beams import BeamSearch
from measured_transformer.inference.generate import Greedy, evaluating, generate
from measured_transformer.inference.sampling import Sampling
from measured_transformer.inference.speculative import Speculative
from measured_transformer.interop.gguf_file import GGUFFile
from measured_transformer.interop.gguf_models import from_gguf
from measured_transformer.interop.huggingface import from_huggingface
from measured_transformer.interop.tokenizer import Messages, Tokenizer
from measured_transformer.language.reading import Reader, Texts
from measured_transformer.language.shown import Likely, Top
from measured_transformer.models.cache import KeyValueCache
from measured_transformer.models.decoder import Decoder

Strategy = Greedy | Sampling | BeamSearch | Speculative


class LanguageModel(Reader, Decoder):
    """A `Decoder` that reads texts as well as tokens. Its weights are those of the decoder, not copies.

    All that takes a decoder takes it: `capture`, `intervene`, `generate` and the instruments of `analysis`.

    Attributes:
        tokenizer: cuts texts into tokens.
        context: the largest number of tokens that the model was made for; longer texts are refused. None: no
            limit is known.
        about: where the weights come from, in a few words, such as 'instruct, 4 bits (Q4_1)'.
    """

    def __init__(
        self,
        model: Decoder,
        tokenizer: Tokenizer,
        *,
        context: int | None = None,
        about: str = "",
    ) -> None:
        """Put a model and its tokenizer together.

        Args:
            model: shares its parts with the result.
            tokenizer: the one that the model was trained with; nothing tells when it is another one.
            context: see above; as far as learned positions reach when not given.
            about: see above.

        Raises:
            ValueError: when the model is no decoder with logits, has fewer tokens than the tokenizer, or the
                context is no positive number.
        """
        if not isinstance(model, Decoder) or model.config.head == "none":
            raise ValueError(
                f"expected a Decoder with logits, got {type(model).__name__}: only a model that predicts the "
                "next token is a language model"
            )
        self._share(model, model.config, tokenizer, context, about)
        self._whole = [model]  # in a list: no part of this one, so that names stay as they are

    @classmethod
    def from_gguf(
        cls, path: str | Path, *, dtype: torch.dtype | None = None, name: str | None = None
    ) -> LanguageModel:
        """The model and the tokenizer of a GGUF file; `about` says how many bits its weights have.

        Args:
            path: the file.
            dtype: of the model's numbers; float32 when not given.
            name: what the model is called; what the file says when not given.

        Raises:
            FileNotFoundError, ImportError, ValueError: as `interop.from_gguf` and `Tokenizer.from_gguf`.
        """
        file = GGUFFile(path)
        model = from_gguf(file, dtype=dtype)
        reach = file.metadata.get(f"{file.architecture}.context_length")
        name = name or file.metadata.get("general.name") or file.path.stem
        about = f"{name}, {file.precision}"
        return cls(model, Tokenizer.from_gguf(file), context=reach, about=about)  # type: ignore[arg-type]

    @classmethod
    def from_huggingface(
        cls, folder: str | Path, *, dtype: torch.dtype | None = None
    ) -> LanguageModel:
        """The model and the tokenizer of a local folder of the Hugging Face format.

        Args:
            folder: with `config.json`, safetensors and `tokenizer.json`.
            dtype: of the model's numbers; that of the checkpoint when not given.

        Raises:
            FileNotFoundError, ImportError, ValueError: as `interop.from_huggingface` and
                `Tokenizer.from_huggingface`.
        """
        model = from_huggingface(folder, dtype=dtype)
        tokenizer = Tokenizer.from_huggingface(folder)
        about, reach = Path(folder).name, model.config.max_length
        return cls(model, tokenizer, context=reach, about=about)  # type: ignore[arg-type]

    @property
    def model(self) -> Decoder:
        """The decoder, which takes tokens alone."""
        return self._whole[0]

    def __repr__(self) -> str:
        """Where the weights come from, and the sizes."""
        return f"LanguageModel({self.about + '; ' if self.about else ''}{self._sizes()})"

    def forward(
        self,
        tokens: Texts | Int[Tensor, "batch position"],
        *,
        padding_mask: Bool[Tensor, "..."] | None = None,
        positions: Int[Tensor, "..."] | None = None,
        cache: KeyValueCache | None = None,
    ) -> Float[Tensor, "batch position vocab"]:
        """Logits of the next token at each position.

        Args:
            tokens: a text, several texts, or tokens as for a `Decoder`. Texts of different lengths are filled
                up on the left, so that the last position is the end of each.
            padding_mask, positions, cache: as for a `Decoder`; `padding_mask` with tokens alone.

        Raises:
            ValueError: when a text has no token or more than `context`; and as `Decoder`.
        """
        read, real = self._read(tokens, padding_mask)
        logits: Tensor = self.model(read, padding_mask=real, positions=positions, cache=cache)
        return logits

    def top(self, text: str, k: int = 5, *, position: int = -1) -> Top:
        """The likeliest next tokens after a text, with their probabilities.

        Interventions on this model apply, so that what they change can be read in words.

        Args:
            text: what the model reads.
            k: how many tokens.
            position: after which token of the text; after all of it when not given.

        Raises:
            ValueError: when `k` is no positive number, the text has no such position, no token, or too many.
        """
        tokens = self.encode(text)
        if not -tokens.shape[1] <= position < tokens.shape[1]:
            raise ValueError(
                f"the text has {tokens.shape[1]} tokens, from 0 to {tokens.shape[1] - 1}, got "
                f"position={position}"
            )
        with evaluating(self.model), torch.no_grad():
            logits = self(tokens)[0, position]
        return self.likeliest(logits, k)

    def likeliest(self, logits: Float[Tensor, "vocab"], k: int = 5) -> Top:
        """The tokens with the highest logits, such as those of a lens, and their probabilities.

        Raises:
            ValueError: when `k` is no positive number.
        """
        if isinstance(k, bool) or not isinstance(k, int) or k < 1:
            raise ValueError(f"k must be a positive whole number, got {k!r}")
        probabilities = logits.detach().float().softmax(dim=-1)
        best = probabilities.topk(min(k, len(probabilities)))
        return Top(
            Likely(self.tokenizer.string(number), probability, number)
            for probability, number in zip(best.values.tolist(), best.indices.tolist(), strict=True)
        )

    def loss(self, text: str) -> float:
        """The mean surprise of the model at each token of a text after the first, in nats.

        Raises:
            ValueError: when the text has fewer than two tokens, or too many.
        """
        tokens = self.encode(text)
        if tokens.shape[1] < 2:
            raise ValueError(f"expected a text of at least two tokens, got {text!r}")
        with evaluating(self.model), torch.no_grad():
            log_probs = self(tokens)[0, :-1].float().log_softmax(dim=-1)
        return -float(log_probs.gather(-1, tokens[0, 1:, None]).mean())

    @overload  # a text is a sequence of texts to Python, not to a reader
    def generate(  # type: ignore[overload-overlap]
        self, text: str, max_new_tokens: int = ..., *, strategy: Strategy | None = ...
    ) -> str: ...

    @overload
    def generate(
        self, text: Sequence[str], max_new_tokens: int = ..., *, strategy: Strategy | None = ...
    ) -> list[str]: ...

    def generate(
        self, text: Texts, max_new_tokens: int = 50, *, strategy: Strategy | None = None
    ) -> str | list[str]:
        """What the model writes after a text, without the text itself; it ends where the model ends it.

        Args:
            text: what is continued, or several texts.
            max_new_tokens: the largest number of tokens to write.
            strategy: `Greedy()` (when not given), `Sampling(generator, ...)`, `BeamSearch(...)` or
                `Speculative(draft, ...)`.

        Returns:
            The new text, or a list with one for each text.

        Raises:
            ValueError: when a text has no token, or the tokens together are more than `context`; and as
                `inference.generate`.
        """
        rows = [self._cut(one) for one in ([text] if isinstance(text, str) else text)]
        written = self._write(rows, max_new_tokens, strategy)
        return written[0] if isinstance(text, str) else written

    def chat(
        self, messages: Messages, max_new_tokens: int = 200, *, strategy: Strategy | None = None
    ) -> str:
        """The model's answer in a conversation, as far as it was trained on conversations.

        Args:
            messages: what the user says, or messages such as {'role': 'user', 'content': 'Hello'}.
            max_new_tokens: the largest number of tokens to write.
            strategy: as for `generate`.

        Raises:
            ImportError: when the package `jinja2` is missing.
            ValueError: when the model has no chat template, or it refuses the messages; when they are longer
                than `context`.
        """
        text = self.tokenizer.chat(messages)  # holds the token of the beginning where there is one
        rows = [self._cut(text, special=False)]
        return self._write(rows, max_new_tokens, strategy)[0].strip()

    def _write(
        self, rows: Sequence[Sequence[int]], max_new_tokens: int, strategy: Strategy | None
    ) -> list[str]:
        self._check_length(max(map(len, rows), default=0), max_new_tokens)
        done = generate(
            self.model,
            rows,
            max_new_tokens=max_new_tokens,
            strategy=strategy,
            stop=self.tokenizer.stop,
        )
        return [self.tokenizer.decode(tokens.tolist()) for tokens in done.tokens]
