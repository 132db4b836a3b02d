"""People, what is known of them, and questions that follow from what is known.

A table of random facts, as in `tasks.facts`, with three things more: subjects of two words, facts that follow
from two others, and facts that are one other read backwards. So one can ask of a model what else it takes to
be true when one fact is changed.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Literal, get_args

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from measured_transformer.tasks.task import Batch, check_share, check_sizes

Question = Literal["plain", "city", "badge", "place", "chain", "country", "holder"]
"""Kinds of questions, see `People`."""
DERIVED: tuple[Question, ...] = ("chain", "country", "holder")
"""Questions whose answers follow from other facts; of these some people are left out of training."""


@dataclass(frozen=True)
class World:
    """What is true in a drawn world, everything as a number from 0 on within its kind.

    Attributes:
        names: first and last name of each person; no two people have both in common.
        plain: object of each person in each plain relation.
        city: where each person lives.
        badge: the number of each person's badge, all different.
        country: the country of each city.
        held_out: the people whose derived questions are kept out of training.
    """

    names: Int[Tensor, "person 2"]
    plain: Int[Tensor, "person relation"]
    city: Int[Tensor, "person"]
    badge: Int[Tensor, "person"]
    country: Int[Tensor, "city"]
    held_out: Bool[Tensor, "person"]


@dataclass(frozen=True)
class People:
    """Answers questions about people from a world that was drawn at random.

    A person has a first and a last name, of 16 each. What is asked, and where the answer counts (after `>`):

    - `plain`: first, last, relation > object, for each of the plain relations;
    - `city`: first, last, LIVES > city;
    - `badge`: first, last, WEARS > badge;
    - `place`: city, LIES > country, for each city;
    - `chain`: first, last, LIVES > city, LIES > country: two steps, the first one written down; both count;
    - `country`: first, last, FROM > country of the city that the person lives in, in one step;
    - `holder`: badge, HELD > first > last: the badge's fact backwards, both names count.

    All questions are five tokens long, filled up with the token 0. Training sees all of them but the derived
    ones (`chain`, `country`, `holder`) of the people held out. A batch is drawn from those, with replacement.

    Attributes:
        people: number of people, at most 256.
        relations: number of plain relations.
        objects, cities, countries: number of different ones.
        left_out: share of the people that is held out.
        seed: of the world.

    >>> task = People(people=8, seed=1)
    >>> task.ask("chain").inputs.shape, task.vocab
    (torch.Size([8, 5]), 90)

    Raises:
        ValueError: when a size is not a positive whole number or there are more people than names.
    """

    people: int = 64
    relations: int = 4
    objects: int = 16
    cities: int = 16
    countries: int = 8
    left_out: float = 0.25
    seed: int = 0
    causal = True

    def __post_init__(self) -> None:
        check_sizes(
            people=self.people,
            relations=self.relations,
            objects=self.objects,
            cities=self.cities,
            countries=self.countries,
        )
        check_share(left_out=self.left_out)
        if self.people > FIRST * LAST:
            raise ValueError(f"expected at most {FIRST * LAST} people, got {self.people}")

    @property
    def vocab(self) -> int:
        """Padding, names, relations, objects, cities, countries and badges."""
        return self.badges + self.people

    @property
    def length(self) -> int:
        """Positions of a batch."""
        return 5

    # Where each kind of token begins.
    first, last, relation = 1, 17, 33

    @property
    def lives(self) -> int:
        """The token LIVES; WEARS, LIES, FROM and HELD are the next ones."""
        return self.relation + self.relations

    @property
    def object(self) -> int:
        """The first object's token."""
        return self.lives + 5

    @property
    def town(self) -> int:
        """The first city's token."""
        return self.object + self.objects

    @property
    def state(self) -> int:
        """The first country's token."""
        return self.town + self.cities

    @property
    def badges(self) -> int:
        """The first badge's token."""
        return self.state + self.countries

    def world(self) -> World:
        """What is true."""
        return _drawn(self)

    def ask(self, question: Question, chosen: Bool[Tensor, "person"] | None = None) -> Batch:
        """All questions of a kind.

        Args:
            question: the kind.
            chosen: about which people; all when None. Plain questions come relation by relation.

        Raises:
            ValueError: when there is no such kind.
        """
        if question not in get_args(Question):
            raise ValueError(f"question must be one of {get_args(Question)}, got {question!r}")
        world = self.world()
        who = torch.arange(self.people) if chosen is None else chosen.nonzero().flatten()
        names = world.names[who] + torch.tensor([self.first, self.last])
        city, badge = self.town + world.city[who], self.badges + world.badge[who]
        country = self.state + world.country[world.city[who]]

        def about(offset: int) -> Tensor:
            return torch.full((len(who), 1), self.lives + offset)

        if question == "plain":
            parts = [
                _row(names, torch.full((len(who), 1), self.relation + r), after=self.object + found)
                for r, found in enumerate(world.plain[who].T)
            ]
            inputs, targets = (torch.cat(each) for each in zip(*parts, strict=True))
            who = who.repeat(self.relations)
            counted = [2]
        elif question == "place":
            every = torch.arange(self.cities)
            lies = torch.full((self.cities, 1), self.lives + 2)
            inputs, targets = _row(
                self.town + every[:, None], lies, after=self.state + world.country
            )
            who, counted = torch.full((self.cities,), -1), [1]
        elif question == "chain":
            inputs, targets = _row(names, about(0), city[:, None], about(2), after=country)
            counted = [2, 4]
        elif question == "holder":
            inputs, targets = _row(badge[:, None], about(4), names[:, :1], after=names[:, 1])
            counted = [1, 2]
        else:
            offset, found = {"city": (0, city), "badge": (1, badge), "country": (3, country)}[
                question
            ]
            inputs, targets = _row(names, about(offset), after=found)
            counted = [2]
        scored = torch.zeros(inputs.shape, dtype=torch.bool)
        scored[:, counted] = True
        return Batch(inputs, targets, scored, gold={"person": who})

    def training(self) -> Batch:
        """Every question that training sees, once."""
        seen = ~self.world().held_out
        asked = [self.ask(q, seen if q in DERIVED else None) for q in get_args(Question)]
        return Batch(
            torch.cat([one.inputs for one in asked]),
            torch.cat([one.targets for one in asked]),
            torch.cat([one.scored for one in asked]),
            gold={"person": torch.cat([one.gold["person"] for one in asked])},
        )

    def blind_loss(self) -> float:
        """Smallest expected loss, in nats, of a model that knows how often each answer comes."""
        every = _questions(self)
        share = torch.bincount(every.targets[every.scored]).double()
        share = share[share > 0] / share.sum()
        return float(-(share * share.log()).sum())

    def batch(self, generator: torch.Generator, size: int, *, length: int | None = None) -> Batch:
        """Draw `size` questions of those that training sees.

        Raises:
            ValueError: when the size is not positive or the length another than five.
        """
        check_sizes(size=size)
        if length not in (None, self.length):
            raise ValueError(f"a question has five positions, got length={length}")
        every = _questions(self)
        rows = torch.randint(len(every.inputs), (size,), generator=generator)
        return Batch(
            every.inputs[rows],
            every.targets[rows],
            every.scored[rows],
            gold={"person": every.gold["person"][rows]},
        )


