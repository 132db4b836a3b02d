"""Mistakes in the exercise on epochs and perplexities, by the hint that each gets."""

import math

STEPS, UNIFORM, APART = 209_179 / 512, 11_794, math.log(500 / 400)

WRONG = {
    "shakespeare_words.epoch": {
        "words a step": ((209_179 / 16, UNIFORM, APART), "whole windows"),
        "windows": ((209_179 / 32, UNIFORM, APART), "several windows"),
        "the vocabulary": ((209_179 / 11_794, UNIFORM, APART), "nothing to do"),
        "a round number": ((1000.0, UNIFORM, APART), "does a step read"),
        "nats": ((STEPS, math.log(11_794), APART), "that is the loss"),
        "a probability": ((STEPS, 1 / 11_794, APART), "probability of a word"),
        "a half": ((STEPS, 11_794 / 2, APART), "exponential of the mean loss"),
        "subtracted": ((STEPS, UNIFORM, 100.0), "exponentials of the loss"),
        "in bits": ((STEPS, UNIFORM, math.log2(1.25)), "in bits"),
        "the other way": ((STEPS, UNIFORM, -APART), "higher loss"),
        "nothing": ((STEPS, UNIFORM, 0.0), "logarithm of the perplexity"),
    },
}
