r"""The graph of what caused what in one answer, between features, errors, tokens and logits.

Transcoders (`transcoders`) stand for the networks, attention patterns and the scales of norms are frozen at the
values that they have on the sequence. What is left between two features is linear: a feature that writes
$a_s d_s$ adds $a_s\, d_s \cdot \nabla h_t$ to what a later feature t reads, and this is the *edge* from s to t.
*Error nodes* hold what the transcoders do not explain, so that nothing is left out: edges into a node and its
bias sum to what it reads, and a logit is the sum of what tokens, errors and biases contribute along all paths.

The graph does not say why attention looks where it looks, nor what a feature would do on another sequence.

Source: Ameisen et al. (2025), "Circuit Tracing: Revealing Computational Graphs in Language Models".
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor

from measured_transformer.analysis.texts import takes_text
from measured_transformer.analysis.transcoders import (
    Transcoder,
    check_transcoders,
    network_pairs,
    reading_networks,
)
from measured_transformer.internals.capture import capture
from measured_transformer.internals.intervene import intervene
from measured_transformer.internals.names import taps
from measured_transformer.models.decoder import Decoder

Kind = Literal["token", "error", "feature", "logit"]
"""What a node is."""


# A frozen model -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Reading:
    """What a frozen model computes from its sources.

    Attributes:
        inputs: what the feed-forward network of each layer reads.
        logits: of the next token at each position.
    """

    inputs: Float[Tensor, "layer batch position d_model"]
    logits: Float[Tensor, "batch position vocab"]


@dataclass(frozen=True)
class FrozenModel:
    """A model as a linear function of its embedding and of what its networks write, for one sequence.

    Attributes:
        model: the model.
        tokens: the sequence.
        frozen: attention patterns and scales of norms, by tap.
        embedding: the embedding of the sequence.
        inputs, writes: what the network of each layer reads and writes on it.
        logits: its logits.
    """

    model: Decoder
    tokens: Int[Tensor, "1 position"]
    frozen: dict[str, Tensor]
    embedding: Float[Tensor, "1 position d_model"]
    inputs: Float[Tensor, "layer 1 position d_model"]
    writes: Float[Tensor, "layer 1 position d_model"]
    logits: Float[Tensor, "1 position vocab"]

    def __call__(
        self,
        embedding: Float[Tensor, "batch position d_model"],
        writes: Float[Tensor, "layer batch position d_model"],
    ) -> Reading:
        """What is read where the embedding and the networks' writes are these, a row for each of a batch."""
        changes = {**self.frozen, "embedding": embedding}
        changes |= {f"blocks.{i}.feedforward.out": write for i, write in enumerate(writes)}
        with intervene(self.model, changes), reading_networks(self.model) as inputs:
            logits = self.model(self.tokens.expand(len(embedding), -1))
        return Reading(torch.stack([inputs[i] for i in range(len(writes))]), logits)


@takes_text(row=["tokens"])
@torch.no_grad()
def freeze(model: Decoder, tokens: Int[Tensor, "position"]) -> FrozenModel:
    """Freeze a model's attention patterns and norm scales at what they are on a sequence.

    Raises:
        ValueError: when the model is in training mode.
    """
    if model.training:
        raise ValueError(
            "a model in training mode computes anew each time; call model.eval() before"
        )
    batch = tokens[None]
    names = [name for name in taps(model) if name.endswith((".pattern", ".scale"))]
    with capture(model, "embedding", "logits", *names) as seen:
        model(batch)
    inputs, writes = network_pairs(model, batch)
    frozen = {name: seen[name] for name in names if name in seen}
    return FrozenModel(model, batch, frozen, seen["embedding"], inputs, writes, seen["logits"])


# The graph ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Node:
    """A node of the graph.

    Attributes:
        kind: a token's embedding, a network's error, a feature or a logit.
        layer: of features and errors; -1 for tokens and the number of layers for logits.
        position: in the sequence.
        index: which token, feature or logit; 0 for an error.
        value: the activation of a feature, the logit, or the length of an embedding or error.
    """

    kind: Kind
    layer: int
    position: int
    index: int
    value: float


