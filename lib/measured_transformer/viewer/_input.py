"""Normalises and checks the viewer's input: patterns, tokens, masks, names."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, SupportsIndex

import numpy as np
from numpy.typing import NDArray

from measured_transformer.internals.places import select_one

MAX_WEIGHTS = 400_000
MAX_TOKENS = 200
TOLERANCE = 0.01
_AXES = "(example, layer, head, query, key)"


@dataclass(frozen=True)
class Example:
    """One example: weights of shape (layer, head, query, key), zero where `allowed` (query, key) is not."""

    weights: NDArray[np.float64]
    allowed: NDArray[np.bool_]
    queries: tuple[str, ...]
    keys: tuple[str, ...]
    cross: bool
    label: str


@dataclass(frozen=True)
class Shown:
    """Everything that the viewer shows."""

    examples: tuple[Example, ...]
    layers: tuple[str, ...]
    heads: tuple[str, ...]


def read(
    patterns: Any,
    tokens: Any,
    key_tokens: Any,
    mask: Any,
    labels: Sequence[str] | None,
    layers: Sequence[str | int] | None,
    heads: Sequence[str | int] | None,
) -> Shown:
    """Read and check the whole input; raises ValueError for what does not fit."""
    arrays, numbers = _arrays(patterns)
    n_layers, n_heads = arrays[0].shape[:2]
    for place, each in enumerate(arrays):
        if each.shape[:2] != (n_layers, n_heads):
            raise ValueError(
                f"expected {n_layers} layers of {n_heads} heads in every example, as in the first, got "
                f"{each.shape[0]} of {each.shape[1]} in example {place}"
            )
    _check_size(arrays)
    queries = _token_lists(tokens, len(arrays), "tokens")
    keys = queries if key_tokens is None else _token_lists(key_tokens, len(arrays), "key_tokens")
    names = _names(labels, len(arrays), "labels", "examples")
    examples = []
    for place, weights in enumerate(arrays):
        _check_counts(weights, queries[place], keys[place], place, key_tokens is not None)
        free = _allowed(mask, weights, place, len(arrays))
        _check_weights(weights, free, place)
        shown = tuple(map(visible, queries[place]))
        words = " ".join(shown)
        label = f"{place}: {words[:40]}{'…' if len(words) > 40 else ''}"
        examples.append(
            Example(
                weights=np.where(free, weights, 0.0),
                allowed=free,
                queries=shown,
                keys=tuple(map(visible, keys[place])),
                cross=key_tokens is not None,
                label=names[place] if names else label,
            )
        )
    return Shown(
        examples=tuple(examples),
        layers=_names(layers, n_layers, "layers", "layers") or numbers,
        heads=_names(heads, n_heads, "heads", "heads") or tuple(map(str, range(n_heads))),
    )


def visible(token: str) -> str:
    """Make a token visible: blanks, line ends and invisible characters get a sign."""
    if not token:
        return "∅"
    core = token.strip(" ")
    lead = len(token) - len(token.lstrip(" "))
    tail = len(token) - lead - len(core)
    return "␣" * lead + "".join(map(_visible_character, core)) + "␣" * tail


def _visible_character(character: str) -> str:
    sign = {"\n": "↵", "\t": "⇥", "\r": "␍"}.get(character)
    if sign:
        return sign
    hidden = unicodedata.category(character) in ("Cc", "Cs", "Zl", "Zp")
    if hidden or unicodedata.bidirectional(character) in _TURNS or character in "\u200b\ufeff":
        return f"\\u{ord(character):04x}"
    return character


_TURNS = {"LRE", "RLE", "LRO", "RLO", "PDF", "LRI", "RLI", "FSI", "PDI"}


# Patterns ---------------------------------------------------------------------------------------


def _arrays(patterns: Any) -> tuple[list[NDArray[np.float64]], tuple[str, ...]]:
    """Return an array (layer, head, query, key) an example, and the names of the layers."""
    if isinstance(patterns, Mapping):
        stacked, numbers = _from_taps(patterns)
        return list(stacked), numbers
    if isinstance(patterns, (list, tuple)) and patterns:
        if all(isinstance(each, Mapping) for each in patterns):
            read = [_from_taps(each) for each in patterns]
            if len({numbers for _, numbers in read}) > 1:
                raise ValueError(
                    "expected the patterns of the same layers in every example, got layers "
                    f"{sorted({', '.join(numbers) for _, numbers in read})}; capture each with the same names"
                )
            return [example for stacked, _ in read for example in stacked], read[0][1]
        if all(hasattr(each, "shape") for each in patterns):
            arrays = [_numbers(each) for each in patterns]
            for place, each in enumerate(arrays):
                if each.ndim != 4 or not each.size:
                    raise ValueError(
                        "expected a list with a pattern of shape (layer, head, query, key) for each example, "
                        f"got shape {each.shape} in place {place}"
                    )
            return arrays, tuple(map(str, range(arrays[0].shape[0])))
    array = _numbers(patterns)
    if array.ndim == 4:
        array = array[None]
    if array.ndim != 5 or not array.size:
        raise ValueError(
            f"expected patterns of shape {_AXES}, or (layer, head, query, key) of one example, got shape "
            f"{array.shape}; add the missing axes, as in pattern[None]"
        )
    return list(array), tuple(map(str, range(array.shape[1])))


def _from_taps(taps: Mapping[str, Any]) -> tuple[NDArray[np.float64], tuple[str, ...]]:
    """Return (example, layer, head, query, key) from the dictionary of a capture, layers in order."""
    kinds = sorted({re.sub(r"\d+", "*", str(name)) for name in taps})
    if len(kinds) != 1:
        raise ValueError(
            "expected the attention patterns of one kind, such as those of blocks.*.attention.pattern, got "
            f"{', '.join(kinds) or 'nothing'}; choose with the names given to capture"
        )
    order = sorted(taps, key=lambda name: [int(number) for number in re.findall(r"\d+", name)])
    arrays = [_numbers(taps[name]) for name in order]
    for name, array in zip(order, arrays, strict=True):
        if array.ndim != 4 or not array.size:
            raise ValueError(
                f"expected {name} of shape (batch, head, query, key), got shape {array.shape}; "
                "capture the patterns: blocks.*.attention.pattern"
            )
        if array.shape != arrays[0].shape:
            raise ValueError(
                f"expected every layer to have the shape of {order[0]}, {arrays[0].shape}, got "
                f"{array.shape} in {name}; show layers of other shapes in a viewer of their own"
            )
    numbers = [re.findall(r"\d+", name) for name in order]
    return np.stack(arrays, axis=1), tuple(found[0] if found else "0" for found in numbers)


def _numbers(value: Any) -> NDArray[np.float64]:
    if hasattr(value, "detach"):  # a tensor, wherever it lies and whatever follows from it
        value = value.detach().cpu().double().numpy()
    try:
        return np.asarray(value, dtype=float)
    except (TypeError, ValueError):
        raise ValueError(
            f"expected patterns as numbers of shape {_AXES}, got {type(value).__name__} that is no array; "
            "examples of different lengths go into a list, each an array (layer, head, query, key)"
        ) from None


def _check_size(arrays: Sequence[NDArray[np.float64]]) -> None:
    longest = max(max(each.shape[2:]) for each in arrays)
    if longest > MAX_TOKENS:
        raise ValueError(
            f"expected at most {MAX_TOKENS} tokens a side, got {longest}; show a part of the sequence, "
            "with rows that still sum to one, or take a shorter example"
        )
    total = sum(each.size for each in arrays)
    if total > MAX_WEIGHTS:
        raise ValueError(
            f"expected at most {MAX_WEIGHTS} weights in all, got {total}; show fewer examples or "
            "layers, such as patterns[:2] or capture(model, 'blocks.0.attention.pattern')"
        )


def _check_weights(weights: NDArray[np.float64], free: NDArray[np.bool_], place: int) -> None:
    """Check that the weights are those of a softmax; the error names the first row that is not."""

    def where(index: Any) -> str:
        layer, head, query = (int(number) for number in index[:3])
        return f"example {place}, layer {layer}, head {head}, query {query}"

    bad = np.argwhere(~np.isfinite(weights))
    if len(bad):
        raise ValueError(
            f"expected finite weights, got {weights[tuple(bad[0])]} in {where(bad[0])}; a row "
            "with nothing to look at should be zeros"
        )
    bad = np.argwhere((weights < 0) | (weights > 1 + TOLERANCE))
    if len(bad):
        raise ValueError(
            f"expected weights between 0 and 1, got {weights[tuple(bad[0])]:.4g} in {where(bad[0])}; "
            "give the pattern after the softmax, not the scores"
        )
    bad = np.argwhere(~free & (weights > TOLERANCE / 10))
    if len(bad):
        raise ValueError(
            f"expected no weight where the mask forbids to look, got {weights[tuple(bad[0])]:.4g} in "
            f"{where(bad[0])}, key {int(bad[0][3])}; mask is True where a query may look"
        )
    sums = weights.sum(axis=-1)
    sees = free.any(axis=-1)
    if not sees.any():
        raise ValueError(f"expected weights, got nothing but zeros in example {place}")
    bad = np.argwhere(sees & (np.abs(sums - 1) > TOLERANCE))
    if len(bad):
        raise ValueError(
            f"expected rows that sum to 1 within {TOLERANCE}, got {sums[tuple(bad[0])]:.4g} in "
            f"{where(bad[0])}; the last axis has to be that of the keys, after the softmax and without dropout"
        )


def _allowed(mask: Any, weights: NDArray[np.float64], place: int, count: int) -> NDArray[np.bool_]:
    """Return where queries may look: as the mask says, else wherever any head has a weight."""
    shape = weights.shape[2:]
    if mask is None:
        free: NDArray[np.bool_] = (weights != 0).any(axis=(0, 1))
        return free
    if isinstance(mask, (list, tuple)):
        if len(mask) != count:
            raise ValueError(f"expected a mask for each of {count} examples, got {len(mask)}")
        mask = mask[place]
    array = np.asarray(mask.detach().cpu() if hasattr(mask, "detach") else mask)
    if array.dtype != bool:
        raise ValueError(f"expected a Boolean mask, True where a query may look, got {array.dtype}")
    if array.ndim == 3:
        if len(array) not in (1, count):
            raise ValueError(f"expected a mask for each of {count} examples, got {len(array)}")
        array = array[place % len(array)]
    try:
        return np.broadcast_to(array, shape)
    except ValueError:
        raise ValueError(
            f"expected a mask that fits (query, key) = {shape} of example {place}, got shape {array.shape}"
        ) from None


def checked_place(
    name: str, given: Sequence[SupportsIndex], axes: tuple[str, ...], sizes: Sequence[int]
) -> Any:
    """A place as whole numbers counted from zero; raises ValueError for one that is not there."""
    try:
        return tuple(
            select_one(axis, number, size)
            for axis, number, size in zip(axes, given, sizes, strict=True)
        )
    except ValueError:
        most = ", ".join(f"{axis} below {size}" for axis, size in zip(axes, sizes, strict=True))
        raise ValueError(
            f"expected {name} as ({', '.join(axes)}), counted from zero, or from the end when negative, with "
            f"{most}; got {given!r}"
        ) from None


# Words ------------------------------------------------------------------------------------------


def _token_lists(given: Any, count: int, name: str) -> list[list[str]]:
    """Return one list of tokens an example."""
    given = given.tolist() if hasattr(given, "tolist") else given
    if isinstance(given, str) or not isinstance(given, Sequence):
        raise ValueError(
            f"expected {name} as a list of tokens, or one such list an example, got "
            f"{type(given).__name__}; split the text as the model does"
        )
    if all(isinstance(token, (str, int)) for token in given):
        return [[str(token) for token in given]] * count
    lists = [each.tolist() if hasattr(each, "tolist") else each for each in given]
    for place, each in enumerate(lists):
        plain = isinstance(each, Sequence) and not isinstance(each, str)
        if not plain or not all(isinstance(token, (str, int)) for token in each):
            raise ValueError(
                f"expected {name} of example {place} as a list of strings or numbers, got {each!r:.60}"
            )
    if len(lists) != count:
        raise ValueError(
            f"expected {name} for each of {count} examples, got {len(lists)} lists; examples that share their "
            "tokens need one flat list"
        )
    return [[str(token) for token in each] for each in lists]


def _check_counts(
    weights: NDArray[np.float64],
    queries: Sequence[str],
    keys: Sequence[str],
    place: int,
    cross: bool,
) -> None:
    n_queries, n_keys = weights.shape[2:]
    if len(queries) != n_queries:
        raise ValueError(
            f"expected {n_queries} tokens for the {n_queries} queries of example {place}, got {len(queries)}; "
            "cut padded patterns to their tokens, as in pattern[..., :n, :n], and give them as a list"
        )
    if len(keys) != n_keys:
        what = "key_tokens" if cross else "tokens"
        raise ValueError(
            f"expected {n_keys} {what} for the {n_keys} keys of example {place}, got {len(keys)}; "
            "where keys are other tokens than queries, name them in key_tokens"
        )


def _names(given: Sequence[str | int] | None, count: int, name: str, what: str) -> tuple[str, ...]:
    if given is None:
        return ()
    if isinstance(given, str) or len(given) != count:
        raise ValueError(f"expected {name} for {count} {what}, got {given!r:.60}")
    return tuple(visible(str(each)) for each in given)
