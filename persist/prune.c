/* Retention: what goes, step by step, a transaction each. */
#include "persist/prune.h"

#include "core/window.h"
#include "persist/prune_impl.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

struct partition {
    char name[80];
    int64_t first;
    int64_t next;
};

struct pruning {
    struct hf_store *store;
    const struct hf_prune_options *options;
    struct hf_store_error *error;
    uint64_t now_ms;
    struct hf_prune_segment *segments;
    size_t segments_cnt;
    struct partition *partitions;
    size_t partitions_cnt;
};

/* ---- segments and partitions -------------------------------------------------------------------------------------- */

static enum hf_store_status no_memory(struct pruning *p)
{
    return hf_store_fail(p->error, HF_STORE_NOMEM, "no memory to prune a store");
}

static enum hf_store_status add_segment(void *ctx, const struct hf_column *columns, unsigned cnt)
{
    struct pruning *p = ctx;
    struct hf_prune_segment *segments = realloc(p->segments, (p->segments_cnt + 1) * sizeof(*segments));

    (void)cnt;
    if (segments == NULL) {
        return no_memory(p);
    }
    p->segments = segments;
    memset(&segments[p->segments_cnt], 0, sizeof(*segments));
    segments[p->segments_cnt].segment_id = columns[0].integer;
    segments[p->segments_cnt].name = strdup(columns[1].bytes == NULL ? "" : columns[1].bytes);
    return segments[p->segments_cnt++].name == NULL ? no_memory(p) : HF_STORE_OK;
}

static enum hf_store_status add_partition(void *ctx, const struct hf_column *columns, unsigned cnt)
{
    struct pruning *p = ctx;
    struct partition *partitions = realloc(p->partitions, (p->partitions_cnt + 1) * sizeof(*partitions));
    struct partition *added;

    (void)cnt;
    if (partitions == NULL) {
        return no_memory(p);
    }
    p->partitions = partitions;
    added = &partitions[p->partitions_cnt++];
    (void)snprintf(added->name, sizeof(added->name), "%s", columns[0].bytes == NULL ? "" : columns[0].bytes);
    added->first = columns[1].integer;
    added->next = columns[2].integer;
    return HF_STORE_OK;
}

/* How far each segment has come, as the present transaction sees it. */
static enum hf_store_status look_again(struct pruning *p)
{
    enum hf_store_status status = HF_STORE_OK;

    for (size_t i = 0; i < p->segments_cnt && status == HF_STORE_OK; i++) {
        struct hf_prune_segment *s = &p->segments[i];
        struct hf_store_head head = {.next_seq = 1};

        status = hf_store_chain(p->store, s->segment_id, &head, p->error);
        s->chain_next = hf_store_signed(head.next_seq);
        if (status == HF_STORE_OK) {
            status = hf_prune_newest(p->store, s->segment_id, &s->last, p->error);
        }
    }
    return status;
}

static enum hf_store_status load(struct pruning *p)
{
    enum hf_store_status status =
        p->store->ops->query(p->store, "SELECT segment_id, name FROM segment ORDER BY segment_id", NULL, 0,
                             add_segment, p, p->error);

    if (status == HF_STORE_OK && p->store->ops->partitions != NULL) {
        status =
            p->store->ops->query(p->store, p->store->ops->partitions, NULL, 0, add_partition, p, p->error);
    }
    if (status == HF_STORE_OK) {
        status = look_again(p);
    }
    for (size_t i = 0; i < p->segments_cnt && status == HF_STORE_OK; i++) {
        status = hf_prune_limit(p->store, &p->segments[i], p->now_ms, p->options->before_ms, p->error);
    }
    return status;
}

/* ---- a transaction ------------------------------------------------------------------------------------------------ */

/* A dry run is one snapshot, which load began. */
static enum hf_store_status begin_step(struct pruning *p)
{
    enum hf_store_status status = HF_STORE_OK;

    if (p->options->dry_run) {
        return HF_STORE_OK;
    }
    status = p->store->ops->begin(p->store, p->error);
    if (status == HF_STORE_OK) {
        status = p->store->ops->retention(p->store, p->error);
    }
    return status == HF_STORE_OK ? look_again(p) : status;
}

/* Nothing was done, or all of it: goes. Tells of it. */
static enum hf_store_status end_step(struct pruning *p, struct hf_prune_step *step,
                                     enum hf_store_status status)
{
    if (!p->options->dry_run) {
        if (status == HF_STORE_OK && step->goes) {
            status = p->store->ops->commit(p->store, p->error);
        }
        if (status != HF_STORE_OK || !step->goes) {
            p->store->ops->rollback(p->store);
        }
    }
    if (status == HF_STORE_OK && (step->goes || step->text != NULL)) {
        p->options->step(p->options->ctx, step);
    }
    return status;
}

