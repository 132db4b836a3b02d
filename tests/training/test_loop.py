"""Training against the same loop written with torch alone; scoring against its definition."""

import dataclasses
import math
import random
import warnings

import numpy as np
import pytest
import torch
from measured_transformer.models.config import Config
from measured_transformer.models.decoder import Decoder
from measured_transformer.models.encoder import Encoder
from measured_transformer.models.encoder_decoder import EncoderDecoder
from measured_transformer.tasks.lag import Lag
from measured_transformer.tasks.modular import ModularAddition
from measured_transformer.tasks.noisy_translation import NoisyTranslation
from measured_transformer.tasks.reversal import Reversal
from measured_transformer.tasks.task import held_out
from measured_transformer.training import loop
from measured_transformer.training.loop import evaluate, make_model, predict, train
from measured_transformer.training.losses import cross_entropy
from measured_transformer.training.schedules import Constant, WarmupCosine
from measured_transformer.training.seeding import derived_seed, make_generator, seeded
from torch.nn import functional as F

REVERSAL = Reversal(vocab=5, length=4)
LAG = Lag(vocab=5, length=6, lag=3)
CONFIG = Config(vocab=5, d_model=16, n_layers=1, n_heads=2, d_ff=16)


@pytest.fixture(autouse=True)
def on_the_cpu(monkeypatch):
    monkeypatch.setattr(loop, "find_device", lambda: torch.device("cpu"))


def weights(model):
    return torch.cat([p.detach().flatten() for p in model.parameters()])


def by_hand(config, task, *, steps, learning_rate, seed, batch_size, schedule, clip, weight_decay):
    """The same training with PyTorch's scheduler and its own way to leave positions out."""
    model = make_model(config, causal=task.causal, seed=seed).train()
    optimiser = torch.optim.AdamW(
        model.parameters(), lr=learning_rate, betas=(0.9, 0.98), weight_decay=weight_decay
    )
    schedule = torch.optim.lr_scheduler.LambdaLR(optimiser, schedule)
    batches, losses = make_generator(seed, "training"), []
    with seeded(derived_seed(seed, "dropout")):
        for _ in range(steps):
            batch = task.batch(batches, batch_size)
            targets = batch.targets.masked_fill(~batch.scored, -100)
            loss = F.cross_entropy(model(batch.inputs).transpose(1, 2), targets)
            losses.append(loss.item())
            optimiser.zero_grad()
            loss.backward()
            if clip:
                torch.nn.utils.clip_grad_norm_(model.parameters(), clip)
            optimiser.step()
            schedule.step()
    return model, losses


@pytest.mark.parametrize("task", [REVERSAL, LAG])
@pytest.mark.parametrize(
    "options",
    [
        {"schedule": Constant(), "clip": None, "weight_decay": 0.0},
        {"schedule": Constant(warmup=5), "clip": 0.05, "weight_decay": 0.1},
    ],
)
@pytest.mark.parametrize("dropout", [0.0, 0.1])
def test_equal_to_the_loop_by_hand(task, options, dropout):
    # Without biases: softmax does not feel the keys' bias, so Adam blows its rounding errors up.
    config = CONFIG.replace(dropout=dropout, bias=False)
    options = {"steps": 12, "learning_rate": 3e-3, "seed": 4, "batch_size": 8, **options}
    run = train(config, task, **options)
    model, losses = by_hand(config, task, **options)
    np.testing.assert_allclose(run.losses, losses, rtol=1e-4)
    torch.testing.assert_close(weights(run.model), weights(model), rtol=0, atol=1e-4)
    assert len(run.losses) == 12
    assert not run.diverged
    assert not run.model.training
    assert run.seed == 4


def test_each_option_changes_the_training():
    common = {"steps": 4, "learning_rate": 1e-2, "seed": 0, "batch_size": 8}
    plain = weights(train(CONFIG, REVERSAL, **common).model)
    for change in (
        {"schedule": Constant(warmup=3)},
        {"clip": 1e-3, "betas": (0.0, 0.1)},
        {"weight_decay": 0.5},
        {"betas": (0.5, 0.6)},
        {"learning_rate": 2e-2},
        {"batch_size": 9},
        {"seed": 1},
    ):
        other = weights(train(CONFIG, REVERSAL, **{**common, **change}).model)
        assert (other - plain).abs().max() > 1e-4, change


