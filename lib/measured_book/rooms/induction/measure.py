r"""What the chapter on induction and learning in context measures: heads that form, and their weights.

Strings that repeat themselves are continued by two layers of attention alone, by two whole blocks, and by one
layer; where part of the data does not repeat; and by the book's own language model. A small Transformer that
reads numbers does regression in its context, beside the least-squares solution and a step of gradient descent.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

import numpy as np
import torch
from jaxtyping import Float
from measured_transformer.analysis.ablation import Component, ablated
from measured_transformer.analysis.circuits import (
    composition,
    copying_score,
    head_circuits,
    token_circuit,
)
from measured_transformer.analysis.induction import previous_token_score
from measured_transformer.internals.capture import capture
from measured_transformer.internals.intervene import intervene
from measured_transformer.models.config import Config
from measured_transformer.models.decoder import Decoder
from measured_transformer.models.stack import make_block
from measured_transformer.parts.attention import MultiHeadAttention
from measured_transformer.tasks.induction import Induction
from measured_transformer.tasks.opened_text import OpenedText, characters
from measured_transformer.tasks.task import Batch, check_share
from measured_transformer.training.jobs import Job
from measured_transformer.training.loop import (
    Model,
    Run,
    Step,
    clip_gradients,
    make_model,
    predict,
    train,
)
from measured_transformer.training.schedules import WarmupCosine
from measured_transformer.training.seeding import make_generator, seeded
from measured_transformer.variants.component_ablation import without_ffn
from numpy import ndarray
from torch import Tensor, nn
from torch.nn import functional as F

from measured_book.measuring import Search, job, measurement, tuned, tuning_seeds

# What heads look at -------------------------------------------------------------------------------


def prefix_matching_score(
    pattern: Float[Tensor, "batch head query key"], batch: Batch
) -> Float[Tensor, "head"]:
    """The prefix-matching score: mean weight right behind earlier copies of the present token.

    Over positions that are scored. Copies are those one period of the string back, two periods, and so on:
    in strings of different tokens these are all.
    Source: Olsson et al. (2022), "In-context Learning and Induction Heads".

    Args:
        pattern: where heads look.
        batch: of strings that repeat themselves, with `gold["source"]`, right behind the last copy.
    """
    place = torch.arange(pattern.shape[-1])
    period = place + 1 - batch.gold["source"]
    distance = place[:, None] + 1 - place
    behind = (distance > 0) & (place > 0) & (distance % period[..., None] == 0)
    weight = (pattern * behind[:, None]).sum(-1).transpose(1, 2)
    return weight[batch.scored].mean(0)


@torch.no_grad()
def scores(model: Model, batch: Batch) -> tuple[Float[ndarray, "layer head"], ...]:
    """Previous-token and prefix-matching score of every head."""
    with capture(model, "blocks.*.attention.pattern") as seen:
        predict(model, batch)
    patterns = [pattern.double() for pattern in seen.values()]
    return (
        np.array([previous_token_score(pattern).tolist() for pattern in patterns]),
        np.array([prefix_matching_score(pattern, batch).tolist() for pattern in patterns]),
    )


@torch.no_grad()
def right(model: Model, batch: Batch) -> float:
    """Share of the scored positions with the right answer."""
    found = (predict(model, batch).argmax(-1) == batch.targets)[batch.scored]
    return float(found.double().mean())


@torch.no_grad()
def nats(model: Model, batch: Batch) -> float:
    """Loss in nats per scored position."""
    losses = F.cross_entropy(predict(model, batch).transpose(1, 2), batch.targets, reduction="none")
    return float(losses[batch.scored].double().mean())


# What weights say ---------------------------------------------------------------------------------

OFFSETS = tuple(range(3, 10))
"""From a query back to the position after the last copy of its token, in strings of 4 to 10."""


def copies(model: Decoder, layer: int, head: int) -> float:
    """The copying score of a head: of its OV circuit from tokens to logits."""
    ov = head_circuits(model, layer, head, offset=1)[1]
    return copying_score(token_circuit(model, ov.form).eigenvalues())


@torch.no_grad()
def composed(model: Decoder, earlier: int, later: int, by: str) -> float:
    """How well what a head of layer 0 writes fits what a head of layer 1 reads for its queries, keys or values.

    With rotary positions queries and keys depend on how far apart they are; the mean over `OFFSETS` is taken.
    """
    writes = head_circuits(model, 0, earlier, offset=1)[1].form
    if by == "v":
        return composition(writes, head_circuits(model, 1, later, offset=1)[1].form)
    forms = [head_circuits(model, 1, later, offset=offset)[0].form for offset in OFFSETS]
    return float(np.mean([composition(writes, form if by == "q" else form.T) for form in forms]))


@torch.no_grad()
def copying_matrix(model: Decoder, heads: Sequence[int]) -> Float[Tensor, "token logit"]:
    """Which logits heads of layer 1 raise for each token that they attend to: the sum of their OV circuits."""
    forms = [head_circuits(model, 1, head, offset=1)[1].form for head in heads]
    return torch.stack([token_circuit(model, form).matrix for form in forms]).sum(0)


@torch.no_grad()
def matching_matrix(
    model: Decoder, earlier: Sequence[int], later: Sequence[int]
) -> Float[Tensor, "token previous"]:
    """What heads of layer 1 score for a query's token and for the token in front of a key.

    The key is what heads of layer 0 wrote about the token in front. Sums over heads, means over `OFFSETS`.
    """
    tokens = model.embedding_scale * model.token_embedding.weight
    writes = [head_circuits(model, 0, head, offset=1)[1].form for head in earlier]
    total = torch.zeros(len(tokens), len(tokens))
    for head in later:
        for offset in OFFSETS:
            reads = head_circuits(model, 1, head, offset=offset)[0].form
            for form in writes:
                total += (tokens @ (reads @ form.T).matrix @ tokens.T) / len(OFFSETS)
    return total


def on_diagonal(matrix: Float[Tensor, "row column"]) -> float:
    """Share of the rows whose largest entry stands on the diagonal.

    >>> on_diagonal(torch.tensor([[2.0, 1.0], [3.0, 0.0]]))
    0.5
    """
    return float((matrix.argmax(1) == torch.arange(len(matrix))).double().mean())


# The trained models -------------------------------------------------------------------------------

STRINGS = Induction(vocab=16, length=24, shortest=4, longest=10)
STEPS = 400
RATES = (1e-3, 2e-3, 4e-3, 8e-3, 1.6e-2, 3.2e-2)
DEEP = ("attention only", "whole blocks")
ARMS = (*DEEP, "one layer")
"""Two layers of four heads and nothing else, not even norms; two blocks with norms and networks; one layer of
eight heads and nothing else."""
HEADS = (0, 1, 2, 3)
BATCH = 32
LOOKED_ON = 256


def config_of(arm: str, vocab: int = STRINGS.vocab) -> Config:
    """A decoder of width 32 with rotary positions and heads of width 8."""
    whole, one = arm == "whole blocks", arm == "one layer"
    return Config(
        vocab=vocab,
        d_model=32,
        n_layers=1 if one else 2,
        n_heads=8 if one else 4,
        d_head=8,
        d_ff=64 if whole else 1,
        positions="rotary",
        norm="rms" if whole else "none",
        bias=False,
    )


def options_of(arm: str) -> dict[str, Any]:
    """How an arm is trained, beyond its learning rate."""
    return {"batch_size": BATCH, **({} if arm == "whole blocks" else {"prepare": without_ffn})}


def rate_of(arm: str) -> float:
    """The learning rate that suits an arm."""
    name = f"circuits-{arm.replace(' ', '-')}"
    options = options_of(arm)
    return tuned(Search(name, config_of(arm), STRINGS, RATES, tuning_seeds(2), STEPS, options))


def string_trainings(seed: int) -> dict[str, Job]:
    """Each arm, at the rate that suits it."""
    return {
        arm: job(
            config_of(arm),
            STRINGS,
            seed,
            steps=STEPS,
            learning_rate=rate_of(arm),
            **options_of(arm),
        )
        for arm in ARMS
    }


def fresh(arm: str, seed: int) -> Decoder:
    """A model of an arm before any training."""
    model = make_model(config_of(arm), causal=True, seed=seed)
    if arm != "whole blocks":
        without_ffn(model)
    return cast(Decoder, model.eval())


@measurement(
    seeds=10,
    coords={
        "arm": ARMS,
        "deep": DEEP,
        "state": ("untrained", "trained"),
        "layer": (0, 1),
        "head": HEADS,
        "later": HEADS,
        "by": ("q", "k", "v"),
    },
    trainings=string_trainings,
    repeat="opening",
    tolerance={
        "accuracy": 0.1,
        "previous": 0.3,
        "prefix": 0.3,
        "copying": 0.3,
        "composition": 0.1,
        "one_layer_prefix": 0.1,
        "loss": 0.5,
    },
)
@torch.no_grad()
def formed(seed: int, runs: Mapping[str, Run]) -> dict[str, Any]:
    """What heads of models that continue strings look at and copy, and how their weights compose."""
    batch = STRINGS.batch(make_generator(seed, "strings"), LOOKED_ON)
    models = [[fresh(arm, seed), cast(Decoder, runs[arm].model)] for arm in DEEP]
    looked = [[scores(model, batch) for model in row] for row in models]
    axes = ("deep", "state", "layer", "head")
    return {
        "accuracy": ("arm", [right(runs[arm].model, batch) for arm in ARMS]),
        "loss": ("arm", [nats(runs[arm].model, batch) for arm in ARMS]),
        "previous": (axes, [[each[0] for each in row] for row in looked]),
        "prefix": (axes, [[each[1] for each in row] for row in looked]),
        "copying": (
            axes,
            [
                [[[copies(model, layer, h) for h in HEADS] for layer in (0, 1)] for model in row]
                for row in models
            ],
        ),
        "composition": (
            ("state", "head", "later", "by"),
            [
                [[[composed(model, a, b, by) for by in "qkv"] for b in HEADS] for a in HEADS]
                for model in models[0]
            ],
        ),
        "one_layer_prefix": float(scores(runs["one layer"].model, batch)[1].max()),
    }


def alone_training(seed: int) -> dict[str, Job]:
    """Two layers of attention alone."""
    return {"model": string_trainings(seed)["attention only"]}


@measurement(
    seeds=10,
    coords={
        "state": ("untrained", "trained"),
        "row": tuple(range(STRINGS.vocab)),
        "column": tuple(range(STRINGS.vocab)),
    },
    trainings=alone_training,
    repeat="opening",
)
@torch.no_grad()
def matrices(seed: int, runs: Mapping[str, Run]) -> dict[str, Any]:
    """Two products of weights, from token to token: what is matched, and what is copied."""
    models = [fresh("attention only", seed), cast(Decoder, runs["model"].model)]
    match = [matching_matrix(model, HEADS, HEADS) for model in models]
    copied = [copying_matrix(model, HEADS) for model in models]
    axes = ("state", "row", "column")
    return {
        "match": (axes, [each.numpy().round(3) for each in match]),
        "copy": (axes, [each.numpy().round(3) for each in copied]),
        "match_diagonal": ("state", [on_diagonal(each) for each in match]),
        "copy_diagonal": ("state", [on_diagonal(each) for each in copied]),
    }


# The cliff ----------------------------------------------------------------------------------------

EVERY = 20
LOOKS = tuple(range(0, STEPS + 1, EVERY))


@dataclass
class Snapshots:
    """Keeps a copy of the model every so many steps, on the CPU."""

    every: int
    models: list[Model] = field(default_factory=list)

    def __call__(self, step: Step) -> None:
        """Copy the model as it stands."""
        if step.number % self.every == 0:
            self.models.append(copy.deepcopy(step.model).cpu().eval())


def shallow_and_deep(seed: int) -> dict[str, Job]:
    """Two layers of attention alone, and one."""
    jobs = string_trainings(seed)
    return {arm: jobs[arm] for arm in ("attention only", "one layer")}


@measurement(
    seeds=10,
    coords={"look": LOOKS},
    trainings=shallow_and_deep,
    repeat="opening",
    tolerance={
        "loss": 1.0,
        "one_layer": 1.0,
        "previous": 0.4,
        "prefix": 0.6,
        "copying": 0.6,
        "keys": 0.15,
    },
)
def cliff(seed: int, runs: Mapping[str, Run]) -> dict[str, Any]:
    """Two layers of attention as they learn: loss, what heads look at, and what their weights say.

    They are trained again, with a look at every twentieth step. Scores are those of the heads that are
    strongest at the end. Beside, the loss of one layer.
    """
    batch = STRINGS.batch(make_generator(seed, "looking"), 128)
    seen: dict[str, list[Model]] = {}
    for arm, run in runs.items():
        kept = Snapshots(EVERY, [fresh(arm, seed)])
        train(
            config_of(arm),
            STRINGS,
            steps=STEPS,
            learning_rate=float(run.rates[0]),
            seed=seed,
            after_step=kept,
            **options_of(arm),
        )
        seen[arm] = kept.models
    models = [cast(Decoder, model) for model in seen["attention only"]]
    looked = [scores(model, batch) for model in models]
    back = int(looked[-1][0][0].argmax())
    match = int(looked[-1][1][1].argmax())
    return {
        "loss": ("look", [nats(model, batch) for model in models]),
        "one_layer": ("look", [nats(model, batch) for model in seen["one layer"]]),
        "previous": ("look", [float(previous[0, back]) for previous, _ in looked]),
        "prefix": ("look", [float(prefix[1, match]) for _, prefix in looked]),
        "copying": ("look", [copies(model, 1, match) for model in models]),
        "keys": ("look", [composed(model, back, match, "k") for model in models]),
    }


# Who does it --------------------------------------------------------------------------------------

PATCHED = ("pattern", "values", "both")
SWAPS = ("own", "another induction head's", "first layer's")


@torch.no_grad()
def patch_effects(model: Decoder, head: int, batch: Batch) -> dict[str, float]:
    """How much of the right answer's logit is lost when a head of layer 1 gets what it had on another string.

    The logit is taken less the mean over the vocabulary. The other string is the next one of the batch.

    Returns:
        by `PATCHED`: with the other string's pattern, its values, or both.
    """

    def margin() -> float:
        logits = predict(model, batch).double()
        answer = logits.gather(-1, batch.targets[..., None])[..., 0] - logits.mean(-1)
        return float(answer[batch.scored].mean())

    taps = {name: f"blocks.1.attention.{name}" for name in ("pattern", "values")}
    with capture(model, *taps.values()) as seen:
        whole = margin()

    def changed(name: str) -> Any:
        other = seen[taps[name]].roll(1, 0)[:, head]

        def change(value: Tensor) -> Tensor:
            value[:, head] = other
            return value

        return change

    found = {}
    for which in PATCHED:
        names = ("pattern", "values") if which == "both" else (which,)
        with intervene(model, {taps[name]: changed(name) for name in names}):
            found[which] = whole - margin()
    return found


@torch.no_grad()
def swapped(model: Decoder, sources: Sequence[tuple[int, int]]) -> Decoder:
    """A copy in which each head of layer 1 keeps its queries and keys and gets another head's OV circuit.

    Args:
        model: two blocks.
        sources: (layer, head) of the values and outputs that head 0, 1, ... gets.
    """
    other = copy.deepcopy(model)
    layers = [cast(MultiHeadAttention, block.attention) for block in model.blocks]
    into = cast(MultiHeadAttention, other.blocks[1].attention)
    for head, (layer, source) in enumerate(sources):
        to, width = slice(head * into.d_head, (head + 1) * into.d_head), into.d_head
        taken = slice(source * width, (source + 1) * width)
        into.value.weight[to] = layers[layer].value.weight[taken]
        into.output.weight[:, to] = layers[layer].output.weight[:, taken]
    return other


@measurement(
    seeds=10,
    coords={
        "deep": DEEP,
        "layer": (0, 1),
        "head": HEADS,
        "patch": PATCHED,
        "swap": SWAPS,
    },
    trainings=string_trainings,
    repeat="opening",
    tolerance={"harm": 2.0, "patched": 3.0, "swapped": 0.3, "whole": 0.3},
)
@torch.no_grad()
def needed(seed: int, runs: Mapping[str, Run]) -> dict[str, Any]:
    """What breaks without a head, with another string's pattern or values, and with other OV circuits."""
    batch = STRINGS.batch(make_generator(seed, "strings"), LOOKED_ON)
    reference = STRINGS.batch(make_generator(seed, "reference"), LOOKED_ON)
    harm, patch, swap, whole = [], [], [], []
    for arm in DEEP:
        model = cast(Decoder, runs[arm].model)
        strongest = int(scores(model, batch)[1][1].argmax())
        whole.append(nats(model, batch))
        rows = []
        for layer in (0, 1):
            for head in HEADS:
                one = Component(f"blocks.{layer}.attention.mixed", head)
                with ablated(model, [one], "resample", reference=reference):
                    rows.append(nats(model, batch) - whole[-1])
        harm.append(np.array(rows).reshape(2, -1))
        found = patch_effects(model, strongest, batch)
        patch.append([found[which] for which in PATCHED])
        swap.append(
            [
                right(swapped(model, sources), batch)
                for sources in (
                    [(1, h) for h in HEADS],
                    [(1, (h + 1) % len(HEADS)) for h in HEADS],
                    [(0, h) for h in HEADS],
                )
            ]
        )
    return {
        "harm": (("deep", "layer", "head"), harm),
        "whole": ("deep", whole),
        "patched": (("deep", "patch"), patch),
        "swapped": (("deep", "swap"), swap),
    }


