#!/usr/bin/env python3
"""Explicit-state check of the root lifecycle protocol, on one table name.

    lifecycle.py            pairs and triples, chosen fours with crashes, all fours without, teeth
    lifecycle.py --quick    pairs with crashes, chosen fours without, teeth
    lifecycle.py --deep     as by default, and all fours with crashes (8 minutes more)

Every step is one store request; all interleavings are explored. Time is not modelled, but what it does is: an owner
may crash before any step, and the lease of one that runs on may be over before any destructive step. Then others
take over; it must renew before it sends anything destructive (a purge), or stop. Whether a drop is expired by the
store's clock is tried both ways. Exit code 1 when the protocol as designed violates an invariant, or when a variant
with a step broken on purpose ("teeth") does not.

The store:  tomb      None or (id, 'drop' | 'creating', owner of a creating one)
            claims    {(id, generation): (action, owner, terms)}, create-if-absent; terms: IF_EXPIRED, or of a revive
                      (latest before, generation to commit)
            manifest  the history: one generation for each version, () for none; from 20 on they are stock appends
            files     data files, one per generation
            marker    Lance's own marker: None or the drop id in it (only with F['marker'])
Not modelled: lost answers, except of a commit (elsewhere the own id in the object tells), requests that arrive
after the lease, tables without a version, stock creates and deregistrations, and old handles that commit during a
purge.

Live means: a manifest, and no tombstone or only a `creating` one (a creator that lost the race must not hide the
winner's table). Drop ids and generations are 10 + actor: no actor needs two, and the count of states stays small.
"""
import gc, sys, time
from collections import namedtuple
from functools import cache
from itertools import combinations_with_replacement

# From `acked` on: history, for the invariants only. due: drops that the store's clock was seen to call expired.
# fault: an invariant is violated; slip: no harm yet, but the reasoning behind the design is wrong (the broken
# variants are not convicted on a slip).
S = namedtuple('S', 'tomb claims manifest files marker due  acked started ended succ old fault slip')
NONE, IF_EXPIRED = frozenset(), 'if expired'
OUTCOMES = {'undrop', 'purge', 'revive'}

# What a broken variant changes. 'dead': after the lease; 'any': at once.
DESIGN = dict(help='dead', takeover='dead', reread=True, hidden=True, verify=True, postcheck=True, look=True,
              creating_shows=True, rollback=True, own_commit=True, claims_first=True, batch_check=True,
              look_again=True, exact=True, guard=True, renew_reread=True, recheck=True, clock_forward=True,
              reissue=True, base_check=True, base_first=True, own_only=True, rows_only=True, drop_sync=True,
              last_look=True, purge_look=True, marker=False)

# Before these a purge whose lease is over renews, and goes on at the step named. Everybody else sends nothing
# destructive any more, which comes to a crash; and what is read after the lease changes nothing without a renewal.
RENEWED = {'p4-del-names': 'p4-reread', 'p6-del-files': 'p5-reread', 'p7-del-tomb': 'p7-del-tomb'}


def live(s, F):
    return bool(s.manifest) and (s.tomb is None or s.tomb[1] == 'creating' and F['creating_shows'])

def top(s):
    return s.manifest[-1] if s.manifest else None

def carries(s, d):
    return s.tomb is not None and s.tomb[0] == d

def dropped(s):
    return s.tomb[0] if s.tomb and s.tomb[1] == 'drop' else None

def newest(s, d):
    return max(((g, c) for (x, g), c in s.claims if x == d), key=lambda x: x[0], default=None)

def claim(s, d, gen, c):
    """Create if absent; None when it is there."""
    if any(k == (d, gen) for k, _ in s.claims): return None
    return s._replace(claims=tuple(sorted(s.claims + (((d, gen), c),), key=lambda x: x[0])))

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

def begin(s, d, action, me, terms=None):
    """The first claim on d, by somebody who was asked for it."""
    s2 = claim(s, d, 0, (action, me, terms))
    return s2 and s2._replace(started=s.started | {(d, action)})

def together(s, pc, l, looks, then):
    """Requests sent at once: answered in any order. l is (drop id, answers)."""
    out = []
    for i, look in enumerate(looks, 1):
        if l[i] is None:
            seen = l[:i] + (look,) + l[i+1:]
            out.append((s, pc, seen) if None in seen else then(*seen))
    return out

def unhide(F, d, pc, *how):
    """To the deletion of a drop's tombstone, which its marker precedes."""
    return ('m1-del-marker', (pc, d, *how)) if F['marker'] else (pc, (d, *how))

