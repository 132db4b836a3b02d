r"""Facts in a trained model: how many it stores, which neurons hold one, and how one is changed.

First one block. A network without a gate writes $\sum_i a_i v_i + b_2$: neuron $i$ answers with its activation
$a_i$ and its value $v_i$, a column of the stored $W_2$. Nothing stands behind it but the final norm and the
unembedding, so what a neuron does to an answer can be computed, and so can what follows from a change of $W_2$:
with $v_i \to v_i + r_i \delta$ every stream moves by a multiple of one direction, $(a \cdot r)\,\delta$, where
$a$ are the activations of the fact that is asked for. Then four blocks and a world of people: tracing, edits at
every block, many edits, and what an edit does to facts that follow from the edited one.

Sources: Geva et al. (2021); Dai et al. (2022), "Knowledge neurons"; Meng et al. (2022), ROME, whose edit is
`reader` with `how="least"`; Meng et al. (2023), MEMIT; Hase et al. (2023); Cohen et al. (2024).
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, cast

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from measured_transformer.analysis.fact_counts import recall, whole_table
from measured_transformer.analysis.fact_edits import (
    Inside,
    all_at_once,
    answers_after,
    changes_for,
    look_inside,
    moments,
    one_after_another,
    one_fact,
    trace,
)
from measured_transformer.analysis.fact_lookups import (
    How,
    answered,
    leads,
    lookups,
    overwrite,
    random_active,
    silencing,
    strongest_neurons,
)
from measured_transformer.analysis.ffn_memory import sum_error
from measured_transformer.models.config import Config
from measured_transformer.models.decoder import Decoder
from measured_transformer.parts.block import Block
from measured_transformer.tasks.facts import Facts
from measured_transformer.tasks.people import DERIVED, People, Question
from measured_transformer.training.jobs import Job
from measured_transformer.training.loop import Run, evaluate, make_model, predict
from measured_transformer.training.schedules import WarmupCosine
from measured_transformer.training.seeding import make_generator
from measured_transformer.variants.feedforward import FixedEmbeddings, without_network
from torch import Tensor

from measured_book.measuring import Search, job, measurement, tuned, tuning_seeds

# How many facts ------------------------------------------------------------------------------------

SIZES = (256, 512, 784)
"""Facts in a table; the largest has every pair of a subject and a relation."""
TABLE = Facts(count=512, subjects=28, relations=28)
STEPS = 300
RATES = (0.003, 0.01, 0.03, 0.06, 0.12, 0.24)
_WIDE = Config(
    vocab=TABLE.vocab, d_model=8, n_layers=1, n_heads=2, positions="none", activation="relu"
)
ARMS: Mapping[str, tuple[Config, FixedEmbeddings]] = {
    "four": (_WIDE, FixedEmbeddings()),
    "once": (_WIDE.replace(d_ff=_WIDE.d_model), FixedEmbeddings()),
    "attention": (without_network(_WIDE)["heads"], FixedEmbeddings(network=False)),
    "neither": (_WIDE, FixedEmbeddings(network=False)),
}
"""Neurons four times and once the width; attention of as many parameters as the first; neither of the two."""


def storing(name: str, size: int, seed: int) -> Job:
    """One training of an arm on a table of its own, at the rate that suits it on another one.

    Rates are chosen on 512 facts, in batches as large as the table that they are for.
    """
    config, prepare = ARMS[name]
    options = {**whole_table(size, STEPS), "prepare": prepare}
    search = Search(
        f"facts-stored-{name}", config, replace(TABLE, seed=900), RATES, tuning_seeds(1), STEPS, options
    )  # fmt: skip
    own = replace(TABLE, count=size, seed=seed)
    return job(config, own, seed, learning_rate=tuned(search), **options)


def stored_trainings(seed: int) -> dict[tuple[str, int], Job]:
    """Every arm on tables of every size."""
    return {(name, size): storing(name, size, seed) for name in ARMS for size in SIZES}


@measurement(
    seeds=10,
    coords={"arm": tuple(ARMS), "size": SIZES},
    trainings=stored_trainings,
    repeat="opening",
    tolerance={"recalled": 0.3, "bits": 1500.0},
)
def stored(seed: int, runs: Mapping[tuple[str, int], Run]) -> dict[str, Any]:
    """Share of a random table that models of one block recall, and how many bits of it they keep."""
    shares, bits = [], []
    for name in ARMS:
        for size in SIZES:
            own, model = replace(TABLE, count=size, seed=seed), runs[name, size].model
            shares.append(recall(model, own))
            loss = evaluate(model, own, seed=seed, size=size).loss
            bits.append(size * (np.log2(TABLE.objects) - loss / np.log(2)))
    shape = (len(ARMS), len(SIZES))
    return {
        "recalled": (("arm", "size"), np.array(shares).reshape(shape)),
        "bits": (("arm", "size"), np.array(bits).reshape(shape)),
        "parameters": ("arm", [_parameters(name) for name in ARMS]),
    }


def _parameters(name: str) -> int:
    config, prepare = ARMS[name]
    model = make_model(config, causal=True, seed=0)
    prepare(model)
    return sum(q.numel() for q in model.parameters())


# Looking inside one block --------------------------------------------------------------------------

INSIDE = Facts(count=256, subjects=32, relations=32)
INSIDE_CONFIG = Config(
    vocab=INSIDE.vocab, d_model=16, n_layers=1, n_heads=2, positions="none", activation="relu"
)
INSIDE_STEPS = 300
INSIDE_RATES = (0.001, 0.003, 0.01, 0.03, 0.06, 0.12)
SILENCED = (0, 1, 2, 4, 8, 16, 32)
JUDGED = 4
"""Neurons silenced for each fact where a claim is judged."""
HOWS: tuple[How, ...] = ("least", "plain", "value")
GROUPS = ("same subject", "same relation", "neither")
EDITS = 32
"""Facts that are rewritten, one at a time."""


def one_block(seed: int) -> dict[str, Job]:
    """A model of one block that learns a table of 256 facts by heart."""
    options = whole_table(INSIDE.count, INSIDE_STEPS)
    search = Search(
        "facts-one-block", INSIDE_CONFIG, replace(INSIDE, seed=900), INSIDE_RATES, tuning_seeds(2),
        INSIDE_STEPS, options,
    )  # fmt: skip
    own = replace(INSIDE, seed=seed)
    return {"model": job(INSIDE_CONFIG, own, seed, learning_rate=tuned(search), **options)}


def _decoder(run: Run) -> Decoder:
    assert isinstance(run.model, Decoder)
    return run.model


@measurement(
    seeds=1,
    coords={"fact": range(32), "neuron": range(INSIDE_CONFIG.neurons)},
    trainings=one_block,
    repeat="opening",
    tolerance={"fires": 1.0},
)
def fires(seed: int, runs: Mapping[str, Run]) -> dict[str, Any]:
    """Activations of the first 32 facts of a learned table, each neuron in units of its largest."""
    own = replace(INSIDE, seed=seed)
    found = lookups(_decoder(runs["model"]), own).neurons
    found = found / found.amax(0).clamp_min(1e-9)
    return {"fires": (("fact", "neuron"), found[:32].double().numpy().round(3))}


@measurement(
    seeds=10,
    coords={"silenced": SILENCED, "how": HOWS, "group": GROUPS},
    trainings=one_block,
    repeat="opening",
    tolerance=dict.fromkeys(("own", "others", "drawn", "lost"), 0.5),
)
def inside_one_block(seed: int, runs: Mapping[str, Run]) -> dict[str, Any]:
    """One block: recall with neurons silenced or another write, and the cost of rewriting a fact."""
    own, model = replace(INSIDE, seed=seed), _decoder(runs["model"])
    seen, lead = lookups(model, own), leads(model, own)
    best = [silencing(model, own, strongest_neurons(lead, k)) for k in SILENCED]
    drawn = [silencing(model, own, random_active(seen.neurons, k, seed=seed)) for k in SILENCED]
    writes = seen.after - seen.before
    other = torch.randperm(own.count, generator=make_generator(seed, "swapped"))
    differ = seen.answers[other] != seen.answers
    swapped = answered(model, seen.before + writes[other])[differ]
    active = (seen.neurons > 0).double()
    edits = [overwrite(model, own, how=how, number=EDITS, seed=seed) for how in HOWS]
    lost = [edit.lost(own) for edit in edits]
    return {
        "known": recall(model, own),
        "own": ("silenced", [one.own for one in best]),
        "others": ("silenced", [one.others for one in best]),
        "drawn": ("silenced", [one.own for one in drawn]),
        "mean_write": _right(answered(model, seen.before + writes.mean(0)), seen.answers),
        "own_answer": _right(swapped, seen.answers[differ]),
        "swapped_answer": _right(swapped, seen.answers[other][differ]),
        "per_fact": float(active.sum(1).median()),
        "per_neuron": float(active.sum(0).median()),
        "done": ("how", [float(edit.done.double().mean()) for edit in edits]),
        "foretold": ("how", [float(edit.foretold.mean()) for edit in edits]),
        "lost": (("how", "group"), [[one[group] for group in GROUPS] for one in lost]),
        "lost_others": ("how", [one["others"] for one in lost]),
    }


def _right(answers: Tensor, wanted: Tensor) -> float:
    return float((answers == wanted).double().mean())


@measurement(seeds=100, tolerance={"error": 1e-12})
def algebra(seed: int) -> dict[str, Any]:
    """Largest difference between a drawn network and the sum over its neurons; with one left out."""
    return {
        "error": sum_error(seed, bias=True),
        "control": sum_error(seed, bias=True, leave_one_out=True),
    }


# A world of people ---------------------------------------------------------------------------------

PEOPLE = People(relations=3)
PEOPLE_CONFIG = Config(
    vocab=PEOPLE.vocab, d_model=32, n_layers=4, n_heads=4, positions="learned",
    max_length=PEOPLE.length, activation="relu",
)  # fmt: skip
PEOPLE_STEPS = 400
PEOPLE_RATES = (0.002, 0.004, 0.008, 0.016, 0.032, 0.064)
BLOCKS = tuple(range(1, PEOPLE_CONFIG.n_layers + 1))
POSITIONS = ("first name", "last name", "relation")
VALUES = ("stream", "attention", "network")
"""What is put back in tracing; the order is that of `TRACED`."""


def world_of(seed: int) -> People:
    """The people of a seed."""
    return replace(PEOPLE, seed=seed)


def four_blocks(seed: int) -> dict[str, Job]:
    """A model of four blocks that learns all that is known of the people of its seed."""
    options: dict[str, Any] = {
        "batch_size": 128,
        "weight_decay": 0.5,
        "schedule": WarmupCosine(warmup=PEOPLE_STEPS // 20, steps=PEOPLE_STEPS),
    }
    search = Search(
        "facts-people", PEOPLE_CONFIG, world_of(900), PEOPLE_RATES, tuning_seeds(2), PEOPLE_STEPS, options
    )  # fmt: skip
    rate = tuned(search)
    return {
        "model": job(
            PEOPLE_CONFIG, world_of(seed), seed, steps=PEOPLE_STEPS, learning_rate=rate, **options
        )
    }


@dataclass(frozen=True)
class Known:
    """All facts of a world that are asked in three tokens: plain ones first, then cities and badges.

    Attributes:
        tokens: first name, last name, relation.
        answers: the right ones.
        inside: what a model has inside when asked.
        plain: how many of them are plain.
    """

    tokens: Int[Tensor, "fact 3"]
    answers: Int[Tensor, "fact"]
    inside: Inside
    plain: int

    def groups(self, fact: int) -> dict[str, Bool[Tensor, "fact"]]:
        """Which facts have the same subject as one, which the same relation, and which neither."""
        subject = (self.tokens[:, :2] == self.tokens[fact, :2]).all(1)
        relation = self.tokens[:, 2] == self.tokens[fact, 2]
        itself = torch.arange(len(self.answers)) == fact
        return {
            "same subject": subject & ~itself,
            "same relation": relation & ~itself,
            "neither": ~(subject | relation),
        }


def known_facts(model: Decoder, task: People) -> Known:
    """The facts of a world, and what a model has inside when asked for them."""
    asked = [task.ask(question) for question in ("plain", "city", "badge")]
    tokens = torch.cat([one.inputs[:, :3] for one in asked])
    answers = torch.cat([one.targets[:, 2] for one in asked])
    return Known(tokens, answers, look_inside(model, tokens), len(asked[0].inputs))


def all_moments(model: Decoder, task: People) -> list[Float[Tensor, "d_ff d_ff"]]:
    """Second moments of each block's activations over all that training asks, up to where it answers last."""
    asked = task.training()
    real = asked.scored.flip(1).cumsum(1).flip(1) > 0
    inside = look_inside(model, asked.inputs)
    return [moments(inside, block, real) for block in range(model.config.n_layers)]


