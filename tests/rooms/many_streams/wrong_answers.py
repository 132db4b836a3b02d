"""Mistakes in the exercise on two residual streams, by the hint that each gets."""

GAIN, LEFT = 1.2**6, 0.8**6

WRONG = {
    "many_streams.by_hand": {
        "to one stream": ((5.4, GAIN, LEFT), "to both streams"),
        "the sum is read": ((14.4, GAIN, LEFT), "mean of the streams"),
        "without mixing": ((8.0, GAIN, LEFT), "R mixes"),
        "without the branch": ((2.4, GAIN, LEFT), "branch is missing"),
        "something": ((1.0, GAIN, LEFT), "stream by stream"),
        "opposite signs": ((8.4, 0.6**6, LEFT), "opposite signs"),
        "added up": ((8.4, 7.2, LEFT), "factors multiply"),
        "one sublayer": ((8.4, 1.2, LEFT), "that is one sublayer"),
        "no gain": ((8.4, 1.0, LEFT), "stay equal"),
        "one share": ((8.4, GAIN, 0.9**6), "a share of the other"),
        "nothing lost": ((8.4, GAIN, 1.0), "difference is not"),
        "one sublayer's difference": ((8.4, GAIN, 0.8), "that is one sublayer"),
        "half": ((8.4, GAIN, 0.5), "subtract"),
    },
}
