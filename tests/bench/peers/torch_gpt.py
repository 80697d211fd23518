"""torch_gpt.py - GPT-2 in torch, as train_gpt has it: learned positions, tied head, GELU by tanh. Its weights are random: torch's
seed comes before."""
import contextlib
import time

import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.project = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        b, t, c = x.shape
        q, k, v = (y.view(b, t, self.heads, c // self.heads).transpose(1, 2) for y in self.qkv(self.norm1(x)).split(c, dim=2))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.project(y.transpose(1, 2).reshape(b, t, c))
        return x + self.down(F.gelu(self.up(self.norm2(x)), approximate='tanh'))


class GPT(nn.Module):
    def __init__(self, layers, width, heads, context, vocabulary, checkpoints=False):
        super().__init__()
        self.checkpoints = checkpoints
        self.tokens, self.positions = nn.Embedding(vocabulary, width), nn.Embedding(context, width)
        self.blocks, self.norm = nn.ModuleList(Block(width, heads) for _ in range(layers)), nn.LayerNorm(width)
        for weights in self.parameters():
            if weights.dim() > 1:
                nn.init.normal_(weights, std=0.02)

    def forward(self, ids, targets):
        x = self.tokens(ids) + self.positions.weight
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=False) if self.checkpoints else block(x)
        logits = F.linear(self.norm(x), self.tokens.weight)
        return F.cross_entropy(logits.flatten(0, 1), targets.reshape(-1))


def train(model, optim, batches, wait=lambda: None, cast=contextlib.nullcontext):
    """A step for each batch, of which the first is not timed. Returns seconds and CPU seconds of the others, and their losses.
    cast: what a forward runs in; entered anew in each step, because autocast keeps the weights it has cast until it is left."""
    losses = []
    for step, (ids, targets) in enumerate(batches):
        if step == 1:
            wait()
            begin, cpu = time.perf_counter(), time.process_time()
        with cast():
            loss = model(ids, targets)
        loss.backward()
        optim.step()
        optim.zero_grad(set_to_none=True)
        losses.append(loss.detach())
    wait()
    return time.perf_counter() - begin, time.process_time() - cpu, [float(loss) for loss in losses]