@torch.no_grad()
def answered_right(
    model: Decoder, task: People, question: Question, chosen: Bool[Tensor, "person"] | None = None
) -> Bool[Tensor, "question"]:
    """Which questions of a kind the model answers rightly, at all positions that count."""
    batch = task.ask(question, chosen)
    right = predict(model, batch).argmax(-1) == batch.targets
    return (right | ~batch.scored).all(1)


@measurement(
    seeds=10,
    coords={
        "value": VALUES, "block": BLOCKS, "position": POSITIONS,
        "question": ("plain", "city", "badge", "place"), "derived": DERIVED,
    },
    trainings=four_blocks,
    repeat="opening",
    tolerance=dict.fromkeys(("effect", "known", "seen", "held_out"), 0.5),
)  # fmt: skip
def traced(seed: int, runs: Mapping[str, Run]) -> dict[str, Any]:
    """What the model of people answers, and causal tracing of its plain facts."""
    task, model = world_of(seed), _decoder(runs["model"])
    held_out = task.world().held_out
    plain = task.ask("plain")
    found = trace(model, plain.inputs[:, :3], plain.targets[:, 2], subject=(0, 1), seed=seed)

    def share(question: Question, chosen: Bool[Tensor, "person"] | None = None) -> float:
        return float(answered_right(model, task, question, chosen).double().mean())

    return {
        "clean": float(found.clean.mean()),
        "spoilt": float(found.spoilt.mean()),
        "effect": (("value", "block", "position"), found.effect.mean(-1).double().numpy()),
        "known": ("question", [share(q) for q in ("plain", "city", "badge", "place")]),
        "seen": ("derived", [share(q, ~held_out) for q in DERIVED]),
        "held_out": ("derived", [share(q, held_out) for q in DERIVED]),
    }


