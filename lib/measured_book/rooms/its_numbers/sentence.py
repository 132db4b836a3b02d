"""What a reader's own text shows: a model whose cache has fewer bits, or whose smallest activations are 0."""

from __future__ import annotations

from measured_transformer.internals.intervene import Change, intervene
from measured_transformer.internals.names import taps
from measured_transformer.language.model import LanguageModel
from torch import Tensor

from measured_book.rooms.its_numbers.neurons import smallest_to_zero
from measured_book.rooms.its_numbers.rounding import BITS, CHANNEL, TOKEN, steps
from measured_book.smollm2.own import own_tokens
from measured_book.smollm2.sweeps import losses_of


def with_fewer_bits(model: LanguageModel, text: str) -> str:
    """A line for each change: what a text costs with a cache in fewer bits, or with quiet neurons at zero.

    Args:
        model: any decoder with its tokenizer; keys are rounded after their rotation where it has one.
        text: of three tokens or more, of which the first 128 are read.

    Raises:
        ValueError: when the text is shorter, or the model no language model.
    """
    tokens = own_tokens(model, text, least=3)
    known = taps(model.model)
    rotated = any(name.endswith("attention.rotated_keys") for name in known)
    keys = "blocks.*.attention.rotated_keys" if rotated else "blocks.*.attention.keys"
    values = "blocks.*.attention.values"

    def rounded(bits: int, axis: int) -> Change:
        def change(numbers: Tensor) -> Tensor:
            return steps(numbers, bits, axis)

        return change

    changes: dict[str, dict[str, Change]] = {"as it is": {}}
    for bits in BITS:
        changes[f"{bits} bits, keys by channel"] = {
            keys: rounded(bits, CHANNEL),
            values: rounded(bits, TOKEN),
        }
    changes["2 bits, keys by token"] = {keys: rounded(2, TOKEN), values: rounded(2, TOKEN)}
    for share in (0.5, 0.9):
        quiet = {"blocks.*.feedforward.neurons": smallest_to_zero(share)}
        changes[f"smallest {share:.0%} of neurons at zero"] = quiet
    lines = [f"{tokens.shape[1]} tokens; nats a token:", ""]
    for name, change in changes.items():
        with intervene(model.model, change):
            lines.append(f"{name:36} {float(losses_of(tokens, model=model.model).mean()):8.3f}")
    return "\n".join(lines)