def test_the_same_seed_gives_the_same_bits_and_another_seed_does_not():
    config = CONFIG.replace(dropout=0.1)
    options = {"steps": 10, "learning_rate": 1e-3, "batch_size": 8}
    a = train(config, REVERSAL, seed=3, **options)
    torch.rand(17)  # the global generator must not matter
    b = train(config, REVERSAL, seed=3, **options)
    c = train(config, REVERSAL, seed=4, **options)
    assert np.array_equal(a.losses, b.losses)
    assert torch.equal(weights(a.model), weights(b.model))
    assert not np.array_equal(a.losses, c.losses)
    assert not torch.allclose(weights(a.model), weights(c.model))


def test_more_steps_continue_the_same_training():
    options = {"learning_rate": 1e-3, "batch_size": 8, "seed": 3}
    short = train(CONFIG, REVERSAL, steps=4, **options)
    long = train(CONFIG, REVERSAL, steps=9, **options)
    assert np.array_equal(short.losses, long.losses[:4])


def test_global_generators_are_left_as_they_were(unhooked):  # shape checks draw items to look at
    torch.manual_seed(1), random.seed(1), np.random.seed(1)
    before = torch.random.get_rng_state(), random.getstate(), np.random.get_state()[1].copy()
    run = train(
        CONFIG.replace(dropout=0.1), REVERSAL, steps=2, learning_rate=1e-3, seed=0, batch_size=4
    )
    evaluate(run.model, REVERSAL, seed=0)
    assert torch.equal(torch.random.get_rng_state(), before[0])
    assert random.getstate() == before[1]
    assert np.array_equal(np.random.get_state()[1], before[2])


def test_no_step_leaves_the_first_weights():
    run = train(CONFIG, REVERSAL, steps=0, learning_rate=1e-3, seed=7)
    assert torch.equal(weights(run.model), weights(make_model(CONFIG, causal=False, seed=7)))
    assert run.losses.shape == (0,)
    assert not run.diverged


def test_a_causal_task_gets_a_decoder_and_another_an_encoder():
    assert isinstance(make_model(CONFIG, causal=True, seed=0), Decoder)
    options = {"steps": 1, "learning_rate": 1e-3, "seed": 0, "batch_size": 2}
    assert isinstance(train(CONFIG, LAG, **options).model, Decoder)
    assert isinstance(train(CONFIG, REVERSAL, **options).model, Encoder)


def test_a_training_that_diverges_says_so_and_stops():
    config = CONFIG.replace(norm="none", placement="pre")
    run = train(config, REVERSAL, steps=50, learning_rate=1e20, seed=0, batch_size=4, clip=None)
    assert run.diverged
    assert len(run.losses) < 50
    assert not math.isfinite(run.losses[-1])
    assert np.isfinite(run.losses[:-1]).all()


def test_weights_that_are_lost_in_the_last_step_count_as_diverged():
    options = {"steps": 1, "learning_rate": 1e30, "weight_decay": 1e30}
    run = train(CONFIG, REVERSAL, seed=0, batch_size=4, **options)
    assert np.isfinite(run.losses).all()
    assert run.diverged


def test_a_small_model_learns_to_reverse_and_needs_positions_for_it():
    options = {
        "steps": 250,
        "learning_rate": 3e-3,
        "seed": 0,
        "batch_size": 64,
        "schedule": Constant(warmup=10),
    }
    config = CONFIG.replace(d_model=32, d_ff=64)
    score = evaluate(train(config, REVERSAL, **options).model, REVERSAL, seed=0)
    assert score.accuracy > 0.99
    assert score.loss < 0.1
    blind = evaluate(
        train(config.replace(positions="none"), REVERSAL, **options).model,
        REVERSAL,
        seed=0,
        size=2000,
    )
    assert blind.loss > REVERSAL.bag_loss() - 0.03
    assert blind.loss < REVERSAL.bag_loss() + 0.1
    assert blind.accuracy < REVERSAL.bag_accuracy() + 0.03


# --- scoring ---------------------------------------------------------------------------------------


def test_the_loss_is_the_mean_over_scored_positions():
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(3, 4, 5, generator=generator, dtype=torch.float64)
    targets = torch.randint(5, (3, 4), generator=generator)
    scored = torch.rand(3, 4, generator=generator) < 0.5
    total = [
        -math.log(logits[b, t, targets[b, t]].exp().item() / logits[b, t].exp().sum().item())
        for b in range(3)
        for t in range(4)
        if scored[b, t]
    ]
    expected = sum(total) / len(total)
    assert cross_entropy(logits, targets, scored).item() == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("task", [REVERSAL, LAG])
