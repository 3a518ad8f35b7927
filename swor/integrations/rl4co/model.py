"""A policy of rl4co and its instances, as a :class:`swor.SequenceModel`."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F
from torch import Tensor

from swor.integrations.rl4co._checks import check_env, check_instances, first_actions
from swor.integrations.rl4co._decoding import Decoder, from_rows, rows_of, to_rows
from swor.samplers.sequence_model import extend

if TYPE_CHECKING:
    from rl4co.envs import RL4COEnvBase
    from rl4co.models import ConstructivePolicy
    from tensordict import TensorDict


@dataclass(frozen=True)
class PartialSolutions:
    """A number of beams per instance, with the state of the environment of each.

    Attributes:
        td: the environment, with a row for every beam of every instance.
        complete: whether a solution is complete, (batch, beams).
        log_p: (batch, beams), with gradient.
        symbols: the actions so far, and END after complete solutions, (batch, beams, steps).
        actions: the same as the environment took them, which goes on after a solution is complete.
        log_probs: of the next symbol, with gradient, (batch, beams, actions + 1); None before a step.
    """

    td: TensorDict
    complete: Tensor
    log_p: Tensor
    symbols: Tensor
    actions: Tensor
    log_probs: Tensor | None = None


class SolutionModel:
    """The distribution of a policy over the solutions of instances, a :class:`swor.SequenceModel`.

    The symbols are the actions of the environment and one more, END, which follows a complete
    solution with certainty. So solutions may have different lengths, and a complete one stays as it
    is. The encoder runs once, when the model is made. The decoder runs once per step, with gradient
    if the model was made with gradient, also within a search: the log-probabilities of the solutions
    that a search finds can be differentiated without a second pass.

    Args:
        policy: any constructive policy of rl4co; its temperature, clipping and masking apply.
        env: the environment.
        td: instances, as ``env.reset`` returns them, (batch,).
        start: the first action of all solutions, a number or (batch,); None lets the policy choose.
            Rotations of a tour are different solutions, unless the start is given.
        max_steps: the largest number of actions of a solution; None for four times the largest
            dimension of an instance, which is more than rl4co's environments take.

    Attributes:
        length: the largest number of symbols.
        end: the symbol END.
    """

    length: int
    end: int

    def __init__(
        self,
        policy: ConstructivePolicy,
        env: RL4COEnvBase,
        td: TensorDict,
        *,
        start: int | Tensor | None = None,
        max_steps: int | None = None,
    ) -> None:
        check_env(env)
        check_instances(td)
        self.env, self.td = env, td
        self.batch, self.end = td["action_mask"].shape
        self.length = 1 + (_many_steps(td) if max_steps is None else max_steps)
        self._first = None if start is None else first_actions(start, td["action_mask"])
        self._gradient = torch.is_grad_enabled()
        self._decoder = Decoder(policy, env, td)
        self._only_end = self._certain(torch.tensor(self.end, device=td["action_mask"].device))
        self._last: PartialSolutions | None = None

    def start(self) -> PartialSolutions:
        """Return one empty solution per instance."""
        one = torch.zeros(self.batch, 1, device=self.td["action_mask"].device)
        nothing = one.long().unsqueeze(-1)[..., :0]
        return PartialSolutions(self.td, one.bool(), one, nothing, nothing)

    def step(self, state: PartialSolutions) -> tuple[Tensor, PartialSolutions]:
        """Return the log-probabilities of the next action, or END, (batch, beams, actions + 1)."""
        with torch.set_grad_enabled(self._gradient):
            log_probs = self._log_probs(state)
        self._last = replace(state, log_probs=log_probs)
        return log_probs.detach(), self._last

    def _log_probs(self, state: PartialSolutions) -> Tensor:
        if self._first is not None and not state.symbols.shape[-1]:
            return self._certain(self._first).unsqueeze(1)
        if bool(state.complete.all()):
            return self._only_end.expand(*state.complete.shape, -1)
        log_probs = F.pad(self._decoder(state.td, state.complete), (0, 1), value=-torch.inf)
        return torch.where(state.complete.unsqueeze(-1), self._only_end, log_probs)

    def _certain(self, symbol: Tensor) -> Tensor:
        """Return log-probabilities that give a symbol the probability 1, (*symbol.shape, actions + 1)."""
        symbols = torch.arange(self.end + 1, device=symbol.device)
        zero = torch.zeros((), dtype=self._decoder.dtype, device=symbol.device)
        return torch.where(symbols == symbol.unsqueeze(-1), zero, -torch.inf)

    def select(self, state: PartialSolutions, parents: Tensor, symbols: Tensor) -> PartialSolutions:
        """Return the beams ``parents``, (batch, beams), each extended by its symbol."""
        if state.log_probs is None:
            raise ValueError("the state has no log-probabilities; expected one that step returned.")
        with torch.set_grad_enabled(self._gradient):
            index = parents * (self.end + 1) + symbols
            log_p = state.log_probs.flatten(1).gather(-1, index) + state.log_p.gather(-1, parents)
        td = state.td[rows_of(parents)]
        # A search may keep impossible beams, where there are not enough others: they stop as well.
        stopped = state.complete.gather(-1, parents) | (log_p == -torch.inf)
        actions = self._replace(symbols, stopped, td)
        td.set("action", to_rows(actions))
        td = self.env.step(td)["next"]
        done = from_rows(td["done"].reshape(len(td), -1).all(-1), self.batch)
        return PartialSolutions(
            td=td,
            complete=stopped | done,
            log_p=log_p,
            symbols=extend(state.symbols, parents, symbols),
            actions=extend(state.actions, parents, actions),
        )

    def _replace(self, symbols: Tensor, stopped: Tensor, td: TensorDict) -> Tensor:
        """Replace the symbols of stopped beams by actions that the environment allows."""
        if not bool(stopped.any()):
            return symbols
        allowed = from_rows(td["action_mask"], self.batch).to(torch.uint8).argmax(-1)
        return torch.where(stopped, allowed, symbols)

    def log_prob(self, value: Tensor) -> Tensor:
        """Return the log-probabilities of solutions, (batch, k), from their symbols, (batch, k, steps)."""
        return self.after(value).log_p

    def after(self, value: Tensor) -> PartialSolutions:
        """Return the complete solutions with these symbols, (batch, k, steps): the last ones, or new ones."""
        last = self._last
        if last is None or not _same(last.symbols, value, self.end):
            last = self._follow(value)
        if not bool(last.complete.all()):
            steps = min(last.symbols.shape[-1], self.length - 1)
            raise ValueError(
                f"a solution is not complete after {steps} actions; expected the environment to say "
                "that it is done. Give a larger max_steps."
            )
        return last

    def _follow(self, value: Tensor) -> PartialSolutions:
        state = self.start()
        beams = torch.arange(value.shape[1], device=value.device).expand(value.shape[:2])
        for t in range(value.shape[-1]):
            _, state = self.step(state)
            if bool(state.complete.all()):
                break
            state = self.select(state, beams if t else torch.zeros_like(beams), value[..., t])
        return state

    def reward(self, state: PartialSolutions) -> Tensor:
        """Return the rewards of complete solutions, (batch, beams)."""
        reward: Tensor = self.env.get_reward(state.td, to_rows(state.actions))
        return from_rows(reward.reshape(len(state.td)), self.batch)


def _many_steps(td: TensorDict) -> int:
    """Return more steps than a solution takes; it visits everything once and may return or wait."""
    sizes: list[int] = [size for entry in td.values() for size in entry.shape[1:]]
    return 4 * max(sizes)


def _same(symbols: Tensor, value: Tensor, end: int) -> bool:
    """Return whether solutions are equal except for the END symbols after them."""
    steps = symbols.shape[-1]
    return torch.equal(symbols, value[..., :steps]) and bool((value[..., steps:] == end).all())
