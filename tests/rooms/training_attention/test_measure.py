"""What is seen of attention is the known answer where that is known; stacked trainings are the library's."""

import math

import numpy as np
import pytest
import torch
from measured_book.evidence.results import load_results
from measured_book.rooms.training_attention.looking import (
    carried_lengths,
    fresh_pattern,
    head_entropy,
    model_entropy,
    normalised_entropy,
    predicted_entropy,
    pulls,
    score_gradient,
    score_variance,
    self_similarity,
    spent,
)
from measured_book.rooms.training_attention.measure import (
    FACTORS,
    LOOKUP,
    WATCHED_RATES,
    PreviousGiven,
    alike,
    failed,
    induction_looks,
    perfect_pattern,
)
from measured_book.rooms.training_attention.reading import (
    areas,
    matched,
    matched_pairs,
    sided,
    twins,
)
from measured_book.rooms.training_attention.watching import (
    Setting,
    Watched,
    area,
    pattern_entropy,
    watch,
)
from measured_transformer.analysis.handmade import heads_model, induction_model, uniform_model
from measured_transformer.internals.capture import capture
from measured_transformer.internals.intervene import intervene
from measured_transformer.models.config import Config
from measured_transformer.tasks.induction import Induction
from measured_transformer.tasks.recall import AssociativeRecall
from measured_transformer.tasks.reversal import Reversal
from measured_transformer.tasks.spaced_recall import SpacedRecall
from measured_transformer.training.loop import make_model, train
from measured_transformer.training.losses import cross_entropy
from measured_transformer.training.seeding import make_generator
from measured_transformer.variants.initialisation import Scaled
from scipy.stats import mannwhitneyu
from xarray import Dataset

RESULTS = load_results("training_attention")
TASK = Reversal(vocab=4, length=4)
CONFIG = Config(vocab=4, d_model=8, n_layers=2, n_heads=2, d_ff=16)
LOOK = Config(vocab=LOOKUP.vocab, d_model=16, n_heads=1, n_layers=1, d_ff=16, positions="none")


def drawn(task, size=32, seed=0):
    return task.batch(torch.Generator().manual_seed(seed), size)


def test_normalised_entropy_counts_what_may_be_seen():
    causal = torch.ones(4, 4, dtype=torch.bool).tril()
    pattern = causal / causal.sum(-1, keepdim=True)
    found = normalised_entropy(pattern, causal)
    assert math.isnan(found[0])  # it sees only itself
    assert torch.allclose(found[1:], torch.ones(3))
    half = torch.tensor([[0.5, 0.5, 0.0, 0.0]])
    assert normalised_entropy(half).item() == pytest.approx(0.5)


def test_models_with_known_heads_have_the_entropy_of_their_heads():
    task = Reversal(vocab=5, length=6)
    assert model_entropy(uniform_model(vocab=5, length=6), drawn(task)) == pytest.approx(1)
    assert model_entropy(heads_model(["mirror"], vocab=5, length=6), drawn(task)) < 1e-6
    both = heads_model(["mirror", "uniform"], vocab=5, length=6)
    assert model_entropy(both, drawn(task)) == pytest.approx(0.5)


def test_each_head_has_its_own_entropy():
    task = Reversal(vocab=5, length=6)
    both = heads_model(["mirror", "uniform"], vocab=5, length=6)
    found = head_entropy(both, drawn(task))
    assert found.shape == (1, 2)
    assert found[0] == pytest.approx([0, 1], abs=1e-6)


def test_only_scored_positions_count_for_entropy():
    recall = AssociativeRecall(pairs=3, queries=1, keys=5, values=4)
    model, batch = induction_model(vocab=recall.vocab, length=recall.length), drawn(recall)
    assert head_entropy(model, batch).max() < 1e-6  # elsewhere its second head finds no copy