def test_a_score_is_what_its_fields_say(task):
    model = make_model(CONFIG, causal=task.causal, seed=0)
    score = evaluate(model, task, seed=5, size=40)
    batch = task.batch(make_generator(5, "evaluation"), 40)
    with torch.no_grad():
        chances = model.double()(batch.inputs).log_softmax(-1)
    losses = -chances.gather(-1, batch.targets[..., None])[..., 0]
    assert score.loss == pytest.approx(losses[batch.scored].mean().item(), abs=1e-5)
    by_position = losses.mean(0).masked_fill(~batch.scored[0], math.nan)
    np.testing.assert_allclose(score.loss_by_position, by_position.numpy(), atol=1e-5)
    right = chances.argmax(-1) == batch.targets
    assert score.accuracy == pytest.approx(right[batch.scored].double().mean().item(), abs=1e-6)


def test_a_perfect_model_scores_perfectly():
    class Oracle(Encoder):
        def forward(self, tokens, *, padding_mask=None):
            return 50 * F.one_hot(tokens.flip(1), 5).float()

    score = evaluate(Oracle(CONFIG), REVERSAL, seed=0)
    assert score.accuracy == 1
    assert score.loss < 1e-9


def test_evaluation_sequences_are_not_those_of_training():
    draws = {
        purpose: [
            REVERSAL.batch(make_generator(seed, purpose), 16, length=16).inputs
            for seed in range(20)
        ]
        for purpose in ("training", "evaluation")
    }
    for trained in draws["training"]:
        rows = set(map(tuple, trained.tolist()))
        for scored in draws["evaluation"]:
            assert rows.isdisjoint(map(tuple, scored.tolist()))


def test_the_same_seed_scores_on_the_same_sequences():
    model = make_model(CONFIG, causal=False, seed=0)
    a, b, c = (evaluate(model, REVERSAL, seed=seed) for seed in (1, 1, 2))
    assert a.loss == b.loss
    assert a.loss != c.loss
    longer = evaluate(model, REVERSAL, seed=1, length=9)
    assert longer.loss_by_position.shape == (9,)


@pytest.mark.parametrize("training", [True, False])
def test_evaluation_switches_dropout_off_and_puts_the_mode_back(training):
    model = make_model(CONFIG.replace(dropout=0.5), causal=False, seed=0).train(training)
    assert evaluate(model, REVERSAL, seed=0).loss == evaluate(model, REVERSAL, seed=0).loss
    assert model.training is training
    assert model.blocks[0].training is training
    short = make_model(CONFIG.replace(positions="learned", max_length=4), causal=False, seed=0)
    short.train(training)
    with pytest.raises(ValueError, match="reach to 3"):
        evaluate(short, REVERSAL, seed=0, length=5)
    assert short.training is training
    assert all(p.grad is None for p in model.parameters())


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"config": CONFIG.replace(vocab=4)}, "5 tokens, the model only 4"),
        ({"steps": -1}, "got -1"),
        ({"learning_rate": 0.0}, "got 10 and 0.0"),
        ({"learning_rate": -1.0}, "got 10 and -1.0"),
        ({"optimiser": "Adamw"}, "optimiser must be one of AdamW, Adam, RAdam, SGD, got 'Adamw'"),
        ({"evaluate_every": 0}, "must be at least 1, got 0 and 100"),
        ({"checkpoint_every": 0}, "must be at least 1, got None and 0"),
    ],
)
def test_impossible_trainings_are_refused(unhooked, changes, message):
    options = {"config": CONFIG, "task": REVERSAL, "steps": 10, "learning_rate": 1e-3, "seed": 0}
    with pytest.raises(ValueError, match=message):
        train(**{**options, **changes})


# --- padding, sources, evaluations on the way -------------------------------------------------------


PAIRS = NoisyTranslation(symbols=5, length=8, pad_share=0.5, noise=0.0)
PAIRS_CONFIG = Config(vocab=8, d_model=16, n_layers=1, n_heads=2)


def test_a_task_with_a_source_gets_an_encoder_decoder_that_learns_it():
    options = {"learning_rate": 5e-3, "seed": 0, "schedule": Constant(warmup=20)}
    run = train(PAIRS_CONFIG.replace(d_model=32), PAIRS, steps=400, **options)
    assert isinstance(run.model, EncoderDecoder)
    score = evaluate(run.model, PAIRS, seed=0)
    assert score.accuracy > 0.9  # without the source one in six is right
    assert 0 < score.exact < score.accuracy


