/* The protocol of the shared segment as a model: shm/commit.c, shm/index.c, shm/chunk.c, core/{slot,admit,settle,close,
 * extend,reap}.c, persist/{drain*,batch,closed,retire}.c. README.md maps its parts to the code and says what it leaves out.
 *
 * One step is one access to shared memory, together with the local computing that follows it. A process may be killed
 * between any two steps; a process that is stopped is one that the scheduler does not choose.
 * What the model knows and the code does not (g_, r_) only serves assertions. */

#ifndef NP
#define NP 2 /* workers */
#endif
#ifndef NOPS
#define NOPS 1 /* operations of each */
#endif
#ifndef NS
#define NS 2 /* slots; each is a chunk of its own */
#endif
#ifndef KILLS
#define KILLS 1 /* of workers and daemons together */
#endif
#ifndef ROUNDS
#define ROUNDS 12 /* of one operation, before it counts as held up */
#endif
#ifndef LIMIT
#define LIMIT 4 /* of each bucket */
#endif
#define NT   2  /* tenants */
#define SEQ0 10 /* their sequences are far apart */
#define SEQ1 2
#define NOBODY 255

/* enum hf_kind */
#define K_NONE    0
#define K_RESERVE 1
#define K_EXTEND  2
#define K_SETTLE  4
#define K_RELEASE 5
#define K_EXPIRE  6
#define K_LATE    9

/* enum hf_state */
#define S_FREE      0
#define S_FILLING   1
#define S_PENDING   2
#define S_ABANDONED 3
#define S_HELD      4
#define S_SETTLED   5
#define S_RELEASED  6
#define S_EXPIRED   7
#define S_LATE      8

#define KNOWN(st) ((st) == S_PENDING || (st) >= S_HELD) /* hf_index_known, before the horizon */
#define FINAL(st) ((st) >= S_SETTLED)
#define TERMINAL(st) (FINAL(st) && (st) != S_EXPIRED) /* hf_commit_is_terminal */

/* HF_PERSISTED_* */
#define P_RESERVATION 1
#define P_EXPIRY      2
#define P_CLOSING     4

/* What a worker is asked for. Bits, so that a configuration can name a set of them. */
#define O_RESERVE 1
#define O_SETTLE  2
#define O_RELEASE 4
#define O_EXPIRE  8
#define O_EXTEND  16
#define O_ALL     31

/* ---- the segment --------------------------------------------------------------------------------------------- */

byte w_seq[NT], w_kind[NT], w_slot[NT]; /* ten_word: {seq, kind} is its low half, the slot its high one */
byte applied[NT];                       /* ten_applied */
byte b_tag[4], b_val[4];                /* two buckets a tenant; the tag is in the high half */

byte st_seq[NS], st_ord[NS], st_state[NS], st_gen[NS]; /* slot_st: the generation is the high half */
byte s_claim[NS], s_owner[NS], s_ten[NS], s_id[NS], s_act[NS];
byte s_hold[2 * NS]; /* two sets */
byte n_slot[NS], n_gen[NS], n_last[NS]; /* slot_next; slot + 1 */
byte p_gen[NS], p_ord[NS], p_bits[NS]; /* slot_persisted */
byte h_slot, h_gen, h_last, h_cnt; /* the one head of the index */
byte c_owner[NS];
bit c_free[NS], dirty[NS];
bit d_on;                          /* the batch's descriptor: one entry */
byte d_slot, d_gen, d_ord, d_bits;
bit store_has;                     /* the store has that batch */

/* ---- processes ----------------------------------------------------------------------------------------------- */

bit dead[NP + KILLS + 3]; /* by owner reference: workers 1 .. NP, then the daemons, one after the other */
bit fin[NP + 1];
byte kills = KILLS;
byte d_ref = NP + 1;
bit d_busy;
byte ask_op[NP * NOPS], ask_id[NP * NOPS], ask_ten[NP * NOPS];

/* ---- what assertions know ------------------------------------------------------------------------------------ */

short g_sum[NT];                            /* what each bucket of a tenant holds when all of W is applied */
byte g_state[NS], g_hold[NS], g_charge[NS], g_ord[NS]; /* of this life of a slot, as W decided */
byte r_bits[NS], r_charge[NS];              /* receipts in the store, of this life of a slot */
byte r_sum[NT];                             /* charged by receipts of lives that are over */
hidden short g_change;
hidden byte g_at;

#define LOW_IS(t, q, k)     (w_seq[t] == q && w_kind[t] == k)
#define WORD_IS(t, q, k, s) (LOW_IS(t, q, k) && w_slot[t] == s)
#define ST_IS(s, q, o, a, g) (st_seq[s] == q && st_ord[s] == o && st_state[s] == a && st_gen[s] == g)
#define ROUND rounds++; assert(rounds <= ROUNDS) /* nobody is held up: rounds are bounded by what others do */

