"""Neurons: how many fire, what they tell apart, what the token says of them, and what their values write."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from measured_transformer.internals.capture import capture
from measured_transformer.internals.intervene import intervene
from measured_transformer.models.decoder import Decoder
from measured_transformer.training.seeding import make_generator
from torch import Tensor

from measured_book.measuring import measurement
from measured_book.rooms.carry_over.drawn import (
    ARMS,
    gains,
    model_of,
    texts,
    unembedding,
    written_by,
)
from measured_book.smollm2.model import NEEDS, smollm2
from measured_book.smollm2.sweeps import begin
from measured_book.smollm2.texts import DATA

READ, LENGTH = 8, 32
"""Texts of each kind, and their length."""
LAYERS = (1, 5, 10, 15, 20, 25, 30)
LABELS = ("digit", "next begins a word", "first position")
CLEAR = 0.95
"""Area under the curve above which a neuron tells two kinds of places apart."""
FORCED = {"first": 0, "last": 29}
MANY, ALONE = 6, 4
"""Neurons of a block that are forced on, one at a time, and texts on which they are."""
HEARD = 2000
"""Tokens whose logits are compared."""
FREQUENT, STRONGEST = 100, 0.05
VALUES = ("own", "another")


@measurement(
    seeds=10,
    coords={
        "arm": ARMS,
        "layer": LAYERS,
        "label": LABELS,
        "forced": tuple(FORCED),
        "value": VALUES,
    },
    tolerance={"promise": 0.05, "by_token": 0.02, "tells": 0.01, "permuted": 0.01},
    pretrained=NEEDS,
    data=DATA,
)
@torch.no_grad()
def neurons(seed: int) -> dict[str, Any]:
    """How many neurons fire, what they tell apart, how much the token says of them, and what they write."""
    tokens = texts(seed, READ, LENGTH)
    labels = labels_of(tokens)
    order = torch.randperm(tokens.numel(), generator=make_generator(seed, "labels"))
    found: dict[str, list[Any]] = {"firing": [], "busy": [], "tells": [], "by_token": []}
    for arm in ARMS:
        gates, values = read(model_of(arm), tokens)
        found["firing"].append([float((g > 0).double().mean()) for g in gates])
        found["busy"].append(
            [float(((g > 0).double().mean((0, 1)) > 0.5).double().mean()) for g in gates]
        )
        ranks = [ranks_of(value.flatten(0, 1)) for value in values]
        found["tells"].append([[clear(v, one) for v in ranks] for one in labels])
        found["by_token"].append([by_token(value, tokens) for value in values])
        if arm == "trained":
            permuted = [[clear(v, one[order]) for v in ranks] for one in labels]
            last, first = values[-1], values[0]
    own = agreement(last, tokens, seed)
    promises = [
        promise(seed, block, value)
        for block, value in zip(FORCED.values(), (first, last), strict=True)
    ]
    axes: dict[str, tuple[str, ...]] = {"tells": ("arm", "label", "layer")}
    return {
        **{name: (axes.get(name, ("arm", "layer")), one) for name, one in found.items()},
        "permuted": (("label", "layer"), permuted),
        "promise": (("forced",), promises),
        "agreement": (("value",), own),
    }


def read(model: Decoder, tokens: Int[Tensor, "text position"]) -> tuple[list[Tensor], list[Tensor]]:
    """Gates before their activation, and neurons, of each of `LAYERS`."""
    names = [
        [f"blocks.{layer - 1}.feedforward.{what}" for layer in LAYERS]
        for what in ("pre_activation", "neurons")
    ]
    with capture(model, *names[0], *names[1]) as seen:
        model.stream(tokens)
    gates, values = ([seen[name] for name in each] for each in names)
    return gates, values


def labels_of(tokens: Int[Tensor, "text position"]) -> list[Bool[Tensor, "place"]]:
    """Which places hold a digit, stand before the beginning of a word, and are the first."""
    tokenizer = smollm2().tokenizer
    strings = {number: tokenizer.string(number) for number in tokens.unique().tolist()}
    digit = torch.tensor(
        [[any(c.isdigit() for c in strings[t]) for t in row] for row in tokens.tolist()]
    )
    begins = torch.tensor([[strings[t][:1] == " " for t in row] for row in tokens.tolist()])
    follows = torch.cat((begins[:, 1:], torch.zeros(len(tokens), 1, dtype=torch.bool)), 1)
    first = torch.zeros_like(digit)
    first[:, 0] = True
    return [digit.flatten(), follows.flatten(), first.flatten()]


def ranks_of(values: Float[Tensor, "place neuron"]) -> Float[Tensor, "place neuron"]:
    """The rank of each value among those of its neuron, from 1."""
    found = torch.empty_like(values, dtype=torch.float64)
    order = torch.arange(1, len(values) + 1, dtype=torch.float64)[:, None].expand_as(found)
    return found.scatter_(0, values.argsort(0), order)


def areas(
    ranks: Float[Tensor, "place neuron"], label: Bool[Tensor, "place"]
) -> Float[Tensor, "neuron"]:
    """How well each neuron tells the labelled places apart, by large values or by small ones.

    Area under the ROC curve, or one minus it where that is larger; one half where there are no two kinds.

    >>> values = torch.tensor([[0.0, 3.0], [1.0, 2.0], [2.0, 0.0]])
    >>> areas(ranks_of(values), torch.tensor([True, False, False])).tolist()
    [1.0, 1.0]
    """
    good, bad = int(label.sum()), int((~label).sum())
    if not good or not bad:
        return torch.full((ranks.shape[1],), 0.5, dtype=torch.float64)
    found = (ranks[label].sum(0) - good * (good + 1) / 2) / (good * bad)
    return torch.maximum(found, 1 - found)


def clear(ranks: Float[Tensor, "place neuron"], label: Bool[Tensor, "place"]) -> float:
    """Share of the neurons that tell the labelled places apart."""
    return float((areas(ranks, label) > CLEAR).double().mean())


def by_token(
    values: Float[Tensor, "text position neuron"], tokens: Int[Tensor, "text position"]
) -> float:
    """Share of the variance of held-out activations that a table of the current token says, mean over neurons.

    The table is made on the texts of even number, and tried on those of odd number, at tokens that it knows.
    The first position of each text is left out.
    """
    x, known = values[:, 1:].double(), tokens[:, 1:]
    made, tried = x[::2].flatten(0, 1), x[1::2].flatten(0, 1)
    numbers, place = known[::2].flatten().unique(return_inverse=True)
    asked = known[1::2].flatten()
    there = torch.isin(asked, numbers)
    count = torch.bincount(place, minlength=len(numbers)).double()[:, None]
    table = torch.zeros(len(numbers), x.shape[-1], dtype=torch.float64).index_add(0, place, made)
    said = (table / count)[torch.searchsorted(numbers, asked[there])]
    left = (tried[there] - said).square().mean(0)
    whole = (tried[there] - made.mean(0)).square().mean(0)
    return float((1 - left / whole.clamp_min(1e-12)).clamp_min(-1).mean())


def promise(seed: int, block: int, values: Float[Tensor, "text position neuron"]) -> float:
    """Correlation of what values and unembedding promise with what the logits do when neurons are forced on.

    A neuron is forced to the 99th percentile of its activations at all places but the first of a text. The
    promise is the rise above their mean, times what its value adds to each logit, with the gain of the final
    norm and its divisor there; both less their mean over the tokens that are compared.
    """
    sweep = begin(texts(seed + 5, ALONE // 2, 16))
    model, draws = sweep.model, make_generator(seed, f"neurons {block}")
    chosen = torch.randperm(values.shape[-1], generator=draws)[:MANY].tolist()
    heard = torch.randperm(model.config.vocab, generator=draws)[:HEARD]
    rows = unembedding(model)[heard]
    flat = values[:, 1:].flatten(0, 1)
    highs, means = flat.quantile(0.99, dim=0), flat.mean(0)
    last = sweep.states[-1][:, 1:]
    before = model.final_norm(last) @ rows.T
    divisor = (last.square().mean(-1) + model.config.norm_eps).sqrt()
    down = written_by(model, block)
    promised, measured = [], []
    for neuron in chosen:

        def change(x: Tensor, neuron: int = neuron) -> Tensor:
            x[:, 1:, neuron] = highs[neuron]
            return x

        with intervene(model, {f"blocks.{block}.feedforward.neurons": change}):
            state = sweep.onward(block)
        done = (model.final_norm(state[:, 1:]) @ rows.T - before).mean((0, 1))
        said = rows @ (down[:, neuron] * gains(model))
        said = said * (highs[neuron] - means[neuron]) * (1 / divisor).mean()
        promised.append((said - said.mean()).double())
        measured.append((done - done.mean()).double())
    pair = np.corrcoef(torch.cat(promised).numpy(), torch.cat(measured).numpy())
    return float(pair[0, 1])


def agreement(
    values: Float[Tensor, "text position neuron"], tokens: Int[Tensor, "text position"], seed: int
) -> list[float]:
    """How well the value of a neuron of the last block fits the tokens that follow its strongest contexts.

    For each neuron the correlation, over the most frequent next tokens, between what its value adds to their
    logits and how much more often they follow the strongest contexts than all; mean over neurons, with its own
    value and with that of another neuron.
    """
    model = smollm2().model
    x, following = values[:, 1:-1].flatten(0, 1), tokens[:, 2:].flatten()
    count = torch.bincount(following, minlength=model.config.vocab)
    frequent = count.argsort(descending=True, stable=True)[:FREQUENT]
    hits = (following[:, None] == frequent).double()
    strong = x >= x.quantile(1 - STRONGEST, dim=0)
    after = strong.double().T @ hits / strong.double().sum(0)[:, None]
    more = after - hits.mean(0)
    down = written_by(model, -1)  # (d_model, neuron)
    written = (unembedding(model)[frequent] * gains(model)) @ down
    written = written.T.double()
    other = torch.randperm(len(written), generator=make_generator(seed, "values"))
    return [float(rowwise(more, one).mean()) for one in (written, written[other])]


def rowwise(
    first: Float[Tensor, "row column"], second: Float[Tensor, "row column"]
) -> Float[Tensor, "row"]:
    """The correlation of each row of one matrix with that of another; 0 where one does not vary.

    >>> rowwise(torch.tensor([[1.0, 2.0, 3.0]]), torch.tensor([[2.0, 4.0, 6.0]])).round(decimals=6).tolist()
    [1.0]
    """
    a, b = (each - each.mean(1, keepdim=True) for each in (first, second))
    size = (a.square().sum(1) * b.square().sum(1)).sqrt()
    return torch.where(size > 0, (a * b).sum(1) / size.clamp_min(1e-30), 0.0)
