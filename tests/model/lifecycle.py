#!/usr/bin/env python3
"""Explicit-state check of the root lifecycle protocol, on one table name.

    lifecycle.py            pairs and triples, chosen fours with crashes, all fours without, teeth
    lifecycle.py --quick    pairs with crashes, chosen fours without, teeth
    lifecycle.py --deep     as by default, and all fours from everywhere with crashes (some minutes)

Every step is one store request; all interleavings are explored, and an actor may crash before any step. An owner
is taken over only when it has crashed: that is what the lease buys (time itself is not modelled). Exit code 1 when
the protocol as designed violates an invariant, or when a variant with a step broken on purpose ("teeth") does not.

The store:  tomb      None or (id, 'drop' | 'creating', owner of a creating one)
            claims    {(id, generation): (action, owner, (manifest before, manifest to commit))}, create-if-absent
            manifest  latest generation or None; files: data files, one per generation
Not modelled: lost answers, except of the commit (elsewhere the own id in the object tells), requests that arrive
after the lease, and old handles that commit during a purge.

Live means: a manifest, and no tombstone or only a `creating` one (a creator that lost the race must not hide the
winner's table). Drop ids and generations are 10 + actor: no actor needs two, and the count of states stays small.
"""
import sys, time
from collections import namedtuple
from itertools import combinations_with_replacement

# From `acked` on: history, for the invariants only. fault: an invariant is violated; slip: no harm yet, but the
# reasoning behind the design is wrong (the broken variants are not convicted on a slip).
S = namedtuple('S', 'tomb claims manifest files  acked started ended succ old fault slip')
NONE = frozenset()
OUTCOMES = {'undrop', 'purge', 'revive'}

# What a broken variant changes. 'dead': after the lease; 'any': at once.
DESIGN = dict(help='dead', takeover='dead', reread=True, hidden=True, verify=True, postcheck=True, look=True,
              creating_shows=True, rollback=True, own_commit=True, claims_first=True, batch_check=True,
              look_again=True, exact=True)


def live(s, F):
    return s.manifest is not None and (s.tomb is None or s.tomb[1] == 'creating' and F['creating_shows'])

def carries(s, d):
    return s.tomb is not None and s.tomb[0] == d

def newest(s, d):
    return max(((g, c) for (x, g), c in s.claims if x == d), key=lambda x: x[0], default=None)

def claim(s, d, gen, c):
    """Create if absent; None when it is there."""
    if any(k == (d, gen) for k, _ in s.claims): return None
    return s._replace(claims=tuple(sorted(s.claims + (((d, gen), c),))))

def unclaim(s, ids):
    # All generations in one step: claims go only after their drop id is over, and then nobody acts on any of them.
    slip = 'claim released while its drop id stands' if any(carries(s, d) for d in ids) else s.slip
    return s._replace(claims=tuple(x for x in s.claims if x[0][0] not in ids), slip=slip)

def end(s, d, how, tomb=None):
    """Blind delete (or overwrite) of the tombstone by somebody who believes that it is d."""
    for h in [h for x, h in s.ended if x == d]:
        why = f'drop {d} finished twice: {h} and {how}'                                                  # 2
        s = s._replace(fault=why) if h != how and {h, how} <= OUTCOMES else s._replace(slip=why)
    return s._replace(tomb=tomb, ended=s.ended | {(d, how)})

def acked(s, F, what):
    return s if live(s, F) else s._replace(fault=f'acknowledged {what}, but no live table')              # 4

def begin(s, d, action, me, rec=None):
    """The first claim on d, by somebody who was asked for it."""
    s2 = claim(s, d, 0, (action, me, rec))
    return s2 and s2._replace(started=s.started | {(d, action)})


# One function per step: (s, me, l, F, dead) -> [(s', next step, l')]; l is what the actor remembers. A next step
# without a rule is the end, and its name the answer.
RULES, TAKEN = {}, set()
BROKEN_ONLY = {'c3-old-recheck', 'c4-old-manifest', 'q1-claims-late'}
def at(name):
    def add(f): RULES[name] = f; return f
    return add

# ---- drop
@at('d0-manifest?')
def _(s, me, l, F, dead):
    return [(s, 'd1-put-tomb', l) if s.manifest is not None else (s, 'notfound', l)]

