"""The stream as a sum: parts, cuts, other bases and lengths, by hand and against the models themselves."""

import numpy as np
import pytest
import torch
from measured_book.evidence.results import load_results
from measured_book.rooms.residual_stream import measure, reading
from measured_book.rooms.residual_stream.measure import (
    embedding_part,
    kept_cosines,
    logit_parts,
    needed_cosine,
    parts_of,
    step_ratios,
    there_is,
    turn_stream,
    with_cut,
)
from measured_transformer.analysis.residual import (
    Ledger,
    ledger,
    mean_norm,
    random_model,
    stream_norms,
    write_cosines,
    write_ratios,
)

RESULTS = load_results("residual_stream")


def test_no_tuned_learning_rate_stands_at_the_edge_of_its_grid():
    jobs = [measure.two_trainings(0)["tuned"], measure.twelve_trainings(0)["trained"]]
    for job in jobs:
        assert measure.RATES[0] < job.settings["learning_rate"] < measure.RATES[-1]


def test_every_model_has_learned_to_reverse():
    assert float(RESULTS["two"].accuracy.min()) > 0.95
    assert float(RESULTS["twelve"].accuracy.min()) > 0.9


def by_hand() -> Ledger:
    """The stream of two numbers of the chapter: (3, 1), then (-1, 2) and (1, 1) are written."""
    states = torch.tensor([[3.0, 1.0], [2.0, 3.0], [3.0, 4.0]])[:, None, None]
    writes = torch.tensor([[-1.0, 2.0], [1.0, 1.0]])[:, None, None]
    return Ledger(("blocks.0.attention", "blocks.0.feedforward"), states, writes)


def test_measures_of_a_stream_of_two_numbers():
    account = by_hand()
    assert account.step_errors().tolist() == [0.0, 0.0]
    assert account.sum_error() == 0.0
    assert account.blocks.flatten().tolist() == [3.0, 1.0, 3.0, 4.0]
    np.testing.assert_allclose(stream_norms(account.states), [10**0.5, 13**0.5, 5], rtol=1e-6)
    np.testing.assert_allclose(write_ratios(account), [(5 / 10) ** 0.5, (2 / 13) ** 0.5], rtol=1e-6)
    np.testing.assert_allclose(
        write_cosines(account), [-1 / 50**0.5, 5 / 26**0.5], rtol=1e-5, atol=1e-7
    )
    np.testing.assert_allclose(kept_cosines(account.blocks), [13 / 250**0.5], rtol=1e-5)
    np.testing.assert_allclose(step_ratios(account.blocks), [3 / 10**0.5], rtol=1e-6)
    assert mean_norm(account.states[-1]) == pytest.approx(5)


def test_writes_of_a_block_are_summed_and_growth_is_that_of_the_models_that_fetch_there():
    twelve, fetched = RESULTS["twelve"], RESULTS["fetched"]
    ratio = twelve.ratio.transpose("seed", "stage", "sublayer").values
    found = reading.written(twelve).transpose("seed", "stage", "block")
    np.testing.assert_allclose(found.values, ratio[..., ::2] + ratio[..., 1::2])
    assert found.block.values.tolist() == list(range(1, 13))
    here = fetched.mirrored.transpose("seed", "block").values.argmax(1) == 1
    lengths = twelve.stream.sel(stage="trained").transpose("seed", "state").values[here]
    grown = reading.grown_by(twelve, fetched, fetching=2, block=1)
    np.testing.assert_allclose(grown.values, lengths[:, 1] / lengths[:, 0])


def test_the_embeddings_part_is_all_of_a_stream_that_nobody_writes_to():
    for placement in ("pre", "post"):
        model, tokens = random_model(7, placement=placement, n_layers=3)
        with torch.no_grad():
            for block in model.blocks:
                for last in (block.attention.output, block.feedforward.down):
                    last.weight.zero_()
                    last.bias.zero_()
                for norm in (block.attention_norm, block.feedforward_norm):
                    norm.bias.zero_()
        torch.testing.assert_close(embedding_part(model, tokens), ledger(model, tokens).states)


def test_the_embeddings_part_is_linear_in_the_embedding_at_fixed_divisors():
    """Parts of the embedding, the writes and the biases, each sent through the norms, make the state."""
    model, tokens = random_model(8, placement="post", n_layers=1)
    account, block = ledger(model, tokens), model.blocks[0]
    first = account.states[0] + account.writes[0]
    scale = (first.var(dim=-1, keepdim=True, unbiased=False) + 1e-5).sqrt()
    embedding = account.states[0] - account.states[0].mean(dim=-1, keepdim=True)
    expected = embedding / scale * block.attention_norm.weight
    torch.testing.assert_close(embedding_part(model, tokens)[1], expected)


def test_embedding_part_refuses_a_norm_it_does_not_know():
    model, tokens = random_model(8, placement="post", norm="rms")
    with pytest.raises(ValueError, match="'rms'"):
        embedding_part(model, tokens)