def test_the_gradient_of_scores_is_that_of_autograd():
    generator = torch.Generator().manual_seed(0)
    for n, width in ((1, 3), (2, 1), (7, 4)):
        draw = lambda *shape: torch.randn(*shape, generator=generator, dtype=torch.float64)  # noqa: E731
        scores = draw(5, n).requires_grad_()
        values, upstream = draw(5, n, width), draw(5, width)
        mixed = (scores.softmax(-1)[..., None] * values).sum(1)
        (mixed * upstream).sum().backward()
        found = score_gradient(scores.detach().softmax(-1), values, upstream)
        assert torch.allclose(found, scores.grad, atol=1e-12)
        assert torch.allclose(found.sum(-1), torch.zeros(5, dtype=torch.float64), atol=1e-12)


@pytest.mark.parametrize("weights", ["xavier", "torch", "small"])
def test_fresh_scores_have_the_variance_that_their_weights_say(weights):
    pattern = fresh_pattern(weights, 64, 128, seed=3, rows=16)
    assert torch.allclose(pattern.sum(-1), torch.ones(16, 128), atol=1e-5)
    found = pattern.log().var(-1).mean().item()  # of the scores, up to what all share
    assert found == pytest.approx(score_variance(weights, 64), rel=0.1)
    if weights != "xavier":
        even = normalised_entropy(pattern).mean().item()
        assert even == pytest.approx(predicted_entropy(score_variance(weights, 64), 128), abs=0.003)


def test_an_induction_pair_spends_all_on_what_is_needed():
    recall = AssociativeRecall(pairs=3, queries=1, keys=5, values=4)
    model, batch = induction_model(vocab=recall.vocab, length=recall.length), drawn(recall)
    last = spent(model, batch, block=1, before=0)
    assert last.needed == pytest.approx(1)
    first = spent(model, batch, block=0, before=0)  # looks one place back: a value of the last pair
    back = (batch.gold["value"][:, -1] == 5).double().mean().item()
    assert first.needed == pytest.approx(back)
    assert first.distractors == pytest.approx(1 - back)


@pytest.mark.parametrize("written", [False, True])
def test_an_even_head_spends_by_the_number_of_places(written):
    task = SpacedRecall(pairs=3, queries=1, keys=5, values=4, before=2)
    model = uniform_model(vocab=task.vocab, length=task.length, causal=True)
    found = spent(model, drawn(task), block=0, before=2, written=written)
    assert found == pytest.approx((2 / 9, 4 / 9, 2 / 9, 1 / 9), abs=1e-6)  # equally long values


def test_what_is_written_counts_the_length_of_values():
    task = SpacedRecall(pairs=3, queries=1, keys=5, values=4, before=2)
    model = uniform_model(vocab=task.vocab, length=task.length, causal=True)
    weight = model.get_parameter("blocks.0.attention.value.weight")
    with torch.no_grad():
        weight[:, task.vocab - 1] = 0  # a filler's value is nothing
    found = spent(model, drawn(task), block=0, before=2, written=True)
    assert found == pytest.approx((2 / 7, 4 / 7, 0, 1 / 7), abs=1e-6)
    assert spent(model, drawn(task), block=0, before=2).spare == pytest.approx(2 / 9)


def test_carried_lengths_are_those_of_each_heads_output():
    model = heads_model(["previous", "first"], vocab=4, length=5, causal=True)
    name = "blocks.0.attention"
    with capture(model, f"{name}.values") as seen:
        model(torch.tensor([[0, 1, 2, 3, 0]]))
    values = 3 * seen[f"{name}.values"]
    found = carried_lengths(values, model.get_parameter(f"{name}.output.weight"))
    assert found.shape == (1, 2, 5)
    assert torch.allclose(found, torch.full_like(found, 3))


def test_a_word_is_like_itself_until_its_neighbours_are_mixed_in():
    tokens = torch.tensor([[0, 1, 2, 0], [1, 2, 0, 1], [2, 0, 1, 2]])
    model = heads_model(["previous"], vocab=3, length=4, causal=True)
    with torch.no_grad():
        model.get_parameter("positions.table").zero_()  # only words are left in the stream
    found = self_similarity(model, tokens)
    assert found.same[0] == pytest.approx(1)
    words = tokens.flatten()
    rows = torch.arange(3).repeat_interleave(4)
    apart = rows[:, None] != rows
    chance = (words[:, None] == words)[apart].double().mean().item()
    assert found.random[0] == pytest.approx(chance)
    assert found.adjusted[0] == pytest.approx(1 - chance)
    assert found.same[1] < 1
    assert np.allclose(found.adjusted, found.same - found.random)


