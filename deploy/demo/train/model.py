"""The qwen3moe architecture in plain PyTorch (runs on Debian's torch 1.13). Weights are laid out (out, in) as in GGUF."""
import torch
import torch.nn as nn
import torch.nn.functional as F


class Config:
    """Hyper-parameters. Every 2-D row is a multiple of 256, so that K-quants fit."""
    vocab = 4096
    dim = 256
    layers = 6
    heads = 4
    kv_heads = 2
    head_dim = 64
    experts = 16
    top_k = 2
    expert_dim = 256
    context = 1024
    eps = 1e-6
    theta = 10000.0


class RMSNorm(nn.Module):
    def __init__(self, size, eps):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(size))
        self.eps = eps

    def forward(self, x):
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.eps) * self.weight


def rope_table(config, length, start=0):
    inverse = 1.0 / (config.theta ** (torch.arange(0, config.head_dim, 2).float() / config.head_dim))
    angle = torch.outer(torch.arange(start, start + length).float(), inverse)
    return torch.cat([angle.cos(), angle.cos()], -1), torch.cat([angle.sin(), angle.sin()], -1)


def rope(x, table):
    """Rotates halves (NEOX order)."""
    half = x.shape[-1] // 2
    return x * table[0] + torch.cat([-x[..., half:], x[..., :half]], -1) * table[1]


