"""The target model: a small decoder-only transformer that hands over hidden states of chosen layers when told to."""

import dataclasses

import torch
from torch import nn

from lab_engine.layers import MLP, Attention, RMSNorm


@dataclasses.dataclass
class LogitsProcessorOutput:
    """next_token_logits: (tokens, vocabulary). hidden_states: (tokens, captured layers * hidden), or (tokens, hidden) without capture."""

    next_token_logits: torch.Tensor
    hidden_states: torch.Tensor


class LlamaDecoderLayer(nn.Module):
    def __init__(self, config, layer_id):
        super().__init__()
        size = config["hidden_size"]
        self.input_layernorm = RMSNorm(size)
        self.self_attn = Attention(layer_id, size, size, config["num_attention_heads"])
        self.post_attention_layernorm = RMSNorm(size)
        self.mlp = MLP(size)

    def forward(self, positions, hidden_states, forward_batch):
        hidden_states = hidden_states + self.self_attn(positions, self.input_layernorm(hidden_states), forward_batch)
        return hidden_states + self.mlp(self.post_attention_layernorm(hidden_states))


class LlamaModel(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.embed_tokens = nn.Embedding(config["vocab_size"], config["hidden_size"])
        self.layers = nn.ModuleList(LlamaDecoderLayer(config, i) for i in range(config["num_hidden_layers"]))
        self.norm = RMSNorm(config["hidden_size"])
        self.layers_to_capture = []

    def forward(self, input_ids, positions, forward_batch):
        """Final hidden states and, in the order of `layers_to_capture`, the inputs of those layers."""
        hidden_states = self.embed_tokens(input_ids)
        inputs = [hidden_states]
        for layer in self.layers:
            hidden_states = layer(positions, hidden_states, forward_batch)
            inputs.append(hidden_states)
        return self.norm(hidden_states), [inputs[i] for i in self.layers_to_capture]


class LlamaForCausalLM(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.config = config
        self.model = LlamaModel(config)
        self.lm_head = nn.Linear(config["hidden_size"], config["vocab_size"], bias=False)
        self.capture_aux_hidden_states = False

    def set_eagle3_layers_to_capture(self, layer_ids):
        """Capture the outputs of these layers, that is the inputs of the next ones."""
        self.capture_aux_hidden_states = True
        self.model.layers_to_capture = [i + 1 for i in layer_ids]

    def forward(self, input_ids, positions, forward_batch):
        hidden_states, aux_hidden_states = self.model(input_ids, positions, forward_batch)
        logits = self.lm_head(hidden_states)
        if self.capture_aux_hidden_states:
            hidden_states = torch.cat(aux_hidden_states, dim=-1)
        return LogitsProcessorOutput(logits, hidden_states)