def unhidden(s, F, d):
    return (s, 'm2-late?' if F['marker'] else 'x-del-claim', (d,))


# One function per step: (s, me, l, F, dead) -> [(s', next step, l')]; l is what the actor remembers, dead is whose
# lease is over. A next step without a rule is the end, and its name the answer.
RULES, TAKEN = {}, set()
BROKEN_ONLY = {'c3-old-recheck', 'c4-old-manifest', 'q1-claims-late'}
def at(name):
    def add(f): RULES[name] = f; return f
    return add

# ---- drop
at('d0-manifest?')(lambda s, me, l, F, dead: [(s, 'd1-put-tomb', l) if s.manifest else (s, 'notfound', l)])

@at('d1-put-tomb')
def _(s, me, l, F, dead):
    if s.tomb: return [found(s, 'notfound', 'retry')]
    d = 10 + me
    s = s._replace(tomb=(d, 'drop', None), old=s.old | set(s.manifest))
    if not F['postcheck']: return [(s._replace(acked=s.acked | {d}), 'ok', l)]
    return [(s, 'd1-put-marker', (d,)) if F['marker'] else (s, 'd2-look', (d, None, None))]

@at('d1-put-marker')
def _(s, me, l, F, dead):
    return [(s._replace(marker=l[0]), 'd2-look', (l[0], None, None))]

@at('d2-look')   # reads the tombstone and looks for the manifest, together
def _(s, me, l, F, dead):
    def then(d, tomb, manifest):
        if tomb == d and not manifest: return s, 'd3-claim', (d,)   # purged between d0 and d1: it lies over nothing
        done = s._replace(acked=s.acked | {d})
        if tomb == d or not F['drop_sync']: return done, 'ok', ()
        # Over nothing by now: a purge of this drop, or one before it. Somebody may have re-issued it, too (a revive that
        # failed, a purge that came too early).
        if not manifest and F['own_only']: return synced(s, F, d, 'conflict')
        return synced(done, F, d, 'ok')
    there = s.manifest or s.files and not F['rows_only']
    return together(s, 'd2-look', l, (dropped(s) or 0, bool(there)), then)

@at('d3-claim')   # takes it back, by a restore: that deletes no data
def _(s, me, l, F, dead):
    s2 = begin(s, l[0], 'takeback', me)
    # Somebody else decided: our marker is there already, so their last look at it is to come.
    return [(s2, 'd4-reread', l) if s2 else (s, 'conflict', l)]

@at('d4-reread')
def _(s, me, l, F, dead):
    if not carries(s, l[0]) and F['reread']: return [(s, 'x-del-claim', l)]
    return [(s, *unhide(F, l[0], 'd5-del-tomb', 'takeback'))]

@at('d5-del-tomb')
@at('u4-clear')
@at('t4-del-tomb')
def _(s, me, l, F, dead):
    return [unhidden(end(s, l[0], l[1]), F, l[0])]

# ---- undrop
@at('u0-tomb?')
def _(s, me, l, F, dead):
    if not s.tomb: return [(s, 'notfound', l)]
    return [(s, 'u1-claim', s.tomb[:1]) if s.tomb[1] == 'drop' else found(s, 'notfound', 'notfound')]

@at('u1-claim')
def _(s, me, l, F, dead):
    s2 = begin(s, l[0], 'undrop', me)
    return [(s2, 'u2-look', (l[0], None, None)) if s2 else (s, 't0-claim?', l)]

@at('u2-look')   # the re-read, and a look for the manifest together with it
def _(s, me, l, F, dead):
    def then(d, ours, manifest):
        if not ours and F['reread']: return s, 'x-del-claim', (d,)
        # A drop that raced a purge leaves a tombstone over nothing: clear it, but do not call that an undrop.
        return s, *(unhide(F, d, 'u4-del-tomb') if manifest or not F['look'] else unhide(F, d, 'u4-clear', 'undrop'))
    return together(s, 'u2-look', l, (carries(s, l[0]), bool(s.manifest)), then)

@at('u4-del-tomb')
def _(s, me, l, F, dead):
    s = acked(end(s, l[0], 'undrop'), F, 'undrop')
    if top(s) not in s.old and not s.fault:
        s = s._replace(fault=f'undrop brought {top(s)}, which nobody dropped')                           # 8
    return [unhidden(s, F, l[0])]

