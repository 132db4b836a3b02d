"""Measurements on parts and models: what the book's chapters compute before they draw and judge it.

Functions take a model or tensors and return numbers or arrays, with the seeds or sublayers as their first
axis. Nothing is trained or drawn here unless a name says so.

>>> import torch
>>> from measured_transformer import Config, Decoder
>>> from measured_transformer.analysis.residual import ledger, write_ratios
>>> model = Decoder(Config(vocab=100, n_layers=2)).double()
>>> account = ledger(model, torch.randint(100, (4, 16)))
>>> account.sum_error() < 1e-12    # the last state is the sum of all writes
True
>>> write_ratios(account).shape    # attention and feed-forward of two blocks
(4,)
"""
