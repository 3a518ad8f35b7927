"""A server of vLLM is asked, by a probe, whether it leaves out what was drawn."""

from __future__ import annotations

import math
from typing import Any

import pytest

from swor.integrations.vllm.server import Server


def answers(log_probs: list[float]) -> Any:
    """The answers of a server whose two likeliest tokens have these log-probabilities."""

    def answer(self: Server, path: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
        if body is None:
            return {"data": [{"id": "a model"}]}
        assert body["vllm_xargs"] == {"swor_taken": [], "swor_temperature": 1.0, "swor_top_k": 0}
        top = {f"token_id:{i}": x for i, x in enumerate(log_probs)}
        return {"choices": [{"logprobs": {"top_logprobs": [top]}}]}

    return answer


def test_a_server_with_the_processor(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Server, "_answer", answers([-math.log(2.0)] * 2))
    assert Server("http://localhost:8000/").model == "a model"


def test_a_server_without_it_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Server, "_answer", answers([-0.1, -3.0]))
    with pytest.raises(ValueError, match=r"expected two of -log 2.*--logits-processors"):
        Server("http://localhost:8000")
