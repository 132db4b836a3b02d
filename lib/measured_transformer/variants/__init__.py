"""Replacements for parts in experiments, such as attention with fixed scores and branches without a norm.

Most are preparations for training: each is given to `train` as its `prepare` and changes the fresh model in
place, before the first step.

>>> from measured_transformer import Config, Encoder
>>> from measured_transformer.variants.attention import Tied
>>> model = Encoder(Config(vocab=4, d_model=8, n_heads=2, n_layers=1))
>>> Tied("qk")(model)                  # queries and keys by one and the same matrix
>>> model.blocks[0].attention.key is model.blocks[0].attention.query
True
"""
