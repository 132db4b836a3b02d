"""What *A Transformer in one sitting* measures, against what is known by other ways."""

import math
import re
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
import torch
from measured_book.evidence.results import load_results
from measured_book.rooms.one_sitting import measure
from measured_transformer.models.bare import BareGPT
from measured_transformer.tasks.opened_text import whole_text
from measured_transformer.tasks.task import held_out
from measured_transformer.training.loop import make_model, train

RESULTS = load_results("one_sitting")
PAGE = Path(__file__).parents[3] / "book/machine/one-sitting.md"
PARTS = ("train", "validation", "test")


def test_the_tuned_learning_rate_does_not_stand_at_the_edge_of_its_grid():
    assert measure.RATES[0] < measure.chosen_rate() < measure.RATES[-1]


# The text -----------------------------------------------------------------------------------------


def test_the_parts_are_the_text_cut_between_paragraphs():
    texts = [measure.part_of(part) for part in PARTS]
    assert "".join(texts) == whole_text()
    assert all(text.endswith("\n\n") for text in texts[:2])
    shares = [len(text) / len(whole_text()) for text in texts]
    assert shares == pytest.approx([0.8, 0.1, 0.1], abs=0.005)


def test_every_character_that_is_judged_came_in_training():
    assert len(measure.alphabet()) == measure.VOCAB
    assert set(measure.part_of("train")) == set(measure.alphabet())


def test_tokens_go_there_and_back():
    text = measure.part_of("test")[:500]
    assert measure.decode(measure.encode(text)) == text


def test_a_window_asks_for_the_character_that_follows():
    batch = measure.TASK.batch(torch.Generator().manual_seed(0), 5)
    assert batch.inputs.shape == batch.targets.shape == (5, 64)
    for inputs, targets in zip(batch.inputs, batch.targets, strict=True):
        text = measure.decode(inputs) + measure.decode(targets[-1:])
        assert text in measure.part_of("train")
        assert measure.decode(targets) == text[1:]


def test_it_is_judged_on_text_that_it_is_not_trained_on():
    batch = held_out(measure.TASK).batch(torch.Generator().manual_seed(0), 20)
    for inputs in batch.inputs:
        assert measure.decode(inputs) in measure.part_of("validation")
    assert whole_text().index(measure.part_of("validation")) == len(measure.part_of("train"))


# Counting -----------------------------------------------------------------------------------------


def test_a_table_of_pairs_is_counted():
    tokens = torch.tensor([0, 1, 0, 1, 2, 0])
    expected = torch.tensor([[1, 3, 1], [2, 1, 2], [2, 1, 1]]) / torch.tensor([[5], [5], [4]])
    assert torch.allclose(measure.bigram_table(tokens, 3), expected)


def test_what_counts_expect_sums_to_one_after_every_context():
    text = measure.part_of("train")[:3000]
    counts = measure.Counts(text, 3, measure.VOCAB)
    for context in ("", "t", "th", "the", "qqq", "\n\n\n"):
        each = [counts.probabilities(context, c) for c in measure.alphabet()]
        assert np.sum(each, axis=0) == pytest.approx(np.ones(4))


def test_counts_give_what_one_finds_by_hand():
    counts = measure.Counts("abab", 1, 2)
    # a: 2 of 4, and two characters seen, so (2 + 2 * 1/2) / (4 + 2) = 1/2
    # b after a: 2 of 2, one character seen, so (2 + 1 * 1/2) / (2 + 1) = 5/6
    assert counts.probabilities("", "a")[0] == pytest.approx(1 / 2)
    assert counts.probabilities("a", "b") == pytest.approx([1 / 2, 5 / 6])
    assert counts.losses("ab")[1] == pytest.approx(-(math.log(1 / 2) + math.log(5 / 6)) / 2)
    assert counts.unseen("bba", 1) == 0
    assert measure.Counts("abab", 2, 3).unseen("abba", 2) == pytest.approx(1 / 2)


