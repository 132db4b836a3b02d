"""Edges add up to the model, and a value sent along some of them arrives there and nowhere else."""

from collections import defaultdict

import pytest
import torch
from measured_transformer.analysis.ablation import Component
from measured_transformer.analysis.attribution import answer_logit, direct_logits
from measured_transformer.analysis.edges import Edge, edges
from measured_transformer.analysis.handmade import (
    Layout,
    attentions,
    composed_model,
    empty_model,
    set_head,
)
from measured_transformer.analysis.patching import patched, path_patched
from measured_transformer.analysis.path_patching import edge_patched, patched_along
from measured_transformer.analysis.residual import random_model
from measured_transformer.internals.capture import capture
from measured_transformer.internals.intervene import intervene
from measured_transformer.interop.sides import SourceSide, TargetSide
from measured_transformer.models.config import Config
from measured_transformer.training.loop import make_model

EMBEDDING, END = Component("embedding"), Component("final_state")
SCHEMES = {
    "pre": {},
    "post": {"placement": "post"},
    "grouped, gated, rotary": {
        "n_heads": 4,
        "n_kv_heads": 2,
        "norm": "rms",
        "activation": "swiglu",
        "positions": "rotary",
    },
    "no residual": {"residual": False},
}


def drawn(seed=3, causal=True, **changes):
    settings = {"n_layers": 2, "n_heads": 2, "d_model": 16, **changes}
    model, _ = random_model(seed, causal=causal, **settings)
    draws = torch.Generator().manual_seed(seed)
    clean, other = (torch.randint(11, (2, 5), generator=draws) for _ in range(2))
    return model, clean, other, answer_logit(-1, clean[:, 0])


def head(layer, number, what="mixed"):
    return Component(f"blocks.{layer}.attention.{what}", number)


def test_the_edges_of_a_small_model_are_counted():
    model, *_ = drawn()
    found = edges(model)
    assert len(found) == len(set(found))
    # 6 receivers in each attention, 1 for each network and the end; senders: 1, then 3, 4, 6, 7.
    assert len(found) == 6 * 1 + 3 + 6 * 4 + 6 + 7
    grouped, *_ = drawn(**SCHEMES["grouped, gated, rotary"])
    assert len(edges(grouped)) == 8 * 1 + 5 + 8 * 6 + 10 + 11


@torch.no_grad()
@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("scheme", SCHEMES)
def test_no_edge_is_the_own_run_all_are_the_other_and_those_of_a_sender_are_patching_it(
    scheme, causal
):
    model, clean, other, target = drawn(causal=causal, **SCHEMES[scheme])
    every = edges(model)
    assert torch.equal(edge_patched(model, clean, other, [], target), target(model(clean)))
    whole = edge_patched(model, clean, other, every, target)
    torch.testing.assert_close(whole, target(model(other)))
    for sender in (EMBEDDING, head(0, 1), Component("blocks.0.feedforward.out"), head(1, 0)):
        own = [edge for edge in every if edge.sender == sender]
        expected = patched(model, clean, other, [sender], target)
        torch.testing.assert_close(edge_patched(model, clean, other, own, target), expected)
        assert not expected.allclose(target(model(clean)))
    own = [edge for edge in every if edge.sender == EMBEDDING]
    expected = patched(model, clean, other, [EMBEDDING], target, positions=[0, -1])
    found = edge_patched(model, clean, other, own, target, positions=[0, -1])
    torch.testing.assert_close(found, expected)


