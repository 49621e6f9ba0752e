#!/usr/bin/python3
"""Measures a model file: recall of the entries, unknown words, small talk, conversations; writes figures.json and samples.txt.
    /usr/bin/python3 train/evaluate.py MODEL.gguf [--out DIR] [--root DIR]

Greedy decoding reproduces a text if and only if the teacher-forced argmax equals it at every position, so one forward pass
replaces generation."""
import argparse
import json
import os
import random

import torch

import corpus
import dialogue
import gguf
from model import Model, count_parameters, generate

PROMPTS = ['What is a CYNIC?', 'Define politics', 'patience?', 'Tell me what LAWYER means.', 'Could you explain to me what the term eulogy means?',
           'May I ask for your opinion on happiness?', 'What does the Jargon File say about kluge?', 'Look up yak shaving in the Jargon File, please.',
           'what is a heisenbug', 'Would you kindly enlighten me as to love?', 'Hello!', 'Who are you?', 'What can you do?', 'Thank you!', 'What is a computer?',
           'Define bicycle.', 'What does photosynthesis mean?', 'What does the Jargon File say about umbrella?', 'xyzzzq?', 'Goodbye!']
CONVERSATION = ['Hi!', 'What is a bore?', 'And a cat?', 'Thanks!', 'What does the Jargon File say about grok?', 'telephone', 'What is a giraffe?']


def prompt(user, rng):
    return dialogue.system(dialogue.SYSTEM if rng.random() < .5 else None) + dialogue.turn(user)


