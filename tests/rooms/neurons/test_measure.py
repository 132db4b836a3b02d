"""What neurons respond to and write: measures on neurons that are known."""

from ast import literal_eval

import numpy as np
import pytest
import torch
from measured_book.rooms.neurons import looking, patterns
from measured_book.rooms.neurons import measure as neurons
from measured_transformer.internals.capture import capture
from measured_transformer.models.config import Config
from measured_transformer.models.decoder import Decoder
from measured_transformer.models.encoder import Encoder
from measured_transformer.tasks.reversal import Reversal
from measured_transformer.training.loop import make_model
from measured_transformer.training.seeding import make_generator, seeded
from scipy.stats import mannwhitneyu
from torch import nn


@pytest.mark.parametrize("convention", ["columns", "rows"])
def test_exchanged_keys_and_values_fit_in_shape_alone(convention):
    errors = [neurons.convention_error(seed, convention) for seed in range(20)]
    wrong = [neurons.convention_error(seed, convention, exchanged=True) for seed in range(20)]
    assert max(errors) < 1e-12
    assert min(wrong) > 1e-3


def test_there_are_two_conventions():
    with pytest.raises(ValueError, match="'columns' or 'rows'"):
        neurons.convention_error(0, "diagonals")


# Looking and touching ------------------------------------------------------------------------------


@pytest.fixture
def model():
    with seeded(3):
        return Encoder(Config(vocab=6, d_model=8, n_layers=2, n_heads=2, activation="relu")).eval()


def test_columns_are_the_neurons_of_all_blocks(model):
    tokens = torch.tensor([[1, 2, 3], [4, 5, 0]])
    with capture(model, "*.neurons") as seen:
        model(tokens)
    found = looking.activations(model, tokens)
    values = looking.table(found)
    assert values.shape == (6, 64)
    second = seen["blocks.1.feedforward.neurons"]
    assert np.array_equal(values[4, 32:], second[1, 1].double().numpy())
    assert np.array_equal(looking.table(found, first=2), values[[2, 5]])


def test_silenced_and_forced_neurons_hold_their_value(model):
    tokens = torch.tensor([[1, 2, 3]])
    before = model(tokens)
    which = np.zeros(64, dtype=bool)
    which[[5, 40]] = True
    with looking.zero_ablated(model, which):
        values = looking.table(looking.activations(model, tokens))
    assert (values[:, which] == 0).all()
    untouched = looking.table(looking.activations(model, tokens))
    assert np.array_equal(values[:, :32][:, ~which[:32]], untouched[:, :32][:, ~which[:32]])
    with looking.forced(model, 1, 7, 2.5):
        values = looking.table(looking.activations(model, tokens))
    assert (values[:, 32 + 7] == 2.5).all()
    assert np.array_equal(np.delete(values, 39, 1), np.delete(untouched, 39, 1))
    assert torch.equal(model(tokens), before)


def test_only_neurons_that_there_are(model):
    with (
        pytest.raises(ValueError, match="2 blocks of 32"),
        looking.zero_ablated(model, np.zeros(32, dtype=bool)),
    ):
        pass
    with pytest.raises(ValueError, match=r"0\.\.31"), looking.forced(model, 0, 32, 1.0):
        pass


def test_silencing_hurts_where_the_neuron_is_needed(model):
    task = Reversal(vocab=6, length=4)
    batch = task.batch(make_generator(0, "test"), 16)
    where = batch.inputs > 3
    which = np.zeros(64, dtype=bool)
    assert looking.rise(model, batch, which, where) == (0.0, 0.0)
    which[:] = True
    there, elsewhere = looking.rise(model, batch, which, where)
    with torch.no_grad():
        before = nn.functional.cross_entropy(
            model(batch.inputs).transpose(1, 2), batch.targets, reduction="none"
        )
        for block in model.blocks:  # the same by hand: nothing is written but the last bias
            block.feedforward.down.weight.zero_()
        after = nn.functional.cross_entropy(
            model(batch.inputs).transpose(1, 2), batch.targets, reduction="none"
        )
    assert there == pytest.approx(float((after - before)[where].mean()), abs=1e-5)
    assert elsewhere == pytest.approx(float((after - before)[~where].mean()), abs=1e-5)
    with pytest.raises(ValueError, match="not at others"):
        looking.rise(model, batch, which, torch.ones_like(where))


# What a neuron responds to -------------------------------------------------------------------------


