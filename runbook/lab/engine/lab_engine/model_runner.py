"""Brings the models of one rank up: process group, weights, draft, KV pool. Logs each phase as SGLang does."""

import logging
import time

import torch

from lab_engine import distributed, loader, trouble
from lab_engine.gpu import CONTEXT, GIB, KV_POOL, Gpu
from lab_engine.models.llama import LlamaForCausalLM
from lab_engine.models.llama_eagle3 import LlamaForCausalLMEagle3
from lab_engine.server_args import folder
from lab_engine.speculative.eagle_worker import EagleWorker, TargetWorker

log = logging.getLogger(__name__)


class ModelRunner:
    def __init__(self, args, rank, dist_port):
        self.args = args
        self.gpu = Gpu(rank, args.base_gpu_id)
        self._hog = []
        self._join(rank, dist_port)
        self.gpu.take(CONTEXT)
        target = self._load(LlamaForCausalLM, args.model_path, "load")
        if args.speculative_algorithm == "NONE":
            self.worker = TargetWorker(target)
        else:
            self.worker = self._speculative(target)
        self._allocate(target.config)

    def _join(self, rank, dist_port):
        begin = time.monotonic()
        log.info("Init parallel begin.")
        crash(self.args, "init")
        distributed.init(rank, self.args.tp_size, dist_port, self.args.dist_timeout)
        log.info("Init parallel ends. elapsed=%.2f s, mem usage=%.2f GB", time.monotonic() - begin, CONTEXT / GIB)

    def _load(self, cls, path, phase):
        begin, before = time.monotonic(), self.gpu.available()
        log.info("Load weight begin. avail mem=%.2f GB", before)
        crash(self.args, phase)
        trouble.meet(self.args, phase)
        self._take_host_memory()
        source = folder(path)
        model = loader.build(cls, loader.config_of(source))
        size = loader.load(model, source, self.args.load_rate, self.args.load_delay, bar=distributed.rank() == 0)
        self.gpu.take(size // distributed.world_size())
        distributed.barrier()
        after = self.gpu.available()
        elapsed = time.monotonic() - begin
        usage = before - after
        log.info("Load weight end. elapsed=%.2f s, type=%s, avail mem=%.2f GB, mem usage=%.2f GB.", elapsed, cls.__name__, after, usage)
        return model

    def _speculative(self, target):
        """The target is told to capture layers for EAGLE3 only, and only if the draft's configuration wants them. Else the draft gets
        the final hidden states, whatever it was trained on."""
        args = self.args
        draft = self._load(LlamaForCausalLMEagle3, args.speculative_draft_model_path, "draft_load")
        draft.set_embed(target.model.embed_tokens.weight)
        blank = args.aux_layers == "zeros"
        wanted = draft.config["eagle_config"]
        if args.speculative_algorithm == "EAGLE3" and wanted.get("use_aux_hidden_state", True):
            chosen = [int(i) for i in args.aux_layers.split(",")] if args.aux_layers and not blank else None
            target.set_eagle3_layers_to_capture(chosen or wanted["eagle_aux_hidden_state_layer_ids"])
        return EagleWorker(target, draft, args.speculative_num_steps, blank, args.d2t_as == "ids")

    def _allocate(self, config):
        crash(self.args, "kv_cache")
        self.gpu.take(KV_POOL // self.args.tp_size)
        self.max_total_num_tokens = self.args.context_length * self.args.max_running_requests
        half = KV_POOL / self.args.tp_size / GIB / 2
        log.info("KV Cache is allocated. #tokens: %d, K size: %.2f GB, V size: %.2f GB", self.max_total_num_tokens, half, half)
        log.info("Memory pool end. avail mem=%.2f GB", self.gpu.available())

    def _take_host_memory(self):
        """Real pages, written to, 64 MiB at a time."""
        while self.args.mem_hog > (len(self._hog) << 26):
            self._hog.append(torch.ones(1 << 26, dtype=torch.uint8))


def crash(args, phase):
    """The fault asked for by --crash-at: a product of matrices that do not fit, as when taps are missing."""
    if args.crash_at == phase:
        torch.zeros(22, 256) @ torch.zeros(384, 128)
