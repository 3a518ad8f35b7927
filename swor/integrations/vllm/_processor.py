"""The class that the engine loads: a logits processor for both of vLLM's model runners."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from vllm.v1.sample.logits_processor import BatchUpdate, LogitsProcessor
from vllm.v1.sample.logits_processor.builtin import process_dict_updates

from swor.integrations.vllm._rows import TOP_K, TREE, Request, Walk, process, request_of

try:
    from vllm.v1.worker.gpu.sample.logits_processor import interface
except ImportError:  # engines before 0.31 have no such interface
    interface = None

if TYPE_CHECKING:
    from torch import Tensor
    from vllm import SamplingParams

BASES: tuple[type, ...] = (LogitsProcessor, *([interface.LogitsProcessor] if interface else []))


class DistinctProcessor(*BASES):  # type: ignore[misc]
    """A logits processor that leaves out the completions that a request names.

    Which of the two model runners an engine uses depends on its model and its platform, so that this
    class has the interfaces of both: V1 gives it the tokens of a request as a list that grows, V2 the
    layout of the batch in every step. Requests without our arguments are not touched, and one without top_k
    is dropped after its first token that no draw has taken.
    """

    def __init__(self, vllm_config: Any, state: Any, is_pin_memory: bool = False) -> None:
        self.states = state  # of model runner V2; the device otherwise
        self.requests: dict[int, tuple[Request, list[int]]] = {}  # by row, or by slot of the batch

    @classmethod
    def validate_params(cls, sampling_params: SamplingParams) -> None:
        """Refuse settings that would change the logits after they were processed."""
        if TREE not in (sampling_params.extra_args or {}):
            return
        changed = {
            "temperature": sampling_params.temperature == 0.0,
            "top_p": sampling_params.top_p != 1.0,
            "top_k": sampling_params.top_k > 0,
            "min_p": sampling_params.min_p != 0.0,
            "presence_penalty": sampling_params.presence_penalty != 0.0,
            "frequency_penalty": sampling_params.frequency_penalty != 0.0,
            "repetition_penalty": sampling_params.repetition_penalty != 1.0,
        }
        if any(changed.values()):
            names = ", ".join(name for name, given in changed.items() if given)
            raise ValueError(
                f"the sampling parameters change {names}; expected the engine's defaults, apart from a "
                f"temperature that is not 0. Give top_k as {TOP_K} in extra_args."
            )

    def is_argmax_invariant(self) -> bool:
        """Return False: the most probable token may have no mass left."""
        return False

    def update_state(self, batch_update: BatchUpdate | None) -> None:
        """Follow, for V1, the requests to their rows of the batch."""
        process_dict_updates(self.requests, batch_update, _new_request)

    def add_request(self, req_idx: int, sampling_params: SamplingParams) -> bool:
        """Keep, for V2, the request in a slot of the batch, and return whether it is one of ours."""
        self.requests.pop(req_idx, None)
        new = _new_request(sampling_params, None, [])
        if new is not None:
            self.requests[req_idx] = new
        return new is not None

    def apply(self, logits: Tensor, ctx: Any = None) -> Tensor:
        """Process the logits of all requests of a step, (rows, symbols)."""
        if self.requests:
            row_of = self._rows(ctx)
            if ctx is not None:
                self._read_tokens(ctx, row_of)
            present = [slot for slot in self.requests if slot in row_of]
            active = [slot for slot in present if self._goes_on(slot)]
            process(logits, [(row_of[slot], self.requests[slot][0]) for slot in active])
            for slot in set(present) - set(active):
                del self.requests[slot]
        return logits

    def _rows(self, ctx: Any) -> dict[int, int]:
        """Return the rows of the requests of this step."""
        if ctx is None:
            return {row: row for row in self.requests}
        return {slot: row for row, slot in enumerate(ctx.idx_mapping_np.tolist())}

    def _read_tokens(self, ctx: Any, row_of: dict[int, int]) -> None:
        """Add, for V2, the tokens that were generated since the last step."""
        ours = [(slot, row_of[slot]) for slot in self.requests if slot in row_of]
        last = ctx.input_ids.tolist() if ours else []  # the input of the model is the last token
        for slot, row in ours:
            tokens, prompt = self.requests[slot][1], int(self.states.prompt_len.np[slot])
            count = max(int(ctx.seq_lens_upper_bound_np[row]) - prompt, 0)
            if count == len(tokens) + 1:
                tokens.append(last[row])
            elif count != len(tokens):  # a request that was preempted starts again with its tokens
                whole = self.states.all_token_ids.gpu[slot, prompt : prompt + count]
                tokens[:] = whole.tolist()

    def _goes_on(self, slot: int) -> bool:
        """Return whether the logits of a request have to change, after all its tokens."""
        request, tokens = self.requests[slot]
        return not isinstance(request, Walk) or request.follow(tokens[request.length :])


def _new_request(
    params: SamplingParams, prompt: list[int] | None, tokens: list[int]
) -> tuple[Request, list[int]] | None:
    request = request_of(params.extra_args, params.temperature)
    return None if request is None else (request, tokens)