# One fact at every block ---------------------------------------------------------------------------

SITES = ("last name", "relation")
PER_SITE = 16
"""Facts that are rewritten at each block and position, one at a time."""


def other_object(task: People, answers: Int[Tensor, "fact"], seed: int) -> Int[Tensor, "fact"]:
    """Another object for each plain fact, drawn."""
    moved = torch.randint(
        1, task.objects, answers.shape, generator=make_generator(seed, "new objects")
    )
    return (answers - task.object + moved) % task.objects + task.object


def drawn_facts(model: Decoder, task: People, known: Known, number: int, seed: int) -> Tensor:
    """Plain facts that the model answers rightly, drawn.

    Raises:
        ValueError: when there are fewer.
    """
    right = answered_right(model, task, "plain").nonzero().flatten()
    if len(right) < number:
        raise ValueError(f"expected {number} plain facts that the model knows, got {len(right)}")
    return right[torch.randperm(len(right), generator=make_generator(seed, "edits"))[:number]]


@measurement(
    seeds=10,
    coords={"site": SITES, "block": BLOCKS, "group": GROUPS},
    trainings=four_blocks,
    repeat="opening",
    tolerance={"done": 1.0, "lost": 1.0},
)
def places(seed: int, runs: Mapping[str, Run]) -> dict[str, Any]:
    """One fact rewritten at a time, at each block and two positions: whether it is, and what else changes."""
    task, model = world_of(seed), _decoder(runs["model"])
    known, others = known_facts(model, task), all_moments(model, task)
    facts = drawn_facts(model, task, known, PER_SITE, seed)
    wanted = other_object(task, known.answers[facts], seed)
    with torch.no_grad():
        before = model(known.tokens)[:, -1].argmax(-1)
    done = np.zeros((len(SITES), len(BLOCKS)))
    lost = np.zeros((len(SITES), len(BLOCKS), len(GROUPS)))
    for i, site in enumerate(SITES):
        position = POSITIONS.index(site)
        for block in range(len(BLOCKS)):
            added = changes_for(model, known.inside[facts], wanted, block=block, position=position)
            keys = known.inside.neurons[block, facts, position]
            for key, more, fact, new in zip(keys, added, facts, wanted, strict=True):
                change = one_fact(key, more, others[block])
                now = answers_after(model, known.inside, change, block)
                done[i, block] += float(now[fact] == new) / PER_SITE
                for j, rows in enumerate(known.groups(int(fact)).values()):
                    changed = (now != before)[rows].double().mean()
                    lost[i, block, j] += float(changed) / PER_SITE
    return {"done": (("site", "block"), done), "lost": (("site", "block", "group"), lost)}