# ---- purge, and purge if expired
@at('p0-tomb?')
@at('e0-tomb?')
def _(s, me, l, F, dead):
    if not s.tomb: return [(s, 'notfound', l)]
    return [(s, 'p1-claim', (s.tomb[0], *l)) if s.tomb[1] == 'drop' else found(s, 'notfound', 'notfound')]

@at('p1-claim')
def _(s, me, l, F, dead):
    s2 = begin(s, l[0], 'purge', me, *l[1:])
    return [(s2, 'p2-reread', l) if s2 else (s, 't0-claim?', l[:1])]

@at('p2-reread')
def _(s, me, l, F, dead):
    if not carries(s, l[0]) and F['reread']: return [(s, 'x-del-claim', l[:1])]
    return [(s, 'e3-clock?' if l[1:] == (IF_EXPIRED,) else 'p3-list', l[:1])]

@at('e3-clock?')   # was the claim written when the retention was over? A later generation says yes if an earlier did
def _(s, me, l, F, dead):
    yes, no = (s._replace(due=s.due | {l[0]}), 'p3-list', l), (s, 'e4-reissue' if F['reissue'] else 'x-del-claim', l)
    return [yes] if l[0] in s.due and F['clock_forward'] else [yes, no]

@at('p3-list')
def _(s, me, l, F, dead):
    if ((l[0], 0), IF_EXPIRED) in [(k, c[2]) for k, c in s.claims] and l[0] not in s.due:
        s = s._replace(fault=f'drop {l[0]} purged before its time')                                     # 11
    names = bool(s.manifest), s.marker is not None
    if not any(names) and not s.files: return [(s, 'p7-del-tomb', l)]
    return [(s, 'p4-reread' if any(names) else 'p5-reread', (l[0], s.files, *names))]

def still_ours(then):
    return lambda s, me, l, F, dead: [(s, then if carries(s, l[0]) or not F['batch_check'] else 'taken', l)]
at('p4-reread')(still_ours('p4-del-names'))
at('p5-reread')(still_ours('p6-del-files'))

@at('p4-del-names')   # the first batch: names that a later table could reuse, so it hits whatever is there now
def _(s, me, l, F, dead):
    s = s._replace(manifest=() if l[2] else s.manifest, marker=None if l[3] else s.marker)
    return [(s, 'p5-reread' if l[1] else 'p3-list', l if l[1] else l[:1])]

at('p6-del-files')(lambda s, me, l, F, dead: [(s._replace(files=s.files - l[1]), 'p3-list', l[:1])])

at('p7-del-tomb')(lambda s, me, l, F, dead: [
    (end(s, l[0], 'purge'), 'm2-late?' if F['marker'] and F['purge_look'] else 'x-del-claim', l)])

# ---- renew, when the lease was over
@at('n1-renew')
def _(s, me, l, F, dead):
    pc, mine, gen, c = l
    s2 = claim(s, mine[0], gen + 1, c)
    if not s2: return [(s, 'taken', ())]
    return [(s2, 'n2-reread', (pc, mine)) if F['renew_reread'] else (s2, pc, mine)]

@at('n2-reread')   # who finished deleted the claims too, so the next generation can be free
def _(s, me, l, F, dead):
    return [(s, *l) if carries(s, l[1][0]) else (s, 'x-del-claim', l[1][:1])]

# ---- create over an absent name: born hidden. Overwrite of a live one: the same, but over its base
@at('c0-tomb?')
def _(s, me, l, F, dead):
    if not s.tomb: return [(s, 'c0-manifest?', l)]
    return [(s, 'r0-manifest?', s.tomb[:1]) if s.tomb[1] == 'drop' else found(s, 'retry', 'retry')]

@at('c0-manifest?')
def _(s, me, l, F, dead):
    if not s.manifest: return [(s, 'c1-files', ())]
    if not l: return [(s, 'exists', ())]
    return [(s, 'o1-base', (len(s.manifest) - 1, None)) if F['base_first'] else (s, 'o2-open', (None, None, None))]

def writes(then, old=None):
    return lambda s, me, l, F, dead: [(s._replace(files=s.files | {10 + me}), then if F['hidden'] else old or then, l)]
at('c1-files')(writes('c2-put-tomb', old='c3-old-recheck'))

@at('c2-put-tomb')
def _(s, me, l, F, dead):
    if s.tomb: return [found(s, 'retry', 'retry')]
    return [(s._replace(tomb=(10 + me, 'creating', me)), 'o5-base?' if l else 'c3-list', (10 + me, *l))]

