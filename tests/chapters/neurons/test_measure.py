"""What neurons respond to and write: measures on neurons that are known."""

import numpy as np
import pytest
import torch
from measured_transformer.chapters.neurons import measure as neurons
from measured_transformer.internals.capture import capture
from measured_transformer.models.config import Config
from measured_transformer.models.decoder import Decoder
from measured_transformer.models.encoder import Encoder
from measured_transformer.tasks.reversal import Reversal
from measured_transformer.tasks.text import TextLM
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
    found = neurons.activations(model, tokens)
    values = neurons.table(found)
    assert values.shape == (6, 64)
    second = seen["blocks.1.feedforward.neurons"]
    assert np.array_equal(values[4, 32:], second[1, 1].double().numpy())
    assert np.array_equal(neurons.table(found, first=2), values[[2, 5]])


def test_silenced_and_forced_neurons_hold_their_value(model):
    tokens = torch.tensor([[1, 2, 3]])
    before = model(tokens)
    which = np.zeros(64, dtype=bool)
    which[[5, 40]] = True
    with neurons.silenced(model, which):
        values = neurons.table(neurons.activations(model, tokens))
    assert (values[:, which] == 0).all()
    untouched = neurons.table(neurons.activations(model, tokens))
    assert np.array_equal(values[:, :32][:, ~which[:32]], untouched[:, :32][:, ~which[:32]])
    with neurons.forced(model, 1, 7, 2.5):
        values = neurons.table(neurons.activations(model, tokens))
    assert (values[:, 32 + 7] == 2.5).all()
    assert np.array_equal(np.delete(values, 39, 1), np.delete(untouched, 39, 1))
    assert torch.equal(model(tokens), before)


def test_only_neurons_that_there_are(model):
    with (
        pytest.raises(ValueError, match="2 blocks of 32"),
        neurons.silenced(model, np.zeros(32, dtype=bool)),
    ):
        pass
    with pytest.raises(ValueError, match=r"0\.\.31"), neurons.forced(model, 0, 32, 1.0):
        pass


def test_silencing_hurts_where_the_neuron_is_needed(model):
    task = Reversal(vocab=6, length=4)
    batch = task.batch(make_generator(0, "test"), 16)
    where = batch.inputs > 3
    which = np.zeros(64, dtype=bool)
    assert neurons.rise(model, batch, which, where) == (0.0, 0.0)
    which[:] = True
    there, elsewhere = neurons.rise(model, batch, which, where)
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
        neurons.rise(model, batch, which, torch.ones_like(where))


# What a neuron responds to -------------------------------------------------------------------------


def test_the_area_is_that_of_mann_and_whitney():
    draws = np.random.default_rng(0)
    values = np.maximum(draws.normal(size=(60, 5)), 0)  # many equal ones
    label = draws.random(60) < 0.3
    found = neurons.auc(values, label)
    for i in range(5):
        u = mannwhitneyu(values[label, i], values[~label, i]).statistic
        assert found[i] == pytest.approx(u / (label.sum() * (~label).sum()))


def test_areas_of_sets_are_those_of_their_labels():
    draws = np.random.default_rng(1)
    values, token = draws.normal(size=(80, 3)), draws.integers(0, 5, 80)
    sets = np.array([[1, 1, 0, 0, 0], [0, 1, 0, 1, 1]], dtype=bool)
    found = neurons.set_auc(values, token, sets)
    assert np.allclose(found, [neurons.auc(values, s[token]) for s in sets])
    with pytest.raises(ValueError, match="inside and outside"):
        neurons.set_auc(values, token, np.ones((1, 5), dtype=bool))


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
    values = neurons.table(neurons.activations(model, tokens))
    assert neurons.auc(values, tokens[0].numpy() == 4)[9] == 1.0
    assert neurons.variance_explained(values, tokens[0].numpy())[9] == pytest.approx(1.0)
    assert neurons.firing_rates(values)[9] == pytest.approx(1 / 6)


def test_variance_between_kinds_is_that_of_a_regression():
    draws = np.random.default_rng(2)
    values, kind = draws.normal(size=(50, 2)), draws.integers(0, 4, 50)
    kind[kind == 2] = 3  # one kind never comes
    dummies = np.eye(4)[kind]
    fitted = dummies @ np.linalg.pinv(dummies) @ values
    rest = np.square(values - fitted).sum(0) / np.square(values - values.mean(0)).sum(0)
    assert np.allclose(neurons.variance_explained(values, kind), 1 - rest)
    assert neurons.variance_explained(np.zeros((50, 1)), kind).tolist() == [0.0]


