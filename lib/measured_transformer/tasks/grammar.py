"""A small grammar of English-like sentences whose every relation is known: who agrees with whom, who is meant.

The grammar is an automaton. Its state says what may come next and how likely it is, and follows from the words
so far; so the best possible loss is known exactly, word by word.
"""

from __future__ import annotations

import itertools
import math
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache

import torch
from jaxtyping import Float, Int
from torch import Tensor

from measured_transformer.tasks.task import Batch, check_share, check_sizes


def _words(text: str) -> tuple[str, ...]:
    return tuple(text.split())


NOUNS = {  # by the pronoun that stands for one of them
    "he": _words("king prince uncle waiter monk actor brother father"),
    "she": _words("queen aunt nun sister mother widow niece bride"),
    "it": _words("robot lamp boat engine kite drum machine bell"),
}
PLACES = _words("garden river tower bridge market forest harbour village")
ADJECTIVES = _words(
    "old young tall small quiet loud clever proud gentle strange "
    "happy tired brave rich poor calm green grey bright famous"
)
INTRANSITIVE = _words("sleep wait fall arrive move shine return appear turn rest")
TRANSITIVE = _words("see follow find call help hear know need greet admire")
DETERMINERS = {  # with the number that they ask for, and how likely they are
    "the": (None, 0.4),
    "one": ("singular", 0.15),
    "every": ("singular", 0.15),
    "some": ("plural", 0.15),
    "many": ("plural", 0.15),
}
PREPOSITIONS = _words("near behind beside above under")
CONJUNCTIONS = _words("because while and")
ADVERBS = _words("slowly quietly again today together outside")

TAGS = _words(
    "determiner adjective noun place verb preposition that pronoun conjunction adverb stop"
)
RELATIONS = _words("determiner adjective agreement reference object place")
NUMBERS = ("singular", "plural")


def _plural(noun: str) -> str:
    return noun + "s"


def _verbs(stems: Sequence[str], number: str) -> tuple[str, ...]:
    return tuple(stem + "s" if number == "singular" else stem for stem in stems)


VOCABULARY = tuple(
    sorted(
        {
            *itertools.chain(*NOUNS.values(), map(_plural, itertools.chain(*NOUNS.values()))),
            *PLACES, *map(_plural, PLACES), *ADJECTIVES, *PREPOSITIONS, *CONJUNCTIONS, *ADVERBS,
            *(verb for n in NUMBERS for verb in _verbs(INTRANSITIVE + TRANSITIVE, n)),
            *DETERMINERS, *NOUNS, "they", "that", ".",
        }
    )
)  # fmt: skip
_NUMBER_OF = {word: i for i, word in enumerate(VOCABULARY)}


@dataclass(frozen=True)
class _State:
    """What the words so far leave open."""

    phase: str = "determiner"
    slot: str = "subject"  # which noun comes next: subject, object or place
    number: str | None = None  # that its determiner asks for
    adjectives: int = 0  # before it so far
    subject: str | None = None  # the pronoun that stands for it
    object: str | None = None


@dataclass(frozen=True)
class _Choice:
    """Words that play the same role, all equally likely; together they have `chance`."""

    words: tuple[str, ...]
    chance: float
    role: str
    after: _State


_START = _State()