@dataclass(frozen=True)
class AttributionGraph:
    """Nodes in the order in which they are computed, and what each adds to each later one.

    Attributes:
        nodes: tokens, then errors and features layer by layer, then logits.
        edges: what a source (column) adds to what a target (row) reads; zero for all but later features and
            logits.
        bias: what a target reads without any source: biases of the model and of the transcoders.
    """

    nodes: tuple[Node, ...]
    edges: Float[Tensor, "node node"]
    bias: Float[Tensor, "node"]

    def numbers(self, *kinds: Kind) -> list[int]:
        """The numbers of all nodes of these kinds."""
        return [i for i, node in enumerate(self.nodes) if node.kind in kinds]

    def gap(self) -> float:
        """The largest |value - edges - bias| of a feature or logit, as a share of the largest value."""
        targets = self.numbers("feature", "logit")
        values = self.edges.new_tensor([self.nodes[i].value for i in targets])
        wrong = values - self.edges[targets].sum(1) - self.bias[targets]
        return float(wrong.abs().max() / values.abs().max().clamp(min=1e-12))

    def flows(self, target: int) -> tuple[Float[Tensor, "node"], Float[Tensor, "node"]]:
        """What each node contributes to a target along all paths, and what each node's bias does.

        A feature hands on what it reads, in the shares in which it reads it. Contributions of tokens and errors
        and those of all biases therefore sum to the target's value; those of features lie on the way and are
        part of these.

        Args:
            target: number of a feature or logit.
        """
        slopes = torch.zeros_like(self.bias)  # of the target, by the value of each feature
        slopes[target] = 1.0
        contributions = torch.zeros_like(self.bias)
        for source in reversed(range(target)):
            contributions[source] = slopes @ self.edges[:, source]
            if self.nodes[source].kind == "feature":
                slopes[source] = contributions[source] / self.nodes[source].value
        return contributions, slopes * self.bias

    def shares(self, target: int) -> dict[str, float]:
        """How much of a target's value comes from tokens, errors and biases, as shares of all that flows.

        Contributions of either sign count by their size. A large share of errors says that the features do not
        explain the value.

        Args:
            target: number of a feature or logit.
        """
        contributions, biases = self.flows(target)
        size = {
            "token": float(contributions[self.numbers("token")].abs().sum()),
            "error": float(contributions[self.numbers("error")].abs().sum()),
            "bias": float(biases.abs().sum()),
        }
        return {kind: part / max(sum(size.values()), 1e-12) for kind, part in size.items()}

    def pruned(self, target: int, n_features: int) -> AttributionGraph:
        """The graph with only the features that contribute most to a target.

        What the others write becomes part of the error of their network, so that everything still adds up.

        Args:
            target: number of a feature or logit.
            n_features: how many features are kept, the target not counted.
        """
        sizes = self.flows(target)[0].abs()
        features = [i for i in self.numbers("feature") if i != target]
        kept = set(sorted(features, key=lambda i: -float(sizes[i]))[:n_features])
        home = {
            (node.layer, node.position): i
            for i, node in enumerate(self.nodes)
            if node.kind == "error"
        }
        edges = self.edges.clone()
        for i in features:
            if i not in kept:
                edges[:, home[self.nodes[i].layer, self.nodes[i].position]] += edges[:, i]
        left = [i for i in range(len(self.nodes)) if i in kept or i not in features]
        return replace(
            self,
            nodes=tuple(self.nodes[i] for i in left),
            edges=edges[left][:, left],
            bias=self.bias[left],
        )


@takes_text(row=["tokens"])
def attribution_graph(
    model: Decoder,
    transcoders: Sequence[Transcoder],
    tokens: Int[Tensor, "position"],
    *,
    logits: Sequence[int] | None = None,
    position: int = -1,
    chunk: int = 64,
) -> AttributionGraph:
    """The graph of one sequence, with every active feature of every transcoder.

    Args:
        model: in evaluation mode; is not changed.
        transcoders: one for each layer.
        tokens: the sequence.
        logits: the tokens whose logits are explained; the three likeliest when None.
        position: where they are read, from the end when negative.
        chunk: how many nodes are followed back at a time.

    Raises:
        ValueError: when the model is in training mode or has no head, there is not one transcoder a layer, the
            position lies outside, or edges do not add up, as something in the model is not linear although
            patterns and scales are frozen.

    >>> from measured_transformer.analysis.transcoders import neurons_as_features
    >>> from measured_transformer.models.config import Config
    >>> config = Config(vocab=10, d_model=16, n_layers=2, n_heads=2, activation="relu")
    >>> model = Decoder(config).double().eval()
    >>> features = [neurons_as_features(block.feedforward) for block in model.blocks]
    >>> graph = attribution_graph(model, features, torch.tensor([1, 2, 3]), logits=[7])
    >>> contributions, biases = graph.flows(target=len(graph.nodes) - 1)
    >>> total = contributions[graph.numbers("token", "error")].sum() + biases.sum()
    >>> bool(torch.isclose(total, model(torch.tensor([[1, 2, 3]]))[0, -1, 7]))
    True
    """
    check_transcoders(model, transcoders)
    if model.config.head == "none":
        raise ValueError("the model has no head, so there is no logit to explain")
    if not -len(tokens) <= position < len(tokens):
        raise ValueError(f"position must lie in {-len(tokens)}..{len(tokens) - 1}, got {position}")
    frozen = freeze(model, tokens)
    position %= len(tokens)
    answers = frozen.logits[0, position]
    chosen = answers.topk(min(3, len(answers))).indices.tolist() if logits is None else list(logits)
    sources = _Sources(frozen, transcoders)
    nodes = [*sources.nodes, *_logit_nodes(frozen, chosen, position)]
    edges = torch.zeros(len(nodes), len(nodes), dtype=answers.dtype, device=answers.device)
    bias = torch.zeros_like(edges[0])
    targets = [i for i, node in enumerate(nodes) if node.kind in ("feature", "logit")]
    for start in range(0, len(targets), chunk):
        some = targets[start : start + chunk]
        found = sources.into([nodes[i] for i in some])
        edges[some, : len(sources.nodes)], bias[some] = found
    graph = AttributionGraph(tuple(nodes), edges, bias)
    if not graph.gap() < 1e3 * torch.finfo(edges.dtype).eps:
        raise ValueError(
            f"edges and biases miss what nodes read by {graph.gap():.1e} of the largest value: something in "
            "this model is not linear although attention patterns and norm scales are frozen"
        )
    return graph