@at('c3-list')
def _(s, me, l, F, dead):
    good = not s.manifest and (10 + me in s.files or not F['verify'])
    if not good: return [(s, 'c5-abandon', l)]
    return [(s, 'c3-del-marker', ('c4-manifest', *l)) if s.marker else (s, 'c4-manifest', l)]

@at('c4-manifest')   # create if absent; here and in o7 and r4: committed, failed, or failed to tell what came of it
def _(s, me, l, F, dead):
    if s.manifest: return [(s, 'c5-abandon', l)]
    done = s._replace(manifest=(10 + me,))
    return [(done, 'c5-del-tomb', l), (s, 'c4-committed?', l), (done, 'c4-committed?', l)]

at('c4-committed?')(lambda s, me, l, F, dead: [(s, 'c5-del-tomb' if 10 + me in s.manifest else 'c5-abandon', l)])
at('c5-del-tomb')(lambda s, me, l, F, dead: [(acked(end(s, l[0], 'create'), F, 'create'), 'ok', l)])
at('c5-abandon')(lambda s, me, l, F, dead: [(end(s, l[0], 'abandon'), 'retry', l)])

@at('c3-old-recheck')   # the protocol before
def _(s, me, l, F, dead):
    return [(s, 'c4-old-manifest', l) if not s.tomb else (s, 'retry', l)]

@at('c4-old-manifest')
def _(s, me, l, F, dead):
    return [(s._replace(manifest=(10 + me,)), 'ok', l) if not s.manifest else (s, 'exists', l)]

@at('o1-base')   # (version, the base: which manifest has it, the handle: the generation opened)
def _(s, me, l, F, dead):
    version, g = l
    base = s.manifest[version] if version < len(s.manifest) else None
    if base is None: return [(s, 'retry', ())]
    return [(s, 'o3-files' if g else 'o2-open', (version, base, g))]

@at('o2-open')   # in one step: the catalog's open looks twice
def _(s, me, l, F, dead):
    if not live(s, F): return [(s, 'dropped' if s.tomb else 'notfound', ())]
    if l[0] is None: return [(s, 'o1-base', (len(s.manifest) - 1, top(s)))]
    return [(s, 'o3-files', (*l[:2], top(s)))]

at('o3-files')(writes('c2-put-tomb'))

@at('o5-base?')
def _(s, me, l, F, dead):
    d, version, base, g = l
    same = s.manifest[version:version + 1] == (base,) or not F['base_check']
    return [(s, 'o6-files?' if same else 'c5-abandon', (d, g))]

at('o6-files?')(lambda s, me, l, F, dead: [(s, 'o7-commit' if 10 + me in s.files else 'c5-abandon', l)])

@at('o7-commit')   # over appends too
def _(s, me, l, F, dead):
    d, g = l
    done = s._replace(manifest=s.manifest + (10 + me,))
    if g not in s.manifest: done = done._replace(fault=f'overwrite of {g} fell on another table')        # 9
    return [(done, 'c5-del-tomb', (d,)), (s, 'c4-committed?', (d,)), (done, 'c4-committed?', (d,))]

# ---- revive: create over a dropped name
at('r0-manifest?')(lambda s, me, l, F, dead: [(s, 'r1-files', (l[0], top(s)))])
at('r1-files')(writes('r2-claim'))

@at('r2-claim')
def _(s, me, l, F, dead):
    s2 = begin(s, l[0], 'revive', me, (l[1], 10 + me))
    return [(s2, 'r3-reread', l[:1]) if s2 else (s, 't0-claim?', l[:1])]

@at('r3-reread')
def _(s, me, l, F, dead):
    return [(s, 'r4-commit' if carries(s, l[0]) or not F['reread'] else 'x-del-claim', l)]

@at('r4-commit')
def _(s, me, l, F, dead):
    done = s._replace(manifest=s.manifest + (10 + me,))
    return [(done, *unhide(F, l[0], 'r5-del-tomb')), (s, 'r4-committed?', l), (done, 'r4-committed?', l)]

@at('r4-committed?')
def _(s, me, l, F, dead):
    if 10 + me in s.manifest and F['look_again']: return [(s, *unhide(F, l[0], 'r5-del-tomb'))]
    return [(s, 'r5-reissue', l)]

@at('r5-del-tomb')
def _(s, me, l, F, dead):
    return [unhidden(acked(end(s, l[0], 'revive'), F, 'revive'), F, l[0])]