@dataclass(frozen=True)
class Grammar:
    """Sentences about people, things and places, one after another, for a model that must not see ahead.

    For example ``the old queen near the rivers sees one robot because it waits .``: the determiners and the
    adjective belong to a noun, *sees* agrees with *queen* and not with *rivers*, and *it* means the robot.
    Subject and object never share a pronoun, so that a pronoun's meaning is certain. A sequence begins with a
    sentence and is cut off where it is long enough. Every position is scored on the next word.

    Used where a chapter asks for the roles of heads, for what layers know, and for probes. The arcs are in
    `gold`, for each input: `head`, the place of the word it depends on (-1 when there is none within the
    sequence), and `relation`, how (a number of `RELATIONS`, or -1):

    - determiner and adjective: to their noun, which comes later;
    - agreement: from a verb to its subject, the noun or the pronoun;
    - reference: from a pronoun to the noun that it means;
    - object: from a noun to the verb before it; place: from a place to its preposition.

    Besides, `tag`: the kind of word (a number of `TAGS`), and `number`: 0 for singular, 1 for plural, -1 for
    words that have none.

    Nothing can do better than `bayes_loss`.

    Attributes:
        length: number of predictions asked for.
        attractor: chance that a place stands between subject and verb.
        reference: chance that a clause with a pronoun follows.

    >>> task = Grammar(length=12)
    >>> batch = task.batch(torch.Generator().manual_seed(5), 1)
    >>> task.text(batch.inputs[0])
    'every uncle that needs some towers finds the nun while she arrives'
    >>> batch.gold["head"].tolist()
    [[1, -1, -1, 1, 5, 3, 1, 8, 6, -1, 8, 10]]
    """

    length: int = 32
    attractor: float = 0.4
    reference: float = 0.6
    causal = True

    def __post_init__(self) -> None:
        check_sizes(length=self.length)
        check_share(attractor=self.attractor, reference=self.reference)

    @property
    def vocab(self) -> int:
        """Number of different words, the full stop among them."""
        return len(VOCABULARY)

    def text(self, tokens: Int[Tensor, "position"]) -> str:
        """The words of a sequence."""
        return " ".join(VOCABULARY[token] for token in tokens.tolist())

    def batch(self, generator: torch.Generator, size: int, *, length: int | None = None) -> Batch:
        """Draw `size` sequences."""
        n = self.length if length is None else length
        check_sizes(size=size, length=n)
        draws = torch.rand(size, n + 1, 2, generator=generator, dtype=torch.float64).tolist()
        rows = [self._written(row) for row in draws]
        whole = torch.tensor([[_NUMBER_OF[word] for word, _ in row] for row in rows])
        scored = torch.ones(size, n, dtype=torch.bool)
        arcs = [_annotated(row[:-1]) for row in rows]
        gold = {
            name: torch.tensor([row[i] for row in arcs])
            for i, name in enumerate(("head", "relation", "tag", "number"))
        }
        return Batch(whole[:, :-1], whole[:, 1:], scored, gold=gold)

    def _written(self, draws: Sequence[Sequence[float]]) -> list[tuple[str, str]]:
        """Words with their roles, as the draws choose them."""
        state, row = _START, []
        for which, word in draws:
            choices, steps = self._choices(state)
            choice = choices[bisect_right(steps, which * steps[-1])]
            row.append((choice.words[int(word * len(choice.words))], choice.role))
            state = choice.after
        return row

    def _choices(self, state: _State) -> tuple[tuple[_Choice, ...], tuple[float, ...]]:
        return _what_may_follow(state, self.attractor, self.reference)

    def _cost(self, state: _State) -> float:
        """Entropy of the next word in nats."""
        choices, _ = self._choices(state)
        return -math.fsum(c.chance * math.log(c.chance / len(c.words)) for c in choices)

    def ideal_losses(self, batch: Batch) -> Float[Tensor, "batch position"]:
        """Cost of each next word, on this very batch, of the predictor that knows the grammar.

        Raises:
            ValueError: when a sequence is not one of the grammar's.
        """
        rows = torch.cat([batch.inputs[:, :1], batch.targets], dim=1).tolist()
        return torch.tensor([list(self._costs(row))[1:] for row in rows], dtype=torch.float64)

    def _costs(self, row: Sequence[int]) -> Iterator[float]:
        state = _START
        for place, token in enumerate(row):
            word = VOCABULARY[token]
            for choice in self._choices(state)[0]:
                if word in choice.words:
                    break
            else:
                before = " ".join(VOCABULARY[t] for t in row[:place])
                raise ValueError(f"{word!r} cannot follow {before!r} in this grammar")
            yield -math.log(choice.chance / len(choice.words))
            state = choice.after

    def bayes_loss(self, *, length: int | None = None) -> float:
        """Smallest expected loss, in nats a word, over sequences of this length."""
        n = self.length if length is None else length
        likely, total = {_START: 1.0}, 0.0
        for _ in range(n):
            after: dict[_State, float] = defaultdict(float)
            for state, chance in likely.items():
                for choice in self._choices(state)[0]:
                    after[choice.after] += chance * choice.chance
            likely = after
            total += math.fsum(chance * self._cost(state) for state, chance in likely.items())
        return total / n

    def entropy_rate(self) -> float:
        """Smallest expected loss, in nats a word, in the long run: cost of a sentence over its length."""
        cost, words = self._sentence(_START, {})
        return cost / words

    def _sentence(
        self, state: _State, known: dict[_State, tuple[float, float]]
    ) -> tuple[float, float]:
        """Expected cost and number of words from here to the end of the sentence."""
        if state not in known:
            cost, words = self._cost(state), 1.0
            for choice in self._choices(state)[0]:
                if choice.after != _START:
                    more = self._sentence(choice.after, known)
                    cost += choice.chance * more[0]
                    words += choice.chance * more[1]
            known[state] = cost, words
        return known[state]


