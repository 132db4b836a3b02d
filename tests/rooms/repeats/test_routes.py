"""Paths between heads, computed for all senders at once, against the library's one path at a time."""

from __future__ import annotations

import pytest
import torch
from measured_book.rooms.repeats.routes import LEVELS, Routes, effects, routes, strongest
from measured_transformer.analysis.ablation import Component
from measured_transformer.analysis.edges import Edge
from measured_transformer.analysis.path_patching import patched_along
from measured_transformer.models.config import Config
from measured_transformer.models.decoder import Decoder
from torch import Tensor

LAST = Component("final_state")


def mixed(block: int, head: int) -> Component:
    return Component(f"blocks.{block}.attention.mixed", head)


def reads(block: int, what: str, head: int) -> Component:
    return Component(f"blocks.{block}.attention.{what}", head)


@pytest.fixture
def given() -> tuple[Decoder, Tensor, Tensor, Tensor, Tensor]:
    torch.manual_seed(0)
    config = Config(
        vocab=40, d_model=24, n_layers=4, n_heads=4, n_kv_heads=2, positions="rotary", norm="rms",
        activation="swiglu", bias=False,
    )  # fmt: skip
    model = Decoder(config).double().eval().requires_grad_(False)
    tokens, other = torch.randint(40, (2, 3, 7))
    return model, tokens, other, torch.tensor([1, 2, 3]), torch.tensor([4, 5, 6])


@pytest.fixture
def found(given: tuple[Decoder, Tensor, Tensor, Tensor, Tensor]) -> Routes:
    model, *rest = given
    return routes(*rest, model=model)


def along(given: tuple[Decoder, Tensor, Tensor, Tensor, Tensor], *path: Edge) -> Tensor:
    """The change of the gap along one path by the library."""
    model, tokens, other, right, wrong = given
    rows = torch.arange(len(tokens))

    def gap(logits: Tensor) -> Tensor:
        return logits[rows, -1, right] - logits[rows, -1, wrong]

    return patched_along(model, tokens, other, path, gap) - gap(model(tokens))


def test_straight_to_the_answer(given, found: Routes) -> None:
    gaps = found.gap(found.ends)
    for head in ((0, 1), (2, 3), (3, 0)):
        right = along(given, Edge(mixed(*head), LAST))
        torch.testing.assert_close(gaps[head], right)


def test_through_queries(given, found: Routes) -> None:
    gaps = found.gap(found.by_queries([(3, 1)], found.before))
    for head in ((0, 1), (2, 3)):
        path = Edge(mixed(*head), reads(3, "queries", 1)), Edge(mixed(3, 1), LAST)
        torch.testing.assert_close(gaps[head], along(given, *path))
    assert gaps[3].abs().max() < 1e-12, "no head reads its own block"


def test_through_values_and_queries(given, found: Routes) -> None:
    written = found.by_values([(2, 2)])
    gaps = found.gap(found.by_queries([(3, 1)], lambda block: written[0]))
    for head in ((0, 1), (1, 3)):
        path = (
            Edge(mixed(*head), reads(2, "values", 1)),
            Edge(mixed(2, 2), reads(3, "queries", 1)),
            Edge(mixed(3, 1), LAST),
        )
        torch.testing.assert_close(gaps[head], along(given, *path))


def test_each_kind_of_path_leads_to_the_strongest_of_the_kind_before(found: Routes) -> None:
    effect = effects(found, 2)
    assert effect.shape == (len(LEVELS), 4, 4)
    first, second, third = strongest(effect, 2)
    assert len({*first, *second, *third}) == 6
    assert first == [divmod(i, 4) for i in effect[0].abs().flatten().topk(2).indices.tolist()]
    through = found.gap(found.by_queries(first, found.before)).mean(-1)
    torch.testing.assert_close(effect[1], through)
    last = max(block for block, _ in second)
    assert effect[2, last:].abs().max() < 1e-12, "no sender behind the last receiver reaches it"


def test_what_is_written_behind_a_head_does_not_reach_its_queries(found: Routes) -> None:
    effect = effects(found, 4)
    first, second, _ = strongest(effect, 4)
    written = found.by_values(second)
    total = torch.zeros_like(found.ends)
    for head in first:
        before = [i for i, (block, _) in enumerate(second) if block < head[0]]
        total += found.by_queries([head], lambda block, i=before: written[i].sum(0))
    torch.testing.assert_close(effect[2], found.gap(total).mean(-1))
