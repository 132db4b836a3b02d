"""What the room *Thirty blocks* does to blocks, heads and positions, against runs that are written out."""

from __future__ import annotations

import math
from types import ModuleType

import numpy as np
import pytest
import torch
from measured_book.evidence.results import load_results
from measured_book.rooms.thirty_blocks import (
    again,
    far,
    figures,
    measure,
    order,
    passages,
    repair,
    scores,
    taking,
)
from measured_book.rooms.thirty_blocks.sentence import without_each_block
from measured_book.smollm2.sweeps import begin
from measured_transformer import Config, Decoder, capture
from measured_transformer.interop.tokenizer import Tokenizer
from measured_transformer.language.model import LanguageModel
from measured_transformer.parts.positions import frequencies
from measured_transformer.training.seeding import make_generator
from measured_transformer.viewer.style import ThemedFigure
from torch.nn import functional as F

RESULTS = load_results("thirty_blocks")
DRAWN = {
    "plot_growth": ("stream",),
    "plot_kept": ("stream",),
    "plot_lens": ("lens_again",),
    "plot_blocks": ("blocks",),
    "plot_runs": ("runs", "middle_again"),
    "plot_heads": ("heads",),
    "plot_sets": ("sets",),
    "plot_repair": ("repair_again",),
    "plot_far": ("far",),
    "plot_needle": ("needle_again", "needle_apart"),
    "plot_pairs": ("pairs",),
    "plot_scores": ("scores",),
}
TOKENS = torch.arange(36).view(3, 12) * 7 % 50
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


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> LanguageModel:
    """A small model of the same architecture in the place of the real one."""
    torch.manual_seed(0)
    model = LanguageModel(Decoder(CONFIG), Tokenizer.of_bytes()).eval().requires_grad_(False)
    for module in (again, far, measure, passages, repair, scores, taking):
        if hasattr(module, "smollm2"):
            monkeypatch.setattr(module, "smollm2", lambda: model)
    monkeypatch.setattr("measured_book.smollm2.sweeps.smollm2", lambda: model)
    for module in (far, passages, repair, scores, taking):
        if hasattr(module, "BLOCKS"):
            monkeypatch.setattr(module, "BLOCKS", (1, 2, 3, 4))
        if hasattr(module, "HEADS"):
            monkeypatch.setattr(module, "HEADS", (1, 2, 3, 4))
    return model


@pytest.mark.parametrize("name", DRAWN)
def test_figure_is_drawn_for_both_themes(name: str) -> None:
    drawn = getattr(figures, name)(*(RESULTS[one] for one in DRAWN[name]))
    assert isinstance(drawn, ThemedFigure)
    assert drawn.light != drawn.dark


def test_every_figure_function_is_tried() -> None:
    assert {name for name in vars(figures) if name.startswith("plot_")} == set(DRAWN)


def test_draws_take_every_head_twice() -> None:
    taken = RESULTS["heads"].loss.notnull().sum("seed").values
    assert (taken == 2).all()


def run(model: Decoder, plan: list[int]) -> torch.Tensor:
    sweep = begin(TOKENS, model=model)
    x = sweep.states[0]
    for block in plan:
        x = sweep.run(block, x)
    return x


@pytest.mark.parametrize("change", ["out", "twice", "reversed", "swapped"])
def test_variants_that_share_what_nobody_changed_are_those_that_run_alone(
    small: LanguageModel, change: str
) -> None:
    cases = [
        (first, length)
        for length in (1, 2, 3)
        for first in range(5 - length)
        if change != "swapped" or (length == 1 and first < 3)
    ]
    plans = [order.changed(change, first, length, n=4) for first, length in cases]
    together = order.onward(begin(TOKENS, model=small), plans).split(len(TOKENS))
    for plan, found in zip(plans, together, strict=True):
        torch.testing.assert_close(found, run(small, plan))