# Data that repeats, and data that does not ---------------------------------------------------------

SHARES = (0.0, 0.25, 0.5, 1.0)
MIXED_STEPS = 600


@dataclass(frozen=True)
class SomeRepeat:
    """Strings that repeat themselves, as in `Induction`, among walks round one fixed circle of all tokens.

    On the circle token t is followed by t + 1, in every sequence, so that weights can know it by heart; no
    token comes twice. What follows in a string is known from the sequence alone.

    Attributes:
        share: probability that a sequence is a string that repeats itself.
        vocab: number of different tokens, more than `length`.
        length: number of predictions asked for.
        shortest, longest: lengths of the strings.

    Raises:
        ValueError: when the share is no probability, or the circle is too short for a sequence.
    """

    share: float
    vocab: int = 32
    length: int = 24
    shortest: int = 4
    longest: int = 10
    causal = True

    def __post_init__(self) -> None:
        check_share(share=self.share)
        if self.vocab <= self.length:
            raise ValueError(
                f"expected vocab > length, got vocab={self.vocab} and length={self.length}"
            )

    @property
    def strings(self) -> Induction:
        """The strings alone."""
        return Induction(self.vocab, self.length, self.shortest, self.longest)

    def batch(self, generator: torch.Generator, size: int, *, length: int | None = None) -> Batch:
        """Draw `size` sequences. On the circle every position is scored, of a string those that repeat."""
        n = self.length if length is None else length
        string = self.strings.batch(generator, size, length=n)
        repeats = torch.rand(size, 1, generator=generator) < self.share
        start = torch.randint(self.vocab, (size, 1), generator=generator)
        circle = (start + torch.arange(n + 1)) % self.vocab
        return Batch(
            torch.where(repeats, string.inputs, circle[:, :-1]),
            torch.where(repeats, string.targets, circle[:, 1:]),
            string.scored | ~repeats,
        )


