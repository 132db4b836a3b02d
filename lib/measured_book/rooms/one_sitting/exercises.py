"""Exercises of *A Transformer in one sitting*: the pieces that a reader writes again."""

from __future__ import annotations

import torch
from measured_transformer.models.bare import BareGPT
from torch import nn

from measured_book.exercises.answers import (
    Answer,
    Fault,
    close,
    demand,
    in_words,
    normal,
    tensor,
)
from measured_book.exercises.registry import exercise

_CHAPTER = "book/machine/one-sitting"


@exercise(_CHAPTER)
def windows(answer: Answer) -> None:
    """Write `windows(tokens, starts, length)`: inputs and targets, each (batch, length), from the starts on."""
    tokens = torch.tensor([5, 3, 8, 1, 9, 2, 7, 4, 6, 0])
    for starts, length in (([0, 4], 3), ([6], 3), ([2, 0, 5], 4)):
        found = answer(tokens, torch.tensor(starts), length)
        if not isinstance(found, (tuple, list)) or len(found) != 2:
            raise Fault(f"expected inputs and targets, got {in_words(found)}")
        inputs = tensor(found[0], (len(starts), length), name="the inputs")
        targets = tensor(found[1], (len(starts), length), name="the targets")
        wanted = torch.stack([tokens[s : s + length] for s in starts]).double()
        demand(close(inputs, wanted), "the inputs are not the tokens from each start on")
        text = "the targets equal the inputs: what shall the model learn from that?"
        demand(not close(targets, inputs), text)
        wanted = torch.stack([tokens[s + 1 : s + 1 + length] for s in starts]).double()
        demand(close(targets, wanted), "a target is the token that comes right after its input")


@exercise(_CHAPTER)
def pattern(answer: Answer) -> None:
    """Write `pattern(scores)`: weights (batch, query, key) of scores, with every later key masked."""
    for n in (1, 3, 6):
        scores = 3 * normal(2, n, n, seed=n)
        found = tensor(answer(scores), (2, n, n), finite=False)
        demand(not found.isnan().any(), "a weight is NaN: is there a row with no key left?")
        later = torch.ones(n, n, dtype=torch.bool).triu(1)
        text = "a query gives weight to a key that comes after it"
        demand(close(found[:, later], torch.zeros(2, int(later.sum()))), text)
        text = "the first query sees one key, itself: its weight must be one"
        demand(close(found[:, 0, 0], torch.ones(2)), text)
        text = "the weights of a query do not sum to one: what is masked must go before the softmax"
        demand(close(found.sum(-1), torch.ones(2, n)), text)
        wanted = scores.masked_fill(later, -torch.inf).softmax(-1)
        demand(close(found, wanted), "the weights are not the softmax of the scores that are left")


@exercise(_CHAPTER)
def temperature(answer: Answer) -> None:
    """Write `probabilities(logits, temperature)`: of each token, sharper the lower the temperature."""
    for heat in (1.0, 0.5, 2.0, 0.01):
        logits = 4 * normal(3, 5, seed=3)
        found = tensor(answer(logits, heat), (3, 5))
        text = f"at temperature {heat:g} the probabilities of a row do not sum to one"
        demand(close(found.sum(-1), torch.ones(3)), text)
        wanted = (logits / heat).softmax(-1)
        text = "at a low temperature the likeliest token must be nearly certain, and here it is not"
        demand(
            heat >= 1 or close(found, wanted) or not close(found, (logits * heat).softmax(-1)), text
        )
        demand(close(found, wanted), f"wrong at temperature {heat:g}; right at 1 is not enough")


@exercise(_CHAPTER)
def layer(answer: Answer) -> None:
    """Write `layer(x, attention, network, norm_1, norm_2)`: one layer wired from its parts, norms first."""
    torch.manual_seed(0)
    attention, network = nn.Linear(4, 4).double(), nn.Linear(4, 4).double()
    norms = [nn.LayerNorm(4).double() for _ in range(2)]
    for norm in norms:
        nn.init.normal_(norm.weight)
    x = normal(2, 3, 4, seed=1)
    with torch.no_grad():
        found = tensor(answer(x, attention, network, *norms), (2, 3, 4))
        middle = x + attention(norms[0](x))
        wanted = middle + network(norms[1](middle))
        post = norms[0](x + attention(x))
        slips = {
            "nothing is added: the stream must go on past both sublayers": network(
                norms[1](attention(norms[0](x)))
            ),
            "the norms stand after the additions; here they come first": norms[1](
                post + network(post)
            ),
            "the network reads what entered the layer, not what attention has left": x
            + attention(norms[0](x))
            + network(norms[1](x)),
            "the sublayers read the stream itself; where are the norms?": x
            + attention(x)
            + network(x + attention(x)),
            "the normed stream is what goes on; add to the stream itself": norms[0](x)
            + attention(norms[0](x))
            + network(norms[1](norms[0](x) + attention(norms[0](x)))),
        }
        for words, wrong in slips.items():
            demand(not close(found, wrong), words)
        demand(close(found, wanted), "not what attention and then the network add to the stream")


@exercise(_CHAPTER)
def parameters(answer: Answer) -> None:
    """Write `parameters(vocab, d, layers)`: how many numbers a bare GPT learns."""
    for vocab, d, layers in ((103, 64, 2), (11, 8, 3)):
        gpt = BareGPT(vocab, d, layers, n_heads=2)
        right = sum(p.numel() for p in gpt.parameters())
        found = float(tensor(answer(vocab, d, layers), (), name="the count"))
        slips = {
            right - vocab * d: "embedding and unembedding are two tables",
            right - 2 * d: "there is a norm behind the last layer",
            right - 9 * d * layers: "the linear maps within a layer have biases",
            right - 4 * d * layers: "each norm has a factor and a shift for each entry",
            right - 2 * d * layers: "each layer has two norms",
            right + vocab: "the unembedding has no bias",
            right - d * d * layers: "attention has an output projection as well",
        }
        case = f"for vocab={vocab}, d={d} and layers={layers}"
        for value, words in slips.items():
            demand(found != value, f"{case}: {words}")
        side = "too many" if found > right else "too few"
        text = f"{case} that is {side}: write down the shape of every table, matrix, bias and norm"
        demand(found == right, text)
