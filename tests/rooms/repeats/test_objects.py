"""Prompts about two people: who stands where, and what stands in for a head."""

from __future__ import annotations

from itertools import combinations

import pytest
import torch
from measured_book.rooms.repeats import objects
from measured_book.smollm2.indirect_objects import FORMS, NAMES, PLACES, THINGS, asked
from measured_book.smollm2.model import is_installed, smollm2
from measured_book.smollm2.prompts import one_token

needs_model = pytest.mark.skipif(not is_installed(), reason="the model is not installed")


def test_what_chooses_and_what_judges_share_no_form_and_no_name() -> None:
    for sets in (FORMS, NAMES):
        for one, other in combinations(sets.values(), 2):
            assert not set(one) & set(other)


@needs_model
def test_names_places_and_things_are_single_tokens() -> None:
    words = [f" {word}" for some in (*NAMES.values(), PLACES, THINGS) for word in some]
    assert one_token(words) == words


@needs_model
@pytest.mark.parametrize("which", FORMS)
def test_the_wrong_name_stands_there_twice_and_the_right_one_once(which: str) -> None:
    two, three = asked(10, which, 2)
    assert len(two.tokens) == 4 * len(FORMS[which])
    for row, right, wrong, first in zip(
        two.tokens, two.right, two.wrong, two.subject_first, strict=True
    ):
        assert (row == right).sum() == 1
        places = (row == wrong).nonzero()[:, 0]
        assert len(places) == 2
        once = int((row == right).nonzero())
        assert (places[0] < once) == first
        assert once < places[1]
    assert two.subject_first.float().mean() == 0.5
    names = {smollm2().tokenizer.token(f" {name}") for name in NAMES[which]}
    for row, other in zip(two.tokens.tolist(), three.tokens.tolist(), strict=True):
        assert len([number for number in other if number in names]) == 3
        assert len(names & set(other)) == 3
        assert not names & set(row) & set(other)
        assert [n for n in row if n not in names] == [n for n in other if n not in names]
    for row, right, wrong in zip(three.tokens, three.right, three.wrong, strict=True):
        assert (row == right).sum() == (row == wrong).sum() == 1


def test_a_random_circuit_has_as_many_heads_in_each_block() -> None:
    circuit = [(3, 1), (3, 7), (8, 0), (20, 4), (20, 5), (20, 6)]
    generator = torch.Generator().manual_seed(0)
    drawn = [objects.alike(circuit, generator) for _ in range(20)]
    for one in drawn:
        assert len(set(one)) == len(circuit)
        assert sorted(block for block, _ in one) == sorted(block for block, _ in circuit)
    assert len({tuple(one) for one in drawn}) > 15
