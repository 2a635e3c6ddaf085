#!/usr/bin/env python3
"""Explicit-state check of managed commits (CreateTableVersion) against the life cycle of one root table name.

    managed.py            design over all combinations of up to 3 programs with crashes, findings, teeth
    managed.py --quick    the same with fewer combinations (half a minute)
    managed.py --deep     as by default, and chosen fours

Every step is one store request; all interleavings; a crash before any step. A program is operations one after the
other in one process ("drop>purge>create"), so three programs give the schedules of six actors that matter. The life
cycle itself (claims, takeovers, markers) is as lifecycle.py has it, cut to what commits can notice; leases of living
owners are lifecycle.py's business and not modelled here, nor are requests that take effect after their window
(except where the guard is off: F['guard']=False).

Time: a commit has a window W, from before its first request. Tokens in an open window say what happened since it
opened (D: drop D was put; ('x',D): a purge of D deleted a manifest; ('v',v): version v was put). Who waits until such
an event is W old (purge: its drop; clean-up: the version that it deletes) makes the windows that hold its token
`late`. Late before the put: start over (guard). Late after it: verify before the answer.

Two ways to a put. Alone (k): Lance reads and stages, then the commit begins and looks at tombstone, LIST and base.
Beside (b): an attempt begins with Lance's LIST for newer versions; the commit begins there, and looks at the tombstone
beside it. The LIST is the fence's too: it tells the versions and who they are. Lance reads the latest by name and
stages; the put follows without another look, unless the LIST does not fit what was staged (then: alone).

The store: tomb       None or (id, 'drop' | 'creating', owner)
           claims     {(drop id, action, owner)}
           manifests  {(version, incarnation, history of content ids)}; ids from 30 on are Overwrites
           files      content ids whose data file is there
"""
import gc, sys, time
from multiprocessing import Pool
from collections import namedtuple
from itertools import combinations_with_replacement

# From `acked` on: history, for the invariants only. purged: contents deleted by a purge of their own incarnation's
# drop. dead: incarnations whose purge is over. drops: (drop id, incarnation).
S = namedtuple('S', 'tomb claims manifests files  acked refused purged dead drops used fault')
# A commit: handle (incarnation, version, history), own content, staged manifest, attempts left, what was seen, the
# drop that stood when it began, permit (drop id of a revive), pieces of the withdrawal. early: it saw the table not hidden
# before, and its window is open since then.
C = namedtuple('C', 'inc ver hist cid staged tries seen began early', defaults=(False,))
N = frozenset()
#   order     'tomb-first': tombstone, then LIST and base | 'any': all at once
#   early     a look by the same handle before the commit lets it look at all at once: 'window': the window is open since
#             that look | 'ever': it opens with the commit | None: no such thing
#   incs      staged incarnation must equal that of manifest L        capture  ... and that of the handle
#             'anchor': instead the manifest that the handle began with must still be there
#   beside    Lance's LIST is the commit's look, with a tombstone beside it (b1 to b4). Broken: 'any': in any order without
#             an earlier look | 'kept': the look of an earlier commit serves | 'end', 'ever': its window is counted from
#             the read's end, for ever. Needs a purge that waits before it deletes: Lance stages on this LIST
#   data      HEAD on the new data files (instead of capture, for stock clients)
#   guard     no put when the window is over                          wait     purge waits: None | 'start' | 'end'
#   post      None | 'late': verify when the answer came late | 'always'
#   litter    what proves that we landed in a wrong place: 'L-gone' | 'evidence'
#   withdraw  None | 'blind' | 'check' | 'held' (under a creating tombstone, after a look at the content)
#   on_drop   a drop's tombstone after the put, base intact: 'keep' | 'withdraw'
#   retry_look  before "dropped" look whether our version is there already
#   idem      a version that exists with our content is success
#   gone      version below latest, and cleaned up: 'unknown' | 'conflict'
#   spare     a clean-up deletes only versions that are W old
#   latest    version must be L+1 of the LIST
#   relist    purge lists again after it deleted its tombstone, and deletes manifests it finds
#   no_v1     create takes manifests without a version 1 for litter
#   over_base   overwrite checks its base under its tombstone
#   tomb_check  a drop's tombstone refuses    absent_put  create-if-absent
DESIGN = dict(order='tomb-first', early='window', beside=True, incs=True, capture=True, data=False, guard=True, wait='start', post='late',
              litter='evidence', withdraw='held', on_drop='keep', retry_look=True, idem=True, gone='unknown',
              spare=True, latest=True, relist=False, no_v1=False, over_base=True, tomb_check=True, absent_put=True)
NAIVE = DESIGN | dict(order='any', early=None, beside=False, capture=False, guard=False, wait=None, post=None, withdraw=None, spare=True)
STEP4 = NAIVE | dict(post='always', litter='L-gone', withdraw='blind')

top = lambda s: max(s.manifests, default=None)
at_v = lambda s, v: next((m for m in s.manifests if m[0] == v), None)
carries = lambda s, d: s.tomb is not None and s.tomb[0] == d
visible = lambda s: bool(s.manifests) and (s.tomb is None or s.tomb[1] == 'creating')
rows = lambda hist: hist[max((i for i, c in enumerate(hist) if c >= 30), default=0):]

RULES, TAKEN = {}, set()
def at(*names):
    def add(f):
        for n in names: RULES[n] = f
        return f
    return add
# A rule: (s, me, l, F, env) -> [(s', next, l')]; env: late (our window), crashed (set of actors)
Env = namedtuple('Env', 'late crashed')

def put(s, m, F):
    old = at_v(s, m[0])
    if old and F['absent_put']: return None
    for v, inc, cid in s.used:
        if v == m[0] and inc == m[1] and cid != m[2][-1]:
            s = s._replace(fault=f'version {v} of incarnation {inc} used twice: {cid} and {m[2][-1]}')
    return s._replace(manifests=(s.manifests - {old}) | {m}, used=s.used | {(m[0], m[1], m[2][-1])})