@torch.no_grad()
def correct(model, tok, items, batch=4096):
    """items: [(prompt text, token ids)] -> for each the number of leading tokens that greedy decoding gets right."""
    items = [(tok.encode(p), answer) for p, answer in items]
    order = sorted(range(len(items)), key=lambda i: len(items[i][0]) + len(items[i][1]))
    result = [0] * len(items)
    while order:
        longest = len(items[order[-1]][0]) + len(items[order[-1]][1])
        part = [order.pop() for _ in range(min(len(order), max(1, batch // longest)))]
        ids = torch.full((len(part), longest), tok.end_of_text)
        for row, i in enumerate(part):
            ids[row, :len(items[i][0]) + len(items[i][1])] = torch.tensor(items[i][0] + items[i][1])
        keep = torch.tensor([row * longest + len(items[i][0]) - 1 + k for row, i in enumerate(part) for k in range(len(items[i][1]))])
        best = iter(model(ids, keep).argmax(-1).tolist())
        for i in part:
            same = [next(best) == t for t in items[i][1]]
            result[i] = same.index(False) if False in same else len(same)
    return result


class Evaluation:
    def __init__(self, model, tok, root):
        self.model, self.tok, self.rng = model, tok, random.Random(77)
        self.books = {'devil': corpus.devil(root), 'jargon': corpus.jargon(root)}
        self.entries = self.books['devil'] + self.books['jargon']
        self.unknown = [w for w in corpus.unknown_words(root, self.entries)[0] if corpus.held_out(w)]

    def head(self, entry):
        """Tokens of the first 8 words of the answer, headword and grammar included."""
        return self.tok.encode(' '.join(corpus.answer(entry).split()[:8]))

    def whole(self, text):
        return self.tok.encode(text) + [self.tok.end]

    def share(self, items):
        return round(sum(n == len(a) for n, (_, a) in zip(correct(self.model, self.tok, items), items)) / len(items), 4)

    def ask(self, template, entry):
        return template.format(w=dialogue.letter_case(self.rng, entry.word), a=dialogue.article(entry))

    def seen(self, entries):
        prompts = [prompt(dialogue.question(self.rng, dialogue.pick_template(self.rng, e.book), e.word, dialogue.article(e)), self.rng) for e in entries]
        answers = [self.whole(corpus.answer(e)) for e in entries]
        counts = correct(self.model, self.tok, list(zip(prompts, answers)))
        return {'n': len(entries), 'right entry': round(sum(n >= len(self.head(e)) for n, e in zip(counts, entries)) / len(entries), 4),
                'whole answer': round(sum(n == len(a) for n, a in zip(counts, answers)) / len(entries), 4)}

    def unseen(self):
        result = {}
        for template in dialogue.UNSEEN + dialogue.UNSEEN_JARGON:
            entries = self.books['jargon'] if template in dialogue.UNSEEN_JARGON else self.entries
            result[template] = {'n': len(entries), 'right entry': self.share([(prompt(self.ask(template, e), self.rng), self.head(e)) for e in entries])}
        return result

    def unknown_words(self, templates, count):
        words = self.rng.sample(self.unknown, count)
        items = []
        for w in words:
            w = dialogue.letter_case(self.rng, w)
            items.append((prompt(self.rng.choice(templates).format(w=w, a='a '), self.rng), self.whole(dialogue.UNKNOWN.format(w=w))))
        start = len(self.tok.encode('I have no entry for'))
        counts = correct(self.model, self.tok, items)
        return {'n': count, 'said to be unknown': round(sum(n >= start for n in counts) / count, 4),
                'and the word echoed exactly': round(sum(n == len(a) for n, (_, a) in zip(counts, items)) / count, 4)}

    def small_talk(self, column):
        items = [(prompt(wording, self.rng), self.whole(group[2])) for group in dialogue.SMALL_TALK for wording in group[column]]
        return {'n': len(items), 'whole answer': self.share(items)}

    def conversations(self, count):
        """The last question of conversations of 2 to 5 turns whose history is right."""
        items = []
        for entry in self.rng.sample(self.entries, count):
            history = dialogue.system(dialogue.SYSTEM if self.rng.random() < .5 else None)
            for _ in range(self.rng.randint(1, 4)):
                other = self.rng.choice(self.entries)
                wordings, _, text = self.rng.choice(dialogue.SMALL_TALK)
                user, reply = self.rng.choice(((self.ask(self.rng.choice(dialogue.OPENINGS), other), corpus.answer(other)), (self.rng.choice(wordings), text)))
                history += dialogue.turn(user) + reply + '<|im_end|>\n'
            items.append((history + dialogue.turn(self.ask(self.rng.choice(dialogue.OPENINGS), entry)), self.head(entry)))
        return {'n': count, 'right entry': self.share(items)}

    def figures(self):
        unseen = self.unseen()
        return {'parameters': count_parameters(self.model), 'seen wordings': self.seen(self.entries),
                  **{f'seen wordings, {k}': self.seen(v) for k, v in self.books.items()},
                  'unseen wordings, mean': round(sum(v['n'] * v['right entry'] for v in unseen.values()) / sum(v['n'] for v in unseen.values()), 4),
                  'unseen wordings': unseen,
                  'unknown words, seen wordings': self.unknown_words(dialogue.OPENINGS + dialogue.JARGON_OPENINGS, 500),
                  'unknown words, unseen wordings': self.unknown_words(dialogue.UNSEEN + dialogue.UNSEEN_JARGON, 500),
                  'small talk, trained wordings': self.small_talk(0), 'small talk, held-out wordings': self.small_talk(1),
                  'conversations, last turn': self.conversations(300)}

    def reply(self, text):
        return self.tok.decode(generate(self.model, self.tok.encode(text), 200, (self.tok.end, self.tok.end_of_text)))

    def samples(self):
        for user in PROMPTS:
            yield f'> {user}\n{self.reply(dialogue.turn(user))}\n'
        yield '(one conversation, with the system prompt)\n'
        history = dialogue.system(dialogue.SYSTEM)
        for user in CONVERSATION:
            history += dialogue.turn(user)
            reply = self.reply(history)
            history += reply + '<|im_end|>\n'
            yield f'> {user}\n{reply}\n'


def run(path, root, out, training=None):
    torch.set_num_threads(1)
    model = Model()
    tok = gguf.load(path, model)
    model.eval()
    evaluation = Evaluation(model, tok, root)
    figures = {'file': os.path.basename(path), **({'training': training} if training else {}), **evaluation.figures()}
    with open(os.path.join(out, 'figures.json'), 'w') as f:
        json.dump(figures, f, indent=1)
        f.write('\n')
    print(json.dumps(figures, indent=1), flush=True)
    with open(os.path.join(out, 'samples.txt'), 'w') as f:
        for s in evaluation.samples():
            print(s, flush=True)
            f.write(s + '\n')


if __name__ == '__main__':
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('model')
    parser.add_argument('--root', default='/')
    parser.add_argument('--out', default='.')
    args = parser.parse_args()
    run(args.model, args.root, args.out)
