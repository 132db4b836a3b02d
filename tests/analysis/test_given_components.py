"""Instruments take several components or one by itself, and say how a component is written."""

import pytest
import torch
from measured_transformer.analysis.ablation import Component, ablated, effects, heads, listed
from measured_transformer.analysis.attribution import answer_logit
from measured_transformer.analysis.attribution_patching import (
    attribution_patched,
    compare_patching,
)
from measured_transformer.analysis.edges import Edge, edges
from measured_transformer.analysis.faithfulness import ablations, circuit_score, random_subsets
from measured_transformer.analysis.handmade import induction_model
from measured_transformer.analysis.interchange import Aligned, interchanged
from measured_transformer.analysis.patching import patched, path_patched
from measured_transformer.analysis.path_patching import edge_patched, patched_along
from measured_transformer.analysis.references import replaced, replacements, seen_on
from measured_transformer.analysis.steering import mean_difference
from measured_transformer.tasks.task import Batch

MODEL = induction_model(vocab=6, length=8)
X, OTHER = torch.tensor([[0, 5, 3, 1, 5]]), torch.tensor([[0, 5, 2, 1, 5]])
TARGET = answer_logit(-1, torch.tensor([3]))
BATCH = Batch(X, X, X >= 0)
HEAD, LATER = Component("blocks.0.attention.mixed", 0), Component("blocks.1.attention.mixed", 0)
READ = Component("blocks.1.attention.keys", 0)
EDGE = Edge(HEAD, READ)


def within(context):
    with context:
        return MODEL(X)


def by_name(found):
    return [found[name] for name in sorted(found)]


SEVERAL = {
    "ablated": lambda c: within(ablated(MODEL, c, "zero")),
    "patched": lambda c: patched(MODEL, X, OTHER, c, TARGET),
    "seen_on": lambda c: by_name(seen_on(MODEL, X, c).values),
    "replacements": lambda c: by_name(replacements(MODEL, X, c, "zero")),
    "replaced": lambda c: within(replaced(MODEL, c, {HEAD.tap: torch.zeros(1, 1, 1, 1)})),
    "attribution_patched": lambda c: [*attribution_patched(MODEL, X, OTHER, c, TARGET).values()],
    "compare_patching": lambda c: compare_patching(MODEL, X, OTHER, c, TARGET).patched,
    "interchanged": lambda c: interchanged(MODEL, X, [(Aligned(c), OTHER)]),
    "effects": lambda c: torch.as_tensor(effects(MODEL, c, BATCH, how="zero")),
    "ablations": lambda c: list(ablations(MODEL, X, TARGET, "zero", parts=c).values.values()),
}
READERS = {
    "receivers": lambda c: path_patched(MODEL, X, OTHER, HEAD, c, TARGET),
}
ONE = {
    "sender": lambda c: path_patched(MODEL, X, OTHER, c, [READ], TARGET),
    "component": lambda c: mean_difference(MODEL, X, OTHER, c).vector,
}
EDGES = {
    "edge_patched": lambda e: edge_patched(MODEL, X, OTHER, e, TARGET),
    "patched_along": lambda e: patched_along(MODEL, X, OTHER, e, TARGET),
}


@pytest.mark.parametrize("name", SEVERAL)
def test_one_component_is_a_list_of_one(unhooked, name):
    torch.testing.assert_close(SEVERAL[name](HEAD), SEVERAL[name]([HEAD]), rtol=0, atol=0)


@pytest.mark.parametrize("name", EDGES)
def test_one_edge_is_a_list_of_one(unhooked, name):
    torch.testing.assert_close(EDGES[name](EDGE), EDGES[name]([EDGE]), rtol=0, atol=0)
    with pytest.raises(ValueError, match="must be of the class Edge, got 'blocks"):
        EDGES[name](["blocks.0.attention.mixed"])


def test_one_receiver_is_a_list_of_one(unhooked):
    found = READERS["receivers"](READ)
    torch.testing.assert_close(found, READERS["receivers"]([READ]), rtol=0, atol=0)


@pytest.mark.parametrize("name", [*SEVERAL, *READERS, *ONE])
def test_the_bare_name_of_a_tap_is_refused_with_what_to_write(unhooked, name):
    ask = {**SEVERAL, **READERS, **ONE}[name]
    for given in [HEAD.tap] if name in ONE else [HEAD.tap, [HEAD.tap]]:
        with pytest.raises(ValueError, match=r"write Component\('blocks.0.attention.mixed'\)"):
            ask(given)
    with pytest.raises(ValueError, match=r"write Component\('blocks.0.attention.mixed', 1\)"):
        ask((HEAD.tap, 1) if name in ONE else [(HEAD.tap, 1)])


def test_a_circuit_may_be_one_part_and_no_name(unhooked):
    setting = ablations(MODEL, X, TARGET, "zero", parts=heads(MODEL))
    assert circuit_score(setting, HEAD) == circuit_score(setting, [HEAD])
    with pytest.raises(ValueError, match="Component or Edge, got 'x'"):
        circuit_score(setting, ["x"])
    assert len(random_subsets(HEAD, 3, torch.Generator())) == 3
    assert ablations(MODEL, X, TARGET, "zero", parts=edges(MODEL)[0]).parts == (edges(MODEL)[0],)


def test_what_is_no_component_at_all_is_refused(unhooked):
    for given in (3, None, X, object()):
        with pytest.raises(ValueError, match="components must be of the class Component"):
            listed("components", given)
    assert listed("components", iter([HEAD, LATER])) == [HEAD, LATER]
    assert listed("components", {HEAD}) == [HEAD]