/* ---- SQLite: the oldest receipts of one segment -------------------------------------------------------------------- */

static enum hf_store_status find_slice(struct pruning *p, struct hf_prune_segment *s, int64_t limit)
{
    int64_t rows = p->options->step_rows == 0 ? HF_PRUNE_STEP_ROWS : (int64_t)p->options->step_rows;
    int64_t until = s->last.next_seq + rows;
    enum hf_store_status status = hf_prune_end(p->store, s, until < limit ? until : limit, p->error);

    if (status == HF_STORE_OK && s->next_seq == s->last.next_seq) { /* a batch that is larger? */
        until = s->last.next_seq + HF_STORE_ROWS_MAX;
        status = hf_prune_end(p->store, s, until < limit ? until : limit, p->error);
    }
    return status;
}

static enum hf_store_status prune_slice(struct pruning *p, struct hf_prune_segment *s,
                                        struct hf_prune_step *step)
{
    enum hf_store_status status = begin_step(p);
    bool all = s->limit_seq >= s->chain_next;

    *step = (struct hf_prune_step){.name = s->name, .first_seq = (uint64_t)s->last.next_seq};
    if (status == HF_STORE_OK) {
        status = find_slice(p, s, all ? s->chain_next : s->limit_seq);
    }
    step->goes = status == HF_STORE_OK && s->next_seq > s->last.next_seq;
    step->next_seq = (uint64_t)(step->goes ? s->next_seq : s->chain_next);
    step->text = step->goes || all ? NULL : s->limit_text;
    if (step->goes) {
        const struct hf_prune_part part = {.store = p->store,
                                           .options = p->options,
                                           .now_ms = p->now_ms,
                                           .from = s->last.next_seq,
                                           .until = s->next_seq};

        status = hf_prune_take_part(&part, s, step, p->error);
        if (status == HF_STORE_OK && !p->options->dry_run) {
            status = p->store->ops->take_away(p->store, NULL, s->segment_id, s->next_seq, p->error);
        }
    }
    return end_step(p, step, status);
}

static enum hf_store_status prune_slices(struct pruning *p, struct hf_prune_segment *s)
{
    const struct timespec pause = {.tv_nsec = HF_PRUNE_PAUSE_MS * 1000000L};
    struct hf_prune_step step = {.goes = true};
    enum hf_store_status status = HF_STORE_OK;

    for (bool first = true; status == HF_STORE_OK && step.goes; first = false) {
        if (!first && !p->options->dry_run) {
            (void)nanosleep(&pause, NULL); /* who waits for the store must get it at once */
        }
        status = prune_slice(p, s, &step);
    }
    return status;
}

/* ---- PostgreSQL: one partition ------------------------------------------------------------------------------------- */

/* True: nobody writes under this name, and what was seen of its chain is all of it. */
static enum hf_store_status is_idle(struct pruning *p, const struct hf_prune_segment *s, bool *idle)
{
    struct hf_store_head head = {.next_seq = 0};
    enum hf_store_status status = p->store->ops->idle(p->store, s->name, idle, p->error);

    if (status == HF_STORE_OK) {
        status = hf_store_chain(p->store, s->segment_id, &head, p->error);
    }
    *idle = *idle && hf_store_signed(head.next_seq) == s->chain_next;
    return status;
}

/* Who takes part in a partition, and what stands in the way: text stays empty when nothing does. */
static enum hf_store_status plan(struct pruning *p, const struct partition *part, bool *any,
                                 char text[HF_PRUNE_TEXT_BYTES])
{
    enum hf_store_status status = HF_STORE_OK;

    *any = false;
    for (size_t i = 0; i < p->segments_cnt && status == HF_STORE_OK && text[0] == '\0'; i++) {
        struct hf_prune_segment *s = &p->segments[i];
        int64_t until = part->next < s->chain_next ? part->next : s->chain_next;
        bool idle = true;

        s->takes_part = s->last.next_seq < part->next && s->chain_next > part->first;
        *any = *any || s->takes_part;
        if (s->takes_part && s->limit_seq < until) {
            (void)snprintf(text, HF_PRUNE_TEXT_BYTES, "%s", s->limit_text);
        } else if (s->chain_next < part->next) {
            /* It goes on in this partition, which would have to be made again: not while a daemon counts on it. */
            status = is_idle(p, s, &idle);
            if (status == HF_STORE_OK && !idle) {
                (void)snprintf(text, HF_PRUNE_TEXT_BYTES, "a daemon goes on writing receipts of '%s' into it",
                               s->name);
            }
        }
        if (status == HF_STORE_OK && s->takes_part) {
            status = hf_prune_end(p->store, s, until, p->error);
        }
    }
    return status;
}

