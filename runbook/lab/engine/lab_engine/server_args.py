"""Command line of the server: SGLang's flags as far as they mean something here, and the faults that can be asked for."""

import argparse
import dataclasses
import pathlib
import re

from lab_engine import HOME

PHASES = ("init", "load", "draft_load", "kv_cache", "prefill", "decode")


@dataclasses.dataclass
class ServerArgs:
    model_path: str
    served_model_name: str
    host: str
    port: int
    tp_size: int
    speculative_algorithm: str
    speculative_draft_model_path: str
    speculative_num_steps: int
    context_length: int
    max_running_requests: int
    decode_log_interval: int
    disable_cuda_graph: bool
    enable_metrics: bool
    base_gpu_id: int
    dist_timeout: float
    aux_layers: str
    d2t_as: str
    load_rate: int
    load_delay: float
    crash_at: str
    mem_hog: int
    fault: str

    def tag(self, rank):
        """Rank tag of log lines and process titles: none with a single rank."""
        return f"TP{rank}" if self.tp_size > 1 else ""


def parse(argv):
    """Exits 2 on a flag that does not exist, as argparse does."""
    p = argparse.ArgumentParser(prog="launch_server", allow_abbrev=False)
    p.add_argument("--model-path", "--model", default="tiny", help="folder, or the name of one below models/")
    p.add_argument("--served-model-name", default="")
    p.add_argument("--host", default="127.0.0.1")
    p.add_argument("--port", type=int, default=30000)
    p.add_argument("--tp-size", "--tp", "--tensor-parallel-size", "--ranks", type=_ranks, default=1, help="rank processes: 1, 2, 4, 8")
    p.add_argument("--speculative-algorithm", type=str.upper, choices=("EAGLE3", "EAGLE", "NONE"), default="NONE")
    p.add_argument("--speculative-draft-model-path", default="tiny-eagle3")
    p.add_argument("--speculative-num-steps", type=int, default=4, help="length of the drafted chain")
    p.add_argument("--context-length", type=int, default=2048)
    p.add_argument("--max-running-requests", type=int, default=8)
    p.add_argument("--decode-log-interval", type=int, default=40)
    p.add_argument("--disable-cuda-graph", action="store_true", help="accepted; there are no graphs here")
    p.add_argument("--enable-metrics", action="store_true", help="accepted; /metrics always answers here")
    p.add_argument("--base-gpu-id", type=int, default=0)
    p.add_argument("--dist-timeout", type=float, default=1800.0, help="seconds until a collective gives up")
    faults = p.add_argument_group("faults")
    faults.add_argument("--aux-layers", default="", help="layers whose outputs the draft gets, as in 1,3,5 (right: 0,2,4), or `zeros`")
    faults.add_argument("--d2t-as", choices=("offsets", "ids"), default="offsets", help="how the draft's vocabulary map is read")
    faults.add_argument("--load-rate", type=_size, default=0, help="read weights at so many bytes per second")
    faults.add_argument("--load-delay", type=float, default=0.0, help="seconds of silence before each shard")
    faults.add_argument("--crash-at", choices=PHASES, default="", help="raise an exception there")
    faults.add_argument("--mem-hog", type=_size, default=0, help="take so much host memory while loading, as in 4GiB")
    faults.add_argument("--fault", type=_fault, default=_fault(_home_fault()), help="a fault by name, as `runbook lab up --fault` sets it")
    args = vars(p.parse_args(argv))
    args["served_model_name"] = args["served_model_name"] or pathlib.Path(args["model_path"]).name
    problem = _aux_problem(args["aux_layers"]) or _folder_problem(args) or _fault_problem(args)
    if problem:
        p.error(problem)
    return ServerArgs(**args)


def folder(path):
    """A model folder as given, or below models/."""
    given = pathlib.Path(path)
    return given if given.is_dir() else HOME / "models" / path


def _folder_problem(args):
    wanted = [args["model_path"]] + ([args["speculative_draft_model_path"]] if args["speculative_algorithm"] != "NONE" else [])
    missing = [path for path in wanted if not (folder(path) / "config.json").is_file()]
    return f"no model at {missing[0]!r}: neither a folder with a config.json nor a name below {HOME / 'models'}" if missing else ""


def _aux_problem(text):
    if text in ("", "zeros") or re.fullmatch(r"-?\d+(,-?\d+)*", text) and all(-1 <= int(i) <= 5 for i in text.split(",")):
        return ""
    return f"argument --aux-layers: {text!r} is neither `zeros` nor a list of layers from -1 to 5"


def _home_fault():
    """What the lab was told: its servers have this fault unless their command line says otherwise."""
    file = HOME / "fault"
    return file.read_text().strip() if file.is_file() else ""


def _fault(text):
    if text in ("", "none"):
        return ""
    from lab_engine.faults import NAMES

    if text not in NAMES:
        raise argparse.ArgumentTypeError(f"{text!r}: one of {', '.join(NAMES)}, or `none`")
    return text


def _fault_problem(args):
    if not args["fault"]:
        return ""
    from lab_engine.faults import NEED_RANKS

    few = args["fault"] in NEED_RANKS and args["tp_size"] == 1
    return f"the fault {args['fault']!r} takes several ranks: add `--tp-size 4`" if few else ""


def _ranks(text):
    if text not in ("1", "2", "4", "8"):
        raise argparse.ArgumentTypeError(f"{text!r}: 1, 2, 4 or 8 ranks can share the layers")
    return int(text)


def _size(text):
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([KMG]i?)?B?", text)
    if not match:
        raise argparse.ArgumentTypeError(f"{text!r} is not a size such as 64KiB or 2GiB")
    return int(float(match[1]) * 1024 ** " KMG".index((match[2] or " ")[0]))