@at('r5-reissue')   # never release a claim while its drop id stands: who read the id could win it a second time
@at('e4-reissue')
def _(s, me, l, F, dead):
    d = 10 + me
    s = end(s, l[0], 'reissue', tomb=(d, 'drop', None))
    return [(s._replace(succ=s.succ | {(l[0], d)}), 'x-del-claim', (l[0], 'end'))]

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
    gen, (action, owner, terms) = n
    mode = F['takeover'] if action == 'purge' else F['help']
    if owner == me or not (mode == 'any' or owner in dead): return [(s, busy, l)]
    return [(s, 't1-next-generation', (l[0], gen + 1, action, terms))]

@at('t1-next-generation')
def _(s, me, l, F, dead):
    d, gen, action, terms = l
    s2 = claim(s, d, gen, (action, me, terms))
    return [(s2, 't2-reread', (d, action, terms)) if s2 else (s, 'lost', l)]

@at('t2-reread')
def _(s, me, l, F, dead):
    d, action, terms = l
    if F['reread'] and not carries(s, d): return [(s, 'x-del-claim', (d,))]
    if action == 'takeback': return [(s, *unhide(F, d, 'd5-del-tomb', 'takeback'))]
    if action == 'purge': return [(s, 'e3-clock?' if terms and F['recheck'] else 'p3-list', (d,))]
    return [dict(undrop=(s, 'u2-look', (d, True, None)), revive=(s, 't3-committed?', (d, terms)),
                 creating=(s, 't3-del-tomb', (d,)))[action]]

@at('t3-del-tomb')
def _(s, me, l, F, dead):
    return [(end(s, l[0], 'create' if s.manifest else 'abandon'), 'x-del-claim', l)]

@at('t3-committed?')
def _(s, me, l, F, dead):
    before, own = l[1]
    committed = own in s.manifest if F['own_commit'] else top(s) != before
    if not committed and F['rollback']: return [(s, 'r5-reissue', l[:1])]
    return [(s, *unhide(F, l[0], 't4-del-tomb', 'revive'))]

@at('x-del-claim')   # l[1]: what follows when the marker is in order
def _(s, me, l, F, dead):
    s = unclaim(s, l[:1])
    return [synced(s, F, *l) if len(l) > 1 else (s, 'end', l)]

# ---- Lance's marker (only with F['marker'])
def synced(s, F, d, then):
    return (s, 'm5-tomb?', (d, then)) if F['marker'] else (s, then, (d,))

@at('m1-del-marker')
@at('c3-del-marker')
def _(s, me, l, F, dead):
    return [(s._replace(marker=None), l[0], l[1:])]

@at('m2-late?')   # a slow drop, or a reconcile, can write it after m1 or p4, and look at the tombstone before it goes
def _(s, me, l, F, dead):
    return [(s, 'm5-tomb?', (l[0], 'x-del-claim')) if s.marker == l[0] and F['last_look'] else (s, 'x-del-claim', l)]

at('m5-tomb?')(lambda s, me, l, F, dead: [(s, 'm6-marker?', (*l, None, dropped(s)) if len(l) == 2 else (*l, dropped(s)))])

@at('m6-marker?')   # who finds its own marker gone has met somebody who decided: it is theirs, and their last look is to come
def _(s, me, l, F, dead):
    d, then, wrote, wanted = l
    done = s.marker == wanted or wanted and wrote == wanted and s.marker is None
    return [(s, then, (d,)) if done else (s, 'm7-mend', l)]

@at('m7-mend')   # writes or deletes it, and looks again
def _(s, me, l, F, dead):
    d, then, wrote, wanted = l
    return [(s._replace(marker=wanted), 'm5-tomb?', (d, then, wanted))]

# ---- reconcile
def claimed(s):
    return tuple(sorted({d for (d, _), _ in s.claims}))

@at('q0-list-claims')
def _(s, me, l, F, dead):
    if not F['claims_first']: return [(s, 'q1-claims-late', (s.tomb,))]
    return [(s, 'q1-tomb?', claimed(s))]

@at('q1-tomb?')   # after the claims: a claim without its tombstone is garbage only if the tombstone was read later
def _(s, me, l, F, dead):
    return [judge(s, F, s.tomb, l)]

at('q1-claims-late')(lambda s, me, l, F, dead: [judge(s, F, l[0], claimed(s))])

def judge(s, F, tomb, claims):
    d, kind, owner = tomb or (None, None, None)
    then = ('q3-holder?', (d,)) if F['marker'] and kind != 'creating' else ('end', ())
    if kind == 'creating' or d in claims: then = 't0-claim?', (d, owner, 'end') if kind == 'creating' else (d,)
    stale = tuple(x for x in claims if x != d)
    return (s, 'q2-del-stale', (stale, then)) if stale else (s, *then)

