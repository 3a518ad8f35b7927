"""Distinct completions from a vLLM engine, beside those of transformers; `make test-vllm` runs these."""

from __future__ import annotations

import math
from collections import Counter
from functools import cache
from importlib.util import find_spec
from itertools import permutations
from types import SimpleNamespace

import numpy as np
import pytest
import tabular_language_model as table
import torch
from problems import chi_square, seeded
from vllm_serve import serving

import swor
from swor.integrations.vllm import ENGINE, DistinctCompletions, Server, sample_completions
from swor.integrations.vllm._rows import TREE
from swor.integrations.vllm._trees import Tree, encode

pytestmark = [
    pytest.mark.skipif(find_spec("vllm") is None, reason="vLLM is not here: run `make test-vllm`"),
    pytest.mark.filterwarnings("ignore"),  # vLLM's own
]

SYMBOLS, LENGTH, END, PAD = 5, 3, 0, 4
PROMPTS = [[1, 2, 3], [2]]
SAME = 1e-5  # log-probabilities of two implementations in single precision


@cache
def tiny():
    """A random model with clear preferences."""
    from transformers import LlamaConfig, LlamaForCausalLM

    sizes = {"hidden_size": 64, "intermediate_size": 64, "num_hidden_layers": 2, "head_dim": 32}
    sizes |= {"num_attention_heads": 2, "num_key_value_heads": 1, "max_position_embeddings": 64}
    tokens = {"vocab_size": SYMBOLS, "bos_token_id": 1, "eos_token_id": END, "pad_token_id": PAD}
    with torch.random.fork_rng():
        torch.manual_seed(5)
        config = LlamaConfig(initializer_range=0.2, tie_word_embeddings=False, **sizes, **tokens)
        return LlamaForCausalLM(config).eval()


def make(folder, **settings):
    from vllm import LLM

    small = {"max_model_len": 64, "max_num_seqs": 256, "kv_cache_memory_bytes": 2**26}
    return LLM(
        str(folder),
        skip_tokenizer_init=True,
        dtype="float32",
        enforce_eager=True,
        disable_log_stats=True,
        **small,
        **settings,
    )


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tiny")
    tiny().save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def llm(folder):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("VLLM_ENABLE_V1_MULTIPROCESSING", "0")
        yield make(folder, **ENGINE)


@cache
def law(which, temperature=1.0, top_k=SYMBOLS, ends=(END,)):
    """The log-probability of every completion of a prompt, by transformers, without a cache."""

    @torch.no_grad()
    def of(tokens):
        return tiny()(torch.tensor([PROMPTS[which] + tokens]), use_cache=False).logits[0, -1]

    return table.completions(temperature, top_k, of, SYMBOLS, LENGTH, ends)


def unpadded(row, ends=(END,)):
    tokens = row.tolist()
    length = next((t + 1 for t, token in enumerate(tokens) if token in ends), LENGTH)
    return tuple(tokens[:length])


def check_log_probabilities(sample, laws, ends=(END,)):
    for b, expected in enumerate(laws):
        drawn = [unpadded(row, ends) for row in sample.value[b]]
        assert len(set(drawn)) == sample.k and set(drawn) <= set(expected)
        for row, tokens in zip(sample.value[b].tolist(), drawn, strict=True):
            assert row[len(tokens) :] == [PAD] * (LENGTH - len(tokens))
        log_p = torch.tensor([expected[x] for x in drawn])
        assert (sample.log_p[b] - log_p).abs().max() <= SAME
        rest = math.fsum(math.exp(p) for x, p in expected.items() if x not in drawn)
        assert abs(math.exp(sample.log_rest[b]) - rest) <= SAME


