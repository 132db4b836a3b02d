"""Builds the tokenizer that a GGUF file describes: byte-level BPE ('gpt2') and SentencePiece BPE ('llama').

A file has the tokens, their kinds, and the merges or scores. How a text is cut before merges apply is only
named (`tokenizer.ggml.pre`); what each name means stands in `PRE_TOKENIZERS`. A name that is not there is
refused: with another cut the same text has other tokens, and nothing complains.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import ModuleType
from typing import TYPE_CHECKING, Any

from measured_transformer.interop.gguf_file import GGUFFile

if TYPE_CHECKING:
    from tokenizers import Tokenizer as Backend

_CONTROL, _USER_DEFINED, _BYTE = 3, 4, 6  # kinds of tokens

# Contractions, letters with at most one other sign before them, numbers, signs, line ends, spaces.
_WORDS = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|NUMBERS"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_DIGIT, _THREE_DIGITS = r"\p{N}", r"\p{N}{1,3}"
_GPT2, _DIGITS_APART = "gpt2", "digits apart"
PRE_TOKENIZERS: Mapping[str, str] = {
    **dict.fromkeys(("default", "gpt-2", "olmo", "mpt", "jais", "phi-2"), _GPT2),
    **dict.fromkeys(("smollm", "starcoder", "refact", "command-r", "codeshell"), _DIGITS_APART),
    **dict.fromkeys(
        ("llama-bpe", "llama3", "llama-v3", "dbrx", "smaug-bpe", "falcon3", "pixtral"),
        _WORDS.replace("NUMBERS", _THREE_DIGITS),
    ),
    **dict.fromkeys(
        ("qwen2", "deepseek-r1-qwen", "stablelm2", "megrez"), _WORDS.replace("NUMBERS", _DIGIT)
    ),
}
"""Name of a pre-tokenizer -> the pattern of the pieces that it cuts, or a word for one that is built in."""
_WHOLE_FIRST = ("llama-bpe", "llama3", "llama-v3", "pixtral")
_COMPOSED = ("qwen2", "deepseek-r1-qwen", "megrez")


def needed(package: str) -> ModuleType:
    """The package `tokenizers`, or `jinja2`. Raises ImportError, in one sentence, when it is missing."""
    from importlib import import_module

    try:
        return import_module(package)
    except ImportError as error:
        raise ImportError(
            f"a tokenizer needs the package {package} ({error}); install it with: pip install {package}"
        ) from None


def backend_of(file: GGUFFile) -> Backend:
    """The tokenizer of a file, without what it adds at the beginning and the end of a text.

    Raises:
        ImportError: when the package `tokenizers` is missing.
        ValueError: when the file has no tokenizer, or one of a kind that is not built here.
    """
    kind, tokens = _key(file, "model"), _key(file, "tokens")
    if not isinstance(kind, str) or not isinstance(tokens, list):
        raise ValueError(
            f"{file.path} holds no tokenizer: it lacks tokenizer.ggml.model or .tokens"
        )
    if kind not in ("gpt2", "llama"):
        raise ValueError(
            f"{file.path} has tokenizer.ggml.model={kind!r}, which is not built here; supported are 'gpt2' "
            "(byte-level BPE) and 'llama' (SentencePiece BPE)"
        )
    made = _byte_level(file, tokens) if kind == "gpt2" else _sentence_pieces(file, tokens)
    kinds = _key(file, "token_type") or []
    added = needed("tokenizers").AddedToken
    whole = {
        special: [
            added(token, normalized=False, special=special)
            for token, one in zip(tokens, kinds, strict=False)
            if one == number
        ]
        for special, number in ((True, _CONTROL), (False, _USER_DEFINED))
    }
    made.add_special_tokens(whole[True])
    made.add_tokens(whole[False])
    _add_ends(file, made, tokens)
    return made


def special_of(file: GGUFFile) -> dict[str, int]:
    """The numbers of the special tokens, by the names that chat templates give them, such as 'bos_token'."""
    keys = {"bos": "bos", "eos": "eos", "unk": "unknown", "pad": "padding"}
    found = {f"{name}_token": _key(file, f"{key}_token_id") for name, key in keys.items()}
    return {name: number for name, number in found.items() if isinstance(number, int)}


def stops_of(file: GGUFFile) -> tuple[int, ...]:
    """The tokens that end a text or an answer."""
    found = [_key(file, f"{name}_token_id") for name in ("eos", "eot", "eom")]
    return tuple(dict.fromkeys(number for number in found if isinstance(number, int)))


def begins(file: GGUFFile) -> bool:
    """Return whether the file's tokenizer puts its token of the beginning before every text."""
    told = _key(file, "add_bos_token")
    if isinstance(told, bool):
        return told
    return _key(file, "model") == "llama" or _key(file, "pre") in _WHOLE_FIRST


def _key(file: GGUFFile, name: str) -> Any:
    return file.metadata.get(f"tokenizer.ggml.{name}")


