"""The classes that the engine loads: a logits processor for both model runners, and calls to workers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from vllm.v1.sample.logits_processor import AdapterLogitsProcessor
from vllm.v1.worker.gpu.sample.logits_processor.interface import (
    LogitsProcessor,
    LogitsProcRequestState,
)

from swor.integrations.vllm._trees import TREES, Completion, Request

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor
    from vllm import SamplingParams
    from vllm.v1.worker.gpu.sample.logits_processor.interface import LogitsContext

ARGUMENT = "swor"  # of SamplingParams.extra_args; requests without it are left alone


class DistinctProcessor(AdapterLogitsProcessor, LogitsProcessor):  # type: ignore[misc]
    """A logits processor that leaves out the completions that were drawn before.

    Which of the two model runners an engine uses depends on its model and its platform, so that this
    class has the interfaces of both: V1 gives it the tokens of a request as a list that grows, V2 the
    layout of the batch in every step.
    """

    def __init__(self, vllm_config: Any, state: Any, is_pin_memory: bool = False) -> None:
        self.is_v2 = isinstance(state, LogitsProcRequestState)
        if self.is_v2:
            self.states: LogitsProcRequestState = state
            self.slots: dict[int, Request] = {}
        else:
            AdapterLogitsProcessor.__init__(self, vllm_config, state, is_pin_memory)

    @classmethod
    def validate_params(cls, sampling_params: SamplingParams) -> None:
        """Refuse settings that would change the logits after they were processed."""
        if _settings(sampling_params) is None:
            return
        changed = {
            "temperature": sampling_params.temperature != 1.0,
            "top_p": sampling_params.top_p != 1.0,
            "top_k": sampling_params.top_k not in (-1, 0),
            "min_p": sampling_params.min_p != 0.0,
            "presence_penalty": sampling_params.presence_penalty != 0.0,
            "frequency_penalty": sampling_params.frequency_penalty != 0.0,
            "repetition_penalty": sampling_params.repetition_penalty != 1.0,
        }
        if any(changed.values()):
            names = ", ".join(name for name, given in changed.items() if given)
            raise ValueError(
                f"the sampling parameters change {names}; expected the engine's defaults. Give the "
                "temperature and top_k to swor.integrations.vllm instead."
            )

    def is_argmax_invariant(self) -> bool:
        """Return False: the most probable token may have no mass left."""
        return False

    def new_req_logits_processor(
        self, params: SamplingParams
    ) -> Callable[[list[int], Tensor], Tensor] | None:
        """Return, for V1, the function that processes the logits of a request; None for other requests."""
        settings = _settings(params)
        if settings is None:
            return None
        request = TREES.request(settings)

        def process(tokens: list[int], logits: Tensor) -> Tensor:
            return request.process(len(tokens), tokens[-1] if tokens else 0, logits)

        return process

    def add_request(self, req_idx: int, sampling_params: SamplingParams) -> bool:
        """Keep, for V2, the request in a slot of the batch, and return whether it is one of ours."""
        self.slots.pop(req_idx, None)
        settings = _settings(sampling_params)
        if settings is not None:
            self.slots[req_idx] = TREES.request(settings)
        return settings is not None

    def apply(self, logits: Tensor, ctx: LogitsContext | None = None) -> Tensor:
        """Process the logits of all requests of a step, (rows, symbols)."""
        if ctx is None:
            AdapterLogitsProcessor.apply(self, logits)  # in place
            return logits
        rows = [
            (row, slot)
            for row, slot in enumerate(ctx.idx_mapping_np.tolist())
            if slot in self.slots
        ]
        if rows:
            last = ctx.input_ids.tolist()  # the input of the model is the last token
            for row, slot in rows:
                prompt = int(self.states.prompt_len.np[slot])
                count = max(int(ctx.seq_lens_upper_bound_np[row]) - prompt, 0)
                logits[row] = self.slots[slot].process(count, last[row], logits[row])
        return logits


class TreeWorker:
    """Calls to the workers of an engine; vLLM adds them to its own worker class."""

    def swor_finish(self, drawn: list[tuple[str, int, list[int]]]) -> list[Completion | None]:
        """Mark completions as drawn: the tree, the number of the draw, and the tokens of each."""
        return [TREES.finish(*completion) for completion in drawn]

    def swor_forget(self, names: list[str]) -> None:
        """Drop trees."""
        TREES.forget(names)


def _settings(params: SamplingParams) -> dict[str, Any] | None:
    settings: dict[str, Any] | None = (params.extra_args or {}).get(ARGUMENT)
    return settings