@at('d1-put-tomb')
def _(s, me, l, F, dead):
    if s.tomb: return [found(s, 'notfound', 'retry')]
    d = 10 + me
    s = s._replace(tomb=(d, 'drop', None), old=s.old | {s.manifest})
    return [(s, 'd2-manifest?', (d,))] if F['postcheck'] else [(s._replace(acked=s.acked | {d}), 'ok', l)]

@at('d2-manifest?')
def _(s, me, l, F, dead):
    if s.manifest is not None: return [(s._replace(acked=s.acked | {l[0]}), 'ok', l)]
    return [(s, 'd3-claim', l)]   # purged between d0 and d1: our tombstone lies over nothing

@at('d3-claim')
def _(s, me, l, F, dead):
    s2 = claim(s, l[0], 0, ('purge', me, None))
    return [(s2, 'd4-reread', l) if s2 else (s, 'notfound', l)]

@at('d4-reread')
def _(s, me, l, F, dead):
    return [(s, 'd5-del-tomb' if carries(s, l[0]) or not F['reread'] else 'x-del-claim', l)]

@at('d5-del-tomb')
def _(s, me, l, F, dead):
    return [(end(s, l[0], 'backout'), 'x-del-claim', l)]

# ---- undrop
@at('u0-tomb?')
def _(s, me, l, F, dead):
    if not s.tomb: return [(s, 'notfound', l)]
    return [(s, 'u1-claim', s.tomb[:1]) if s.tomb[1] == 'drop' else found(s, 'notfound', 'notfound')]

@at('u1-claim')
def _(s, me, l, F, dead):
    s2 = begin(s, l[0], 'undrop', me)
    return [(s2, 'u2-reread', l) if s2 else (s, 't0-claim?', l)]

@at('u2-reread')
def _(s, me, l, F, dead):
    return [(s, 'u3-manifest?' if carries(s, l[0]) or not F['reread'] else 'x-del-claim', l)]

@at('u3-manifest?')
def _(s, me, l, F, dead):
    # A drop that raced a purge leaves a tombstone over nothing: clear it, but do not call that an undrop.
    return [(s, 'u4-del-tomb' if s.manifest is not None or not F['look'] else 'u4-clear', l)]

@at('u4-del-tomb')
def _(s, me, l, F, dead):
    s = acked(end(s, l[0], 'undrop'), F, 'undrop')
    if s.manifest not in s.old and not s.fault:
        s = s._replace(fault=f'undrop brought {s.manifest}, which nobody dropped')                       # 8
    return [(s, 'x-del-claim', l)]

@at('u4-clear')
def _(s, me, l, F, dead):
    return [(end(s, l[0], 'undrop'), 'x-del-claim', l)]

# ---- purge
@at('p0-tomb?')
def _(s, me, l, F, dead):
    if not s.tomb: return [(s, 'notfound', l)]
    return [(s, 'p1-claim', s.tomb[:1]) if s.tomb[1] == 'drop' else found(s, 'notfound', 'notfound')]

@at('p1-claim')
def _(s, me, l, F, dead):
    s2 = begin(s, l[0], 'purge', me)
    return [(s2, 'p2-reread', l) if s2 else (s, 't0-claim?', l)]

@at('p2-reread')
def _(s, me, l, F, dead):
    return [(s, 'p3-list' if carries(s, l[0]) or not F['reread'] else 'x-del-claim', l)]

@at('p3-list')
def _(s, me, l, F, dead):
    if s.manifest is None and not s.files: return [(s, 'p7-del-tomb', l)]
    return [(s, 'p4-del-manifest' if s.manifest is not None else 'p5-reread', (l[0], s.files))]

@at('p4-del-manifest')   # the first batch: names that a later table could reuse, so it hits whatever is there now
def _(s, me, l, F, dead):
    return [(s._replace(manifest=None), 'p5-reread', l)]

@at('p5-reread')
def _(s, me, l, F, dead):
    return [(s, 'p6-del-files' if carries(s, l[0]) or not F['batch_check'] else 'x-del-claim', l)]

@at('p6-del-files')
def _(s, me, l, F, dead):
    return [(s._replace(files=s.files - l[1]), 'p2-reread', l[:1])]

@at('p7-del-tomb')
def _(s, me, l, F, dead):
    return [(end(s, l[0], 'purge'), 'x-del-claim', l)]

