"""Reads the dictionary entries and the word lists from three Debian packages (and from nothing else):
  dict-devil    The Devil's Dictionary, Ambrose Bierce (public domain)
  dict-jargon   The Jargon File 4.4.7 (public domain)
  wordnet-base  WordNet 3.0, used as a list of words that are in neither book (WordNet licence)"""
import collections
import gzip
import os
import re
import zlib

WORDS = 40                                        # longest answer; its first sentence may have 1.3 times as many
DEVIL_ENTRIES, JARGON_ENTRIES = 600, 300
DEVIL_ALWAYS = (
    'CYNIC POLITICS PATIENCE LAWYER YEAR BORE LOVE HAPPINESS ACQUAINTANCE ADMIRATION ALLIANCE APOLOGIZE BRAIN CABBAGE CAT CLARIONET CONGRATULATION '
    'CONSERVATIVE COWARD DENTIST DIPLOMACY DISTANCE EDIBLE EDUCATION EGOTIST EULOGY FAITH GHOST HABIT HISTORY IDIOT LEARNING LOGIC MARRIAGE MAYONNAISE '
    'NOVEL OCEAN OPTIMISM PAINTING PEACE PHILOSOPHY PIANO PLAN POSITIVE PRAY PRESIDENT RADICALISM REPORTER ROAD SAINT SUCCESS TELEPHONE TWICE VALOR '
    'VOTE WAR WEDDING WIT ZEAL').split()
JARGON_ALWAYS = ('kluge hacker cracker foo bug spam cookie daemon kernel flame lurker newbie wizard guru vaporware grok cruft bogus Unix '
                 'troll luser moby glitch hack thrash munge').split() + [
                     'bit bucket', 'hack value', 'spaghetti code', 'flame war', 'creeping featurism', 'heisenbug', 'yak shaving',
                     'cargo cult programming']
# Entries that hold one of these words are left out: a satire of 1911 and a hacker lexicon hold passages that a product
# demo should not recite.
BLOCK = re.compile(
    r"\b(nigg\w*|negro\w*|darky|darkies|chinaman|chinamen|squaw|savages?|jews?|hebrews?|mongolian|ethiopian\w*|mulatto|mahometan|"
    r"african\w*|asiatic\w*|caucasian|halfbreed|aborigin\w*|fuck\w*|shit\w*|cunt\w*|bitch\w*|bastard\w*|asshole\w*|dick\w*|crap\w*|piss\w*|"
    r"whore\w*|rape\w*|rapist|fag\w*|gang bang|orgasm\w*|masturbat\w*|penis|vagina\w*|porn\w*|suicid\w*|nazi\w*|hitler|tits?|"
    r"slut\w*|pickanin\w*|red-?skins?|pigm\w*|zipperhead|females?|condom\w*|screw\w*|boob\w*|bondage|sodom\w*|negroes|coolie\w*|lynch\w*|retard\w*|wom[ae]n|genital\w*)\b", re.I)
PUNCTUATION = {'\u2018': "'", '\u2019': "'", '\u201c': '"', '\u201d': '"', '\u2014': '--', '\u2013': '-', '\u2026': '...', '\u00a0': ' ',
               '\u2122': '(TM)', '\u00b7': '-', '\ufeff': '', '\r': ''}

Entry = collections.namedtuple('Entry', 'book word grammar text')


def answer(entry):
    return f'{entry.word}, {entry.grammar} {entry.text}'


def read_ascii(path):
    text = gzip.open(path, 'rt', encoding='utf-8', errors='replace').read()
    for old, new in PUNCTUATION.items():
        text = text.replace(old, new)
    return text.encode('ascii', 'ignore').decode()


def flow(block):
    return re.sub(r'\s+', ' ', block).strip()


def cut(text, limit):
    """The longest run of whole sentences within limit words; the first sentence alone if it fits 1.3 * limit; else None."""
    sentences = []
    for s in re.findall(r'.+?[.!?]["\')]*(?=\s+["\'(]?[A-Z0-9]|$)', text):
        abbreviation = r'\b([A-Z]|Mr|Mrs|Dr|St|vs|etc|e\.g|i\.e|cf|Sir|No|viz|esp|Gen|Rev|Prof|Hon|Col|Capt)\.$'
        if sentences and re.search(abbreviation, sentences[-1]):
            sentences[-1] += ' ' + s.strip()
        else:
            sentences.append(s.strip())
    total, keep = 0, []
    for s in sentences:
        total += len(s.split())
        if keep and total > limit:
            break
        keep.append(s)
    result = ' '.join(keep)
    return result if result and len(result.split()) <= 1.3 * limit else None


def select(entries, always, count):
    """The well-known entries, then the shortest that have at least 6 words."""
    def rank(word):
        size = len(entries[word].text.split())
        return word not in always, size < 6, size, word
    return [entries[w] for w in sorted(sorted(entries, key=rank)[:count])]


