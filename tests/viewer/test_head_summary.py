"""The summary of heads whose work is known, because they were made by hand."""

import numpy as np
import pytest
from measured_transformer.viewer.head_summary import summarise_head
from scipy.stats import entropy

N = 8
EVEN = np.full((N, N), 1 / N)
PAST = np.tri(N, dtype=bool)


def looking_at(columns, n=N):
    pattern = np.zeros((len(columns), n))
    pattern[np.arange(len(columns)), columns] = 1.0
    return pattern


def blurred(pattern, share=0.2):
    """The same head with a part of its weight spread evenly."""
    return (1 - share) * pattern + share / pattern.shape[1]


BEFORE = looking_at([0, *range(N - 1)])
AFTER = looking_at([*range(1, N), N - 1])


@pytest.mark.parametrize(
    ("pattern", "place"),
    [
        (np.eye(N), "the own position"),
        (BEFORE, "the previous token"),
        (AFTER, "the next token"),
        (looking_at([0] * N), "the first token"),
        (looking_at([N - 1] * N), "the last token"),
        (np.eye(N)[::-1], "the mirrored position"),
    ],
)
def test_a_head_of_one_place_is_named_by_it(pattern, place):
    exact = summarise_head(pattern)
    assert (exact.place, exact.shares[place]) == (place, 1.0)
    assert exact.sentence.startswith(f"Mostly {place}, 1.00 of the weight.")
    assert exact.entropy == 0.0
    faint = summarise_head(blurred(pattern))
    assert faint.place == place
    assert faint.shares[place] == pytest.approx(0.8 + 0.2 / N)
    assert faint.entropy == pytest.approx(entropy(blurred(pattern)[1]))


def test_an_even_head_has_no_place_but_the_highest_entropy():
    even = summarise_head(EVEN)
    assert even.entropy == pytest.approx(np.log(N))
    assert even.highest_entropy == pytest.approx(np.log(N))
    assert "Almost evenly over all that may be seen." in even.sentence
    assert f"as if spread over {N:.1f} tokens" in even.sentence
    assert "Mostly" not in even.sentence


def test_a_mask_changes_what_even_means():
    even = PAST / PAST.sum(axis=1, keepdims=True)
    masked = summarise_head(even, allowed=PAST)
    assert masked.entropy == pytest.approx(masked.highest_entropy)
    assert masked.highest_entropy == pytest.approx(np.log(np.arange(2, N + 1)).mean())
    assert masked.sentence.startswith("Almost evenly")
    assert not summarise_head(even).sentence.startswith("Almost evenly")


def test_queries_without_a_choice_say_nothing():
    # the first token sees itself alone: that is no sign of a head that looks at itself
    before = summarise_head(BEFORE, allowed=PAST)
    assert before.shares["the own position"] == 0.0
    assert before.shares["the first token"] == pytest.approx(1 / (N - 1))
    assert "the next token" not in before.shares
    alone = summarise_head([[1.0]])
    assert alone.place == ""
    assert "nothing to choose" in alone.sentence


def test_a_query_that_sees_nothing_is_left_out():
    allowed = np.ones((N, N), bool)
    allowed[-1] = False
    pattern = np.where(allowed, EVEN, 0.0)
    assert summarise_head(pattern, allowed=allowed).entropy == pytest.approx(np.log(N))


def test_no_place_stands_out_but_one_word_receives_most():
    rng = np.random.default_rng(0)
    pattern = 0.5 * rng.dirichlet(np.full(N, 0.4), size=N)
    pattern[:, 3] += 0.5
    summary = summarise_head(pattern, keys=list("abcdefgh"))
    assert summary.busiest == 3
    assert summary.busiest_weight == pytest.approx(pattern[:, 3].mean())
    assert (
        f"\u201cd\u201d receives most, {summary.busiest_weight:.2f} on average" in summary.sentence
    )
    assert "key 3 receives most" in summarise_head(pattern).sentence


def test_between_two_sequences_there_is_no_previous_token():
    pattern = looking_at([0, 1, 2, 3, 4], n=9)
    cross = summarise_head(pattern, cross=True)
    assert cross.place == "the same position"
    assert not {"the previous token", "the next token", "the own position"} & set(cross.shares)
    first = summarise_head(looking_at([0] * 4, n=3), cross=True)
    assert first.shares["the first token"] == 1.0


def test_a_weaker_habit_is_said_more_weakly_and_further_ones_are_named():
    pattern = 0.4 * np.eye(N) + 0.3 * looking_at([0] * N) + 0.3 * EVEN
    summary = summarise_head(pattern)
    assert summary.sentence.startswith("Most often the own position, 0.4")
    assert "Also on the first token 0.3" in summary.sentence
    assert "next token" not in summary.sentence


@pytest.mark.parametrize(
    ("arguments", "match"),
    [
        (([1.0, 0.0],), r"shape \(query, key\), got shape \(2,\)"),
        ((EVEN, PAST[1:]), rf"shape \({N}, {N}\), got \({N - 1}, {N}\)"),
        ((EVEN, PAST, ["a"]), f"expected {N} keys, one a column, got 1"),
    ],
)
def test_what_does_not_fit_is_named(arguments, match):
    pattern, allowed, keys = (*arguments, None, None)[:3]
    with pytest.raises(ValueError, match=match):
        summarise_head(pattern, allowed=allowed, keys=keys)
