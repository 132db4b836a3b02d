"""What a reader's own sentence shows: each block of a model left out, swapped with the next, and run twice."""

from __future__ import annotations

from measured_transformer.language.model import LanguageModel

from measured_book.rooms.thirty_blocks.order import block_by_block
from measured_book.rooms.thirty_blocks.passages import LATER
from measured_book.smollm2.own import own_tokens
from measured_book.smollm2.sweeps import begin


def without_each_block(model: LanguageModel, text: str) -> str:
    """A line for each block: what a text loses with it left out, swapped with the next, or run twice.

    Args:
        model: any decoder with its tokenizer.
        text: of ten tokens or more, of which the first 128 are read; what is judged begins with its ninth.

    Raises:
        ValueError: when the text is shorter, or the model no language model.
    """
    tokens = own_tokens(model, text, least=LATER + 3)
    found = block_by_block(begin(tokens, model=model))
    rise, same = found["loss"][1] - found["whole"], found["same"][1]
    lines = [f"{tokens.shape[1]} tokens, {found['whole']:.2f} nats a token; rise of the loss:", ""]
    lines += ["block  left out  swapped    twice   predictions that stay when left out"]
    for block in range(rise.shape[1]):
        out, swapped, twice = (f"{one:8.2f}" if one == one else " " * 8 for one in rise[:, block])
        lines.append(f"{block + 1:5}  {out} {swapped} {twice}   {same[0, block]:.0%}")
    return "\n".join(lines)