at('q2-del-stale')(lambda s, me, l, F, dead: [(unclaim(s, l[0]), *l[1])])

@at('q3-holder?')   # the marker of a drop about which somebody decided is theirs
def _(s, me, l, F, dead):
    return [(s, 'end' if newest(s, l[0]) else 'q4-marker?', l)]

@at('q4-marker?')
def _(s, me, l, F, dead):
    return [(s, 'end', l) if s.marker == l[0] else synced(s, F, l[0], 'end')]

# ---- a stock writer: its handle may be from before the drop, and it knows nothing of tombstones
@at('w0-handle')
def _(s, me, l, F, dead):
    return [(s, 'w1-append', (s.manifest,)) if live(s, F) or top(s) in s.old else (s, 'end', l)]

@at('w1-append')   # over other appends too
def _(s, me, l, F, dead):
    h, g = l[0], 20 + me
    if s.manifest[:len(h)] != h or any(x < 20 for x in s.manifest[len(h):]): return [(s, 'conflict', l)]
    old = s.old | {g} if top(s) in s.old else s.old
    return [(s._replace(manifest=s.manifest + (g,), files=s.files | {g}, old=old), 'end', l)]


FIRST = dict(drop=('d0-manifest?', ()), undrop=('u0-tomb?', ()), purge=('p0-tomb?', ()),
             expire=('e0-tomb?', (IF_EXPIRED,)), create=('c0-tomb?', ()), overwrite=('c0-tomb?', ('overwrite',)),
             reconcile=('q0-list-claims', ()), append=('w0-handle', ()))

# ---- invariants
# 1 a live table has its files, all versions         6 files go only by a purge
# 2 a drop id is finished in one way only            7 an acknowledged drop holds a table until a purge is decided
# 3 an acknowledged drop stays until it is finished  8 an undrop brings back what was dropped
# 4 what is live stays so until a drop puts its      9 an overwrite falls on the table that was opened for it
#   tombstone; acknowledged means live              10 when all is quiet, a live table has no marker and a dropped
# 5 dropped rows are live again only by an undrop      one has its own
#                                                    11 a purge if expired deletes only what is
def bad(s, F):
    """In every state."""
    if s.fault: return s.fault
    if s.slip and F['exact']: return s.slip
    if live(s, F) and not s.files.issuperset(s.manifest): return 'live table with missing files'         # 1
    for d in s.acked:
        first, succ = d, dict(s.succ)
        while d in succ: d = succ[d]
        how = dict(s.ended).get(d)
        if not carries(s, d) and (d, how) not in s.started: return f'acknowledged drop {first} vanished ({how})'   # 3
        if carries(s, d) and not s.manifest and (d, 'purge') not in s.started:
            return f'acknowledged drop {first} holds nothing, and nobody purged it'                      # 7

def bad_step(s, s2, step, F, may_purge):
    """In every step."""
    was, now = live(s, F), live(s2, F)
    if was and not now and step != 'd1-put-tomb': return f'live table {top(s)} gone without a drop'      # 4
    if was and now and top(s) != top(s2) and step not in ('w1-append', 'o7-commit'): return 'live table replaced'  # 4
    if now and not was and top(s2) in s2.old and not any(h == 'undrop' and x in s2.started
                                                         for x in s2.ended - s.ended for h in x[1:]):
        return f'dropped rows {top(s2)} live again, and nobody asked for an undrop'                      # 5
    if not may_purge and not s.files <= s2.files: return 'files gone without a purge'                    # 6

def marked_wrong(s, F):
    d = dropped(s)
    if live(s, F) and s.marker: return f'live, but with marker {s.marker}'                               # 10
    if not s.tomb and s.marker: return f'nothing there but marker {s.marker}'                            # 10
    if d and not newest(s, d) and s.marker != d: return f'drop {d} with marker {s.marker}'               # 10

def recovers(s, F, memo):
    """Were every lease over now, one reconcile must leave no claim and no half of anything."""
    key = s[:6]
    if key not in memo:
        memo[key], todo = True, [(s, *FIRST['reconcile'])]
        while todo:
            s, pc, l = todo.pop()
            if pc in RULES: todo += RULES[pc](s, 9, l, F, range(100))
            elif F['marker'] and pc != 'mended': todo.append(synced(s, F, None, 'mended'))   # its second look
            elif s.claims or s.tomb and not dropped(s) or F['marker'] and marked_wrong(s, F) or \
                    not s.tomb and not s.files.issuperset(s.manifest): memo[key] = False
    return memo[key]