def test_each_run_is_that_of_the_library_alone():
    settings = [Setting(0.01, 1.0, 5), Setting(0.01, 2.0, 5), Setting(0.002, 0.5, 5)]
    (found,) = watch(
        CONFIG, TASK, [settings], seeds=[5], steps=30, look_at=20, batch_size=4, look_back=3
    )
    for steps, losses in ((20, found.loss), (30, found.final)):
        for place, setting in enumerate(settings):
            run = train(
                CONFIG,
                TASK,
                steps=steps,
                learning_rate=setting.rate,
                seed=5,
                batch_size=4,
                prepare=Scaled(setting.scale),
            )
            test = TASK.batch(make_generator(5, "evaluation"), 64)
            with torch.no_grad():
                loss = cross_entropy(run.model(test.inputs), test.targets, test.scored)
            assert losses[place] == pytest.approx(float(loss), rel=1e-4)
            if steps == 20:
                seen = pattern_entropy(run.model, test.inputs)
                assert found.entropy[place] == pytest.approx(seen, abs=1e-4)
                lengths = np.log(run.gradient_norms[-3:]).mean()
                assert found.gradient[place] == pytest.approx(lengths, abs=1e-3)


def test_groups_have_their_own_batches_and_a_run_that_diverges_leaves_the_others_alone():
    quiet, wild = Setting(0.01, 1.0, 5), Setting(math.inf, 1.0, 5)
    how = {"steps": 6, "look_at": 4, "batch_size": 4, "look_back": 2}
    alone = watch(CONFIG, TASK, [[quiet]], seeds=[1], **how)[0]
    pair, other = watch(CONFIG, TASK, [[quiet, wild], [quiet]], seeds=[1, 2], **how)
    assert pair.final[0] == pytest.approx(alone.final[0], rel=1e-4)
    assert other.final[0] != pytest.approx(alone.final[0], rel=1e-4)
    assert pair.final[1] == math.inf
    assert pair.failed(TASK)[1]
    assert np.isfinite(pair.gradient).all()
    with pytest.raises(ValueError, match="a seed a group"):
        watch(CONFIG, TASK, [[quiet]], seeds=[1, 2], **how)
    with pytest.raises(ValueError, match="look_at"):
        watch(CONFIG, TASK, [[quiet]], seeds=[1], **how | {"look_at": 7})


def test_failing_is_ending_above_half_of_the_bag():
    half = TASK.bag_loss() / 2
    ends = np.array([half - 0.01, half + 0.01, math.inf, math.nan])
    nothing = np.zeros(4)
    seen = Watched((Setting(1.0, 1.0, 0),) * 4, nothing, nothing, nothing, nothing, ends)
    assert seen.failed(TASK).tolist() == [False, True, True, True]


def test_pattern_entropy_is_one_where_attention_is_even_and_small_where_scores_are_huge():
    inputs = TASK.batch(torch.Generator().manual_seed(0), 8).inputs
    model = make_model(CONFIG, causal=False, seed=0)
    between = pattern_entropy(model, inputs)
    with torch.no_grad():
        for block in model.blocks:
            block.attention.query.weight.mul_(1000)
    assert pattern_entropy(model, inputs) < 0.1 < between < 1
    with torch.no_grad():
        for block in model.blocks:
            block.attention.query.weight.zero_()
            block.attention.query.bias.zero_()
    assert pattern_entropy(model, inputs) == pytest.approx(1, abs=1e-6)


def test_areas_are_those_of_mann_and_whitney():
    rng = np.random.default_rng(0)
    for scores in (rng.normal(size=30), rng.integers(0, 4, size=30).astype(float)):
        failed = rng.random(30) < 0.4
        u = mannwhitneyu(scores[failed], scores[~failed]).statistic
        assert area(scores, failed) == pytest.approx(u / (failed.sum() * (~failed).sum()))
        assert area(-scores, failed) == pytest.approx(1 - area(scores, failed))
    assert area(np.ones(3), np.array([True, True, True])) == 0.5