def ack(s, cid): return s._replace(acked=s.acked | {cid})
def refuse(s, cid): return s._replace(refused=s.refused | {cid})

# ---- drop
at('drop')(lambda s, me, l, F, e: [(s, 'd1-put-tomb', l) if s.manifests else (s, 'notfound', l)])

@at('d1-put-tomb')
def _(s, me, l, F, e):
    if s.tomb:
        if s.tomb[1] == 'creating' and s.tomb[2] in e.crashed: return [(s, 't-clear', (s.tomb[0], 'drop'))]
        return [(s, 'busy', l)]
    d = 100 + me
    inc = top(s)[1] if s.manifests else None
    return [(s._replace(tomb=(d, 'drop', None), drops=s.drops | {(d, inc)}), 'd2-look', (d,))]

@at('d2-look')   # two reads in lifecycle.py, which shows that together they are enough
def _(s, me, l, F, e):
    return [(s, 'd3-claim' if carries(s, l[0]) and not s.manifests else 'ok', l)]

@at('d3-claim')
def _(s, me, l, F, e):
    if any(c[0] == l[0] for c in s.claims): return [(s, 'notfound', l)]
    return [(s._replace(claims=s.claims | {(l[0], 'undrop', me)}), 'u2-reread', l)]

@at('t-clear')   # the creating tombstone of a dead owner, after its lease; lifecycle.py has the steps
def _(s, me, l, F, e):
    return [(s._replace(tomb=None) if carries(s, l[0]) else s, l[1], ())]

# ---- decide, undrop, purge
def first(action, then):
    def rule(s, me, l, F, e):
        if not s.tomb or s.tomb[1] != 'drop': return [(s, 'notfound', l)]
        d = s.tomb[0]
        return [(s, then, (d,))]
    return rule
RULES['undrop'], RULES['purge'] = first('undrop', 'u1-claim'), first('purge', 'p1-claim')

def claims(action, then):
    def rule(s, me, l, F, e):
        held = next((c for c in s.claims if c[0] == l[0]), None)
        if held and not (held[1] == action and held[2] in e.crashed): return [(s, 'lost', l)]
        return [(s._replace(claims=s.claims - {held} | {(l[0], action, me)}), then, l)]
    return rule
RULES['u1-claim'], RULES['p1-claim'] = claims('undrop', 'u2-reread'), claims('purge', 'p2-reread')

@at('u2-reread')
def _(s, me, l, F, e): return [(s, 'u3-del-tomb' if carries(s, l[0]) else 'x-del-claim', l)]
@at('u3-del-tomb')
def _(s, me, l, F, e): return [(s._replace(tomb=None), 'x-del-claim', l)]
@at('x-del-claim')
def _(s, me, l, F, e): return [(s._replace(claims=frozenset(c for c in s.claims if c[0] != l[0])), 'end', l)]

@at('p2-reread')
def _(s, me, l, F, e):
    if not carries(s, l[0]): return [(s, 'x-del-claim', l)]
    return [(s, 'p-wait-start' if F['wait'] == 'start' else 'p3-list', l)]

at('p-wait-start')(lambda s, me, l, F, e: [(s, 'p3-list', l)])   # see run: makes windows late
at('p-wait-end')(lambda s, me, l, F, e: [(s, 'p3-list', (l[0], 'waited'))])

@at('p3-list')
def _(s, me, l, F, e):
    if not s.manifests and not s.files:
        if F['wait'] == 'end' and len(l) == 1: return [(s, 'p-wait-end', l)]
        return [(s, 'p7-del-tomb', l[:1])]
    return [(s, 'p4-reread', (l[0], s.manifests, s.files))]

@at('p4-reread')
def _(s, me, l, F, e):
    if not carries(s, l[0]): return [(s, 'taken', l)]
    return [(s, 'p5-del-manifest' if l[1] else 'p6-del-files', l)]

def unlink(s, m, inc):
    """A manifest deleted by a purge of incarnation inc; by name, so whatever is there."""
    m = at_v(s, m[0])
    if not m: return s
    if inc is not None and m[1] != inc and set(m[2]) & s.acked: s = s._replace(fault=f'purge of {inc} deleted {m}')
    return s._replace(manifests=s.manifests - {m}, purged=s.purged | set(m[2] if m[1] == inc else ()))

@at('p5-del-manifest')   # a bulk delete is not atomic: from either end
def _(s, me, l, F, e):
    out = []
    for m in {min(l[1]), max(l[1])}:
        rest = l[1] - {m}
        out.append((unlink(s, m, dict(s.drops).get(l[0])), 'p5-del-manifest' if rest else 'p6-del-files', (l[0], rest, l[2])))
    return out

at('p6-del-files')(lambda s, me, l, F, e: [(s._replace(files=s.files - l[2]), 'p3-list', l[:1])])

@at('p7-del-tomb')
def _(s, me, l, F, e):
    inc = dict(s.drops).get(l[0])
    return [(s._replace(tomb=None, dead=s.dead | ({inc} - {None})), 'p9-relist' if F['relist'] else 'x-del-claim', l)]

@at('p9-relist')
def _(s, me, l, F, e): return [(s, 'p9-del' if s.manifests else 'x-del-claim', (l[0], s.manifests))]
@at('p9-del')
def _(s, me, l, F, e):
    for m in l[1]:
        if at_v(s, m[0]) and set(at_v(s, m[0])[2]) & s.acked - s.purged: s = s._replace(fault='purge deleted a manifest of a live table')
        s = s._replace(manifests=s.manifests - {at_v(s, m[0])})
    return [(s, 'x-del-claim', l[:1])]

