"""Distinct completions from a vLLM engine beside its own independent ones, and drawn one by one.

    make bench-vllm
    python benchmarks/vllm_rounds.py [--batch 16] [--k 4 16] [--tokens 16] [--delay 0]

The models are the same random one with logits of three sizes, in float32 on one thread. An engine without the
processor draws n=k completions; the others use an engine that is made with ENGINE. --delay adds milliseconds
to every step of the engines, in place of an accelerator, whose steps do not take longer for more requests.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

os.environ |= {"VLLM_ENABLE_V1_MULTIPROCESSING": "0", "VLLM_LOGGING_LEVEL": "ERROR"}

import torch
from measure import report, timings
from transformers import LlamaConfig, LlamaForCausalLM
from vllm import LLM, SamplingParams

from swor.integrations.vllm import ENGINE, DistinctCompletions

SYMBOLS, PROMPT = 8192, 8
SCALES = {"confident": 60.0, "medium": 30.0, "uncertain": 1.0}


def save_model(folder: Path, scale: float) -> None:
    """A random model whose logits are multiplied by a number."""
    torch.manual_seed(0)
    sizes = {"hidden_size": 256, "intermediate_size": 512, "num_hidden_layers": 4, "head_dim": 64}
    heads = {"num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 256}
    model = LlamaForCausalLM(
        LlamaConfig(vocab_size=SYMBOLS, tie_word_embeddings=False, eos_token_id=0, **sizes, **heads)
    )
    with torch.no_grad():
        model.lm_head.weight *= scale
    model.save_pretrained(folder)


def make_engine(folder: Path, **settings: object) -> LLM:
    """An engine as small as the model."""
    small = {"max_model_len": 64, "max_num_seqs": 256, "kv_cache_memory_bytes": 2**27}
    return LLM(
        str(folder),
        skip_tokenizer_init=True,
        dtype="float32",
        enforce_eager=True,
        disable_log_stats=True,
        **small,
        **settings,
    )


class Steps:
    """Counts the steps of an engine, and makes each of them longer."""

    def __init__(self, llm: LLM, delay: float) -> None:
        self.count, self.delay, self.step = 0, delay, llm.llm_engine.step
        llm.llm_engine.step = self

    def __call__(self) -> object:
        self.count += 1
        end = time.process_time() + self.delay  # the clock of the timings
        answer = self.step()
        while self.delay and time.process_time() < end:
            pass
        return answer


def ways(
    plain: LLM, llm: LLM, prompts: list[list[int]], k: int, tokens: int
) -> dict[str, Callable[[], object]]:
    """What is compared: k completions of every prompt."""
    asked = [{"prompt_token_ids": prompt} for prompt in prompts]
    many = SamplingParams(n=k, max_tokens=tokens, logprobs=0, flat_logprobs=True, detokenize=False)

    def rounds(n: int) -> DistinctCompletions:
        completions = DistinctCompletions(llm, prompts, max_new_tokens=tokens)
        for _ in range(k // n):
            completions.draw(n)
        return completions

    return {
        "independent": lambda: plain.generate(asked, many, use_tqdm=False),
        "rounds": lambda: rounds(k),
        "one by one": lambda: rounds(1),
    }


@contextmanager
def engines(scale: float) -> Iterator[tuple[LLM, LLM]]:
    """An engine without and one with the processor."""
    with tempfile.TemporaryDirectory() as folder:
        save_model(Path(folder), scale)
        yield make_engine(Path(folder)), make_engine(Path(folder), **ENGINE)


def compare(name: str, given: argparse.Namespace) -> Iterator[dict[str, object]]:
    """One row for every k."""
    generator = torch.Generator().manual_seed(0)
    prompts = torch.randint(1, SYMBOLS, (given.batch, PROMPT), generator=generator).tolist()
    with engines(SCALES[name]) as (plain, llm):
        counters = {"independent": Steps(plain, given.delay / 1000)}
        counters["rounds"] = counters["one by one"] = Steps(llm, given.delay / 1000)
        for k in given.k:
            functions = ways(plain, llm, prompts, k, given.tokens)
            steps, distinct = {}, 0
            for way, function in functions.items():
                before = counters[way].count
                found = function()
                steps[way] = counters[way].count - before
                if way == "independent":
                    distinct = sum(len({tuple(x.token_ids) for x in row.outputs}) for row in found)
            taken = timings(functions, repeats=given.repeats, seconds=60.0)
            base = taken["independent"].median
            yield {
                "model": name,
                "k": k,
                "repetitions": 1.0 - distinct / (k * given.batch),
                "independent, ms": 1000 * base,
                "rounds, ratio": taken["rounds"].median / base,
                "one by one, ratio": taken["one by one"].median / base,
                **{f"{way}, steps": count for way, count in steps.items()},
            }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--k", type=int, nargs="+", default=[4, 16])
    parser.add_argument("--tokens", type=int, default=16)
    parser.add_argument("--delay", type=float, default=0.0)
    parser.add_argument("--models", nargs="+", choices=SCALES, default=list(SCALES))
    parser.add_argument("--repeats", type=int, default=15)
    given = parser.parse_args()
    rows = [row for name in given.models for row in compare(name, given)]
    title = "Distinct completions from a vLLM engine: time relative to independent ones, and engine steps"
    report(title, rows, "vllm_rounds")


if __name__ == "__main__":
    main()