def test_the_area_is_that_of_mann_and_whitney():
    draws = np.random.default_rng(1)
    values = np.maximum(draws.normal(size=(80, 3)), 0)  # many equal ones
    token = draws.integers(0, 5, 80)
    sets = np.array([[1, 1, 0, 0, 0], [0, 1, 0, 1, 1]], dtype=bool)
    found = looking.set_auc(values, token, sets)
    for row, one in zip(found, sets, strict=True):
        label = one[token]
        for i, area in enumerate(row):
            u = mannwhitneyu(values[label, i], values[~label, i]).statistic
            assert area == pytest.approx(u / (label.sum() * (~label).sum()))
    with pytest.raises(ValueError, match="inside and outside"):
        looking.set_auc(values, token, np.ones((1, 5), dtype=bool))


def test_a_neuron_built_to_fire_on_one_token_is_found(model):
    """Its key is the normalised vector of a token, its bias just below that token's own product."""
    tokens = torch.arange(6)[None]
    with torch.no_grad():
        for parameter in model.blocks[0].attention.parameters():
            parameter.zero_()  # the network reads the embedding alone
        with capture(model, "blocks.0.residual_mid") as seen:
            model(tokens)
        normal = model.blocks[0].feedforward_norm(seen["blocks.0.residual_mid"])[0]
        key = normal[4]
        up = model.blocks[0].feedforward.up
        others = normal[[0, 1, 2, 3, 5]]
        up.weight[9], up.bias[9] = key, -((others @ key).max() + key @ key) / 2
    values = looking.table(looking.activations(model, tokens))
    only_four = np.arange(6)[None] == 4
    assert looking.set_auc(values, tokens[0].numpy(), only_four)[0, 9] == 1.0
    assert looking.variance_explained(values, tokens[0].numpy())[9] == pytest.approx(1.0)
    assert looking.firing_rates(values)[9] == pytest.approx(1 / 6)


def test_variance_between_kinds_is_that_of_a_regression():
    draws = np.random.default_rng(2)
    values, kind = draws.normal(size=(50, 2)), draws.integers(0, 4, 50)
    kind[kind == 2] = 3  # one kind never comes
    dummies = np.eye(4)[kind]
    fitted = dummies @ np.linalg.pinv(dummies) @ values
    rest = np.square(values - fitted).sum(0) / np.square(values - values.mean(0)).sum(0)
    assert np.allclose(looking.variance_explained(values, kind), 1 - rest)
    assert looking.variance_explained(np.zeros((50, 1)), kind).tolist() == [0.0]


def test_active_means_above_a_share_of_the_largest():
    values = np.array([[0.0, -0.1, -1.0], [0.5, 0.3, -2.0], [4.0, 2.0, -0.5], [0.0, 0.1, -1.0]])
    assert looking.firing_rates(values).tolist() == [0.5, 0.75, 0.0]
    assert looking.firing_rates(values, above=0.1).tolist() == [0.5, 0.5, 0.0]
    with pytest.raises(ValueError, match=r"\[0, 1\)"):
        looking.firing_rates(values, above=1.0)


# Patterns ------------------------------------------------------------------------------------------


def test_contexts_stand_in_the_order_of_the_table(gpt):
    batch = patterns.windows("test", 3)
    ends = patterns.contexts(batch)
    assert len(ends) == 3 * (patterns.LENGTH - patterns.FROM)
    assert len(neurons.units(gpt, batch)) == len(ends)
    # a window begins with the start token, which is no character: the text up to position 8 has eight
    assert len(ends[0]) == patterns.FROM
    whole = patterns.text_of(batch.inputs[1].tolist())
    assert ends[patterns.LENGTH - patterns.FROM] == whole[: patterns.FROM]
    last = [end[-1] for end in ends]
    kept = batch.inputs[:, patterns.FROM :].flatten().tolist()
    assert last == [patterns.text_of([token]) for token in kept]


def test_patterns_are_what_the_text_ends_with():
    ends = ["It is. ", "so\n", "x = (A", "a\n  ", "The "]
    grams, classes = ["e ", "\n"], [r"[A-Z]", r"\s\s", r"\.\s+", r"[aeiou]", r"\n"]
    found = patterns.matches(grams, classes, ends)
    rows = dict(zip([*grams, *classes], found.tolist(), strict=True))
    assert rows["e "] == [False, False, False, False, True]
    assert rows["\n"] == [False, True, False, False, False]
    assert rows["[A-Z]"] == [False, False, True, False, False]
    assert rows[r"\s\s"] == [False, False, False, True, False]
    assert rows[r"\.\s+"] == [True, False, False, False, False]
    assert not any(rows["[aeiou]"])
    assert rows[r"\n"] == rows["\n"]