def _byte_level(file: GGUFFile, tokens: Sequence[str]) -> Backend:
    tokenizers = needed("tokenizers")
    name = _key(file, "pre") or "default"
    if name not in PRE_TOKENIZERS:
        raise ValueError(
            f"{file.path} has tokenizer.ggml.pre={name!r}, a cut that is not built here; supported are "
            f"{', '.join(PRE_TOKENIZERS)}"
        )
    merges = _key(file, "merges")
    if not isinstance(merges, list):
        raise ValueError(f"{file.path} lacks tokenizer.ggml.merges")
    model = tokenizers.models.BPE(
        vocab={token: number for number, token in enumerate(tokens)},
        merges=[tuple(merge.split(" ", 1)) for merge in merges],
        ignore_merges=name in _WHOLE_FIRST,
    )
    made: Backend = tokenizers.Tokenizer(model)
    if name in _COMPOSED:
        made.normalizer = tokenizers.normalizers.NFC()
    cut, pattern = tokenizers.pre_tokenizers, PRE_TOKENIZERS[name]
    if pattern == _GPT2:
        made.pre_tokenizer = cut.ByteLevel(add_prefix_space=False)
    elif pattern == _DIGITS_APART:
        made.pre_tokenizer = cut.Sequence(
            [cut.Digits(individual_digits=True), cut.ByteLevel(add_prefix_space=False)]
        )
    else:
        split = cut.Split(tokenizers.Regex(pattern), behavior="isolated")
        letters = cut.ByteLevel(add_prefix_space=False, use_regex=False)
        made.pre_tokenizer = cut.Sequence([split, letters])
    made.decoder = tokenizers.decoders.ByteLevel()
    return made


def _sentence_pieces(file: GGUFFile, tokens: Sequence[str]) -> Backend:
    """SentencePiece's BPE: the pair with the best score merges first, and what is unknown becomes bytes."""
    tokenizers = needed("tokenizers")
    vocab = {token: number for number, token in enumerate(tokens)}
    merges = _key(file, "merges")
    if isinstance(merges, list):
        pairs = [tuple(merge.split(" ", 1)) for merge in merges]
    else:
        pairs = _merges_of_scores(file, tokens, vocab)
    unknown = _key(file, "unknown_token_id")
    model = tokenizers.models.BPE(
        vocab=vocab,
        merges=pairs,
        unk_token=tokens[unknown] if isinstance(unknown, int) else None,
        fuse_unk=True,
        byte_fallback=True,
    )
    made: Backend = tokenizers.Tokenizer(model)
    prefixed = _key(file, "add_space_prefix") is not False
    normal, decode = tokenizers.normalizers, tokenizers.decoders
    spaces = [normal.Replace(" ", "▁")]
    made.normalizer = normal.Sequence([normal.Prepend("▁"), *spaces] if prefixed else spaces)
    steps = [decode.Replace("▁", " "), decode.ByteFallback(), decode.Fuse()]
    made.decoder = decode.Sequence([*steps, decode.Strip(" ", 1, 0)] if prefixed else steps)
    return made


def _merges_of_scores(
    file: GGUFFile, tokens: Sequence[str], vocab: Mapping[str, int]
) -> list[tuple[str, str]]:
    """The merges that a vocabulary with scores implies, the first ones first."""
    scores = _key(file, "scores")
    if not isinstance(scores, list) or len(scores) != len(tokens):
        raise ValueError(f"{file.path} needs tokenizer.ggml.merges, or a score for each token")
    kinds = _key(file, "token_type") or [1] * len(tokens)
    apart = {t for t, kind in zip(tokens, kinds, strict=False) if kind in (_CONTROL, _BYTE)}
    found = [
        (-score, len(token), vocab[token[:cut]], vocab[token[cut:]], token[:cut], token[cut:])
        for token, score in zip(tokens, scores, strict=True)
        if token not in apart
        for cut in range(1, len(token))
        if token[:cut] in vocab and token[cut:] in vocab
    ]
    return [(left, right) for *_, left, right in sorted(found)]


def _add_ends(file: GGUFFile, made: Backend, tokens: Sequence[str]) -> None:
    """Let the tokenizer add the tokens of the beginning and the end where the file says so."""
    first, last = _key(file, "bos_token_id"), _key(file, "eos_token_id")
    before = [first] if begins(file) and isinstance(first, int) else []
    after = [last] if _key(file, "add_eos_token") is True and isinstance(last, int) else []
    processors = needed("tokenizers").processors
    steps = [processors.ByteLevel()] if _key(file, "model") == "gpt2" else []
    if before or after:
        names = {tokens[number]: number for number in (*before, *after)}
        steps.append(
            processors.TemplateProcessing(
                single=[*(tokens[n] for n in before), "$A", *(tokens[n] for n in after)],
                special_tokens=list(names.items()),
            )
        )
    if steps:
        made.post_processor = processors.Sequence(steps)