@pytest.mark.parametrize("settings", [{}, {"temperature": 0.6, "top_k": 3}], ids=str)
def test_log_probabilities_are_those_of_transformers(llm, settings):
    sample = sample_completions(llm, PROMPTS, k=12, max_new_tokens=LENGTH, **settings)
    assert sample.value.shape == (2, 12, LENGTH)
    check_log_probabilities(sample, [law(which, **settings) for which in range(2)])
    weights = swor.unordered_set(sample)
    assert torch.allclose(weights.weight.sum(-1), torch.ones(2))


def test_other_tokens_may_end_a_completion(llm):
    ends, laws = (END, 3), [law(which, ends=(END, 3)) for which in range(2)]
    k = min(len(x) for x in laws)
    sample = sample_completions(llm, PROMPTS, k=k, max_new_tokens=LENGTH, stop_token_ids=[3])
    check_log_probabilities(sample, laws, ends)
    assert (sample.log_rest == -torch.inf).all()


@pytest.mark.parametrize("settings", [{}, {"temperature": 0.6, "top_k": 3}], ids=str)
@pytest.mark.parametrize("which", [0, 1])
def test_pairs_have_the_law_of_sampling_without_replacement(llm, which, settings):
    draws, expected = 3000, law(which, **settings)
    sample = sample_completions(
        llm,
        [PROMPTS[which]] * draws,
        k=2,
        max_new_tokens=LENGTH,
        generator=seeded(),
        **settings,
    )
    observed = Counter(tuple(unpadded(x) for x in pair) for pair in sample.value)
    assert all(a != b for a, b in observed)
    pairs = {}
    for pair in permutations(expected, 2):
        log_p = torch.tensor([expected[x] for x in pair], dtype=torch.float64)
        pairs[pair] = swor.log_prob_ordered(log_p).exp().item()
    assert chi_square(observed, pairs, draws) > 1e-3


def test_more_can_be_drawn_until_there_are_no_more(llm):
    count = len(law(0))
    completions = DistinctCompletions(llm, PROMPTS[:1], max_new_tokens=LENGTH, generator=seeded())
    for n in (1, 3, count - 5):
        completions.draw(n)
        check_log_probabilities(completions.sample(), [law(0)])
    sample = completions.sample()
    (last,) = set(law(0)) - {unpadded(x) for x in sample.value[0]}
    assert abs(math.expm1(sample.log_rest[0].item() - law(0)[last])) <= 1e-4
    completions.draw()
    assert completions.log_rest[0] == completions.sample().kappa[0] == -torch.inf
    with pytest.raises(ValueError, match=f"only {count} different outcomes"):
        completions.draw()


def test_the_generator_decides(llm):
    def drawn(seed):
        return sample_completions(
            llm, PROMPTS, k=4, max_new_tokens=LENGTH, generator=seeded(seed)
        ).value

    assert torch.equal(drawn(1), drawn(1)) and not torch.equal(drawn(1), drawn(2))


def test_other_requests_are_left_alone(llm):
    from vllm import SamplingParams

    prompt = [{"prompt_token_ids": PROMPTS[1]}]
    parameters = SamplingParams(temperature=0.0, max_tokens=LENGTH, detokenize=False)
    tokens = [llm.generate(prompt, parameters, use_tqdm=False)[0].outputs[0].token_ids]
    sample_completions(llm, PROMPTS, k=3, max_new_tokens=LENGTH)
    tokens.append(llm.generate(prompt, parameters, use_tqdm=False)[0].outputs[0].token_ids)
    with torch.no_grad():
        greedy = tiny().generate(torch.tensor([PROMPTS[1]]), max_new_tokens=LENGTH, do_sample=False)
    assert list(tokens[0]) == list(tokens[1]) == greedy[0, len(PROMPTS[1]) :].tolist()