@torch.no_grad()
def test_one_edge_is_path_patching_and_its_receiver_sees_the_one_changed_summand():
    model, clean, other, target = drawn()
    receivers = [head(1, 1, what) for what in ("queries", "keys", "values")]
    for ends in ([receivers[1]], receivers):
        found = edge_patched(model, clean, other, [Edge(head(0, 0), each) for each in ends], target)
        torch.testing.assert_close(
            found, path_patched(model, clean, other, head(0, 0), ends, target)
        )
        assert not found.allclose(target(model(clean)))
    last = path_patched(
        model, clean, other, head(0, 0), [Component("blocks.1.residual_post")], target
    )
    torch.testing.assert_close(
        edge_patched(model, clean, other, [Edge(head(0, 0), END)], target), last
    )
    with capture(model, "blocks.0.attention.head_outputs", "blocks.1.residual_pre") as own:
        model(clean)
    with capture(model, "blocks.0.attention.head_outputs") as changed:
        model(other)
    name = "blocks.0.attention.head_outputs"
    stream = own["blocks.1.residual_pre"] + (changed[name] - own[name])[:, 0]
    with intervene(model, {"blocks.1.residual_pre": stream}), capture(model, "*.keys") as seen:
        model(clean)
    with intervene(model, {"blocks.1.attention.keys": _second(seen["blocks.1.attention.keys"])}):
        by_hand = target(model(clean))
    found = edge_patched(model, clean, other, [Edge(head(0, 0), receivers[1])], target)
    torch.testing.assert_close(found, by_hand)


def _second(new):
    def change(value):
        value[:, 1] = new[:, 1]
        return value

    return change


def test_one_edge_takes_few_runs_however_deep_the_model_is():
    counts = []
    for n_layers in (2, 4):
        model, clean, other, target = drawn(n_layers=n_layers)
        runs = []
        with capture(
            model, "embedding", transform=lambda value, runs=runs: runs.append(0) or value
        ):
            edge_patched(model, clean, other, [Edge(EMBEDDING, head(1, 0, "keys"))], target)
        counts.append(len(runs))
    assert counts[0] == counts[1] <= 6


@torch.no_grad()
@pytest.mark.parametrize("norm", ["none", "layer", "rms"])
def test_edges_to_the_last_state_are_direct_effects_with_the_scale_held(norm):
    model, clean, other, target = drawn(norm=norm)
    names = {head(0, 1): "blocks.0.attention head 1", Component("blocks.1.feedforward.out"): None}
    held = {}
    if norm != "none":
        with capture(model, "final_norm.scale") as held:
            model(clean)
    with intervene(model, held):
        accounts = [direct_logits(model, tokens) for tokens in (clean, other)]
        for sender, name in names.items():
            number = accounts[0].names.index(name or "blocks.1.feedforward")
            direct = target(accounts[1].logits[number]) - target(accounts[0].logits[number])
            found = edge_patched(model, clean, other, [Edge(sender, END)], target)
            torch.testing.assert_close(found - target(model(clean)), direct)


def linear_model(seed=0):
    """Two layers of two heads that look everywhere evenly, and carry what random matrices say."""
    layout = Layout(5, 4, 1)
    model = empty_model(layout, n_layers=2, n_heads=2, causal=True)
    draws = torch.Generator().manual_seed(seed)

    def matrix(rows, columns):
        return 0.3 * torch.randn(rows, columns, generator=draws, dtype=torch.float64)

    for attention in attentions(model):
        for number in range(2):
            nothing = torch.zeros(layout.width, 5).double()
            carried = {"value": matrix(layout.width, 5), "output": matrix(5, layout.width)}
            set_head(attention, number, query=nothing, key=nothing, **carried)
    with torch.no_grad():
        model.unembedding.weight.copy_(matrix(5, layout.width))
    return model


@torch.no_grad()
def test_in_a_linear_model_all_paths_add_up_to_the_whole_effect():
    model = linear_model()
    clean, other = torch.tensor([[0, 1, 2, 3]]), torch.tensor([[4, 1, 0, 2]])
    target = answer_logit(-1, torch.tensor([1]))
    before = target(model(clean))
    onward = defaultdict(list)
    for edge in edges(model):
        onward[edge.sender].append(edge)

    def paths(sender):
        for edge in onward[sender]:
            if edge.receiver == END:
                yield [edge]
            elif edge.receiver.tap.endswith("values"):  # the networks of this model write nothing
                tap, number = edge.receiver.tap, edge.receiver.head
                following = Component(tap.replace("values", "mixed"), number)
                yield from ([edge, *rest] for rest in paths(following))

    for sender, wanted in ((head(1, 0), 1), (head(0, 1), 3), (EMBEDDING, 9)):
        found = list(paths(sender))
        assert len(found) == wanted
        effects = [patched_along(model, clean, other, path, target) - before for path in found]
        whole = patched(model, clean, other, [sender], target) - before
        torch.testing.assert_close(torch.stack(effects).sum(0), whole)
        assert whole.abs() > 1e-3


