/* The floor: two words, `lock xadd` on both at reserve and at settle. No check, no record of who holds what, no recovery. */
#include "bench/peers/peer.h"

struct words {
    _Alignas(128) uint64_t tenant_micros;
    _Alignas(128) uint64_t team_micros;
};

static void *xadd_prepare(const struct peer_options *options)
{
    (void)options;
    return peer_shared(sizeof(struct words));
}

static void *xadd_open(const struct peer_options *options, void *prepared, unsigned process_idx)
{
    (void)options;
    (void)process_idx;
    return prepared;
}

/* The result is used, else the compiler may take an addition that returns nothing. */
static uint64_t add(uint64_t *word, uint64_t micros)
{
    uint64_t before = __atomic_fetch_add(word, micros, __ATOMIC_SEQ_CST);
    __asm__ volatile("" : : "r"(before));
    return before;
}

static int xadd_pairs(void *connection, uint64_t first_id, unsigned cnt)
{
    struct words *words = connection;
    for (uint64_t id = first_id; id < first_id + cnt; id++) {
        uint64_t held = peer_held(id);
        add(&words->team_micros, held);
        add(&words->tenant_micros, held);
        uint64_t difference = peer_actual(id) - held;
        add(&words->team_micros, difference);
        add(&words->tenant_micros, difference);
    }
    return 0;
}

static int xadd_totals(void *connection, struct peer_totals *totals)
{
    const struct words *words = connection;
    totals->tenant_micros = words->tenant_micros;
    totals->team_micros = words->team_micros;
    return 0;
}

static void xadd_close(void *connection)
{
    (void)connection;
}

int main(int argc, char **argv)
{
    static const struct peer peer = {
        .name = "xadd",
        .batch_cnt = 1024,
        .prepare = xadd_prepare,
        .open = xadd_open,
        .pairs = xadd_pairs,
        .totals = xadd_totals,
        .close = xadd_close,
    };
    return peer_main(argc, argv, &peer);
}