class Attention(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.c = c
        self.q = nn.Parameter(torch.empty(c.heads * c.head_dim, c.dim))
        self.k = nn.Parameter(torch.empty(c.kv_heads * c.head_dim, c.dim))
        self.v = nn.Parameter(torch.empty(c.kv_heads * c.head_dim, c.dim))
        self.o = nn.Parameter(torch.empty(c.dim, c.heads * c.head_dim))
        self.q_norm = RMSNorm(c.head_dim, c.eps)
        self.k_norm = RMSNorm(c.head_dim, c.eps)

    def forward(self, x, table, mask, cache=None):
        c = self.c
        batch, length, _ = x.shape
        kv_dim = c.kv_heads * c.head_dim
        q, k, v = (x @ torch.cat([self.q, self.k, self.v]).t()).split([c.heads * c.head_dim, kv_dim, kv_dim], -1)
        q = rope(self.q_norm(q.view(batch, length, c.heads, c.head_dim)).transpose(1, 2), table)
        k = rope(self.k_norm(k.view(batch, length, c.kv_heads, c.head_dim)).transpose(1, 2), table)
        v = v.view(batch, length, c.kv_heads, c.head_dim).transpose(1, 2)
        if cache is not None:
            if 'k' in cache:
                k, v = torch.cat([cache['k'], k], 2), torch.cat([cache['v'], v], 2)
            cache['k'], cache['v'] = k, v
        # The query heads of a group share k and v: fold them into the rows of one matrix.
        group, span = c.heads // c.kv_heads, k.shape[2]
        k, v = (t.reshape(batch * c.kv_heads, span, c.head_dim) for t in (k, v))
        score = torch.bmm(q.reshape(batch * c.kv_heads, group * length, c.head_dim), k.transpose(1, 2))
        score = score.view(batch * c.kv_heads, group, length, span) * c.head_dim ** -0.5 + mask
        out = torch.bmm(score.softmax(-1).view(batch * c.kv_heads, group * length, span), v)
        return out.view(batch, c.heads, length, c.head_dim).transpose(1, 2).reshape(batch, length, -1) @ self.o.t()


class MoE(nn.Module):
    """Top-k softmax routing with renormalised weights. Each expert is a parameter of its own: indexing a stacked one
    would fill a gradient of the full stack for every expert."""

    def __init__(self, c):
        super().__init__()
        self.c = c
        self.balance = None
        self.load = None
        self.router = nn.Parameter(torch.empty(c.experts, c.dim))
        self.gate_up = nn.ParameterList([nn.Parameter(torch.empty(2 * c.expert_dim, c.dim)) for _ in range(c.experts)])
        self.down = nn.ParameterList([nn.Parameter(torch.empty(c.dim, c.expert_dim)) for _ in range(c.experts)])

    def forward(self, x):
        c, shape = self.c, x.shape
        x = x.reshape(-1, c.dim)
        probability = (x @ self.router.t()).softmax(-1)
        weight, expert = probability.topk(c.top_k, -1)
        weight = weight / weight.sum(-1, keepdim=True)
        flat = expert.reshape(-1)
        order = torch.argsort(flat)
        token = order // c.top_k
        self.load = torch.bincount(flat, minlength=c.experts)
        if self.training:
            self.balance = c.experts * ((self.load.float() / flat.numel()) * probability.mean(0)).sum()
        counts = self.load.tolist()
        weight = weight.reshape(-1).index_select(0, order)[:, None]
        parts = zip(x.index_select(0, token).split(counts), weight.split(counts), self.gate_up, self.down)
        out = []
        for rows, scale, gate_up, down in parts:
            if rows.shape[0]:
                gate, up = (rows @ gate_up.t()).chunk(2, -1)
                out.append((F.silu(gate) * up * scale) @ down.t())
        return torch.zeros_like(x).index_add(0, token, torch.cat(out)).view(shape)


class Block(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.attn_norm = RMSNorm(c.dim, c.eps)
        self.attn = Attention(c)
        self.ffn_norm = RMSNorm(c.dim, c.eps)
        self.moe = MoE(c)

    def forward(self, x, table, mask, cache=None, keep=None):
        x = x + self.attn(self.attn_norm(x), table, mask, cache)
        if keep is not None:
            x = x.reshape(-1, x.shape[-1]).index_select(0, keep)
        return x + self.moe(self.ffn_norm(x))


class Model(nn.Module):
    def __init__(self, c=Config):
        super().__init__()
        self.c = c
        self.embedding = nn.Parameter(torch.empty(c.vocab, c.dim))
        self.blocks = nn.ModuleList(Block(c) for _ in range(c.layers))
        self.norm = RMSNorm(c.dim, c.eps)
        nn.init.normal_(self.embedding, 0, 0.02)
        for block in self.blocks:
            # The router needs 1/sqrt(d) as well: with 0.02 it collapses onto few experts.
            for p in (block.attn.q, block.attn.k, block.attn.v, block.moe.router, *block.moe.gate_up):
                nn.init.normal_(p, 0, c.dim ** -0.5)
            for p, fan_in in ((block.attn.o, c.heads * c.head_dim), *((d, c.expert_dim) for d in block.moe.down)):
                nn.init.normal_(p, 0, (fan_in * 2 * c.layers) ** -0.5)

    def forward(self, ids, keep=None, caches=None, start=0):
        """Logits of all positions, or only of the flat positions in keep (saves the last experts and the head)."""
        length = ids.shape[1]
        table = rope_table(self.c, length, start)
        mask = torch.full((length, start + length), -1e9).triu(1 + start)
        x = F.embedding(ids, self.embedding)
        for i, block in enumerate(self.blocks):
            last = i == self.c.layers - 1
            x = block(x, table, mask, None if caches is None else caches[i], keep if last else None)
        return self.norm(x) @ self.embedding.t()


@torch.no_grad()
def generate(model, ids, limit, stop):
    """Greedy decoding with a key/value cache."""
    caches, out, position = [{} for _ in model.blocks], [], 0
    x = torch.tensor([ids])
    while len(out) < limit:
        token = model(x, caches=caches, start=position)[0, -1].argmax().item()
        position += x.shape[1]
        if token in stop:
            break
        out.append(token)
        x = torch.tensor([[token]])
    return out


def flatten(model, flat):
    """Makes every parameter a view into one flat (shared) tensor; 2-D ones come first, so weight decay is a prefix.
    Returns the parameters in that order and the length of the prefix."""
    params = sorted(model.parameters(), key=lambda p: p.dim() <= 1)
    offset = 0
    for p in params:
        p.data = flat[offset:offset + p.numel()].view(p.shape)
        offset += p.numel()
    assert offset == flat.numel()
    return params, sum(p.numel() for p in params if p.dim() > 1)


def count_parameters(model):
    return sum(p.numel() for p in model.parameters())