/* Who came after the segments were listed may have receipts in it: seen for sure now that nobody else gets at the partition. */
static enum hf_store_status look_for_newcomers(struct pruning *p)
{
    int64_t cnt = 0;
    enum hf_store_status status = p->store->ops->query(p->store, "SELECT count(*) FROM segment", NULL, 0,
                                                       hf_store_one_integer, &cnt, p->error);

    return status == HF_STORE_OK && cnt != (int64_t)p->segments_cnt
               ? hf_store_fail(p->error, HF_STORE_RETRY, "a new segment came to %s meanwhile",
                               p->store->display)
               : status;
}

static enum hf_store_status drop(struct pruning *p, const struct partition *partition,
                                 struct hf_prune_step *step)
{
    const struct hf_prune_part part = {.store = p->store,
                                       .options = p->options,
                                       .now_ms = p->now_ms,
                                       .from = partition->first,
                                       .until = partition->next};
    enum hf_store_status status = HF_STORE_OK;

    for (size_t i = 0; i < p->segments_cnt && status == HF_STORE_OK; i++) {
        if (p->segments[i].takes_part) {
            status = hf_prune_take_part(&part, &p->segments[i], step, p->error);
        }
    }
    if (status != HF_STORE_OK || p->options->dry_run) {
        return status;
    }
    status = p->store->ops->take_away(p->store, partition->name, 0, 0, p->error);
    return status == HF_STORE_OK ? look_for_newcomers(p) : status;
}

/* *goes_on: the next one may be looked at. */
static enum hf_store_status prune_partition(struct pruning *p, const struct partition *partition,
                                            bool *goes_on)
{
    struct hf_prune_step step = {.name = partition->name,
                                 .first_seq = (uint64_t)partition->first,
                                 .next_seq = (uint64_t)partition->next};
    char text[HF_PRUNE_TEXT_BYTES] = "";
    bool any = false;
    enum hf_store_status status = begin_step(p);

    if (status == HF_STORE_OK) {
        status = plan(p, partition, &any, text);
    }
    *goes_on = status == HF_STORE_OK && text[0] == '\0';
    step.goes = *goes_on && any;
    step.text = text[0] == '\0' ? NULL : text;
    if (step.goes) {
        status = drop(p, partition, &step);
    }
    return end_step(p, &step, status);
}

/* ---- all of it ----------------------------------------------------------------------------------------------------- */

static enum hf_store_status prune_all(struct pruning *p)
{
    enum hf_store_status status = HF_STORE_OK;
    bool goes_on = true;

    for (size_t i = 0; i < p->partitions_cnt && status == HF_STORE_OK && goes_on; i++) {
        status = prune_partition(p, &p->partitions[i], &goes_on);
    }
    for (size_t i = 0; p->store->ops->partitions == NULL && i < p->segments_cnt && status == HF_STORE_OK;
         i++) {
        if (p->segments[i].chain_next > p->segments[i].last.next_seq) {
            status = prune_slices(p, &p->segments[i]);
        }
    }
    return status;
}

static void end_snapshot(struct pruning *p)
{
    if (p->store->ops->connected(p->store)) {
        (void)p->store->ops->query(p->store, "ROLLBACK", NULL, 0, NULL, NULL, NULL);
    }
}

enum hf_store_status hf_prune(struct hf_store *store, const struct hf_prune_options *options,
                              struct hf_store_error *error)
{
    struct pruning p = {.store = store, .options = options, .error = error};
    struct hf_store_time time = {.now_us = 0};
    enum hf_store_status status = hf_store_now(store, &time, error);

    p.now_ms = time.now_us / 1000;
    if (status == HF_STORE_OK && (options->before_ms > p.now_ms || p.now_ms > HF_CLOCK_MS_MAX)) {
        return hf_store_fail(error, HF_STORE_INVALID,
                             "--before lies in the future by the store's clock. Say a time that is over");
    }
    if (status == HF_STORE_OK) {
        status = store->ops->query(store, store->ops->snapshot, NULL, 0, NULL, NULL, error);
    }
    if (status != HF_STORE_OK) {
        return status;
    }
    status = load(&p);
    if (!options->dry_run) {
        end_snapshot(&p);
    }
    if (status == HF_STORE_OK) {
        status = prune_all(&p);
    }
    if (options->dry_run) {
        end_snapshot(&p);
    }
    for (size_t i = 0; i < p.segments_cnt; i++) {
        free(p.segments[i].name);
    }
    free(p.segments);
    free(p.partitions);
    return status;
}
