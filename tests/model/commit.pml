/* shm/commit.c and shm/index.c. Included into the body of both proctypes: a call is a jump, READY_OK and DONE are where it goes on by
 * `ret`. Registers are cleared when nothing reads them any more.
 *
 * Registers of W as read: rq, rk, rs, of tenant rt. Of the operation at work (struct hf_op): kind ok, slot os, sequence oq, change
 * ch, tenant of its buckets bt, st before b*, after a*. */

    /* ---- hf_commit_ready ---------------------------------------------------------------------------------- */
            assert(false); /* reached by jumps only */
L_READY:
        atomic { rq = w_seq[rt]; rk = w_kind[rt] };
L_READY_HIGH:
        rs = w_slot[rt];
        atomic {
            if
            :: LOW_IS(rt, rq, rk) -> skip
            :: else -> ROUND; goto L_READY
            fi
        };
        atomic {
            if
            :: applied[rt] >= rq -> READY_OK
            :: else -> skip
            fi;
            /* ---- hf_commit_help, hf_commit_describe ---- */
            ok = rk; os = rs; oq = rq;
            if
            :: ok == K_NONE -> goto L_APPLIED
            :: else -> skip
            fi
        };
        d_step { bq = st_seq[os]; bo = st_ord[os]; bs = st_state[os]; bg = st_gen[os]; appl = (bq == oq);
                 as = bs; ao = bo };
        d_step { if :: !appl -> describe() :: else -> skip fi };
#ifndef MUTANT_NO_RECHECK
        atomic { /* E11 */
            if
            :: LOW_IS(rt, rq, rk) -> skip
            :: else -> clear_op(); ROUND; goto L_READY
            fi
        };
#endif
        atomic {
            if
            :: appl -> goto L_ST
#ifdef MUTANT_NO_RECHECK
            :: else -> if :: right -> goto L_APPLY :: else -> clear_op(); ROUND; goto L_READY fi
#else
            :: else -> assert(right); goto L_APPLY /* @help */ /* else the segment would be called damaged */
#endif
            fi
        };
        /* ---- hf_commit_apply: the words read before (usew), or read now: the tag first -------------------------- */
L_APPLY:
#ifdef MUTANT_A_BEFORE_APPLY
        applied[rt] = (applied[rt] < oq -> oq : applied[rt]);
#endif
#ifdef MUTANT_MARK_BEFORE_APPLY
        dirty[os] = 1;
#endif
        do
        :: atomic { b == 2 -> b = 0; xt = 0; xv = 0; break }
        :: atomic { b < 2 && usew -> xt = (b == 0 -> vt0 : vt1); xv = (b == 0 -> vv0 : vv1) };
            goto L_CAS
        :: atomic { b < 2 && !usew ->
#ifdef MUTANT_APPLY_FROM_SLOT
                describe(); oq = oq;
#endif
#ifdef MUTANT_TORN_TAG_LAST
                xv = b_val[2 * bt + b] };
            xt = b_tag[2 * bt + b];
#else
                xt = b_tag[2 * bt + b] };
            xv = b_val[2 * bt + b];
#endif
L_CAS:
            atomic {
#if defined(MUTANT_APPLY_FROM_SLOT)
                if :: usew -> describe() :: else -> skip fi;
#endif
                if
#ifdef MUTANT_TAG_NEQ
                :: xt != oq && b_tag[2 * bt + b] == xt && b_val[2 * bt + b] == xv ->
#else
                :: xt < oq && b_tag[2 * bt + b] == xt && b_val[2 * bt + b] == xv ->
#endif
                    b_tag[2 * bt + b] = oq;
                    assert(xv + ch >= 0);
                    b_val[2 * bt + b] = xv + ch
                :: else -> skip
                fi;
                b++
            }
        od;
        /* ---- hf_commit_finish ---- */
L_ST:
        atomic {
            if
            :: ST_IS(os, bq, bo, bs, bg) ->
                st_seq[os] = (appl -> bq : oq); st_ord[os] = ao; st_state[os] = as
            :: else -> skip
            fi
        };
#ifndef MUTANT_MARK_BEFORE_APPLY
        dirty[os] = 1;
#endif
L_APPLIED:
        atomic {
            if
            :: applied[rt] >= oq -> goto L_FINISHED
            :: else -> skip
            fi
        };
        d_step {
            assert(oq <= w_seq[rt]);
            assert(oq < w_seq[rt] || (b_val[2 * rt] == g_sum[rt] && b_val[2 * rt + 1] == g_sum[rt]));
            applied[rt] = oq
        };
L_FINISHED:
        atomic {
            if
            :: own -> clear_op(); DONE
            :: else -> clear_op(); READY_OK
            fi
        }
