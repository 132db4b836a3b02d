"""Tables of token vectors that are held as they were drawn."""

import pytest
import torch
from measured_transformer.analysis import fact_counts as counts
from measured_transformer.models.config import Config
from measured_transformer.models.decoder import Decoder
from measured_transformer.models.encoder_decoder import EncoderDecoder
from measured_transformer.parts.feedforward import FeedForward
from measured_transformer.tasks.facts import Facts
from measured_transformer.training.loop import make_model, train
from measured_transformer.variants.embeddings import FixedTables

TABLE = Facts(count=20, subjects=8, relations=6, objects=5, seed=1)


def test_fixed_tables_stay_and_the_rest_learns():
    config = Config(vocab=19, d_model=8, n_heads=2, n_layers=1, positions="none")
    fresh = make_model(config, causal=True, seed=0)
    run = train(
        config,
        TABLE,
        seed=0,
        learning_rate=0.03,
        prepare=FixedTables(),
        **counts.whole_table(20, 5),
    )
    for name, parameter in run.model.named_parameters():
        same = torch.equal(parameter, fresh.get_parameter(name))
        assert same == (name in ("token_embedding.weight", "unembedding.weight")), name
    bare = make_model(config, causal=True, seed=0)
    FixedTables(network=False)(bare)
    assert not isinstance(bare.blocks[0].feedforward, FeedForward)
    with pytest.raises(ValueError, match="one unembedding"):
        FixedTables()(EncoderDecoder(config))
    with pytest.raises(ValueError, match="one unembedding"):
        FixedTables()(Decoder(config.replace(head="none")))
