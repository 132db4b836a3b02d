r"""What the chapter on probes and lenses measures: what can be read where, and whether the model misses it.

Three worked cases, each a decoder or encoder of six blocks. A model of sentences must know the number of the
subject where the verb is due, and has just read a place whose number does not matter. An encoder that reverses
a sequence must know positions, but not for long. A model of random facts must find the object. In each, probes
read the property after every number of blocks; erasers take it away there, and the rest of the model runs on.

Sources: Hewitt and Liang (2019), control tasks; Voita and Titov (2020), description length; Elazar et al.
(2021) and Ravichander et al. (2021), reading and using; Belrose et al. (2023), the tuned lens and LEACE.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from measured_transformer.analysis.erasure import (
    Eraser,
    leace,
    mean_gap,
    mean_projection,
    moved,
    nullspace,
)
from measured_transformer.analysis.fact_counts import recall, whole_table
from measured_transformer.analysis.grammar_probes import agreement_examples
from measured_transformer.analysis.lens import depths, fit_tuned_lens
from measured_transformer.analysis.probing import dealt
from measured_transformer.analysis.readers import accuracy, fit_reader, online_code
from measured_transformer.internals.intervene import intervene
from measured_transformer.models.config import Config
from measured_transformer.models.decoder import Decoder
from measured_transformer.tasks.facts import Facts
from measured_transformer.tasks.grammar import INTRANSITIVE, TRANSITIVE, VOCABULARY, Grammar
from measured_transformer.tasks.reversal import Reversal
from measured_transformer.tasks.task import Batch
from measured_transformer.training.jobs import Job
from measured_transformer.training.loop import Run, evaluate, make_model
from measured_transformer.training.schedules import WarmupLinear
from measured_transformer.training.seeding import make_generator
from torch import Tensor

from measured_book.measuring import Search, job, measurement, tuned, tuning_seeds

BLOCKS = 6
STATES = tuple(range(BLOCKS + 1))
"""Blocks that the stream has passed."""
TAPS = ("embedding", *(f"blocks.{i}.residual_post" for i in range(BLOCKS)))
"""Where each of `STATES` passes."""
ERASERS = ("leace", "mean", "drawn")
"""What erases: LEACE, the projection at right angles, and LEACE for labels that were shuffled."""
DRAWS = 3
"""Shuffled labels that the last of them is the mean of."""


# Reading and erasing, whatever the property ---------------------------------------------------------


@dataclass(frozen=True)
class Case:
    """Examples of a property at one depth: those that probes and erasers are fitted on, and others.

    Attributes:
        known, asked: states, one row an example.
        labels, answers: their labels.
        n_labels: number of labels.
    """

    known: Float[Tensor, "example d_model"]
    labels: Int[Tensor, "example"]
    asked: Float[Tensor, "other d_model"]
    answers: Int[Tensor, "other"]
    n_labels: int

    def relabelled(self, labels: Tensor) -> Case:
        """The same states with other labels, first those of `known`, then those of `asked`."""
        cut = len(self.known)
        return replace(self, labels=labels[:cut], answers=labels[cut:])

    def erased(self, erase: Eraser) -> Case:
        """The same examples after an eraser."""
        return replace(self, known=erase(self.known), asked=erase(self.asked))

    def read(self, *, hidden: int = 0, seed: int = 0, steps: int = 40) -> float:
        """How often a probe, fitted on the known examples, is right on the others."""
        return accuracy(
            torch.cat((self.known, self.asked)),
            torch.cat((self.labels, self.answers)),
            torch.arange(len(self.known) + len(self.asked)) < len(self.known),
            n_labels=self.n_labels,
            hidden=hidden,
            seed=seed,
            steps=steps,
        )

    def eraser(self, how: str, seed: int = 0) -> Eraser:
        """One of `ERASERS`, fitted on the known examples; the seed is that of shuffled labels."""
        labels = self.labels
        if how == "drawn":
            draws = make_generator(seed, "shuffled")
            labels = labels[torch.randperm(len(labels), generator=draws)]
        fit = mean_projection if how == "mean" else leace
        return fit(self.known, labels, n_labels=self.n_labels)


def erasing(
    case: Case, right: Callable[[Eraser], float], seed: int
) -> tuple[Float[np.ndarray, "eraser"], Float[np.ndarray, "eraser"]]:
    """How often the model is still right after each of `ERASERS`, and how far the known states have moved."""
    kept, far = [], []
    for how in ERASERS:
        draws = DRAWS if how == "drawn" else 1
        found = [case.eraser(how, 100 * seed + i) for i in range(draws)]
        kept.append(np.mean([right(erase) for erase in found]))
        far.append(np.mean([moved(case.known, erase(case.known)) for erase in found]))
    return np.array(kept), np.array(far)


def within(state: int, model: Any, erase: Eraser, where: Any, batch: Batch) -> Tensor:
    """The model's logits when an eraser acts on the stream at some positions of one of `STATES`.

    Args:
        state: blocks passed.
        model: runs on with what is left.
        erase: what acts.
        where: an index of batch and position.
        batch: what the model reads.
    """

    def change(stream: Tensor) -> Tensor:
        stream[where] = erase(stream[where])
        return stream

    with torch.no_grad(), intervene(model, {TAPS[state]: change}):
        return model(batch.inputs)


# Sentences -----------------------------------------------------------------------------------------

SENTENCES = Grammar(length=24, attractor=0.5, reference=0.9)
SENTENCE_CONFIG = Config(
    vocab=SENTENCES.vocab, n_layers=BLOCKS, d_model=64, d_ff=64, n_heads=4, positions="rotary",
    rotary_base=10.0,
)  # fmt: skip
SENTENCE_STEPS = 400
SENTENCE_RATES = (2e-3, 4e-3, 8e-3, 1.6e-2, 3.2e-2, 6.4e-2)
KNOWN, ASKED = 1200, 800
"""Sequences that probes and erasers are fitted on, and that they are scored on."""
WHATS = ("subject", "place")
"""Whose number is read where the verb is due: the subject's, which it agrees with, and the last word's."""
DEALS = 3
"""Control tasks at each depth."""
HIDDEN = 128
ROUNDS = (1, 2, 4, 8, 16, 32, 48)
"""Probes that are taken away one after another."""


def sentence_training(seed: int) -> dict[str, Job]:
    """A decoder of six blocks that reads sentences."""
    options: dict[str, Any] = {"batch_size": 16, "schedule": WarmupLinear(20, SENTENCE_STEPS)}
    search = Search(
        "probes-sentences", SENTENCE_CONFIG, SENTENCES, SENTENCE_RATES, tuning_seeds(2), SENTENCE_STEPS,
        options,
    )  # fmt: skip
    return {
        "sentences": job(
            SENTENCE_CONFIG, SENTENCES, seed, steps=SENTENCE_STEPS, learning_rate=tuned(search), **options
        )
    }  # fmt: skip


@dataclass(frozen=True)
class Verbs:
    """Sequences, and the places in them where a verb is due behind a place.

    Attributes:
        batch: the sequences.
        where: rows and positions of the last word before each verb.
        labels: for each of `WHATS`, 0 for singular and 1 for plural.
        types: the words that decide the labels.
    """

    batch: Batch
    where: tuple[Tensor, Tensor]
    labels: Mapping[str, Int[Tensor, "verb"]]
    types: Mapping[str, Int[Tensor, "verb"]]

    def right(self, logits: Tensor) -> float:
        """How often the verbs of the subject's number are more likely, all together, than the others."""
        stems = (*INTRANSITIVE, *TRANSITIVE)
        chances = logits[self.where].softmax(-1)
        singular = chances[:, [VOCABULARY.index(stem + "s") for stem in stems]].sum(-1)
        plural = chances[:, [VOCABULARY.index(stem) for stem in stems]].sum(-1)
        return float(((plural > singular).long() == self.labels["subject"]).double().mean())


