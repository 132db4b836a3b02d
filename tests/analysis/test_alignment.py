"""Cross-attention as alignment: links against right ones, by hand."""

import torch
from measured_transformer.analysis.alignment import alignment_scores, cross_patterns
from measured_transformer.models.config import Config
from measured_transformer.models.encoder_decoder import EncoderDecoder
from measured_transformer.tasks.noisy_translation import NoisyTranslation


def test_scores_by_hand():
    gold = torch.tensor([[2, -1, 0, -1]])
    words = torch.tensor([[True, True, True, False]])
    links = torch.tensor([[2, 1, 1, 0], [2, 0, 0, 3]])[None, None]  # one layer of two heads
    accuracy, error = alignment_scores(links, gold, words)
    assert accuracy.tolist() == [[0.5, 1.0]]
    torch.testing.assert_close(error, torch.tensor([[1 - 2 / 5, 1 - 4 / 5]]).double())


def test_patterns_of_all_heads():
    task = NoisyTranslation(symbols=5, length=6, pad_share=0.4)
    model = EncoderDecoder(Config(vocab=task.vocab, d_model=8, n_heads=2, n_layers=3))
    batch = task.batch(torch.Generator().manual_seed(0), 4)
    pattern = cross_patterns(model, batch)
    assert pattern.shape == (4, 3, 2, 6, 6)
    torch.testing.assert_close(pattern.sum(-1), torch.ones(4, 3, 2, 6))
    padding = ~batch.source_padding_mask[:, None, None, None].expand_as(pattern)
    assert not pattern[padding].any()
