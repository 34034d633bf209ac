/* shm/index.c: one chain; included into the body of the worker. A walk looks for id `fid`; an inserter has its own slot in `ixown` (slot + 1), a finder 0. */

/* hf_index_find, hf_index_insert. Ends in WALK_ABSENT, WALK_FOUND (slot fs, st f*) or WALK_INSERTED. */
        assert(false); /* reached by jumps only */
L_WALK:
        atomic {
            lk_s = h_slot; lk_g = h_gen; lk_l = h_last; hd_s = h_slot; hd_g = h_gen; hd_l = h_last; hd_c = h_cnt
        };
L_STEP:
        atomic {
            if
            :: (lk_s == 0 || EXCLUDES(lk_l, fid)) && ixown == 0 -> lost_check(); clear_walk(); WALK_ABSENT
            :: lk_s == 0 && ixown != 0 -> goto L_LINK
            :: lk_s != 0 && EXCLUDES(lk_l, fid) && ixown != 0 -> same = 0; goto L_LINK /* @excluded */
            :: else -> nx_s = n_slot[lk_s - 1]; nx_g = n_gen[lk_s - 1]; nx_l = n_last[lk_s - 1];
                same = (s_id[lk_s - 1] == fid) /* next and id, E4: both before the generation */
            fi
        };
        atomic { /* read_st, with the generation of the link */
            if
#ifndef MUTANT_LINK_NO_GENERATION
            :: st_gen[lk_s - 1] != lk_g -> ROUND; nx_s = 0; nx_g = 0; nx_l = 0; same = 0; goto L_WALK
#endif
#ifdef MUTANT_INSERT_NO_SCAN
            :: st_gen[lk_s - 1] == lk_g && same && KNOWN(st_state[lk_s - 1]) && ixown == 0 ->
#elif defined(MUTANT_LINK_NO_GENERATION)
            :: same && KNOWN(st_state[lk_s - 1]) ->
#else
            :: st_gen[lk_s - 1] == lk_g && same && KNOWN(st_state[lk_s - 1]) ->
#endif
                fs = lk_s - 1; fq = st_seq[fs]; fo = st_ord[fs]; fa = st_state[fs]; fg = st_gen[fs];
                clear_walk();
                WALK_FOUND
            :: else -> lk_s = nx_s; lk_g = nx_g; lk_l = nx_l; nx_s = 0; nx_g = 0; nx_l = 0; same = 0; goto L_STEP
            fi
        };
L_LINK: /* the end of an insertion that found nobody */
        atomic { n_slot[ixown - 1] = hd_s; n_gen[ixown - 1] = hd_g; n_last[ixown - 1] = hd_l };
        atomic {
            if
#ifdef MUTANT_INSERT_STORE
            :: true ->
#else
            :: HEAD_IS(hd_s, hd_g, hd_l, hd_c) ->
#endif
                twin_check(ixown - 1);
                h_slot = ixown; h_gen = st_gen[ixown - 1]; h_cnt++;
#ifdef MUTANT_LAST_OVER_CHAIN
                h_last = LAST(fid);
#else
                h_last = (hd_s == 0 -> LAST(fid) : 0);
                last_check();
#endif
                clear_walk();
                WALK_INSERTED
            :: else -> ROUND; goto L_WALK
            fi
        }
