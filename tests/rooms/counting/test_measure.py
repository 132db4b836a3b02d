"""Counts of published models: against what is published, and against the modules of a small one."""

from measured_book.rooms.counting import measure as counting
from measured_transformer.models.decoder import Decoder
from measured_transformer.models.sizes import count_flops, count_parameters


def test_published_models_have_their_published_sizes():
    assert counting.count("BERT-base").total == 109_482_240
    assert counting.count("GPT-2").total == 124_439_808
    assert counting.count("LLaMA 7B").total == 6_738_415_616
    billions = {"Mistral 7B": 7.2, "Llama 3 8B": 8.0, "Llama 3 70B": 70.6, "Gemma 2 9B": 9.2}
    for name, stated in billions.items():
        assert round(counting.count(name).total / 1e9, 1) == stated
    small = counting.MODELS["Llama 3 8B"].replace(
        vocab=7, d_model=16, n_layers=2, n_heads=4, n_kv_heads=1, d_ff=56
    )
    inside = {
        name: sum(p.numel() for n, p in Decoder(small).named_parameters() if f".{name}." in n)
        for name in ("attention", "feedforward")
    }
    found = count_parameters(small, "decoder")
    assert (found.attention, found.feedforward) == (inside["attention"], inside["feedforward"])


def test_the_rule_of_twelve_is_that_of_networks_four_times_as_wide_and_full_attention():
    biases = (4 + 4 + 1) * 768  # of four maps of attention, the neurons and the network's output
    assert counting.rule_of_twelve("GPT-2") == 1 / (1 + biases / (12 * 768**2))
    assert counting.rule_of_twelve("Gemma 2 9B") < 0.8


def test_pairs_and_matrices_meet_where_the_library_counts_as_many_operations():
    name = "Llama 3 8B"
    config, n = counting.MODELS[name], round(counting.crossing(name))
    pairs = 4 * n * n * config.n_layers * config.n_heads * config.head_width
    whole = count_flops(config, "decoder", length=n)
    assert whole.attention + whole.feedforward - pairs == pairs
