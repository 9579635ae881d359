"""The EAGLE-3 draft model: fuses hidden states of several target layers, then one decoder layer."""

import torch
from torch import nn

from lab_engine.layers import MLP, Attention, RMSNorm
from lab_engine.models.llama import LogitsProcessorOutput


class LlamaDecoderLayer(nn.Module):
    """Attention over embedding and hidden state side by side, so its input is twice as wide."""

    def __init__(self, config):
        super().__init__()
        size = config["hidden_size"]
        self.input_layernorm = RMSNorm(size)
        self.hidden_norm = RMSNorm(size)
        self.self_attn = Attention(0, 2 * size, size, config["num_attention_heads"])
        self.post_attention_layernorm = RMSNorm(size)
        self.mlp = MLP(size)

    def forward(self, positions, embeds, hidden_states, forward_batch):
        residual = hidden_states
        both = torch.cat([self.input_layernorm(embeds), self.hidden_norm(hidden_states)], dim=-1)
        hidden_states = residual + self.self_attn(positions, both, forward_batch)
        return hidden_states + self.mlp(self.post_attention_layernorm(hidden_states))


class LlamaModel(nn.Module):
    """The draft's inner model."""

    def __init__(self, config):
        super().__init__()
        size = config["hidden_size"]
        self.embed_tokens = nn.Embedding(config["vocab_size"], size)
        self.fc = nn.Linear(size * len(config["eagle_config"]["eagle_aux_hidden_state_layer_ids"]), size, bias=False)
        self.midlayer = LlamaDecoderLayer(config)
        self.norm = RMSNorm(size)

    def forward(self, input_ids, positions, forward_batch, input_embeds=None):
        """Normed hidden states for the logits, and plain ones to feed back in the next draft step."""
        embeds = self.embed_tokens(input_ids) if input_embeds is None else input_embeds
        hidden_states = forward_batch.spec_info.hidden_states
        if hidden_states.shape[-1] != embeds.shape[-1]:
            hidden_states = self.fc(hidden_states)
        if hidden_states.shape[-2] == 0:
            return hidden_states, hidden_states
        hidden_states = self.midlayer(positions, embeds, hidden_states, forward_batch)
        return self.norm(hidden_states), hidden_states


class LlamaForCausalLMEagle3(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.config = config
        self.model = LlamaModel(config)
        rows = config["draft_vocab_size"]
        self.lm_head = nn.Linear(config["hidden_size"], rows, bias=False)
        self.register_buffer("d2t", torch.zeros(rows, dtype=torch.int64))
        self.hot_token_id = None

    def get_hot_token_id(self, as_ids=False):
        """The token that each row of the head stands for: its own number plus `d2t`, which holds offsets.

        as_ids: take `d2t` for the tokens themselves, the mistake that the small numbers in it invite.
        """
        self.hot_token_id = self.d2t if as_ids else self.d2t + torch.arange(len(self.d2t))
        return self.hot_token_id

    def set_embed(self, embed):
        """The draft has no embedding of its own: it uses the target's."""
        self.model.embed_tokens.weight = embed

    def forward(self, input_ids, positions, forward_batch):
        to_logits, to_aux = self.model(input_ids, positions, forward_batch)
        return LogitsProcessorOutput(self.lm_head(to_logits), to_aux)


EntryClass = [LlamaForCausalLMEagle3]