def test_needed_cosine_recovers_the_angle():
    rng = np.random.default_rng(0)
    x, w = rng.normal(size=(2, 5))
    lengths = [float(np.linalg.norm(v)) for v in (x, w, x + w)]
    cosine = float(x @ w) / (lengths[0] * lengths[1])
    assert needed_cosine(lengths[0], [lengths[1]], lengths[2]) == pytest.approx(cosine)
    assert needed_cosine(1.0, [1.0, 1.0], 3.0) == pytest.approx(1)
    assert needed_cosine(1.0, [1.0, 1.0], 3.1) > 1


def test_parts_sum_to_the_stream_and_their_logits_to_the_logits():
    for norm in ("layer", "rms"):
        model, tokens = random_model(3, norm=norm, n_layers=2)
        parts = parts_of(model, tokens)
        assert len(parts) == 6
        torch.testing.assert_close(parts.sum(0), ledger(model, tokens).states[-1])
        torch.testing.assert_close(logit_parts(model, parts).sum(0), model(tokens))
        torch.testing.assert_close(
            parts[0], model.embedding_scale * model.token_embedding.weight[tokens]
        )


def test_logits_of_parts_need_a_norm_that_is_known():
    model, tokens = random_model(3, norm="none")
    with pytest.raises(ValueError, match="Identity"):
        logit_parts(model, parts_of(model, tokens))


@pytest.mark.parametrize("causal", [False, True])
def test_a_cut_that_nobody_sees_changes_nothing_and_one_for_all_takes_the_part_away(causal):
    model, tokens = random_model(6, n_layers=2, causal=causal)
    torch.testing.assert_close(with_cut(model, tokens, 0, []), model(tokens))
    assert not there_is(4, "network 1")
    torch.testing.assert_close(with_cut(model, tokens, 4, ["network 1"]), model(tokens))
    last = parts_of(model, tokens)[-1]
    state = ledger(model, tokens).states[-1] - last + last.mean(dim=(0, 1))
    torch.testing.assert_close(with_cut(model, tokens, 5, ["logits"]), model.unembed(state))


@pytest.mark.parametrize("what", ["queries 2", "keys 2", "values 2", "network 2"])
@torch.no_grad()
def test_a_cut_reaches_its_reader_alone(what):
    """The same by hand, block by block, with the projections of attention written out."""
    model, tokens = random_model(6, n_layers=2)
    account, block = ledger(model, tokens), model.blocks[1]
    write = account.writes[0]
    cut = write - write.mean(dim=(0, 1))
    attention, stream = block.attention, account.states[2]
    heads = []
    for name in ("queries", "keys", "values"):
        seen = block.attention_norm(stream - cut if what == f"{name} 2" else stream)
        linear = {"queries": attention.query, "keys": attention.key, "values": attention.value}
        projected = linear[name](seen).unflatten(-1, (attention.n_heads, -1))
        heads.append(projected.transpose(1, 2))
    mixed = torch.nn.functional.scaled_dot_product_attention(*heads)
    stream = stream + attention.output(mixed.transpose(1, 2).flatten(2))
    seen = stream - cut if what == "network 2" else stream
    stream = stream + block.feedforward(block.feedforward_norm(seen))
    torch.testing.assert_close(with_cut(model, tokens, 2, [what]), model.unembed(stream))


def test_cuts_are_for_pre_norm_models_with_positions_in_the_stream():
    for changes in ({"placement": "post"}, {"positions": "rotary"}):
        model, tokens = random_model(6, **changes)
        with pytest.raises(ValueError, match="pre-norm"):
            with_cut(model, tokens, 0, [])


def test_a_turned_stream_is_the_old_one_times_the_rotation():
    model, tokens = random_model(4, norm="rms", positions="rotary", n_layers=2)
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if name.endswith("norm.weight"):
                weight.fill_(1.0)
    before, logits = ledger(model, tokens).states, model(tokens)
    rotation = measure.drawn_rotation(1, model.config.d_model)
    turn_stream(model, rotation)
    torch.testing.assert_close(ledger(model, tokens).states, before @ rotation)
    torch.testing.assert_close(model(tokens), logits)


def test_a_bare_sublayer_gives_what_it_writes_in_its_block():
    model, tokens = random_model(5, norm="none", n_layers=2)
    account = ledger(model, tokens)
    torch.testing.assert_close(measure._bare(model, account), account.writes)


def test_untrained_blocks_pass_the_yardstick_of_refinement_too():
    late = RESULTS["twelve"].kept.sel(stage="untrained", block=slice(7, None)).mean("block")
    assert float(late.min()) > 0.9


def test_the_models_with_twelve_blocks_are_split_by_who_fetches():
    fetched = RESULTS["fetched"]
    assert bool(fetched.mirrored.idxmax("block").isin([1, 2]).all())
    assert float(fetched.mirrored.max("block").min()) > 0.4
