"""Circuits of handmade models have the scores that arithmetic says, by each of the three ablations."""

import math

import pytest
import torch
from measured_transformer.analysis.ablation import Component, feedforwards, heads
from measured_transformer.analysis.attribution import answer_logit
from measured_transformer.analysis.edges import Edge, edges
from measured_transformer.analysis.faithfulness import (
    ablations,
    circuit_score,
    incompleteness,
    minimality,
    random_subsets,
)
from measured_transformer.analysis.handmade import composed_model, heads_model, reversal_model
from measured_transformer.analysis.residual import random_model
from measured_transformer.interop.sides import SourceSide, TargetSide
from measured_transformer.models.config import Config
from measured_transformer.training.loop import make_model

SEED = 0  # draws two of three sequences with the token that is asked for
WAYS = ["zero", "mean", "resample"]
TOKENS = torch.tensor([[2, 0, 1], [3, 1, 1], [0, 0, 0]])
OTHER = torch.tensor([[2, 3, 3], [2, 1, 1], [0, 1, 1], [3, 0, 0]])


def generator(seed=SEED):
    return torch.Generator().manual_seed(seed)


def setting(model, how="zero", tokens=TOKENS, **more):
    target = answer_logit(-1, tokens[:, 0])
    return ablations(model, tokens, target, how, reference=OTHER, generator=generator(), **more)


@pytest.mark.parametrize("how", WAYS)
def test_everything_is_faithful_and_complete_and_nothing_is_neither(how):
    model, _ = random_model(1, causal=True, n_layers=2, n_heads=2)
    tokens = torch.randint(11, (3, 5), generator=generator(0))
    other = torch.randint(11, (4, 5), generator=generator(1))
    for parts in (None, edges(model)):
        given = ablations(
            model,
            tokens,
            answer_logit(-1, tokens[:, 0]),
            how,
            parts=parts,
            reference=other,
            generator=generator(),
        )
        whole, none = circuit_score(given, given.parts), circuit_score(given, [])
        assert (whole.faithfulness, whole.completeness) == (1, 1)
        assert (none.faithfulness, none.completeness) == (0, 0)
        with torch.no_grad():
            assert whole.model == pytest.approx(float(given.target(model(tokens)).mean()))


@pytest.mark.parametrize("how", WAYS)
@pytest.mark.parametrize("read", [0, 1, 2])
def test_the_head_that_does_the_work_is_the_circuit(how, read):
    model = heads_model(["mirror", "mirror", "mirror"], vocab=4, length=3, read=read)
    given = setting(model, how)
    for number, head in enumerate(heads(model)):
        found = circuit_score(given, [head])
        assert found.faithfulness == pytest.approx(float(number == read))
        assert found.completeness == pytest.approx(float(number == read))


def test_the_three_ways_give_the_baselines_that_arithmetic_says():
    # The one head writes the token of the mirrored place. Without it the right answer's logit is 0, the share
    # of the reference that has the token there, or 1 where the sequence that was drawn has it and else 0.
    model = reversal_model(vocab=4, length=3)
    rows = torch.randint(4, (3,), generator=generator())
    expected = {
        "zero": 0.0,
        "mean": (0.5 + 0.25 + 0.25) / 3,
        "resample": float((OTHER[rows, 0] == TOKENS[:, 0]).double().mean()),
    }
    for how, wanted in expected.items():
        found = circuit_score(setting(model, how), feedforwards(model))
        assert found.nothing == pytest.approx(wanted)
        assert found.circuit == pytest.approx(wanted)
        assert (found.model, found.how) == (pytest.approx(1), how)
    assert len(set(expected.values())) == 3


def backed_up():
    """Two heads that both read the mirrored place, and an answer for which either is enough."""
    model = heads_model(["mirror", "mirror"], vocab=4, length=3, read=0)
    with torch.no_grad():
        model.unembedding.weight[:, -4:] = torch.eye(4)
    return model


def test_a_stand_in_is_found_by_subsets_and_by_what_is_gone():
    model, either = backed_up(), answer_logit(-1, TOKENS[:, 0])
    given = ablations(model, TOKENS, lambda logits: either(logits).clamp(max=1), "zero")
    one, two = heads(model)
    found = circuit_score(given, [one])
    assert (found.faithfulness, found.completeness) == (pytest.approx(1), pytest.approx(0))
    assert incompleteness(given, [one], [[], [one]]).tolist() == pytest.approx([0, 1])
    assert incompleteness(given, [one, two], [[], [one], [one, two]]).abs().max() < 1e-12
    assert minimality(given, [one, two]) == {one: pytest.approx(0), two: pytest.approx(0)}
    assert minimality(given, [one, two], gone=[two]) == {one: pytest.approx(1)}


