r"""The feed-forward network as keys and values, and what its neurons respond to.

Neuron $i$ has a *key* $k_i$, with which it reads the token, and a *value* $v_i$, which it writes:
$\text{FFN}(x) = \sum_i g(x \cdot k_i + b_i)\, v_i + b_2$; with a gate it is
$\sum_i g(x \cdot k^g_i + b^g_i)\,(x \cdot k_i + b_i)\, v_i + b_2$. The view is that of Geva et al. (2021),
"Transformer Feed-Forward Layers Are Key-Value Memories"; that values promote tokens is that of Geva et al.
(2022), "Transformer Feed-Forward Layers Build Predictions by Promoting Concepts in the Vocabulary Space".

Activations are tables here, a row for each *input* (one position of one sequence) and a column for each neuron.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from numpy import ndarray
from scipy.stats import rankdata
from torch import Tensor
from torch.nn import functional as F

from measured_transformer.internals.capture import capture
from measured_transformer.internals.intervene import Change, intervene
from measured_transformer.models.decoder import Decoder
from measured_transformer.models.encoder import Encoder
from measured_transformer.parts.feedforward import Activation, FeedForward, activation_function
from measured_transformer.parts.norms import LayerNorm
from measured_transformer.tasks.task import Batch
from measured_transformer.tasks.text import TextLM
from measured_transformer.training.loop import predict
from measured_transformer.training.seeding import make_generator, seeded

Reader = Decoder | Encoder

# Keys and values -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Memory:
    """A feed-forward network as a list of neurons.

    Attributes:
        keys: what each neuron reads with, a row each.
        key_biases: what it adds to that.
        values: what each neuron writes, a row each.
        bias: what is written in any case.
        activation: the function between.
        gate_keys, gate_biases: of a gated network, what each gate reads with; None without a gate.
    """

    keys: Float[Tensor, "d_ff d_model"]
    key_biases: Float[Tensor, "d_ff"]
    values: Float[Tensor, "d_ff d_model"]
    bias: Float[Tensor, "d_model"]
    activation: Activation
    gate_keys: Float[Tensor, "d_ff d_model"] | None = None
    gate_biases: Float[Tensor, "d_ff"] | None = None

    def neuron(self, x: Float[Tensor, "*batch d_model"], i: int) -> Float[Tensor, "*batch"]:
        """The activation of neuron `i`."""
        bend = activation_function(self.activation)
        read = (x * self.keys[i]).sum(-1) + self.key_biases[i]
        if self.gate_keys is None or self.gate_biases is None:
            return bend(read)
        return bend((x * self.gate_keys[i]).sum(-1) + self.gate_biases[i]) * read

    def write(self, x: Float[Tensor, "*batch d_model"], i: int) -> Float[Tensor, "*batch d_model"]:
        """What neuron `i` writes: its activation times its value."""
        return self.neuron(x, i)[..., None] * self.values[i]

    def __call__(
        self, x: Float[Tensor, "*batch d_model"], *, without: int | None = None
    ) -> Float[Tensor, "*batch d_model"]:
        """The sum of what the neurons write, one after another, and the bias; one neuron may be left out."""
        total = self.bias.expand_as(x).clone()
        for i in range(len(self.keys)):
            if i != without:
                total = total + self.write(x, i)
        return total


@torch.no_grad()
def as_memory(network: FeedForward) -> Memory:
    """The same network as a list of neurons.

    PyTorch stores the transpose of each matrix, so keys are rows of the first stored weight and values columns
    of the second. Where the network has no biases they are zero.
    """

    def bias(layer: torch.nn.Linear) -> Tensor:
        return torch.zeros_like(layer.weight[:, 0]) if layer.bias is None else layer.bias.detach()

    gate = network.gate
    return Memory(
        keys=network.up.weight.detach(),
        key_biases=bias(network.up),
        values=network.down.weight.detach().T,
        bias=bias(network.down),
        activation=network.activation,
        gate_keys=None if gate is None else gate.weight.detach(),
        gate_biases=None if gate is None else bias(gate),
    )


@torch.no_grad()
def sum_error(
    seed: int, *, activation: Activation = "relu", bias: bool = False, leave_one_out: bool = False
) -> float:
    """Largest difference between a drawn network and the sum over its neurons, in float64.

    Args:
        seed: of sizes, weights and inputs.
        activation: of the network, gated or not.
        bias: whether it has biases; they are drawn too.
        leave_one_out: whether the neuron that writes most is left out of the sum, which must show.
    """
    sizes, draws = random.Random(seed), make_generator(seed, "keys and values")
    d_model, d_ff = sizes.randint(2, 12), sizes.randint(8, 32)  # of fewer, all might be silent
    with seeded(seed):
        network = FeedForward(d_model, d_ff, activation=activation, bias=bias).double()
    for parameter in network.parameters():
        if parameter.ndim == 1:
            parameter.copy_(torch.randn(parameter.shape, generator=draws, dtype=torch.float64))
    x = torch.randn(3, 5, d_model, generator=draws, dtype=torch.float64)
    memory = as_memory(network)
    most = max(range(d_ff), key=lambda i: float(memory.write(x, i).abs().max()))
    return float((memory(x, without=most if leave_one_out else None) - network(x)).abs().max())


@torch.no_grad()
def convention_error(seed: int, convention: str, *, exchanged: bool = False) -> float:
    r"""Largest error of the sum over neurons with keys and values read off two square matrices.

    The matrices are square, so that the wrong reading fits in shape and has to fail by its numbers.

    Args:
        seed: of width, matrices and vectors.
        convention: *columns*: $W_2\, \text{ReLU}(W_1 x)$ as PyTorch stores it, keys are the rows of $W_1$ and
            values the columns of $W_2$. *rows*: $\text{ReLU}(x W_{in}) W_{out}$, keys are the columns of
            $W_{in}$ and values the rows of $W_{out}$.
        exchanged: rows and columns the other way round, which must fail.

    Raises:
        ValueError: for another convention.
    """
    if convention not in ("columns", "rows"):
        raise ValueError(f"convention must be 'columns' or 'rows', got {convention!r}")
    d = random.Random(seed).randint(2, 12)
    draws = make_generator(seed, f"keys and values, {convention}")
    first, second, x = torch.randn(3, d, d, generator=draws, dtype=torch.float64)
    if convention == "columns":
        network = FeedForward(d, d, activation="relu", bias=False).double()
        network.up.weight.copy_(first)
        network.down.weight.copy_(second)
        whole = network(x[None])[0]
    else:
        whole = (x @ first).relu() @ second
    by_rows = (convention == "columns") != exchanged
    keys = [first[i] if by_rows else first[:, i] for i in range(d)]
    values = [second[:, i] if by_rows else second[i] for i in range(d)]
    total = sum((x @ k).relu()[:, None] * v for k, v in zip(keys, values, strict=True))
    return float((total - whole).abs().max())


# Looking at neurons, and touching them -------------------------------------------------------------


@torch.no_grad()
def activations(
    model: Reader, tokens: Int[Tensor, "batch position"]
) -> Float[Tensor, "block batch position d_ff"]:
    """What each neuron of each block says at each position."""
    with capture(model, "blocks.*.feedforward.neurons") as seen:
        model(tokens)
    return torch.stack(
        [seen[f"blocks.{i}.feedforward.neurons"] for i in range(model.config.n_layers)]
    )


def table(
    values: Float[Tensor, "block batch position d_ff"], first: int = 0
) -> Float[ndarray, "input neuron"]:
    """Activations as a table: a row for each position of each sequence, a column for each neuron of each block.

    Args:
        values: from `activations`.
        first: positions before this one are left out.
    """
    kept = values[:, :, first:]
    columns = kept.permute(1, 2, 0, 3).reshape(-1, kept.shape[0] * kept.shape[3])
    return columns.double().cpu().numpy()


def kinds(batch: Batch) -> dict[str, Int[ndarray, "input"]]:
    """The token, the right answer and the position of each input, in the order of `table`."""
    positions = torch.arange(batch.inputs.shape[1]).expand_as(batch.inputs)
    found = {"token": batch.inputs, "answer": batch.targets, "position": positions}
    return {name: values.reshape(-1).cpu().numpy() for name, values in found.items()}


@contextmanager
def silenced(model: Reader, neurons: Bool[ndarray, "neuron"]) -> Iterator[None]:
    """Hold some neurons at zero while the `with` block runs.

    Args:
        model: whose neurons.
        neurons: which ones, of all blocks one after another, as in `table`.

    Raises:
        ValueError: when their number is another than the model's.
    """
    blocks, d_ff = model.config.n_layers, model.config.neurons
    if neurons.shape != (blocks * d_ff,):
        raise ValueError(
            f"the model has {blocks} blocks of {d_ff} neurons, so expected {blocks * d_ff} entries, got "
            f"shape {neurons.shape}"
        )
    kept = torch.from_numpy(~neurons.reshape(blocks, d_ff))
    changes: dict[str, Change] = {
        f"blocks.{i}.feedforward.neurons": _kept(kept[i]) for i in range(blocks)
    }
    with intervene(model, changes):
        yield


def _kept(which: Bool[Tensor, "d_ff"]) -> Change:
    return lambda value: value * which.to(value)


@contextmanager
def forced(model: Reader, block: int, neuron: int, value: float) -> Iterator[None]:
    """Hold one neuron at a value, at every position, while the `with` block runs.

    Raises:
        ValueError: when there is no such neuron.
        KeyError: when there is no such block.
    """
    if not 0 <= neuron < model.config.neurons:
        raise ValueError(f"neuron must lie in 0..{model.config.neurons - 1}, got {neuron}")

    def hold(there: Tensor) -> Tensor:
        there[..., neuron] = value
        return there

    with intervene(model, {f"blocks.{block}.feedforward.neurons": hold}):
        yield


@torch.no_grad()
def rise(
    model: Reader,
    batch: Batch,
    neurons: Bool[ndarray, "neuron"],
    where: Bool[Tensor, "batch position"],
) -> tuple[float, float]:
    """By how many nats the loss rises when neurons are silenced: where the mask holds, and elsewhere.

    Raises:
        ValueError: when the mask holds everywhere or nowhere.
    """
    if bool(where.all()) or not bool(where.any()):
        raise ValueError("expected a mask that holds at some positions and not at others")
    before = _losses(model, batch)
    with silenced(model, neurons):
        more = _losses(model, batch) - before
    return float(more[where].mean()), float(more[~where].mean())


def _losses(model: Reader, batch: Batch) -> Float[Tensor, "batch position"]:
    logits = predict(model, batch).double()
    return F.cross_entropy(logits.transpose(1, 2), batch.targets, reduction="none")


# What a neuron responds to -------------------------------------------------------------------------


def set_auc(
    values: Float[ndarray, "input neuron"],
    token: Int[ndarray, "input"],
    sets: Bool[ndarray, "set token"],
) -> Float[ndarray, "set neuron"]:
    """How well each neuron tells tokens of a set from all others: area under the ROC curve.

    The probability that the neuron says more at a random input of the set than at a random other one, equal
    activations counting half (Mann-Whitney). 1: always more; 0.5: tells nothing; 0: always less.

    Args:
        values: activations.
        token: a number for each input.
        sets: which numbers belong to each set.

    Raises:
        ValueError: when a set holds all inputs or none.
    """
    kinds = np.eye(sets.shape[1])[token]
    inside = sets.astype(float) @ kinds.sum(0)
    outside = len(token) - inside
    if (inside == 0).any() or (outside == 0).any():
        raise ValueError("expected sets with inputs inside and outside of them")
    ranks = kinds.T @ rankdata(values, axis=0)
    summed = sets.astype(float) @ ranks
    return (summed - (inside * (inside + 1) / 2)[:, None]) / (inside * outside)[:, None]


def auc(
    values: Float[ndarray, "input neuron"], label: Bool[ndarray, "input"]
) -> Float[ndarray, "neuron"]:
    """Area under the ROC curve with which each neuron tells the inputs of a label from the others.

    Raises:
        ValueError: when all inputs have the label, or none.

    >>> auc(np.array([[0.0], [1.0], [1.0], [2.0]]), np.array([False, False, True, True])).tolist()
    [0.875]
    """
    return set_auc(values, label.astype(np.int64), np.array([[False, True]]))[0]


def variance_explained(
    values: Float[ndarray, "input neuron"], kind: Int[ndarray, "input"]
) -> Float[ndarray, "neuron"]:
    """Share of each neuron's variance over inputs that is between kinds of inputs; 0 for one that never varies.

    1: the kind says all; near 0: it says nothing.

    >>> values = np.array([[0.0, 0.0], [0.0, 1.0], [2.0, 0.0], [2.0, 1.0]])
    >>> variance_explained(values, np.array([0, 0, 1, 1])).tolist()
    [1.0, 0.0]
    """
    members = np.eye(int(kind.max()) + 1)[kind]
    counts = members.sum(0)
    present = counts > 0
    means = (members.T @ values)[present] / counts[present, None]
    between = counts[present] @ np.square(means - values.mean(0))
    total = np.square(values - values.mean(0)).sum(0)
    return np.divide(between, total, out=np.zeros_like(total), where=total > 1e-12)


def firing_rates(
    values: Float[ndarray, "input neuron"], *, above: float = 0.0
) -> Float[ndarray, "neuron"]:
    """Share of the inputs on which each neuron is active.

    Args:
        values: activations.
        above: active means above this share of the neuron's largest activation; 0 for ReLU, which is
            exactly zero elsewhere. A neuron that is never positive is never active.

    Raises:
        ValueError: when the share does not lie in [0, 1).

    >>> firing_rates(np.array([[0.0, 0.05], [1.0, 1.0], [2.0, -1.0], [3.0, 0.2]]), above=0.1).tolist()
    [0.75, 0.5]
    """
    if not 0 <= above < 1:
        raise ValueError(f"above must lie in [0, 1), got {above}")
    return (values > above * values.max(0)).mean(0)


# Values --------------------------------------------------------------------------------------------


@torch.no_grad()
def pushes(model: Reader, block: int) -> Float[Tensor, "neuron vocab"]:
    """What one unit of each neuron adds to the logits by its value and the unembedding alone.

    The value is read as the final norm reads the stream, up to the norm's divisor: centred where it is a
    LayerNorm and multiplied by its weight. What all tokens share, which changes no prediction, is taken off.

    Raises:
        ValueError: when the model has no linear unembedding.
        AttributeError: when there is no such block.
    """
    if model.unembedding is None or model.head_layer is not None:
        raise ValueError(
            f"expected a model with a linear unembedding, got head={model.config.head!r}"
        )
    network = model.get_submodule(f"blocks.{block}.feedforward")
    assert isinstance(network, FeedForward)
    values = as_memory(network).values
    if isinstance(model.final_norm, LayerNorm):
        values = values - values.mean(-1, keepdim=True)
    weight = getattr(model.final_norm, "weight", None)
    if weight is not None:
        values = values * weight
    pushed = values @ model.unembedding.weight.T
    return pushed - pushed.mean(-1, keepdim=True)


@torch.no_grad()
def forced_changes(
    model: Reader,
    tokens: Int[Tensor, "batch position"],
    block: int,
    levels: Float[ndarray, "neuron"],
) -> Float[Tensor, "neuron vocab"]:
    """How the logits change, on average over positions, when each neuron alone is forced to its level.

    What all tokens share is taken off.
    """
    before = model(tokens)
    changes = []
    for neuron, level in enumerate(levels.tolist()):
        with forced(model, block, neuron, level):
            changes.append((model(tokens) - before).mean((0, 1)))
    found = torch.stack(changes)
    return found - found.mean(-1, keepdim=True)


# One neuron ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Portrait:
    """What there is to see of one neuron of a language model.

    Attributes:
        lines: windows of text, character by character: those where it is strongest, then others.
        said: its activation at each of their places.
        products: for the tokens with the largest ones, the 10th, 50th and 90th percentile of what enters the
            activation at places with that token.
        pushes: for the tokens that it favours most and least, what a unit of it adds to the logit; what all
            tokens that are named have in common is taken off.
    """

    lines: list[list[str]]
    said: list[list[float]]
    products: dict[str, Float[ndarray, "3"]]
    pushes: dict[str, float]


@torch.no_grad()
def portrait(
    model: Decoder, task: TextLM, batch: Batch, block: int, neuron: int, *, least: int = 15
) -> Portrait:
    """Look at one neuron over windows of text.

    Args:
        model: trained on the task.
        task: whose tokens are read as text.
        batch: the windows.
        block, neuron: which one.
        least: only tokens that come so often in the windows are named.
    """
    place = f"blocks.{block}.feedforward"
    with capture(model, f"{place}.pre_activation", f"{place}.neurons") as seen:
        model(batch.inputs)
    before, said = (
        seen[f"{place}.pre_activation"][..., neuron],
        seen[f"{place}.neurons"][..., neuron],
    )
    best = said.amax(1).argsort(descending=True)
    rows = [*best[:3].tolist(), *best[len(best) // 2 : len(best) // 2 + 2].tolist()]
    counts = torch.bincount(batch.inputs.flatten(), minlength=task.vocab)
    common = (counts >= least).nonzero().flatten().tolist()

    def named(token: int) -> str:
        return task.text(torch.tensor([token]))

    spread = {
        token: np.quantile(before[batch.inputs == token].double().cpu().numpy(), [0.1, 0.5, 0.9])
        for token in common
    }
    largest = sorted(common, key=lambda token: -float(spread[token][1]))[:8]
    pushed = pushes(model, block)[neuron]
    pushed = pushed - pushed[common].mean()
    order = sorted(common, key=lambda token: -float(pushed[token]))
    return Portrait(
        lines=[[named(token) for token in batch.inputs[row].tolist()] for row in rows],
        said=[said[row].tolist() for row in rows],
        products={named(token): spread[token] for token in largest},
        pushes={named(token): float(pushed[token]) for token in (*order[:5], *order[-3:])},
    )