def owns(s, i):
    return s.tomb is not None and s.tomb[2] == i or any(c[1] == i for _, c in s.claims)

def own(s, i):
    return max(((g, c) for (_, g), c in s.claims if c[1] == i), key=lambda x: x[0], default=(0, None))

@cache
def over(leases):
    return frozenset({99} | {i for i, x in enumerate(leases) if x and x != 'renewed'})

def run(ops, start, F, crash=True, memo=None):
    """Breadth first, so a trace is a shortest one. -> states, violation or None, trace"""
    s0 = STARTS[start]
    if F['marker'] and s0.acked: s0 = s0._replace(marker=1)
    may_purge = {'purge', 'expire'} & {*ops} or start in ('halfpurge', 'halfexpire')
    # Leases: None, ('over', own generation, claim), 'renewed' (once is enough), 'crashed'.
    init = s0, tuple(FIRST[o] for o in ops), (None,) * len(ops)
    came, todo, fine = {init: None}, [init], set()

    def trace(st):
        out = []
        while came[st]: st, what = came[st]; out.append(what)
        return ' '.join(reversed(out))

    for st in todo:   # grows as we go
        s, acts, leases = st
        b = None
        if s not in fine:
            b = bad(s, F)
            if not b and memo is not None and not recovers(s, F, memo): b = 'reconcile cannot repair this'
            fine.add(s)
        if not b and F['marker'] and not any(acts) and not any(leases): b = marked_wrong(s, F)
        if b: return len(came), b, trace(st)
        dead = over(leases)
        for i, a in enumerate(acts):
            if a is None: continue
            (pc, l), lease, nxt = a, leases[i], []
            if i in dead and pc in RENEWED and F['guard']: pc, l = 'n1-renew', (RENEWED[pc], l, *lease[1:])
            TAKEN.add(pc)
            for s2, pc2, l2 in RULES[pc](s, i, l, F, dead):
                renewed = pc == 'n1-renew' and pc2 in RULES
                nxt.append((s2, (pc2, l2) if pc2 in RULES else None, 'renewed' if renewed else lease,
                            pc if pc2 in RULES else f'{pc}={pc2}'))
            # Who owns nothing and crashes looks to everybody like one who is never scheduled again: no new state.
            if crash and i not in dead and owns(s, i):
                if lease or pc not in RENEWED: nxt.append((s, None, 'crashed', 'crash'))
                else: nxt.append((s, a, ('over', *own(s, i)), 'lease-over'))   # and may be scheduled no more
            for s2, a2, lease2, what in nxt:
                if s2 is not s:
                    b = bad_step(s, s2, pc, F, may_purge)
                    if b: return len(came), b, f'{trace(st)} {i}:{pc}'
                new = s2, acts[:i] + (a2,) + acts[i+1:], \
                    leases if lease2 is lease else leases[:i] + (lease2,) + leases[i+1:]
                if new not in came:
                    came[new] = st, f'{i}:{what}'
                    todo.append(new)
    return len(came), None, ''

def store(tomb=None, claim=None, manifest=(), files=()):
    drops = frozenset({1} if tomb and tomb[1] == 'drop' else ())
    return S(tomb, (((1, 0), claim),) if claim else (), manifest, frozenset(files), None, NONE,
             drops, frozenset({(1, claim[0])} if claim else ()), NONE, NONE, drops, None, None)

DROPPED, CREATING = (1, 'drop', None), (1, 'creating', 99)   # 99 is dead
STARTS = {
    'absent': store(),
    'live': store(manifest=(1,), files={1}),
    'dropped': store(DROPPED, manifest=(1,), files={1}),
    'halfpurge': store(DROPPED, ('purge', 99, None), (), {1}),
    'halfexpire': store(DROPPED, ('purge', 99, IF_EXPIRED), (1,), {1}),
    'halfrestore': store(DROPPED, ('undrop', 99, None), (1,), {1}),
    'halfrevive-uncommitted': store(DROPPED, ('revive', 99, (1, 99)), (1,), {1, 99}),
    'halfrevive-committed': store(DROPPED, ('revive', 99, (1, 99)), (1, 99), {1, 99}),
    'halfcreate-bare': store(CREATING, files={99}),
    'halfcreate-manifest': store(CREATING, manifest=(99,), files={99}),
    'halfoverwrite': store(CREATING, manifest=(1,), files={1, 99}),
}
KINDS = 'drop', 'undrop', 'purge', 'expire', 'create', 'overwrite', 'reconcile'
# These do all that the seven do, in fewer combinations: a purge is an expire whose clock says yes, and a create that
# finds a table an overwrite that goes no further.
MOST = 'drop', 'undrop', 'expire', 'overwrite', 'reconcile'
THREE = 'absent', 'live', 'dropped'
QUADS = [(ops.split(), start) for start in THREE for ops in (
    'create create drop purge', 'drop undrop purge purge', 'create create drop undrop')]
