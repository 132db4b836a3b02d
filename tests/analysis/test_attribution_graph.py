"""Edges add up to what nodes read, paths add up to logits, and what an edge says is what a change does."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from measured_transformer.analysis import attribution_graph as m
from measured_transformer.analysis.residual import random_model
from measured_transformer.analysis.transcoders import (
    fit_transcoders,
    network_errors,
    neurons_as_features,
)
from measured_transformer.models.config import Config
from measured_transformer.models.decoder import Decoder

KINDS = {
    "layer norm": {},
    "rms, rotary, gated": {
        "norm": "rms",
        "positions": "rotary",
        "activation": "swiglu",
        "n_kv_heads": 1,
    },
    "post": {"placement": "post"},
    "no norm, alibi": {"norm": "none", "positions": "alibi"},
    "tied": {"tie_embeddings": True, "positions": "learned", "max_length": 8},
}
every_kind = pytest.mark.parametrize("changes", KINDS.values(), ids=KINDS.keys())


def made(changes, seed=3, **more):
    model, tokens = random_model(seed, causal=True, n_layers=3, **changes, **more)
    codes = fit_transcoders(model, tokens, 10, seed=0, k=4, steps=30)
    return model, codes, tokens[0]


@every_kind
def test_frozen_at_its_own_values_it_is_the_model_and_it_is_linear(changes) -> None:
    model, _, tokens = made(changes)
    frozen = m.freeze(model, tokens)
    own = frozen(frozen.embedding, frozen.writes)
    torch.testing.assert_close(own.logits, model(tokens[None]), rtol=0, atol=1e-11)
    torch.testing.assert_close(own.inputs, frozen.inputs, rtol=0, atol=1e-11)
    e, w = torch.randn_like(frozen.embedding), torch.randn_like(frozen.writes)
    zero = frozen(0 * e, 0 * w)
    both, one, other = frozen(2 * e, 3 * w), frozen(e, 0 * w), frozen(0 * e, w)
    for name in ("logits", "inputs"):
        at = {
            key: getattr(value, name)
            for key, value in locals().items()
            if key in ("both", "one", "other", "zero")
        }
        expected = 2 * at["one"] + 3 * at["other"] - 4 * at["zero"]
        torch.testing.assert_close(at["both"], expected, rtol=0, atol=1e-10)


@every_kind
@pytest.mark.parametrize("seed", range(3))
def test_edges_add_up_and_paths_add_up_to_logits(changes, seed) -> None:
    model, codes, tokens = made(changes, seed)
    graph = m.attribution_graph(model, codes, tokens, logits=[0, 5, 10])
    assert graph.gap() < 1e-11
    logits = model(tokens[None])[0, -1]
    found = graph.numbers("logit")
    assert [graph.nodes[i].index for i in found] == [0, 5, 10]
    for i in found:
        contributions, biases = graph.flows(i)
        total = contributions[graph.numbers("token", "error")].sum() + biases.sum()
        assert float(total) == pytest.approx(float(logits[graph.nodes[i].index]), abs=1e-9)
        assert sum(graph.shares(i).values()) == pytest.approx(1)
    for i in graph.numbers("feature")[::5]:
        contributions, biases = graph.flows(i)
        total = contributions[graph.numbers("token", "error")].sum() + biases.sum()
        assert float(total) == pytest.approx(graph.nodes[i].value, abs=1e-9)


@every_kind
def test_nodes_are_the_active_features_and_edges_go_forward(changes) -> None:
    model, codes, tokens = made(changes)
    graph = m.attribution_graph(model, codes, tokens)
    frozen = m.freeze(model, tokens)
    active = sum(int((c.encode(x) > 0).sum()) for c, x in zip(codes, frozen.inputs, strict=True))
    assert len(graph.numbers("feature")) == active > 5
    assert len(graph.numbers("token")) == len(tokens)
    assert len(graph.numbers("error")) == 3 * len(tokens)
    best = model(tokens[None])[0, -1].topk(3).indices.tolist()
    assert [graph.nodes[i].index for i in graph.numbers("logit")] == best
    layer = torch.tensor([node.layer for node in graph.nodes])
    place = torch.tensor([node.position for node in graph.nodes])
    forward = (layer[None] < layer[:, None]) & (place[None] <= place[:, None])
    assert not bool(graph.edges[~forward].abs().max() > 1e-12)
    roots = graph.numbers("token", "error")
    assert not bool(graph.edges[roots].any() | graph.bias[roots].any())


@every_kind
def test_an_edge_is_what_its_source_does_to_its_target(changes) -> None:
    """Take a source away in the frozen model, other writes held: the target reads less by the edge."""
    model, codes, tokens = made(changes)
    graph = m.attribution_graph(model, codes, tokens, logits=[7])
    frozen = m.freeze(model, tokens)
    errors = network_errors(model, codes, tokens[None])
    last = len(graph.nodes) - 1
    late = next(i for i in graph.numbers("feature") if graph.nodes[i].layer == 2)
    for source in range(0, last, 3):
        node = graph.nodes[source]
        embedding, writes = frozen.embedding.clone(), frozen.writes.clone()
        if node.kind == "token":
            embedding[0, node.position] = 0
        elif node.kind == "error":
            writes[node.layer, 0, node.position] -= errors[node.layer, 0, node.position]
        else:
            lost = node.value * codes[node.layer].decoder[node.index]
            writes[node.layer, 0, node.position] -= lost
        read = frozen(embedding, writes)
        logit = float(frozen.logits[0, -1, 7] - read.logits[0, -1, 7])
        assert logit == pytest.approx(float(graph.edges[last, source]), abs=1e-10)
        target = graph.nodes[late]
        code, x = codes[2], read.inputs[2, 0, target.position]
        less = target.value - float(code.pre_activations(x)[target.index])
        assert less == pytest.approx(float(graph.edges[late, source]), abs=1e-10)


def test_of_relu_neurons_edges_to_logits_are_their_weights() -> None:
    """As the account by hand says: what a neuron writes, scaled, on the unembedding's row; no errors."""
    torch.manual_seed(0)
    model = Decoder(
        Config(vocab=9, d_model=8, n_layers=1, n_heads=2, norm="rms", activation="relu")
    )
    model = model.double().eval()
    tokens = torch.tensor([4, 1, 7, 7])
    codes = [neurons_as_features(model.blocks[0].feedforward)]
    graph = m.attribution_graph(model, codes, tokens, logits=[2])
    errors = graph.numbers("error")
    assert max(graph.nodes[i].value for i in errors) < 1e-12
    assert graph.shares(len(graph.nodes) - 1)["error"] < 1e-12
    frozen = m.freeze(model, tokens)
    scale = frozen.frozen["final_norm.scale"][0, -1]
    read = model.unembedding.weight[2] * model.final_norm.weight / scale
    here = [i for i in graph.numbers("feature") if graph.nodes[i].position == 3]
    assert len(here) > 3
    for i in here:
        node = graph.nodes[i]
        by_hand = node.value * (model.blocks[0].feedforward.down.weight[:, node.index] @ read)
        assert float(graph.edges[-1, i]) == pytest.approx(float(by_hand), abs=1e-12)
    elsewhere = [i for i in graph.numbers("feature") if graph.nodes[i].position != 3]
    assert not bool(graph.edges[-1, elsewhere].any())