# ---- create over an absent name: born hidden
@at('c0-tomb?')
def _(s, me, l, F, dead):
    if not s.tomb: return [(s, 'c0-manifest?', l)]
    return [(s, 'r0-manifest?', s.tomb[:1]) if s.tomb[1] == 'drop' else found(s, 'retry', 'retry')]

@at('c0-manifest?')
def _(s, me, l, F, dead):
    return [(s, 'c1-files', l) if s.manifest is None else (s, 'exists', l)]

@at('c1-files')
def _(s, me, l, F, dead):
    return [(s._replace(files=s.files | {10 + me}), 'c2-put-tomb' if F['hidden'] else 'c3-old-recheck', l)]

@at('c2-put-tomb')
def _(s, me, l, F, dead):
    if s.tomb: return [found(s, 'retry', 'retry')]
    return [(s._replace(tomb=(10 + me, 'creating', me)), 'c3-list', (10 + me,))]

@at('c3-list')
def _(s, me, l, F, dead):
    good = s.manifest is None and (10 + me in s.files or not F['verify'])
    return [(s, 'c4-manifest' if good else 'c5-abandon', l)]

@at('c4-manifest')   # create if absent
def _(s, me, l, F, dead):
    return [(s._replace(manifest=10 + me), 'c5-del-tomb', l) if s.manifest is None else (s, 'c5-abandon', l)]

@at('c5-del-tomb')
def _(s, me, l, F, dead):
    return [(acked(end(s, l[0], 'create'), F, 'create'), 'ok', l)]

@at('c5-abandon')
def _(s, me, l, F, dead):
    return [(end(s, l[0], 'abandon'), 'retry', l)]

@at('c3-old-recheck')   # the protocol before
def _(s, me, l, F, dead):
    return [(s, 'c4-old-manifest', l) if not s.tomb else (s, 'retry', l)]

@at('c4-old-manifest')
def _(s, me, l, F, dead):
    return [(s._replace(manifest=10 + me), 'ok', l) if s.manifest is None else (s, 'exists', l)]

# ---- revive: create over a dropped name
@at('r0-manifest?')
def _(s, me, l, F, dead):
    return [(s, 'r1-files', (l[0], s.manifest))]

@at('r1-files')
def _(s, me, l, F, dead):
    return [(s._replace(files=s.files | {10 + me}), 'r2-claim', l)]

@at('r2-claim')
def _(s, me, l, F, dead):
    s2 = begin(s, l[0], 'revive', me, (l[1], 10 + me))
    return [(s2, 'r3-reread', l[:1]) if s2 else (s, 't0-claim?', l[:1])]

@at('r3-reread')
def _(s, me, l, F, dead):
    return [(s, 'r4-commit' if carries(s, l[0]) or not F['reread'] else 'x-del-claim', l)]

@at('r4-commit')
def _(s, me, l, F, dead):
    done = s._replace(manifest=10 + me)   # committed, failed, or failed to tell us that it committed
    return [(done, 'r5-del-tomb', l), (s, 'r4-committed?', l), (done, 'r4-committed?', l)]

@at('r4-committed?')
def _(s, me, l, F, dead):
    return [(s, 'r5-del-tomb' if s.manifest == 10 + me and F['look_again'] else 'r5-reissue', l)]

@at('r5-del-tomb')
def _(s, me, l, F, dead):
    return [(acked(end(s, l[0], 'revive'), F, 'revive'), 'x-del-claim', l)]

@at('r5-reissue')
def _(s, me, l, F, dead):
    # Never release a claim while its drop id stands: who read the id earlier could win it a second time.
    d = 10 + me
    s = end(s, l[0], 'reissue', tomb=(d, 'drop', None))
    return [(s._replace(succ=s.succ | {(l[0], d)}), 'x-del-claim', l)]

# ---- somebody else's unfinished work
def found(s, answer, busy):
    """A tombstone stands in our way. A creating one may be an orphan: see who owns it."""
    d, kind, owner = s.tomb
    return (s, answer, ()) if kind == 'drop' else (s, 't0-claim?', (d, owner, busy))

