#ifndef HF_STRESS_ACCOUNT_H
#define HF_STRESS_ACCOUNT_H

#include "persist/store.h"
#include "tests/stress/board.h"

/* Compares the log of this round with the store's receipts of this round. */
void stress_account(struct stress_board *board, struct hf_store *store);

#endif