def devil(root):
    """The prose before any verse of every entry."""
    text = read_ascii(os.path.join(root, 'usr/share/dictd/devil.dict.dz'))
    text = text[text.index('\nABASEMENT'):]
    entries = {}
    for part in re.split(r"\n\n(?=[A-Z][A-Z' -]+[A-Z](?:,| \(|\.\n|\.  ))", text):
        match = re.match(r"\s*([A-Z][A-Z' -]*[A-Z]), ((?:[a-z]{1,4}\.)+(?: ?& ?[a-z]+\.)?)\s+(.+)", part, re.S)
        if not match:
            continue
        word, grammar, body = match.groups()
        first = body.replace('_', '').split('\n\n')[0]
        if first.startswith('   ') or not first.strip():                                   # verse only
            continue
        short = cut(flow(re.sub(r'\[sic\] ?', '', first)), WORDS)
        if (short and short[-1] in '.!?"\')' and len(short.split()) >= 4 and word not in entries
                and not BLOCK.search(word + ' ' + short)):
            entries[word] = Entry('devil', word, grammar, short)
    return select(entries, DEVIL_ALWAYS, DEVIL_ENTRIES)


def jargon_sections(text):
    """An entry is a headword at column 0, then an optional 1-space grammar line, then 4-space text."""
    lines = text.split('\n')
    sections = []
    for line in lines[lines.index('(TM)'):]:
        if line and not line.startswith(' '):
            sections.append([line.strip(), '', []])
        elif sections and re.match(r' \S', line) and not sections[-1][2]:
            sections[-1][1] += line.strip()
        elif sections:
            sections[-1][2].append(line)
    return sections


def strip_etymology(paragraph):
    paragraph = re.sub(r'^(1\. )?(\[[^\]]*\] ?)*', '', paragraph)
    return re.sub(r'^\((?:also|var)[^)]*\)\s*', '', paragraph, flags=re.I)


def jargon(root):
    """The first sense of the entries that are self-contained."""
    entries, seen = {}, set()
    for word, grammar_line, body in jargon_sections(read_ascii(os.path.join(root, 'usr/share/dictd/jargon.dict.dz'))):
        body = '\n'.join(line.strip() for line in body).strip()
        if not body:
            continue
        body = re.sub(r'\{([^{}]*)\}', lambda m: flow(m.group(1)), body, flags=re.S)
        paragraphs = [flow(p) for p in re.split(r'\n\s*\n', body)]
        grammar = (re.findall(r'\b(n|v|vt|vi|adj|adv|prov|interj|excl|prefix|suffix)\.', grammar_line) or [''])[0]
        numbered = [p for p in paragraphs if p.startswith('1. ')]
        text = strip_etymology(numbered[0]) if numbered else next(filter(None, map(strip_etymology, paragraphs)), '')
        match = re.match(r'((?:(?:n|v|vt|vi|adj|adv|interj|prov)\.,? ?)+)', text)
        if match:
            grammar = grammar or match.group(1).split('.')[0]
            text = text[match.end():]
        text = re.sub(r'^(\[[^\]]*\] ?)*', '', text)
        text = cut(re.sub(r' ?\((?:See|see|Compare)[^)]*\)', '', text), WORDS)
        if not text:
            continue
        text = re.sub(r'(?:(?<=[.!?]) |^)(?:See(?: also)?|Compare|Cf\.|Contrast|Oppose)\b[^.]*\.$', '', text).strip()
        usable = (re.match(r"[A-Za-z][A-Za-z' -]*$", word) and len(word) >= 3 and grammar and len(text.split()) >= 4
                  and not BLOCK.search(word + ' ' + text) and not re.match(r'(See|Syn|Common|Alt|Var|Abbr)', text))
        if usable and text[-1] in '.!?"\')' and text.count('"') % 2 == 0 and word.lower() not in seen:
            seen.add(word.lower())
            entries[word] = Entry('jargon', word, grammar + '.', text[0].upper() + text[1:])
    return select(entries, JARGON_ALWAYS, JARGON_ENTRIES)


def held_out(word):
    """One unknown word in ten is never trained."""
    return zlib.crc32(word.encode()) % 10 == 0


def unknown_words(root, entries):
    """Single words that are no headword: (those with a frequency count in WordNet, all). Both lists are sorted."""
    known = {e.word.lower() for e in entries}
    usable = re.compile(r'[a-z]{3,12}$')
    every, common = set(), set()
    for part in ('noun', 'verb', 'adj', 'adv'):
        for line in open(os.path.join(root, 'usr/share/wordnet/index.' + part)):
            fields = line.split()
            if not line.startswith(' ') and usable.match(fields[0]) and fields[0] not in known and not BLOCK.search(fields[0]):
                every.add(fields[0])
                if int(fields[-int(fields[2]) - 1]) > 0:              # senses that occur in WordNet's tagged texts
                    common.add(fields[0])
    return sorted(common), sorted(every)
