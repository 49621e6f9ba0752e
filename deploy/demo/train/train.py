#!/usr/bin/python3
"""Trains the demo model end to end: corpus, tokenizer, training, GGUF, evaluation.

Debian 12 packages:
    apt-get install --no-install-recommends python3-torch python3-numpy python3-regex libopenblas0-pthread \\
                    dict-devil dict-jargon wordnet-base
One command, with Debian's own interpreter:
    /usr/bin/python3 train/train.py --minutes 95 --work work --out out [--init earlier.gguf]
SIGTERM saves and stops; --resume goes on from the last checkpoint. While the --pause-file exists, training sleeps.
work/control.json may hold {"end": UNIX TIME, "lr": NUMBER, "mix": {"short": .75, "full": .1, "conversation": .15}}; it is
read again every few steps.

Two single-thread data-parallel workers: two BLAS threads in one process stall each other on a busy machine. Parameters,
gradients and optimizer state lie in shared memory; each worker updates its half (AdamW). The learning rate follows the
clock, so a run is not bit-reproducible."""
import os

os.environ['OPENBLAS_NUM_THREADS'] = os.environ['OMP_NUM_THREADS'] = '1'

import argparse
import collections
import json
import random
import signal
import time

import torch
import torch.multiprocessing as mp
import torch.nn.functional as F

import corpus
import dialogue
import evaluate
import gguf
import sampler
import tokenizer
from model import Config, Model, count_parameters, flatten

WORKERS = 2
PEAK, WARMUP, FINAL = 1e-3, 20, .02           # learning rate: peak, steps of warm-up, share of the peak at the end
DECAY_FROM = .25                              # share of the time after which the rate falls linearly
BETA1, BETA2, EPS, DECAY = .9, .97, 1e-8, .02
BALANCE = .03                                 # weight of the router's load-balancing loss
AVERAGE_EVERY, AVERAGE = 4, .9                # the exported parameters are a running average
MIX = {'short': .75, 'full': .1, 'conversation': .15}
SAVE_SECONDS = 180
CHUNK = 1 << 16                               # optimizer chunk that stays in the cache


def train_tokenizer(entries, words):
    """Merges from the answers, the questions and some of WordNet's words."""
    counts, rng = collections.Counter(), random.Random(5)

    def count(text, weight):
        for w in tokenizer.PATTERN.findall(text):
            counts[w] += weight
    for e in entries:
        count(corpus.answer(e), 4)
        count(f'{e.word.lower()}\nDefine {e.word.lower()} {e.word.upper()} {e.word.capitalize()}', 10)
    for template in dialogue.OPENINGS + dialogue.JARGON_OPENINGS + dialogue.DEVIL_OPENINGS:
        count(template, 10)
    count('\n'.join(dialogue.BEFORE + dialogue.AFTER + dialogue.OTHER_SYSTEM), 10)
    count(f'user assistant system {dialogue.SYSTEM} {dialogue.UNKNOWN}', 2000)
    for wordings, _, text in dialogue.SMALL_TALK:
        count('\n'.join(wordings + [text]), 10)
    for w in words[0] + rng.sample(words[1], 10000):
        counts[w] += 1
    return tokenizer.Tokenizer(*tokenizer.train(counts, Config.vocab))


class Shared:
    """What the workers share. Slots of state: share of the time used, stop, learning rate, steps; then the gradient norms."""

    def __init__(self, model, entries, args):
        size = count_parameters(model)
        self.flat = torch.cat([p.detach().reshape(-1) for p in sorted(model.parameters(), key=lambda p: p.dim() <= 1)]).share_memory_()
        self.grad = torch.zeros(WORKERS, size).share_memory_()
        self.average = self.flat.clone().share_memory_()
        self.first, self.second = (torch.zeros(size).share_memory_() for _ in range(2))
        self.state = torch.zeros(16, dtype=torch.float64).share_memory_()
        self.scores = sampler.Scores(entries)
        self.barrier = mp.Barrier(WORKERS)
        self.stop = mp.Event()
        self.path = os.path.join(args.work, 'checkpoint.pt')
        if args.resume:
            saved = torch.load(self.path)
            for name in ('flat', 'average', 'first', 'second'):
                getattr(self, name).copy_(saved[name])
            self.scores.head.copy_(saved['head'])
            self.scores.body.copy_(saved['body'])
            self.state[3] = saved['info']['steps']

    def save(self, info):
        torch.save({'flat': self.flat, 'average': self.average, 'first': self.first, 'second': self.second,
                    'head': self.scores.head, 'body': self.scores.body, 'info': info}, self.path + '.tmp')
        os.replace(self.path + '.tmp', self.path)