def mixed_trainings(seed: int) -> dict[float, Job]:
    """Two layers of attention alone on each share of strings, each at the rate that suits it."""
    config, options = config_of("attention only", 32), options_of("attention only")
    jobs = {}
    for share in SHARES:
        task = SomeRepeat(share)
        name = f"circuits-repeats-{share:g}"
        search = Search(name, config, task, RATES, tuning_seeds(2), MIXED_STEPS, options)
        jobs[share] = job(
            config, task, seed, steps=MIXED_STEPS, learning_rate=tuned(search), **options
        )
    return jobs


@measurement(
    seeds=10,
    coords={"share": SHARES},
    trainings=mixed_trainings,
    repeat="opening",
    tolerance={"strings": 0.4, "circle": 0.2, "prefix": 0.4},
)
def mixed(seed: int, runs: Mapping[float, Run]) -> dict[str, Any]:
    """Accuracy on strings and on the circle, and the best prefix-matching score, by the share of strings."""
    strings = SomeRepeat(1.0).strings.batch(make_generator(seed, "strings"), LOOKED_ON)
    circle = SomeRepeat(0.0).batch(make_generator(seed, "circle"), 64)
    models = [runs[share].model for share in SHARES]
    return {
        "strings": ("share", [right(model, strings) for model in models]),
        "circle": ("share", [right(model, circle) for model in models]),
        "prefix": ("share", [float(scores(model, strings)[1][1].max()) for model in models]),
    }


