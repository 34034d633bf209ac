#include "bench/board.h"

#include "shm/atomic.h"
#include "shm/clock.h"

#include <limits.h>
#include <linux/futex.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#define SPINS       2000U
#define SPINS_START 200000U

struct hf_board *hf_board_make(uint32_t workers, uint32_t processors)
{
    struct hf_board *board =
        mmap(NULL, sizeof(*board), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);

    if (board == MAP_FAILED) {
        return NULL;
    }
    board->workers = workers;
    board->crowded = workers > processors;
    return board;
}

void hf_board_free(struct hf_board *board)
{
    if (board != NULL) {
        (void)munmap(board, sizeof(*board));
    }
}

static void meet(struct hf_board *board, uint32_t spins, uint64_t *release_ns)
{
    uint32_t seen = hf_load_acq_u32(&board->generation);

    if (hf_add_acqrel_u32(&board->arrived, 1) + 1U == board->workers) {
        hf_store_rlx_u32(&board->arrived, 0); /* relaxed: the generation below releases it */
        if (release_ns != NULL) {
            *release_ns = hf_clock_mono_ns();
        }
        hf_store_rel_u32(&board->generation, seen + 1U);
        hf_fence_seq(); /* who counts itself as a sleeper after this sees the new generation */
        if (hf_load_acq_u32(&board->sleepers) != 0) {
            (void)syscall(SYS_futex, &board->generation, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
        }
        return;
    }
    for (uint32_t i = 0; i < spins && !board->crowded; i++) {
        if (hf_load_acq_u32(&board->generation) != seen) {
            return;
        }
        hf_pause();
    }
    hf_add_acqrel_u32(&board->sleepers, 1);
    while (hf_load_acq_u32(&board->generation) == seen) {
        (void)syscall(SYS_futex, &board->generation, FUTEX_WAIT, seen, NULL, NULL, 0);
    }
    hf_add_acqrel_u32(&board->sleepers, UINT32_MAX);
}

void hf_board_meet(struct hf_board *board, uint64_t *release_ns)
{
    meet(board, SPINS, release_ns);
}

void hf_board_start(struct hf_board *board, uint64_t *release_ns)
{
    meet(board, SPINS, NULL); /* all awake */
    meet(board, SPINS_START, release_ns);
}

void hf_board_enter(struct hf_board *board)
{
    while (!hf_cas_acqrel_u32(&board->draining, 0, 1)) {
        (void)sched_yield();
    }
}

void hf_board_leave(struct hf_board *board)
{
    hf_store_rel_u32(&board->draining, 0);
}