def test_single_characters_cost_their_cross_entropy():
    seen, asked = (Counter(measure.part_of(part)) for part in ("train", "validation"))
    total = sum(seen.values())
    costs = {c: -math.log(seen[c] / total) for c in seen}
    expected = sum(n * costs[c] for c, n in asked.items()) / sum(asked.values())
    kept = RESULTS["tables"].loss.sel(part="validation", context=0)
    assert float(kept[0]) == pytest.approx(expected, abs=1e-3)  # a little is left to the unseen


# The model ----------------------------------------------------------------------------------------


def test_the_loop_on_the_page_is_the_librarys_training():
    rate, steps, seed = 3e-3, 12, 5
    options = measure.options(steps)
    run = train(measure.MODEL, measure.TASK, seed=seed, learning_rate=rate, **options)
    schedule = options["schedule"]
    gpt = measure.fresh(seed)
    losses = measure.fit(gpt, measure.batches(seed), lambda step: rate * schedule(step), steps)
    assert losses == pytest.approx(run.losses.tolist(), rel=1e-4)
    other = measure.fit(measure.fresh(seed), measure.batches(6), lambda step: rate, steps)
    assert other != pytest.approx(run.losses.tolist(), rel=1e-2)


def test_the_cell_that_trains_runs_as_it_stands(capsys):
    (code,) = re.findall(
        r"^```python\n(import torch.*?fresh.*?)^```$", PAGE.read_text(), re.M | re.S
    )
    assert f"steps, rate, seed = {measure.STEPS}, {measure.chosen_rate():g}, 0" in code
    assert f"warmup={measure.WARMUP}" in code
    short = code.replace("shape(step), steps)", "shape(step), 2)").replace('"), 500,', '"), 5,')
    assert short.count("2)") + short.count(" 5,") == 2
    exec(short, {})
    told = capsys.readouterr().out
    assert told.startswith("first ")
    assert "The " in told


def test_the_loss_at_a_place_is_that_of_its_windows():
    model = make_model(measure.MODEL, causal=True, seed=0).eval()
    tokens = measure.encode(measure.part_of("test"))
    windows = [tokens[i : i + 65] for i in range(0, len(tokens) - 64, 64)]
    with torch.no_grad():
        costs = [-model(w[None, :4])[0, -1].double().log_softmax(-1)[w[4]] for w in windows]
    found = measure.loss_by_position(model, "test")
    assert found.shape == (64,)
    assert float(found[3]) == pytest.approx(float(torch.stack(costs).mean()), rel=1e-5)


class Echo(torch.nn.Module):
    """Expects the token that stood four places before the next one, and no other."""

    def forward(self, tokens):
        assert tokens.shape[1] <= measure.LENGTH
        logits = torch.full((*tokens.shape, 7), -torch.inf)
        return logits.scatter(2, tokens.roll(3, 1)[..., None], 0.0)


def test_writing_draws_each_token_from_what_is_expected_after_the_last():
    generator = torch.Generator().manual_seed(0)
    start = torch.tensor([1, 5, 2, 6])
    found = measure.write(Echo(), start, 100, generator)
    assert found.tolist() == (26 * start.tolist())[:104]


def test_a_low_temperature_takes_the_likeliest():
    torch.manual_seed(0)
    gpt = BareGPT(vocab=9, d_model=8, n_layers=1, n_heads=2)
    start = torch.tensor([3, 1])
    found = measure.write(gpt, start, 20, torch.Generator().manual_seed(1), temperature=1e-4)
    for n in range(2, 22):
        with torch.no_grad():
            assert found[n] == gpt(found[None, :n])[0, -1].argmax()


def test_what_is_kept_of_its_writing_begins_with_what_it_was_given():
    for tokens in RESULTS["writing"].tokens.isel(seed=0):
        assert measure.decode(torch.tensor(tokens.values)).startswith(measure.PROMPT)
    known = RESULTS["writing"].known.isel(seed=0).values
    assert (np.diff(known) > 0).all()


def test_four_characters_are_best_on_the_validation_text_as_the_page_says():
    """The page compares the GPT with the table of that context on the test text."""
    loss = RESULTS["tables"].loss.isel(seed=0).sel(part="validation")
    assert int(loss.idxmin("context")) == 4
