"""A `vllm serve` with the processor, on this machine."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.request import urlopen

from swor.integrations.vllm.engine import LOGPROBS, PROCESSOR


@contextmanager
def serving(model: Path, log: Path, *more: str) -> Iterator[str]:
    """The address of a server of a model, in float32."""
    with socket.socket() as free:
        free.bind(("localhost", 0))
        port = free.getsockname()[1]
    small = "--max-model-len 64 --max-num-seqs 64 --kv-cache-memory-bytes 67108864"
    flags = f"--dtype float32 --enforce-eager {small} --port {port}"
    ours = f"--logits-processors {PROCESSOR} --logprobs-mode {LOGPROBS}"
    command = [sys.executable, "-m", "vllm.entrypoints.openai.api_server", "--model", str(model)]
    command += [*flags.split(), *ours.split(), *more]
    environment = os.environ | {"VLLM_SERVER_DEV_MODE": "1"}  # which can forget its cache
    for name in ("RANK", "LOCAL_RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"):
        environment.pop(name, None)  # of an engine in this process
    url = f"http://localhost:{port}"
    with (
        open(log, "w") as output,
        subprocess.Popen(command, stdout=output, stderr=output, env=environment) as run,
    ):
        try:
            while not _answers(url):
                assert run.poll() is None, log.read_text()[-3000:]
                time.sleep(1)
            yield url
        finally:
            run.terminate()


def _answers(url: str) -> bool:
    try:
        with urlopen(f"{url}/health"):
            return True
    except OSError:
        return False
