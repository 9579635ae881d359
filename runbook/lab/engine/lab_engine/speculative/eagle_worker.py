"""Target and draft at work on one sequence: prefill, then per step either one token or draft, verify, accept.

Draft slot t holds token t+1 together with the target's hidden states of position t; it predicts token t+2. After a verify
the accepted slots are written again with the target's hidden states, in place of the draft's own guesses.
"""

import torch

from lab_engine import distributed
from lab_engine.forward_batch import EagleDraftInput, ForwardBatch, ForwardMode, KVCache


class Sequence:
    """Tokens of one request, prompt first, and both models' caches. The last token is not in the target's cache yet."""

    def __init__(self, input_ids, cache, draft_cache=None):
        self.ids = list(input_ids)
        self.cache = cache
        self.draft_cache = draft_cache
        self.proposal = None  # the draft's first guess, made with the last extend
        self.draft_hidden = None  # (1, hidden), fed back with it
        self.verifies = 0
        self.accepted = 0  # drafted tokens that the target agreed with


class TargetWorker:
    """Greedy decoding, one token a forward."""

    def __init__(self, target):
        self.target = target

    def sequence(self, input_ids, length):
        return Sequence(input_ids, _cache(self.target, length))

    def prefill(self, sequence):
        """Run the prompt; appends and returns the first new token."""
        out = self._forward(sequence, sequence.ids, 0, ForwardMode.EXTEND)
        new = distributed.agree([int(out.next_token_logits[-1].argmax())])
        self._after(sequence, out, 0, sequence.ids[1:] + new, ForwardMode.EXTEND)
        sequence.ids += new
        return new

    def step(self, sequence):
        """One decode step; appends and returns the new tokens."""
        out = self._forward(sequence, sequence.ids[-1:], len(sequence.ids) - 1, ForwardMode.DECODE)
        new = distributed.agree([int(out.next_token_logits[-1].argmax())])
        sequence.ids += new
        return new

    def _forward(self, sequence, ids, start, mode):
        positions = torch.arange(start, start + len(ids))
        return self.target(torch.tensor(ids), positions, ForwardBatch(mode, sequence.cache))

    def _after(self, sequence, out, start, tokens, mode):
        """Hook of the prefill for the draft."""


class EagleWorker(TargetWorker):
    """Speculative decoding with a chain of `num_steps` drafted tokens.

    blank: hand the draft zeros in place of hidden states. d2t_as_ids: see `get_hot_token_id`.
    """

    def __init__(self, target, draft, num_steps, blank=False, d2t_as_ids=False):
        super().__init__(target)
        self.draft = draft
        self.hot_token_id = draft.get_hot_token_id(d2t_as_ids)
        self.num_steps = num_steps
        self.blank = blank

    def sequence(self, input_ids, length):
        return Sequence(input_ids, _cache(self.target, length), _cache(self.draft, length))

    def step(self, sequence):
        drafted = distributed.agree(self._propose(sequence))
        start = len(sequence.ids) - 1
        out = self._forward(sequence, [sequence.ids[-1], *drafted], start, ForwardMode.TARGET_VERIFY)
        wanted = distributed.agree(out.next_token_logits.argmax(-1).tolist())
        agreed = 0
        while agreed < len(drafted) and drafted[agreed] == wanted[agreed]:
            agreed += 1
        new = wanted[: agreed + 1]
        sequence.ids += new
        sequence.verifies += 1
        sequence.accepted += agreed
        out.hidden_states = out.hidden_states[: agreed + 1]
        self._after(sequence, out, start, new, ForwardMode.DRAFT_EXTEND)
        return new

    def _propose(self, sequence):
        token, hidden, drafted = sequence.proposal, sequence.draft_hidden, [sequence.proposal]
        for slot in range(len(sequence.ids) - 1, len(sequence.ids) - 2 + self.num_steps):
            out = self._draft(sequence, [token], slot, hidden, ForwardMode.DECODE)
            token, hidden = self._token(out), out.hidden_states
            drafted.append(token)
        return drafted

    def _after(self, sequence, out, start, tokens, mode):
        """Fill the draft's cache from the target's hidden states and keep its first guess."""
        hidden = torch.zeros_like(out.hidden_states) if self.blank else out.hidden_states
        out = self._draft(sequence, tokens, start, hidden, mode)
        sequence.proposal, sequence.draft_hidden = self._token(out), out.hidden_states[-1:]

    def _token(self, out):
        """The draft's guess, as the target counts tokens."""
        return int(self.hot_token_id[out.next_token_logits[-1].argmax()])

    def _draft(self, sequence, ids, start, hidden, mode):
        positions = torch.arange(start, start + len(ids))
        return self.draft(torch.tensor(ids), positions, ForwardBatch(mode, sequence.draft_cache, EagleDraftInput(hidden)))


def _cache(model, length):
    config = model.config
    heads = config["num_attention_heads"]
    return KVCache(config["num_hidden_layers"], length, heads, config["hidden_size"] // heads)
