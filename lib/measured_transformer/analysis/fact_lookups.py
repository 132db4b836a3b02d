r"""Facts in the network of a one-block model: which neurons hold a fact, and how to overwrite it.

A network without a gate writes $\sum_i a_i v_i + b_2$: neuron $i$ answers with its activation $a_i$ and its
value $v_i$, a column of the stored $W_2$. In a model of one pre-norm block nothing stands behind the network
but the final norm and the unembedding. So what a neuron does to an answer can be computed, and so can what
follows from a change of $W_2$: with $v_i \to v_i + r_i \delta$ every stream moves by a multiple of one
direction, $(a \cdot r)\,\delta$, where $a$ are the activations of the fact that is asked for.

Sources: Geva et al. (2021); Dai et al. (2022), "Knowledge neurons"; Meng et al. (2022), ROME, whose edit is
`reader` with `how="least"`.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass, field
from typing import Literal, cast, get_args

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from measured_transformer.analysis.fact_counts import recall, recalled
from measured_transformer.internals.capture import capture
from measured_transformer.models.config import Config
from measured_transformer.models.decoder import Decoder
from measured_transformer.parts.block import Block
from measured_transformer.parts.feedforward import FeedForward
from measured_transformer.parts.norms import LayerNorm
from measured_transformer.tasks.facts import Facts
from measured_transformer.training.loop import predict
from measured_transformer.training.seeding import make_generator

How = Literal["least", "plain", "value"]
"""Which weights an edit changes, see `reader`."""

# By hand -------------------------------------------------------------------------------------------


@torch.no_grad()
def slots_model(task: Facts) -> Decoder:
    r"""A decoder in float64 that stores a table with one neuron a fact, its weights written down.

    Every token has an entry of the stream to itself. Attention adds the subject to the relation's position.
    Neuron $i$ is $\max(0, x_s + x_r - 1)$ with the subject $s$ and the relation $r$ of fact $i$, so it is one
    for this fact and zero for every other pair; its value is the object's entry. No norms.

    >>> task = Facts(count=6, subjects=4, relations=3, objects=5)
    >>> recall(slots_model(task), task)
    1.0
    """
    width, facts = task.vocab, task.table()
    config = Config(
        vocab=width, d_model=width, d_head=width, n_heads=1, n_layers=1, d_ff=task.count, positions="none",
        norm="none", activation="relu", embedding_scale=1.0,
    )  # fmt: skip
    model = Decoder(config).double()
    for parameter in model.parameters():
        parameter.zero_()
    block = cast(Block, model.blocks[0])
    network = block.feedforward
    block.attention.value.weight.copy_(torch.eye(width))
    # Attention looks at both places alike, so half of the subject arrives.
    subjects = torch.zeros(width, dtype=torch.float64)
    subjects[: task.subjects] = 2
    block.attention.output.weight.copy_(subjects.diag())
    rows = torch.arange(task.count)
    for column in (0, 1):
        network.up.weight[rows, facts[:, column]] = 1
    cast(Tensor, network.up.bias).fill_(-1)
    network.down.weight[facts[:, 2], rows] = 1
    model.token_embedding.weight.copy_(torch.eye(width))
    objects = torch.zeros(width, dtype=torch.float64)
    objects[task.subjects + task.relations :] = 1
    cast(nn.Linear, model.unembedding).weight.copy_(objects.diag())
    return model.eval()


# What is read and written --------------------------------------------------------------------------


@dataclass(frozen=True)
class Lookups:
    """The activations of a one-block model for every fact of a table, at the answering position.

    Attributes:
        neurons: activations, the keys that a fact is looked up with.
        before: the stream in front of the network.
        after: the stream behind it.
        answers: the right object's token.
        table: the facts as tokens.
    """

    neurons: Float[Tensor, "fact d_ff"]
    before: Float[Tensor, "fact d_model"]
    after: Float[Tensor, "fact d_model"]
    answers: Int[Tensor, "fact"]
    table: Int[Tensor, "fact 3"] = field(repr=False)


@torch.no_grad()
def lookups(model: Decoder, task: Facts) -> Lookups:
    """Capture what the model's network reads and writes for every fact.

    Raises:
        ValueError: when the model has not one pre-norm block with a network without a gate.
    """
    _network(model)
    with capture(model, "blocks.0.residual_*", "blocks.0.feedforward.neurons") as seen:
        predict(model, task.facts())
    table = task.table()
    return Lookups(
        neurons=seen["blocks.0.feedforward.neurons"][:, -1],
        before=seen["blocks.0.residual_mid"][:, -1],
        after=seen["blocks.0.residual_post"][:, -1],
        answers=table[:, 2],
        table=table,
    )


@torch.no_grad()
def answered(model: Decoder, after: Float[Tensor, "*fact d_model"]) -> Int[Tensor, "*fact"]:
    """The model's answers when this is the stream after its last block."""
    flat = after.reshape(-1, 1, after.shape[-1])
    return model.unembed(flat).argmax(-1).reshape(after.shape[:-1])