def verbs(seed: int, stream: str, size: int) -> Verbs:
    """Verbs of drawn sentences; sequences without one are left out.

    Args:
        seed: of the drawing.
        stream: name of the generator.
        size: number of sequences drawn.
    """
    batch = SENTENCES.batch(make_generator(seed, stream), size)
    rows = agreement_examples(batch).rows.unique()
    batch = Batch(
        batch.inputs[rows],
        batch.targets[rows],
        batch.scored[rows],
        gold={name: each[rows] for name, each in batch.gold.items()},
    )
    found = agreement_examples(batch)
    where = found.rows, found.places
    return Verbs(
        batch,
        where,
        {"subject": found.labels, "place": batch.gold["number"][where]},
        {"subject": found.types, "place": batch.inputs[where]},
    )


@measurement(
    seeds=10,
    coords={"what": WHATS, "state": STATES, "eraser": ERASERS, "rounds": ROUNDS},
    trainings=sentence_training,
    repeat="opening",
    tolerance={
        **dict.fromkeys(("accuracy", "control", "left", "hidden", "kept", "moved"), 1.0),
        **dict.fromkeys(("rounds_left", "rounds_kept", "whole", "loss", "chance"), 1.0),
        **dict.fromkeys(("bits", "control_bits"), 2.0),
    },
)
def sentences(seed: int, runs: Mapping[str, Run]) -> dict[str, Any]:
    """The number of the subject and of the last word, where a verb is due: read, coded, erased."""
    model: Any = runs["sentences"].model
    known, asked = verbs(seed, "probes", KNOWN), verbs(seed, "evaluation", ASKED)
    states = [depths(model, one.batch)[(slice(None), *one.where)] for one in (known, asked)]
    size = len(known.labels["subject"])
    found: dict[str, Any] = {}

    def keep(name: str, what: str, value: Any) -> None:
        found.setdefault(name, {}).setdefault(what, []).append(value)

    for what in WHATS:
        labels = torch.cat((known.labels[what], asked.labels[what]))
        types = torch.cat((known.types[what], asked.types[what]))
        deals = dealt(labels, types, make_generator(seed, "control"), deals=DEALS)
        for state in STATES:
            here, there = (each[state] for each in states)
            case = Case(here, labels[:size], there, labels[size:], 2)
            keep("accuracy", what, case.read())
            keep("control", what, np.mean([case.relabelled(deal).read() for deal in deals]))
            keep("bits", what, online_code(here, labels[:size], n_labels=2))
            keep("control_bits", what, online_code(here, deals[0, :size], n_labels=2))
            erase = case.eraser("leace")
            keep("left", what, case.erased(erase).read())
            keep("hidden", what, case.erased(erase).read(hidden=HIDDEN, seed=seed, steps=60))

            def right(erase: Eraser, state: int = state) -> float:
                return asked.right(within(state, model, erase, asked.where, asked.batch))

            kept, far = erasing(case, right, seed)
            keep("kept", what, kept)
            keep("moved", what, far)
        for rounds in ROUNDS:  # at the last state
            erase = nullspace(case.known, case.labels, n_labels=2, rounds=rounds)
            keep("rounds_left", what, case.erased(erase).read())
            keep("rounds_kept", what, right(erase))
    axes = {
        **dict.fromkeys(("kept", "moved"), ("what", "state", "eraser")),
        **dict.fromkeys(("rounds_left", "rounds_kept"), ("what", "rounds")),
    }
    with torch.no_grad():
        whole = asked.right(model(asked.batch.inputs))
    return {
        **{
            name: (axes.get(name, ("what", "state")), np.array([each[what] for what in WHATS]))
            for name, each in found.items()
        },
        "whole": whole,
        "loss": evaluate(model, SENTENCES, seed=seed).loss,
        "examples": size,
        "chance": (
            "what",
            [float(asked.labels[what].bincount().max()) / len(asked.where[0]) for what in WHATS],
        ),
    }


