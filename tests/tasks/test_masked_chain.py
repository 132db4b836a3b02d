"""Gaps in a Markov source, and questions that are the same from either end."""

import itertools
import math

import pytest
import torch
from measured_transformer.tasks.markov import Markov
from measured_transformer.tasks.masked_chain import MaskedChain
from measured_transformer.tasks.number_alignment import aligned_words, word_roles
from measured_transformer.tasks.numbers import number_words
from measured_transformer.tasks.sooner_again import SoonerAgain

CHAIN = Markov(vocab=4, length=5, branching=(2,))


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


@pytest.mark.parametrize("side", ["both", "left", "right"])
def test_best_guesses_are_those_of_counting_every_sequence(side):
    task = MaskedChain(CHAIN, share=0.4, side=side)
    batch = task.batch(generator(), 6)
    chances = task.ideal_chances(batch)
    table = CHAIN.transitions()
    often = torch.linalg.matrix_power(table, 300)[0]
    for row, seen in enumerate(batch.inputs.tolist()):
        told = seen[::-1] if side == "right" else seen
        for place in range(5):
            counted = torch.zeros(4, dtype=torch.float64)
            for whole in itertools.product(range(4), repeat=5):
                known = {
                    "both": [t for t in range(5) if t != place],
                    "left": range(place),
                    "right": range(place + 1, 5),
                }[side]
                if any(told[t] not in (4, whole[t]) for t in known):
                    continue
                steps = [float(table[a, b]) for a, b in itertools.pairwise(whole)]
                counted[whole[place]] += float(often[whole[0]]) * math.prod(steps)
            at = 4 - place if side == "right" else place
            torch.testing.assert_close(chances[row, at], counted / counted.sum())


def test_two_sides_say_more_than_one():
    both, left = MaskedChain(Markov(), side="both"), MaskedChain(Markov(), side="left")
    batch = both.batch(generator(), 200)
    more = both.ideal_chances(batch).amax(-1)[batch.scored].mean()
    less = left.ideal_chances(batch).amax(-1)[batch.scored].mean()
    assert more > less + 0.2


def test_gaps_are_scored_and_nothing_else():
    batch = MaskedChain(CHAIN, share=0.0).batch(generator(), 30)
    assert (batch.scored.sum(1) == 1).all(), "at least one gap"
    assert torch.equal(batch.scored, batch.inputs == 4)


def test_other_sides_and_shares_are_refused(unhooked):
    with pytest.raises(ValueError, match="both, left, right, got 'middle'"):
        MaskedChain(CHAIN, side="middle")
    with pytest.raises(ValueError, match="share must lie between 0 and 1"):
        MaskedChain(CHAIN, share=1.5)


def test_which_comes_again_sooner():
    batch = SoonerAgain(vocab=8, length=7).batch(generator(), 50)
    for row, answer in zip(batch.inputs.tolist(), batch.targets[:, -1].tolist(), strict=True):
        places = {t: [i for i, other in enumerate(row) if other == t] for t in row}
        twice = {t: found[1] - found[0] for t, found in places.items() if len(found) == 2}
        assert len(twice) == 2
        assert len(set(twice.values())) == 2
        assert answer == min(twice, key=twice.get)
        assert {len(found) for found in places.values()} == {1, 2}
    assert (batch.scored.nonzero()[:, 1] == 6).all()


@pytest.mark.parametrize(("vocab", "length"), [(8, 4), (8, 11)])
def test_lengths_without_room_are_refused(vocab, length):
    with pytest.raises(ValueError, match=f"got length={length} with vocab={vocab}"):
        SoonerAgain(vocab=vocab, length=length)


def test_every_number_word_has_a_role_and_every_german_one_its_place():
    for number in [*range(1200), *range(1200, 10_000, 37)]:
        for language in ("en", "de"):
            assert len(word_roles(number, language)) == len(number_words(number, language))
        places = [place for place in aligned_words(number) if place >= 0]
        assert len(set(places)) == len(places)
        spoken = [role for role in word_roles(number, "en") if role]
        assert len(places) == len(spoken)


def test_german_turns_tens_and_units():
    assert aligned_words(21) == (1, -1, 0)
    assert aligned_words(13) == (0,)
    assert aligned_words(100) == (0, 1)
    assert aligned_words(305) == (0, 1, 3)