@at('t0-claim?')
def _(s, me, l, F, dead):
    n, busy = newest(s, l[0]), l[2] if len(l) > 1 else 'lost'
    if not n and len(l) > 1: n = 0, ('creating', l[1], None)   # generation 0 is embedded in the tombstone
    if not n: return [(s, busy, l)]
    gen, (action, owner, rec) = n
    mode = F['takeover'] if action == 'purge' else F['help']
    if owner == me or not (mode == 'any' or owner in dead): return [(s, busy, l)]
    return [(s, 't1-next-generation', (l[0], gen + 1, action, rec))]

@at('t1-next-generation')
def _(s, me, l, F, dead):
    d, gen, action, rec = l
    s2 = claim(s, d, gen, (action, me, rec))
    return [(s2, 't2-reread', (d, action, rec)) if s2 else (s, 'lost', l)]

@at('t2-reread')
def _(s, me, l, F, dead):
    d, action, rec = l
    if F['reread'] and not carries(s, d): return [(s, 'x-del-claim', (d,))]
    go = dict(undrop='u3-manifest?', purge='p3-list', revive='t3-committed?', creating='t3-del-tomb')[action]
    return [(s, go, (d, rec) if action == 'revive' else (d,))]

@at('t3-del-tomb')
def _(s, me, l, F, dead):
    return [(end(s, l[0], 'abandon' if s.manifest is None else 'create'), 'x-del-claim', l)]

@at('t3-committed?')
def _(s, me, l, F, dead):
    before, own = l[1]
    committed = s.manifest == own if F['own_commit'] else s.manifest != before
    return [(s, 't4-del-tomb' if committed or not F['rollback'] else 'r5-reissue', l[:1])]

@at('t4-del-tomb')
def _(s, me, l, F, dead):
    return [(end(s, l[0], 'revive'), 'x-del-claim', l)]

@at('x-del-claim')
def _(s, me, l, F, dead):
    return [(unclaim(s, l[:1]), 'end', l)]

# ---- reconcile
@at('q0-list-claims')
def _(s, me, l, F, dead):
    if not F['claims_first']: return [(s, 'q1-claims-late', (s.tomb,))]
    return [(s, 'q1-tomb?', tuple(sorted({d for (d, _), _ in s.claims})))]

@at('q1-tomb?')   # after the claims: a claim without its tombstone is garbage only if the tombstone was read later
def _(s, me, l, F, dead):
    return [judge(s, s.tomb, l)]

@at('q1-claims-late')
def _(s, me, l, F, dead):
    return [judge(s, l[0], tuple(sorted({d for (d, _), _ in s.claims})))]

def judge(s, tomb, claimed):
    d, kind, owner = tomb or (None, None, None)
    then = (d, owner, 'end') if kind == 'creating' else (d,) if d in claimed else ()
    stale = tuple(x for x in claimed if x != d)
    return (s, 'q2-del-stale', (stale, then)) if stale else (s, 't0-claim?' if then else 'end', then)

@at('q2-del-stale')
def _(s, me, l, F, dead):
    return [(unclaim(s, l[0]), 't0-claim?' if l[1] else 'end', l[1])]

# ---- a stock writer that holds a handle from before the drop and knows nothing of tombstones
@at('w0-handle')
def _(s, me, l, F, dead):
    return [(s, 'w1-append', (s.manifest,)) if live(s, F) or s.manifest in s.old else (s, 'end', l)]

@at('w1-append')
def _(s, me, l, F, dead):
    if s.manifest != l[0]: return [(s, 'conflict', l)]
    g = 10 + me
    return [(s._replace(manifest=g, files=s.files | {g}, old=s.old | {g} if l[0] in s.old else s.old), 'end', l)]


FIRST = dict(drop='d0-manifest?', undrop='u0-tomb?', purge='p0-tomb?', create='c0-tomb?', reconcile='q0-list-claims',
             append='w0-handle')