# The language model -------------------------------------------------------------------------------

WINDOW = 96
READER = Config(vocab=OpenedText().vocab, d_model=64, n_layers=2, n_heads=4, positions="rotary")
READER_STEPS = 1500
READER_RATES = (1e-3, 2e-3, 4e-3, 8e-3, 1.6e-2, 3.2e-2)
PERIOD = 24
ROUNDS = WINDOW // PERIOD
TEXTS = {"plain text": 0.0, "with repeats": 0.5}
"""What a language model reads -> the share of windows in which a piece of text comes over and over."""


@dataclass(frozen=True)
class RepeatingText:
    """Windows of text behind a start token, some of which are one piece over and over; all is scored.

    Attributes:
        share: probability that a window is a piece of text that repeats itself.
        length: number of predictions asked for.
        shortest, longest: lengths of the pieces.

    Raises:
        ValueError: when the share is no probability.
    """

    share: float
    length: int = WINDOW
    shortest: int = 12
    longest: int = 36
    causal = True
    vocab = OpenedText().vocab

    def __post_init__(self) -> None:
        check_share(share=self.share)

    def batch(self, generator: torch.Generator, size: int, *, length: int | None = None) -> Batch:
        """Draw `size` windows that begin anywhere in the training part."""
        n = self.length if length is None else length
        text = OpenedText(n).batch(generator, size)
        period = torch.randint(self.shortest, self.longest + 1, (size, 1), generator=generator)
        repeats = torch.rand(size, 1, generator=generator) < self.share
        place = torch.arange(n).expand(size, -1)
        targets = text.targets.gather(1, torch.where(repeats, place % period, place))
        inputs = torch.cat((text.inputs[:, :1], targets[:, :-1]), 1)
        return Batch(inputs, targets, text.scored)


