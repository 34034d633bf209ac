/* The daemon: persist/{drain*,batch,closed,retire}.c, the reaping of core/reap.c, hf_chunk_return of shm/chunk.c. It
 * looks at slots in any order, as often as there is something to do; killed, the next one takes its place. */

#define RET_SURVIVOR 1 /* somebody's next operation on the tenant, or the daemon's look at all W (apply_words) */
#define RET_UNDEAD   2 /* hf_retire_bury */
#define RET_DETACH   3 /* hf_commit_detach */
#define RET_REAP     4 /* hf_reap_slot */

#define WANTED(a) (((a) == S_HELD) -> P_RESERVATION : ((a) == S_EXPIRED -> P_RESERVATION | P_EXPIRY : \
                   ((a) == S_LATE -> P_RESERVATION | P_EXPIRY | P_CLOSING : P_RESERVATION | P_CLOSING)))
#define MARKS(s)  (p_gen[s] == st_gen[s] -> p_bits[s] : 0)
#define OWES(s)   (st_state[s] >= S_HELD && \
                   ((MARKS(s) & WANTED(st_state[s])) != WANTED(st_state[s]) || \
                    (st_state[s] == S_HELD && p_ord[s] != st_ord[s])))
#define HALF(s)   (st_state[s] == S_FILLING || st_state[s] == S_PENDING)
#define FILLER_DEAD(s) (HALF(s) && (c_owner[s] != 0 -> dead[c_owner[s]] : st_state[s] == S_PENDING && dead[s_owner[s]]))

/* hf_commit_is_past */
#ifdef MUTANT_PAST_OPEN
#define PAST(a, q, t) (FINAL(a) && (q) < seen[t])
#elif defined(MUTANT_PAST_EQUAL)
#define PAST(a, q, t) (TERMINAL(a) && (q) <= seen[t])
#else
#define PAST(a, q, t) (TERMINAL(a) && (q) < seen[t])
#endif

#define CLAIMABLE(s) (s_claim[s] == 0 || dead[s_claim[s]])

/* What a sweep would find. The model does not sweep in vain. */
#ifdef NO_SWEEP
#define SWEEP(s) (st_state[s] == S_ABANDONED && CLAIMABLE(s))
#else
#define SWEEP(s) (OWES(s) || (st_state[s] == S_ABANDONED && CLAIMABLE(s)) || FILLER_DEAD(s))
#endif
#ifdef REAPS
#define REAP(s) (st_state[s] == S_HELD && !OWES(s))
#else
#define REAP(s) (0)
#endif
#define RETIRE(s)      (FINAL(st_state[s]) && !OWES(s) && CLAIMABLE(s)) /* its horizon is over, or slots run short: at any time */
#define LOOK(s)        (dirty[s] || SWEEP(s) || REAP(s) || RETIRE(s))
#ifdef MUTANT_RETURN_HALF
#define RETURNABLE(s)  (c_owner[s] != 0 && dead[c_owner[s]])
#else
#define RETURNABLE(s)  (c_owner[s] != 0 && dead[c_owner[s]] && !HALF(s))
#endif
#define BIT_MISSING(s) (c_owner[s] == 0 && st_state[s] == S_FREE && !c_free[s])

#define GONE(p)  (fin[p] || dead[p])
#if NP == 1
#define ALL_GONE GONE(1)
#elif NP == 2
#define ALL_GONE (GONE(1) && GONE(2))
#else
#define ALL_GONE (GONE(1) && GONE(2) && GONE(3))
#endif
#ifdef HELPER
#define HELPS 1 /* somebody's operations on the tenants, at any time */
#else
#define HELPS ALL_GONE /* a survivor's */
#endif
#define BEHIND(t)   (applied[t] < w_seq[t])
#define TO_DO(s)    (dirty[s] || OWES(s) || st_state[s] == S_ABANDONED || FILLER_DEAD(s) || RETURNABLE(s) || BIT_MISSING(s))
#define QUIET       (ALL_GONE && !BEHIND(0) && !BEHIND(1) && !EACH_SLOT(TO_DO, ||))

/* When all is over: every bucket is what the slots and the receipts say. */
#define FROM_SLOT(s)  (st_state[s] == S_HELD -> s_hold[2 * (s) + (st_ord[s] & 1)] : \
                       (st_state[s] == S_SETTLED || st_state[s] == S_LATE -> s_act[s] : 0))