AFRESH = 4000
"""What is added to the seeds of `sentences_afresh`, which nothing else is measured on."""


def fresh_sentence_training(seed: int) -> dict[str, Job]:
    """The decoder that reads sentences, on a fresh seed."""
    return sentence_training(AFRESH + seed)


@measurement(
    seeds=10,
    coords={"what": WHATS, "state": STATES},
    trainings=fresh_sentence_training,
    repeat="opening",
    tolerance={"accuracy": 1.0, "control": 1.0, "bits": 2.0, "control_bits": 2.0},
)
def sentences_afresh(seed: int, runs: Mapping[str, Run]) -> dict[str, Any]:
    """What is read and coded of the number of the subject and of the last word, on fresh seeds."""
    found = sentences(AFRESH + seed, runs)
    return {name: found[name] for name in ("accuracy", "control", "bits", "control_bits")}


# Lenses --------------------------------------------------------------------------------------------

LENSES = ("logit", "tuned")
LENS_FIT = {"rows": 200, "steps": 250, "size": 384}


def kl(
    model_says: Float[Tensor, "*position vocab"], read: Float[Tensor, "*position vocab"]
) -> Tensor:
    """KL divergence from what is read to what the model says, in nats; both as log probabilities."""
    return (model_says.exp() * (model_says - read)).sum(-1)


