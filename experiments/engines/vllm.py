"""vLLM as the engine: one instance in a process, shared by all policies that generate.

A run has up to three such policies (rollout, trained, reference), and a GPU has memory for one
vLLM. So the instance holds one policy's weights at a time. Before another policy generates, its
weights are loaded in place, and the prefix cache of the old ones is dropped.

Log-probs are vLLM's `processed_logprobs`: of the distribution drawn from, after temperature and the
top-p cut, like those of our own loop. The default, `raw_logprobs`, is before both. vLLM returns no
entropies; they are NaN. A response depends on its seed and, by float rounding, on what else was in
the batch.
"""

from __future__ import annotations

import logging
import os
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch

from experiments.config.preflight import VLLM_RELEASE, check_vllm
from experiments.config.schema import RunConfig
from experiments.engines.base import Engine, OnFinished, Request, Sampling
from experiments.errors import UserError
from experiments.policy.loading import source_of
from experiments.policy.policy import Policy, WeightSource
from experiments.sample import Completion

CPU_CACHE_BYTES = 2**30  # keys and values; without a GPU vLLM is for tests and small models


class Host:
    """The one vLLM instance of this process, and the policy whose weights it holds.

    It starts with random weights: all weights that it generates with come from our policies. With
    `engine.colocate` it sleeps between calls (weights in host memory, no keys and values).
    """

    def __init__(self, config: RunConfig, policy: Policy) -> None:
        self.colocate = config.engine.colocate and policy.device.type == "cuda"
        self.asleep = False
        self._loaded: tuple[Policy, int] | None = None  # a policy and its version
        # Weights are loaded in place: in this process.
        os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"
        if "LOCAL_RANK" in os.environ:  # each rank's vLLM is its own rank 0, and writes one file
            root = Path(os.environ.get("VLLM_CACHE_ROOT", "~/.cache/vllm")).expanduser()
            os.environ["VLLM_CACHE_ROOT"] = str(root / f"rank-{os.environ['LOCAL_RANK']}")
        os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")
        logging.getLogger("vllm").setLevel(os.environ["VLLM_LOGGING_LEVEL"])
        os.environ.setdefault("VLLM_NO_USAGE_STATS", "1")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            self.llm = self._start(config, policy.device)

    def _start(self, config: RunConfig, device: torch.device) -> Any:
        check_vllm()
        if config.model.head_dtype != "auto":
            raise UserError(
                "model.head_dtype=float32 with engine.name=vllm: vLLM computes logits in "
                "model.dtype; use model.head_dtype=auto or engine=hf"
            )
        from vllm import LLM

        if device.type == "cpu":
            platform: dict[str, Any] = {
                "enforce_eager": True,
                "kv_cache_memory_bytes": CPU_CACHE_BYTES,
            }
        else:
            own = config.engine.device
            index = (device.index or 0) if own == "auto" else int(own.removeprefix("cuda:"))
            platform = {"device_ids": [index], "gpu_memory_utilization": config.engine.memory_share}
        response_tokens = config.longest_response(max(config.task.turns, config.eval_turns))
        try:
            return LLM(
                source_of(config.model),
                load_format="dummy",
                dtype=config.model.dtype,
                # A tied head gets no weights of its own at a reload. Where vLLM packs weights for
                # its kernels, it would keep the old ones. An untied head is loaded like others.
                hf_overrides={"tie_word_embeddings": False},
                skip_tokenizer_init=True,
                generation_config="vllm",  # no sampling defaults from the model's folder
                logprobs_mode="processed_logprobs",
                max_model_len=(config.task.max_prompt_tokens or 0) + response_tokens,
                max_num_seqs=config.engine.batch_size,
                # A prompt read in chunks would draw from its seed at the end of each chunk.
                enable_chunked_prefill=False,
                seed=config.seed,
                enable_sleep_mode=self.colocate,
                **platform,
            )
        except (ValueError, RuntimeError) as error:
            task, engine = config.task, config.engine
            raise UserError(
                f"engine.name=vllm does not start: {' '.join(str(error).split())[:300]}; what it "
                f"needs depends on engine.memory_share={engine.memory_share}, "
                f"engine.batch_size={engine.batch_size}, "
                f"task.max_prompt_tokens={task.max_prompt_tokens} and "
                f"task.max_response_tokens={task.max_response_tokens}"
            ) from error

    @property
    def version(self) -> int:
        """The version of the weights that it holds."""
        assert self._loaded  # `load` comes first
        return self._loaded[1]

    def load(self, policy: Policy) -> None:
        """Take over the policy's weights, in place, unless it holds this version of them."""
        version = policy.version
        if self._loaded and self._loaded[0] is policy and self._loaded[1] == version:
            return
        self._wake()
        self._loaded = None  # half-loaded weights belong to no policy
        weights = policy.named_weights(remove_duplicate=False)
        self.llm.collective_rpc("reload_weights", kwargs={"weights_iterator": weights})
        if not self.llm.reset_prefix_cache():
            raise RuntimeError("vLLM did not clear the prefix cache of the previous weights")
        self._loaded = (policy, version)

    def generate(
        self,
        prompts: list[Sequence[int]],
        params: list[Any],
        finished: Callable[[int, Any], None],
    ) -> None:
        """Generate with the weights it holds; `finished` gets a request's number and output."""
        self._wake()
        requests = [{"prompt_token_ids": list(prompt)} for prompt in prompts]
        ids = self.llm.enqueue(requests, params, use_tqdm=False)
        numbers = {int(name.partition("-")[0]): number for number, name in enumerate(ids)}
        try:
            while self.llm.llm_engine.has_unfinished_requests():
                for output in self.llm.llm_engine.step():
                    if output.finished:
                        finished(numbers[int(output.request_id)], output.outputs[0])
        except BaseException:
            self.llm.llm_engine.abort_request(ids, internal=True)  # the others are not needed
            raise
        finally:
            self.release_memory()

    def close(self) -> None:
        """Shut down vLLM and its process groups, and with them the group of all ranks.

        vLLM's own shutdown at exit would look for the groups too late.
        """
        self.llm.llm_engine.engine_core.shutdown()

    def _wake(self) -> None:
        if self.asleep:
            torch.cuda.empty_cache()  # give vLLM the memory that torch keeps cached
            self.llm.wake_up()
            self.asleep = False

    def release_memory(self) -> None:
        """Put the instance to sleep, if it shares the GPU (`engine.colocate`)."""
        if self.colocate and not self.asleep:
            self.llm.sleep(level=1)
            self.asleep = True


