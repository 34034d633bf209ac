/* The start: reservation 1 is open in slot 0, of tenant 0; other slots are free. What the workers are asked for is chosen
 * from the sets of the configuration. */
#ifndef OPS1
#define OPS1 O_ALL
#endif
#ifndef OPS2
#define OPS2 O_ALL
#endif
#ifndef OPS3
#define OPS3 OPS2
#endif

inline ask(i, set, first_id)
{
    if
    :: (set & O_RESERVE) -> ask_op[i] = O_RESERVE;
#ifdef FAR /* the other tenant only */
        ask_ten[i] = 1; ask_id[i] = 2
#else
        if :: ask_ten[i] = 0 :: ask_ten[i] = 1 fi;
        if :: ask_id[i] = first_id :: ask_id[i] = first_id + 1 fi
#endif
    :: (set & O_SETTLE) -> ask_op[i] = O_SETTLE; ask_id[i] = 1
    :: (set & O_RELEASE) -> ask_op[i] = O_RELEASE; ask_id[i] = 1
    :: (set & O_EXPIRE) -> ask_op[i] = O_EXPIRE; ask_id[i] = 1
    :: (set & O_EXTEND) -> ask_op[i] = O_EXTEND; ask_id[i] = 1
    fi
}

init
{
    byte i;
    atomic {
        w_seq[0] = SEQ0; w_kind[0] = K_RESERVE; w_slot[0] = 0; applied[0] = SEQ0;
        w_seq[1] = SEQ1; applied[1] = SEQ1;
        b_tag[0] = SEQ0; b_val[0] = 2; b_tag[1] = SEQ0; b_val[1] = 2; g_sum[0] = 2;
        b_tag[2] = SEQ1; b_tag[3] = SEQ1;
        st_seq[0] = SEQ0; st_state[0] = S_HELD; st_gen[0] = 1;
        s_id[0] = 1; s_hold[0] = 2; h_slot = 1; h_gen = 1; h_last = LAST(1); dirty[0] = 1;
        g_state[0] = S_HELD; g_hold[0] = 2; g_charge[0] = 2;
#if NS > 1
        c_free[1] = 1;
#endif
#if NS > 2
        c_free[2] = 1;
#endif
#ifdef START_WRITTEN
        dirty[0] = 0; p_gen[0] = 1; p_bits[0] = P_RESERVATION; r_bits[0] = P_RESERVATION; r_charge[0] = 2;
#endif
#ifdef START_CHAIN /* before it in the chain: reservation 2, of tenant 1, released and written */
        c_free[1] = 0; st_seq[1] = SEQ1; st_state[1] = S_RELEASED; st_gen[1] = 1;
        s_ten[1] = 1; s_id[1] = 2; s_hold[2] = 1; n_slot[1] = 1; n_gen[1] = 1; n_last[1] = LAST(1); h_slot = 2; h_gen = 1; h_last = 0;
        p_gen[1] = 1; p_bits[1] = P_RESERVATION | P_CLOSING; r_bits[1] = P_RESERVATION | P_CLOSING; g_state[1] = S_RELEASED;
#endif
#ifdef START_PAST /* in its place: expired and written; before it in the chain 2 of the same tenant, released after that, and written */
        w_kind[0] = K_NONE; st_seq[0] = SEQ0 - 2; st_state[0] = S_EXPIRED; dirty[0] = 0;
        b_val[0] = 0; b_val[1] = 0; g_sum[0] = 0; g_state[0] = S_EXPIRED; g_charge[0] = 0;
        p_gen[0] = 1; p_bits[0] = P_RESERVATION | P_EXPIRY; r_bits[0] = P_RESERVATION | P_EXPIRY;
        c_free[1] = 0; st_seq[1] = SEQ0 - 1; st_state[1] = S_RELEASED; st_gen[1] = 1;
        s_id[1] = 2; s_hold[2] = 1; n_slot[1] = 1; n_gen[1] = 1; n_last[1] = LAST(1); h_slot = 2; h_gen = 1; h_last = 0;
        p_gen[1] = 1; p_bits[1] = P_RESERVATION | P_CLOSING; r_bits[1] = P_RESERVATION | P_CLOSING; g_state[1] = S_RELEASED;
#endif
#ifdef START_DEAD /* whoever released it was killed just after its CAS of W */
        w_seq[0] = SEQ0 + 1; w_kind[0] = K_RELEASE; g_sum[0] = 0; g_state[0] = S_RELEASED; g_charge[0] = 0;
#endif
        do
        :: i < NOPS -> ask(i, OPS1, 1); i++
        :: i >= NOPS && i < 2 * NOPS && i < NP * NOPS -> ask(i, OPS2, 2); i++
        :: i >= 2 * NOPS && i < NP * NOPS -> ask(i, OPS3, 2); i++
        :: i >= NP * NOPS -> break
        od;
        i = 0;
        run worker(1);
#if NP > 1
        run worker(2);
#endif
#if NP > 2
        run worker(3);
#endif
        run daemon()
    }
}