class Worker:
    def __init__(self, rank, shared, entries, words, tok, args):
        torch.set_num_threads(1)
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        self.rank, self.shared, self.args, self.tok = rank, shared, args, tok
        self.model = Model()
        self.params, self.decayed = flatten(self.model, shared.flat)
        self.sampler = sampler.Sampler(entries, words, tok, shared.scores, 1000 * int(shared.state[3]) + rank)
        self.rng = random.Random(int(shared.state[3]))                        # the same batch kinds in every worker
        size = shared.flat.numel()
        self.low, self.high = size * rank // WORKERS, size * (rank + 1) // WORKERS
        self.begin = time.time()
        self.control = {'end': self.begin + 60 * args.minutes, 'lr': PEAK, 'mix': MIX}
        self.tokens = self.targets = 0
        self.right = collections.defaultdict(lambda: .0)                      # running rates for the log

    def read_control(self):
        path = os.path.join(self.args.work, 'control.json')
        if os.path.exists(path):
            with open(path) as f:
                self.control.update(json.load(f))

    def schedule(self):
        """Rank 0: waits while paused, then publishes stop and learning rate."""
        state = self.shared.state
        while os.path.exists(self.args.pause_file) and not self.shared.stop.is_set():
            print(time.strftime('%H:%M:%S'), 'paused', flush=True)
            time.sleep(5)
        now, end = time.time(), self.control['end']
        part = (now - self.begin) / max(1, end - self.begin)
        state[1] = float(part >= 1 or self.shared.stop.is_set())
        fall = max(FINAL, 1 - max(0, part - DECAY_FROM) / (1 - DECAY_FROM))
        state[2] = self.control['lr'] * fall * min(1, (self.step + 1) / WARMUP)

    def gradients(self, kind):
        """Forward and backward pass of one batch; leaves the gradient in the shared memory."""
        samples = self.sampler.batch(kind)
        ids, keep, targets, weights, owner = sampler.tensors(samples, self.tok.end_of_text)
        logits = self.model(ids, keep)
        loss = (F.cross_entropy(logits, targets, reduction='none') * weights).sum() / weights.sum()
        balance = sum(b.moe.balance for b in self.model.blocks) / Config.layers
        (loss + BALANCE * balance).backward()
        offset = 0
        for p in self.params:
            part = self.shared.grad[self.rank, offset:offset + p.numel()]
            offset += p.numel()
            if p.grad is None:                                                # an expert without a token
                part.zero_()
            else:
                part.copy_(p.grad.reshape(-1))
                p.grad = None
        self.score(samples, logits.argmax(-1) != targets, weights, owner)
        self.tokens += ids.numel()
        self.targets += targets.numel()
        self.note('loss ' + kind, loss.item())

    def score(self, samples, wrong, weights, owner):
        """Keeps the error rates of entries and of the other kinds of answers."""
        spans = [span for s in samples for span in s.spans]
        is_head = weights == 1
        head, body = (torch.zeros(len(spans)).index_add(0, owner[m], wrong[m].float()).gt(0).tolist() for m in (is_head, ~is_head))
        scores = self.shared.scores
        for (kind, entry, _, head_end, end), bad_head, bad_body in zip(spans, head, body):
            self.note(('entry', 'unknown', 'small')[kind], float(not bad_head))
            if kind == sampler.ENTRY:
                scores.update(scores.head, [entry], [float(bad_head)])
                if end > head_end:
                    scores.update(scores.body, [entry], [float(bad_body)])
                    self.note('text', float(not bad_body))

    def note(self, key, value):
        self.right[key] = value if key not in self.right else .99 * self.right[key] + .01 * value

    def optimise(self):
        """AdamW on this worker's part of the parameters, with the workers' mean gradient clipped to norm 1."""
        s, rate, square = self.shared, self.shared.state[2].item(), 0.
        for i in range(self.low, self.high, CHUNK):
            j = min(self.high, i + CHUNK)
            total = s.grad[0, i:j]
            for other in range(1, WORKERS):
                total.add_(s.grad[other, i:j])
            square += total.dot(total).item()
        s.state[8 + self.rank] = square
        s.barrier.wait()
        norm = s.state[8:8 + WORKERS].sum().item() ** .5 / WORKERS
        scale = min(1., 1. / (norm + 1e-6)) / WORKERS
        self.step += 1
        age = self.step
        correct1, correct2 = 1 - BETA1 ** age, (1 - BETA2 ** age) ** .5
        for i in range(self.low, self.high, CHUNK):
            j = min(self.high, i + CHUNK)
            g, first, second, flat = s.grad[0, i:j].mul_(scale), s.first[i:j], s.second[i:j], s.flat[i:j]
            first.mul_(BETA1).add_(g, alpha=1 - BETA1)
            second.mul_(BETA2).addcmul_(g, g, value=1 - BETA2)
            if i < self.decayed:
                flat.mul_(1 - rate * DECAY)
            flat.addcdiv_(first, second.sqrt().div_(correct2).add_(EPS), value=-rate / correct1)
            if self.step % AVERAGE_EVERY == 0:
                s.average[i:j].lerp_(flat, 1 - AVERAGE)
        return norm

    def info(self):
        return {'steps': self.step, 'tokens': WORKERS * self.tokens, 'targets': WORKERS * self.targets,
                'minutes': round((time.time() - self.begin) / 60, 1)}

    def log(self, norm):
        rates = ' '.join(f'{k} {v:.3f}' for k, v in sorted(self.right.items()))
        load = [round((b.moe.load.max() * Config.experts / b.moe.load.sum()).item(), 1) for b in self.model.blocks]
        speed = WORKERS * self.tokens / (time.time() - self.begin)
        print(f'{time.strftime("%H:%M:%S")} step {self.step} {rates} | norm {norm:.2f} lr {self.shared.state[2].item():.5f} load {load} tok/s {speed:.0f} '
              f'| entries failing {(self.shared.scores.head > .3).sum().item()} texts failing {(self.shared.scores.body > .3).sum().item()}', flush=True)

    def run(self):
        shared, saved = self.shared, time.time()
        self.step = self.start = int(shared.state[3])
        while True:
            if (self.step - self.start) % 10 == 0:
                self.read_control()
            if self.rank == 0:
                self.schedule()
            shared.barrier.wait()
            if shared.state[1]:
                break
            mix = self.control['mix']
            self.gradients(self.rng.choices(list(mix), list(mix.values()))[0])
            shared.barrier.wait()
            norm = self.optimise()
            if self.rank == 0 and (self.step - self.start < 4 or self.step % 50 == 0):
                self.log(norm)
            if self.rank == 0 and time.time() - saved > SAVE_SECONDS:
                shared.save(self.info())
                saved = time.time()
        if self.rank == 0:
            shared.save(self.info())
            print('done', self.info(), flush=True)


