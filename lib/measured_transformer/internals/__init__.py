"""Seeing and replacing what passes a tap, by its name.

A tap's name is its place in the model, such as `blocks.0.attention.pattern`; `taps` lists those
of a model. `capture` collects values while a `with` block runs, `intervene`
replaces them, `at` only for some heads or positions. Nothing is left behind after the block. A model without
taps, such as a live one of `transformers`, is watched by the names of its own modules (`modules`).

>>> import torch
>>> from measured_transformer import Config, Decoder, capture, intervene
>>> from measured_transformer.internals.at import at
>>> model = Decoder(Config(vocab=100, n_layers=2, n_heads=4))
>>> tokens = torch.randint(100, (1, 8))
>>> with capture(model, "blocks.*.attention.pattern") as seen:
...     logits = model(tokens)
>>> list(seen)
['blocks.0.attention.pattern', 'blocks.1.attention.pattern']
>>> without_head_2 = {"blocks.1.attention.mixed": at(0.0, heads=2)}
>>> with intervene(model, without_head_2):
...     changed = model(tokens)
>>> bool(torch.equal(changed, logits))
False
"""
