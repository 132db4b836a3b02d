"""A tokenizer that comes with a checkpoint: text to tokens and back, tokens as strings, conversations as text.

It is read from a GGUF file, which holds it beside the weights, or from a folder of the Hugging Face format; one
that was trained with the package `tokenizers` can be wrapped. That package is imported when used.

>>> tokenizer = Tokenizer.of_bytes()
>>> tokenizer.encode("Köln")
[75, 195, 182, 108, 110]
>>> tokenizer.tokens("Köln")
['K', '<0xC3>', '<0xB6>', 'l', 'n']
>>> tokenizer.decode([75, 195, 182, 108, 110])
'Köln'
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, SupportsInt

from torch import Tensor

from measured_transformer.interop import gguf_tokenizer
from measured_transformer.interop.gguf_file import GGUFFile
from measured_transformer.interop.gguf_tokenizer import needed

if TYPE_CHECKING:
    from tokenizers import Tokenizer as Backend

Messages = str | Sequence[Mapping[str, str]]
"""A conversation: what the user says, or messages such as {'role': 'user', 'content': 'Hello'}."""


class Tokenizer:
    """Cuts texts into the tokens of a model and puts them together again.

    Attributes:
        backend: of the package `tokenizers`, which does the work.
        special: the numbers of special tokens by the names that chat templates give them: 'bos_token',
            'eos_token', 'unk_token', 'pad_token'.
        stop: the tokens that end a text or an answer.
        chat_template: how a conversation is written, a template of Jinja; None where there is none.
    """

    def __init__(
        self,
        backend: Backend,
        *,
        special: Mapping[str, int] | None = None,
        stop: Iterable[int] = (),
        chat_template: str | None = None,
    ) -> None:
        """Wrap a tokenizer of the package `tokenizers`; it neither pads nor cuts texts from then on."""
        self.backend = backend
        self.special, self.stop = dict(special or {}), tuple(stop)
        self.chat_template = chat_template
        backend.no_padding()
        backend.no_truncation()
        self._spelling = _spelling(backend)

    @classmethod
    def of_bytes(cls) -> Tokenizer:
        """The tokenizer whose 256 tokens are the bytes of a text in UTF-8."""
        tokenizers = needed("tokenizers")
        vocab = {letter: byte for byte, letter in _LETTERS.items()}
        made = tokenizers.Tokenizer(tokenizers.models.BPE(vocab=vocab, merges=[]))
        made.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
        made.decoder = tokenizers.decoders.ByteLevel()
        return cls(made)

    @classmethod
    def from_gguf(cls, path: str | Path | GGUFFile) -> Tokenizer:
        """The tokenizer that a GGUF file holds beside its weights.

        Raises:
            FileNotFoundError: when there is no such file.
            ImportError: when the package `tokenizers` or `gguf` is missing.
            ValueError: when the file is damaged or has no tokenizer, or one of a kind that is not built here.
        """
        file = path if isinstance(path, GGUFFile) else GGUFFile(path)
        template = file.metadata.get("tokenizer.chat_template")
        return cls(
            gguf_tokenizer.backend_of(file),
            special=gguf_tokenizer.special_of(file),
            stop=gguf_tokenizer.stops_of(file),
            chat_template=template if isinstance(template, str) else None,
        )

    @classmethod
    def from_huggingface(cls, folder: str | Path) -> Tokenizer:
        """The tokenizer of a local folder with `tokenizer.json`; nothing is downloaded.

        Raises:
            FileNotFoundError: when the folder has no `tokenizer.json`.
            ImportError: when the package `tokenizers` is missing.
            ValueError: when a file cannot be read.
        """
        place = Path(folder)
        if not (place / "tokenizer.json").is_file():
            raise FileNotFoundError(
                f"expected a local folder with tokenizer.json, got {str(folder)!r}"
            )
        try:
            backend = needed("tokenizers").Tokenizer.from_file(str(place / "tokenizer.json"))
        except Exception as error:  # the package raises nothing more special
            raise ValueError(f"{place / 'tokenizer.json'} is damaged: {error}") from error
        about = _json(place / "tokenizer_config.json")
        special = {}
        for name in ("bos_token", "eos_token", "unk_token", "pad_token", "cls_token", "sep_token"):
            held = about.get(name)
            text = held.get("content") if isinstance(held, dict) else held
            number = backend.token_to_id(text) if isinstance(text, str) else None
            if number is not None:
                special[name] = number
        written = _json(place / "generation_config.json").get("eos_token_id")
        stops = written if isinstance(written, list) else [written]
        found = [special.get("eos_token"), *stops]
        return cls(
            backend,
            special=special,
            stop=dict.fromkeys(number for number in found if isinstance(number, int)),
            chat_template=_template(place, about),
        )

    def __len__(self) -> int:
        """Number of tokens."""
        return int(self.backend.get_vocab_size())

    def __repr__(self) -> str:
        """Its number of tokens, and what it can do."""
        chat = ", with a chat template" if self.chat_template else ""
        return f"Tokenizer({len(self):,} tokens{chat})"

    def encode(self, text: str, *, special: bool = True) -> list[int]:
        """The tokens of a text, by number.

        Args:
            text: what stands in it as a special token, such as '<|im_end|>', becomes that token.
            special: whether the tokens that the model expects around a text are added, such as one for the
                beginning.
        """
        return list(self.backend.encode(text, add_special_tokens=special).ids)

    def decode(self, tokens: Iterable[SupportsInt] | Tensor, *, special: bool = False) -> str:
        """The text of some tokens, without the special ones unless `special` is true.

        Args:
            tokens: numbers, or a tensor of them, which may be a batch of one text.
            special: whether special tokens are written too.

        Raises:
            ValueError: when it is a batch of several texts.
        """
        if isinstance(tokens, Tensor) and tokens.ndim != 1:
            if tokens.ndim != 2 or len(tokens) != 1:
                raise ValueError(
                    f"expected the tokens of one text, got shape {tuple(tokens.shape)}; decode row by row"
                )
            tokens = tokens[0]
        numbers = [int(token) for token in tokens]
        return str(self.backend.decode(numbers, skip_special_tokens=not special))

    def tokens(self, text: str) -> list[str]:
        """The tokens of a text, each as a string; those that are added around it too."""
        return [self.string(token) for token in self.encode(text)]

    def string(self, token: SupportsInt) -> str:
        """One token as a string, with its space: ' Paris'.

        A part of a character is shown by its bytes: '<0xC3>'. A number that the tokenizer does not
        know, as models have some to fill their matrices up, is '<unused 7>'.
        """
        piece = self.backend.id_to_token(int(token))
        if piece is None:
            return f"<unused {int(token)}>"
        if self._spelling == "bytes" and all(letter in _BYTES for letter in piece):
            held = bytes(_BYTES[letter] for letter in piece)
            try:
                return held.decode("utf-8")
            except UnicodeDecodeError:
                return "".join(f"<0x{byte:02X}>" for byte in held)
        return piece.replace("▁", " ") if self._spelling == "pieces" else piece

    def token(self, string: str) -> int:
        """The number of the token that a string is, with its space: `token(" Paris")`.

        Raises:
            ValueError: when the string takes several tokens or none; the message shows them.
        """
        found = [n for n in self.encode(string, special=False) if self.string(n)]
        if self._spelling == "pieces" and string.startswith(
            " "
        ):  # a space is put before a text anyway
            found = self.encode(string[1:], special=False)
        if len(found) != 1:
            raise ValueError(
                f"expected a string that is one token, got {string!r}, which takes {len(found)}: "
                f"{[self.string(n) for n in found]}"
            )
        return found[0]

    def positions(self, text: str, word: str, *, which: int | None = None) -> list[int]:
        """The positions of the tokens that a word of a text is made of.

        Args:
            text: the whole text.
            word: one word or several, found as whole words; inside of a word only where it stands nowhere
                else.
            which: the number of the occurrence, from 0 or from the end, where there are several.

        Raises:
            ValueError: when the word does not stand in the text, or stands there more often and `which` is not
                given.
        """
        if not word.strip():
            raise ValueError(f"expected a word of the text, got {word!r}")
        exact = re.escape(word.strip())
        found = list(re.finditer(rf"(?<!\w){exact}(?!\w)", text)) or list(re.finditer(exact, text))
        if not found:
            words = ", ".join(dict.fromkeys(re.findall(r"\w+", text)))
            raise ValueError(f"{word!r} does not stand in the text, whose words are: {words:.200}")
        if which is None and len(found) > 1:
            raise ValueError(
                f"{word!r} stands in the text {len(found)} times: say which, from which=0 to "
                f"which={len(found) - 1}"
            )
        try:
            begin, end = found[which or 0].span()
        except IndexError:
            raise ValueError(
                f"{word!r} stands in the text {len(found)} times, got which={which}"
            ) from None
        encoded = self.backend.encode(text)
        return [
            place
            for place, (first, last) in enumerate(encoded.offsets)
            if first < end and last > begin
        ]

    def chat(self, messages: Messages, *, answer: bool = True) -> str:
        """A conversation as the text that the model was trained on.

        Args:
            messages: what the user says, or messages with 'role' and 'content'.
            answer: whether the text ends where the model's answer begins.

        Raises:
            ImportError: when the package `jinja2` is missing.
            ValueError: when there is no chat template, or it refuses the messages.
        """
        if self.chat_template is None:
            raise ValueError(
                "this model has no chat template: it continues texts, and was not trained on conversations"
            )
        if isinstance(messages, str):
            messages = [{"role": "user", "content": messages}]
        if not messages or not all({"role", "content"} <= set(message) for message in messages):
            raise ValueError(
                "expected messages with 'role' and 'content', such as "
                f"{{'role': 'user', 'content': 'Hello'}}, got {messages!r:.100}"
            )
        jinja2 = needed("jinja2")
        needed("jinja2.sandbox")

        def refuse(reason: str) -> None:
            raise jinja2.TemplateError(reason)

        rules = jinja2.sandbox.ImmutableSandboxedEnvironment(
            trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols"]
        )
        rules.filters["tojson"] = lambda value, **how: json.dumps(value, ensure_ascii=False, **how)
        rules.globals["raise_exception"] = refuse
        names = {name: self.backend.id_to_token(n) for name, n in self.special.items()}
        try:
            return str(
                rules.from_string(self.chat_template).render(
                    messages=list(messages), add_generation_prompt=answer, **names
                )
            )
        except jinja2.TemplateError as error:
            raise ValueError(f"the chat template refuses these messages: {error}") from error


# How tokens are spelled ------------------------------------------------------------------------------


def _letters() -> dict[int, str]:
    """The letter that stands for each byte in a byte-level vocabulary (Radford et al. 2019)."""
    shown = {*range(33, 127), *range(161, 173), *range(174, 256)}
    hidden = [byte for byte in range(256) if byte not in shown]
    return {b: chr(b) if b in shown else chr(256 + hidden.index(b)) for b in range(256)}


_LETTERS = _letters()
_BYTES = {letter: byte for byte, letter in _LETTERS.items()}


def _spelling(backend: Backend) -> str:
    """What letters of a vocabulary stand for: 'bytes', 'pieces' with ▁ for a space, or 'text', themselves."""
    decoder = getattr(backend, "decoder", None)
    told = json.loads(decoder.__getstate__()) if decoder is not None else {}
    steps = told.get("decoders", [told])
    if any(step.get("type") == "ByteLevel" for step in steps):
        return "bytes"
    spaces = any(
        step.get("type") == "Metaspace" or step.get("pattern") == {"String": "▁"} for step in steps
    )
    return "pieces" if spaces else "text"


# A folder ---------------------------------------------------------------------------------------------


def _json(file: Path) -> dict[str, Any]:
    if not file.is_file():
        return {}
    try:
        read = json.loads(file.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ValueError(f"{file} is no JSON: {error}") from error
    return read if isinstance(read, dict) else {}


def _template(folder: Path, about: Mapping[str, Any]) -> str | None:
    """The chat template: a file of its own in newer folders, a setting in older ones."""
    own = folder / "chat_template.jinja"
    if own.is_file():
        return own.read_text(encoding="utf-8")
    held = about.get("chat_template")
    if isinstance(held, list):  # several with names
        named = {one["name"]: one["template"] for one in held if isinstance(one, dict)}
        held = named.get("default")
    return held if isinstance(held, str) else None