def _logit_nodes(frozen: FrozenModel, chosen: Sequence[int], position: int) -> list[Node]:
    layers, values = len(frozen.writes), frozen.logits[0, position]
    return [Node("logit", layers, position, token, float(values[token])) for token in chosen]


class _Sources:
    """Everything that writes into the stream, and what reaches a node from it."""

    def __init__(self, frozen: FrozenModel, transcoders: Sequence[Transcoder]) -> None:
        self.frozen, self.transcoders = frozen, transcoders
        active = [code.encode(x[0]) for code, x in zip(transcoders, frozen.inputs, strict=True)]
        written = torch.stack([c.decode(z) for c, z in zip(transcoders, active, strict=True)])
        self.errors = frozen.writes[:, 0] - written  # (layer, position, d_model)
        self.nodes = list(self._tokens())
        for layer, z in enumerate(active):
            self.nodes += self._of_layer(layer, z)

    def _tokens(self) -> Iterator[Node]:
        lengths = self.frozen.embedding[0].norm(dim=-1)
        for position, token in enumerate(self.frozen.tokens[0].tolist()):
            yield Node("token", -1, position, token, float(lengths[position]))

    def _of_layer(self, layer: int, z: Tensor) -> Iterator[Node]:
        for position, error in enumerate(self.errors[layer]):
            yield Node("error", layer, position, 0, float(error.norm()))
        for position, index in z.nonzero().tolist():
            yield Node("feature", layer, position, index, float(z[position, index]))

    def into(self, targets: Sequence[Node]) -> tuple[Tensor, Tensor]:
        """What each source adds to each target, and what a target reads without any."""
        rows = len(targets)
        embedding = self.frozen.embedding.expand(rows, -1, -1).clone().requires_grad_()
        writes = self.frozen.writes.expand(-1, rows, -1, -1).clone().requires_grad_()
        with torch.enable_grad():
            total = self._read(targets, self.frozen(embedding, writes)).sum()
            by_token, by_write = torch.autograd.grad(total, (embedding, writes))
        with torch.no_grad():
            nothing = self.frozen(torch.zeros_like(embedding), torch.zeros_like(writes))
            bias = self._read(targets, nothing)
            for layer, code in enumerate(self.transcoders):
                bias = bias + (by_write[layer] @ code.decoder_bias).sum(1)
            return self._edges(by_token, by_write), bias

    def _read(self, targets: Sequence[Node], reading: Reading) -> Tensor:
        """What each target reads, from its own row."""
        found = []
        for row, node in enumerate(targets):
            if node.kind == "logit":
                found.append(reading.logits[row, node.position, node.index])
            else:
                code = self.transcoders[node.layer]
                x = reading.inputs[node.layer, row, node.position]
                found.append(x @ code.encoder[node.index] + code.encoder_bias[node.index])
        return torch.stack(found)

    def _edges(self, by_token: Tensor, by_write: Tensor) -> Tensor:
        found = [(by_token * self.frozen.embedding).sum(-1)]
        for layer, code in enumerate(self.transcoders):
            slope = by_write[layer]  # (target, position, d_model)
            features = [n for n in self.nodes if n.kind == "feature" and n.layer == layer]
            places, which = [n.position for n in features], [n.index for n in features]
            values = slope.new_tensor([n.value for n in features])
            found.append((slope * self.errors[layer]).sum(-1))
            found.append((slope[:, places] * code.decoder[which]).sum(-1) * values)
        return torch.cat(found, 1)
