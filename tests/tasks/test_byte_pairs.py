"""Byte-pair encoding: merges by hand, texts that come back, windows of the text."""

from __future__ import annotations

from collections import Counter

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from measured_transformer.tasks import byte_pairs
from measured_transformer.tasks.byte_pairs import (
    BytePairs,
    decode,
    encode,
    learn_merges,
    merges_of,
    pieces,
    text_bytes,
    tokens_of,
)


def slowly(text: bytes, count: int) -> list[tuple[int, int]]:
    """The same merges, with all pairs counted anew each time."""
    words = {w: list(w) for w in set(byte_pairs._WORDS.findall(text))}
    times = Counter(byte_pairs._WORDS.findall(text))
    merges: list[tuple[int, int]] = []
    for number in range(count):
        pairs: Counter[tuple[int, int]] = Counter()
        for word, tokens in words.items():
            for i in range(len(tokens) - 1):
                pairs[tokens[i], tokens[i + 1]] += times[word]
        best = min(pairs, key=lambda p: (-pairs[p], p))
        merges.append(best)
        for tokens in words.values():
            i = 0
            while i < len(tokens) - 1:
                if (tokens[i], tokens[i + 1]) == best:
                    tokens[i : i + 2] = [256 + number]
                i += 1
    return merges


def test_merges_by_hand() -> None:
    assert learn_merges(b"low low lower", 2) == [(108, 111), (256, 119)]
    assert learn_merges(b"ab cd", 5) == [], "no pair comes twice"
    with pytest.raises(ValueError, match="negative"):
        learn_merges(b"", -1)


def test_merges_are_those_of_counting_anew() -> None:
    text = text_bytes("train")[:20_000]
    assert learn_merges(text, 150) == slowly(text, 150)


@settings(deadline=None)
@given(st.binary(max_size=200))
def test_every_text_comes_back(text: bytes) -> None:
    merges = merges_of(50)
    assert decode(encode(text, merges), merges) == text


def test_more_merges_give_fewer_tokens_of_the_same_text() -> None:
    found = [tokens_of(count, "validation") for count in (0, 50, 200)]
    assert len(found[0]) == len(text_bytes("validation"))
    assert len(found[0]) > len(found[1]) > len(found[2])
    assert merges_of(200)[:50] == merges_of(50)
    for count, tokens in zip((0, 50, 200), found, strict=True):
        assert decode(tokens.tolist(), merges_of(count)) == text_bytes("validation")
        assert int(tokens.max()) < len(pieces(merges_of(count))) == 256 + count


def test_parts_share_no_text_and_make_up_the_whole() -> None:
    sizes = [len(text_bytes(part)) for part in ("train", "validation", "test")]
    assert sizes[0] == pytest.approx(0.8 * sum(sizes), abs=1)
    assert sum(sizes) > 100_000


def test_windows_are_of_the_text(monkeypatch: pytest.MonkeyPatch) -> None:
    batch = BytePairs(50, length=9, part="test").batch(torch.Generator().manual_seed(1), 5)
    windows = tokens_of(50, "test").unfold(0, 9, 1)
    for target in batch.targets:
        assert (windows == target).all(-1).any()
    with pytest.raises(ValueError, match="merges"):
        BytePairs(-1)
    with pytest.raises(ValueError, match="length"):
        BytePairs(length=0)
    monkeypatch.setattr(byte_pairs, "SHA256", "0" * 64)
    with pytest.raises(ValueError, match="SHA-256"):
        text_bytes.__wrapped__("train")