#define OF(t, s)      (s_ten[s] == t -> FROM_SLOT(s) : 0)
#define OF0(s)        OF(0, s)
#define OF1(s)        OF(1, s)
#define RIGHT(s)      (st_state[s] == S_FREE || (st_state[s] == g_state[s] && r_bits[s] == WANTED(st_state[s])))

inline conserved()
{
    assert(b_val[0] == r_sum[0] + EACH_SLOT(OF0, +) && b_val[1] == b_val[0]);
    assert(b_val[2] == r_sum[1] + EACH_SLOT(OF1, +) && b_val[3] == b_val[2]);
    assert(b_val[0] == g_sum[0] && b_val[2] == g_sum[1]);
    assert(EACH_SLOT(RIGHT, &&))
}

inline clear_daemon()
{
    clear_op();
    d_step {
        ds = 0; other = 0; bits = 0; fq = 0; fo = 0; fa = 0; fg = 0; rounds = 0; tried = 0; pred = 0;
        lk_s = 0; lk_g = 0; hd_s = 0; hd_g = 0; hd_l = 0; hd_c = 0; nx_s = 0; nx_g = 0; nx_l = 0;
        rt = 0; rq = 0; rk = 0; rs = 0; ret = 0; d_busy = 0
    }
}
#define IDLE clear_daemon(); goto L_CHOOSE

