"""Data sets of images: read, downloaded, checked; whatever is wrong with a file, it is named."""

from __future__ import annotations

import gzip
import hashlib
import os
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread

import numpy as np
import pytest
import torch

from reproduction.harness import downloads, images
from reproduction.harness.errors import UserError
from reproduction.harness.images import load

RECORDS = {"train": 30, "valid": 10, "test": 10}


@pytest.fixture(autouse=True)
def no_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv(downloads.VARIABLE, raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A public home with small files in the published formats."""
    folder = tmp_path / "home"
    folder.mkdir()
    generator = np.random.default_rng(0)
    for name, records in (("train-images-idx3-ubyte.gz", 5010), ("t10k-images-idx3-ubyte.gz", 7)):
        pixels = generator.integers(0, 256, (records, 784), dtype=np.uint8)
        content = gzip.compress(bytes(16) + pixels.tobytes())
        (folder / name).write_bytes(content)
        monkeypatch.setitem(images.MNIST, name, hashlib.sha256(content).hexdigest())
    for split, records in RECORDS.items():
        bits = generator.integers(0, 2, (records, 784), dtype=np.uint8)
        np.savetxt(folder / f"binarized_mnist_{split}.amat", bits, fmt="%d")
        digest = hashlib.sha256(np.packbits(bits, axis=1).tobytes()).hexdigest()
        monkeypatch.setitem(images.BINARIZED, split, digest)
    monkeypatch.setattr(images, "MNIST_HOME", folder.as_uri() + "/")
    monkeypatch.setattr(images, "BINARIZED_HOME", folder.as_uri() + "/")
    return folder


def pixels(home: Path) -> np.ndarray:
    content = gzip.decompress((home / "train-images-idx3-ubyte.gz").read_bytes())
    return np.frombuffer(content, np.uint8, offset=16).reshape(-1, 784)


def test_digits_come_with_the_library() -> None:
    found = load("digits")
    assert [len(s) for s in (found.train, found.valid, found.test)] == [1400, 197, 200]
    assert found.train.dtype == torch.uint8
    assert found.train.unique().tolist() == [0, 1]


@pytest.mark.parametrize("way", ["folder", "variable", "download"])
def test_mnist_is_thresholded_and_split(
    home: Path, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    if way == "variable":
        monkeypatch.setenv(downloads.VARIABLE, str(home))
    found = load("mnist", home if way == "folder" else None)
    expected = torch.from_numpy((pixels(home) / 255 > 0.5).astype(np.uint8))
    assert torch.equal(found.valid, expected[:5000])
    assert torch.equal(found.train, expected[5000:])
    assert len(found.test) == 7
    cached = sorted(p.name for p in downloads.cache().iterdir()) if way == "download" else None
    assert cached in (None, sorted(images.MNIST))


def test_a_download_is_used_again(home: Path) -> None:
    first = [load("mnist"), load("binarized-mnist")]
    for file in home.iterdir():
        file.unlink()
    for before, name in zip(first, ("mnist", "binarized-mnist"), strict=True):
        assert torch.equal(load(name).train, before.train)


def test_binarized_mnist_is_read_from_text_and_packed(home: Path) -> None:
    found = load("binarized-mnist", home)
    text = np.loadtxt(home / "binarized_mnist_train.amat", dtype=np.uint8)
    assert torch.equal(found.train, torch.from_numpy(text))
    assert torch.equal(load("binarized-mnist").test, found.test)  # downloaded
    assert [p.name for p in downloads.cache().iterdir()] == [images.BINARIZED_FILE]


@pytest.mark.parametrize("damage", ["missing", "truncated", "altered", "empty"])
@pytest.mark.parametrize(
    ("name", "file"),
    [("mnist", "train-images-idx3-ubyte.gz"), ("binarized-mnist", "binarized_mnist_valid.amat")],
)
def test_a_damaged_file_is_named(home: Path, damage: str, name: images.Name, file: str) -> None:
    path = home / file
    content = path.read_bytes()
    if damage == "missing":
        path.unlink()
    elif damage == "altered":
        middle = len(content) // 2 // 2 * 2  # a digit in the text, not a space
        path.write_bytes(content[:middle] + bytes([content[middle] ^ 1]) + content[middle + 1 :])
    else:
        path.write_bytes(content[: len(content) // 2] if damage == "truncated" else b"")
    for folder in (home, None):
        with pytest.raises(UserError, match=rf"{file}.*(expected|Get)"):
            load(name, folder)
    kept = file if name == "mnist" else images.BINARIZED_FILE
    assert not downloads.cache().exists() or not any(downloads.cache().glob(kept))


def test_a_damaged_cache_is_not_used(home: Path) -> None:
    load("mnist"), load("binarized-mnist")
    for file in downloads.cache().iterdir():
        file.write_bytes(file.read_bytes()[:-100])
    with pytest.raises(UserError, match=r"truncated or altered.*Remove it and get it again"):
        load("mnist")
    with pytest.raises(UserError, match=r"binarized_mnist_packed\.npz cannot be read"):
        load("binarized-mnist")


def test_whatever_happens_to_the_packed_file_it_is_named(home: Path) -> None:
    whole = load("binarized-mnist").train
    path = downloads.cache() / images.BINARIZED_FILE
    content = path.read_bytes()
    damaged = [b"", content[:20]]
    for at in range(0, len(content), max(len(content) // 200, 1)):
        damaged.append(content[:at] + bytes([content[at] ^ 0x55]) + content[at + 1 :])
    named = 0
    for bad in damaged:
        path.write_bytes(bad)
        try:
            assert torch.equal(load("binarized-mnist").train, whole)  # a byte that nobody reads
        except UserError as error:
            assert images.BINARIZED_FILE in str(error)
            named += 1
    assert named > len(damaged) / 2


def test_a_download_that_is_cut_short_is_an_error() -> None:
    class Short(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Length", "1000")
            self.end_headers()
            self.wfile.write(b"only this")

        def log_message(self, *message: object) -> None:
            """Nothing."""

    with HTTPServer(("localhost", 0), Short) as server:
        Thread(target=server.handle_request, daemon=True).start()
        with pytest.raises(UserError, match=r"could not be downloaded .*IncompleteRead"):
            downloads.download(f"http://localhost:{server.server_port}/")


def test_altered_pixels_in_the_packed_file_are_noticed(home: Path) -> None:
    load("binarized-mnist")
    path = downloads.cache() / images.BINARIZED_FILE
    arrays = dict(np.load(path))
    arrays["test"][0, 0] ^= 1
    np.savez(path, **arrays)
    with pytest.raises(UserError, match=r"the array test of .* is truncated or altered"):
        load("binarized-mnist")


def test_a_write_that_fails_leaves_no_file(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(path: Path, content: bytes) -> int:
        with path.open("wb") as file:
            file.write(content[:10])
        raise OSError("no space left on device")

    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.raises(OSError, match="no space"):
        load("mnist")
    assert list(downloads.cache().iterdir()) == []


def test_a_missing_folder_is_named(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"there is no folder .*nowhere.*--data-dir"):
        load("mnist", tmp_path / "nowhere")


REAL = os.environ.get(downloads.VARIABLE)


@pytest.mark.skipif(REAL is None, reason="SWOR_DATA names no folder")
@pytest.mark.parametrize(
    ("name", "sizes"), [("mnist", (55000, 5000, 10000)), ("binarized-mnist", (50000, 10000, 10000))]
)
def test_the_real_files(name: images.Name, sizes: tuple[int, ...]) -> None:
    found = load(name, Path(str(REAL)))
    assert (len(found.train), len(found.valid), len(found.test)) == sizes
    assert 0.12 < float(found.train.float().mean()) < 0.14