def reader_trainings(seed: int) -> dict[str, Job]:
    """The book's language model on text, and on text with repeats."""
    jobs = {}
    options = {"batch_size": 16, "schedule": WarmupCosine(100, READER_STEPS)}
    for name, share in TEXTS.items():
        task = RepeatingText(share)
        search = Search(
            f"circuits-{name.replace(' ', '-')}",
            READER,
            task,
            READER_RATES,
            tuning_seeds(1),
            READER_STEPS,
            options,
        )
        jobs[name] = job(
            READER, task, seed, steps=READER_STEPS, learning_rate=tuned(search), **options
        )
    return jobs


def snippets(seed: int, size: int = 256) -> Batch:
    """Pieces of 24 characters of held-out text, each four times in a row; scored from the second time on."""
    text = characters("validation")
    starts = torch.randint(len(text) - PERIOD, (size, 1), generator=make_generator(seed, "pieces"))
    tokens = text[starts + torch.arange(PERIOD)].repeat(1, ROUNDS)
    opened = torch.cat((torch.full((size, 1), READER.vocab - 1), tokens[:, :-1]), 1)
    place = torch.arange(WINDOW).expand(size, -1)
    source = torch.where(place >= PERIOD + 1, place + 1 - PERIOD, -1)
    return Batch(opened, tokens, place >= PERIOD + 1, gold={"source": source})