proctype daemon()
{
    byte me = NP + 1;
    byte rounds;
    byte rt, rq, rk, rs, ret;
    byte ok, os, oq, bt, b, xt, xv, bq, bo, bs, bg, as, ao;
    short ch;
    bit own, usew, appl, right;
    byte vt0, vv0, vt1, vv1; /* unused here */
    byte ds, other, bits;
    byte fq, fo, fa, fg;
    byte lk_s, lk_g, hd_s, hd_g, hd_l, hd_c, nx_s, nx_g, nx_l, pred;
    bit tried;
    byte seen[NT]; /* hf_closed.word_seqs */

L_BOOT:
    {
        /* ---- hf_drain_resume: the batch that the one before announced ------------------------------------------ */
        atomic {
            if
            :: d_on && store_has -> d_busy = 1; goto L_MARK_WRITTEN /* @resume */
            :: d_on && !store_has -> d_on = 0; d_slot = 0; d_gen = 0; d_ord = 0; d_bits = 0
            :: else -> skip
            fi
        };
L_CHOOSE:
        atomic {
            if
            :: LOOK(0) -> ds = 0; dirty[ds] = 0; d_busy = 1; goto L_LOOK
            :: RETURNABLE(0) || BIT_MISSING(0) -> ds = 0; d_busy = 1; goto L_RETURN
#if NS > 1
            :: LOOK(1) -> ds = 1; dirty[ds] = 0; d_busy = 1; goto L_LOOK
            :: RETURNABLE(1) || BIT_MISSING(1) -> ds = 1; d_busy = 1; goto L_RETURN
#endif
#if NS > 2
            :: LOOK(2) -> ds = 2; dirty[ds] = 0; d_busy = 1; goto L_LOOK
            :: RETURNABLE(2) || BIT_MISSING(2) -> ds = 2; d_busy = 1; goto L_RETURN
#endif
            :: HELPS && BEHIND(0) -> d_busy = 1; READY(0, RET_SURVIVOR)
            :: HELPS && BEHIND(1) -> d_busy = 1; READY(1, RET_SURVIVOR)
            :: QUIET -> conserved(); goto L_CHOOSE /* @quiet */
            fi
        };

        /* ---- look() ------------------------------------------------------------------------------------------------- */
L_LOOK:
        atomic {
            fq = st_seq[ds]; fo = st_ord[ds]; fa = st_state[ds]; fg = st_gen[ds];
            if
            :: fa == S_FREE -> IDLE
            :: fa == S_FILLING || fa == S_PENDING -> skip
            :: fa == S_ABANDONED -> goto L_RETIRE
            :: else -> goto L_SNAP
            fi
        };
        /* ---- hf_retire_bury ---- */
        other = c_owner[ds];
        atomic {
            if
            :: other != 0 && !dead[other] -> IDLE
            :: other == 0 && (fa == S_FILLING || !dead[s_owner[ds]]) -> IDLE
            :: else -> other = 0
            fi;
#ifdef MUTANT_BURY_UNREADY
            goto L_UNDEAD
#else
            if
            :: fa == S_PENDING -> rt = s_ten[ds]; ret = RET_UNDEAD; goto L_READY
            :: else -> goto L_UNDEAD
            fi
#endif
        };
L_UNDEAD:
        atomic {
            if
            :: ST_IS(ds, fq, fo, fa, fg) -> st_state[ds] = S_ABANDONED; st_seq[ds] = 0; st_ord[ds] = 0 /* @undead */
            :: else -> skip
            fi;
            IDLE
        };

        /* ---- hf_snapshot_take, hf_snapshot_owes; collect, announce, commit, hf_batch_mark -------------------------- */
L_SNAP:
        atomic {
            xt = (fa == S_HELD -> s_hold[2 * ds + (fo & 1)] : (fa == S_SETTLED || fa == S_LATE -> s_act[ds] : 0));
            bits = (p_gen[ds] == fg -> p_bits[ds] : 0);
            bo = (p_gen[ds] == fg -> p_ord[ds] : 0)
        };
        atomic {
            if
            :: ST_IS(ds, fq, fo, fa, fg) -> skip
            :: else -> xt = 0; bits = 0; bo = 0; goto L_LOOK
            fi;
            if
            :: (bits & WANTED(fa)) != WANTED(fa) || (fa == S_HELD && bo != fo) -> bo = 0; bits = bits | WANTED(fa)
#ifdef MUTANT_FREE_UNWRITTEN
            :: FINAL(fa) -> bo = 0; xt = 0; goto L_RETIRE
#endif
            :: else -> bo = 0; xt = 0; bits = 0;
                if
                :: FINAL(fa) -> goto L_RETIRE
#ifdef REAPS
                :: fa == S_HELD -> goto L_REAP
#endif
                :: else -> IDLE
                fi
            fi
        };
        d_step { d_on = 1; d_slot = ds; d_gen = fg; d_ord = fo; d_bits = bits };
        d_step { /* the store's transaction: what is new comes once, and says what W decided */
            assert(st_gen[ds] == fg);
            assert((bits & ~r_bits[ds]) != 0 || fa == S_HELD);
            assert(g_state[ds] != fa || g_ord[ds] != fo || xt == g_charge[ds]);
            r_bits[ds] = r_bits[ds] | bits;
            r_charge[ds] = xt;
            store_has = 1;
            xt = 0; bits = 0
        };
L_MARK_WRITTEN:
        atomic {
            if
            :: st_gen[d_slot] != d_gen -> goto L_BATCH_DONE
            :: else -> skip
            fi
        };
        d_step { p_gen[d_slot] = d_gen; p_ord[d_slot] = d_ord; p_bits[d_slot] = d_bits };
L_BATCH_DONE:
        atomic { d_on = 0; store_has = 0; d_slot = 0; d_gen = 0; d_ord = 0; d_bits = 0; IDLE };

#ifdef REAPS
        /* ---- hf_reap_slot: past its deadline ------------------------------------------------------------------------ */
L_REAP:
        atomic { rt = s_ten[ds]; ret = RET_REAP; goto L_READY };
L_REAP_READY:
        atomic { os = ds; ok = K_EXPIRE; oq = rq + 1; bq = st_seq[os]; bo = st_ord[os]; bs = st_state[os]; bg = st_gen[os] };
        atomic {
            describe();
            if
            :: right && bq == fq && bo == fo && bs == fa && bg == fg -> right = 0
            :: else -> IDLE
            fi
        };
        atomic {
            if
            :: WORD_IS(rt, rq, rk, rs) ->
                w_seq[rt] = oq; w_kind[rt] = ok; w_slot[rt] = os;
                ghost(rt, ok, os, me, ch);
                own = 1; goto L_APPLY
            :: else -> IDLE
            fi
        };
#else
L_REAP_READY:
        assert(false);
#endif

        /* ---- hf_retire_slot ------------------------------------------------------------------------------------------ */
L_RETIRE:
#ifndef MUTANT_RETIRE_UNCLAIMED
        other = s_claim[ds];
        atomic {
            if
            :: other != 0 && !dead[other] -> IDLE
            :: else -> skip
            fi
        };
        atomic {
            if
            :: s_claim[ds] == other -> s_claim[ds] = me; other = 0
            :: else -> IDLE
            fi
        };
#endif
#ifdef MUTANT_NO_DETACH
        goto L_DETACHED;
#endif
#ifdef MUTANT_DETACH_UNREADY
        d_step { rt = s_ten[ds]; rq = w_seq[rt]; rk = w_kind[rt]; rs = w_slot[rt] };
        goto L_DETACH;
#endif
        atomic { /* hf_commit_detach */
            rt = s_ten[ds];
            if
            :: PAST(fa, fq, rt) -> goto L_DETACHED /* @past */
            :: else -> ret = RET_DETACH; goto L_READY
            fi
        };
L_DETACH:
        atomic {
            seen[rt] = rq;
            if
            :: rk == K_NONE || rs != ds -> goto L_DETACHED
            :: else -> skip
            fi
        };
        atomic {
            if
            :: WORD_IS(rt, rq, rk, rs) ->
#ifdef MUTANT_DETACH_SAME_SEQUENCE
                w_kind[rt] = K_NONE; w_slot[rt] = 0;
                oq = rq; ok = K_NONE; own = 1;
#else
                w_seq[rt] = rq + 1; w_kind[rt] = K_NONE; w_slot[rt] = 0;
                oq = rq + 1; ok = K_NONE; own = 1;
#endif
#ifdef MUTANT_DETACH_UNREADY
                ret = RET_DETACH;
#endif
                goto L_APPLIED
            :: else -> ROUND; rt = s_ten[ds]; ret = RET_DETACH; goto L_READY
            fi
        };
L_DETACHED:
        atomic {
            rq = 0; rk = 0; rs = 0; rt = 0; ret = 0;
            if
            :: ST_IS(ds, fq, fo, fa, fg) -> skip
            :: else -> goto L_UNCLAIM
            fi
        };
#ifndef MUTANT_NO_UNLINK
        index_remove();
#endif
L_UNLINKED:
        atomic {
            lk_s = 0;
            d_step {
                lk_g = 0; hd_s = 0; hd_g = 0; hd_l = 0; hd_c = 0; nx_s = 0; nx_g = 0; nx_l = 0; pred = 0; tried = 0
            };
            if
            :: ST_IS(ds, fq, fo, fa, fg) -> st_state[ds] = S_ABANDONED; st_seq[ds] = 0; st_ord[ds] = 0
            :: else -> goto L_UNCLAIM
            fi
        };
#ifndef MUTANT_RETIRE_UNCLAIMED
        s_claim[ds] = 0;
#endif
        atomic {
            if
            :: ST_IS(ds, 0, 0, S_ABANDONED, fg) ->
                st_state[ds] = S_FREE;
                assert(g_state[ds] == 0 || FINAL(g_state[ds]));
                assert(g_state[ds] == 0 || r_bits[ds] == WANTED(g_state[ds])); /* no receipt is lost */
                assert(r_charge[ds] == g_charge[ds]);
                assert(!NAMES(0, ds) && !NAMES(1, ds)); /* rule 11 */
                r_sum[s_ten[ds]] = r_sum[s_ten[ds]] + r_charge[ds];
                r_charge[ds] = 0; g_charge[ds] = 0; r_bits[ds] = 0; g_state[ds] = 0; g_hold[ds] = 0; g_ord[ds] = 0
            :: else -> IDLE
            fi
        };
        atomic { c_free[ds] = 1; IDLE }; /* @freed */
L_UNCLAIM:
        atomic { s_claim[ds] = 0; IDLE };

        /* ---- hf_chunk_return ------------------------------------------------------------------------------------------ */
L_RETURN:
        atomic {
            other = c_owner[ds];
            if
            :: other != 0 && !dead[other] -> IDLE
            :: else -> skip
            fi
        };
        atomic {
            fa = st_state[ds];
            if
#ifndef MUTANT_RETURN_HALF
            :: other != 0 && (fa == S_FILLING || fa == S_PENDING) -> IDLE
#endif
            :: else -> skip
            fi;
            if
            :: fa == S_FREE -> skip
            :: else -> goto L_GIVE
            fi
        };
        c_free[ds] = 1;
L_GIVE:
        atomic {
            if
            :: other != 0 && c_owner[ds] == other -> c_owner[ds] = 0 /* @return */
            :: else -> skip
            fi;
            IDLE
        };

#define READY_OK                                        \
        if                                               \
        :: ret == RET_SURVIVOR -> IDLE            \
        :: ret == RET_UNDEAD -> goto L_UNDEAD            \
        :: ret == RET_DETACH -> goto L_DETACH            \
        :: else -> goto L_REAP_READY                     \
        fi
#define DONE                                             \
        if                                               \
        :: ret == RET_DETACH -> goto L_DETACHED          \
        :: else -> IDLE                           \
        fi
#include "commit.pml"
    } unless { dead[me] };
    atomic { clear_daemon(); seen[0] = 0; seen[1] = 0; me++; d_ref = me };
    goto L_BOOT
}