#if NS == 1
#define EACH_SLOT(f, join) (f(0))
#elif NS == 2
#define EACH_SLOT(f, join) (f(0) join f(1))
#else
#define EACH_SLOT(f, join) (f(0) join f(1) join f(2))
#endif
#define SAME_OPEN(s) (g_state[s] == S_HELD && s_id[s] == s_id[slot])

/* Workers differ in what they ask for, so that a mix of two of them shows. */
#define AMOUNT(who)   ((who) == 2 -> 1 : 2)
#define ACTUAL(who)   ((who) == 2 -> 3 : 1)
#define EXTENDED(who) ((who) == 2 -> 4 : 3)

/* At the CAS of W: everything before is in the buckets; this operation is legal, and charges what it says. */
inline ghost(t, kind, slot, who, change)
{
    d_step {
        assert(b_val[2 * t] == g_sum[t] && b_val[2 * t + 1] == g_sum[t]);
        assert(kind == K_NONE || s_ten[slot] == t);
        if
        :: kind == K_NONE -> skip
        :: kind == K_RESERVE ->
            assert(g_state[slot] == 0);
            assert(EACH_SLOT(SAME_OPEN, +) == 0);
            g_hold[slot] = AMOUNT(who);
            g_change = AMOUNT(who);
            g_charge[slot] = g_hold[slot];
            g_state[slot] = S_HELD;
            assert(g_sum[t] + g_change <= LIMIT)
        :: kind == K_EXTEND ->
            assert(g_state[slot] == S_HELD);
            g_change = EXTENDED(who) - g_hold[slot];
            g_hold[slot] = EXTENDED(who);
            g_ord[slot]++;
            g_charge[slot] = g_hold[slot];
            assert(g_sum[t] + g_change <= LIMIT)
        :: kind == K_SETTLE ->
            assert(g_state[slot] == S_HELD);
            g_change = ACTUAL(who) - g_hold[slot];
            g_charge[slot] = ACTUAL(who);
            g_state[slot] = S_SETTLED
        :: kind == K_RELEASE || kind == K_EXPIRE ->
            assert(g_state[slot] == S_HELD);
            g_change = 0 - g_hold[slot];
            g_charge[slot] = 0;
            g_state[slot] = (kind == K_RELEASE -> S_RELEASED : S_EXPIRED)
        :: kind == K_LATE ->
            assert(g_state[slot] == S_EXPIRED);
            g_change = ACTUAL(who);
            g_charge[slot] = ACTUAL(who);
            g_state[slot] = S_LATE
        fi;
        assert(kind == K_NONE || change == g_change);
        g_sum[t] = g_sum[t] + (kind == K_NONE -> 0 : g_change);
        g_change = 0
    }
}

/* A link that says it is the last, with the tag of its id (hf_link_last); 0: it does not say so. Some ids have the same tag. */
#define LAST(id)                 (1 + ((id) & 1))
#define EXCLUDES(last, id)       ((last) != 0 && (last) != LAST(id)) /* hf_link_excludes, of a link that names a slot */
#define HEAD_IS(s, g, l, c)      (h_slot == s && h_gen == g && h_last == l && h_cnt == c)

/* A head that says it is the last has nothing behind it, and the tag of its slot. */
inline last_check()
{
    assert(h_last == 0 || (h_slot != 0 && n_slot[h_slot - 1] == 0 && h_last == LAST(s_id[h_slot - 1])))
}

#define NAMES(t, s)  (w_kind[t] != K_NONE && w_slot[t] == (s))

/* st in one step: low, high, low as the code does; whatever it returns, stood there at some instant of the reading. */
inline read_st(s, q, o, a, g)
{
    d_step { q = st_seq[s]; o = st_ord[s]; a = st_state[s]; g = st_gen[s] }
}

inline clear_op()
{
    d_step {
        ok = 0; os = 0; oq = 0; ch = 0; bt = 0; own = 0; usew = 0; appl = 0; right = 0; b = 0; xt = 0; xv = 0;
        bq = 0; bo = 0; bs = 0; bg = 0; as = 0; ao = 0
    }
}

inline clear_walk()
{
    d_step {
        lk_s = 0; lk_g = 0; lk_l = 0; hd_s = 0; hd_g = 0; hd_l = 0; hd_c = 0; nx_s = 0; nx_g = 0; nx_l = 0;
        same = 0; fid = 0; ixown = 0
    }
}

/* hf_commit_changes, hf_commit_state_after: from st before and the fields of slot os. One step: fields read one after
 * the other differ only where W has moved on, and that is looked at next. */
