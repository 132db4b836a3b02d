"""Tokenizers of the package `tokenizers` that cut texts as the tasks here do, to be kept in a file."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from measured_transformer.tasks.byte_pairs import Merge, pieces

if TYPE_CHECKING:
    from tokenizers import Tokenizer

# The words of `byte_pairs`, which cuts bytes: there a blank is one of these six, and the bytes of a letter
# beyond ASCII belong neither to a word of letters nor to one of digits.
_BLANK = r" \t\n\v\f\r"
_WORDS = rf" ?[A-Za-z]+| ?[0-9]+| ?[^{_BLANK}A-Za-z0-9]+|[{_BLANK}]+"
_UNKNOWN = "\ufffd"


def piece_tokenizer(merges: Sequence[Merge]) -> Tokenizer:
    """The tokenizer that cuts a text as `byte_pairs.encode` does with these merges; without any, into bytes.

    Raises:
        ModuleNotFoundError: when the package is not installed.
        ValueError: when two merges make the same piece, which the package cannot tell apart.

    >>> piece_tokenizer([(108, 111), (256, 119)]).encode("lowest").ids
    [257, 101, 115, 116]
    """
    tokenizers = _package()
    letters = _letters()
    names = ["".join(letters[byte] for byte in piece) for piece in pieces(merges)]
    if len(set(names)) < len(names):
        twice = next(name for i, name in enumerate(names) if name in names[:i])
        raise ValueError(
            f"two merges make the same piece {twice!r}, which the package tokenizers cannot tell apart: learn "
            "fewer merges, or use encode and decode of the task"
        )
    made: Tokenizer = tokenizers.Tokenizer(
        tokenizers.models.BPE(
            vocab={name: i for i, name in enumerate(names)},
            merges=[(names[left], names[right]) for left, right in merges],
        )
    )
    split = tokenizers.pre_tokenizers.Split(tokenizers.Regex(_WORDS), behavior="isolated")
    as_bytes = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    made.pre_tokenizer = tokenizers.pre_tokenizers.Sequence([split, as_bytes])
    made.decoder = tokenizers.decoders.ByteLevel()
    return made


def character_tokenizer(alphabet: str) -> Tokenizer:
    """The tokenizer that cuts a text into characters, numbered from 1; 0 is a character outside the alphabet.

    Raises:
        ModuleNotFoundError: when the package is not installed.

    >>> character_tokenizer("abc").encode("cab!").ids
    [3, 1, 2, 0]
    """
    tokenizers = _package()
    unknown = "<unknown>" if _UNKNOWN in alphabet else _UNKNOWN
    vocab = {name: i for i, name in enumerate((unknown, *alphabet))}
    made: Tokenizer = tokenizers.Tokenizer(
        tokenizers.models.WordLevel(vocab=vocab, unk_token=unknown)
    )
    made.pre_tokenizer = tokenizers.pre_tokenizers.Split(
        tokenizers.Regex(r"[\s\S]"), behavior="isolated"
    )
    made.decoder = tokenizers.decoders.Fuse()
    return made


def _letters() -> list[str]:
    """The letter that the package writes for each byte: itself where it can be seen, else one from 256 on."""
    seen = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = iter(range(256, 512))
    return [chr(byte if byte in seen else next(others)) for byte in range(256)]


def _package() -> Any:
    try:
        import tokenizers
        from tokenizers import decoders, models, pre_tokenizers  # noqa: F401
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            "this tokenizer is one of the package tokenizers, which is not installed: pip install tokenizers"
        ) from error
    return tokenizers