@torch.no_grad()
def leads(model: Decoder, task: Facts) -> Float[Tensor, "fact d_ff"]:
    r"""What each neuron adds to the right object's logit above the mean of all objects, in units of logits.

    It is $a_i\,(v_i \cdot w)/\sigma$, where $w$ is the difference of the object's row of the unembedding from
    the mean row, times the final norm's weight, centred; $\sigma$ is what that norm divides this fact's stream
    by. With what the stream before the network and the bias add alike, the sum is the logit's lead, up to the
    norm's bias.

    Raises:
        ValueError: as `lookups`.
    """
    network, seen = _network(model), lookups(model, task)
    towards = _towards(model, task, seen.answers) / _deviation(model, seen.after)
    return seen.neurons * (towards @ network.down.weight)


def _towards(
    model: Decoder, task: Facts, tokens: Int[Tensor, "fact"]
) -> Float[Tensor, "fact d_model"]:
    """Directions in the stream along which an object's logit rises above the mean of all objects'."""
    assert isinstance(model.unembedding, nn.Linear)
    rows = model.unembedding.weight.detach()
    found = rows[tokens] - rows[task.subjects + task.relations :].mean(0)
    if isinstance(model.final_norm, LayerNorm):
        found = found * model.final_norm.weight.detach()
        found = found - found.mean(-1, keepdim=True)
    return found


def _deviation(model: Decoder, after: Float[Tensor, "fact d_model"]) -> Float[Tensor, "fact 1"]:
    if not isinstance(model.final_norm, LayerNorm):
        return torch.ones_like(after[:, :1])
    return (after.var(-1, unbiased=False, keepdim=True) + model.final_norm.eps).sqrt()


# Silencing -----------------------------------------------------------------------------------------


@torch.no_grad()
def answered_without(
    model: Decoder, task: Facts, chosen: Bool[Tensor, "silenced d_ff"]
) -> Bool[Tensor, "silenced fact"]:
    """Which facts are still answered correctly when neurons are zeroed.

    Args:
        model: of one block.
        task: its facts.
        chosen: sets of neurons, one a row; in each row of the result those are zero.

    Raises:
        ValueError: as `lookups`, and when a row has not an entry for each neuron.
    """
    network, seen = _network(model), lookups(model, task)
    if chosen.shape[-1] != seen.neurons.shape[-1]:
        raise ValueError(f"expected {seen.neurons.shape[-1]} neurons a row, got {chosen.shape[-1]}")
    rows = []
    for off in chosen:
        taken = (seen.neurons * off) @ network.down.weight.T
        rows.append(answered(model, seen.after - taken) == seen.answers)
    return torch.stack(rows)


def strongest_neurons(scores: Float[Tensor, "fact d_ff"], number: int) -> Bool[Tensor, "fact d_ff"]:
    """For each fact the neurons with the largest scores.

    >>> strongest_neurons(torch.tensor([[0.5, -2.0, 3.0]]), 2).tolist()
    [[True, False, True]]

    Raises:
        ValueError: when there are not so many neurons.
    """
    if not 0 <= number <= scores.shape[-1]:
        raise ValueError(f"expected a number from 0 to {scores.shape[-1]}, got {number}")
    places = scores.topk(number, dim=-1).indices
    return torch.zeros(scores.shape, dtype=torch.bool).scatter(-1, places, True)


def random_active(
    neurons: Float[Tensor, "fact d_ff"], number: int, *, seed: int
) -> Bool[Tensor, "fact d_ff"]:
    """Draw neurons at random for each fact: from those active for it, then from the rest if they run out."""
    drawn = torch.rand(neurons.shape, generator=make_generator(seed, "neurons"))
    return strongest_neurons(drawn + (neurons > 0), number)


