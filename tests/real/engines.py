"""How each engine is started here, on the CPU, with the trained pair; and the names of its processes."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from tests.real.place import ROOT, gguf, llama_server, model, python, real_dir

SGLANG_VARS = ROOT / "playbooks" / "vars" / "sglang_cpu_tiny.yaml"


Step = dict[str, Any]
END: tuple[Step, ...] = ({"kill": {"step": "server"}},)


class Engine(NamedTuple):
    """Command and environment of a start; `workers`: regular expressions for the titles of what may be hurt."""

    profile: str
    command: list[str]
    env: dict[str, str]
    workers: dict[str, str]


def sglang(port: int) -> Engine:
    """Its server with the draft, as the file of variables for the shipped playbook has it."""
    text = SGLANG_VARS.read_text(encoding="utf-8")
    for name, value in {"env('REAL_DIR')": str(real_dir()), "env('REAL_DRAFT', 'draft')": "draft"}.items():
        text = text.replace("${{ " + name + " }}", value)
    told = yaml.safe_load(text) | {"port": port}
    known = {"${{ vars." + name + " }}": str(told[name]) for name in ("model", "port", "algorithm")}
    command = [known.get(word, word) for word in told["command"]]
    workers = {"main": r"-m sglang\.launch_server", "scheduler": "^sglang::scheduler", "detokenizer": "^sglang::detokenizer"}
    return Engine("sglang", command, told["env"], workers)


def vllm(port: int, draft: str | None = "draft_hidden_ids", *flags: str) -> Engine:
    """Its API server. Without `--enforce-eager` among the flags it compiles first."""
    speculative = {"method": "eagle3", "model": str(model(draft)), "num_speculative_tokens": 4} if draft else None
    command = [str(python()), "-m", "vllm.entrypoints.openai.api_server", "--model", str(model("target")), "--served-model-name", "tiny"]
    command += ["--host", "127.0.0.1", "--port", str(port), "--dtype", "float32", "--max-model-len", "448", *flags]
    command += ["--speculative-config", json.dumps(speculative)] if speculative else []
    env = {"VLLM_CPU_KVCACHE_SPACE": "1", "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1", "DO_NOT_TRACK": "1"}
    workers = {"main": r"-m vllm\.entrypoints", "engine_core": "^VLLM::EngineCore", "worker": "^VLLM::Worker"}
    return Engine("vllm", command, env, workers)


def transformers(port: int) -> Engine:
    """Its server, one process, with the target alone."""
    command = [str(python().parent / "transformers"), "serve", str(model("target")), "--host", "127.0.0.1", "--port", str(port)]
    return Engine(
        "transformers", [*command, "--device", "cpu"], {"HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"}, {"main": "transformers serve"}
    )


def llamacpp(port: int, name: str = "tiny", *flags: str) -> Engine:
    """`llama-server`, one process. Its weights are random: what it says means nothing."""
    command = [str(llama_server()), "-m", str(gguf(name)), "--host", "127.0.0.1", "--port", str(port)]
    command += ["--threads", "1", "--metrics", *flags]
    return Engine("llamacpp", command, {}, {"main": "llama-server"})


def playbook(
    path: Path, engine: Engine, steps: list[Step], before: Sequence[Step] = (), cleanup: Sequence[Step] = END, **launch: Any
) -> Path:
    """A playbook on the lab that launches it as `server`, with more keys of `launch`, and then does these steps."""
    launch = {"command": engine.command, "env": engine.env, "profile": engine.profile, "log": "auto", **launch}
    all_steps = [*before, {"id": "server", "launch": launch}, *steps]
    whole: Step = {"runbook": 1, "name": f"{engine.profile} itself", "hosts": {"gpu": "lab"}, "steps": all_steps}
    if cleanup:
        whole["always"] = list(cleanup)
    path.write_text(yaml.safe_dump(whole, sort_keys=False, width=1000), encoding="utf-8")
    return path
