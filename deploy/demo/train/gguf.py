"""GGUF v3: writes the trained model (F32 or F16) and reads such a file back into the PyTorch model."""
import os
import struct

import numpy as np
import torch

import tokenizer
from model import Config as C

TEMPLATE = ("{% for message in messages %}<|im_start|>{{ message['role'] }}\n{{ message['content'] }}<|im_end|>\n{% endfor %}"
            "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}")
DESCRIPTION = ("Toy demo model trained on public-domain and permissively licensed text from Debian packages: The Devil's Dictionary, "
               "The Jargon File 4.4.7, a public-domain Bible translation (World English Bible module), WordNet 3.0 words and glosses.")
U32, F32, BOOL, STRING, ARRAY, I32 = 4, 6, 7, 8, 9, 5


def names():
    """GGUF tensor name -> name(s) of the PyTorch parameters it holds; a list is a stack of experts."""
    result = {'token_embd.weight': 'embedding', 'output_norm.weight': 'norm.weight'}
    for i in range(C.layers):
        p, b = f'blocks.{i}.', f'blk.{i}.'
        result.update({b + 'attn_norm.weight': p + 'attn_norm.weight', b + 'attn_q.weight': p + 'attn.q', b + 'attn_k.weight': p + 'attn.k',
                       b + 'attn_v.weight': p + 'attn.v', b + 'attn_output.weight': p + 'attn.o',
                       b + 'attn_q_norm.weight': p + 'attn.q_norm.weight', b + 'attn_k_norm.weight': p + 'attn.k_norm.weight',
                       b + 'ffn_norm.weight': p + 'ffn_norm.weight', b + 'ffn_gate_inp.weight': p + 'moe.router',
                       b + 'ffn_gate_exps.weight': [f'{p}moe.gate_up.{e}' for e in range(C.experts)],
                       b + 'ffn_up_exps.weight': [f'{p}moe.gate_up.{e}' for e in range(C.experts)],
                       b + 'ffn_down_exps.weight': [f'{p}moe.down.{e}' for e in range(C.experts)]})
    return result


def rows_of(name):
    """gate_up holds the gate rows, then the up rows; the file has them apart."""
    if 'ffn_gate_exps' in name:
        return slice(0, C.expert_dim)
    return slice(C.expert_dim, None) if 'ffn_up_exps' in name else slice(None)


def string(text):
    raw = text.encode()
    return struct.pack('<Q', len(raw)) + raw


def pair(key, kind, value):
    head = string(key) + struct.pack('<I', kind)
    if kind == STRING:
        return head + string(value)
    if kind == ARRAY and isinstance(value[0], str):
        return head + struct.pack('<IQ', STRING, len(value)) + b''.join(map(string, value))
    if kind == ARRAY:
        return head + struct.pack('<IQ', I32, len(value)) + np.array(value, np.int32).tobytes()
    return head + struct.pack({U32: '<I', F32: '<f', BOOL: '<?'}[kind], value)


def metadata(tok, f16):
    a, eot = 'qwen3moe.', tok.ids['<|endoftext|>']
    return [('general.architecture', STRING, 'qwen3moe'), ('general.type', STRING, 'model'),
            ('general.name', STRING, "Devil's Dictionary demo 21M"), ('general.size_label', STRING, '16x1.3M'),
            ('general.description', STRING, DESCRIPTION), ('general.file_type', U32, int(f16)), ('general.alignment', U32, 32),
            ('general.quantization_version', U32, 2),
            (a + 'block_count', U32, C.layers), (a + 'context_length', U32, C.context), (a + 'embedding_length', U32, C.dim),
            (a + 'feed_forward_length', U32, C.expert_dim * C.top_k), (a + 'attention.head_count', U32, C.heads),
            (a + 'attention.head_count_kv', U32, C.kv_heads), (a + 'attention.key_length', U32, C.head_dim),
            (a + 'attention.value_length', U32, C.head_dim), (a + 'rope.freq_base', F32, C.theta),
            (a + 'attention.layer_norm_rms_epsilon', F32, C.eps), (a + 'expert_count', U32, C.experts),
            (a + 'expert_used_count', U32, C.top_k), (a + 'expert_feed_forward_length', U32, C.expert_dim),
            ('tokenizer.ggml.model', STRING, 'gpt2'), ('tokenizer.ggml.pre', STRING, 'qwen2'), ('tokenizer.ggml.tokens', ARRAY, tok.vocab),
            ('tokenizer.ggml.token_type', ARRAY, [3 if t in tokenizer.SPECIAL else 1 for t in tok.vocab]),
            ('tokenizer.ggml.merges', ARRAY, [' '.join(m) for m in tok.merges]),
            ('tokenizer.ggml.eos_token_id', U32, tok.ids['<|im_end|>']), ('tokenizer.ggml.bos_token_id', U32, eot),
            ('tokenizer.ggml.padding_token_id', U32, eot), ('tokenizer.ggml.add_bos_token', BOOL, False),
            ('tokenizer.chat_template', STRING, TEMPLATE)]