def through(model: Any, states: Tensor) -> Tensor:
    """Log probabilities of the next word that final norm and unembedding read from states."""
    return torch.stack([model.unembed(each) for each in states]).log_softmax(-1)


def readings(
    model: Any, batch: Batch, seed: int
) -> dict[str, Float[Tensor, "state batch position vocab"]]:
    """What each of `LENSES` reads from other sequences than the tuned one is fitted on."""
    own = SENTENCES.batch(make_generator(seed, "lens"), LENS_FIT["rows"])
    lens = fit_tuned_lens(model, own, seed=seed, steps=LENS_FIT["steps"], size=LENS_FIT["size"])
    with torch.no_grad():
        states = depths(model, batch)
        return {"logit": through(model, states), "tuned": through(model, lens.translated(states))}


@measurement(
    seeds=10,
    coords={"lens": LENSES, "state": STATES},
    trainings=sentence_training,
    repeat="opening",
    tolerance={"kl": 3.0, "bias": 3.0, "number": 1.0, "agrees": 1.0},
)
def lenses(seed: int, runs: Mapping[str, Run]) -> dict[str, Any]:
    """How far what a lens reads is from what the model will say, and whether it has the number right."""
    model: Any = runs["sentences"].model
    asked = verbs(seed, "evaluation", ASKED // 2)
    found: dict[str, list[list[float]]] = {"kl": [], "bias": [], "number": [], "agrees": []}
    for read in readings(model, asked.batch, seed).values():
        final = read[-1]
        mean = final.exp().mean((0, 1)).log()
        found["kl"].append([float(kl(final, each).mean()) for each in read])
        found["bias"].append([float(kl(mean, each.exp().mean((0, 1)).log())) for each in read])
        found["number"].append([asked.right(each) for each in read])
        found["agrees"].append(
            [float((each.argmax(-1) == final.argmax(-1)).double().mean()) for each in read]
        )
    return {name: (("lens", "state"), values) for name, values in found.items()}


@measurement(
    seeds=10,
    coords={"lens": LENSES, "state": STATES},
    tolerance={"kl": 3.0, "bias": 3.0},
)
def untrained_lenses(seed: int) -> dict[str, Any]:
    """The same for models that were never trained, which know nothing that could be read early."""
    model: Any = make_model(SENTENCE_CONFIG, causal=True, seed=seed).eval()
    found: dict[str, list[list[float]]] = {"kl": [], "bias": []}
    for read in readings(model, verbs(seed, "evaluation", ASKED // 2).batch, seed).values():
        final = read[-1]
        mean = final.exp().mean((0, 1)).log()
        found["kl"].append([float(kl(final, each).mean()) for each in read])
        found["bias"].append([float(kl(mean, each.exp().mean((0, 1)).log())) for each in read])
    return {name: (("lens", "state"), values) for name, values in found.items()}


TEXT = "the kings near one river wait because they"
SENTENCE = tuple(TEXT.split())


@measurement(
    seeds=1,
    coords={"lens": LENSES, "state": STATES, "position": tuple(range(len(SENTENCE)))},
    trainings=sentence_training,
    repeat="opening",
    tolerance={"word": 200.0, "chance": 1.0},
)
def one_sentence(seed: int, runs: Mapping[str, Run]) -> dict[str, Any]:
    """The most likely next word that each lens reads in one sentence, and its probability."""
    model: Any = runs["sentences"].model
    tokens = torch.tensor([[VOCABULARY.index(word) for word in SENTENCE]])
    batch = Batch(tokens, tokens, torch.ones_like(tokens, dtype=torch.bool))
    read = readings(model, batch, seed)
    best = [each[:, 0].exp().max(-1) for each in read.values()]
    axes = ("lens", "state", "position")
    return {
        "word": (axes, torch.stack([one.indices for one in best]).numpy()),
        "chance": (axes, torch.stack([one.values for one in best]).double().numpy().round(4)),
    }


# Positions -----------------------------------------------------------------------------------------

MIRROR = Reversal(vocab=8, length=8)
MIRROR_CONFIG = Config(vocab=8, d_model=32, n_layers=BLOCKS, n_heads=2, activation="relu")
MIRROR_STEPS = 400
MIRROR_RATES = (1e-3, 2e-3, 4e-3, 8e-3, 1.6e-2, 3.2e-2)
LATER = 500
"""What is added to the seeds of these trainings: with half the steps the first ten had been looked at."""
ROWS = 300


def mirror_training(seed: int) -> dict[str, Job]:
    """An encoder of six blocks that reverses a sequence."""
    options: dict[str, Any] = {"batch_size": 32, "schedule": WarmupLinear(40, MIRROR_STEPS)}
    search = Search(
        "probes-reversal", MIRROR_CONFIG, MIRROR, MIRROR_RATES, tuning_seeds(2), MIRROR_STEPS, options
    )  # fmt: skip
    rate = tuned(search)
    return {
        "mirror": job(
            MIRROR_CONFIG, MIRROR, seed + LATER, steps=MIRROR_STEPS, learning_rate=rate, **options
        )
    }


def _depth_by_depth(
    model: Any, case: Callable[[int], Case], right: Callable[[int, Eraser], float], seed: int
) -> dict[str, Any]:
    """What is read, what is left to be read after LEACE, and what the model keeps, at each of `STATES`."""
    found: dict[str, list[Any]] = {"accuracy": [], "own": [], "left": [], "kept": [], "moved": []}
    for state in STATES:
        one = case(state)
        read = fit_reader(one.known, one.labels, n_labels=one.n_labels)
        own = (read(one.known).argmax(-1) == one.labels).double().mean()
        kept, far = erasing(one, partial(right, state), seed)
        found["own"].append(float(own))
        found["accuracy"].append(one.read())
        found["left"].append(one.erased(one.eraser("leace")).read())
        found["kept"].append(kept)
        found["moved"].append(far)
    axes = dict.fromkeys(("kept", "moved"), ("state", "eraser"))
    return {name: (axes.get(name, ("state",)), values) for name, values in found.items()}


_LOOSE = dict.fromkeys(("accuracy", "own", "left", "kept", "moved", "whole"), 1.0)


@measurement(
    seeds=20,
    coords={"state": STATES, "eraser": ERASERS},
    trainings=mirror_training,
    repeat="opening",
    tolerance=_LOOSE,
)
def positions(seed: int, runs: Mapping[str, Run]) -> dict[str, Any]:
    """The position in a sequence that is to be reversed: read and erased at all positions."""
    model: Any = runs["mirror"].model
    known, asked = (MIRROR.batch(make_generator(seed, of), ROWS) for of in ("probes", "evaluation"))
    states = [depths(model, one) for one in (known, asked)]
    labels = torch.arange(MIRROR.length).repeat(ROWS)

    def case(state: int) -> Case:
        here, there = (each[state].flatten(0, 1) for each in states)
        return Case(here, labels, there, labels, MIRROR.length)

    def right(state: int, erase: Eraser) -> float:
        answers = within(state, model, erase, (slice(None), slice(None)), asked).argmax(-1)
        return float((answers == asked.targets)[asked.scored].double().mean())

    with torch.no_grad():
        whole = (model(asked.inputs).argmax(-1) == asked.targets)[asked.scored].double().mean()
    return {**_depth_by_depth(model, case, right, seed), "whole": float(whole)}


# Facts ---------------------------------------------------------------------------------------------

TABLE = Facts(count=512, subjects=32, relations=32, objects=8)
TABLE_CONFIG = Config(
    vocab=TABLE.vocab, d_model=64, n_layers=BLOCKS, n_heads=4, d_ff=64, positions="none", activation="relu"
)  # fmt: skip
TABLE_STEPS = 300
TABLE_RATES = (1e-3, 2e-3, 4e-3, 8e-3, 1.6e-2, 3.2e-2, 6.4e-2)


def facts_training(seed: int) -> dict[str, Job]:
    """A decoder of six blocks that learns a random table by heart."""
    options = whole_table(TABLE.count, TABLE_STEPS)
    search = Search(
        "probes-facts", TABLE_CONFIG, replace(TABLE, seed=900), TABLE_RATES, tuning_seeds(2), TABLE_STEPS,
        options,
    )  # fmt: skip
    own = replace(TABLE, seed=seed)
    return {"facts": job(TABLE_CONFIG, own, seed, learning_rate=tuned(search), **options)}


@measurement(
    seeds=10,
    coords={"state": STATES, "eraser": ERASERS},
    trainings=facts_training,
    repeat="opening",
    tolerance=_LOOSE,
)
def facts(seed: int, runs: Mapping[str, Run]) -> dict[str, Any]:
    """The object of a fact, where it is asked for: probes are fitted on one half of the table."""
    model: Any = runs["facts"].model
    assert isinstance(model, Decoder)
    task = replace(TABLE, seed=seed)
    table = task.facts()
    states = depths(model, table)[:, :, -1]
    labels = table.targets[:, -1] - (task.subjects + task.relations)
    half = torch.arange(task.count) % 2 == 0

    def case(state: int) -> Case:
        each = states[state]
        return Case(each[half], labels[half], each[~half], labels[~half], task.objects)

    def right(state: int, erase: Eraser) -> float:
        answers = within(state, model, erase, (slice(None), -1), table)[:, -1].argmax(-1)
        return float((answers == table.targets[:, -1])[~half].double().mean())

    return {**_depth_by_depth(model, case, right, seed), "whole": recall(model, task)}


# What erasers guarantee -----------------------------------------------------------------------------


@measurement(seeds=100, tolerance={"gap": 1e-10, "gain": 1e-6, "excess": 1.0})
def guarantee(seed: int) -> dict[str, Any]:
    """Drawn states of three classes: how far the means are apart after LEACE, and what a probe gains on them.

    Beside it the same after one round of nullspace projection and before any eraser, and how much farther
    LEACE moves the states than the projection at right angles.
    """
    draws = make_generator(seed, "states")
    size, width, n_labels = 300, 8, 3
    labels = torch.randint(n_labels, (size,), generator=draws)
    mix = torch.randn(width, width, generator=draws, dtype=torch.float64)
    means = torch.randn(n_labels, width, generator=draws, dtype=torch.float64)
    noise = torch.randn(size, width, generator=draws, dtype=torch.float64)
    states = noise @ mix + means[labels]
    erase = leace(states, labels, n_labels=n_labels)
    once = nullspace(states, labels, n_labels=n_labels, rounds=1)
    project = mean_projection(states, labels, n_labels=n_labels)
    shares = torch.bincount(labels, minlength=n_labels).double() / size
    blind = -(shares * shares.log()).sum()

    def gain(x: Tensor) -> float:
        read = fit_reader(x, labels, n_labels=n_labels, penalty=0.0, steps=200)
        return float(blind + read(x).gather(1, labels[:, None]).mean())

    return {
        "gap": mean_gap(erase(states), labels, n_labels=n_labels),
        "gap_once": mean_gap(once(states), labels, n_labels=n_labels),
        "gain": gain(erase(states)),
        "gain_before": gain(states),
        "excess": moved(states, erase(states)) - moved(states, project(states)),
    }
