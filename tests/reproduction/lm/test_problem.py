"""Sorting digits: the reward of completions."""

import torch

from reproduction.lm.problem import Sorting


def test_the_reward_is_that_of_sorted_digits_and_the_end():
    problem = Sorting(digits=3, base=5)
    prompts = torch.tensor([[4, 0, 4, problem.separator]])
    value = torch.tensor([[[0, 4, 4, 6], [0, 4, 4, 1], [6, 6, 6, 6], [4, 0, 4, 6]]])
    assert problem.reward(prompts, value).tolist() == [[1.0, 0.75, 0.25, 0.5]]
    assert problem.solved(prompts, value).tolist() == [[True, False, False, False]]