def work(rank, *args):
    Worker(rank, *args).run()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--minutes', type=float, default=95)
    parser.add_argument('--init', help='start from the parameters and the tokenizer of this F16 or F32 GGUF file')
    parser.add_argument('--resume', action='store_true', help='go on from the last checkpoint in the work directory (with the same --init)')
    parser.add_argument('--root', default='/', help='where the data packages are unpacked')
    parser.add_argument('--work', default='work')
    parser.add_argument('--out', default='out')
    parser.add_argument('--pause-file', default='work/pause')
    args = parser.parse_args()
    os.makedirs(args.work, exist_ok=True)
    os.makedirs(args.out, exist_ok=True)
    torch.manual_seed(1)
    entries = corpus.devil(args.root) + corpus.jargon(args.root)
    words = [[w for w in part if not corpus.held_out(w)] for part in corpus.unknown_words(args.root, entries)]
    model = Model()
    tok = gguf.load(args.init, model) if args.init else train_tokenizer(entries, words)
    print(len(entries), 'entries,', len(words[1]), 'other words,', count_parameters(model), 'parameters', flush=True)
    shared = Shared(model, len(entries), args)
    workers = [mp.Process(target=work, args=(r, shared, entries, words, tok, args)) for r in range(WORKERS)]
    for w in workers:
        w.start()
    signal.signal(signal.SIGTERM, lambda *_: shared.stop.set())
    for w in workers:
        w.join()
    if any(w.exitcode for w in workers):
        raise SystemExit('a worker failed')
    flatten(model, shared.average)
    gguf.write(os.path.join(args.out, 'demo-f16.gguf'), model.state_dict(), tok, f16=True)
    evaluate.run(os.path.join(args.out, 'demo-f16.gguf'), args.root, args.out, torch.load(shared.path)['info'])


if __name__ == '__main__':
    main()