def test_a_pruned_graph_still_adds_up() -> None:
    model, codes, tokens = made({})
    graph = m.attribution_graph(model, codes, tokens, logits=[1])
    whole = graph.flows(len(graph.nodes) - 1)[0].abs()
    small = graph.pruned(len(graph.nodes) - 1, 5)
    kept = small.numbers("feature")
    assert len(kept) == 5
    assert small.gap() < 1e-11
    largest = sorted(graph.numbers("feature"), key=lambda i: -float(whole[i]))[:5]
    assert {graph.nodes[i] for i in largest} == {small.nodes[i] for i in kept}
    contributions, biases = small.flows(len(small.nodes) - 1)
    total = contributions[small.numbers("token", "error")].sum() + biases.sum()
    assert float(total) == pytest.approx(small.nodes[-1].value, abs=1e-9)
    more, none = (graph.pruned(len(graph.nodes) - 1, n) for n in (10**6, 0))
    assert torch.equal(more.edges, graph.edges)
    shares = [g.shares(len(g.nodes) - 1)["error"] for g in (more, small, none)]
    assert shares == sorted(shares)


def test_in_single_precision_and_by_chunks() -> None:
    model, codes, tokens = made({"activation": "relu"})
    whole = m.attribution_graph(model, codes, tokens)
    parts = m.attribution_graph(model, codes, tokens, chunk=3)
    torch.testing.assert_close(whole.edges, parts.edges)
    torch.testing.assert_close(whole.bias, parts.bias)
    model.float()
    codes = [
        replace(
            c,
            encoder=c.encoder.float(),
            encoder_bias=c.encoder_bias.float(),
            decoder=c.decoder.float(),
            decoder_bias=c.decoder_bias.float(),
        )
        for c in codes
    ]
    assert m.attribution_graph(model, codes, tokens).gap() < 1e-4
    assert all(p.grad is None for p in model.parameters())


@pytest.mark.parametrize(
    ("change", "more", "message"),
    [
        (lambda model: model.train(), {}, r"call model\.eval\(\) before"),
        (lambda model: model, {"position": 9}, r"position must lie in -\d..\d, got 9"),
    ],
)
def test_what_has_no_graph_is_refused(change, more, message) -> None:
    model, codes, tokens = made({})
    with pytest.raises(ValueError, match=message):
        m.attribution_graph(change(model), codes, tokens, **more)
    with pytest.raises(ValueError, match="each of 3 layers, got 2"):
        m.attribution_graph(model.eval(), codes[:2], tokens)


def test_a_model_that_is_not_linear_when_frozen_is_refused() -> None:
    model, codes, tokens = made({})
    model.unembedding.register_forward_hook(lambda module, args, out: 5 * (out / 5).tanh())
    with pytest.raises(ValueError, match="is not linear although"):
        m.attribution_graph(model, codes, tokens)


def test_a_model_without_a_head_is_refused() -> None:
    model, codes, tokens = made({}, head="none")
    with pytest.raises(ValueError, match="no head"):
        m.attribution_graph(model, codes, tokens)
