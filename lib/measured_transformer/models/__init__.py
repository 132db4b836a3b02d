"""Parts wired by a `Config` into three models: `Decoder`, `Encoder` and `EncoderDecoder`.

The config names every size and choice and is checked when it is made; `Config.replace` makes variants. Only
this package reads a config. How many parameters and operations a config means is computed without a model.

>>> import torch
>>> from measured_transformer import Config, Decoder, EncoderDecoder
>>> from measured_transformer.models.sizes import count_parameters
>>> config = Config(vocab=100, d_model=64, n_layers=2, n_heads=4)
>>> tokens = torch.randint(100, (2, 10))
>>> Decoder(config)(tokens).shape                 # logits of each next token
torch.Size([2, 10, 100])
>>> EncoderDecoder(config)(tokens, tokens[:, :3]).shape
torch.Size([2, 3, 100])
>>> llama = config.replace(
...     positions="rotary", norm="rms", activation="swiglu", bias=False)
>>> count_parameters(llama, "decoder").attention
32768
"""