@cache
def _what_may_follow(
    state: _State, attractor: float, reference: float
) -> tuple[tuple[_Choice, ...], tuple[float, ...]]:
    """The choices in a state, and the running sums of their chances."""
    kept = tuple(c for c in _follow(state, attractor, reference) if c.chance > 0)
    return kept, tuple(itertools.accumulate(c.chance for c in kept))


def _follow(s: _State, attractor: float, reference: float) -> Iterator[_Choice]:
    if s.phase == "determiner":
        taken = "plural" if s.slot == "object" and s.subject == "they" else ""
        fitting = {word: how for word, how in DETERMINERS.items() if how[0] != taken}
        total = sum(chance for _, chance in fitting.values())
        for word, (number, chance) in fitting.items():
            after = replace(s, phase="noun", number=number)
            yield _Choice((word,), chance / total, "determiner", after)
    elif s.phase == "noun":
        yield from _nouns(s)
    elif s.phase == "after subject":
        place = replace(s, phase="determiner", slot="place", number=None, adjectives=0)
        half = attractor / 2
        yield _Choice(PREPOSITIONS, half, "preposition", place)
        yield _Choice(("that",), half, "that", replace(s, phase="relative verb"))
        yield from _main_verbs(s, 1 - attractor)
    elif s.phase == "relative verb":
        place = replace(s, phase="determiner", slot="place", number=None, adjectives=0)
        yield _Choice(_verbs(TRANSITIVE, _number(s.subject)), 1.0, "relative verb", place)
    elif s.phase == "main verb":
        yield from _main_verbs(s, 1.0)
    elif s.phase == "after verb":
        yield _Choice(ADVERBS, 0.3, "adverb", replace(s, phase="end"))
        yield from _ends(s, 0.7, reference)
    elif s.phase == "end":
        yield from _ends(s, 1.0, reference)
    elif s.phase == "pronoun":
        meant = [p for p in (s.subject, s.object) if p is not None]
        for pronoun in meant:
            # From here on it is the pronoun that the verb agrees with.
            after = _State(phase="second verb", subject=pronoun)
            yield _Choice((pronoun,), 1 / len(meant), "pronoun", after)
    elif s.phase == "second verb":
        after = _State(phase="after second verb")
        yield _Choice(_verbs(INTRANSITIVE, _number(s.subject)), 1.0, "second verb", after)
    elif s.phase == "after second verb":
        yield _Choice(ADVERBS, 0.3, "adverb", _State(phase="full stop"))
        yield _Choice((".",), 0.7, "stop", _START)
    else:
        yield _Choice((".",), 1.0, "stop", _START)


