"""What the rooms of the part *A real language model* share: the model, its texts, sweeps, prompts and controls.

The model is SmolLM2-135M-Instruct with weights of 4 bits; every verdict on it is scoped to that. A *seed* of
its measurements draws texts and prompts, never weights. A room writes::

    from measured_book.measuring import measurement
    from measured_book.smollm2.model import NEEDS, smollm2
    from measured_book.smollm2.sweeps import begin
    from measured_book.smollm2.texts import DATA, KINDS, draw

    @measurement(seeds=10, coords={"kind": KINDS}, pretrained=NEEDS, data=DATA)
    def without_blocks(seed: int) -> dict:
        \"\"\"Nats a token that each block is worth, on eight texts of each kind.\"\"\"
        lost = []
        for kind in KINDS:
            sweep = begin(draw(seed, kind, 8, 64, first="end"))
            whole = sweep.losses()                                    # text, target
            lost.append([
                float((sweep.losses(sweep.onward(i + 1, sweep.states[i])) - whole).mean())
                for i in range(sweep.blocks)                          # block i left out, earlier ones not run
            ])
        return {"lost": (("kind", "block"), lost)}

- `model`: `smollm2()`, one model a process; `NEEDS`, by which a repeat leaves out what cannot be measured here.
- `texts`: `draw(seed, kind, n, tokens, first=, begin=)` from the kinds reference, book and sentences;
  `random_strings`, `repeated_strings`, `with_first`, `ordinary_tokens`.
- `sweeps`: `begin(tokens)` keeps the state before every block; `Sweep.onward(block, state, until=)`, `.run`,
  `.losses`, `.last_logits`, `.head_outputs`, `.write_norms`, `.without({block: heads}, how, skip=)`;
  `token_losses`, `losses_of`, `stream_after`, `kept`, `heads_of`.
- `maps`: `linear_map`, from early states to the last ones.
- `controls`: `matched_heads`, `norm_ratio`, `same_spectrum`, `smollm2_of_same_spectrum(seed)`, `turned`,
  `directions_of_equal_length`.
- `prompts`: `Pair`, `next_logits`, `gaps`, `gap`, `one_token`, `numbers_of`, `few_shot`, `filled`, `encode`,
  `by_length`.

>>> from measured_book.smollm2.prompts import few_shot
>>> few_shot([("France", "Paris"), ("Italy", "Rome")], "Spain", form="{question}: {answer}", between="; ")
'France: Paris; Italy: Rome; Spain:'

Every function takes another `model` and `tokenizer`, so that readers can put theirs in place. Numbers are
float32 throughout: a fingerprint is taken with double precision as PyTorch's default, so give `dtype` where a
tensor of Python's numbers meets the model's.
"""