# Many facts ----------------------------------------------------------------------------------------

NUMBERS = (1, 2, 4, 8, 16, 32, 64)
METHODS = ("at once", "one by one")


@measurement(
    seeds=10,
    coords={"method": METHODS, "number": NUMBERS},
    trainings=four_blocks,
    repeat="opening",
    tolerance={"done": 1.0, "kept": 1.0},
)
def many(seed: int, runs: Mapping[str, Run]) -> dict[str, Any]:
    """Many facts rewritten in the last block: all at once by least squares, or one after another."""
    task, model = world_of(seed), _decoder(runs["model"])
    known, others = known_facts(model, task), all_moments(model, task)[-1]
    block, position = len(BLOCKS) - 1, POSITIONS.index("relation")
    facts = drawn_facts(model, task, known, max(NUMBERS), seed)
    wanted = other_object(task, known.answers[facts], seed)
    added = changes_for(model, known.inside[facts], wanted, block=block, position=position)
    keys = known.inside.neurons[block, facts, position]
    with torch.no_grad():
        before = model(known.tokens)[:, -1].argmax(-1)
    done, kept = [], []
    for change_of in (all_at_once, one_after_another):
        for count in NUMBERS:
            change = change_of(keys[:count], added[:count], others)
            now = answers_after(model, known.inside, change, block)
            rest = torch.ones(len(now), dtype=torch.bool)
            rest[facts[:count]] = False
            done.append(_right(now[facts[:count]], wanted[:count]))
            kept.append(_right(now[rest], before[rest]))
    shape = (len(METHODS), len(NUMBERS))
    axes = ("method", "number")
    return {
        "done": (axes, np.array(done).reshape(shape)),
        "kept": (axes, np.array(kept).reshape(shape)),
    }