# ---- create over an absent name, overwrite of a live one, revive of a dropped one
@at('create')
def _(s, me, l, F, e):
    if s.tomb:
        if s.tomb[1] == 'creating' and s.tomb[2] in e.crashed: return [(s, 't-clear', (s.tomb[0], 'create'))]
        return [(s, 'busy', l)]
    return [(s, 'c1-manifest?', l)]

def in_the_way(s, F): return s.manifests and not (F['no_v1'] and not at_v(s, 1))

at('c1-manifest?')(lambda s, me, l, F, e: [(s, 'exists' if in_the_way(s, F) else 'c2-file', l)])
at('c2-file')(lambda s, me, l, F, e: [(s._replace(files=s.files | {10 + me}), 'c3-put-tomb', l)])

@at('c3-put-tomb')
def _(s, me, l, F, e):
    if s.tomb: return [(s, 'busy', l)]
    return [(s._replace(tomb=(200 + me, 'creating', me)), 'c4-check', l)]

@at('c4-check')
def _(s, me, l, F, e):
    if in_the_way(s, F) or 10 + me not in s.files: return [(s, 'c7-abandon', l)]
    return [(s, 'c5-del-litter' if s.manifests else 'c6-put', l)]

@at('c5-del-litter')
def _(s, me, l, F, e):
    return [(s._replace(manifests=N), 'c6-put', l)]

@at('c6-put')
def _(s, me, l, F, e):
    s2 = put(s, (1, 10 + me, (10 + me,)), F)
    return [(s2, 'c8-del-tomb', l) if s2 else (s, 'c7-abandon', l)]

at('c7-abandon')(lambda s, me, l, F, e: [(s._replace(tomb=None) if carries(s, 200 + me) else s, 'retry', l)])
@at('c8-del-tomb')   # live since the put
def _(s, me, l, F, e):
    return [(ack(s._replace(tomb=None) if carries(s, 200 + me) else s, 10 + me), 'ok', l)]

@at('overwrite')   # opens; base = its latest manifest
def _(s, me, l, F, e): return [(s, 'o1-file', top(s)) if visible(s) else (s, 'notfound', l)]
at('o1-file')(lambda s, me, l, F, e: [(s._replace(files=s.files | {30 + me}), 'o2-put-tomb', l)])
@at('o2-put-tomb')
def _(s, me, l, F, e):
    if s.tomb: return [(s, 'busy', l)]
    return [(s._replace(tomb=(200 + me, 'creating', me)), 'o3-base?', l)]
@at('o3-base?')   # the base by name and e_tag, and the file
def _(s, me, l, F, e):
    good = at_v(s, l[0]) == l and 30 + me in s.files or not F['over_base']
    return [(s, 'o4-stage' if good else 'c7-abandon', l[1])]
@at('o4-stage')   # Lance rebases an Overwrite over anything; l: incarnation of the handle
def _(s, me, l, F, e):
    m = top(s)
    return [(s, 'o5-put', (l, (m[0] + 1, m[1], m[2] + (30 + me,)))) if m else (s, 'c7-abandon', l)]
@at('o5-put')
def _(s, me, l, F, e):
    s2 = put(s, l[1], F)
    if s2 and l[1][1] != l[0]: s2 = s2._replace(fault='overwrite fell on another incarnation')
    return [(s2, 'o6-del-tomb', l) if s2 else (s, 'o4-stage', l[0])]
@at('o6-del-tomb')
def _(s, me, l, F, e):
    return [(ack(s._replace(tomb=None) if carries(s, 200 + me) else s, 30 + me), 'ok', l)]

@at('revive')
def _(s, me, l, F, e):
    if not s.tomb or s.tomb[1] != 'drop' or not s.manifests: return [(s, 'notfound', l)]
    return [(s._replace(), 'r1-file', (s.tomb[0], top(s)[1]))]
at('r1-file')(lambda s, me, l, F, e: [(s._replace(files=s.files | {30 + me}), 'r2-claim', l)])
RULES['r2-claim'] = lambda s, me, l, F, e: claims('revive', 'r3-reread')(s, me, l, F, e)
at('r3-reread')(lambda s, me, l, F, e: [(s, 'r4-stage' if carries(s, l[0]) else 'x-del-claim', l)])
@at('r4-stage')
def _(s, me, l, F, e):
    m = top(s)
    return [(s, 'r5-put', (*l, (m[0] + 1, m[1], m[2] + (30 + me,)))) if m else (s, 'x-del-claim', l)]
@at('r5-put')   # through CreateTableVersion with a permit for this drop id
def _(s, me, l, F, e):
    s2 = put(s, l[2], F)
    return [(s2, 'r6-del-tomb', l) if s2 else (s, 'r4-stage', l[:2])]
@at('r6-del-tomb')
def _(s, me, l, F, e): return [(ack(s._replace(tomb=None), 30 + me), 'x-del-claim', l)]

# ---- a writer. commit: opens now. old: opened incarnation 1 at version 1 long ago, and wrote its file then.
# oldw: the same handle, and writes its file now
@at('commit')
def _(s, me, l, F, e):
    if not visible(s): return [(s, 'notfound', l)]
    v, inc, hist = top(s)
    used = {c for _, _, c in s.used} | s.refused | s.files
    cid = next(c for c in (20 + me, 24 + me) if c not in used)
    l = C(inc, v, hist, cid, None, 1, None, None)
    return [(s, 'w1-file', l)] + ([(s, 'k0-early', l)] if F['early'] else [])
@at('k0-early')   # by an open or by the commit before: may be long ago
def _(s, me, l, F, e):
    early = not (s.tomb and s.tomb[1] == 'drop')
    return [(s, 'w1-file', l._replace(early=early, seen=('-', listing(s, l, F)) if early and F['beside'] == 'kept' else None))]
at('old')(lambda s, me, l, F, e: [(s, 'w2-stage', C(1, 1, (1,), 20 + me, None, 1, None, None))])
at('oldw')(lambda s, me, l, F, e: [(s, 'w1-file', C(1, 1, (1,), 20 + me, None, 1, None, None))])
at('w1-file')(lambda s, me, l, F, e: [(s._replace(files=s.files | {l.cid}), 'w2-stage', l)])