def _nouns(s: _State) -> Iterator[_Choice]:
    """One more adjective, or a noun whose number fits and whose pronoun is not taken."""
    adjective = 0.3 if s.adjectives < 2 and s.slot != "place" else 0.0
    yield _Choice(ADJECTIVES, adjective, "adjective", replace(s, adjectives=s.adjectives + 1))
    numbers = NUMBERS if s.number is None else (s.number,)
    if s.slot == "place":
        after = _State(phase="main verb", subject=s.subject)
        words = [PLACES if n == "singular" else tuple(map(_plural, PLACES)) for n in numbers]
        yield _Choice(sum(words, ()), 1.0, "place", after)
        return
    fitting = []
    for number in numbers:
        for pronoun, nouns in NOUNS.items():
            meant = pronoun if number == "singular" else "they"
            if s.slot == "subject" or meant != s.subject:
                forms = nouns if number == "singular" else tuple(map(_plural, nouns))
                fitting.append((meant, forms))
    for meant, forms in fitting:
        if s.slot == "subject":
            after = _State(phase="after subject", subject=meant)
        else:
            after = _State(phase="end", subject=s.subject, object=meant)
        yield _Choice(forms, (1 - adjective) / len(fitting), s.slot, after)


def _main_verbs(s: _State, chance: float) -> Iterator[_Choice]:
    number = _number(s.subject)
    after = _State(phase="after verb", subject=s.subject)
    yield _Choice(_verbs(INTRANSITIVE, number), 0.45 * chance, "verb", after)
    after = _State(phase="determiner", slot="object", subject=s.subject)
    yield _Choice(_verbs(TRANSITIVE, number), 0.55 * chance, "verb", after)


def _ends(s: _State, chance: float, reference: float) -> Iterator[_Choice]:
    yield _Choice((".",), chance * (1 - reference), "stop", _START)
    after = _State(phase="pronoun", subject=s.subject, object=s.object)
    yield _Choice(CONJUNCTIONS, chance * reference, "conjunction", after)


def _number(pronoun: str | None) -> str:
    return "plural" if pronoun == "they" else "singular"


_TAG_OF = {
    "subject": "noun", "object": "noun", "second verb": "verb", "relative verb": "verb"
}  # fmt: skip
_PRONOUN_OF = {noun: pronoun for pronoun, nouns in NOUNS.items() for noun in nouns}


def _annotated(
    row: Sequence[tuple[str, str]],
) -> tuple[list[int], list[int], list[int], list[int]]:
    """Head, relation, tag and number of every word, from the words and their roles."""
    heads, relations = [-1] * len(row), [-1] * len(row)
    place: dict[str, int] = {}  # where the last word of each role stands
    waiting: list[int] = []  # determiner and adjectives before their noun

    def arc(start: int, end: int, relation: str) -> None:
        heads[start], relations[start] = end, RELATIONS.index(relation)

    for i, (word, role) in enumerate(row):
        if role in ("determiner", "adjective"):
            waiting.append(i)
        elif role in ("subject", "object", "place"):
            for modifier in waiting:
                arc(modifier, i, row[modifier][1])
            waiting.clear()
        if role in ("verb", "relative verb"):
            arc(i, place["subject"], "agreement")
        elif role == "second verb":
            arc(i, place["pronoun"], "agreement")
        elif role == "object":
            arc(i, place["verb"], "object")
        elif role == "place":
            governor = max(place.get("preposition", -1), place.get("relative verb", -1))
            arc(i, governor, "place" if row[governor][1] == "preposition" else "object")
        elif role == "pronoun":
            meant = [place[slot] for slot in ("subject", "object") if slot in place]
            (noun,) = (at for at in meant if _PRONOUN_OF.get(row[at][0], "they") == word)
            arc(i, noun, "reference")
        place[role] = i
        if role == "stop":
            place.clear()
    tags = [TAGS.index(_TAG_OF.get(role, role)) for _, role in row]
    return heads, relations, tags, [_number_of(word, role) for word, role in row]


def _number_of(word: str, role: str) -> int:
    """0 for singular, 1 for plural, -1 for words that have no number of their own."""
    if role in ("subject", "object", "place"):
        return int(word.endswith("s"))
    if role in ("verb", "relative verb", "second verb"):
        return int(not word.endswith("s"))
    return int(word == "they") if role == "pronoun" else -1
