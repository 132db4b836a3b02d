"""The small stories: what they say is true, told by a reader of the text alone; parts and pieces keep apart."""

from __future__ import annotations

import re
from collections import Counter
from random import Random

import pytest
import torch
from measured_book.rooms.workbench import abilities, stories
from measured_book.rooms.workbench.story_words import COLOURS, PLACES
from measured_transformer.tasks.byte_pairs import decode
from measured_transformer.tasks.task import held_out

NAME = "([A-Z][a-z]+)"
THING = "([a-z]+)"
OWNS = (
    (rf"{NAME} (?:had|found|bought) an? (?:(?:{'|'.join(COLOURS)}) )?{THING}\b", (0, 1)),
    (rf"{NAME} gave the {THING} to {NAME}", (2, 1)),
    (rf"{NAME} gave {NAME} the {THING}", (1, 2)),
    (rf"{NAME} took the {THING} from {NAME}", (0, 1)),
    (rf"{NAME} took the {THING} home", (0, 1)),
)
LIES = rf"{NAME} (?:left|hid|lost) the {THING} (?:in|at|on) the {THING}"


def read(text):
    """Who has what, where the rest lies, and which colours things have, from the words of a story."""
    owners, lies, colours = {}, {}, {}
    for sentence in re.split(r"(?<=[.!?])\s", text):
        for pattern, (who, what) in OWNS:
            if found := re.search(pattern, sentence):
                thing = found.groups()[what]
                owners[thing] = found.groups()[who]
                lies.pop(thing, None)
        if found := re.search(LIES, sentence):
            _, thing, place = found.groups()
            lies[thing] = place
            owners.pop(thing, None)
        if (found := re.match(rf"The {THING} was ({'|'.join(COLOURS)})\.", sentence)) or (
            found := re.search(rf"an? ({'|'.join(COLOURS)}) {THING}\b", sentence)
        ):
            first, second = found.groups()
            colours[second if first in COLOURS else first] = first if first in COLOURS else second
    return owners, lies, colours


def test_every_answer_is_what_the_words_of_the_story_say():
    kinds = Counter()
    for number in range(600):
        story = stories.story_of(number)
        owners, lies, colours = read(" ".join(story.said))
        for one in stories.questions(story):
            thing = re.search(rf"the {THING}\?", one.text)[1]
            told = {"who": owners, "where": lies, "colour": colours}[one.kind]
            assert told.get(thing) == one.right.strip(), (number, one, " ".join(story.said))
            assert one.right not in one.wrong
            kinds[one.kind] += 1
    assert min(kinds[kind] for kind in abilities.ASKED) > 100


def test_a_text_ends_in_questions_with_their_answers():
    text = stories.told(0)
    assert text.endswith("What colour is the coat? The coat is black.")
    assert "Where is the coat? It is on the beach." in text
    assert not re.search(r"  | \.|\bN\b|#", " ".join(map(stories.told, range(300))))


def test_parts_have_different_stories_and_pieces_write_them_again():
    starts = {part: stories.text_of(part, 30) for part in stories.COUNTS}
    assert len(set(starts.values())) == 3
    lines = [set(text.decode().split("\n")) - {""} for text in starts.values()]
    assert not (lines[0] & lines[1] | lines[0] & lines[2])
    assert len(stories.merges()) == stories.MERGES
    tokens = stories.encoded(starts["test"].decode())
    assert decode(tokens, stories.merges()) == starts["test"]
    assert len(tokens) < len(starts["test"]) / 3
    task = held_out(stories.Stories(length=20), "test")
    batch = task.batch(torch.Generator().manual_seed(0), 4)
    assert batch.inputs.shape == (4, 20)
    assert torch.equal(batch.inputs[:, 1:], batch.targets[:, :-1])
    with pytest.raises(ValueError, match="length"):
        stories.Stories(length=0)


def test_agreement_is_between_verb_and_first_noun():
    for seed in range(200):
        text, right, wrong, misleads = stories.agreeing(Random(seed))
        noun, between = re.match(
            r"The (\w+) (?:near|behind|next to|beside) the (\w+)$", text
        ).groups()
        plurals = {*stories.THINGS.values(), *(one[1] for one in stories.ANIMALS)}
        assert right == ("are" if noun in plurals else "is") or right.endswith("s") != (
            noun in plurals
        )
        assert {right, wrong} in ({"is", "are"}, {*max(stories.VERBS, key=lambda v: right in v)})
        assert ((noun in plurals) != (between in plurals)) == misleads


class Constant:
    """A model that gives a table's logits whatever it reads."""

    def __init__(self, logits):
        self.logits = torch.tensor(logits)

    def __call__(self, tokens):
        return self.logits.expand(*tokens.shape, -1).clone()


def test_the_likelier_string_is_chosen_and_costs_are_by_the_byte():
    logits = torch.full((256,), -9.0)
    for letter, value in zip(b"abc ", (2.0, 1.0, 0.0, 0.5), strict=True):
        logits[letter] = value
    reader = abilities.Reader(Constant(logits.tolist()), lambda text: list(text.encode()), 4, [97])
    assert abilities.chosen(reader, "x", "a", ["b", "c"])
    assert not abilities.chosen(reader, "x", "b", ["a"])
    assert abilities.chosen(reader, "xxxxxxxx", "ab", ["cc", "bbb"]), "beyond what it reads at once"
    chances = logits.double().log_softmax(-1)
    text = b"abcabcabcabc" * 3
    wanted = -float(chances[list(b"abc")].mean())
    assert abs(abilities.cost_by_byte(reader, text + b"a") - wanted) < 0.05


def test_places_of_questions_have_three_others_of_their_preposition():
    assert min(Counter(PLACES.values()).values()) > 3