def test_padding_is_masked_from_the_model_and_from_the_loss():
    model = make_model(PAIRS_CONFIG, causal=True, source=True, seed=0).double()
    batch = PAIRS.batch(make_generator(0, "training"), 4)
    changed = dataclasses.replace(
        batch,
        inputs=torch.where(batch.padding_mask, batch.inputs, 1),
        source=torch.where(batch.source_padding_mask, batch.source, 2),
    )
    with torch.no_grad():
        same = (predict(model, batch) - predict(model, changed))[batch.scored].abs().max()
        blind = dataclasses.replace(changed, source_padding_mask=None)
        other = (predict(model, batch) - predict(model, blind))[batch.scored].abs().max()
    assert same < 1e-12
    assert other > 1e-3


def test_the_padding_of_an_encoders_batch_reaches_the_model():
    batch = REVERSAL.batch(make_generator(0, "training"), 4)
    real = torch.ones(4, 4, dtype=torch.bool)
    real[:, 3] = False
    model = make_model(CONFIG, causal=False, seed=0)
    with torch.no_grad():
        masked = predict(model, dataclasses.replace(batch, padding_mask=real))
        assert torch.equal(masked, model(batch.inputs, padding_mask=real))
        assert not torch.allclose(masked[:, :3], predict(model, batch)[:, :3])


def test_a_source_is_asked_for_where_the_model_needs_one():
    model = make_model(PAIRS_CONFIG, causal=True, source=True, seed=0)
    with pytest.raises(ValueError, match="needs batches with a source"):
        predict(model, REVERSAL.batch(make_generator(0, "training"), 2))


def test_evaluations_on_the_way_are_scores_of_the_same_sequences_and_change_nothing():
    options = {"learning_rate": 3e-3, "seed": 2, "batch_size": 8}
    run = train(CONFIG.replace(dropout=0.1), REVERSAL, steps=7, evaluate_every=2, **options)
    plain = train(CONFIG.replace(dropout=0.1), REVERSAL, steps=7, **options)
    assert np.array_equal(run.losses, plain.losses)
    assert list(run.evaluated) == [2, 4, 6]
    assert plain.evaluated.shape == plain.evaluation_losses.shape == (0,)
    four = train(CONFIG.replace(dropout=0.1), REVERSAL, steps=4, **options)
    score = evaluate(four.model, REVERSAL, seed=2)
    assert run.evaluation_losses[1] == pytest.approx(score.loss, abs=1e-6)
    assert run.evaluation_accuracies[1] == pytest.approx(score.accuracy, abs=1e-6)


def test_history_holds_the_rates_and_the_gradients_before_clipping():
    schedule = WarmupCosine(warmup=3, steps=6)
    options = {"learning_rate": 2e-3, "seed": 2, "batch_size": 8, "schedule": schedule}
    run = train(CONFIG, REVERSAL, steps=6, clip=1e-3, **options)
    np.testing.assert_allclose(run.rates, [2e-3 * schedule(step) for step in range(6)])
    assert run.gradient_norms.shape == (6,)
    assert (run.gradient_norms > 0.05).all(), "clipped to a thousandth, they would be small"
    model = make_model(CONFIG, causal=False, seed=2)
    batch = REVERSAL.batch(make_generator(2, "training"), 8)
    cross_entropy(model(batch.inputs), batch.targets, batch.scored).backward()
    norm = torch.cat([p.grad.flatten() for p in model.parameters()]).norm().item()
    assert run.gradient_norms[0] == pytest.approx(norm, rel=1e-5)


def test_label_smoothing_is_in_the_training_loss_and_not_in_the_score():
    options = {"steps": 1, "learning_rate": 1e-6, "seed": 2, "batch_size": 8}
    model = make_model(CONFIG, causal=False, seed=2)
    batch = REVERSAL.batch(make_generator(2, "training"), 8)
    expected = F.cross_entropy(
        model(batch.inputs).transpose(1, 2), batch.targets, label_smoothing=0.3
    )
    run = train(CONFIG, REVERSAL, label_smoothing=0.3, **options)
    assert run.losses[0] == pytest.approx(expected.item(), rel=1e-5)