@dataclass(frozen=True)
class Silenced:
    """Recall with the neurons of single facts zeroed, averaged over those facts.

    Attributes:
        own: of the fact itself.
        others: of all other facts.
        subject, relation: of other facts with the same subject, and with the same relation.
        before: of all facts with nothing silenced.
    """

    own: float
    others: float
    subject: float
    relation: float
    before: float


def silencing(model: Decoder, task: Facts, chosen: Bool[Tensor, "fact d_ff"]) -> Silenced:
    """Zero each fact's own set of neurons in turn, and ask for all facts.

    Args:
        model: of one block.
        task: its facts.
        chosen: a set of neurons for each fact of the table.

    Raises:
        ValueError: as `answered_without`, and when there is not a set for each fact.
    """
    if len(chosen) != task.count:
        raise ValueError(
            f"expected a set of neurons for each of {task.count} facts, got {len(chosen)}"
        )
    right = answered_without(model, task, chosen).double()
    shares = {name: float(right[pairs].mean()) for name, pairs in related(task).items()}
    return Silenced(**shares, before=recall(model, task))


def related(task: Facts) -> dict[str, Bool[Tensor, "fact fact"]]:
    """Which pairs are the same fact (``own``), share a subject or a relation, or are different (`others`)."""
    table = task.table()
    own = torch.eye(task.count, dtype=torch.bool)
    subject, relation = (table[:, [i]] == table[:, i] for i in (0, 1))
    return {"own": own, "others": ~own, "subject": subject & ~own, "relation": relation & ~own}


# Overwriting ---------------------------------------------------------------------------------------


def reader(
    key: Float[Tensor, "d_ff"],
    keys: Float[Tensor, "fact d_ff"],
    how: How = "least",
    *,
    ridge: float = 1e-3,
) -> Float[Tensor, "d_ff"]:
    r"""The coefficients $r$ of an edit, with $a \cdot r = 1$ for one fact's activations $a$.

    $W_2$ becomes $W_2 + \delta\, r^\top$ (stored, a column a neuron): what is written for this fact changes by
    $\delta$, and for a fact with activations $a'$ by $(a' \cdot r)\,\delta$. Of all such $r$

    - `least` makes the sum of $(a' \cdot r)^2$ over the other facts smallest: $r \propto C^{-1} a$ with their
      second moments $C = \sum a' a'^\top$. The update of Meng et al. (2022), equation 2.
    - `plain` is the shortest one, $a / (a \cdot a)$.
    - `value` changes the value of the most active neuron alone.

    Args:
        key: activations of the fact to be changed.
        keys: activations of the other facts; it does no harm if this one is among them.
        how: see above.
        ridge: share of the mean diagonal entry that is added to the diagonal of C, which has no inverse where
            neurons are never active.

    Raises:
        ValueError: when `how` is another one, or no neuron is active.
    """
    if how not in get_args(How):
        raise ValueError(f"how must be one of {', '.join(get_args(How))}; got {how!r}")
    if not bool((key != 0).any()):
        raise ValueError("expected a fact with an active neuron, got none: nothing would change")
    if how == "value":
        most = int(key.abs().argmax())
        found = torch.zeros_like(key)
        found[most] = 1 / key[most]
        return found
    if how == "plain":
        return key / (key @ key)
    exact = keys.double()
    moments = exact.T @ exact
    moments = moments + ridge * moments.diagonal().mean() * torch.eye(
        len(moments), dtype=torch.float64
    )
    solved = torch.linalg.solve(moments, key.double())
    return (solved / (solved @ key.double())).to(key)


@torch.no_grad()
def edited(
    model: Decoder, read: Float[Tensor, "d_ff"], change: Float[Tensor, "d_model"]
) -> Decoder:
    """A copy of the model whose last matrix of the network is changed by the product of two vectors.

    Raises:
        ValueError: as `lookups`.
    """
    other = copy.deepcopy(model)
    down = _network(other).down.weight
    down.copy_(down + torch.outer(change, read))
    return other


