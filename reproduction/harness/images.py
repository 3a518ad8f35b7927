"""Binary images: scikit-learn's digits, thresholded MNIST and the standard binarised MNIST."""

from __future__ import annotations

import gzip
import zipfile
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import torch
from torch import Tensor

from reproduction.harness.downloads import cache, data_folder, download, fetch, read, require
from reproduction.harness.errors import UserError
from reproduction.harness.folder import replacing

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Bytes = NDArray[np.uint8]

Name = Literal["digits", "mnist", "binarized-mnist"]

MNIST_HOME = "https://ossci-datasets.s3.amazonaws.com/mnist/"
MNIST = {
    "train-images-idx3-ubyte.gz": "440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609",
    "t10k-images-idx3-ubyte.gz": "8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6",
}
BINARIZED_HOME = "http://www.cs.toronto.edu/~larocheh/public/datasets/binarized_mnist/"
BINARIZED_FILE = "binarized_mnist_packed.npz"
BINARIZED = {  # of the pixels, eight to a byte: the same whatever file they come from
    "train": "727146c35424b019f3e350e1e69faa05644a0abaf787e3f4e1a9632220a13906",
    "valid": "a256ac44ae26be720fad8616a05ed6ecfd1619930d9a208379bb2a4405df5b6d",
    "test": "9fcd8da6f0fdf09b2ba30fe63a0bb784042a0de82563172530229b983e294ff2",
}


UNREADABLE = (
    *(EOFError, KeyError, NotImplementedError, OSError, RuntimeError, ValueError),
    *(zipfile.BadZipFile, zlib.error),
)
"""Errors that reading a damaged archive of arrays raises."""


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
    """Read a data set.

    Args:
        name: ``digits`` (8×8, comes with scikit-learn), ``mnist`` (28×28, pixels above one half;
            the first 5 000 training images are for validation), or ``binarized-mnist`` (the fixed
            binarisation of Salakhutdinov and Murray 2008).
        folder: where the files are: as published, or for the last also as the file
            ``binarized_mnist_packed.npz`` (arrays ``train``, ``valid``, ``test``, rows of packed
            bits). None for the folder that the environment variable SWOR_DATA names, or else a
            cache, into which missing files are downloaded.
    """
    if name == "digits":
        return _digits()
    given = data_folder(folder)
    return _mnist(given) if name == "mnist" else _binarized(given)


def _digits() -> Images:
    from sklearn.datasets import load_digits

    grey = torch.as_tensor(load_digits().data)
    # The records are ordered by writer: mix them, always in the same way.
    order = torch.randperm(len(grey), generator=torch.Generator().manual_seed(0))
    binary = (grey / 16 > 0.5).to(torch.uint8)[order]
    return Images(binary[:1400], binary[1400:1597], binary[1597:], (8, 8))


def _mnist(folder: Path | None) -> Images:
    train, test = (_thresholded(_mnist_file(name, folder)) for name in MNIST)
    return Images(train[5000:], train[:5000], test, (28, 28))


def _mnist_file(name: str, folder: Path | None) -> bytes:
    path = (folder or cache()) / name
    if folder is None and not path.exists():
        return fetch(MNIST_HOME + name, path, MNIST[name])
    return read(path, MNIST_HOME + name, MNIST[name])


def _thresholded(file: bytes) -> Tensor:
    """Read a gzipped IDX file, which has 16 bytes of header and a byte per pixel; (records, 784)."""
    import numpy as np

    pixels = np.frombuffer(gzip.decompress(file), dtype=np.uint8, offset=16)
    return torch.from_numpy((pixels.reshape(-1, 784) > 127).astype(np.uint8))


def _binarized(folder: Path | None) -> Images:
    import numpy as np

    path = (folder or cache()) / BINARIZED_FILE
    packed = _read_packed(path) if path.exists() else _from_text(path, folder)
    train, valid, test = (torch.from_numpy(np.unpackbits(packed[s], axis=1)) for s in BINARIZED)
    return Images(train, valid, test, (28, 28))


def _read_packed(path: Path) -> Mapping[str, Bytes]:
    import numpy as np

    try:
        with np.load(BytesIO(path.read_bytes()), allow_pickle=False) as file:
            packed = {split: file[split] for split in BINARIZED}
    except UNREADABLE as error:
        raise UserError(
            f"{path} cannot be read ({error}); expected arrays train, valid and test. It is "
            f"truncated or altered: remove it and get the files at {BINARIZED_HOME}."
        ) from error
    for split, sha256 in BINARIZED.items():
        cure = f"Remove it and get the files at {BINARIZED_HOME}."
        require(packed[split].tobytes(), sha256, f"the array {split} of {path}", cure)
    return packed


def _from_text(path: Path, folder: Path | None) -> Mapping[str, Bytes]:
    """Read the published text files from the folder, or download, check, pack and keep them."""
    import numpy as np

    packed = {split: _pack(split, sha256, folder) for split, sha256 in BINARIZED.items()}
    if folder is None:
        with replacing(path) as draft:
            np.savez_compressed(
                draft, train=packed["train"], valid=packed["valid"], test=packed["test"]
            )
    return packed


def _pack(split: str, sha256: str, folder: Path | None) -> Bytes:
    import numpy as np

    name = f"binarized_mnist_{split}.amat"
    url = BINARIZED_HOME + name
    text = np.frombuffer(download(url) if folder is None else read(folder / name, url), np.uint8)
    bits = text[(text == ord("0")) | (text == ord("1"))] - ord("0")
    packed: Bytes = np.packbits(bits[: bits.size // 784 * 784].reshape(-1, 784), axis=1)
    source = url if folder is None else str(folder / name)
    require(packed.tobytes(), sha256, f"the content of {source}", f"Get it again from {url}.")
    return packed