def test_active_means_above_a_share_of_the_largest():
    values = np.array([[0.0, -0.1, -1.0], [0.5, 0.3, -2.0], [4.0, 2.0, -0.5], [0.0, 0.1, -1.0]])
    assert neurons.firing_rates(values).tolist() == [0.5, 0.75, 0.0]
    assert neurons.firing_rates(values, above=0.1).tolist() == [0.5, 0.5, 0.0]
    with pytest.raises(ValueError, match=r"\[0, 1\)"):
        neurons.firing_rates(values, above=1.0)


# Patterns ------------------------------------------------------------------------------------------


def ends_of(task, found, length):
    """The text up to each place; None in windows with signs of several bytes, whose characters are fewer."""
    rows = [task.text(row) for row in found.batch.inputs]
    whole = [row if len(row) == length else None for row in rows]
    assert sum(row is not None for row in whole) > len(rows) / 2
    return [row and row[: i + 1] for row in whole for i in range(found.first, length)]


def test_patterns_are_what_the_text_ends_with():
    task = TextLM(length=12)
    found = neurons.contexts(task, seed=0, size=20, least=3)
    ends = ends_of(task, found, 12)
    assert found.matches.shape == (len(found.names), len(ends))
    for name in ("[A-Z]", r"\s\s", "[aeiou]"):
        row = found.matches[found.names.index(name)]
        last = {"[A-Z]": str.isupper, "[aeiou]": lambda c: c in "aeiou"}
        for end, fits in zip(ends, row, strict=True):
            if end is None:
                continue
            right = end[-2:].isspace() if name == r"\s\s" else last[name](end[-1])
            assert fits == right
    grams = [name for name in found.names if name not in neurons.CLASSES]
    strings = [len(eval(n)) > 1 if n in grams else False for n in found.names]
    assert found.strings.tolist() == strings
    assert {len(eval(name)) for name in grams} == {1, 2, 3}
    for name in grams:
        row = found.matches[found.names.index(name)]
        assert row.sum() >= 3
        assert all(
            fits == end.endswith(eval(name)) for end, fits in zip(ends, row, strict=True) if end
        )
    other = neurons.contexts(task, seed=1, size=5, names=found.names)
    assert other.names == found.names
    assert other.matches.shape == (len(found.names), 45)


def test_a_line_break_is_a_pattern_and_no_end():
    pattern = next(i for i, name in enumerate(neurons.CLASSES) if name == r"\n")
    task = TextLM(length=40)
    found = neurons.contexts(task, seed=2, size=10)
    ends = ends_of(task, found, 40)
    vowels = found.names.index("[aeiou]")
    assert found.matches[pattern].any()
    for end, breaks, vowel in zip(ends, found.matches[pattern], found.matches[vowels], strict=True):
        if end:
            assert breaks == end.endswith("\n")
            assert vowel == (end[-1] in "aeiou")


def test_letters_are_of_their_kinds():
    task = TextLM(length=4)
    sets = dict(zip(neurons.LETTERS, neurons.letter_sets(task), strict=True))
    number = {one: task.tokenizer().encode(one).ids[0] for one in "aB7 (x\n"}
    member = {one: {kind for kind in sets if sets[kind][i]} for one, i in number.items()}
    assert member["a"] == {"[a-z]", "[aeiou]"}
    assert member["x"] == {"[a-z]"}
    assert member["B"] == {"[A-Z]"}
    assert member["7"] == {"[0-9]"}
    assert member[" "] == member["\n"] == {r"\s"}
    assert member["("] == {r"[^\w\s]"}


def test_kinds_stand_in_the_order_of_the_table(model):
    batch = Reversal(vocab=6, length=3).batch(make_generator(0, "test"), 2)
    found = neurons.kinds(batch)
    assert found["token"].tolist() == batch.inputs.flatten().tolist()
    assert found["answer"].tolist() == batch.inputs.flip(1).flatten().tolist()
    assert found["position"].tolist() == [0, 1, 2, 0, 1, 2]