def stage(l, m):
    """Lance builds on m if that is newer than the handle's, else on its own. None: a conflict with what is new."""
    if not m or m[0] <= l.ver: return l.ver + 1, l.inc, l.hist + (l.cid,)
    return None if any(c >= 30 for c in m[2] if c not in l.hist) else (m[0] + 1, m[1], m[2] + (l.cid,))

def begin(s, l, F, e, looks):   # the window opens, unless it is open since the earlier look (see run)
    early = l.early and not (e.late and F['early'] == 'window')
    seen = l.seen if F['beside'] == 'kept' and early and l.seen else (None,) * looks
    return l._replace(seen=seen, early=early, began=s.tomb[0] if s.tomb and s.tomb[1] == 'drop' else None)

@at('w2-stage')   # Lance: LIST and read of the newest; or its LIST is ours too, and the commit begins with it (b1-begin in traces)
def _(s, me, l, F, e):
    staged = stage(l, top(s))
    out = [(s, 'k1-begin', l._replace(staged=staged, seen=None)) if staged else (refuse(s, l.cid), 'conflict', l)]
    return out + ([(s, 'b2-look', begin(s, l, F, e, 2))] if F['beside'] else [])

# What a LIST tells, as far as it is asked: the latest, the anchor (the version that the handle began with).
def listing(s, l, F): return top(s) or '-', at_v(s, l.ver) or '-' if F['incs'] == 'anchor' else None

@at('b2-look')   # tombstone, then the LIST; after an earlier look in any order
def _(s, me, l, F, e):
    if None not in l.seen: return listed(s, l, F)   # 'kept'
    out = []
    for i, look in enumerate((s.tomb[1] if s.tomb else '-', listing(s, l, F))):
        if l.seen[i] is not None or i and not l.early and l.seen[0] is None and F['beside'] != 'any': continue
        seen = l.seen[:i] + (look,) + l.seen[i+1:]
        if i == 0 and look == 'drop' and F['tomb_check']: out.append((s, 'w2-stage', l._replace(seen=None)))   # looks for itself then
        elif None in seen: out.append((s, 'b2-look', l._replace(seen=seen)))
        else: out += listed(s, l._replace(seen=seen), F)
    return out

def listed(s, l, F):
    last = l.seen[1][0]
    if last != '-' and last[0] > l.ver: return [(s, 'b3-read', l)]
    return fits(s, l._replace(staged=stage(l, None)), F)

@at('b3-read')   # Lance reads the latest that was listed, by name: what is there now
def _(s, me, l, F, e):
    m = at_v(s, l.seen[1][0][0])
    if not m: return [(refuse(s, l.cid), 'refused', l)]   # Lance fails
    staged = stage(l, m)
    return fits(s, l._replace(staged=staged), F) if staged else [(refuse(s, l.cid), 'conflict', l)]

def fits(s, l, F):   # not a request: is the look good for what was staged? If not, it is an earlier one still
    last, anchor = l.seen[1]
    if last == '-' or last[0] + 1 != l.staged[0] or anchor == '-':
        return [(s, 'k1-begin', l._replace(seen=None, early=early)) for early in {l.early, bool(F['early'])}]
    return [(s, 'b4-judge', l)] if F['data'] else RULES['b4-judge'](s, None, l, F, None)

@at('b4-judge')   # a request (HEAD) only if data files are looked for
def _(s, me, l, F, e):
    last, anchor = l.seen[1]
    if (F['incs'] == 'anchor' and anchor != (l.ver, l.inc, l.hist) or F['incs'] is True and last[1] != l.staged[1]
            or F['capture'] and l.staged[1] != l.inc or F['data'] and l.cid not in s.files): return [(refuse(s, l.cid), 'refused', l)]
    return [(s, 'k3-put', l._replace(seen=last if anchor is None else anchor))]

# Not a request. seen: tombstone, LIST, base manifest, new files
at('k1-begin')(lambda s, me, l, F, e: [(s, 'k2-look', begin(s, l._replace(seen=None), F, e, 4))])

@at('k2-look')
def _(s, me, l, F, e):
    v = l.staged[0]
    looks = (s.tomb[1] if s.tomb else '-', tuple(sorted(m[0] for m in s.manifests)),
             at_v(s, l.ver if F['incs'] == 'anchor' else v - 1) or '-', l.cid in s.files if F['data'] else True)
    out = []
    for i, look in enumerate(looks):
        if l.seen[i] is not None or i and F['order'] == 'tomb-first' and not l.early and l.seen[0] is None: continue
        if i == 3 and not F['data']: continue
        seen = l.seen[:i] + (look,) + l.seen[i+1:]
        if not F['data']: seen = seen[:3] + (True,)
        if None not in seen or i == 0 and look == 'drop' and F['tomb_check']: out.append(judge(s, l._replace(seen=seen), F, e))
        else: out.append((s, 'k2-look', l._replace(seen=seen)))
    return out

def judge(s, l, F, e):
    tomb, listed, base, files = l.seen
    v, inc, hist = l.staged
    if tomb == 'drop' and F['tomb_check']:
        return (s, 'k2-mine?', l._replace(seen='dropped')) if F['retry_look'] else (refuse(s, l.cid), 'dropped', l)
    if v in listed and not (F['absent_put'] is False): return s, 'k2-mine?', l._replace(seen='conflict')
    if F['latest'] and v != max(listed, default=0) + 1:
        if v <= max(listed, default=0): return (s, 'unknown', l) if F['gone'] == 'unknown' else (refuse(s, l.cid), 'conflict', l)
        return refuse(s, l.cid), 'refused', l
    if F['incs'] == 'anchor' and base != (l.ver, l.inc, l.hist): return refuse(s, l.cid), 'refused', l
    if F['incs'] is True and (base == '-' or base[1] != inc): return refuse(s, l.cid), 'refused', l
    if F['capture'] and inc != l.inc: return refuse(s, l.cid), 'refused', l
    if F['data'] and not files: return refuse(s, l.cid), 'refused', l
    return s, 'k3-put', l._replace(seen=base)