# ---- invariants
# 1 a live table has its files                       5 dropped rows are live again only through an undrop
# 2 a drop id is finished in one way only            6 files go only by a purge
# 3 an acknowledged drop stays until it is finished  7 an acknowledged drop holds a table until a purge is decided
# 4 what is live stays so until a drop puts its      8 an undrop brings back what was dropped
#   tombstone; acknowledged means live
def bad(s, F):
    """In every state."""
    if s.fault: return s.fault
    if s.slip and F['exact']: return s.slip
    if live(s, F) and s.manifest not in s.files: return 'live table with missing files'                  # 1
    for d in s.acked:
        first, succ = d, dict(s.succ)
        while d in succ: d = succ[d]
        how = dict(s.ended).get(d)
        if not carries(s, d) and (d, how) not in s.started: return f'acknowledged drop {first} vanished ({how})'   # 3
        if carries(s, d) and s.manifest is None and (d, 'purge') not in s.started:
            return f'acknowledged drop {first} holds nothing, and nobody purged it'                      # 7

def bad_step(s, s2, step, F, may_purge):
    """In every step."""
    was, now = live(s, F), live(s2, F)
    if was and not now and step != 'd1-put-tomb': return f'live table {s.manifest} gone without a drop'  # 4
    if was and now and s.manifest != s2.manifest and step != 'w1-append': return 'live table replaced'   # 4
    if now and not was and s2.manifest in s2.old and not any(h == 'undrop' and x in s2.started
                                                             for x in s2.ended - s.ended for h in x[1:]):
        return f'dropped rows {s2.manifest} live again, and nobody asked for an undrop'                  # 5
    if not may_purge and not s.files <= s2.files: return 'files gone without a purge'                    # 6

class Everybody:
    def __contains__(self, _): return True

def recovers(s, F, memo):
    """Were everybody dead now, one reconcile must leave no claim and no half of anything."""
    key = s[:4]
    if key not in memo:
        pc, l = FIRST['reconcile'], ()
        while pc in RULES: [(s, pc, l)] = RULES[pc](s, 9, l, F, Everybody())
        memo[key] = not s.claims and (s.tomb is None or s.tomb[1] == 'drop') and \
            (s.tomb is not None or s.manifest is None or s.manifest in s.files)
    return memo[key]

def owns(s, i):
    return s.tomb is not None and s.tomb[2] == i or any(c[1] == i for _, c in s.claims)

def run(ops, start, F, crash=True, memo=None):
    """Breadth first, so a trace is a shortest one. -> states, violation or None, trace"""
    s0 = STARTS[start]
    may_purge = 'purge' in ops or start == 'halfpurge'
    init = s0, tuple((FIRST[o], ()) for o in ops), frozenset({99})
    came, todo = {init: None}, [init]

    def trace(st):
        out = []
        while came[st]: st, what = came[st]; out.append(what)
        return ' '.join(reversed(out))

    for st in todo:   # grows as we go
        s, acts, dead = st
        b = bad(s, F)
        if not b and memo is not None and not recovers(s, F, memo): b = 'reconcile cannot repair this'
        if b: return len(came), b, trace(st)
        for i, a in enumerate(acts):
            if a is None: continue
            pc, l = a
            TAKEN.add(pc)
            nxt = [(*x, dead) for x in RULES[pc](s, i, l, F, dead)]
            # Who owns nothing and crashes looks to everybody like one who is never scheduled again: no new state.
            if crash and owns(s, i): nxt.append((s, 'crash', (), dead | {i}))
            for s2, pc2, l2, dd in nxt:
                if s2 is not s:
                    b = bad_step(s, s2, pc, F, may_purge)
                    if b: return len(came), b, f'{trace(st)} {i}:{pc}'
                new = s2, acts[:i] + ((pc2, l2) if pc2 in RULES else None,) + acts[i+1:], dd
                if new not in came:
                    answer = '' if pc2 in RULES else f'={pc2}'
                    came[new] = st, f'{i}:crash' if pc2 == 'crash' else f'{i}:{pc}{answer}'
                    todo.append(new)
    return len(came), None, ''

def store(tomb=None, claim=None, manifest=None, files=()):
    dropped = tomb is not None and tomb[1] == 'drop'
    return S(tomb, (((1, 0), claim),) if claim else (), manifest, frozenset(files), frozenset({1} if dropped else ()),
             frozenset({(1, claim[0])} if claim else ()), NONE, NONE, frozenset({1} if dropped else ()), None, None)