# What follows --------------------------------------------------------------------------------------

ROUTES = ("the edit", "chain", "country", "holder")
"""Asked after an edit: the city itself, the country with the new city written down, the country in one step;
and for an edited badge its holder."""
STALE = ("new", "old")
PLACED = ("last name 1", *(f"relation {block}" for block in BLOCKS))
"""Where cities and badges are rewritten: position and block."""


def weights_changed(model: Decoder, change: Float[Tensor, "d_model d_ff"], block: int) -> Decoder:
    """A copy of the model with something added to the second matrix of a block's network."""
    other = copy.deepcopy(model)
    down = cast(Block, other.blocks[block]).feedforward.down.weight
    with torch.no_grad():
        down.add_(change.to(down))
    return other


@measurement(
    seeds=10,
    coords={"place": PLACED, "route": ROUTES, "answer": STALE},
    trainings=four_blocks,
    repeat="opening",
    tolerance={"follows": 1.0},
)
def ripples(seed: int, runs: Mapping[str, Run]) -> dict[str, Any]:
    """Cities and badges rewritten, one at a time, and the answers that should follow from them."""
    task, model = world_of(seed), _decoder(runs["model"])
    world, others = task.world(), all_moments(model, task)
    draws = make_generator(seed, "ripples")
    right = [answered_right(model, task, question) for question in ("city", "badge", *DERIVED)]
    people_asked = (torch.stack(right).all(0) & ~world.held_out).nonzero().flatten()
    people = people_asked[torch.randperm(len(people_asked), generator=draws)[:PER_SITE]]
    cities = torch.tensor([_elsewhere(task, int(who), draws) for who in people])
    strangers = torch.tensor([_stranger(people_asked, int(who), draws) for who in people])
    badges = world.badge[strangers]
    asked = {q: task.ask(q).inputs[people] for q in ("city", "badge", "country", "chain")}
    asked["chain"][:, 3] = task.town + cities
    names = world.names + torch.tensor([task.first, task.last])
    for what, who in (("holder", people), ("old holder", strangers)):
        asked[what] = task.ask("holder").inputs[who]  # with the first name of who is asked about
        asked[what][:, 0] = task.badges + badges
    old_country = task.state + world.country[world.city[people]]
    new_country = task.state + world.country[cities]
    found = np.zeros((len(PLACED), len(ROUTES), 2))
    for i, place in enumerate(PLACED):
        site, block = place[:-2], int(place[-1]) - 1
        position = POSITIONS.index(site)
        for question, wanted in (("city", task.town + cities), ("badge", task.badges + badges)):
            inside = look_inside(model, asked[question][:, :3])
            added = changes_for(model, inside, wanted, block=block, position=position)
            for j, more in enumerate(added):
                change = one_fact(inside.neurons[block, j, position], more, others[block])
                edited_model = weights_changed(model, change, block)

                def ask(what: str, at: int, j: int = j, of: Decoder = edited_model) -> Tensor:
                    with torch.no_grad():
                        return of(asked[what][[j]])[0, at].argmax()

                def named(what: str, who: Tensor, j: int = j, ask: Any = ask) -> Tensor:
                    return (torch.stack([ask(what, 1), ask(what, 2)]) == names[who[j]]).all()

                if question == "city":
                    old_city = task.town + world.city[people[j]]
                    city, chain, country = ask("city", 2), ask("chain", 4), ask("country", 2)
                    said = {
                        "the edit": (city == wanted[j], city == old_city),
                        "chain": (chain == new_country[j], chain == old_country[j]),
                        "country": (country == new_country[j], country == old_country[j]),
                    }
                else:  # both names, the second one given the first
                    said = {"holder": (named("holder", people), named("old holder", strangers))}
                for route, (new, old) in said.items():
                    found[i, ROUTES.index(route)] += np.array([bool(new), bool(old)]) / len(people)
    return {"follows": (("place", "route", "answer"), found), "people": len(people)}


def _elsewhere(task: People, person: int, draws: torch.Generator) -> int:
    """A city in another country than that of a person's city, drawn."""
    world = task.world()
    here = world.country[world.city[person]]
    far = (world.country != here).nonzero().flatten()
    return int(far[torch.randint(len(far), (1,), generator=draws)])


def _stranger(people: Tensor, person: int, draws: torch.Generator) -> int:
    """Another one of these people, drawn."""
    others = people[people != person]
    return int(others[torch.randint(len(others), (1,), generator=draws)])