def test_pulls_are_those_of_the_formula():
    model = make_model(LOOK, causal=True, seed=3)
    batch = drawn(LOOKUP, size=4)
    name = "blocks.0.attention"
    found = pulls(model, batch)[:, 0]
    with capture(model, f"{name}.pattern", f"{name}.values") as seen:
        model(batch.inputs)
    leaf = []

    def held(mixed):
        leaf.append(mixed.detach().clone().requires_grad_())
        return leaf[0]

    with intervene(model, {f"{name}.mixed": held}):
        loss = cross_entropy(model(batch.inputs), batch.targets, batch.scored)
    (upstream,) = torch.autograd.grad(loss, leaf)
    values = seen[f"{name}.values"][:, :, None].expand(*upstream.shape[:3], -1, -1)
    expected = -score_gradient(seen[f"{name}.pattern"], values, upstream)
    assert torch.allclose(found, expected[:, 0], atol=1e-6)
    assert all(weight.grad is None for weight in model.parameters())


def test_a_perfect_pattern_looks_at_the_pair_that_is_asked_for():
    batch = drawn(LOOKUP, size=8)
    pattern = perfect_pattern(batch)[:, 0]
    assert torch.equal(pattern.sum(-1), torch.ones(8, LOOKUP.length))
    for row, query in batch.scored.nonzero().tolist():
        key = int(pattern[row, query].argmax())
        told, asked = int(batch.inputs[row, key]), int(batch.inputs[row, query])
        which, value = divmod(told - LOOKUP.recall.vocab - 1, LOOKUP.values)
        assert (which, LOOKUP.keys + value) == (asked, int(batch.targets[row, query]))


def test_attention_alone_makes_tokens_alike_and_nothing_pulls_then():
    alone, with_skips = alike(False, 5), alike(True, 5)
    assert alone[0] == with_skips[0]
    assert alone[0][1] == 1
    apart, pull = np.array(alone).T
    assert (np.diff(apart[:4]) < 0).all()
    assert apart[-1] < 1e-4
    assert pull[-1] < 1e-2
    assert with_skips[-1][0] > 0.5
    assert with_skips[-1][1] > 0.5


def test_heads_of_a_hand_made_pair_look_at_the_token_before_and_copy():
    task = Induction(vocab=6, length=10, shortest=2, longest=5)
    model, batch = induction_model(vocab=6, length=10), drawn(task)
    before, _ = induction_looks(model, batch)
    assert before == pytest.approx(1)


def test_a_first_layer_that_is_given_looks_at_the_token_before_in_training_too():
    task = Induction(vocab=6, length=8, shortest=2, longest=4)
    config = Config(vocab=6, d_model=8, n_heads=2, n_layers=2, positions="rotary")
    run = train(
        config, task, steps=3, learning_rate=0.01, seed=0, batch_size=4, prepare=PreviousGiven()
    )
    with capture(run.model, "blocks.*.attention.pattern") as seen:
        run.model(drawn(task).inputs)
    first, second = seen.values()
    given = torch.eye(8).roll(-1, 1).tril()
    given[0, 0] = 1
    assert torch.equal(first, given.expand(first.shape))
    assert not torch.allclose(second, given.expand(second.shape), atol=0.1)


SHAPE = (4, len(FACTORS), len(WATCHED_RATES))


def seen_trainings(entropy, final, **more):
    """Trainings with these entropies and ends, and nothing else to be seen."""
    names = ("first_entropy", "gradient", "loss")
    values = {name: np.zeros(SHAPE) for name in names} | {"entropy": entropy, "final": final}
    return Dataset(
        {
            name: (("seed", "factor", "rate"), np.broadcast_to(of, SHAPE))
            for name, of in (values | more).items()
        },
        coords={"seed": range(4), "factor": list(FACTORS), "rate": list(WATCHED_RATES)},
    )