class VLLMEngine(Engine):
    """Generates with the weights of `policy`, which it shares with its owner or copies at sync."""

    name = "vllm"

    def __init__(self, host: Host, policy: Policy, eos: set[int]) -> None:
        self.host, self.policy, self.eos = host, policy, eos

    @property
    def description(self) -> str:
        return f"{self.name} {VLLM_RELEASE}"

    def sync(self, weights: WeightSource) -> None:
        super().sync(weights)
        self.host.load(self.policy)

    def release_memory(self) -> None:
        self.host.release_memory()

    def generate(self, request: Request, finished: OnFinished = None) -> list[list[Completion]]:
        """Return responses. vLLM keeps what it has read by itself, in its prefix cache.

        Its random numbers are of a response's seed alone, and begin anew with each request.
        """
        self.host.load(self.policy)
        prompts, seeds = request.prompts, request.seeds
        begun = request.begun or [[()] * len(group) for group in seeds]
        requests = [(i, number) for i, group in enumerate(seeds) for number in range(len(group))]
        params = [
            self._params(seeds[i][number], request.sampling, request.tokens_left(begun[i][number]))
            for i, number in requests
        ]
        completions: dict[tuple[int, int], Completion] = {}

        def hand_out(index: int, output: Any) -> None:
            prompt, number = requests[index]
            tokens = tuple(output.token_ids)
            completions[prompt, number] = Completion(
                tokens=tokens,
                logps=tuple(output.logprobs.logprobs),
                entropy=float("nan"),
                truncated=tokens[-1] not in self.eos,
                version=self.host.version,
            )
            if finished:
                finished([(prompt, number, completions[prompt, number])])

        contexts: list[Sequence[int]] = [[*prompts[i], *begun[i][n]] for i, n in requests]
        if contexts:
            self.host.generate(contexts, params, hand_out)
        return [[completions[i, n] for n in range(len(group))] for i, group in enumerate(seeds)]

    def _params(self, seed: int, sampling: Sampling, max_tokens: int) -> Any:
        from vllm.sampling_params import RequestOutputKind, SamplingParams

        return SamplingParams(
            max_tokens=max_tokens,
            temperature=sampling.temperature,
            top_p=sampling.top_p,
            seed=seed,
            stop_token_ids=sorted(self.eos),
            ignore_eos=True,  # only the tokens of `eos` end a response
            logprobs=0,  # of the drawn token alone
            flat_logprobs=True,
            detokenize=False,
            output_kind=RequestOutputKind.FINAL_ONLY,
        )