def test_any_order_can_be_run(small: LanguageModel) -> None:
    plans = [[0, 1, 2, 3], [3, 2, 1, 0], [0, 2, 2, 3], []]
    together = order.onward(begin(TOKENS, model=small), plans).split(len(TOKENS))
    for plan, found in zip(plans, together, strict=True):
        torch.testing.assert_close(found, run(small, plan))


def test_block_by_block_is_the_loss_of_each_change(small: LanguageModel) -> None:
    found = order.block_by_block(begin(TOKENS, model=small))
    logits = small.unembed(run(small, [0, 2, 3]))[:, passages.LATER : -1]
    right = TOKENS[:, passages.LATER + 1 :]
    whole = small(TOKENS)[:, passages.LATER : -1]
    loss = F.cross_entropy(logits.flatten(0, 1), right.flatten())
    assert found["loss"][1][0, 1] == pytest.approx(float(loss), abs=1e-5)
    same = (logits.argmax(-1) == whole.argmax(-1)).double().mean()
    assert found["same"][1][0, 1] == pytest.approx(float(same))
    assert np.isnan(found["loss"][1][1]).tolist() == [False, False, False, True]


@pytest.fixture
def few(small: LanguageModel, monkeypatch: pytest.MonkeyPatch) -> LanguageModel:
    """The small model, asked again on texts that are given."""
    found = {0: (TOKENS[:2], TOKENS), 1: (TOKENS[1:], TOKENS.flip(1))}
    monkeypatch.setattr(again, "passages", lambda seed, *_: found[seed - again.FRESH])
    monkeypatch.setattr(again, "MIDDLE", (2, 3))
    monkeypatch.setattr(again, "RUN", 2)
    monkeypatch.setattr(again, "inner", lambda _: range(1, 3))
    monkeypatch.setattr(again, "FROM", 4)
    monkeypatch.setattr(again, "changed", lambda how, block: order.changed(how, block, n=4))
    return small


def test_what_is_asked_again_is_what_was_asked(few: LanguageModel) -> None:
    whole = order.block_by_block(begin(TOKENS[:2], model=few))["same"][1]
    assert again.out_again(0)["same"][1].tolist() == whole[0, 1:3].tolist()

    states = begin(TOKENS.flip(1), model=few).states[:, :, -1]
    apart = [
        sum(
            float(torch.arccos(F.cosine_similarity(a, b, dim=0))) for a, b in zip(x, y, strict=True)
        )
        for x, y in ((states[1], states[3]), (states[2], states[4]))
    ]
    assert again.place_again(1)["place"] == 1 + 1 + int(np.argmin(apart))


