/* Redis: one Lua script reserves and one settles (redis_reserve.lua, redis_settle.lua), called by their digests over a Unix socket.
 * --address is the socket. The server's database is emptied. */
#include <hiredis/hiredis.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench/peers/peer.h"
#include "bench/peers/peer_file.h"

#define SHA_BYTES 41
#define TEAM      "budget:acme:search:month"
#define TENANT    "budget:acme:month"

struct connection {
    redisContext *redis;
    char reserve_sha[SHA_BYTES];
    char settle_sha[SHA_BYTES];
};

/* The answer of a command, to be freed; NULL after a sentence. */
static redisReply *ask(redisContext *redis, int argc, const char **argv)
{
    redisReply *reply = redisCommandArgv(redis, argc, argv, NULL);
    if (!reply) {
        peer_error("%s was not answered: %s", argv[0], redis->errstr);
    } else if (reply->type == REDIS_REPLY_ERROR) {
        peer_error("%s: %s", argv[0], reply->str);
        freeReplyObject(reply);
        reply = NULL;
    }
    return reply;
}

#define ASK(redis, ...)                                                             \
    ask(redis, (int)(sizeof((const char *[]){__VA_ARGS__}) / sizeof(const char *)), \
        (const char *[]){__VA_ARGS__})

static int load_script(redisContext *redis, const char *name, char *sha)
{
    char *text = peer_file_read(name);
    if (!text) {
        return -1;
    }
    redisReply *reply = ASK(redis, "SCRIPT", "LOAD", text);
    free(text);
    if (!reply) {
        return -1;
    }
    snprintf(sha, SHA_BYTES, "%s", reply->str);
    freeReplyObject(reply);
    return 0;
}

static void redis_close(void *connection)
{
    struct connection *c = connection;
    redisFree(c->redis);
    free(c);
}

static void *redis_open(const struct peer_options *options, void *prepared, unsigned process_idx)
{
    struct connection *c = calloc(1, sizeof(*c));
    (void)prepared;
    (void)process_idx;
    if (!c) {
        return NULL;
    }
    c->redis = redisConnectUnix(options->address);
    if (!c->redis || c->redis->err) {
        peer_error("no Redis at '%s': %s; --address wants its Unix socket", options->address,
                   c->redis ? c->redis->errstr : "no memory");
        redis_close(c);
        return NULL;
    }
    if (load_script(c->redis, "redis_reserve.lua", c->reserve_sha) ||
        load_script(c->redis, "redis_settle.lua", c->settle_sha)) {
        redis_close(c);
        return NULL;
    }
    return c;
}

static int set_budget(redisContext *redis, const char *key, uint64_t limit_micros)
{
    char limit[24];
    snprintf(limit, sizeof(limit), "%" PRIu64, limit_micros);
    redisReply *reply = ASK(redis, "HSET", key, "limit", limit, "used", "0");
    if (!reply) {
        return -1;
    }
    freeReplyObject(reply);
    return 0;
}

static void *redis_prepare(const struct peer_options *options)
{
    static char done;
    struct connection *c = redis_open(options, NULL, 0);
    if (!c) {
        return NULL;
    }
    redisReply *reply = ASK(c->redis, "FLUSHALL");
    int result = !reply || set_budget(c->redis, TEAM, PEER_TEAM_LIMIT) ||
                 set_budget(c->redis, TENANT, PEER_TENANT_LIMIT);
    freeReplyObject(reply);
    redis_close(c);
    return result ? NULL : &done;
}

/* What the script answers, or -1. */
static long long call(struct connection *c, const char *sha, uint64_t id, uint64_t micros)
{
    char record[32];
    char amount[24];
    snprintf(record, sizeof(record), "hold:%" PRIu64, id);
    snprintf(amount, sizeof(amount), "%" PRIu64, micros);
    redisReply *reply = ASK(c->redis, "EVALSHA", sha, "3", TEAM, TENANT, record, amount);
    if (!reply) {
        return -1;
    }
    long long answer = reply->type == REDIS_REPLY_INTEGER ? reply->integer : -1;
    freeReplyObject(reply);
    return answer;
}

static int redis_pairs(void *connection, uint64_t first_id, unsigned cnt)
{
    struct connection *c = connection;
    for (uint64_t id = first_id; id < first_id + cnt; id++) {
        long long reserved = call(c, c->reserve_sha, id, peer_held(id));
        long long settled = reserved == 0 ? call(c, c->settle_sha, id, peer_actual(id)) : -1;
        if (settled != 0) {
            return peer_error("reserve answered %lld, settle %lld", reserved, settled);
        }
    }
    return 0;
}

static int redis_refused(void *connection, uint64_t id)
{
    struct connection *c = connection;
    long long answer = call(c, c->reserve_sha, id, PEER_TOO_MUCH);
    return answer < 0 ? -1 : answer == 2;
}

static int used(redisContext *redis, const char *key, uint64_t *micros)
{
    redisReply *reply = ASK(redis, "HGET", key, "used");
    if (!reply) {
        return -1;
    }
    *micros = reply->str ? strtoull(reply->str, NULL, 10) : UINT64_MAX;
    freeReplyObject(reply);
    return 0;
}

static int redis_totals(void *connection, struct peer_totals *totals)
{
    struct connection *c = connection;
    redisReply *reply = ASK(c->redis, "DBSIZE");
    if (!reply) {
        return -1;
    }
    totals->record_cnt = (uint64_t)reply->integer - 2; /* the budgets */
    freeReplyObject(reply);
    return used(c->redis, TENANT, &totals->tenant_micros) || used(c->redis, TEAM, &totals->team_micros) ? -1
                                                                                                        : 0;
}

int main(int argc, char **argv)
{
    static const struct peer peer = {
        .name = "redis",
        .batch_cnt = 1,
        .prepare = redis_prepare,
        .open = redis_open,
        .pairs = redis_pairs,
        .refused = redis_refused,
        .totals = redis_totals,
        .close = redis_close,
    };
    return peer_main(argc, argv, &peer);
}
