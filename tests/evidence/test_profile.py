"""The profile: read from the environment, and seeds that never meet across streams."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from measured_transformer.evidence.profile import LARGEST_OFFSET, Profile, profile

offsets = st.integers(0, LARGEST_OFFSET)
counts = st.integers(1, 40)


@pytest.mark.parametrize("value", [None, "", " "])
def test_quick_and_no_offset_are_the_default(
    monkeypatch: pytest.MonkeyPatch, value: str | None
) -> None:
    for name in ("MEASURED_PROFILE", "MEASURED_SEED_OFFSET"):
        monkeypatch.delenv(name, raising=False)
        if value is not None:
            monkeypatch.setenv(name, value)
    assert profile() == Profile("quick", 0)


def test_the_environment_decides(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MEASURED_PROFILE", "full")
    monkeypatch.setenv("MEASURED_SEED_OFFSET", "1000")
    now = profile()
    assert now == Profile("full", 1000)
    assert now.is_full
    assert now.choose(quick=1, full=2) == 2
    assert Profile("quick").choose(quick=1, full=2) == 1


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("MEASURED_PROFILE", "fast", ["'quick' or 'full'", "'fast'", "set MEASURED_PROFILE"]),
        ("MEASURED_PROFILE", "Full", ["'quick' or 'full'", "'Full'"]),
        ("MEASURED_SEED_OFFSET", "ten", ["whole number", "'ten'", "unset"]),
        ("MEASURED_SEED_OFFSET", "1.5", ["whole number", "'1.5'"]),
        ("MEASURED_SEED_OFFSET", "-1", ["from 0", "-1", "set MEASURED_SEED_OFFSET"]),
        ("MEASURED_SEED_OFFSET", str(LARGEST_OFFSET + 1), ["from 0", str(LARGEST_OFFSET + 1)]),
    ],
)
def test_a_bad_environment_says_what_to_do(
    monkeypatch: pytest.MonkeyPatch, name: str, value: str, words: list[str]
) -> None:
    monkeypatch.setenv(name, value)
    with pytest.raises(ValueError, match="expected") as caught:
        profile()
    for word in words:
        assert word in str(caught.value)


@given(offsets, offsets, counts, counts)
def test_tuning_never_meets_evaluation_at_any_offsets(a: int, b: int, n: int, m: int) -> None:
    evaluation = Profile("quick", a).seeds(quick=n)
    tuning = Profile("full", b).seeds(full=m, stream="tuning")
    assert not set(evaluation) & set(tuning)


@given(offsets, counts, st.sampled_from(["evaluation", "tuning"]))
def test_seeds_are_distinct_and_fit_every_generator(offset: int, n: int, stream: str) -> None:
    seeds = Profile("quick", offset).seeds(quick=n, stream=stream)
    assert len(set(seeds)) == n
    assert all(0 <= seed < 2**32 for seed in seeds)


@given(st.integers(0, 10_000), counts, st.integers(0, 10_000))
def test_offsets_as_far_apart_as_the_count_give_other_seeds(a: int, n: int, more: int) -> None:
    one = Profile("quick", a).seeds(quick=n)
    other = Profile("quick", a + n + more).seeds(quick=n)
    assert not set(one) & set(other)


@given(offsets, counts, counts)
def test_the_first_seeds_do_not_depend_on_how_many_follow(offset: int, n: int, more: int) -> None:
    now = Profile("full", offset)
    assert now.seeds(full=n + more)[:n] == now.seeds(full=n)


def test_bad_requests_for_seeds() -> None:
    with pytest.raises(ValueError, match="'evaluation' or 'tuning', got 'test'"):
        Profile().seeds(stream="test")
    with pytest.raises(ValueError, match="at least one seed for profile quick, got 0"):
        Profile().seeds(quick=0)