@at('k2-mine?')   # our version by name: is it our content
def _(s, me, l, F, e):
    m, why = at_v(s, l.staged[0]), l.seen
    if m and m[2][-1] == l.cid and F['idem']: return [answer(s, l)]
    if why == 'conflict':
        if not m: return [(s, 'unknown', l)]
        if l.tries and m[2][-1] != l.cid: return again(s, 'w2-stage', l, F)   # Lance rebases
    return [(refuse(s, l.cid), why, l)]

def again(s, where, l, F):   # the look for a drop that was made is an earlier one then
    l = l._replace(seen=None, tries=l.tries - 1)
    return [(s, where, l._replace(early=early)) for early in ((False, True) if F['early'] else (False,))]

def answer(s, l):
    if l.cid not in s.purged and l.staged[1] != l.inc: s = s._replace(fault=f'a writer of incarnation {l.inc} committed to {l.staged[1]}')
    return ack(s, l.cid), 'ok', l

@at('k3-put')
def _(s, me, l, F, e):
    if e.late and F['guard']: return [(s, 'k1-begin', l._replace(seen=None, early=False))]
    s2 = put(s, l.staged, F)
    if not s2: return [(s, 'k2-mine?', l._replace(seen='conflict'))]
    if l.began and carries(s, l.began): s2 = s2._replace(fault='a commit that began after the drop went through')
    if l.staged[1] != l.inc: s2 = s2._replace(fault=f'a writer of incarnation {l.inc} committed to {l.staged[1]}')
    out = [(s2, 'k4-answer', l)]
    if l.tries: out += [o for x in (s2, s) for o in again(x, 'k1-begin', l, F)]   # the answer is lost
    return out

@at('k4-answer')   # not a request
def _(s, me, l, F, e):
    if F['post'] == 'always' or F['post'] == 'late' and e.late: return [(s, 'k5-look', l._replace(seen=(l.seen, None, None)))]
    return [answer(s, l)]

@at('k5-look')   # tombstone, and what tells whether we are in the right place
def _(s, me, l, F, e):
    base, out = l.seen[0], []
    if F['litter'] == 'L-gone': wrong = at_v(s, l.staged[0] - 1) != base
    else:
        # A LIST and GETs: another incarnation beside ours; alone, a HEAD on data that we inherited
        others = [m for m in s.manifests if m[0] != l.staged[0]]
        wrong = any(m[1] != l.staged[1] for m in others) or not others and not set(rows(l.staged[2])[:-1]) <= s.files
    for i, look in enumerate((s.tomb[1] if s.tomb else '-', wrong), 1):
        if l.seen[i] is not None: continue
        seen = l.seen[:i] + (look,) + l.seen[i+1:]
        l2 = l._replace(seen=seen)
        if None in seen[1:]: out.append((s, 'k5-look', l2))
        elif seen[2] or seen[1] == 'drop' and F['on_drop'] == 'withdraw':
            out.append({None: (s, 'unknown', l), 'blind': (s, 'k7-del', l), 'check': (s, 'k6-check', l),
                        'held': (s, 'k6-hold', l)}[F['withdraw']])
        else: out.append(answer(s, l2))
    return out

@at('k6-hold')   # who cannot take the name answers "unknown", and leaves it to reconcile
def _(s, me, l, F, e):
    return [(s, 'unknown', l) if s.tomb else (s._replace(tomb=(200 + me, 'creating', me)), 'k6-check', l)]
@at('k6-check')
def _(s, me, l, F, e):
    m = at_v(s, l.staged[0])
    mine = m and m[2][-1] == l.cid and m == top(s)   # nobody has built on it
    if mine: return [(s, 'k7-del', l)]
    return [(s, 'k8-free' if carries(s, 200 + me) else 'unknown', l)]
@at('k7-del')   # by name
def _(s, me, l, F, e):
    m = at_v(s, l.staged[0])
    if m and m[2][-1] != l.cid and m[2][-1] in s.acked: s = s._replace(fault=f'withdrew somebody else\'s acknowledged {m}')
    s = s._replace(manifests=s.manifests - {m})
    s = refuse(s, l.cid)
    return [(s, 'k8-free', l) if carries(s, 200 + me) else (s, 'refused', l)]
@at('k8-free')
def _(s, me, l, F, e): return [(s._replace(tomb=None) if carries(s, 200 + me) else s, 'end', l)]

# ---- clean-up of old versions: all but the latest
@at('clean')
def _(s, me, l, F, e):
    old = s.manifests - {top(s)}
    return [(s, 'g1-age' if F['spare'] else 'g2-del', old) if old and not s.tomb else (s, 'end', ())]
at('g1-age')(lambda s, me, l, F, e: [(s, 'g2-del', l)])   # see run
@at('g2-del')
def _(s, me, l, F, e): return [(s._replace(manifests=s.manifests - l), 'end', ())]

# ---- invariants, in every state
def bad(s):
    out, t = [s.fault] if s.fault else [], top(s)
    out += [f'acknowledged {c} lost, and nobody purged it' for c in s.acked - s.purged if not t or c not in t[2]]
    if not visible(s): return out
    incs = {m[1] for m in s.manifests}
    if incs & s.dead: out.append(f'a manifest of the dead incarnation {min(incs & s.dead)} is visible' + (
        ' in a new table' if len(incs) > 1 else ' in an absent name'))
    elif len(incs) > 1: out.append(f'two incarnations in one table: {sorted(s.manifests)}')
    if not set(rows(t[2])) <= s.files: out.append(f'the latest version names files that are gone: {t}')
    ms = sorted(s.manifests)
    if any(b[0] != a[0] + 1 or b[2][:-1] != a[2] for a, b in zip(ms, ms[1:])): out.append(f'broken chain {ms}')
    out += [f'refused, and visible: {c}' for c in s.refused & set(t[2])]
    return out

