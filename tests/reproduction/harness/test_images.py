"""Data sets of images: read, downloaded, checked; whatever is wrong with a file, it is named."""

from __future__ import annotations

import gzip
import hashlib
import os
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import numpy as np
import pytest
import torch

from reproduction.harness import images
from reproduction.harness.errors import UserError
from reproduction.harness.images import load

REAL = os.environ.get(images.VARIABLE)
RECORDS = {"train": 30, "valid": 10, "test": 10}


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *message: object) -> None:
        """Nothing."""


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A public home with small files in the published formats, and a cache of its own."""
    folder = tmp_path / "home"
    folder.mkdir()
    generator = np.random.default_rng(0)
    for name, records in (("train-images-idx3-ubyte.gz", 5010), ("t10k-images-idx3-ubyte.gz", 7)):
        pixels = generator.integers(0, 256, (records, 784), dtype=np.uint8)
        (folder / name).write_bytes(gzip.compress(bytes(16) + pixels.tobytes()))
    for split, records in RECORDS.items():
        bits = generator.integers(0, 2, (records, 784), dtype=np.uint8)
        np.savetxt(folder / f"binarized_mnist_{split}.amat", bits, fmt="%d")
    for names in (images.MNIST, images.BINARIZED):
        for name in names:
            digest = hashlib.sha256((folder / name).read_bytes()).hexdigest()
            monkeypatch.setitem(names, name, digest)
    monkeypatch.delenv(images.VARIABLE, raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    with ThreadingHTTPServer(("localhost", 0), partial(Quiet, directory=folder)) as server:
        for home in ("MNIST_HOME", "BINARIZED_HOME"):
            monkeypatch.setattr(images, home, f"http://localhost:{server.server_port}")
        Thread(target=server.serve_forever, daemon=True).start()
        yield folder
        server.shutdown()


def pixels(home: Path) -> torch.Tensor:
    content = gzip.decompress((home / "train-images-idx3-ubyte.gz").read_bytes())
    grey = np.frombuffer(content, np.uint8, offset=16).reshape(-1, 784)
    return torch.from_numpy((grey / 255 > 0.5).astype(np.uint8))


def test_digits_come_with_the_library() -> None:
    found = load("digits")
    assert [len(s) for s in (found.train, found.valid, found.test)] == [1400, 197, 200]
    assert found.train.dtype == torch.uint8
    assert found.train.unique().tolist() == [0, 1]


@pytest.mark.parametrize("way", ["folder", "variable", "download"])
def test_mnist_is_thresholded_and_split(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    if way == "variable":
        monkeypatch.setenv(images.VARIABLE, str(home))
    found, expected = load("mnist", home if way == "folder" else None), pixels(home)
    assert torch.equal(found.valid, expected[:5000])
    assert torch.equal(found.train, expected[5000:])
    assert len(found.test) == 7
    assert (tmp_path / "cache" / "swor").exists() == (way == "download")


def test_a_download_is_used_again(home: Path) -> None:
    first = [load("mnist"), load("binarized-mnist")]
    for file in home.iterdir():
        file.unlink()
    for before, name in zip(first, ("mnist", "binarized-mnist"), strict=True):
        assert torch.equal(load(name).train, before.train)


def test_binarized_mnist_is_read_from_text_and_from_packed_bits(home: Path, tmp_path: Path) -> None:
    found = load("binarized-mnist", home)
    text = np.loadtxt(home / "binarized_mnist_train.amat", dtype=np.uint8)
    assert torch.equal(found.train, torch.from_numpy(text))
    splits = {s: np.packbits(getattr(found, s).numpy(), axis=1) for s in RECORDS}
    np.savez_compressed(tmp_path / images.PACKED, **splits)
    packed = load("binarized-mnist", tmp_path)
    for split in RECORDS:
        assert torch.equal(getattr(packed, split), getattr(found, split))
    content = (tmp_path / images.PACKED).read_bytes()
    for damaged in (b"", content[:500], content[:300] + b"x" + content[301:]):
        (tmp_path / images.PACKED).write_bytes(damaged)
        with pytest.raises(UserError, match=rf"{images.PACKED} cannot be read"):
            load("binarized-mnist", tmp_path)


@pytest.mark.parametrize("damage", ["missing", "truncated", "altered"])
@pytest.mark.parametrize(
    ("name", "file"),
    [("mnist", "train-images-idx3-ubyte.gz"), ("binarized-mnist", "binarized_mnist_valid.amat")],
)
def test_a_damaged_file_is_downloaded_again_or_named(
    home: Path, tmp_path: Path, damage: str, name: images.Name, file: str
) -> None:
    before = load(name).train
    content, cached = (home / file).read_bytes(), tmp_path / "cache" / "swor" / file

    def harm(path: Path) -> None:
        middle = len(content) // 2
        altered = content[:middle] + bytes([content[middle] ^ 1]) + content[middle + 1 :]
        path.write_bytes(altered if damage == "altered" else content[:middle])
        if damage == "missing":
            path.unlink()

    harm(cached)
    assert torch.equal(load(name).train, before)
    harm(home / file)
    harm(cached)
    with pytest.raises(UserError, match=rf"{file} is missing or damaged.*--data-dir"):
        load(name)


def test_a_missing_folder_is_named(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"there is no folder .*nowhere.*--data-dir"):
        load("mnist", tmp_path / "nowhere")


@pytest.mark.skipif(REAL is None, reason="SWOR_DATA names no folder")
@pytest.mark.parametrize(
    ("name", "sizes"), [("mnist", (55000, 5000, 10000)), ("binarized-mnist", (50000, 10000, 10000))]
)
def test_the_real_files(name: images.Name, sizes: tuple[int, ...]) -> None:
    found = load(name, Path(str(REAL)))
    assert (len(found.train), len(found.valid), len(found.test)) == sizes
    assert 0.12 < float(found.train.float().mean()) < 0.14


def test_packed_bits_that_are_a_single_number_are_named(tmp_path: Path) -> None:
    np.savez(tmp_path / images.PACKED, **dict.fromkeys(("train", "valid", "test"), np.array(3.0)))
    with pytest.raises(UserError, match=rf"{images.PACKED} cannot be read"):
        load("binarized-mnist", tmp_path)
