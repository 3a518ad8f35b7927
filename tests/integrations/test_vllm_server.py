"""A server of vLLM is asked, by a probe, whether it leaves out what was drawn."""

from __future__ import annotations

import math
from http.server import BaseHTTPRequestHandler, HTTPServer
from threading import Thread
from typing import Any

import pytest

from swor.integrations.vllm import DistinctCompletions, Server


def answers(log_probs: list[float]) -> Any:
    """The answers of a server whose two likeliest tokens have these log-probabilities."""

    def answer(self: Server, path: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
        if body is None:
            return {"data": [{"id": "a model"}]}
        assert body["return_tokens_as_token_ids"]  # for servers without a tokenizer
        assert body["vllm_xargs"] == {"swor_taken": [], "swor_temperature": 1.0, "swor_top_k": 0}
        top = {f"token_id:{i}": x for i, x in enumerate(log_probs)}
        return {"choices": [{"logprobs": {"top_logprobs": [top]}}]}

    return answer


def test_a_server_with_the_processor(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Server, "_answer", answers([-math.log(2.0)] * 2))
    server = Server("http://localhost:8000/", pad_token_id=3)
    assert server.model == "a model"
    assert DistinctCompletions(server, [[1]], max_new_tokens=2).pad == 3


def test_a_server_without_it_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Server, "_answer", answers([-0.1, -3.0]))
    with pytest.raises(ValueError, match=r"expected two of -log 2.*--logits-processors"):
        Server("http://localhost:8000")


def test_what_a_server_says_is_repeated() -> None:
    """An older server of TRL, say, which has other addresses."""

    class Other(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_error(404, "Not Found")

        def log_message(self, *_: object) -> None:
            pass

    with HTTPServer(("localhost", 0), Other) as server:
        Thread(target=server.handle_request, daemon=True).start()
        with pytest.raises(
            ValueError, match=r"answers /v1/models with 404 .* start `vllm serve` with"
        ):
            Server(f"http://localhost:{server.server_port}")


@pytest.mark.parametrize("url", ["http://127.0.0.1:1", "localhost:8000"])
def test_a_server_that_does_not_answer_is_named(url: str) -> None:
    with pytest.raises(ConnectionError, match="no server answers at"):
        Server(url)