def test_fewer_tokens_than_by_rejection(llm):
    """Independent completions until k are distinct, and the same number without replacement."""
    from vllm import SamplingParams

    k, prompts = 16, 20
    completions = DistinctCompletions(
        llm, PROMPTS[:1] * prompts, max_new_tokens=LENGTH, generator=seeded()
    )
    completions.draw(k)
    spent = 0

    def stream(seed):
        nonlocal spent
        for first in range(seed, seed + 6400, 64):  # completion i has the seed first + i
            many = SamplingParams(n=64, max_tokens=LENGTH, seed=first, detokenize=False)
            request = [{"prompt_token_ids": PROMPTS[0]}]
            for output in llm.generate(request, many, use_tqdm=False)[0].outputs:
                tokens = tuple(output.token_ids)
                spent += len(tokens)
                yield tokens, law(0)[tokens]

    for i in range(prompts):
        swor.distinct_from_stream(stream(6400 * i), k)
    per_completion = completions.tokens / (k * prompts), spent / (k * prompts)
    print(
        f"tokens per distinct completion: {per_completion[0]:.2f}, by rejection {per_completion[1]:.2f}"
    )
    assert per_completion[0] < 0.75 * per_completion[1]


def test_settings_that_act_after_the_processor_are_refused(llm):
    from vllm import SamplingParams
    from vllm.exceptions import VLLMValidationError

    extra, prompt = {TREE: encode(Tree())}, [{"prompt_token_ids": PROMPTS[1]}]
    for given in (
        {"top_p": 0.5},
        {"top_k": 2},
        {"temperature": 0.0},
        {"frequency_penalty": 1.0},
    ):
        with pytest.raises(VLLMValidationError, match=f"change {next(iter(given))}"):
            llm.generate(prompt, SamplingParams(extra_args=extra, **given), use_tqdm=False)


def test_a_completion_that_fills_a_round_is_left_out_of_the_next(llm):
    """A low temperature makes the model confident: what is left has to be measured."""
    settings = {"temperature": 0.1}
    completions = DistinctCompletions(llm, PROMPTS, max_new_tokens=LENGTH, **settings)
    for n in (8, 24):
        completions.draw(n)
        sample = completions.sample()
        for b in range(2):
            expected = law(b, **settings)
            drawn = [unpadded(row) for row in sample.value[b]]
            assert len(set(drawn)) == sample.k
            log_p = torch.tensor([expected[x] for x in drawn])
            assert torch.allclose(sample.log_p[b], log_p, rtol=SAME, atol=10 * SAME)
            left = [p for x, p in expected.items() if x not in drawn]
            log_rest = torch.tensor(left, dtype=torch.float64).logsumexp(0)
            assert abs(sample.log_rest[b] - log_rest) <= 10 * SAME
    assert completions.rounds > 2


def test_a_prompt_that_has_fewer_completions_is_drawn_whole(llm):
    sample = sample_completions(llm, PROMPTS, k=90, max_new_tokens=LENGTH, allow_fewer=True)
    counts = (sample.log_p > -torch.inf).sum(-1).tolist()
    assert counts == [len(law(0)), len(law(1))] and (sample.log_rest == -torch.inf).all()


def test_speculative_decoding_is_refused(folder):
    speculation = {"method": "ngram", "num_speculative_tokens": 2, "prompt_lookup_max": 2}
    with (
        pytest.MonkeyPatch.context() as patch,
        pytest.raises(ValueError, match="speculative decoding"),
    ):
        patch.setenv("VLLM_ENABLE_V1_MULTIPROCESSING", "0")
        engine = make(folder, speculative_config=speculation, **ENGINE)
        DistinctCompletions(engine, PROMPTS, max_new_tokens=LENGTH)


def test_an_engine_in_a_process_of_its_own(folder, monkeypatch):
    monkeypatch.setenv("VLLM_ENABLE_V1_MULTIPROCESSING", "1")
    llm = make(folder, **ENGINE)
    completions = DistinctCompletions(llm, PROMPTS, max_new_tokens=LENGTH)
    completions.draw(14)
    completions.draw(3)
    check_log_probabilities(completions.sample(), [law(0), law(1)])
    assert completions.rounds > 2
    llm.llm_engine.engine_core.shutdown()