def test_signs_are_told_apart_by_end_and_by_size_of_the_initial_weights():
    bad = np.zeros(SHAPE, dtype=bool)
    bad[:, :, :3] = bad[:, :, -3:] = True  # too slow and too fast
    entropy = np.full(SHAPE, 0.5) + np.linspace(0.01, -0.01, 12)
    entropy[:, :, :3], entropy[:, :, -3:] = 0.9, 0.1
    ends = seen_trainings(entropy, np.where(bad, 2.0, 0.0), loss=bad.astype(float))
    assert (failed(ends).values == bad).all()
    assert sided(ends, side="low", factor=1.0) == pytest.approx(1)  # both ends can be signs at once
    assert sided(ends, side="high", factor=1.0) == pytest.approx(1)
    signs = ("low", "first", "unusual", "gradient", "loss")
    found = {sign: areas(ends, sign=sign, factor="1") for sign in signs}
    assert found["low"] == pytest.approx(0.5)  # where one direction is as good as a coin
    assert found["first"] == pytest.approx(0.5)
    assert found["unusual"] == pytest.approx(1)
    assert found["loss"] == pytest.approx(1)
    assert areas(ends, sign="loss", factor="all") == pytest.approx(1)


def test_no_failed_training_on_a_side_tells_nothing_about_it():
    bad = np.zeros(SHAPE, dtype=bool)
    bad[:, :, -3:] = True
    entropy = np.full(SHAPE, 0.5) + np.linspace(0.01, -0.01, 12)
    entropy[:, :, -3:] = 0.1
    low = seen_trainings(entropy, np.where(bad, 2.0, 0.0))
    assert sided(low, side="low", factor=1.0) == pytest.approx(1)
    assert sided(low, side="high", factor=1.0) == pytest.approx(0.5)


def test_matched_pairs_differ_in_nothing_but_the_seed():
    bad = np.zeros(SHAPE, dtype=bool)
    bad[:2, 1, 4] = True
    bad[:, 3] = True  # all of these failed: no pairs
    entropy = np.full(SHAPE, 0.5)
    entropy[:, 3] = 0.0
    entropy[:, 1, 4] = [0.6, 0.7, 0.2, 0.65]
    ends = seen_trainings(entropy, np.where(bad, 2.0, 0.0))
    assert matched(ends, sign="low", factor=1.0) == 0.25
    assert matched(ends, sign="high", factor=1.0) == 0.75
    assert matched_pairs(ends, factor=1.0) == 4
    assert matched(ends, sign="low", factor=2.0) == 0.5
    assert matched_pairs(ends, factor=2.0) == 0


def test_twins_are_compared_within_a_seed_and_a_learning_rate():
    final = np.zeros((2, 2, 4))
    final[0, 0, :2] = final[1, 1] = 2.0  # of the other two seeds and rates all end alike
    entropy = np.zeros((2, 2, 4))
    entropy[0, 0] = [0.1, 0.4, 0.3, 0.5]
    values = {"entropy": entropy, "final": final}
    trainings = Dataset(
        {name: (("seed", "end", "twin"), of) for name, of in values.items()},
        coords={"seed": [0, 1], "end": ["slow", "fast"], "twin": range(4)},
    )
    assert twins(trainings, end="slow", sign="low").tolist() == [0.75, 0.5]
    assert twins(trainings, end="slow", sign="high").tolist() == [0.25, 0.5]
    assert twins(trainings, end="fast", sign="high").tolist() == [0.5, 0.5]


def test_what_was_measured_fits_what_is_exact():
    drawn_heads = RESULTS["drawn"].entropy.mean("seed")
    for kind, weights in (("torch_64", "torch"), ("small_64", "small")):
        predicted = predicted_entropy(score_variance(weights, 64), 128)
        assert float(drawn_heads.sel(kind=kind, tokens=128)) == pytest.approx(predicted, abs=0.005)
    shares = RESULTS["spending"].share.sum("kind")
    np.testing.assert_allclose(shares, 1, atol=1e-5)
    silent = RESULTS["readers"].similarity.sel(model="without attention")
    assert float(silent.min()) > 0.8  # one word is one vector, and only random pairs move
    untrained = RESULTS["values_first"].sel(step=0)
    assert abs(float(untrained.pull.mean())) < 0.2