inline describe()
{
    bt = s_ten[os];
    ao = bo;
    if
    :: ok == K_RESERVE -> right = (bs == S_PENDING); ch = s_hold[2 * os + (bo & 1)]; as = S_HELD
    :: ok == K_EXTEND -> right = (bs == S_HELD);
        ch = s_hold[2 * os + ((bo + 1) & 1)] - s_hold[2 * os + (bo & 1)]; as = S_HELD; ao = bo + 1
    :: ok == K_SETTLE -> right = (bs == S_HELD);
        ch = s_act[os] - s_hold[2 * os + (bo & 1)]; as = S_SETTLED
    :: ok == K_RELEASE -> right = (bs == S_HELD); ch = 0 - s_hold[2 * os + (bo & 1)]; as = S_RELEASED
    :: ok == K_EXPIRE -> right = (bs == S_HELD); ch = 0 - s_hold[2 * os + (bo & 1)]; as = S_EXPIRED
    :: ok == K_LATE -> right = (bs == S_EXPIRED); ch = s_act[os]; as = S_LATE
    :: else -> right = 0
    fi
}

/* Nobody else in the chain, in this life, is known under that id. */
inline twin_check(own_slot)
{
    g_at = h_slot;
    do
    :: g_at != 0 && g_at - 1 != own_slot ->
        assert(s_id[g_at - 1] != s_id[own_slot] || !KNOWN(st_state[g_at - 1]));
        g_at = n_slot[g_at - 1]
    :: else -> break
    od;
    g_at = 0
}

/* The reservation that was there from the start, and is open now, cannot have been missed. */
inline lost_check()
{
    assert(!(fid == 1 && s_id[0] == 1 && g_state[0] == S_HELD && st_gen[0] == 1))
}

/* One try: lost to an inserter, the head stays as that one made it. */
inline say_last()
{
    atomic {
        if
        :: HEAD_IS(hd_s, hd_g, hd_l, hd_c) && nx_s == 0 && pred == hd_s ->
            h_last = LAST(s_id[pred - 1]); h_cnt++; last_check()
        :: else -> skip
        fi
    }
}

/* hf_index_remove of slot ds; twice, as unlink_slot() does. Ends at L_UNLINKED. */
inline index_remove()
{
    skip;
L_UNLINK:
    atomic {
        hd_s = h_slot; hd_g = h_gen; hd_l = h_last; hd_c = h_cnt; lk_s = h_slot; lk_g = h_gen; pred = 0
    };
L_PRED:
    atomic {
        if
        :: lk_s == 0 -> goto L_NOT_IN
        :: else -> assert(st_gen[lk_s - 1] == lk_g) /* STEP_DAMAGED */
        fi;
        if
        :: lk_s - 1 == ds -> goto L_PRED_FOUND
        :: else -> pred = lk_s
        fi
    };
    d_step { lk_g = n_gen[lk_s - 1]; lk_s = n_slot[lk_s - 1] };
    goto L_PRED;
L_PRED_FOUND:
    atomic {
        nx_s = n_slot[ds]; nx_g = n_gen[ds]; nx_l = n_last[ds];
        if
        :: pred != 0 -> goto L_INNER
        :: else -> skip
        fi
    };
    atomic {
        if
        :: HEAD_IS(hd_s, hd_g, hd_l, hd_c) ->
            h_slot = nx_s; h_gen = nx_g; h_last = nx_l; h_cnt++; last_check(); goto L_UNLINKED
        :: else -> ROUND; goto L_UNLINK
        fi
    };
L_INNER:
#ifdef MUTANT_LAST_BEFORE_UNLINK
    say_last();
#endif
    atomic {
        n_slot[pred - 1] = nx_s; n_gen[pred - 1] = nx_g; n_last[pred - 1] = nx_l;
        if
        :: nx_s == 0 && pred == hd_s -> skip
        :: else -> goto L_UNLINKED
        fi
    };
#ifndef MUTANT_LAST_BEFORE_UNLINK
    say_last();
#endif
    goto L_UNLINKED;
L_NOT_IN:
    atomic {
        if
        :: tried -> goto L_UNLINKED
        :: else -> tried = 1; goto L_UNLINK
        fi
    }
}

#include "worker.pml"
#include "daemon.pml"
#include "init.pml"

/* Kills anybody at any time. A daemon without work loses nothing. */
active proctype killer()
{
end:
    do
    :: kills > 0 && !fin[1] && !dead[1] -> atomic { dead[1] = 1; kills-- }
#if NP > 1
    :: kills > 0 && !fin[2] && !dead[2] -> atomic { dead[2] = 1; kills-- }
#endif
#if NP > 2
    :: kills > 0 && !fin[3] && !dead[3] -> atomic { dead[3] = 1; kills-- }
#endif
#ifndef DAEMON_LIVES
    :: kills > 0 && d_busy && !dead[d_ref] -> atomic { dead[d_ref] = 1; kills-- }
#endif
    od
}