@pytest.mark.slow
def test_a_server(folder, tmp_path):
    with serving(folder, tmp_path / "log", "--skip-tokenizer-init") as url:
        server = Server(url, pad_token_id=PAD)
        for settings in ({}, {"temperature": 0.6, "top_k": 3}):
            completions = DistinctCompletions(server, PROMPTS, max_new_tokens=LENGTH, **settings)
            completions.draw(12)
            laws = [law(which, **settings) for which in range(2)]
            check_log_probabilities(completions.sample(), laws)
            assert completions.rounds > 1
        with pytest.raises(ValueError, match=r"answers /v1/completions with 4\d\d"):
            sample_completions(server, [[1] * 100], k=1, max_new_tokens=LENGTH)


# The other model runner needs a GPU or Triton for CPUs: here its interface is driven by hand.


class Batch:
    """What model runner V2 keeps of slots, and gives a processor in every step."""

    def __init__(self, prompts):
        self.tokens = {slot: list(prompt) for slot, prompt in prompts.items()}
        self.prompt_len = SimpleNamespace(np=np.zeros(4, dtype=np.int32))
        for slot, prompt in prompts.items():
            self.prompt_len.np[slot] = len(prompt)
        self.all_token_ids = SimpleNamespace(gpu=torch.zeros(4, 16, dtype=torch.int32))

    def context(self, slots):
        from vllm.v1.worker.gpu.sample.logits_processor.interface import LogitsContext

        for slot in slots:
            row = torch.tensor(self.tokens[slot])
            self.all_token_ids.gpu[slot, : len(row)] = row
        lengths = np.array([len(self.tokens[slot]) for slot in slots], dtype=np.int32)
        return LogitsContext(
            expanded_idx_mapping=torch.tensor(slots),
            idx_mapping=torch.tensor(slots),
            idx_mapping_np=np.array(slots, dtype=np.int32),
            expanded_local_pos=torch.zeros(len(slots)),
            input_ids=torch.tensor([self.tokens[slot][-1] for slot in slots]),
            pos=torch.tensor(lengths - 1),
            seq_lens_upper_bound_np=lengths,
        )


@pytest.mark.parametrize("preempted", [False, True])
def test_the_interface_of_model_runner_v2(preempted):
    pytest.importorskip("vllm.v1.worker.gpu.sample.logits_processor.interface")
    from vllm import SamplingParams

    from swor.integrations.vllm._processor import DistinctProcessor

    expected, generator, tree, drawn = table.completions(), seeded(), Tree(), {}
    for _ in range(len(expected)):
        batch = Batch({3: [2, 1], 1: [3]})
        processor = DistinctProcessor(None, batch)
        ours = SamplingParams(extra_args={TREE: encode(tree)})
        assert processor.add_request(3, ours) and not processor.add_request(1, SamplingParams())
        completion, log_probs = [], []
        while len(completion) < table.LENGTH and completion[-1:] != [table.END]:
            slots = [1, 3] if len(completion) % 2 else [3, 1]
            rows = torch.stack([table.logits(completion)] * 2)
            if preempted and len(completion) == 2:
                processor.add_request(3, ours)
            processed = processor.apply(rows.clone(), batch.context(slots)).log_softmax(-1)
            assert torch.equal(processed[slots.index(1)], rows[0].log_softmax(-1))
            row = processed[slots.index(3)]
            token = int(row.exp().multinomial(1, generator=generator))
            completion.append(token)
            log_probs.append(row[token].item())
            batch.tokens[3].append(token)
        (drawn[tuple(completion)],) = tree.add([(completion, log_probs)])
        for prefix in tree.imprecise():
            row = table.logits(list(prefix)).double().log_softmax(-1)
            row[tree.taken(prefix)] = -torch.inf
            tree.set_new(prefix, row.logsumexp(-1).item())
    assert drawn.keys() == expected.keys()
    assert all(abs(log_p - expected[tokens]) <= SAME for tokens, log_p in drawn.items())
    assert tree.log_rest == -math.inf
