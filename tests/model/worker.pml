/* A worker: core/admit.c, core/slot.c, core/replay.c, core/close.c, core/settle.c, core/extend.c, core/reap.c and the taking of
 * slots of shm/chunk.c. Calls into commit.pml and index.pml are jumps; `ret` says where it goes on. */

/* Places to go on after hf_commit_ready. */
#define RET_VIEW   1 /* reserve: view of its buckets */
#define RET_AGAIN  2 /* reserve: hf_slot_look_again of the id that was found */
#define RET_BURY   3 /* reserve: hf_slot_bury */
#define RET_PENDING 4 /* closing: hf_slot_look_again */
#define RET_CLOSE  5 /* closing: hf_close_ready, extend: hf_view_read */

inline clear_found() { d_step { fs = 0; fq = 0; fo = 0; fa = 0; fg = 0 } }
inline clear_view() { d_step { vq = 0; vk = 0; vs = 0; vt0 = 0; vv0 = 0; vt1 = 0; vv1 = 0 } }

#define MAY(op, a)  ((a) == S_HELD || (op == O_SETTLE && (a) == S_EXPIRED))
#define TAKEABLE(c) (c_free[c] && c_owner[c] == 0)

/* A call begins with its first access. */
#define READY(t, place) rt = t; ret = place; rq = w_seq[rt]; rk = w_kind[rt]; goto L_READY_HIGH
#define WALK(own_slot)                                                                           \
        fid = id; ixown = own_slot; lk_s = h_slot; lk_g = h_gen; lk_l = h_last;                    \
        hd_s = h_slot; hd_g = h_gen; hd_l = h_last; hd_c = h_cnt;                                  \
        goto L_STEP

