r"""The network of the package g2p-en, from the spelling of a word to its phonemes, as a sequence model.

An encoder reads the letters $x_1, \dots, x_n$ and an end. Its last state is the first of the decoder, which
reads the phonemes so far:

$$h_0 = \text{GRU}_x(x_1, \dots, x_n, \text{end}), \qquad h_t = \text{GRU}_y(y_{t-1}, h_{t-1}), \qquad
p(y_t \mid y_{<t}, x) = \text{softmax}(W h_t + b).$$

K. Park and J. Kim trained the weights on CMUdict, https://github.com/Kyubyong/g2p (Apache-2.0).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor, nn

from reproduction.pronunciation.words import END, GRAPHEMES, LONGEST, PHONEMES, START, weights


class Pronouncer(nn.Module):
    """From words, (batch, letters), to the distribution over their pronunciations."""

    def __init__(self, width: int = 256) -> None:
        super().__init__()
        self.letters = nn.Embedding(len(GRAPHEMES), width)
        self.encoder = nn.GRU(width, width, batch_first=True)
        self.phonemes = nn.Embedding(len(PHONEMES), width)
        self.decoder = nn.GRU(width, width, batch_first=True)
        self.readout = nn.Linear(width, len(PHONEMES))

    def forward(self, words: Tensor) -> Pronunciations:
        """Read the words, and return the distribution over their pronunciations."""
        states, _ = self.encoder(self.letters(words))
        last = (words != 0).sum(-1) - 1  # where the end is, before the padding
        return Pronunciations(self, states[torch.arange(len(words)), last].unsqueeze(1))


class Spoken(NamedTuple):
    """The state of the decoder of every beam, (words, beams, width), and its last phoneme, (words, beams)."""

    hidden: Tensor
    last: Tensor


@dataclass(frozen=True)
class Pronunciations:
    """The distribution over the pronunciations of some words, a :class:`swor.SequenceModel`."""

    network: Pronouncer
    hidden: Tensor  # (words, 1, width)
    length = LONGEST
    end = END

    def start(self) -> Spoken:
        """Return one empty pronunciation per word."""
        nothing = torch.full(self.hidden.shape[:2], START, device=self.hidden.device)
        return Spoken(self.hidden, nothing)

    def step(self, state: Spoken) -> tuple[Tensor, Spoken]:
        """Return log-probabilities of the next phoneme, (words, beams, phonemes)."""
        before, last = state.hidden.flatten(0, 1), state.last.flatten()
        going = (last != END).nonzero().squeeze(-1)  # what has ended stays as it is
        output = self._decode(last[going].unsqueeze(-1), before[going]).squeeze(1)
        hidden = before.index_copy(0, going, output).view_as(state.hidden)
        return self.network.readout(hidden).log_softmax(-1), Spoken(hidden, state.last)

    def select(self, state: Spoken, parents: Tensor, symbols: Tensor) -> Spoken:
        """Append a phoneme to the beams ``parents``."""
        index = parents.unsqueeze(-1).expand(*parents.shape, state.hidden.shape[-1])
        return Spoken(state.hidden.gather(1, index), symbols)

    def log_prob(self, value: Tensor) -> Tensor:
        """Return log-probabilities of pronunciations (words, k, length), all steps at once, with gradient."""
        words, k, _ = value.shape
        before = (value == END).cumsum(-1) - (value == END).long()  # ends that came earlier
        steps = int((before == 0).sum(-1).max())
        value, spoken = value[..., :steps], before[..., :steps] == 0
        inputs = torch.cat([torch.full_like(value[..., :1], START), value[..., :-1]], -1)
        hidden = self.hidden.expand(words, k, -1).flatten(0, 1)
        output = self._decode(inputs.flatten(0, 1), hidden).view(words, k, steps, -1)
        log_probs = self.network.readout(output).log_softmax(-1)
        chosen = log_probs.gather(-1, value.unsqueeze(-1)).squeeze(-1)
        return torch.where(spoken, chosen, 0.0).sum(-1)

    def _decode(self, inputs: Tensor, hidden: Tensor) -> Tensor:
        """From phonemes, (sequences, steps), and states to later states, (sequences, steps, width)."""
        read = self.network.phonemes(inputs)
        output: Tensor = self.network.decoder(read, hidden.unsqueeze(0).contiguous())[0]
        return output


def trained_pronouncer() -> Pronouncer:
    """Return the network with the weights of g2p-en."""
    theirs, model = weights(), Pronouncer()
    names = {"letters.weight": "enc_emb", "phonemes.weight": "dec_emb"}
    names |= {"readout.weight": "fc_w", "readout.bias": "fc_b"}
    for part, short in (("encoder", "enc"), ("decoder", "dec")):
        for kind in ("w_ih", "w_hh", "b_ih", "b_hh"):
            long = kind.replace("w_", "weight_").replace("b_", "bias_")
            names[f"{part}.{long}_l0"] = f"{short}_{kind}"
    model.load_state_dict({ours: torch.from_numpy(theirs[name]) for ours, name in names.items()})
    return model