def test_a_portrait_shows_the_neuron_as_it_is():
    task = TextLM(length=12)
    with seeded(0):
        model = Decoder(
            Config(vocab=256, d_model=8, n_layers=2, n_heads=2, activation="relu")
        ).eval()
    batch = task.batch(make_generator(0, "test"), 40)
    seen = neurons.portrait(model, task, batch, 1, 5, least=4)
    says = neurons.activations(model, batch.inputs)[1, :, :, 5]
    row = int(says.amax(1).argmax())
    assert seen.lines[0] == [task.text(token[None]) for token in batch.inputs[row]]
    assert seen.said[0] == says[row].tolist()
    assert len(seen.lines) == len(seen.said) == 5
    middles = [float(spread[1]) for spread in seen.products.values()]
    assert middles == sorted(middles, reverse=True)
    for name, spread in seen.products.items():
        token = task.tokenizer().encode(name).ids[0]
        found = says[batch.inputs == token].double().numpy()
        assert np.allclose(np.maximum(spread[2], 0), np.quantile(found, 0.9), atol=0.2)
    whole = neurons.pushes(model, 1)[5]
    numbers = [task.tokenizer().encode(name).ids[0] for name in seen.pushes]
    apart = whole[numbers].double().numpy()
    assert np.allclose(np.diff(list(seen.pushes.values())), np.diff(apart), atol=1e-6)
    pushed = list(seen.pushes.values())
    assert len(pushed) == 8
    assert pushed == sorted(pushed, reverse=True)


def test_the_strongest_inputs_are_active_ones():
    values = np.zeros((100, 2))
    values[:, 0] = np.arange(100)
    values[3, 1] = 1.0
    found = neurons.strongest(values, 0.05)
    assert np.flatnonzero(found[:, 0]).tolist() == [95, 96, 97, 98, 99]
    assert np.flatnonzero(found[:, 1]).tolist() == [3]
    with pytest.raises(ValueError, match=r"\(0, 1\)"):
        neurons.strongest(values, 0.0)


def test_detectors_find_planted_patterns_and_score_them_elsewhere():
    draws = np.random.default_rng(0)
    planted, kept = draws.random((6, 200)) < 0.1, draws.random((6, 200)) < 0.1
    planted[0] = kept[0] = True  # names everything: all recall and no precision
    # neuron i fires on pattern i + 1; neuron 3 too, but on the other half on half of its places alone
    there, here = planted[1:5].T.copy(), kept[1:5].T.copy()
    half = np.flatnonzero(here[:, 3])[::2]
    here[half, 3] = False
    found = neurons.detectors(planted, there, kept, here)
    assert found.pattern.tolist() == [1, 2, 3, 4]
    assert found.f1[:3].tolist() == [1.0] * 3
    named, strong = kept[4], here[:, 3]
    precision, recall = strong[named].mean(), named[strong].mean()
    assert found.precision[3] == pytest.approx(precision)
    assert found.recall[3] == pytest.approx(recall) == 1.0
    assert found.f1[3] == pytest.approx(2 * precision * recall / (precision + recall))
    assert found.shuffled.max() < 0.4
    assert found.counted.all()
    assert not neurons.detectors(planted, there & False, kept, here).counted.any()
    with pytest.raises(ValueError, match="two neurons"):
        neurons.detectors(planted, there[:, :1], kept, here[:, :1])


# Values --------------------------------------------------------------------------------------------


def test_without_a_norm_the_last_block_does_what_its_values_say():
    config = Config(vocab=7, d_model=8, n_layers=2, n_heads=2, norm="none", activation="relu")
    with seeded(0):
        model = Decoder(config).double().eval()
    tokens = torch.randint(7, (3, 5), generator=make_generator(0, "tokens"))
    mean = neurons.table(neurons.activations(model, tokens)).mean(0)[32:]
    changes = neurons.forced_changes(model, tokens, 1, mean + 2.0)
    assert torch.allclose(changes, 2 * neurons.pushes(model, 1), atol=1e-10)
    first = neurons.table(neurons.activations(model, tokens)).mean(0)[:32]
    below = neurons.forced_changes(model, tokens, 0, first + 2.0)
    assert not torch.allclose(below, 2 * neurons.pushes(model, 0), atol=1e-2)


def test_pushes_read_values_as_the_final_norm_does():
    with seeded(1):
        model = Decoder(Config(vocab=7, d_model=8, n_layers=1, n_heads=2)).double().eval()
        model.final_norm.weight.data = torch.rand(8, dtype=torch.float64) + 0.5
    network, norm = model.blocks[0].feedforward, model.final_norm
    found = neurons.pushes(model, 0)
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
        neurons.pushes(Encoder(Config(vocab=7, d_model=8, n_layers=1, n_heads=2, head="none")), 0)