def test_items_of_a_divided_task_are_scored_on_those_held_out():
    task = ModularAddition(modulus=11)
    config = Config(vocab=task.vocab, d_model=16, n_layers=1, n_heads=2)
    model = make_model(config, causal=task.causal, seed=0)
    default = evaluate(model, task, seed=3)
    assert default.loss == evaluate(model, task, seed=3, part="validation").loss
    assert default.loss == evaluate(model, held_out(task), seed=3).loss
    assert default.loss != evaluate(model, task, seed=3, part="train").loss
    test = evaluate(model, task, seed=3, part="test").loss
    assert test == evaluate(model, held_out(task, "test"), seed=3).loss != default.loss
    with pytest.raises(ValueError, match="does not divide its items"):
        evaluate(make_model(CONFIG, causal=False, seed=0), REVERSAL, seed=0, part="test")


class Kept(Reversal):
    """A task of one's own that might draw from kept data, and has no parts."""

    def batch(self, generator, size, *, length=None):
        return Reversal(self.vocab, self.length).batch(generator, size, length=length)


class Made(Kept):
    """The same, which says that it makes every sequence from a rule."""

    endless = True


def test_a_score_says_what_it_was_scored_on():
    task = ModularAddition(modulus=7, train_share=0.5)
    config = Config(vocab=task.vocab, d_model=16, n_layers=1, n_heads=2)
    model = make_model(config, causal=task.causal, seed=0)
    assert evaluate(model, task, seed=3).part == "validation"
    assert evaluate(model, held_out(task, "test"), seed=3).part == "test"
    assert evaluate(model, task, seed=3, part="train").part == "train"
    other = evaluate(make_model(CONFIG, causal=False, seed=0), REVERSAL, seed=0)
    assert other.part is None
    assert "part=None" in repr(other)


def test_a_task_of_ones_own_of_which_nothing_is_held_out_is_warned_about_once(monkeypatch):
    monkeypatch.setattr(loop, "_WARNED", set())
    model = make_model(CONFIG, causal=False, seed=0)
    with pytest.warns(UserWarning, match="Kept does not divide its items, so nothing is held out"):
        score = evaluate(model, Kept(vocab=5, length=4), seed=0)
    assert score.part is None
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        evaluate(model, Kept(vocab=5, length=4), seed=0)  # it has been said
        evaluate(model, Made(vocab=5, length=4), seed=0)
        evaluate(model, REVERSAL, seed=0)
    with pytest.raises(ValueError, match="has no part 'test': nothing of it is held out"):
        evaluate(model, Kept(vocab=5, length=4), seed=0, part="test")
    assert evaluate(model, REVERSAL, seed=0).loss == pytest.approx(score.loss)


def test_the_number_of_threads_is_fixed_and_put_back():
    before, seen = torch.get_num_threads(), []
    prepare = lambda model: seen.append(None)  # noqa: E731

    class Watched(Reversal):
        def batch(self, *args, **options):
            seen.append(torch.get_num_threads())
            return super().batch(*args, **options)

    options = {"steps": 1, "learning_rate": 1e-3, "seed": 0, "batch_size": 2}
    for threads in (1, 2, None):
        train(CONFIG, Watched(vocab=5, length=4), threads=threads, prepare=prepare, **options)
    assert seen == [None, 1, None, 2, None, before]
    assert torch.get_num_threads() == before
    with pytest.raises(ValueError, match="threads must be a positive"):
        train(CONFIG, REVERSAL, threads=0, **options)


@pytest.mark.parametrize("optimiser", ["Adam", "AdamW", "RAdam", "SGD"])
def test_an_optimiser_is_pytorchs_of_that_name(optimiser):
    options = {"learning_rate": 1e-2, "seed": 1, "batch_size": 8, "clip": None}
    run = train(CONFIG, REVERSAL, steps=8, optimiser=optimiser, weight_decay=0.3, **options)
    model = make_model(CONFIG, causal=False, seed=1)
    kind = getattr(torch.optim, optimiser)
    own = {"momentum": 0.9} if optimiser == "SGD" else {"betas": (0.9, 0.98), "eps": 1e-8}
    updates = kind(model.parameters(), lr=1e-2, weight_decay=0.3, **own)
    batches = make_generator(1, "training")
    for loss in run.losses:
        batch = REVERSAL.batch(batches, 8)
        ours = F.cross_entropy(model(batch.inputs).transpose(1, 2), batch.targets)
        assert loss == pytest.approx(ours.item(), rel=1e-4)
        updates.zero_grad()
        ours.backward()
        updates.step()


def test_progress_is_shown_when_asked_for(capsys):
    options = {"steps": 3, "learning_rate": 1e-3, "seed": 0, "batch_size": 2}
    train(CONFIG, REVERSAL, **options)
    assert capsys.readouterr().err == ""
    train(CONFIG, REVERSAL, progress=True, **options)
    assert "3/3" in capsys.readouterr().err
