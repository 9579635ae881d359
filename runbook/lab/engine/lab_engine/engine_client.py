"""The main process's side of rank 0's pipe: sends requests, hands tokens to whoever waits for them."""

import asyncio
import time
import uuid


class EngineClient:
    """All on one event loop; `stats` are rank 0's latest numbers."""

    def __init__(self, pipe):
        self.pipe = pipe
        self.queues = {}
        self.stats = {}
        self.last_receive = 0.0

    def attach(self, loop):
        loop.add_reader(self.pipe.fileno(), self._receive, loop)

    def _receive(self, loop):
        try:
            message = self.pipe.recv()
        except (EOFError, OSError):
            loop.remove_reader(self.pipe.fileno())  # rank 0 is gone; the watch over the ranks ends the server
            return
        self.last_receive = time.monotonic()
        self.stats = message["stats"]
        queue = self.queues.get(message["rid"])
        if queue is not None:
            queue.put_nowait((message["ids"], message["meta"]))

    async def generate(self, input_ids, max_new_tokens, prefix=""):
        """Yields (new ids, meta): meta is None but with the last ids. Leaving early aborts the request."""
        rid = f"{prefix}{uuid.uuid4().hex}"
        queue = self.queues[rid] = asyncio.Queue()
        health = prefix == "HEALTH_CHECK"
        self.pipe.send({"type": "generate", "rid": rid, "input_ids": input_ids, "max_new_tokens": max_new_tokens, "health": health})
        meta = None
        try:
            while meta is None:
                ids, meta = await queue.get()
                yield ids, meta
        finally:
            del self.queues[rid]
            if meta is None:
                self.pipe.send({"type": "abort", "rid": rid})

    async def complete(self, input_ids, max_new_tokens, prefix=""):
        """(all new ids, meta)."""
        made = []
        async for ids, meta in self.generate(input_ids, max_new_tokens, prefix):
            made += ids
        return made, meta

    def acceptance_length(self):
        """Mean over the server's life; None before the first verify."""
        verifies = self.stats.get("verifies", 0)
        return 1 + self.stats["accepted"] / verifies if verifies else None