QUADS += [(ops.split(), start) for start, ops in (
    ('live', 'drop undrop expire expire'), ('live', 'drop purge create overwrite'),
    ('live', 'drop expire create overwrite'), ('dropped', 'drop purge create reconcile'))]
STOCK = [(ops.split(), start) for start in STARTS for ops in (
    'append create', 'append reconcile', 'append create reconcile', 'append drop create', 'append create create',
    'append overwrite', 'append overwrite drop', 'append append overwrite', 'append overwrite reconcile')]
OVER_NEW = [('drop purge create overwrite'.split(), 'live')]
LATE = [(f'drop purge {other}'.split(), 'dropped') for other in ('expire', 'create')]
MARKED = DESIGN | dict(marker=True)

def tuples(size, starts=STARTS, kinds=MOST):
    return [(ops, start) for start in starts for ops in combinations_with_replacement(kinds, size)]

MARKS = tuples(2, THREE, KINDS) + [('drop purge create'.split(), 'live')]

def small():
    return tuples(2, kinds=KINDS) + tuples(3)

# name, what is broken, where the violation is looked for (until the first one), crashes
TEETH = [
    ('no re-read after winning', dict(reread=False), small, True),
    ('help a restore at once', dict(help='any'), small, True),
    ('take over a purge at once', dict(takeover='any'), small, True),
    ('an owner whose lease is over goes on', dict(guard=False), small, True),
    ('renew without re-read', dict(renew_reread=False), lambda: [('purge purge create drop'.split(), 'dropped')], True),
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
    ('who takes over a purge if expired does not look whether it is', dict(recheck=False), small, True),
    ('a purge that came too early deletes but its claim', dict(reissue=False), lambda: tuples(3, ['halfexpire']), True),
    ("the store's clock goes back", dict(clock_forward=False), small, True),
    ('overwrite without the check of its base', dict(base_check=False), lambda: OVER_NEW, False),
    ('overwrite looks its base up after it opened the table', dict(base_first=False), lambda: OVER_NEW, False),
    ('drop takes a tombstone re-issued over nothing for its own success', dict(own_only=False), lambda: LATE, False),
    ("drop's second look takes files without a version for the table", dict(rows_only=False), lambda: LATE, False),
    ('marker: undrop without the last look', dict(marker=True, last_look=False), small, False),
    ('marker: purge without the last look', dict(marker=True, purge_look=False), small, False),
    ('marker: a drop that was overtaken leaves it', dict(marker=True, drop_sync=False), small, False),
]

def sweep(combos, F, crash, memo=None, stop=False):
    total, hits = 0, []
    for ops, start in combos:
        n, b, path = run(ops, start, F, crash, memo)
        total += n
        if b: hits.append((start, ops, b, path))
        if b and stop: break
    return total, hits

def show(hits):
    for start, ops, b, path in hits[:2]: print(f'    {start}: {", ".join(ops)}: {b}\n        {path}')

def main(quick=False, deep=False):
    failed, memo, marks = False, {}, {}
    designed = [('pairs', tuples(2, kinds=KINDS), DESIGN, True), ('chosen fours', QUADS, DESIGN, not quick),
                ('with a stock writer', STOCK, DESIGN, True), ('marker, pairs', MARKS, MARKED, False)]
    if not quick:
        designed += [('triples', tuples(3), DESIGN, True), ('all fours', tuples(4, THREE), DESIGN, False),
                     ('marker, triples', tuples(3, THREE), MARKED, False)]
    if deep: designed.append(('all fours', tuples(4, THREE), DESIGN, True))
    for name, combos, F, crash in designed:
        t = time.time()
        n, hits = sweep(combos, F, crash, marks if F['marker'] else memo)
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
    gc.disable()   # no cycles here, and millions of tuples
    args = sys.argv[1:]
    if set(args) - {'--quick', '--deep'}: sys.exit(__doc__)
    sys.exit(main(quick='--quick' in args, deep='--deep' in args))