proctype worker(byte me)
{
    byte op, id, ten, turn, rounds;
    byte rt, rq, rk, rs, ret;
    byte ok, os, oq, bt, b, xt, xv, bq, bo, bs, bg, as, ao;
    short ch;
    bit own, usew, appl, right;
    byte vq, vk, vs, vt0, vv0, vt1, vv1; /* struct hf_view: W and the buckets */
    byte slot = NOBODY, cur = NOBODY;    /* the slot being made; the chunk held */
    bit linked, claimed, kept, linking;
    byte other, h0;
    byte lk_s, lk_g, lk_l, hd_s, hd_g, hd_l, hd_c, nx_s, nx_g, nx_l, fid, ixown;
    bit same;
    byte fs, fq, fo, fa, fg; /* struct hf_found */

    {
        skip;
L_CALL:
        atomic {
            if
            :: turn == NOPS -> goto L_LEAVE
            :: else -> op = ask_op[(me - 1) * NOPS + turn]; id = ask_id[(me - 1) * NOPS + turn];
                ten = ask_ten[(me - 1) * NOPS + turn]; turn++; rounds = 0
            fi;
            if
            :: op == O_RESERVE -> READY(ten, RET_VIEW)
            :: else -> WALK(0)
            fi
        };

        /* ---- reserve: a round of hf_admit_rounds --------------------------------------------------------------- */
R_VIEW:
        atomic { clear_view(); READY(ten, RET_VIEW) };
R_VIEW_READ:
        vt0 = b_tag[2 * ten];
        vv0 = b_val[2 * ten];
        vt1 = b_tag[2 * ten + 1];
        atomic {
            vv1 = b_val[2 * ten + 1];
            if
            :: vv0 + AMOUNT(me) <= LIMIT && vv1 + AMOUNT(me) <= LIMIT && slot == NOBODY -> goto R_TAKE
            :: vv0 + AMOUNT(me) <= LIMIT && vv1 + AMOUNT(me) <= LIMIT && slot != NOBODY -> goto R_FILL
            :: else -> skip
            fi;
            /* over: hf_admit_refuse_round */
            if
            :: linked -> goto R_UNCHANGED
            :: else -> linking = 0; WALK(0)
            fi
        };
R_UNCHANGED:
        atomic {
            if
            :: LOW_IS(ten, vq, vk) -> assert(g_sum[ten] + AMOUNT(me) > LIMIT); goto R_DROP /* @refused */
            :: else -> ROUND; goto R_VIEW
            fi
        };

        /* hf_chunk_take: what came back into the chunk held, else another chunk. */
R_TAKE:
        atomic {
            if
            :: cur == NOBODY -> goto R_TAKE_OTHER
            :: cur != NOBODY && kept -> kept = 0; goto R_TAKE_CHECK
            :: else -> skip
            fi
        };
        atomic {
            if
            :: c_free[cur] -> c_free[cur] = 0; goto R_TAKE_CHECK
            :: else -> skip
            fi
        };
R_PUT_BACK:
        atomic { c_owner[cur] = 0; cur = NOBODY };
R_TAKE_OTHER:
        atomic { /* the hints and the CAS of the owner */
            if
            :: TAKEABLE(0) -> cur = 0
#if NS > 1
            :: TAKEABLE(1) -> cur = 1
#endif
#if NS > 2
            :: TAKEABLE(2) -> cur = 2
#endif
            :: else -> goto R_DROP /* none: busy */
            fi;
#ifndef MUTANT_NO_CHUNK_CLAIM
            c_owner[cur] = me
#endif
        };
        atomic {
            if
            :: c_free[cur] -> c_free[cur] = 0
            :: else -> ROUND; goto R_PUT_BACK
            fi
        };
R_TAKE_CHECK:
        atomic {
            if
            :: st_state[cur] == S_FREE -> slot = cur
            :: else -> ROUND; goto R_PUT_BACK
            fi
        };
        /* hf_slot_begin: low half, then the high one. */
        d_step {
            assert(!NAMES(0, slot) && !NAMES(1, slot)); /* rule 3 */
            assert(c_owner[slot] == me);
            assert(st_state[slot] == S_FREE);
            st_state[slot] = S_FILLING; st_seq[slot] = 0; st_ord[slot] = 0;
            g_state[slot] = 0; g_hold[slot] = 0; g_ord[slot] = 0; g_charge[slot] = 0; r_bits[slot] = 0; r_charge[slot] = 0
        };
#ifndef MUTANT_NO_GENERATION
        st_gen[slot] = st_gen[slot] + 1;
#endif
        d_step { s_owner[slot] = me; n_slot[slot] = 0; n_gen[slot] = 0; n_last[slot] = 0 };
        d_step { s_ten[slot] = ten; s_id[slot] = id };
R_FILL: /* hf_slot_fill_round */
        atomic {
            s_hold[2 * slot] = AMOUNT(me);
            if
            :: linked -> goto R_COMMIT
            :: else -> skip
            fi
        };
        st_state[slot] = S_PENDING;
R_LINK:
        atomic { linking = 1; WALK(slot + 1) };

R_COMMIT: /* hf_admit_op: nothing is read back */
        atomic {
            ok = K_RESERVE; os = slot; oq = vq + 1; ch = AMOUNT(me); bt = ten; usew = 1;
            bs = S_PENDING; bg = st_gen[slot]; as = S_HELD; rt = ten;
            goto L_RUN
        };

        /* hf_replay_found, and what comes before it */
R_FOUND_PENDING:
        atomic { rt = s_ten[fs]; ret = RET_AGAIN; goto L_READY };
R_FOUND_AGAIN:
        atomic {
            fq = st_seq[fs]; fo = st_ord[fs]; fa = st_state[fs];
            if
            :: st_gen[fs] != fg || fa == S_FREE || fa == S_FILLING || fa == S_ABANDONED ->
                clear_found(); ROUND;
                if :: linking -> goto R_LINK :: else -> goto R_UNCHANGED fi
            :: else -> skip
            fi;
            if
            :: fa != S_PENDING -> clear_found(); goto R_DROP
            :: else -> other = s_owner[fs]
            fi
        };
        atomic { /* hf_slot_bury */
            if
#ifndef MUTANT_BURY_LIVE
            :: !dead[other] -> other = 0; clear_found(); goto R_DROP /* busy */
#endif
            :: else -> other = 0; rt = s_ten[fs]; ret = RET_BURY
            fi;
#ifdef MUTANT_BURY_UNREADY
            goto R_BURY
#else
            goto L_READY
#endif
        };
R_BURY:
        atomic {
            fq = st_seq[fs]; fo = st_ord[fs]; fa = st_state[fs];
            if
            :: fa == S_PENDING && st_gen[fs] == fg -> skip
            :: else -> ROUND; clear_found(); if :: linking -> goto R_LINK :: else -> goto R_UNCHANGED fi
            fi
        };
        d_step {
            if
            :: ST_IS(fs, fq, fo, fa, fg) -> st_state[fs] = S_ABANDONED; st_seq[fs] = 0; st_ord[fs] = 0
            :: else -> skip
            fi
        };
        atomic {
            dirty[fs] = 1; clear_found(); ROUND; /* @bury */
            if :: linking -> goto R_LINK :: else -> goto R_UNCHANGED fi
        };

R_DROP: /* hf_admit_drop_slot: abandoned when it is in the index, else given back */
        atomic {
            if
            :: slot == NOBODY -> clear_view(); goto L_CALL
            :: slot != NOBODY && linked -> goto R_ABANDON
            :: else -> st_state[slot] = S_FREE
            fi
        };
        atomic {
            if
            :: slot == cur -> kept = 1
            :: else -> c_free[slot] = 1
            fi;
            slot = NOBODY; clear_view(); goto L_CALL
        };
R_ABANDON:
        read_st(slot, bq, bo, bs, bg);
        d_step {
            if
            :: bs == S_PENDING && ST_IS(slot, bq, bo, bs, bg) -> st_state[slot] = S_ABANDONED
            :: else -> skip
            fi
        };
        atomic { dirty[slot] = 1; slot = NOBODY; linked = 0; clear_op(); clear_view(); goto L_CALL }; /* @abandon */

        /* ---- closings, extend and reap ------------------------------------------------------------------------- */
C_FIND:
        atomic { clear_view(); WALK(0) };
C_FOUND_PENDING:
        atomic { rt = s_ten[fs]; ret = RET_PENDING; goto L_READY };
C_PENDING:
        atomic {
            fq = st_seq[fs]; fo = st_ord[fs]; fa = st_state[fs];
            if
            :: st_gen[fs] != fg || fa < S_HELD -> clear_found(); goto L_CALL /* unknown */
            :: else -> skip
            fi
        };
C_LOOK:
        atomic {
            if
            :: !MAY(op, fa) -> clear_found(); goto L_CALL /* already closed */
            :: MAY(op, fa) && (op == O_RELEASE || op == O_EXPIRE) -> goto C_READY
            :: else -> skip
            fi
        };
        /* hf_slot_claim */
#ifndef MUTANT_NO_CLAIM
        atomic {
            if
            :: s_claim[fs] == 0 -> s_claim[fs] = me; claimed = 1; goto C_READY
            :: else -> skip
            fi
        };
        other = s_claim[fs];
        atomic {
            if
            :: other != 0 && !dead[other] -> other = 0; clear_found(); goto L_CALL /* busy */
            :: else -> skip
            fi
        };
        atomic {
            if
            :: s_claim[fs] == other -> s_claim[fs] = me; claimed = 1; other = 0 /* @takeover */
            :: else -> other = 0; clear_found(); goto L_CALL
            fi
        };
#endif
C_READY:
        atomic { rt = s_ten[fs]; ret = RET_CLOSE; goto L_READY };
C_VIEW:
        vt0 = b_tag[2 * ten];
        vv0 = b_val[2 * ten];
        vt1 = b_tag[2 * ten + 1];
        vv1 = b_val[2 * ten + 1];
C_STATE_READ:
        atomic {
            if
            :: op == O_EXPIRE && ST_IS(fs, fq, fo, fa, fg) -> goto C_DESCRIBE
            :: op == O_EXPIRE && !ST_IS(fs, fq, fo, fa, fg) -> ROUND; goto C_OVER
            :: else -> skip
            fi;
            if
            :: st_gen[fs] != fg || !MAY(op, st_state[fs]) -> ROUND; goto C_OVER
            :: else -> fq = st_seq[fs]; fo = st_ord[fs]; fa = st_state[fs]
            fi;
            if
            :: op == O_RELEASE -> goto C_DESCRIBE
            :: else -> skip
            fi
        };
        /* What the closing is, or the spare set, written under the claim before W. */
        atomic {
            if
            :: op == O_SETTLE -> s_act[fs] = ACTUAL(me); goto C_DESCRIBE
            :: else -> h0 = s_hold[2 * fs + (fo & 1)]
            fi;
            if
            :: vv0 + EXTENDED(me) - h0 <= LIMIT && vv1 + EXTENDED(me) - h0 <= LIMIT -> goto C_SPARE
            :: else -> skip
            fi
        };
        atomic { /* hf_extend_refuse_bucket */
            if
            :: LOW_IS(ten, vq, vk) ->
                assert(g_sum[ten] + EXTENDED(me) - h0 > LIMIT); h0 = 0; goto C_UNCLAIM
            :: else -> h0 = 0; ROUND; goto C_READY
            fi
        };
C_SPARE:
#ifdef MUTANT_EXTEND_IN_PLACE
        atomic { s_hold[2 * fs + (fo & 1)] = EXTENDED(me); s_hold[2 * fs + ((fo + 1) & 1)] = EXTENDED(me); h0 = 0 };
#else
        atomic { s_hold[2 * fs + ((fo + 1) & 1)] = EXTENDED(me); h0 = 0 };
#endif
C_DESCRIBE:
        atomic { /* hf_close_describe */
            os = fs; oq = vq + 1;
            bq = st_seq[os]; bo = st_ord[os]; bs = st_state[os]; bg = st_gen[os];
            if
            :: op == O_SETTLE && fa == S_HELD -> ok = K_SETTLE /* @settle */
            :: op == O_SETTLE && fa != S_HELD -> ok = K_LATE /* @late */
            :: op == O_RELEASE -> ok = K_RELEASE /* @release */
            :: op == O_EXPIRE -> ok = K_EXPIRE /* @expire */
            :: op == O_EXTEND -> ok = K_EXTEND /* @extend */
            fi
        };
        atomic {
            describe();
            if
            :: right && bq == fq && bo == fo && bs == fa && bg == fg -> skip
            :: else -> ROUND; goto C_OVER
            fi;
            right = 0; rt = ten;
            if
            :: op == O_SETTLE -> usew = 1 /* hf_settle_foretell reads the buckets */
            :: else -> vt0 = 0; vv0 = 0; vt1 = 0; vv1 = 0; goto L_RUN
            fi
        };
        vt0 = b_tag[2 * ten];
        vv0 = b_val[2 * ten];
        vt1 = b_tag[2 * ten + 1];
        atomic { vv1 = b_val[2 * ten + 1]; goto L_RUN };

C_OVER: /* again: with the claim kept while the state still allows it */
        atomic {
            clear_op();
            vt0 = 0; vv0 = 0; vt1 = 0; vv1 = 0;
            if
            :: !claimed && (op == O_RELEASE || op == O_EXPIRE) -> clear_found(); goto C_FIND
            :: else -> skip
            fi;
            if
            :: st_gen[fs] != fg || !MAY(op, st_state[fs]) -> skip
            :: else -> goto C_READY
            fi
        };
C_AWAY: /* closed by another in between, or not this reservation any more */
#ifndef MUTANT_NO_CLAIM
        s_claim[fs] = 0;
#endif
        atomic { claimed = 0; clear_found(); if :: op == O_EXTEND -> clear_view(); goto L_CALL :: else -> goto C_FIND fi };
C_UNCLAIM:
        atomic { s_claim[fs] = 0; claimed = 0; clear_found(); clear_view(); goto L_CALL };

        /* ---- hf_commit_run: the CAS of W ------------------------------------------------------------------------ */
L_RUN:
        atomic {
            if
            :: WORD_IS(rt, vq, vk, vs) ->
                w_seq[rt] = oq; w_kind[rt] = ok; w_slot[rt] = os;
                ghost(rt, ok, os, me, ch);
                own = 1; appl = 0;
                goto L_APPLY
            :: else -> skip
            fi;
            if
            :: op == O_RESERVE -> clear_op(); ROUND; goto R_VIEW /* @lost-reserve */
            :: else -> ROUND; goto C_OVER
            fi
        };

#define READY_OK                                                                                \
        if                                                                                       \
        :: ret == RET_VIEW || ret == RET_CLOSE -> vq = rq; vk = rk; vs = rs                      \
        :: else -> skip                                                                          \
        fi;                                                                                      \
        rq = 0; rk = 0; rs = 0;                                                                  \
        if                                                                                       \
        :: ret == RET_VIEW -> ret = 0; goto R_VIEW_READ                                          \
        :: ret == RET_AGAIN -> ret = 0; goto R_FOUND_AGAIN                                       \
        :: ret == RET_BURY -> ret = 0; goto R_BURY                                               \
        :: ret == RET_PENDING -> ret = 0; goto C_PENDING                                         \
        :: ret == RET_CLOSE -> ret = 0; ten = rt; if :: op == O_EXTEND -> goto C_VIEW :: else -> goto C_STATE_READ fi \
        fi
/* It has happened, and is applied. */
#define DONE                                                                                     \
        rt = 0; rq = 0; rk = 0; rs = 0; clear_view();                                            \
        if                                                                                       \
        :: op == O_RESERVE -> slot = NOBODY; linked = 0; goto L_CALL                             \
        :: op != O_RESERVE && !claimed -> clear_found(); goto L_CALL                             \
        :: else -> goto C_UNCLAIM                                                                \
        fi
#include "commit.pml"
#undef READY_OK
#undef DONE

#define WALK_ABSENT                                                                              \
        if                                                                                       \
        :: op == O_RESERVE -> goto R_UNCHANGED                                                   \
        :: else -> goto L_CALL /* unknown */                                                     \
        fi
#define WALK_FOUND                                                                               \
        if                                                                                       \
        :: op == O_RESERVE && fa == S_PENDING -> goto R_FOUND_PENDING                            \
        :: op == O_RESERVE && fa != S_PENDING -> clear_found(); goto R_DROP /* replayed, or a conflict */ \
        :: op != O_RESERVE && fa == S_PENDING -> goto C_FOUND_PENDING                            \
        :: else -> goto C_LOOK                                                                   \
        fi
#define WALK_INSERTED linked = 1; goto R_COMMIT
#include "index.pml"

L_LEAVE: /* hf_chunk_leave */
        atomic {
            if
            :: cur != NOBODY && kept -> c_free[cur] = 1; kept = 0
            :: else -> skip
            fi
        };
        atomic {
            if
            :: cur != NOBODY -> c_owner[cur] = 0; cur = NOBODY
            :: else -> skip
            fi;
            fin[me] = 1
        }
    } unless { dead[me] };
    atomic {
        clear_op(); clear_walk(); clear_found(); clear_view();
        d_step {
        rt = 0; rq = 0; rk = 0; rs = 0; ret = 0; slot = 0; cur = 0; linked = 0; claimed = 0; kept = 0; linking = 0;
        other = 0; h0 = 0; op = 0; id = 0; ten = 0; turn = 0; rounds = 0
        }
    }
}
