"""vLLM as the engine: one instance in a process, that every policy's weights pass through.

A run has up to three policies that write (behaviour, trained, reference), and a GPU has room for
one vLLM. So the instance holds one policy's weights at a time, knows whose, and takes over another
policy's in place before that one writes; its prefix cache goes with the old weights.

Log-probs are vLLM's `processed_logprobs`: of the distribution that was drawn from, after
temperature and the top-p cut, as those of our own loop. Its default, `raw_logprobs`, knows neither.
Entropies vLLM does not tell; they are NaN. A response depends on its seed and, by float rounding,
on what else was in the batch.
"""

from __future__ import annotations

import logging
import os
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from experiments.config.dependencies import VLLM_RELEASE, check_vllm
from experiments.engines.base import Completion, Engine, FinishedResponse, Sampling
from experiments.errors import UserError
from experiments.policy.weights import plain_weights

if TYPE_CHECKING:
    import torch

    from experiments.config.schema import RunConfig
    from experiments.policy.policy import Policy, WeightSource

CPU_CACHE_BYTES = 2**30  # keys and values; without a GPU vLLM is for tests and small models


class Host:
    """The one vLLM instance of this process, and whose weights it holds.

    It is built with random weights: all that it ever writes with comes from a module of ours. With
    `engine.colocate` it sleeps (weights in host memory, no keys and values) while nobody writes.
    """

    def __init__(self, config: RunConfig, policy: Policy) -> None:
        self.colocate = config.engine.colocate and policy.device.type == "cuda"
        self.asleep = False
        self._holds: tuple[Policy, int] | None = None
        os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"  # in place means in this process
        if "LOCAL_RANK" in os.environ:  # each is the first of its own; all would write one file
            root = Path(os.environ.get("VLLM_CACHE_ROOT", "~/.cache/vllm")).expanduser()
            os.environ["VLLM_CACHE_ROOT"] = str(root / f"rank-{os.environ['LOCAL_RANK']}")
        os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")
        logging.getLogger("vllm").setLevel(os.environ["VLLM_LOGGING_LEVEL"])
        os.environ.setdefault("VLLM_NO_USAGE_STATS", "1")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            self.llm = self._start(config, policy.device)

    def _start(self, config: RunConfig, device: torch.device) -> Any:
        from experiments.policy.loading import locate

        check_vllm()
        from vllm import LLM

        try:
            return LLM(
                locate(config.model.path),
                load_format="dummy",
                dtype=config.model.dtype,
                # A tied head gets no weights of its own at a reload, and where vLLM packs weights
                # for its kernels it would go on with the old ones: untied it is loaded like others.
                hf_overrides={"tie_word_embeddings": False},
                skip_tokenizer_init=True,
                generation_config="vllm",  # no sampling defaults from the model's folder
                logprobs_mode="processed_logprobs",
                max_model_len=config.task.max_prompt_tokens + config.task.max_response_tokens,
                max_num_seqs=config.engine.batch_size,
                # A prompt that is read in parts draws from its seed at the end of each part.
                enable_chunked_prefill=False,
                seed=config.seed,
                enable_sleep_mode=self.colocate,
                **_platform(config, device),
            )
        except (ValueError, RuntimeError) as error:
            raise UserError(_no_start(error, config, device.type)) from error

    @property
    def version(self) -> int:
        """Of the weights that it holds."""
        return self._holds[1]

    def load(self, policy: Policy) -> None:
        """Take over the policy's weights, in place, unless it holds this version of them."""
        now = (policy, policy.version)
        if self._holds is not None and self._holds[0] is policy and self._holds[1] == now[1]:
            return
        self._wake()
        self._holds = None  # half-loaded weights belong to no policy
        weights = plain_weights(policy, remove_duplicate=False)
        self.llm.collective_rpc("reload_weights", kwargs={"weights_iterator": weights})
        if not self.llm.reset_prefix_cache():
            raise RuntimeError("vLLM kept the prefix cache of the weights before")
        self._holds = now

    def write(
        self,
        prompts: list[Sequence[int]],
        params: list[object],
        finished: Callable[[int, object], None],
    ) -> None:
        """Hand out (number of the request, vLLM's output) as they end, by the weights it holds."""
        self._wake()
        requests = [{"prompt_token_ids": list(prompt)} for prompt in prompts]
        ids = self.llm.enqueue(requests, params, use_tqdm=False)
        numbers = {int(given.partition("-")[0]): number for number, given in enumerate(ids)}
        try:
            while self.llm.llm_engine.has_unfinished_requests():
                for output in self.llm.llm_engine.step():
                    if output.finished:
                        finished(numbers[int(output.request_id)], output.outputs[0])
        except BaseException:
            self.llm.llm_engine.abort_request(ids, internal=True)  # nobody waits for the rest
            raise
        finally:
            self.release_memory()

    def close(self) -> None:
        """Also of the process groups that vLLM made: its own ending would look for them too late.

        It ends the group of all ranks with them.
        """
        self.llm.llm_engine.engine_core.shutdown()

    def _wake(self) -> None:
        if self.asleep:
            import torch

            torch.cuda.empty_cache()  # what the learner freed but kept is vLLM's now
            self.llm.wake_up()
            self.asleep = False

    def release_memory(self) -> None:
        """Put the instance to sleep, if it shares the GPU (`engine.colocate`)."""
        if self.colocate and not self.asleep:
            self.llm.sleep(level=1)
            self.asleep = True


