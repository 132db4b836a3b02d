"""Seeds: another set where the environment asks for one, and streams that never meet."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from measured_book.evidence.seeds import LARGEST_OFFSET, seed_offset, seeds_of

offsets = st.integers(0, LARGEST_OFFSET)
counts = st.integers(1, 40)


@pytest.mark.parametrize("value", [None, "", " "])
def test_no_offset_is_the_default(monkeypatch: pytest.MonkeyPatch, value: str | None) -> None:
    monkeypatch.delenv("MEASURED_SEED_OFFSET", raising=False)
    if value is not None:
        monkeypatch.setenv("MEASURED_SEED_OFFSET", value)
    assert seed_offset() == 0
    assert seeds_of(3) == [0, 10, 20]
    assert seeds_of(3, "tuning") == [1, 11, 21]


def test_the_environment_decides_unless_the_caller_does(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MEASURED_SEED_OFFSET", "1000")
    assert seed_offset() == 1000
    assert seeds_of(2) == [10_000, 10_010]
    assert seeds_of(2, offset=0) == [0, 10]


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ("ten", ["whole number", "'ten'", "unset"]),
        ("1.5", ["whole number", "'1.5'"]),
        ("-1", ["from 0", "-1", "set MEASURED_SEED_OFFSET"]),
        (str(LARGEST_OFFSET + 1), ["from 0", str(LARGEST_OFFSET + 1)]),
    ],
)
def test_a_bad_environment_says_what_to_do(
    monkeypatch: pytest.MonkeyPatch, value: str, words: list[str]
) -> None:
    monkeypatch.setenv("MEASURED_SEED_OFFSET", value)
    with pytest.raises(ValueError, match="expected") as caught:
        seed_offset()
    for word in words:
        assert word in str(caught.value)


@given(offsets, offsets, counts, counts)
def test_tuning_never_meets_evaluation_at_any_offsets(a: int, b: int, n: int, m: int) -> None:
    assert not set(seeds_of(n, offset=a)) & set(seeds_of(m, "tuning", offset=b))


@given(offsets, counts, st.sampled_from(["evaluation", "tuning"]))
def test_seeds_are_distinct_and_fit_every_generator(offset: int, n: int, stream: str) -> None:
    seeds = seeds_of(n, stream, offset=offset)
    assert len(set(seeds)) == n
    assert all(0 <= seed < 2**32 for seed in seeds)


@given(st.integers(0, 10_000), counts, st.integers(0, 10_000))
def test_offsets_as_far_apart_as_the_count_give_other_seeds(a: int, n: int, more: int) -> None:
    assert not set(seeds_of(n, offset=a)) & set(seeds_of(n, offset=a + n + more))


@given(offsets, counts, counts)
def test_the_first_seeds_do_not_depend_on_how_many_follow(offset: int, n: int, more: int) -> None:
    assert seeds_of(n + more, offset=offset)[:n] == seeds_of(n, offset=offset)


def test_bad_requests_for_seeds() -> None:
    with pytest.raises(ValueError, match="'evaluation' or 'tuning', got 'test'"):
        seeds_of(2, "test")
    with pytest.raises(ValueError, match="at least one seed, got 0"):
        seeds_of(0)