@torch.no_grad()
def test_a_path_of_one_edge_is_that_edge_and_a_longer_one_holds_all_else():
    model, clean, other, target = drawn(**SCHEMES["grouped, gated, rotary"])
    for receiver in (END, head(1, 1, "keys"), Component("blocks.1.feedforward.out")):
        edge = Edge(head(0, 2), receiver)
        torch.testing.assert_close(
            patched_along(model, clean, other, [edge], target),
            edge_patched(model, clean, other, [edge], target),
        )
    through = [Edge(head(0, 2), head(1, 1, "keys")), Edge(head(1, 3), END)]
    found = patched_along(model, clean, other, through, target)
    both = edge_patched(model, clean, other, through[:1], target)
    assert not found.allclose(both)  # head 2 shares the keys, and the last network reads both heads
    with pytest.raises(ValueError, match="does not lead to"):
        patched_along(model, clean, other, [through[0], Edge(head(1, 0), END)], target)


@torch.no_grad()
@pytest.mark.parametrize("by", ["q", "k", "v"])
def test_heads_compose_along_the_edge_that_they_were_made_with(by):
    model = composed_model(by, vocab=6, length=8)
    clean = torch.tensor([[0, 5, 3, 1, 5]]) if by == "k" else torch.tensor([[0, 4, 3, 5, 1]])
    target = answer_logit(-1, model(clean).argmax(-1)[:, -1])
    other, before = clean.clone(), target(model(clean))
    other[0, {"k": 1, "q": 3, "v": 2}[by]] = 2
    moved = {
        edge.receiver.tap.rpartition(".")[2][0]
        for edge in edges(model)
        if edge.sender == head(0, 0)
        and not edge_patched(model, clean, other, [edge], target).allclose(before)
    }
    assert moved == {by}


@torch.no_grad()
def test_both_sides_of_an_encoder_decoder():
    config = Config(vocab=7, d_model=8, n_heads=2, n_layers=1)
    whole = make_model(config, causal=True, source=True, seed=0).double().eval()
    read, written = torch.tensor([[1, 2, 3]]), torch.tensor([[4, 5]])
    target = answer_logit(-1, torch.tensor([2]))
    writing, other = TargetSide(whole, read), torch.tensor([[6, 0]])
    every = edges(writing)
    assert not [edge for edge in every if "cross_attention.keys" in edge.receiver.tap]
    torch.testing.assert_close(
        edge_patched(writing, written, other, every, target), target(writing(other))
    )
    reading, other = SourceSide(whole, written), torch.tensor([[3, 5, 1]])
    every = edges(reading)
    torch.testing.assert_close(
        edge_patched(reading, read, other, every, target), target(reading(other))
    )
    for sender in (EMBEDDING, head(0, 1), Component("writer.blocks.0.cross_attention.mixed", 0)):
        own = [edge for edge in every if edge.sender == sender]
        torch.testing.assert_close(
            edge_patched(reading, read, other, own, target),
            patched(reading, read, other, [sender], target),
        )
    into = [edge for edge in every if edge.receiver.tap == "writer.blocks.0.cross_attention.values"]
    assert {edge.sender.tap for edge in into} == {
        "embedding",
        "blocks.0.attention.mixed",
        "blocks.0.feedforward.out",
    }


def test_errors_name_the_edge(unhooked):
    model, clean, other, target = drawn()
    with pytest.raises(ValueError, match=r"no edge blocks\.1\.attention\.mixed head 0 -> "):
        edge_patched(model, clean, other, [Edge(head(1, 0), head(0, 0, "keys"))], target)
    with pytest.raises(ValueError, match="at least one edge"):
        patched_along(model, clean, other, [], target)
    config = Config(vocab=7, d_model=8, n_heads=2, n_layers=1)
    with pytest.raises(ValueError, match="one side of an EncoderDecoder"):
        edges(make_model(config, causal=True, source=True, seed=0))
