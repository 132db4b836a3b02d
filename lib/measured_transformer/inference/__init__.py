"""Continuing texts with a model: greedy, sampled or by beam search, one token after the other.

`generate` does all of it: prompts of any lengths in one batch, keys and values kept from step to step, and
one of three strategies, `Greedy`, `Sampling` or `BeamSearch`, for the choice of each token.

>>> import torch
>>> from measured_transformer import Config, Decoder
>>> from measured_transformer.inference.generate import generate
>>> from measured_transformer.inference.sampling import Sampling
>>> model = Decoder(Config(vocab=100, n_layers=2))
>>> strategy = Sampling(torch.Generator().manual_seed(0), top_p=0.95)
>>> prompts = [[1, 2, 3], [4]]
>>> written = generate(model, prompts, max_new_tokens=6, strategy=strategy)
>>> [len(tokens) for tokens in written.tokens]
[6, 6]
"""