# ---- exploration
BROKEN = {'end': frozenset({'open'}), 'ever': None}   # windows that the look beside the read has then
WINDOW = {'b2-look', 'b3-read', 'b4-judge', 'k2-look', 'k2-mine?', 'k3-put', 'k4-answer', 'k5-look'}
def run(progs, start, F, crash=True, only=''):
    """Breadth first, so a trace is a shortest one. -> states, violation or None, trace"""
    s0 = STARTS[start]
    for i, p in enumerate(progs):   # an old writer's file is there if its incarnation was not purged
        if p.startswith('old>') or p == 'old': s0 = s0._replace(files=s0.files | ({20 + i} if 1 not in s0.dead else N))
    ops = [p.split('>') for p in progs]
    init = s0, tuple((o[0], (), 0, None) for o in ops), N
    came, todo, fine = {init: None}, [init], set()
    def trace(st):
        out = []
        while came[st]: st, what = came[st]; out.append(what)
        return ' '.join(reversed(out))
    for st in todo:
        s, acts, crashed = st
        if s not in fine:
            b = [x for x in bad(s) if only in x]
            if b: return len(came), b[0], trace(st)
            fine.add(s)
        for i, a in enumerate(acts):
            if a is None: continue
            pc, l, k, w = a
            late = w is not None and 'late' in w
            TAKEN.add(pc)
            # Leaving no claim and no tombstone, a crash is the same as not being scheduled any more.
            if crash and (s.tomb and s.tomb[2] == i or any(c[2] == i for c in s.claims)):
                new = s, acts[:i] + (None,) + acts[i+1:], crashed | {i}
                if new not in came: came[new] = st, f'{i}:crash'; todo.append(new)
            for s2, pc2, l2 in RULES[pc](s, i, l, F, Env(late, crashed)):
                step = 'b1-begin' if pc == 'w2-stage' and pc2 == 'b2-look' else pc
                note = f'{i}:{step}'
                if pc2 in RULES:
                    early = type(l2) is C and l2.early
                    opens = pc == 'k0-early' and early or step in ('b1-begin', 'k1-begin') and not (early and F['early'] == 'window')
                    w2 = frozenset({'open'}) if opens else w if pc2 in WINDOW or early else None
                    if pc[0] == 'b' and pc2 == 'k3-put' and F['beside'] in BROKEN: w2 = BROKEN[F['beside']]
                    a2 = pc2, l2, k, w2
                else:
                    note += f'={pc2}'
                    a2 = (ops[i][k + 1], (), k + 1, None) if k + 1 < len(ops[i]) else None
                acts2 = acts[:i] + (a2,) + acts[i+1:]
                # Tokens for open windows; and those that a wait makes late.
                token, over = None, None
                if pc == 'd1-put-tomb' and s2 is not s: token = 100 + i
                elif pc == 'p5-del-manifest' and s2 is not s and F['wait'] == 'end': token = ('x', l[0])
                elif s2.manifests - s.manifests and 'clean' in ' '.join(progs): token = ('v', max(s2.manifests - s.manifests)[0])
                elif pc == 'p-wait-start': over = {l[0]}
                elif pc == 'p-wait-end': over = {l[0], ('x', l[0])}
                elif pc == 'g1-age': over = {('v', m[0]) for m in l}
                if token or over:
                    acts2 = tuple(x if x is None or x[3] is None or j == i else
                                  (*x[:3], x[3] | {token} if token else (x[3] | {'late'} if x[3] & over else x[3]))
                                  for j, x in enumerate(acts2))
                new = s2, acts2, crashed
                if new not in came: came[new] = st, note; todo.append(new)
    return len(came), None, ''

def store(manifests=(), files=(), tomb=None, dead=(), acked=()):
    ms = frozenset(manifests)
    return S(tomb, N, ms, frozenset(files), frozenset(acked), N, N, frozenset(dead),
             frozenset({(1, 1)} if tomb else ()), frozenset((v, i, h[-1]) for v, i, h in ms), None)
A1, A2, B1, B2 = (1, 1, (1,)), (2, 1, (1, 2)), (1, 2, (3,)), (2, 2, (3, 4))
STARTS = {
    'live': store([A1], {1}, acked={1}),
    'live2': store([A1, A2], {1, 2}, acked={1, 2}),
    'cleaned': store([A2], {1, 2}, acked={1, 2}),          # version 1 went with a clean-up
    'dropped': store([A1], {1}, (1, 'drop', None), acked={1}),
    'absent': store(dead={1}),                             # incarnation 1 was purged
    'new': store([B1], {3}, dead={1}, acked={3}),          # ... and the name created again
    'new-longer': store([B1, B2], {3, 4}, dead={1}, acked={3, 4}),
}
WRITERS = 'commit', 'old', 'oldw'
LONG = 'drop>purge>create>commit'
CYCLE = ('drop', 'undrop', 'purge', 'create', 'revive', 'overwrite', 'drop>purge', 'drop>undrop', 'drop>revive',
         'purge>create', 'drop>purge>create', LONG)