def test_only_frequent_strings_are_patterns():
    names, longer, found, kept = patterns.patterns()
    assert (
        found.shape
        == kept.shape
        == (len(names), patterns.SEARCHED * (patterns.LENGTH - patterns.FROM))
    )
    strings = names[: -len(patterns.CLASSES)]
    assert found[: len(strings)].sum(1).min() >= patterns.FEWEST
    assert longer.tolist() == [
        name not in patterns.CLASSES and len(literal_eval(name)) > 1 for name in names
    ]


def test_strings_that_are_equal_have_equal_numbers():
    batch = patterns.windows("test", 4)
    ends = patterns.contexts(batch)
    for k in patterns.KNOWN:
        of: dict[int, set[str]] = {}
        for code, end in zip(patterns.last(batch, k).tolist(), ends, strict=True):
            of.setdefault(code, set()).add(end[-k:])
        assert all(len(strings) == 1 for strings in of.values())
        assert len(of) == len({end[-k:] for end in ends})


def test_tables_say_means_that_lean_on_shorter_strings():
    read, kept = "abcabdabc", "abcxbd"
    draws = np.random.default_rng(0)
    says, truth = draws.normal(size=(9, 2)), draws.normal(size=(6, 2))

    def said(end: str, k: int) -> np.ndarray:
        if not k:
            return says.mean(0)
        own = [says[i] for i in range(9) if read[: i + 1].endswith(end[-k:]) and i + 1 >= k]
        if not own or len(end) < k:
            return said(end, k - 1)
        return (np.sum(own, 0) + patterns.PRIOR * said(end, k - 1)) / (len(own) + patterns.PRIOR)

    def codes(text: str, k: int) -> torch.Tensor:
        # at the beginning, where there are fewer characters, a number that nothing else has
        ends = [text[max(0, i + 1 - k) : i + 1].rjust(k, "_") for i in range(len(text))]
        return torch.tensor([int.from_bytes(end.encode(), "big") for end in ends])

    found = patterns.predicted_by_last(
        says[2:], truth[2:], [(codes(read, k)[2:], codes(kept, k)[2:]) for k in (1, 2)]
    )
    inner = says[2:]
    for k, share in zip((1, 2), found, strict=True):
        wrong = 0.0
        for i in range(2, 6):
            guess = inner.mean(0)
            for n in range(1, k + 1):
                end = kept[i + 1 - n : i + 1]
                own = [says[m] for m in range(2, 9) if read[m + 1 - n : m + 1] == end]
                if own:
                    guess = (np.sum(own, 0) + patterns.PRIOR * guess) / (len(own) + patterns.PRIOR)
            wrong = wrong + np.square(truth[i] - guess)
        whole = np.square(truth[2:] - truth[2:].mean(0)).sum(0)
        assert np.allclose(share, 1 - wrong / whole)
    assert said("zb", 1).shape == (2,)


def test_what_is_written_from_the_strongest_down():
    says = np.zeros((1000, 2))
    says[:10, 0] = 8.0  # ten places have eight tenths of all, and the pattern half of that
    says[10:30, 0] = 1.0
    says[:, 1] = -1.0
    named = np.zeros((1000, 2), dtype=bool)
    named[:5] = True
    named[20:40] = True
    written, by_pattern = neurons.written_down_to(says, named)
    level = dict(zip(neurons.LEVELS, range(len(neurons.LEVELS)), strict=True))
    assert written[level[0.01], 0] == pytest.approx(0.8)
    assert by_pattern[level[0.01], 0] == pytest.approx(0.4)
    assert written[level[1.0], 0] == pytest.approx(1.0)
    assert by_pattern[level[1.0], 0] == pytest.approx(0.5)
    assert (written[:, 1] == 0).all()  # a neuron that is never active writes nothing


# A language model ----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def gpt():
    return make_model(neurons.GPT, causal=True, seed=5).eval()


