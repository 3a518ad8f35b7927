"""Binary images: scikit-learn's digits, thresholded MNIST and the standard binarised MNIST."""

from __future__ import annotations

import gzip
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
import pooch
import torch
from numpy.typing import NDArray
from torch import Tensor

from reproduction.harness.errors import UserError, readable

Name = Literal["digits", "mnist", "binarized-mnist"]

VARIABLE = "SWOR_DATA"
MNIST_HOME = "https://ossci-datasets.s3.amazonaws.com/mnist"
BINARIZED_HOME = "http://www.cs.toronto.edu/~larocheh/public/datasets/binarized_mnist"
MNIST = {
    "train-images-idx3-ubyte.gz": "440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609",
    "t10k-images-idx3-ubyte.gz": "8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6",
}
BINARIZED = {
    "binarized_mnist_train.amat": "ad693b29f94c14277b095f5238ddefbbdaaae0939789dd2f4f0205278cee3e4d",
    "binarized_mnist_valid.amat": "1de3d397c40fe8eeb33dafd4099a1f665ec01e96d9be234aaeeac8a34930e2e2",
    "binarized_mnist_test.amat": "e6687bfea3f820c174f33b7865140b2a2dd2930ef786f35d45795fc193b5ab2c",
}
"""The published files and their SHA-256."""

PACKED = "binarized_mnist_packed.npz"
"""The same pixels as in the text files, eight to a byte."""


@dataclass(frozen=True)
class Images:
    """Binary images as rows of bytes that are 0 or 1, (records, pixels), and their shape.

    >>> digits = load("digits")
    >>> digits.train.shape, digits.shape
    (torch.Size([1400, 64]), (8, 8))
    """

    train: Tensor
    valid: Tensor
    test: Tensor
    shape: tuple[int, int]


def load(name: Name, folder: Path | None = None) -> Images:
    """Read a data set, whose files are downloaded if they are missing or damaged.

    Args:
        name: ``digits`` (8×8, comes with scikit-learn), ``mnist`` (28×28, pixels above one half;
            the first 5 000 training images are for validation), or ``binarized-mnist`` (the fixed
            binarisation of Salakhutdinov and Murray 2008).
        folder: of the published files. None for the folder that the environment variable SWOR_DATA
            names, or else a cache. The text files of ``binarized-mnist`` can be given as
            ``binarized_mnist_packed.npz`` too: arrays ``train``, ``valid`` and ``test`` of packed bits.
    """
    if name == "digits":
        return _digits()
    folder = _data_folder(folder)
    return _mnist(folder) if name == "mnist" else _binarized(folder)


def _digits() -> Images:
    from sklearn.datasets import load_digits

    grey = torch.as_tensor(load_digits().data)
    # The records are ordered by writer: mix them, always in the same way.
    order = torch.randperm(len(grey), generator=torch.Generator().manual_seed(0))
    binary = (grey / 16 > 0.5).to(torch.uint8)[order]
    return Images(binary[:1400], binary[1400:1597], binary[1597:], (8, 8))


def _mnist(folder: Path) -> Images:
    """Read gzipped IDX files, which have 16 bytes of header and a byte per pixel."""
    contents = (gzip.decompress(_read(MNIST_HOME, name, folder)) for name in MNIST)
    grey = (np.frombuffer(content, np.uint8, offset=16) for content in contents)
    train, test = (_rows((pixels > 127).astype(np.uint8)) for pixels in grey)
    return Images(train[5000:], train[:5000], test, (28, 28))


def _binarized(folder: Path) -> Images:
    """Read text files of zeros, ones and spaces, or the packed bits of the same pixels."""
    if (folder / PACKED).exists():
        train, valid, test = _packed(folder / PACKED)
    else:
        texts = (_read(BINARIZED_HOME, name, folder) for name in BINARIZED)
        bytes_ = (np.frombuffer(text, np.uint8) for text in texts)
        train, valid, test = (_rows(text[text >= ord("0")] - ord("0")) for text in bytes_)
    return Images(train, valid, test, (28, 28))


def _packed(path: Path) -> list[Tensor]:
    expected = f"arrays train, valid and test, or the files at {BINARIZED_HOME} in its place"
    with (
        readable(path, expected, Exception),  # a damaged archive can raise almost anything
        path.open("rb") as file,
        np.load(file, allow_pickle=False) as arrays,
    ):
        return [_rows(np.unpackbits(arrays[split])) for split in ("train", "valid", "test")]


def _rows(pixels: NDArray[np.uint8]) -> Tensor:
    return torch.from_numpy(pixels.reshape(-1, 784))


def _read(home: str, name: str, folder: Path) -> bytes:
    """Read a published file from a folder, into which it is downloaded unless it is there and whole."""
    checksum = (MNIST | BINARIZED)[name]
    try:
        return Path(pooch.retrieve(f"{home}/{name}", checksum, name, folder)).read_bytes()
    except (OSError, ValueError) as error:  # no connection, no permission, or another content
        raise UserError(
            f"{folder / name} is missing or damaged, and {home}/{name} could not be downloaded "
            f"({error}); expected the published file. Check the connection, or get the file elsewhere "
            f"and name its folder with --data-dir or the environment variable {VARIABLE}."
        ) from error


def _data_folder(given: Path | None) -> Path:
    """Return the folder that was given, or that SWOR_DATA names, or else the cache of this user."""
    if given is None and not os.environ.get(VARIABLE):
        return Path(pooch.os_cache("swor"))
    folder = given or Path(os.environ[VARIABLE])
    if not folder.is_dir():
        raise UserError(
            f"there is no folder {folder}; expected one for the files of the data set. Correct "
            f"--data-dir or the environment variable {VARIABLE}, or leave out both."
        )
    return folder