SHORT = 'drop', 'undrop', 'purge', 'create', 'revive', 'overwrite', 'drop>purge', 'drop>undrop', 'drop>revive'
def combos(quick):
    out = [((w, c), st) for st in STARTS for w in WRITERS for c in CYCLE + WRITERS if not quick or c != LONG or (st, w) == ('live', 'commit')]
    if quick:
        out += [(('commit', *cs), 'live') for cs in combinations_with_replacement(('drop', 'purge', 'revive', 'overwrite'), 2)]
        out += [(('old', *cs), 'dropped') for cs in combinations_with_replacement(('undrop', 'purge', 'revive'), 2)]
        out += [(('commit', 'drop>purge', 'create'), 'live'), (('old', 'commit', 'drop'), 'new'), (('commit', 'commit', 'drop'), 'live')]
    else:
        for st in STARTS:
            for w in WRITERS[:2] if st in ('live', 'dropped', 'new') else WRITERS[1:2]:
                out += [((w, *cs), st) for cs in combinations_with_replacement(SHORT, 2)]
                out += [((w, x, c), st) for x in ('drop>purge>create', LONG) for c in ('undrop', 'purge', 'create')]
        out += [((w, 'commit', c), st) for w in WRITERS for st in ('live', 'dropped', 'new') for c in SHORT]
        out += [(('commit', 'drop>purge>create', 'overwrite'), 'live'), (('commit', 'commit', 'commit'), 'live'),
                (('commit', 'old', 'drop>purge>create'), 'live')]
        out += [(('commit', *fours), 'live') for fours in (('drop', 'undrop', 'purge'), ('drop', 'purge', 'create'), ('drop', 'overwrite', 'revive'))]
    # Clean-ups: without drops, they would act by name on a later table too.
    for st in 'live', 'live2', 'cleaned':
        out += [(('commit', 'clean'), st), (('commit', 'commit>clean'), st), (('commit', 'commit>commit>clean'), st)]
        if not quick: out += [(('commit', 'commit', 'clean'), st), (('commit', 'overwrite', 'clean'), st)]
    return out
DEEP = [((w, LONG, 'overwrite'), 'live') for w in WRITERS] + [(('commit', 'commit', 'commit>clean'), 'live'), (('commit', 'commit', LONG), 'live')]
DEEP += [(('commit', a, b, c), st) for st in ('live', 'dropped', 'new') for a, b, c in (
    ('drop', 'purge', 'create'), ('drop', 'undrop', 'purge'), ('drop', 'revive', 'undrop'), ('drop', 'overwrite', 'revive'))]

RACE = [(('commit', 'drop>purge>create>commit'), 'live'), (('commit', 'drop>purge'), 'live')]
STALE = [(('old',), 'new'), (('old',), 'new-longer'), (('oldw',), 'new-longer'), (('old', 'commit'), 'new')]
UND = [(('commit', 'drop>undrop'), 'live'), (('commit', 'drop', 'undrop'), 'live'), (('commit', 'commit', 'drop>undrop'), 'live')]
CLEAN = [(('commit', 'commit>clean'), 'live'), (('commit', 'commit>commit>clean'), 'live')]

# name, flags, where, what to look for ('' = anything): what happens without this or that. Each must be violated.
DEAD, LOST, TWICE, SEEN, FOREIGN = 'dead incarnation', 'lost, and nobody', 'used twice', 'refused, and visible', 'a writer of inc'
FIND = [
    ('a no step 4, no wait: in an absent name', NAIVE, RACE[1:], 'in an absent name'),
    ('a ... in a new table', NAIVE, RACE[:1], 'in a new table'),
    ('a ... an acknowledged commit lost', NAIVE, RACE[:1], LOST),
    ('a tombstone first does not help without the wait', NAIVE | dict(order='tomb-first'), RACE, DEAD),
    ('a incarnation of L only: a handle older than the new chain is rebased by Lance', DESIGN | dict(capture=False), STALE[1:3], FOREIGN),
    ('a version alone, no incarnation', DESIGN | dict(capture=False, incs=False), STALE[:1], ''),
    ('a new data files looked for instead of the capture: files written after the re-creation', DESIGN | dict(capture=False, data=True), STALE[2:3], FOREIGN),
    ('a capture alone, without the incarnation of L', DESIGN | dict(incs=False), RACE, DEAD),
    ('b step 4, blind withdrawal: in an absent name until then, after a crash for ever', STEP4, RACE[1:], 'in an absent name'),
    ('b ... in a new table', STEP4, RACE[:1], 'in a new table'),
    ('b ... somebody acknowledged on top of the stray, then withdrawn', STEP4 | dict(capture=True, incs=True), RACE[:1], LOST),
    ('b purge lists once more after its tombstone went', STEP4 | dict(relist=True), RACE[:1], 'in a new table'),
    ('b ... and deletes what a create made meanwhile', STEP4 | dict(relist=True), [(('commit', 'drop>purge', 'create'), 'live')], 'purge deleted'),
    ('b create takes "no version 1" for litter', DESIGN | dict(no_v1=True), [(('create',), 'cleaned')], LOST),
    ('b wait at the start of the purge, reads in any order', DESIGN | dict(order='any'), RACE, DEAD),
    ('b wait, but the committer does not watch its window', DESIGN | dict(guard=False), RACE, DEAD),
    ('b look beside the read, and the purge waits at its end only: a LIST while it deletes makes room below the latest',
     DESIGN | dict(wait='end'), [(('old', 'drop>purge'), 'live2')], TWICE),
    ('c retry: "dropped" before looking for our own version', DESIGN | dict(retry_look=False), UND, SEEN),
    ('c retry: an existing version is a conflict, whosoever', DESIGN | dict(idem=False), [(('commit',), 'live')], SEEN),
    ('c retry: "conflict" for a version that a clean-up took', DESIGN | dict(gone='conflict', spare=False), CLEAN, SEEN),
    ('c a put below the latest, where a clean-up made room', DESIGN | dict(spare=False), CLEAN, TWICE),
    ('d withdraw while dropped though the base is intact', STEP4 | dict(on_drop='withdraw', guard=True, wait='start', order='tomb-first'), UND, ''),
    ('d "base gone" as proof, and a clean-up', DESIGN | dict(post='always', litter='L-gone'), CLEAN, LOST),
]

