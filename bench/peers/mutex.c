/* Plain counters under a robust mutex that processes share: both limits are checked, nothing is recorded. Who dies within leaves
 * the lock to the next one (EOWNERDEAD), which cannot know what was added already, nor what the dead one held. */
#include "bench/peers/peer.h"

#include <errno.h>
#include <pthread.h>
#include <string.h>

/* The lock and what it guards are written together: one line. The limits are only read: the next. */
struct budgets {
    _Alignas(128) pthread_mutex_t lock;
    uint64_t team_micros;
    uint64_t tenant_micros;
    _Alignas(128) uint64_t team_limit_micros;
    uint64_t tenant_limit_micros;
};
_Static_assert(sizeof(pthread_mutex_t) + 2 * sizeof(uint64_t) <= 64, "lock and counters fit one line");

static void *mutex_prepare(const struct peer_options *options)
{
    pthread_mutexattr_t attributes;
    struct budgets *budgets = peer_shared(sizeof(*budgets));
    (void)options;
    if (!budgets) {
        return NULL;
    }
    pthread_mutexattr_init(&attributes);
    pthread_mutexattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED);
    pthread_mutexattr_setrobust(&attributes, PTHREAD_MUTEX_ROBUST);
    int error = pthread_mutex_init(&budgets->lock, &attributes);
    if (error) {
        peer_error("no robust mutex between processes: %s", strerror(error));
        return NULL;
    }
    budgets->team_limit_micros = PEER_TEAM_LIMIT;
    budgets->tenant_limit_micros = PEER_TENANT_LIMIT;
    return budgets;
}

static void *mutex_open(const struct peer_options *options, void *prepared, unsigned process_idx)
{
    (void)options;
    (void)process_idx;
    return prepared;
}

static int lock(struct budgets *budgets)
{
    int error = pthread_mutex_lock(&budgets->lock);
    if (error == EOWNERDEAD) {
        error = pthread_mutex_consistent(&budgets->lock);
    }
    return error ? peer_error("the mutex is lost: %s", strerror(error)) : 0;
}

/* 0 admitted, 1 refused, -1 an error. */
static int reserve(struct budgets *budgets, uint64_t held)
{
    if (lock(budgets)) {
        return -1;
    }
    int refused = held > budgets->team_limit_micros - budgets->team_micros ||
                  held > budgets->tenant_limit_micros - budgets->tenant_micros;
    if (!refused) {
        budgets->team_micros += held;
        budgets->tenant_micros += held;
    }
    pthread_mutex_unlock(&budgets->lock);
    return refused;
}

static int settle(struct budgets *budgets, uint64_t held, uint64_t actual)
{
    if (lock(budgets)) {
        return -1;
    }
    budgets->team_micros += actual - held;
    budgets->tenant_micros += actual - held;
    pthread_mutex_unlock(&budgets->lock);
    return 0;
}

static int mutex_pairs(void *connection, uint64_t first_id, unsigned cnt)
{
    for (uint64_t id = first_id; id < first_id + cnt; id++) {
        if (reserve(connection, peer_held(id))) {
            return peer_error("a reserve was not admitted");
        }
        if (settle(connection, peer_held(id), peer_actual(id))) {
            return -1;
        }
    }
    return 0;
}

static int mutex_refused(void *connection, uint64_t id)
{
    (void)id;
    return reserve(connection, PEER_TOO_MUCH);
}

static int mutex_totals(void *connection, struct peer_totals *totals)
{
    const struct budgets *budgets = connection;
    totals->tenant_micros = budgets->tenant_micros;
    totals->team_micros = budgets->team_micros;
    return 0;
}

static void mutex_close(void *connection)
{
    (void)connection;
}

int main(int argc, char **argv)
{
    static const struct peer peer = {
        .name = "mutex",
        .batch_cnt = 1024,
        .prepare = mutex_prepare,
        .open = mutex_open,
        .pairs = mutex_pairs,
        .refused = mutex_refused,
        .totals = mutex_totals,
        .close = mutex_close,
    };
    return peer_main(argc, argv, &peer);
}