def _platform(config: RunConfig, device: torch.device) -> dict[str, Any]:
    """Return vLLM's arguments that depend on the device."""
    if device.type == "cpu":
        return {"enforce_eager": True, "kv_cache_memory_bytes": CPU_CACHE_BYTES}
    own = config.engine.device
    index = (device.index or 0) if own == "auto" else int(own.removeprefix("cuda:"))
    return {"device_ids": [index], "gpu_memory_utilization": config.engine.memory_share}


def _no_start(error: Exception, config: RunConfig, device: str) -> str:
    """Why vLLM did not start, in one line, and what to change."""
    text = str(error)
    reason = " ".join(text.strip().split("\n")[0].split())
    t, e = config.task, config.engine
    lengths = (
        f"task.max_prompt_tokens={t.max_prompt_tokens} or "
        f"task.max_response_tokens={t.max_response_tokens}"
    )
    if "max_model_len" in text and "max_position_embeddings" in text:
        return f"model.path={config.model.path} has too few positions: lower {lengths}"
    if "memory" not in text.lower():
        return f"engine.name=vllm does not start: {reason}"
    if device == "cpu":
        return f"engine.name=vllm does not fit: lower {lengths}; vLLM: {reason}"
    return (
        f"engine.memory_share={e.memory_share} does not fit: raise it if vLLM wants more, lower it "
        f"if the GPU has less, or lower engine.batch_size={e.batch_size}, {lengths}; vLLM: {reason}"
    )


class VLLMEngine(Engine):
    """Generates with the weights of `policy`, which it shares with its owner or copies at sync."""

    name = "vllm"

    def __init__(self, host: Host, policy: Policy, eos: set[int]) -> None:
        self.host, self.policy, self.eos = host, policy, eos

    @property
    def description(self) -> str:
        return f"{self.name} {VLLM_RELEASE}"

    def sync(self, weights: WeightSource) -> None:
        self._copy(weights)
        self.host.load(self.policy)

    def release_memory(self) -> None:
        self.host.release_memory()

    def generate(
        self,
        prompts: Sequence[Sequence[int]],
        seeds: Sequence[Sequence[int]],
        sampling: Sampling,
        finished: Callable[[Sequence[FinishedResponse]], None] | None = None,
    ) -> list[list[Completion]]:
        self.host.load(self.policy)
        asked = [(prompt, number) for prompt, of in enumerate(seeds) for number in range(len(of))]
        params = [self._params(seed, sampling) for of in seeds for seed in of]
        results: list[list[Completion | None]] = [[None] * len(of) for of in seeds]

        def hand_out(request: int, output: object) -> None:
            (prompt, number), completion = asked[request], self._completion(output)
            results[prompt][number] = completion
            if finished:
                finished([(prompt, number, completion)])

        self.host.write([prompts[prompt] for prompt, _ in asked], params, hand_out)
        return results

    def _params(self, seed: int, sampling: Sampling) -> object:
        from vllm.sampling_params import RequestOutputKind, SamplingParams

        return SamplingParams(
            max_tokens=sampling.max_tokens,
            temperature=sampling.temperature,
            top_p=sampling.top_p,
            seed=seed,
            stop_token_ids=sorted(self.eos),
            ignore_eos=True,  # the ends are those of `eos`, and no others
            logprobs=0,  # of the drawn token, and of no other
            flat_logprobs=True,
            detokenize=False,
            output_kind=RequestOutputKind.FINAL_ONLY,
        )

    def _completion(self, written: object) -> Completion:
        tokens = tuple(written.token_ids)
        return Completion(
            tokens=tokens,
            logps=tuple(written.logprobs.logprobs),
            entropy=float("nan"),
            truncated=tokens[-1] not in self.eos,
            version=self.host.version,
        )