def write(path, state, tok, f16):
    """state: the model's state_dict. Norms and routers stay F32. The head is tied: no output.weight."""
    info, data, offset, tensors = b'', [], 0, names()
    for name, source in tensors.items():
        if isinstance(source, list):
            array = np.stack([state[s].numpy()[rows_of(name)] for s in source])
        else:
            array = state[source].numpy()
        assert array.ndim == 1 or array.shape[-1] % 256 == 0, name
        half = f16 and array.ndim > 1 and 'ffn_gate_inp' not in name
        raw = np.ascontiguousarray(array, dtype=np.float16 if half else np.float32).tobytes()
        shape = array.shape[::-1]
        info += string(name) + struct.pack(f'<I{len(shape)}QIQ', len(shape), *shape, int(half), offset)
        raw += bytes(-len(raw) % 32)
        data.append(raw)
        offset += len(raw)
    pairs = metadata(tok, f16)
    head = b'GGUF' + struct.pack('<IQQ', 3, len(tensors), len(pairs)) + b''.join(pair(*p) for p in pairs) + info
    head += bytes(-len(head) % 32)
    with open(path + '.tmp', 'wb') as f:
        f.write(head + b''.join(data))
    os.replace(path + '.tmp', path)


def blocks(raw, count, size, values):
    """The first count values' blocks, one a row."""
    return np.frombuffer(raw, np.uint8, count // values * size).reshape(-1, size)


def half(block, at):
    return block[:, at:at + 2].copy().view(np.float16).astype(np.float32)


def decode_q8_0(raw, count):
    block = blocks(raw, count, 34, 32)
    return half(block, 0) * block[:, 2:].view(np.int8)


def decode_q5_k(raw, count):
    """32 bytes of high bits follow the scales; then four times 32 bytes of low nibbles, two groups of 32 values each."""
    block = blocks(raw, count, 176, 256)
    packed, high, low = block[:, 4:16], block[:, 16:48], block[:, 48:].reshape(-1, 4, 32)
    tops = packed[:, :8] >> 6
    scale = np.concatenate([packed[:, :4] & 63, packed[:, 8:] & 15 | tops[:, :4] << 4], 1)
    least = np.concatenate([packed[:, 4:8] & 63, packed[:, 8:] >> 4 | tops[:, 4:] << 4], 1)
    value = np.stack([low & 15, low >> 4], 2).reshape(-1, 8, 32)
    value = value + 16 * (high[:, None, :] >> np.arange(8, dtype=np.uint8)[:, None] & 1)
    return (half(block, 0) * scale)[:, :, None] * value - (half(block, 2) * least)[:, :, None]


def decode_q6_k(raw, count):
    block = blocks(raw, count, 210, 256)
    low, high, scale = block[:, :128].reshape(-1, 2, 1, 64), block[:, 128:192].reshape(-1, 2, 1, 32), block[:, 192:208].view(np.int8)
    shift = np.arange(4, dtype=np.uint8)[:, None]
    value = np.concatenate([low & 15, low >> 4], 2).reshape(-1, 2, 4, 32) | (high >> 2 * shift & 3) << 4
    return (half(block, 208) * scale)[:, :, None] * (value.reshape(-1, 16, 16).astype(np.float32) - 32)


DECODE = {0: lambda raw, count: np.frombuffer(raw, np.float32, count), 1: lambda raw, count: np.frombuffer(raw, np.float16, count),
          8: decode_q8_0, 13: decode_q5_k, 14: decode_q6_k}


class Reader:
    """Just enough of a GGUF reader for the files that write() makes and for their quantised copies."""

    def __init__(self, path):
        with open(path, 'rb') as f:
            self.raw = memoryview(f.read())
        self.at = 8
        count, pairs = self.take('<QQ')
        self.meta = {}
        for _ in range(pairs):
            key = self.string()
            self.meta[key] = self.value(*self.take('<I'))
        entries = []
        for _ in range(count):
            name, dims = self.string(), self.take('<I')[0]
            entries.append((name, self.take(f'<{dims}Q')[::-1], *self.take('<IQ')))
        base = self.at + -self.at % 32
        self.tensors = {n: DECODE[kind](self.raw[base + offset:], int(np.prod(shape))).reshape(shape) for n, shape, kind, offset in entries}

    def take(self, fmt):
        result = struct.unpack_from(fmt, self.raw, self.at)
        self.at += struct.calcsize(fmt)
        return result

    def string(self):
        size, = self.take('<Q')
        self.at += size
        return str(self.raw[self.at - size:self.at], 'utf8')

    def value(self, kind):
        if kind == STRING:
            return self.string()
        if kind == ARRAY:
            kind, size = self.take('<IQ')
            return [self.value(kind) for _ in range(size)]
        return self.take({U32: '<I', F32: '<f', BOOL: '<?', I32: '<i'}[kind])[0]


def load(path, model):
    """Fills the model from a file (F32, F16, Q8_0, Q6_K or Q5_K) and returns the tokenizer stored in it."""
    reader, state = Reader(path), model.state_dict()
    for name, source in names().items():
        array = torch.from_numpy(reader.tensors[name].astype(np.float32))
        if isinstance(source, list):
            for expert, s in zip(array, source):
                state[s][rows_of(name)] = expert
        else:
            state[source].copy_(array)
    merges = [tuple(m.split(' ')) for m in reader.meta['tokenizer.ggml.merges']]
    return tokenizer.Tokenizer(reader.meta['tokenizer.ggml.tokens'], merges)