DROPPED, CREATING = (1, 'drop', None), (1, 'creating', 99)   # 99 is dead
STARTS = {
    'absent': store(),
    'live': store(manifest=1, files={1}),
    'dropped': store(DROPPED, manifest=1, files={1}),
    'halfpurge': store(DROPPED, ('purge', 99, None), None, {1}),
    'halfrestore': store(DROPPED, ('undrop', 99, None), 1, {1}),
    'halfrevive-uncommitted': store(DROPPED, ('revive', 99, (1, 99)), 1, {1, 99}),
    'halfrevive-committed': store(DROPPED, ('revive', 99, (1, 99)), 99, {1, 99}),
    'halfcreate-bare': store(CREATING, files={99}),
    'halfcreate-manifest': store(CREATING, manifest=99, files={99}),
}
KINDS = 'drop', 'undrop', 'purge', 'create', 'reconcile'
QUADS = [(ops.split(), start) for start in ('absent', 'live', 'dropped') for ops in (
    'create create drop purge', 'create drop undrop purge', 'drop undrop purge purge', 'create create drop undrop')]
STOCK = [(ops.split(), start) for start in STARTS for ops in (
    'append create', 'append reconcile', 'append create reconcile', 'append drop create', 'append create create')]

def tuples(size, starts=STARTS):
    return [(ops, start) for start in starts for ops in combinations_with_replacement(KINDS, size)]

def small():
    return tuples(2) + tuples(3)

# name, what is broken, where the violation is looked for (until the first one), crashes
TEETH = [
    ('no re-read after winning', dict(reread=False), small, True),
    ('help a restore at once', dict(help='any'), small, True),
    ('take over a purge at once', dict(takeover='any'), small, True),
    ('create over absent without the hidden tombstone (old protocol)', dict(hidden=False), lambda: QUADS[:1], False),
    ('no file verification in c3', dict(verify=False), lambda: QUADS[:1], False),
    ('a creating tombstone hides a committed table', dict(creating_shows=False), small, True),
    ('helper finishes a revive that never committed', dict(rollback=False), small, True),
    ('"manifest differs" taken for "revive committed"', dict(own_commit=False), lambda: STOCK, True),
    ('a commit that failed is believed without a look', dict(look_again=False), small, True),
    ('no post-check in drop', dict(postcheck=False), small, True),
    ('undrop does not look for a manifest', dict(look=False), small, True),
    ('reconcile reads the tombstone before the claims', dict(claims_first=False),
     lambda: [('drop undrop purge reconcile'.split(), 'live')], False),
]

def sweep(combos, F, crash, memo=None, stop=False):
    total, hits = 0, []
    for ops, start in combos:
        n, b, path = run(ops, start, F, crash, memo)
        total += n
        if b: hits.append((start, ops, b, path))
        if b and stop: break
    return total, hits

def show(hits, most=2):
    for start, ops, b, path in hits[:most]: print(f'    {start}: {", ".join(ops)}: {b}\n        {path}')

def main(quick=False, deep=False):
    failed, memo = False, {}
    designed = [('pairs', tuples(2), True), ('chosen fours', QUADS, not quick), ('with a stock writer', STOCK, True)]
    if not quick:
        designed += [('triples', tuples(3), True), ('all fours', tuples(4, ('absent', 'live', 'dropped')), False)]
    if deep: designed.append(('all fours', tuples(4), True))
    for name, combos, crash in designed:
        t = time.time()
        n, hits = sweep(combos, DESIGN, crash, memo)
        print(f'designed, {name}{"" if crash else ", no crashes"}: {len(combos)} combinations, {n} states, '
              f'{len(hits)} violating, {time.time() - t:.1f} s', flush=True)
        show(hits)
        failed |= bool(hits)
    idle = RULES.keys() - TAKEN - BROKEN_ONLY   # a check that never gets there proves nothing
    if idle: print('steps never taken:', *sorted(idle))
    failed |= bool(idle)
    for name, broken, combos, crash in TEETH:
        t = time.time()
        n, hits = sweep(combos(), DESIGN | broken | dict(exact=False), crash, stop=True)
        verdict = 'violated, as it must be' if hits else 'NO VIOLATION'
        print(f'TEETH {name}: {n} states, {verdict}, {time.time() - t:.1f} s', flush=True)
        show(hits)
        failed |= not hits
    return failed

if __name__ == '__main__':
    args = sys.argv[1:]
    if set(args) - {'--quick', '--deep'}: sys.exit(__doc__)
    sys.exit(main(quick='--quick' in args, deep='--deep' in args))
