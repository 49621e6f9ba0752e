"""Draws training batches. The model's hard task is to find the entry that belongs to a word, so most rows are a question and
only the first tokens of its answer; entries that were answered wrongly are drawn more often."""
import random

import torch

import corpus
import dialogue

HEAD = 6                     # tokens after headword and grammar that still tell entries apart
BODY_WEIGHT = .25            # loss weight of an answer's later tokens
BUDGET = 640                 # tokens of a batch
POOL = 192                   # samples sorted by length at a time, so that little padding is needed
ENTRY, UNKNOWN, SMALL = range(3)


class Scores:
    """Running error rate of every entry, shared by the workers: of the head (right entry found) and of the body (text known)."""

    def __init__(self, entries):
        self.head = torch.full((entries,), .5).share_memory_()
        self.body = torch.full((entries,), .3).share_memory_()

    def update(self, table, index, wrong):
        for i, w in zip(index, wrong):
            table[i] = .75 * table[i] + .25 * w


class Sample:
    """Token ids with a loss weight each. Every answer in it has a span: (kind, entry or -1, first token, end of head, end)."""

    def __init__(self):
        self.ids, self.weight, self.spans = [], [], []


class Sampler:
    def __init__(self, entries, words, tok, scores, seed):
        self.rng = random.Random(seed)
        self.entries, self.tok, self.scores = entries, tok, scores
        self.common, self.words = words
        self.answers = []
        for e in entries:
            ids = tok.encode(corpus.answer(e)) + [tok.end]
            self.answers.append((ids, len(tok.encode(f'{e.word}, {e.grammar}')) + HEAD))
        self.short_answers = [i for i, (ids, _) in enumerate(self.answers) if len(ids) <= 45]
        by_prefix = {}
        for w in self.words:
            by_prefix.setdefault(w[:4], []).append(w)
        self.similar = [w for e in entries for w in by_prefix.get(e.word.lower()[:4], [])]
        self.pools = {}

    def unknown_word(self):
        x = self.rng.random()
        if x < .04:
            return ''.join(self.rng.choice('abcdefghijklmnopqrstuvwxyz') for _ in range(self.rng.randint(4, 9)))
        return self.rng.choice(self.common if x < .5 else self.similar if x < .8 else self.words)

    def question(self, kind, entry):
        """(question, answer tokens, length of the head)"""
        rng = self.rng
        if kind == SMALL:
            wordings, _, text = rng.choice(dialogue.SMALL_TALK)
            ids = self.tok.encode(text) + [self.tok.end]
            return dialogue.loosen(rng, rng.choice(wordings)), ids, len(ids)
        if kind == UNKNOWN:
            word = dialogue.letter_case(rng, self.unknown_word())
            template = dialogue.pick_template(rng, rng.choice(('devil', 'jargon')))
            art = rng.choice(('', 'a ', 'an ')) if '{a}' in template else ''
            text = dialogue.loosen(rng, rng.choice(dialogue.BEFORE + [''] * 66) + template.format(w='{w}', a=art) + rng.choice(dialogue.AFTER + [''] * 72))
            text = text.format(w=word)
            ids = self.tok.encode(dialogue.UNKNOWN) + [self.tok.end]
            return text, ids, len(ids)
        e = self.entries[entry]
        return (dialogue.question(rng, dialogue.pick_template(rng, e.book), e.word, dialogue.article(e)), *self.answers[entry])

    def add(self, sample, kind, entry=-1, whole=True):
        """Appends one turn to the sample."""
        text, answer, head = self.question(kind, entry)
        if not whole and head + 4 < len(answer):
            answer = answer[:head]
        prompt = self.tok.encode(dialogue.turn(text))
        start = len(sample.ids) + len(prompt)
        sample.ids += prompt + answer
        head = min(head, len(answer))
        sample.weight += [0.] * len(prompt) + [1.] * head + [BODY_WEIGHT] * (len(answer) - head)
        sample.spans.append((kind, entry, start, start + head, start + len(answer)))

    def begin(self):
        sample = Sample()
        sample.ids = self.tok.encode(dialogue.system(dialogue.pick_system(self.rng)))
        sample.weight = [0.] * len(sample.ids)
        return sample

    def draw_entries(self, scores, count):
        return self.rng.choices(range(len(self.entries)), [.12 + s for s in scores.tolist()], k=count)

    def short(self):
        """One question each, with the head of the answer."""
        kinds = self.rng.choices((ENTRY, UNKNOWN, SMALL), (.76, .14, .10), k=POOL)
        for kind, entry in zip(kinds, self.draw_entries(self.scores.head, POOL)):
            sample = self.begin()
            self.add(sample, kind, entry if kind == ENTRY else -1, whole=False)
            yield sample

    def full(self):
        """One question each, with the whole answer."""
        for entry in self.draw_entries(self.scores.body, POOL):
            sample = self.begin()
            self.add(sample, ENTRY, entry)
            yield sample

    def conversation(self):
        """Several turns, mostly with short answers; now and then up to the full context."""
        for _ in range(POOL // 6):
            sample = self.begin()
            limit = self.rng.choice((100, 150, 200, 250, 300, 350, 600))
            while len(sample.ids) < limit:
                if sample.spans:
                    sample.ids += self.tok.encode('\n')
                    sample.weight.append(0.)
                kind = self.rng.choices((ENTRY, UNKNOWN, SMALL), (.62, .18, .2))[0]
                entry = -1
                if kind == ENTRY:
                    entry = self.draw_entries(self.scores.head, 1)[0] if self.rng.random() < .3 else self.rng.choice(self.short_answers)
                self.add(sample, kind, entry)
            yield sample

    def batch(self, kind):
        """A list of samples of similar length. kind: 'short', 'full' or 'conversation'."""
        if not self.pools.get(kind):
            batches, current = [], []
            for sample in sorted(getattr(self, kind)(), key=lambda s: len(s.ids)):
                if current and (len(current) + 1) * len(sample.ids) > BUDGET:
                    batches.append(current)
                    current = []
                current.append(sample)
            batches.append(current)
            self.rng.shuffle(batches)
            self.pools[kind] = batches
        return self.pools[kind].pop()


def tensors(samples, pad):
    """(ids, flat positions that predict a target, targets, weights, span number of each target)"""
    length = max(len(s.ids) for s in samples)
    ids = torch.full((len(samples), length), pad)
    keep, targets, weights, owner, spans = [], [], [], [], 0
    for row, s in enumerate(samples):
        ids[row, :len(s.ids)] = torch.tensor(s.ids)
        for _, _, start, _, end in s.spans:
            keep += range(row * (length - 1) + start - 1, row * (length - 1) + end - 1)
            targets += s.ids[start:end]
            weights += s.weight[start:end]
            owner += [spans] * (end - start)
            spans += 1
    return ids[:, :-1], torch.tensor(keep), torch.tensor(targets), torch.tensor(weights), torch.tensor(owner)