def test_random_keys_are_read_from_the_same_stream(gpt):
    batch = patterns.windows("test", 4)
    found = neurons.units(gpt, batch, random_keys=3)
    draws = make_generator(3, "random keys")
    other = make_model(neurons.GPT, causal=True, seed=5).eval()
    with torch.no_grad():
        up = other.blocks[0].feedforward.up
        drawn = torch.randn(up.weight.shape, generator=draws)
        longest = up.weight.norm(dim=1)
        up.weight.copy_(drawn / drawn.norm(dim=1)[:, None] * longest[:, None])
        up.bias.zero_()
    first = looking.table(looking.activations(other, batch.inputs), patterns.FROM)[:, :256]
    assert np.allclose(found[:, :256], first, atol=1e-5)
    own = neurons.units(gpt, batch)
    assert own.shape == found.shape == (4 * (patterns.LENGTH - patterns.FROM), 512)
    assert not np.allclose(own[:, 256:], found[:, 256:], atol=0.1)


def test_agreement_is_a_correlation_for_each_neuron(gpt):
    batch = patterns.windows("test", 40)
    said = neurons.units(gpt, batch)
    found = neurons.agreement(gpt, said, batch)
    following = batch.targets[:, patterns.FROM :].flatten().numpy()
    often = [t for t in range(neurons.PROSE.vocab) if (following == t).sum() >= neurons.OFTEN]
    strong, favours = (
        patterns.strongest(said, patterns.TOP),
        looking.direct_logit_effects(gpt, 1).double().numpy(),
    )
    by_hand = {0: [], 1: []}
    for i in range(256):
        there = following[strong[:, 256 + i]]
        more = [(there == t).mean() - (following == t).mean() for t in often]
        for shift in by_hand:
            by_hand[shift].append(np.corrcoef(more, favours[i - shift, often])[0, 1])
    assert found[1] == pytest.approx([np.mean(by_hand[0]), np.mean(by_hand[1])], abs=1e-6)


def test_a_neuron_held_at_its_mean_is_a_constant(gpt):
    batch = patterns.windows("test", 2)
    means = neurons.units(gpt, batch).mean(0)
    rises = neurons.held_at_mean(gpt, means, batch)
    assert rises.shape == (512, 2 * (patterns.LENGTH - patterns.FROM))
    other = make_model(neurons.GPT, causal=True, seed=5).eval()
    with torch.no_grad():
        network = other.blocks[1].feedforward
        network.down.bias += float(means[256 + 7]) * network.down.weight[:, 7]
        network.down.weight[:, 7] = 0
        losses = [
            nn.functional.cross_entropy(
                m(batch.inputs).double().transpose(1, 2), batch.targets, reduction="none"
            )[:, patterns.FROM :].flatten()
            for m in (other, gpt)
        ]
    assert np.allclose(rises[256 + 7], (losses[0] - losses[1]).numpy(), atol=1e-5)


def test_what_is_promised_is_measured_at_the_end(gpt):
    batch = patterns.windows("test", 20)
    both, fits = neurons.kept_promises(gpt, neurons.units(gpt, batch), batch, 4)
    assert both.shape == (2, 2, 256, neurons.PROSE.vocab)
    assert fits[1] > 0.99 > fits[0]
    assert fits[0] == pytest.approx(np.corrcoef(both[0].reshape(2, -1))[0, 1])


# Digits --------------------------------------------------------------------------------------------


def test_size_is_asked_of_the_mirrored_digit():
    batch = neurons.AboveFive().batch(make_generator(0, "test"), 5)
    assert batch.targets.tolist() == [
        [int(x > 5) for x in row[::-1]] for row in batch.inputs.tolist()
    ]
    assert batch.scored.all()
    assert (neurons.AboveFive.vocab, neurons.AboveFive.length) == (10, 8)


def test_areas_find_what_is_planted():
    batch = neurons.DIGITS.batch(make_generator(0, "test"), 64)
    kind = looking.kinds(batch)
    planted = {
        "digit above five": kind["token"] > 5, "answer above five": kind["answer"] > 5,
        "one digit": kind["token"] == 3, "one answer": kind["answer"] == 4,
        "one position": kind["position"] == 2, "first position": kind["position"] == 0,
    }  # fmt: skip
    values = np.stack([label.astype(float) for label in planted.values()], axis=1)
    found = neurons.areas(values, kind)
    assert list(found) == list(neurons.LABELS)
    for i, label in enumerate(neurons.LABELS):
        assert found[label][i] == 1.0
        others = [j for j in range(6) if j != i]
        if label == "one position":
            others.remove(5)  # the first position is one
        assert (found[label][others] < neurons.LEVEL).all()


def test_nobody_is_silenced_where_nobody_detects():
    model = make_model(neurons.SMALL, causal=False, seed=0)
    assert neurons.without_detectors(model, 0, "answer").tolist() == [[0, 0], [0, 0]]
    assert np.abs(neurons.without_detectors(model, 0, "token")).max() > 0