@torch.no_grad()
def loss_by_place(model: Model, batch: Batch) -> Float[Tensor, "position"]:
    """Nats at each position, the mean over sequences."""
    losses = F.cross_entropy(predict(model, batch).transpose(1, 2), batch.targets, reduction="none")
    return losses.double().mean(0)


@measurement(
    seeds=5,
    coords={
        "text": tuple(TEXTS),
        "round": tuple(range(1, ROUNDS + 1)),
        "layer": (0, 1),
        "head": HEADS,
    },
    trainings=reader_trainings,
    repeat="opening",
    tolerance={
        "rounds": 1.0,
        "held_out": 0.3,
        "previous": 0.5,
        "prefix": 0.5,
        "untrained": 0.1,
        "harm": 2.0,
    },
)
@torch.no_grad()
def text(seed: int, runs: Mapping[str, Run]) -> dict[str, Any]:
    """What the language model makes of pieces of text that come four times, and what breaks without a head."""
    batch, reference = snippets(seed), snippets(seed + 500)
    held_out = OpenedText(WINDOW, "validation").batch(make_generator(seed, "held-out"), 256)
    models = [runs[name].model for name in TEXTS]
    harm = []
    for model in models:
        whole = nats(model, batch)
        for layer in (0, 1):
            for head in HEADS:
                gone = Component(f"blocks.{layer}.attention.mixed", head)
                with ablated(model, [gone], "resample", reference=reference):
                    harm.append(nats(model, batch) - whole)
    looked = [scores(model, batch) for model in models]
    untrained = make_model(READER, causal=True, seed=seed).eval()
    by_round = [loss_by_place(model, batch).view(ROUNDS, -1).mean(1) for model in models]
    axes = ("text", "layer", "head")
    return {
        "rounds": (("text", "round"), torch.stack(by_round).tolist()),
        "held_out": ("text", [nats(model, held_out) for model in models]),
        "previous": (axes, [previous for previous, _ in looked]),
        "prefix": (axes, [prefix for _, prefix in looked]),
        "untrained": (("layer", "head"), scores(untrained, batch)[1]),
        "harm": (axes, np.array(harm).reshape(len(models), 2, -1)),
    }