def test_accuracy_kept_is_that_on_what_comes_next(
    small: LanguageModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(again, "passages", lambda *_: (TOKENS, TOKENS))
    monkeypatch.setattr(again, "BLOCKS", (1, 2, 3, 4))
    monkeypatch.setattr(again, "changed", lambda how, block: order.changed(how, block, n=4))
    found = again.kept_again(0)
    wanted = TOKENS[:, passages.LATER + 1 :]

    def right(plan: list[int]) -> float:
        likely = small.unembed(run(small, plan))[:, passages.LATER : -1].argmax(-1)
        return float((likely == wanted).double().mean())

    assert found["usual"] == pytest.approx(right([0, 1, 2, 3]))
    assert found["right"][1][0, 1] == pytest.approx(right([0, 2, 3]))
    assert found["right"][1][1, 2] == pytest.approx(right([0, 1, 3, 2]))
    assert np.isnan(found["right"][1]).tolist() == [[False] * 4, [False] * 3 + [True]]


@pytest.mark.parametrize(
    ("module", "name"), [(again, "middle"), (again, "repair"), (measure, "lens")]
)
def test_fresh_draws_are_those_of_other_seeds(
    module: ModuleType, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, name, lambda seed: {"seed": seed})
    assert getattr(module, f"{name}_again")(3) == {"seed": 9003}


def test_the_largest_weight_is_looked_for_behind_the_first_key(few: LanguageModel) -> None:
    found = again.largest_again(1)["largest"][1]
    with capture(few, "blocks.*.attention.pattern") as seen:
        few(TOKENS[1:])
    rows = [float(row[1:].max()) for one in seen.values() for row in one[:, :, 4:].flatten(0, 2)]
    assert found[0] == pytest.approx(float(np.mean(rows)))
    assert found[1] > found[0]


def test_heads_are_taken_away_as_said(small: LanguageModel) -> None:
    others = (TOKENS + 3) % 50
    other, sweep = taking.stand_ins(others), begin(TOKENS)
    with capture(small, "blocks.2.attention.mixed") as seen:
        small(others)
    there = seen["blocks.2.attention.mixed"][:, 1]
    with capture(small, "blocks.2.attention.mixed") as whole:
        small(TOKENS)
    usual = whole["blocks.2.attention.mixed"]
    variants = [(how, taking.one_head(2, 1)) for how in (*taking.WAYS,)]
    with taking.without(variants, other), capture(small, "blocks.2.attention.mixed") as seen:
        sweep.onward(0, sweep.states[0].repeat(len(variants), 1, 1))
    rows = seen["blocks.2.attention.mixed"].split(len(TOKENS))
    found = dict(zip(taking.WAYS, rows, strict=True))
    for one in rows:
        torch.testing.assert_close(one[:, [0, 2, 3]], usual[:, [0, 2, 3]])
    assert bool((found["zero"][:, 1] == 0).all())
    assert bool((found["zero behind"][:, 1, 1:] == 0).all())
    torch.testing.assert_close(found["zero behind"][:, 1, 0], usual[:, 1, 0])
    torch.testing.assert_close(found["resample"][:, 1], there)
    torch.testing.assert_close(found["mean"][0, 1, 0], there[:, 0].mean(0))
    torch.testing.assert_close(found["mean"][1, 1, 5], there[:, 1:].mean((0, 1)))


def test_derivatives_are_slopes_of_the_loss(small: LanguageModel) -> None:
    other = taking.stand_ins((TOKENS + 3) % 50)
    gone = torch.zeros(4, 4, dtype=torch.bool)
    gone[1, 2] = True
    slopes = taking.derivatives(TOKENS, other, gone)
    assert bool((slopes[:, 1, 2] == 0).all())

    def loss(factor: float) -> float:
        """The first text's loss when head 4 of block 3 hands on so much beyond its mean."""
        from measured_transformer import intervene

        def change(block: int):
            def gated(mixed: torch.Tensor) -> torch.Tensor:
                mean = other.of("mean", block, mixed)
                gate = torch.ones(4)
                gate[3 if block == 2 else 2] = (
                    factor if block == 2 else (0.0 if block == 1 else 1.0)
                )
                return mean + gate[:, None, None] * (mixed - mean)

            return gated

        with intervene(small, {f"blocks.{i}.attention.mixed": change(i) for i in range(4)}):
            logits = small(TOKENS[:1])[0, passages.LATER : -1].double()
        return float(F.cross_entropy(logits, TOKENS[0, passages.LATER + 1 :]))

    slope = (loss(1.05) - loss(0.95)) / 0.1
    assert float(slopes[0, 2, 3]) == pytest.approx(slope, rel=0.05, abs=2e-5)


def test_every_order_holds_every_head_once(
    small: LanguageModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(taking, "SIZES", (2, 4, 8))
    monkeypatch.setattr(taking, "STEP", 2)
    found = taking.rankings(TOKENS, taking.stand_ins(TOKENS))
    assert set(found) == set(taking.BY)
    for one in found.values():
        assert sorted(one.tolist()) == list(range(16))


def test_sets_on_fresh_draws_are_those_that_are_written_out(
    small: LanguageModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    others = (TOKENS + 3) % 50
    monkeypatch.setattr(again, "passages", lambda *_: (TOKENS[:2], others))
    monkeypatch.setattr(again, "SIZES", (2, 5))
    other, sweep = taking.stand_ins(others), begin(TOKENS[:2])

    def loss(how: str, chosen: torch.Tensor) -> float:
        with taking.without([(how, taking.marked(chosen))], other):
            state = sweep.onward(0, sweep.states[0])
        return float(passages.read(state, TOKENS[:2])[0].double().mean())

    found = again.fifth_again(0)
    least = taking.rankings(others[: taking.RANKED], other)["gradient"][:5]
    assert found["loss"] == pytest.approx(loss("mean", least))
    assert found["whole"] == pytest.approx(loss("mean", least[:0]))

    draws = make_generator(again.LATER_DRAWS, "orders of heads")
    orders = [torch.randperm(16, generator=draws)[:2] for _ in range(taking.OF_EACH_SIZE)]
    expected = [[loss(how, order) for order in orders] for how in ("zero", "mean")]
    np.testing.assert_allclose(again.zero_again(0)["loss"][1], expected, rtol=1e-5)


def test_the_stream_on_fresh_draws_is_the_trained_models(
    small: LanguageModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    drawn: list[int] = []
    monkeypatch.setattr(
        measure, "passages", lambda seed, *_: (drawn.append(seed) or TOKENS, TOKENS)
    )
    found = measure.stream_again(3)
    assert drawn == [9003]
    whole = measure.account(small, TOKENS)
    np.testing.assert_array_equal(found["kept"][1], whole["kept"])
    np.testing.assert_array_equal(
        found["fit"][1], [measure.fits(row[1:]) for row in whole["length"]]
    )


def test_angles_of_the_model_itself_change_nothing(small: LanguageModel) -> None:
    omega = frequencies(8)
    angles = torch.arange(12).double()[:, None] * omega
    whole = begin(TOKENS).states[-1]
    torch.testing.assert_close(far.turned_by(small, TOKENS, angles), whole)
    assert not torch.allclose(far.turned_by(small, TOKENS, 2 * angles), whole)
    shifted = (torch.arange(12).double() + 100)[:, None] * omega
    torch.testing.assert_close(far.turned_by(small, TOKENS, shifted), whole, atol=1e-4, rtol=1e-3)


def test_stretched_positions_end_where_the_trained_length_does(small: LanguageModel) -> None:
    raw, one = far.speeds(small, "raw", 8.0)
    assert one == 1.0
    squeezed, _ = far.speeds(small, "interpolated", 8.0)
    torch.testing.assert_close(squeezed, raw / 8)
    for scheme in ("NTK", "YaRN"):
        omega, _ = far.speeds(small, scheme, 8.0)
        assert float(omega[0]) == pytest.approx(float(raw[0]))
        assert bool((omega <= raw * (1 + 1e-12)).all())
        assert bool((omega >= raw / 8 * (1 - 1e-12)).all())
    assert float(far.speeds(small, "NTK", 8.0)[0][-1]) == pytest.approx(float(raw[-1]) / 8)
    assert far.speeds(small, "YaRN", 8.0)[1] == pytest.approx(0.1 * math.log(8) + 1)
    torch.testing.assert_close(far.speeds(small, "YaRN", 1.0)[0], raw)


def test_scores_over_distance_are_those_of_turned_queries(small: LanguageModel) -> None:
    with capture(small, "blocks.1.attention.queries", "blocks.1.attention.keys") as seen:
        small(TOKENS[:2])
    queries, keys = (
        seen[f"blocks.1.attention.{name}"][:, :, 1:].double() for name in ("queries", "keys")
    )
    keys = keys.repeat_interleave(2, 1)
    rotary = small.rotary
    assert rotary is not None
    pairs = [
        torch.stack(x.chunk(2, -1), -1) if rotary.pairing == "halves" else x.unflatten(-1, (-1, 2))
        for x in (queries, keys)
    ]
    omega = frequencies(8)
    found = far.over_distance(*pairs, omega)

    def mean_score(distance: int) -> torch.Tensor:
        angle = distance * omega
        total = torch.zeros(4, dtype=torch.float64)
        a, b = pairs
        for text in (0, 1):
            q, k = a[text], b[1 - text]
            x = q[..., 0] * angle.cos() - q[..., 1] * angle.sin()
            y = q[..., 0] * angle.sin() + q[..., 1] * angle.cos()
            scores_ = torch.einsum("hqp,hkp->hqk", x, k[..., 0]) + torch.einsum(
                "hqp,hkp->hqk", y, k[..., 1]
            )
            total += scores_.mean((1, 2)) / 2
        return total

    near, there, distant = (mean_score(one) for one in (3, 64, 500))
    ratio = (found[:, 2] / found[:, 499]).tolist()
    assert ratio == pytest.approx(((near - there) / (distant - there)).tolist(), rel=1e-6)


def test_parts_of_a_repair_add_up(small: LanguageModel, monkeypatch: pytest.MonkeyPatch) -> None:
    texts, others = TOKENS[:2], (TOKENS + 11) % 50
    monkeypatch.setattr(repair, "passages", lambda *_: (texts, others))
    found = {name: np.asarray(value) for name, (_, value) in repair.repair(0).items()}
    sums = found["direct"] + found["later"] + found["norm"]
    np.testing.assert_allclose(sums, found["total"], atol=1e-6)
    assert found["later"][-1] != pytest.approx(
        0
    )  # the last network comes behind the last attention

    from measured_transformer import intervene

    name = "blocks.2.attention.out"
    with capture(small, name) as seen:
        small(others)
    right = texts[:, passages.LATER + 1 :]

    def above_mean() -> float:
        logits = small(texts)[:, passages.LATER : -1].double()
        return float((logits.gather(-1, right[..., None])[..., 0] - logits.mean(-1)).mean())

    whole = above_mean()
    with intervene(small, {name: seen[name].mean(0, keepdim=True)}):
        silenced = above_mean()
    assert found["total"][2] == pytest.approx(silenced - whole, abs=1e-5)


def test_growth_is_told_from_a_straight_line() -> None:
    curve, line = measure.fits(1.1 ** np.arange(29.0))
    assert curve == pytest.approx(1)
    assert line < 0.95
    curve, line = measure.fits(1 + np.arange(29.0))
    assert line == pytest.approx(1)
    assert curve < 0.95


def test_spreads_leave_out_the_first_key_and_what_lies_ahead() -> None:
    raw = torch.zeros(1, 1, 10, 10)
    raw[..., 0] = 100
    raw += torch.ones(10, 10).triu(1) * 1000
    raw[..., 1] = 3.0
    spread, height = scores.spreads(raw)
    expected = [np.std([3.0] + [0.0] * (row - 1)) for row in (8, 9)]
    assert spread == pytest.approx(float(np.mean(expected)))
    assert height == 3.0
    even = torch.full((1, 1, 1, 2, 10), 0.1)
    even[..., 0, :] = torch.tensor([1 / 9] * 9 + [0])
    torch.testing.assert_close(scores.evenness(even.double()).flatten(), torch.ones(2).double())


TEXT = "A river begins as rain, and it runs down to the sea."


@pytest.mark.parametrize(
    "changes",
    [
        {"norm": "rms", "activation": "swiglu", "positions": "rotary", "qkv_has_bias": True},
        {"norm": "layer", "activation": "gelu", "positions": "learned"},
        {"norm": "layer", "activation": "gelu", "positions": "rotary", "parallel": True},
    ],
    ids=["like Qwen", "like GPT-2", "like NeoX"],
)
def test_a_reader_can_put_another_model_in_its_place(changes: dict) -> None:
    torch.manual_seed(1)
    bias = changes.pop("qkv_has_bias", None)
    extra = {} if bias is None else {"qkv_bias": True}
    config = Config(vocab=256, d_model=32, n_layers=3, n_heads=4, max_length=64, **changes, **extra)
    model = LanguageModel(Decoder(config), Tokenizer.of_bytes()).eval()
    lines = without_each_block(model, TEXT).splitlines()
    assert lines[0].startswith(f"{len(TEXT)} tokens, ")
    assert len(lines) == 3 + 3
    assert len(lines[-1].split()) == 4  # the last block has no next one
    with pytest.raises(ValueError, match="at least 10 tokens, got 5"):
        without_each_block(model, "Rain!")