FIRST = LAST = 16
"""Number of first and of last names."""


def _row(*tokens: Tensor, after: Tensor) -> tuple[Tensor, Tensor]:
    """Inputs filled up to five tokens, and for each of them the token that comes next."""
    told = torch.cat([*tokens, after[:, None]], dim=1)
    line = torch.zeros(len(told), 6, dtype=torch.int64)
    line[:, : told.shape[1]] = told
    inputs = line[:, :-1].clone()
    return inputs, line[:, 1:].clone()


@lru_cache(maxsize=64)
def _drawn(task: People) -> World:
    draws = torch.Generator().manual_seed(task.seed)

    def numbers(below: int, *shape: int) -> Tensor:
        return torch.randint(below, shape, generator=draws)

    pairs = torch.randperm(FIRST * LAST, generator=draws)[: task.people]
    return World(
        names=torch.stack([pairs // LAST, pairs % LAST], dim=1),
        plain=numbers(task.objects, task.people, task.relations),
        city=numbers(task.cities, task.people),
        badge=torch.randperm(task.people, generator=draws),
        country=numbers(task.countries, task.cities),
        held_out=torch.arange(task.people) >= round(task.people * (1 - task.left_out)),
    )


@lru_cache(maxsize=64)
def _questions(task: People) -> Batch:
    return task.training()