# Regression in context ----------------------------------------------------------------------------

INPUTS, POINTS, NOISE = 2, 8, 0.3
REGRESSION_STEPS, REGRESSION_RATE, REGRESSION_BATCH = 800, 3e-3, 64
NUMBERS = Config(
    vocab=2, d_model=32, n_layers=2, n_heads=4, d_ff=64, positions="none", norm="rms", bias=False
)
"""Two blocks of width 32; the vocabulary is not used."""
GUESSES = ("model", "one layer", "ridge", "least squares", "one step")


def problems(
    generator: torch.Generator, size: int
) -> tuple[Float[Tensor, "problem point input"], Float[Tensor, "problem point"]]:
    """Draw points of planes through the origin: y = x w + noise, a w for each problem, everything normal."""
    w = torch.randn(size, INPUTS, generator=generator)
    x = torch.randn(size, POINTS, INPUTS, generator=generator)
    y = torch.einsum("bpi,bi->bp", x, w)
    return x, y + NOISE * torch.randn(size, POINTS, generator=generator)


class NumberReader(nn.Module):
    """Blocks of the library that read points and guess the next y.

    The sequence is x_1, (x_1, y_1), x_2, (x_2, y_2), ...: each question stands as x alone, and then as a pair.
    """

    def __init__(self, config: Config) -> None:
        """Make an entrance for x, y and a mark of questions, the blocks, and an exit of one number."""
        super().__init__()
        self.entrance = nn.Linear(INPUTS + 2, config.d_model)
        self.blocks = nn.ModuleList(make_block(config) for _ in range(config.n_layers))
        self.norm = nn.RMSNorm(config.d_model)
        self.exit = nn.Linear(config.d_model, 1)

    def forward(
        self, x: Float[Tensor, "problem point input"], y: Float[Tensor, "problem point"]
    ) -> Float[Tensor, "problem point"]:
        """The guess of each y from its x and the pairs before it."""
        nothing, mark = torch.zeros_like(y), torch.ones_like(y)
        question = torch.cat((x, torch.stack((nothing, mark), -1)), -1)
        pair = torch.cat((x, torch.stack((y, nothing), -1)), -1)
        stream = self.entrance(torch.stack((question, pair), 2).flatten(1, 2))
        for block in self.blocks:
            stream = block(stream, causal=True)
        return cast(Tensor, self.exit(self.norm(stream)))[:, ::2, 0]


def number_reader(seed: int, n_layers: int) -> NumberReader:
    """Train a reader on problems that never come twice."""
    with seeded(seed):
        reader = NumberReader(NUMBERS.replace(n_layers=n_layers))
    weights, generator = list(reader.parameters()), make_generator(seed, "problems")
    updates = torch.optim.AdamW(weights, betas=(0.9, 0.98), weight_decay=0)
    schedule = WarmupCosine(50, REGRESSION_STEPS)
    for step in range(REGRESSION_STEPS):
        x, y = problems(generator, REGRESSION_BATCH)
        loss = (reader(x, y) - y).square().mean()
        updates.zero_grad()
        loss.backward()
        clip_gradients(weights, 1.0)
        updates.param_groups[0]["lr"] = REGRESSION_RATE * schedule(step)
        updates.step()
    return reader.eval()


def ridge_guesses(
    x: Float[Tensor, "problem point input"],
    y: Float[Tensor, "problem point"],
    penalty: float,
) -> Float[Tensor, "problem point"]:
    """Guess each y by ridge regression on the points before it; with penalty 0 by least squares.

    Where several w fit, least squares takes the shortest. With the noise's variance as penalty and w drawn with
    variance one, ridge regression gives the mean of y given all that is known: no guess has a smaller error.
    """
    x, y = x.double(), y.double()
    found = [torch.zeros(len(x), dtype=x.dtype)]
    for n in range(1, x.shape[1]):
        seen, told, asked = x[:, :n], y[:, :n, None], x[:, n]
        gram = seen.mT @ seen + penalty * torch.eye(x.shape[2], dtype=x.dtype)
        w = torch.linalg.pinv(gram, hermitian=True) @ (seen.mT @ told)
        found.append((asked[:, None] @ w)[:, 0, 0])
    return torch.stack(found, 1)