def change_for(seen: Lookups, fact: int, wanted: int) -> Float[Tensor, "d_model"]:
    """The change of one fact's stream that gives it another object: towards the mean of that object's facts.

    Raises:
        ValueError: when no fact of the table has that object.
    """
    having = seen.answers == wanted
    if not bool(having.any()):
        raise ValueError(f"expected an object that some fact has, got token {wanted}")
    return seen.after[having].mean(0) - seen.after[fact]


@dataclass(frozen=True)
class Edits:
    """Facts of one model, each overwritten in a separate copy.

    Attributes:
        done: whether the fact is answered with the new object.
        foretold: share of all answers of the changed model that were foretold, the changed fact's among them.
        surprise: largest difference between a logit of the changed model and the one foretold.
        changed: whether each fact's answer is another than before, the edited ones' own among them.
        spill: by how many times the change each fact's stream moves.
        facts: which facts were overwritten.
    """

    done: Bool[Tensor, "edit"]
    foretold: Float[Tensor, "edit"]
    surprise: Float[Tensor, "edit"]
    changed: Bool[Tensor, "edit fact"]
    spill: Float[Tensor, "edit fact"]
    facts: Int[Tensor, "edit"]

    def lost(self, task: Facts) -> dict[str, float]:
        """Share of the answers changed among facts with the same subject, the same relation, and neither."""
        kinds = {name: pairs[self.facts] for name, pairs in related(task).items()}
        either = kinds["subject"] | kinds["relation"]
        chosen = {
            "same subject": kinds["subject"],
            "same relation": kinds["relation"],
            "neither": kinds["others"] & ~either,
            "others": kinds["others"],
        }
        return {name: float(self.changed[pairs].double().mean()) for name, pairs in chosen.items()}


@torch.no_grad()
def overwrite(
    model: Decoder, task: Facts, *, how: How, number: int, seed: int, ridge: float = 1e-3
) -> Edits:
    """Overwrite facts that the model knows, one at a time, each with another object that the table has.

    What the changed model will answer is foretold for every fact before the change is made, from the
    activations of the unchanged one; then the weights of a copy are changed, and the copy is asked.

    Args:
        model: of one block.
        task: its facts.
        how: as for `reader`.
        number: of facts, drawn among those that the model knows.
        seed: of the facts and their new objects, the same for every `how`.
        ridge: as for `reader`.

    Raises:
        ValueError: as `lookups`, and when the model knows fewer facts.
    """
    seen, known = lookups(model, task), recalled(model, task).nonzero().flatten()
    if len(known) < number:
        raise ValueError(
            f"expected a model that knows {number} facts, got one that knows {len(known)}"
        )
    draws = make_generator(seed, "edits")
    facts = known[torch.randperm(len(known), generator=draws)[:number]]
    present = seen.answers.unique()
    before = answered(model, seen.after)
    done, foretold, surprise, changed, spills = [], [], [], [], []
    for fact in facts.tolist():
        others = present[present != seen.answers[fact]]
        wanted = int(others[torch.randint(len(others), (1,), generator=draws)])
        read = reader(seen.neurons[fact], seen.neurons, how, ridge=ridge)
        change, spill = change_for(seen, fact, wanted), seen.neurons @ read
        promised = model.unembed((seen.after + spill[:, None] * change)[:, None])[:, 0]
        found = predict(edited(model, read, change), task.facts())[:, -1]
        now = found.argmax(-1)
        done.append(now[fact] == wanted)
        foretold.append((now == promised.argmax(-1)).double().mean())
        surprise.append((found - promised).abs().max())
        changed.append(now != before)
        spills.append(spill)
    return Edits(
        done=torch.stack(done),
        foretold=torch.stack(foretold),
        surprise=torch.stack(surprise),
        changed=torch.stack(changed),
        spill=torch.stack(spills),
        facts=facts,
    )


def _network(model: Decoder) -> FeedForward:
    blocks = list(model.blocks)
    network = blocks[0].feedforward
    if len(blocks) != 1 or model.config.placement != "pre" or not isinstance(network, FeedForward):
        raise ValueError(
            "expected a model of one pre-norm block with a feed-forward network, got "
            f"{len(blocks)} blocks, placement={model.config.placement!r} and {type(network).__name__}"
        )
    if network.gate is not None:
        raise ValueError(f"expected a network without a gate, got {network.activation!r}")
    return network