TEETH = [
    ('no look for the tombstone', dict(tomb_check=False), [(('commit', 'undrop'), 'dropped'), (('old',), 'dropped')]),
    ('put that overwrites', dict(absent_put=False), [(('commit', 'commit'), 'live')]),
    ('version need not be latest + 1', dict(latest=False, incs=False, capture=False), STALE),
    ('no incarnations at all', dict(incs=False, capture=False), STALE),
    ('incarnation of L is not compared', dict(incs=False), RACE),
    ('no capture in the handle', dict(capture=False), STALE),
    ('no wait in the purge', dict(wait=None), RACE),
    ('no guard before the put', dict(guard=False), RACE),
    ('tombstone read in any order', dict(order='any'), RACE),
    ('an earlier look counts for ever', dict(early='ever'), RACE),
    ('beside the read in any order, without an earlier look', dict(beside='any'), RACE),
    ('a look of an earlier commit serves a later one', dict(beside='kept'), RACE),
    ("the look beside the read counts its window from the read's end", dict(beside='end'), RACE),
    ('the look beside the read counts its window for ever', dict(beside='ever'), RACE),
    ('the new files alone: no incarnation, no anchor', dict(incs=False, capture=False, data=True), STALE),
    ('a retry does not look for itself before "dropped"', dict(retry_look=False), UND),
    ('a repetition takes a version that is gone for a conflict', dict(gone='conflict'), CLEAN),
    ('no idempotent retry', dict(idem=False), [(('commit',), 'live')]),
    ('clean-up deletes young versions', dict(spare=False), CLEAN),
    ('withdraw when dropped', dict(post='always', on_drop='withdraw', withdraw='blind'), UND),
    ('"base gone" taken for purged', dict(post='always', litter='L-gone'), CLEAN),
    ('overwrite does not check its base', dict(over_base=False), [(('overwrite', 'drop>purge>create'), 'live')]),
    ('no version 1 = litter', dict(no_v1=True), [(('create',), 'cleaned')]),
]
# Other ways that the model accepts. Each must survive.
ALSO = [
    ('no step 4 at all (the window alone)', dict(post=None, withdraw=None)),
    ('reads in any order, and the purge waits at its end (after the last manifest went, then lists again); no look beside', dict(order='any', wait='end', beside=False)),
    ('tombstone first, and the purge waits at its end; no look beside', dict(wait='end', beside=False)),
    ('the anchor must still be there, and the incarnation of L is not read', dict(incs='anchor')),
    ('no incarnations: the anchor must still be there, and the new files', dict(incs='anchor', capture=False, data=True)),
    ('no look before a commit', dict(early=None)),
    ("no look beside Lance's own", dict(beside=False)),
    ('the anchor alone, without incarnations and without a look at new files', dict(incs='anchor', capture=False, data=False)),
]

def job(x): return run(*x)

def sweep(cs, F, crash=True, stop=False, only='', pool=None):
    total, hits = 0, []
    jobs = [(progs, st, F, crash, only) for progs, st in cs]
    for (progs, st), (n, b, path) in zip(cs, pool.imap(job, jobs) if pool else map(job, jobs)):
        total += n
        if b: hits.append((st, progs, b, path))
        if b and stop: break
    return total, hits

def show(hits, n=1):
    for st, progs, b, path in hits[:n]: print(f'      {st}: {" | ".join(progs)}: {b}\n        {path}')

def main(quick, deep):
    failed = False
    def line(kind, name, n, hits, want, t):
        odd = want is not None and bool(hits) != want
        print(f'{kind} {name}: {n} states, {"violated" if hits else "holds"}{"   <-- NOT AS EXPECTED" if odd else ""}, {time.time() - t:.1f} s', flush=True)
        show(hits)
        return odd
    with Pool() as pool:
        for name, cs in [('pairs' if quick else 'up to 3 programs', combos(quick))] + ([('larger', DEEP)] if deep else []):
            t = time.time()
            n, hits = sweep(cs, DESIGN, pool=pool)
            failed |= line('DESIGN', f'{name}, {len(cs)} combinations', n, hits, False, t)
        for name, change in ALSO:
            t = time.time()
            n, hits = sweep(RACE + STALE + UND[:1] + CLEAN if quick else combos(True), DESIGN | change, pool=pool)
            failed |= line('ALSO', name, n, hits, False, t)
        # d: beyond the assumptions (no guard, no wait): whom does a withdrawal hit?
        late = [(('commit', 'drop>purge>create>commit'), 'live')]
        if not quick: late += [(('commit', 'drop>purge', 'drop>purge>create>commit'), 'live')]
        cases = [('FIND ' + name, cs, F, True, only, True) for name, F, cs, only in FIND]
        for how in 'blind', 'check', 'held':
            for litter in ('evidence',) if quick else ('L-gone', 'evidence'):
                F = NAIVE | dict(post='always', litter=litter, withdraw=how, capture=True)
                cases.append((f'FIND d late put, withdrawal {how}, proof "{litter}": does it hit somebody else', late if how != 'held' else late[:1], F, False, 'withdrew', how != 'held'))
        cases += [('TEETH ' + name, cs, DESIGN | broken, True, '', True) for name, broken, cs in TEETH]
        caught = 0
        for (name, *_, want), (n, hits) in zip(cases, pool.imap(case, cases)):
            teeth = name.startswith('TEETH')
            word = ('caught' if hits else 'SURVIVED') if teeth else 'violated' if hits else 'holds'
            print(f'{name}: {n} states, {word}{"" if bool(hits) == want else "   <-- NOT AS EXPECTED"}', flush=True)
            if not teeth: show(hits)
            caught += teeth and bool(hits)
            failed |= bool(hits) != want
    print(f'teeth: {caught} of {len(TEETH)} caught')
    return failed

def case(x): return sweep(x[1], x[2], x[3], True, x[4])

if __name__ == '__main__':
    gc.disable()
    args = set(sys.argv[1:])
    if args - {'--quick', '--deep'}: sys.exit(__doc__)
    sys.exit(main('--quick' in args, '--deep' in args))