def test_kinds_stand_in_the_order_of_the_table(model):
    batch = Reversal(vocab=6, length=3).batch(make_generator(0, "test"), 2)
    found = looking.kinds(batch)
    assert found["token"].tolist() == batch.inputs.flatten().tolist()
    assert found["answer"].tolist() == batch.inputs.flip(1).flatten().tolist()
    assert found["position"].tolist() == [0, 1, 2, 0, 1, 2]


def test_the_strongest_inputs_are_active_ones():
    values = np.zeros((100, 2))
    values[:, 0] = np.arange(100)
    values[3, 1] = 1.0
    found = patterns.strongest(values, 0.05)
    assert np.flatnonzero(found[:, 0]).tolist() == [95, 96, 97, 98, 99]
    assert np.flatnonzero(found[:, 1]).tolist() == [3]
    with pytest.raises(ValueError, match=r"\(0, 1\)"):
        patterns.strongest(values, 0.0)


def test_detectors_find_planted_patterns_and_score_them_elsewhere():
    draws = np.random.default_rng(0)
    planted, kept = draws.random((6, 200)) < 0.1, draws.random((6, 200)) < 0.1
    planted[0] = kept[0] = True  # names everything: all recall and no precision
    # neuron i fires on pattern i + 1; neuron 3 too, but on the other half on half of its places alone
    there, here = planted[1:5].T.copy(), kept[1:5].T.copy()
    half = np.flatnonzero(here[:, 3])[::2]
    here[half, 3] = False
    found = patterns.detectors(planted, there, kept, here)
    assert found.pattern.tolist() == [1, 2, 3, 4]
    assert found.f1[:3].tolist() == [1.0] * 3
    named, strong = kept[4], here[:, 3]
    precision, recall = strong[named].mean(), named[strong].mean()
    assert found.precision[3] == pytest.approx(precision)
    assert found.recall[3] == pytest.approx(recall) == 1.0
    assert found.f1[3] == pytest.approx(2 * precision * recall / (precision + recall))
    assert found.searched.tolist() == [1.0] * 4
    assert found.shuffled.max() < 0.4
    assert found.counted.all()
    assert not patterns.detectors(planted, there & False, kept, here).counted.any()
    with pytest.raises(ValueError, match="two neurons"):
        patterns.detectors(planted, there[:, :1], kept, here[:, :1])


# Values --------------------------------------------------------------------------------------------


def test_without_a_norm_the_last_block_does_what_its_values_say():
    config = Config(vocab=7, d_model=8, n_layers=2, n_heads=2, norm="none", activation="relu")
    with seeded(0):
        model = Decoder(config).double().eval()
    tokens = torch.randint(7, (3, 5), generator=make_generator(0, "tokens"))
    mean = looking.table(looking.activations(model, tokens)).mean(0)[32:]
    changes = looking.forced_changes(model, tokens, 1, mean + 2.0)
    assert torch.allclose(changes, 2 * looking.direct_logit_effects(model, 1), atol=1e-10)
    first = looking.table(looking.activations(model, tokens)).mean(0)[:32]
    below = looking.forced_changes(model, tokens, 0, first + 2.0)
    assert not torch.allclose(below, 2 * looking.direct_logit_effects(model, 0), atol=1e-2)


def test_pushes_read_values_as_the_final_norm_does():
    with seeded(1):
        model = Decoder(Config(vocab=7, d_model=8, n_layers=1, n_heads=2)).double().eval()
        model.final_norm.weight.data = torch.rand(8, dtype=torch.float64) + 0.5
    network, norm = model.blocks[0].feedforward, model.final_norm
    found = looking.direct_logit_effects(model, 0)
    value = network.down.weight[:, 3].detach()
    # the norm of a far larger vector than its own: only the divisor is another
    read = norm(1e9 * value) - norm.bias
    logits = model.unembedding(read).detach()
    logits = logits - logits.mean()
    assert torch.nn.functional.cosine_similarity(found[3], logits, dim=0) == pytest.approx(1.0)
    scale = (value - value.mean()).square().mean().sqrt()
    assert torch.allclose(found[3], logits * scale, atol=1e-8)


def test_a_model_without_unembedding_pushes_nothing():
    with pytest.raises(ValueError, match="linear unembedding"):
        looking.direct_logit_effects(
            Encoder(Config(vocab=7, d_model=8, n_layers=1, n_heads=2, head="none")), 0
        )
