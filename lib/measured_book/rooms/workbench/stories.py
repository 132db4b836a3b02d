"""Small stories that are told anew for every number: text worth typing about, whose truth is known.

A story has people with names of which half are made up for it, things with a colour that change hands and lie
about, causes, opposites, rhymes that are said twice, and questions whose answers stand in it. Between stories
stand simple facts, always the same: what a cow says, what comes after Tuesday, what is the opposite of hot. No
sentence is taken from anywhere; what is said here is `story_words` and these functions.

>>> told(7).startswith("One windy day")
False
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cache
from random import Random

import torch
from jaxtyping import Int
from measured_transformer.tasks.byte_pairs import Merge, encode, learn_merges
from measured_transformer.tasks.task import Batch, Part, check_sizes
from torch import Tensor

from measured_book.rooms.workbench.story_words import (
    ANIMALS,
    BOYS,
    CAUSES,
    COLOURS,
    DAYS,
    ENDS,
    FEELINGS,
    GIRLS,
    LIKE,
    NUMBERS,
    OF_THINGS,
    OPPOSITES,
    PEOPLE,
    PLACES,
    STARTS,
    THINGS,
    VERBS,
    VOWELS,
    WEATHER,
    WORK,
)

COUNTS: dict[Part, int] = {"train": 12_000, "validation": 400, "test": 800}
"""How many stories each part has."""
_FIRST: dict[Part, int] = {"train": 0, "validation": 1_000_000, "test": 2_000_000}
LEARNED_FROM = 1000
"""Stories of the training part that pieces are learned from."""
MERGES = 1792
"""Groups of bytes that are learned: with the 256 bytes there are 2048 pieces."""


# One story ----------------------------------------------------------------------------------------


@dataclass
class Person:
    """Somebody in a story: a name, a pronoun, what they have and where they are."""

    name: str
    he: str
    things: list[str] = field(default_factory=list)
    place: str = ""

    @property
    def his(self) -> str:
        """The possessive."""
        return {"he": "his", "she": "her"}[self.he]


@dataclass
class Story:
    """A story while it is told: its numbers, its people, the colours of its things, and what was said."""

    draw: Random
    people: list[Person] = field(default_factory=list)
    colour: dict[str, str] = field(default_factory=dict)
    lies: dict[str, str] = field(default_factory=dict)
    said: list[str] = field(default_factory=list)

    def say(self, *sentences: str) -> None:
        """Add sentences; each begins with a capital."""
        self.said += [sentence[0].upper() + sentence[1:] for sentence in sentences]

    def person(self) -> Person:
        """Somebody new: half of all names are made up."""
        girl = self.draw.random() < 0.5
        known = {each.name for each in self.people}
        while True:
            name = (
                made_up(self.draw)
                if self.draw.random() < 0.5
                else self.draw.choice(GIRLS if girl else BOYS)
            )
            if name not in known:
                break
        one = Person(name, "she" if girl else "he", place=self.draw.choice(tuple(PLACES)))
        self.people.append(one)
        return one

    def thing(self) -> str:
        """A thing that is not in the story yet, with its colour."""
        thing = self.draw.choice([each for each in THINGS if each not in self.colour])
        self.colour[thing] = self.draw.choice(COLOURS)
        return thing

    def two(self) -> tuple[Person, Person]:
        """Two of the people."""
        one, other = self.draw.sample(self.people, 2)
        return one, other

    def owner(self) -> Person | None:
        """One who has something, if anybody has."""
        owners = [each for each in self.people if each.things]
        return self.draw.choice(owners) if owners else None


def made_up(draw: Random) -> str:
    """A name, a town or a magic word that no list has."""
    parts = [draw.choice(STARTS) + draw.choice(VOWELS) for _ in range(draw.randint(2, 3))]
    return ("".join(parts) + (draw.choice(ENDS) if draw.random() < 0.5 else "")).capitalize()


def at(place: str) -> str:
    """A place with its preposition."""
    return f"{PLACES[place]} the {place}"


def a(words: str) -> str:
    """Words with the indefinite article."""
    return f"{'an' if words[0] in 'aeiou' else 'a'} {words}"


def _begin(story: Story) -> None:
    draw, one = story.draw, story.person()
    if draw.random() < 0.5:
        kind = draw.choice([kind for kind, he in PEOPLE.items() if he == one.he])
        town = made_up(draw)
        story.say(
            f"once there was {a(draw.choice(('kind', 'old', 'young', 'brave', 'poor', 'clever')))} {kind} "
            f"named {one.name}.",
            draw.choice(
                (f"{one.name} lived in {town}.", f"{one.he} lived in a village called {town}.")
            ),
        )
    else:
        story.say(
            f"one {draw.choice(WEATHER)} {draw.choice(('day', 'morning', 'evening'))}, {one.name} "
            f"went to the {one.place}."
        )
    other = story.person()
    story.say(
        draw.choice(
            (
                f"{one.name} had a friend, and {one.his} friend was {other.name}.",
                f"{one.name} and {other.name} were friends.",
                f"there {one.he} met {other.name}.",
            )
        )
    )
    if draw.random() < 0.3:
        third = story.person()
        story.say(f"{third.name} was there too.")


def _has(story: Story) -> None:
    one, thing = story.draw.choice(story.people), story.thing()
    one.things.append(thing)
    colour = story.colour[thing]
    story.say(
        story.draw.choice(
            (
                f"{one.name} had {a(colour)} {thing}.",
                f"{one.name} had a {thing}. The {thing} was {colour}.",
                f"{at(one.place)}, {one.name} found {a(colour)} {thing}.",
                f"{one.name} bought {a(colour)} {thing} at the market.",
            )
        )
    )


def _gives(story: Story) -> None:
    one = story.owner()
    if one is None:
        return _has(story)
    other = story.draw.choice([each for each in story.people if each is not one])
    thing = story.draw.choice(one.things)
    one.things.remove(thing)
    other.things.append(thing)
    story.say(
        story.draw.choice(
            (
                f"{one.name} gave the {thing} to {other.name}.",
                f"{one.name} gave {other.name} the {thing}.",
                f"{other.name} took the {thing} from {one.name}.",
            )
        )
    )
    if story.draw.random() < 0.5:
        story.say(f"now {other.name} had the {thing}.")
    return None


def _loses(story: Story) -> None:
    one = story.owner()
    if one is None:
        return _has(story)
    thing, place = story.draw.choice(one.things), story.draw.choice(tuple(PLACES))
    one.things.remove(thing)
    story.lies[thing] = place
    story.say(
        story.draw.choice(
            (
                f"{one.name} left the {thing} {at(place)}.",
                f"{one.name} hid the {thing} {at(place)}.",
                f"{one.name} lost the {thing} {at(place)}. {one.he.capitalize()} was sad.",
            )
        )
    )
    return None


def _finds(story: Story) -> None:
    if not story.lies:
        return _loses(story)
    thing = story.draw.choice(tuple(story.lies))
    one, place = story.draw.choice(story.people), story.lies.pop(thing)
    one.things.append(thing)
    one.place = place
    story.say(
        f"{one.name} looked {at(place)}, and there was the {thing}.",
        f"{one.name} took the {thing} home. {one.he.capitalize()} was {story.draw.choice(('happy', 'glad'))}.",
    )
    return None


def _goes(story: Story) -> None:
    one = story.draw.choice(story.people)
    place = story.draw.choice([each for each in PLACES if each != one.place])
    story.say(
        story.draw.choice(
            (
                f"{one.name} went from the {one.place} to the {place}.",
                f"then {one.name} went to the {place}.",
                f"{one.name} walked to the {place}, because {one.he} wanted to see it.",
            )
        )
    )
    one.place = place


def _causes(story: Story) -> None:
    one = story.draw.choice(story.people)
    cause, effect = (
        text.replace("N", "#") for text in story.draw.choice(CAUSES)
    )  # names have an N too
    first = cause.replace("#", one.name)
    again = effect.replace("#", one.he, 1) if effect.startswith("#") else effect
    object_form = {"he": "him", "she": "her"}[one.he]
    again = again.replace("#", object_form if again.endswith("#") else one.he)
    whole = effect.replace("#", one.name)
    story.say(
        story.draw.choice(
            (f"{first}, so {again}.", f"because {first}, {again}.", f"{whole} because {first}.")
        )
        if "#" in cause
        else story.draw.choice((f"{first}, so {whole}.", f"{whole} because {first}."))
    )


def _contrasts(story: Story) -> None:
    pair = list(story.draw.choice(OPPOSITES[:OF_THINGS]))
    story.draw.shuffle(pair)
    one, other = pair
    thing, second = story.draw.sample(tuple(THINGS), 2)
    story.say(
        story.draw.choice(
            (
                f"the {thing} was not {one}. It was {other}.",
                f"the {thing} was {one}, but the {second} was {other}.",
                f"first the {thing} was {one}, and then it was {other}.",
            )
        )
    )


def agreeing(draw: Random) -> tuple[str, str, str, bool]:
    """A present sentence up to its verb, the right and the wrong verb, and whether the noun between misleads.

    >>> agreeing(Random(1))[1] != agreeing(Random(1))[2]
    True
    """
    nouns = [*THINGS.items(), *((one[0], one[1]) for one in ANIMALS if one[0] != one[1])]
    head, between = draw.sample(nouns, 2)
    many, misleads = draw.random() < 0.5, draw.random() < 0.5
    other = between[1] if many != misleads else between[0]
    noun = head[1] if many else head[0]
    verb = ("is", "are") if head in THINGS.items() or draw.random() < 0.3 else draw.choice(VERBS)
    right, wrong = verb[::-1] if many else verb
    where = draw.choice(("near", "behind", "next to", "beside"))
    return f"The {noun} {where} the {other}", right, wrong, misleads


def _agrees(story: Story) -> None:
    draw, one = story.draw, story.draw.choice(story.people)
    text, verb, _, _ = agreeing(draw)
    more = f" {draw.choice(draw.choice(OPPOSITES[:OF_THINGS]))}" if verb in ("is", "are") else ""
    story.say(f'"{text} {verb}{more}," said {one.name}.')


def _rhymes(story: Story) -> None:
    draw = story.draw
    one, other = story.two()
    words = " ".join(
        draw.choice((made_up(draw).lower(), draw.choice(tuple(THINGS)), draw.choice(COLOURS)))
        for _ in range(draw.randint(3, 5))
    ).capitalize()
    story.say(
        draw.choice(
            (
                f'"{words}," said {one.name}. "{words}," said {other.name}.',
                f'{one.name} sang: "{words}, {words.lower()}."',
                f'the magic words were "{words}." {one.name} said them: "{words}."',
            )
        )
    )


def _counts(story: Story) -> None:
    draw, one = story.draw, story.draw.choice(story.people)
    start, length = draw.randint(0, 6), draw.randint(3, 6)
    numbers = NUMBERS[start : start + length]
    story.say(
        draw.choice(
            (
                f"{one.name} counted: {', '.join(numbers)}.",
                f"{one.name} counted back: {', '.join(reversed(numbers))}.",
            )
        )
    )


def _feels(story: Story) -> None:
    one, other = story.two()
    feeling = story.draw.choice(FEELINGS)
    story.say(
        story.draw.choice(
            (
                f"{one.name} was {feeling}, and {other.name} was {feeling} too.",
                f'"I am {feeling}," said {one.name}. "Why are you {feeling}?" asked {other.name}.',
                f"{one.name} smiled at {other.name}.",
            )
        )
    )


_BEATS = (
    *((_has, 5), (_gives, 5), (_loses, 2), (_finds, 2), (_goes, 2), (_causes, 3)),
    *((_contrasts, 2), (_agrees, 2), (_rhymes, 2), (_counts, 1), (_feels, 1)),
)


@dataclass(frozen=True)
class Question:
    """A question about a story.

    Attributes:
        kind: 'who', 'colour' or 'where'.
        text: the question.
        answer: with which it goes on, up to what is asked for.
        right: what is asked for, with a blank before it.
        wrong: what else the story or the world would have for it.
        alike: those of them that stand with the same preposition.
    """

    kind: str
    text: str
    answer: str
    right: str
    wrong: tuple[str, ...]
    alike: tuple[str, ...] = ()

    @property
    def whole(self) -> str:
        """Question and answer as a story has them."""
        return f"{self.text} {self.answer}{self.right}{self.rest}"

    @property
    def rest(self) -> str:
        """What stands behind that which is asked for."""
        return f" has the {self.text.split(' the ')[1][:-1]}." if self.kind == "who" else "."


def questions(story: Story) -> list[Question]:
    """What can be asked about a story, of what holds at its end."""
    found = []
    names = [each.name for each in story.people]
    for each in story.people:
        others = tuple(f" {name}" for name in names if name != each.name)
        for thing in each.things:
            found.append(Question("who", f"Who has the {thing}?", "", f" {each.name}", others))
    for thing, colour in story.colour.items():
        wrong = tuple(f" {other}" for other in COLOURS if other != colour)
        answer = f"The {thing} is"
        text = f"What colour is the {thing}?"
        found.append(Question("colour", text, answer, f" {colour}", wrong))
    for thing, place in story.lies.items():
        wrong = tuple(f" {each}" for each in PLACES if each != place)
        alike = tuple(one for one in wrong if PLACES[one[1:]] == PLACES[place])
        text, answer = f"Where is the {thing}?", f"It is {PLACES[place]} the"
        found.append(Question("where", text, answer, f" {place}", wrong, alike))
    return found


def story_of(number: int) -> Story:
    """The story of a number, without its questions."""
    story = Story(Random(number))
    _begin(story)
    beats, often = zip(*_BEATS, strict=True)
    _has(story)
    for beat in story.draw.choices(beats, often, k=story.draw.randint(2, 5)):
        beat(story)
    return story


def fact(draw: Random) -> str:
    """One of the things that hold in all stories."""
    cat, cats, sound, food, home, young = draw.choice(ANIMALS)
    cold, hot = draw.sample(draw.choice(OPPOSITES), 2)
    day = draw.randrange(7)
    one, other = draw.randint(1, 6), draw.randint(1, 6)
    first, colour = draw.choice(LIKE)
    who, does, what = draw.choice(WORK)
    return draw.choice(
        (
            f"{a(cat)} says {sound}.",
            f'"{sound.capitalize()}," says the {cat}.',
            f"{cats} eat {food}.",
            f"{a(cat)} lives in a {home}.",
            f"a young {cat} is called {a(young)}.",
            f"the opposite of {hot} is {cold}.",
            f"if it is not {hot}, it is {cold}.",
            f"after {DAYS[day]} comes {DAYS[(day + 1) % 7]}.",
            f"{NUMBERS[one - 1]} and {NUMBERS[other - 1]} make {NUMBERS[one + other - 1]}.",
            f"{first} is {colour}.",
            f"as {colour} as {first}.",
            f"{a(who)} {does} {what}.",
        )
    )


def told(number: int) -> str:
    """The text of a number: a story with one or two questions, and sometimes facts.

    >>> told(3) == told(3) != told(4)
    True
    """
    story = story_of(number)
    draw = story.draw
    asked = questions(story)
    draw.shuffle(asked)
    end = [" ".join(each.whole.split()) for each in asked[: draw.randint(1, 2)]]
    text = " ".join((*story.said, *end))
    if draw.random() < 0.35:
        facts = [fact(draw) for _ in range(draw.randint(2, 5))]
        text += "\n" + " ".join(each[0].upper() + each[1:] for each in facts)
    return text


def text_of(part: Part, count: int | None = None) -> bytes:
    """The stories of a part, a line each, or the first of them; no story is in two parts."""
    numbers = range(_FIRST[part], _FIRST[part] + (COUNTS[part] if count is None else count))
    return ("\n".join(told(number) for number in numbers) + "\n").encode()


# Pieces -------------------------------------------------------------------------------------------


@cache
def merges() -> tuple[Merge, ...]:
    """The merges that were learned from the first stories of the training part."""
    return tuple(learn_merges(text_of("train", LEARNED_FROM), MERGES))


@cache
def tokens_of(part: Part) -> Int[Tensor, "token"]:
    """A part in pieces."""
    return torch.tensor(encode(text_of(part), merges()))


@dataclass(frozen=True)
class Stories:
    """Windows of small stories in pieces, for a model that must not see ahead; every position is scored.

    Attributes:
        length: number of predictions asked for.
        part: which stories are drawn from.

    Raises:
        ValueError: when `length` is not a positive whole number.
    """

    length: int = 128
    part: Part = "train"
    causal = True
    vocab = 256 + MERGES

    def __post_init__(self) -> None:
        check_sizes(length=self.length)

    def batch(self, generator: torch.Generator, size: int, *, length: int | None = None) -> Batch:
        """Draw `size` windows that begin anywhere in this part."""
        n = self.length if length is None else length
        check_sizes(size=size, length=n)
        whole = tokens_of(self.part)
        starts = torch.randint(len(whole) - n, (size, 1), generator=generator)
        windows = whole[starts + torch.arange(n + 1)]
        return Batch(windows[:, :-1], windows[:, 1:], torch.ones(size, n, dtype=torch.bool))


def encoded(text: str) -> list[int]:
    """The pieces of any text."""
    return encode(text.encode(), merges())