def test_edges_of_outside_components_are_those_components():
    model, _ = random_model(2, causal=True, n_layers=2, n_heads=2)
    tokens = torch.randint(11, (3, 5), generator=generator(0))
    other = torch.randint(11, (4, 5), generator=generator(1))
    circuit = [heads(model)[1], heads(model)[2], feedforwards(model)[1]]
    for how in WAYS:
        settings = [
            ablations(
                model,
                tokens,
                answer_logit(-1, tokens[:, 0]),
                how,
                parts=parts,
                reference=other,
                generator=generator(),
            )
            for parts in (None, edges(model))
        ]
        by_parts = settings[0].only(circuit)
        kept = [
            edge
            for edge in edges(model)
            if edge.sender in circuit or edge.sender == Component("embedding")
        ]
        torch.testing.assert_close(settings[1].only(kept), by_parts)
        assert not by_parts.allclose(settings[0].without([]))


def test_the_edges_of_an_induction_pair_are_its_circuit():
    model = composed_model("k", vocab=6, length=8)
    tokens, other = torch.tensor([[0, 5, 3, 1, 5]]), torch.tensor([[2, 4, 4, 2, 1]])
    first, second = (Component(f"blocks.{i}.attention.mixed", 0) for i in (0, 1))
    start, end = Component("embedding"), Component("final_state")

    def reads(layer, what):
        return Component(f"blocks.{layer}.attention.{what}", 0)

    circuit = [
        *(Edge(start, reads(0, what)) for what in ("queries", "keys", "values")),
        Edge(first, reads(1, "keys")),
        *(Edge(start, reads(1, what)) for what in ("queries", "values")),
        Edge(start, reads(1, "keys")),  # the place that keeps the first position from being found
        Edge(second, end),
    ]
    target = answer_logit(-1, torch.tensor([3]))
    given = ablations(model, tokens, target, "mean", parts=edges(model), reference=other)
    found = circuit_score(given, circuit)
    assert found.faithfulness == pytest.approx(1)
    assert found.completeness == pytest.approx(1)
    falls = minimality(given, circuit)
    assert falls[circuit[3]] > 0.5
    assert circuit_score(given, circuit[:3]).faithfulness == pytest.approx(0)


def test_both_sides_of_an_encoder_decoder():
    config = Config(vocab=7, d_model=8, n_heads=2, n_layers=1)
    whole = make_model(config, causal=True, source=True, seed=0).double().eval()
    read, written = torch.tensor([[1, 2, 3]]), torch.tensor([[4, 5]])
    for side, tokens, number in (
        (TargetSide(whole, read), written, 5),
        (SourceSide(whole, written), read, 8),
    ):
        given = ablations(side, tokens, answer_logit(-1, torch.tensor([2])), "zero")
        assert len(given.parts) == number
        found = circuit_score(given, given.parts[:2])
        assert (found.faithfulness - 1) * (found.completeness - 1) != 0


def test_subsets_are_drawn_from_the_generator():
    parts = heads(backed_up())
    assert random_subsets(parts, 9, generator()) == random_subsets(parts, 9, generator())
    assert random_subsets(parts, 9, generator()) != random_subsets(parts, 9, generator(6))


def test_a_model_that_does_nothing_has_no_share():
    model = heads_model(["mirror"], vocab=4, length=3)
    given = ablations(
        model, TOKENS, answer_logit(-1, TOKENS[:, 0]), "zero", parts=feedforwards(model)
    )
    assert math.isnan(circuit_score(given, []).faithfulness)


def test_errors_say_what_is_wrong(unhooked):
    model = backed_up()
    with pytest.raises(ValueError, match=r"components alone or edges alone.*Component, Edge"):
        setting(model, parts=[heads(model)[0], edges(model)[0]])
    given = setting(model)
    with pytest.raises(ValueError, match=r"blocks\.7.* is none of the 3 parts"):
        given.only([Component("blocks.7.attention.mixed", 0)])
    with pytest.raises(ValueError, match="is none of the 3 parts"):
        circuit_score(given, [edges(model)[0]])
    with pytest.raises(ValueError, match="is no part of the circuit"):
        incompleteness(given, heads(model)[:1], [heads(model)])
    with pytest.raises(ValueError, match="at least one subset"):
        incompleteness(given, heads(model), [])
