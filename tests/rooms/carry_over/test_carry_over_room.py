"""What the room of the carry-over table asks, reads and draws."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import numpy as np
import pytest
import torch
from measured_book.evidence.carries import carries
from measured_book.evidence.registry import claims
from measured_book.measuring.carrying import Asked, asked_rows, headline, kept_parts, unlike
from measured_book.measuring.judging import judge_room
from measured_book.rooms.carry_over import attributing, drawn, figures, lenses, neurons, own, stream
from measured_book.rooms.carry_over import measure as m
from measured_transformer.analysis.layers import (
    gini,
    mean_distance,
    previous_mass,
    relative_entropy,
)
from measured_transformer.interop.tokenizer import Tokenizer
from measured_transformer.language.model import LanguageModel
from measured_transformer.models.config import Config
from measured_transformer.models.decoder import Decoder
from measured_transformer.viewer.style import ThemedFigure

ROOT = Path(__file__).parents[3]
judge = cache(judge_room)


@cache
def asked() -> tuple[Asked, ...]:
    return tuple(asked_rows(small=kept_parts(judge), real=judge("carry_over")))


def patterns(seed: int, n: int = 9) -> torch.Tensor:
    """Causal patterns of three heads on two texts, and an even and a sharp one among them."""
    scores = 3 * torch.randn(2, 3, n, n, generator=torch.Generator().manual_seed(seed)).double()
    scores[:, 1] = 0.0
    hidden = ~torch.ones(n, n, dtype=torch.bool).tril()
    return scores.masked_fill(hidden, -torch.inf).softmax(-1)


# The table ----------------------------------------------------------------------------------------


def test_at_least_sixty_claims_are_asked_and_the_others_have_reasons() -> None:
    rows = carries().rows
    claimed = {claim for row in rows for claim in row.claims}
    assert len(claimed) >= 60
    assert claimed | set(carries().unasked) == set(claims())
    assert not claimed & set(carries().unasked)


def test_rows_that_are_said_to_stand_on_the_same_values_do() -> None:
    assert unlike(judge, carries().rows) == []


def test_every_row_is_judged() -> None:
    assert [one.row.name for one in asked() if one.real is None] == []


def test_the_readme_has_the_headline() -> None:
    now = headline(asked())
    told = re.search(r"(\d+) of (\d+) findings carry over", (ROOT / "README.md").read_text("utf-8"))
    assert told is not None
    assert [int(each) for each in told.groups()] == [now.over, now.findings]


def test_figures_are_drawn_for_both_themes() -> None:
    drawings = {name for name in vars(figures) if name.startswith("plot_")}
    assert drawings == {"plot_effects", "plot_themes"}
    for name in drawings:
        found = getattr(figures, name)(asked())
        assert isinstance(found, ThemedFigure)
        assert found.light != found.dark


# Instruments --------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(3))
def test_statistics_are_those_of_the_chapter_on_layers(seed: int) -> None:
    pattern = patterns(seed)
    found = m.statistics(pattern)
    for name, of in {
        "distance": mean_distance,
        "adjacent": previous_mass,
        "entropy": relative_entropy,
        "gini": gini,
    }.items():
        each = [of(pattern[:, head]) for head in range(3)]
        assert found[name].tolist() == pytest.approx(each, abs=1e-9), name
    assert float(found["entropy"][1]) == pytest.approx(1.0)
    assert float(found["gini"][1]) == pytest.approx(0.0, abs=1e-9)


def test_a_head_that_attends_by_place_is_wholly_explained_by_it() -> None:
    pattern = patterns(1)[:1].expand(2, -1, -1, -1)  # the same on both texts
    found = m.statistics(pattern)["by_place"]
    assert found[[0, 2]].tolist() == pytest.approx([1.0, 1.0])
    assert float(found[1]) == pytest.approx(0.0, abs=1e-6)  # even attention has nothing to explain
    assert float(m.statistics(patterns(1))["by_place"][0]) < 0.9


def test_divergences_agree_with_scipy() -> None:
    distance = pytest.importorskip("scipy.spatial.distance")
    rows = patterns(2)[:, :, 4:]
    wanted = max(
        np.mean(
            [
                distance.jensenshannon(rows[t, a, q].numpy(), rows[t, b, q].numpy(), 2) ** 2
                for t in range(2)
                for q in range(rows.shape[2])
            ]
        )
        for a, b in ((0, 1), (0, 2), (1, 2))
    )
    assert m.largest_divergence(rows) == pytest.approx(wanted, abs=1e-5)


def test_areas_agree_with_counting_pairs() -> None:
    draws = torch.Generator().manual_seed(3)
    values, label = torch.randn(30, 4, generator=draws), torch.rand(30, generator=draws) < 0.3
    found = neurons.areas(neurons.ranks_of(values), label)
    wins = (values[label][:, None] > values[~label]).double().mean((0, 1))
    assert found.tolist() == pytest.approx(torch.maximum(wins, 1 - wins).tolist())


def test_a_table_of_tokens_says_all_where_the_token_decides() -> None:
    tokens = torch.randint(5, (6, 20), generator=torch.Generator().manual_seed(4))
    decided = torch.stack((tokens, tokens**2), -1).float()
    assert neurons.by_token(decided, tokens) == pytest.approx(1.0)
    noise = torch.randn(6, 20, 2, generator=torch.Generator().manual_seed(5))
    assert neurons.by_token(noise, tokens) < 0.2


def test_least_squares_finds_an_affine_map() -> None:
    draws = torch.Generator().manual_seed(6)
    states, weight = torch.randn(8, 30, 5, generator=draws), torch.randn(5, 5, generator=draws)
    wanted = states @ weight + 2.0
    found = lenses.least_squares(states, wanted, states)
    assert torch.equal(found[:, 0], states[:, 0])
    assert float((found - wanted)[:, 1:].abs().max()) < 0.2


def test_frozen_norms_change_nothing_where_all_divisors_are_equal() -> None:
    torch.manual_seed(0)
    config = Config(vocab=30, d_model=16, n_layers=2, n_heads=2, norm="rms", positions="rotary")
    model, tokens = Decoder(config).eval(), torch.full((2, 7), 3)  # one token: all states are alike
    with torch.no_grad():
        account = stream.Account(model, tokens)
        assert float(account.variation().max()) < 1e-5
        assert account.loss_frozen() == pytest.approx(stream.loss(model, tokens), abs=1e-4)


def test_writes_and_states_of_an_account_add_up() -> None:
    torch.manual_seed(0)
    model = Decoder(Config(vocab=30, d_model=16, n_layers=3, n_heads=2, norm="rms")).eval()
    tokens = torch.randint(30, (2, 6), generator=torch.Generator().manual_seed(7))
    with torch.no_grad():
        account = stream.Account(model, tokens)
    written = account.states[0] + account.writes.sum((0, 1))
    assert float((written - account.states[-1]).abs().max()) < 1e-4
    assert 0 <= account.opposed() <= 1


def test_exchanged_tokens_count_nothing_where_they_are_not_asked_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    torch.manual_seed(0)
    model = Decoder(Config(vocab=40, d_model=16, n_layers=2, n_heads=2, positions="rotary")).eval()

    class Words:
        tokenizer = None

    monkeypatch.setattr(attributing, "smollm2", Words)
    monkeypatch.setattr(attributing, "ordinary_tokens", lambda _: torch.arange(40))
    tokens = torch.randint(40, (3, 8), generator=torch.Generator().manual_seed(8))
    found = attributing.exchanged(model, tokens, tokens[:, 0], range(1, 4), seed=0)
    assert float(found[:, [0, 4, 5, 6, 7]].abs().max()) == 0.0
    assert bool((found[:, 1:4] != 0).any())


# A reader's own -----------------------------------------------------------------------------------

MODELS = {
    "like GPT-2": Config(
        vocab=256, d_model=32, n_layers=4, n_heads=4, positions="learned", max_length=64,
        norm="layer", activation="gelu",
    ),
    "like Qwen": Config(
        vocab=256, d_model=32, n_layers=3, n_heads=4, n_kv_heads=2, positions="rotary", norm="rms",
        activation="swiglu", qkv_bias=True, bias=False,
    ),
    "like GPT-NeoX": Config(
        vocab=256, d_model=32, n_layers=3, n_heads=4, positions="rotary", rotary_share=0.25,
        parallel=True, norm="layer", activation="gelu",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", MODELS)
def test_another_model_answers_on_a_text(name: str) -> None:
    torch.manual_seed(0)
    lm = LanguageModel(Decoder(MODELS[name]), Tokenizer.of_bytes())
    rows = own.rows_of_text(lm, "The quick brown fox jumps over the lazy dog.")
    assert len(rows) == 7
    assert all(question and value and rule for question, value, rule in rows)
    with pytest.raises(ValueError, match="at least 8 tokens"):
        own.rows_of_text(lm, "short")


def test_ranks_agree_is_a_rank_correlation() -> None:
    assert drawn.ranks_agree(torch.tensor([1.0, 2.0, 9.0]), torch.tensor([3.0, 1.0, 0.0])) == -1.0