def step_guesses(
    x: Float[Tensor, "problem point input"], y: Float[Tensor, "problem point"]
) -> Float[Tensor, "problem point"]:
    """Guess each y after one step of gradient descent from w = 0 on the points before it.

    The step's size is the one that is best for these problems, chosen for each number of points.
    """
    x, y = x.double(), y.double()
    found = [torch.zeros(len(x), dtype=x.dtype)]
    for n in range(1, x.shape[1]):
        direction = torch.einsum("bpi,bp->bi", x[:, :n], y[:, :n])
        guess = torch.einsum("bi,bi->b", direction, x[:, n])
        found.append(guess * (guess @ y[:, n]) / (guess @ guess))
    return torch.stack(found, 1)


@measurement(
    seeds=10,
    coords={"guess": GUESSES, "points": tuple(range(POINTS))},
    tolerance={"error": 0.3, "apart": 0.2, "from_step": 0.2},
)
@torch.no_grad()
def regression(seed: int) -> dict[str, Any]:
    """Squared error of guesses from 0 to 7 points, and how far a Transformer's are from ridge regression's."""
    with torch.enable_grad():
        readers = [number_reader(seed, layers) for layers in (2, 1)]
    x, y = problems(make_generator(seed, "evaluation"), 4000)
    guesses = {
        "model": readers[0](x, y).double(),
        "one layer": readers[1](x, y).double(),
        "ridge": ridge_guesses(x, y, NOISE**2),
        "least squares": ridge_guesses(x, y, 0.0),
        "one step": step_guesses(x, y),
    }
    step = guesses["one step"]
    from_step = {name: (guess - step).square().mean(0) for name, guess in guesses.items()}
    errors = {name: (guess - y).square().mean(0) for name, guess in guesses.items()}
    apart = {name: (guess - guesses["ridge"]).square().mean(0) for name, guess in guesses.items()}
    axes = ("guess", "points")
    return {
        "error": (axes, [errors[name].tolist() for name in GUESSES]),
        "apart": (axes, [apart[name].tolist() for name in GUESSES]),
        "from_step": (axes, [from_step[name].tolist() for name in GUESSES]),
    }


def linear_attention_guess(
    x: Float[Tensor, "point input"],
    y: Float[Tensor, "point"],
    asked: Float[Tensor, "input"],
    rate: float,
) -> Float[Tensor, ""]:
    """What one head of linear attention writes for a question, with hand-made weights.

    Queries and keys are the x of each token, values rate times its y: no softmax, so scores are weights.
    """
    tokens = torch.cat((x, y[:, None]), 1)
    question = torch.cat((asked, torch.zeros(1, dtype=asked.dtype)))
    n = len(asked)
    reads_x = torch.eye(n + 1, dtype=x.dtype)[:, :n]
    reads_y = rate * torch.eye(n + 1, dtype=x.dtype)[:, n:]
    weights = (question @ reads_x) @ (tokens @ reads_x).T
    return (weights @ (tokens @ reads_y))[0]


def descent_guess(
    x: Float[Tensor, "point input"],
    y: Float[Tensor, "point"],
    asked: Float[Tensor, "input"],
    rate: float,
    steps: int = 1,
) -> Float[Tensor, ""]:
    """The guess after so many steps of gradient descent from w = 0 on half the sum of squared errors."""
    with torch.enable_grad():
        w = torch.zeros(x.shape[1], dtype=x.dtype, requires_grad=True)
        for _ in range(steps):
            (gradient,) = torch.autograd.grad(((x @ w - y) ** 2).sum() / 2, w)
            w = (w - rate * gradient).detach().requires_grad_()
    return asked @ w.detach()


DRAWS = 100


@measurement(
    seeds=1, coords={"draw": tuple(range(DRAWS))}, tolerance={"error": 1e-9, "second": 1e-6}
)
def steps_of_descent(seed: int) -> dict[str, Any]:
    """One head of linear attention less one step of gradient descent, and less two: 100 drawn problems."""
    errors, second = [], []
    for draw in range(DRAWS):
        generator = make_generator(seed, f"descent-{draw}")
        x = torch.randn(6, 3, generator=generator, dtype=torch.float64)
        y, asked = x[:, 0].clone() + 1, torch.ones(3, dtype=torch.float64)
        asked[1] += draw / DRAWS
        guess = linear_attention_guess(x, y, asked, 0.1)
        errors.append(float(guess - descent_guess(x, y, asked, 0.1)))
        second.append(float(guess - descent_guess(x, y, asked, 0.1, steps=2)))
    return {"error": ("draw", errors), "second": ("draw", second)}
