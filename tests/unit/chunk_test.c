/* ctest: labels=threads */
/* Chunks: every slot is given to one process only, no idle process keeps more than a chunk from the others, and what
 * a dead one held comes back. */
#include "shm/chunk.h"

#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

static struct hf_segment_plan plan_of(uint32_t slots, uint32_t owners)
{
    return (struct hf_segment_plan){
        .slots = slots,
        .owners = owners,
        .tenants = 1,
        .rows = 1,
        .names = 1,
        .prices = 1,
        .policy_bytes = 64,
        .group = (gid_t)-1,
    };
}

static void make(struct hf_segment *seg, uint32_t slots, uint32_t owners)
{
    struct hf_segment_plan plan = plan_of(slots, owners);

    assert_int_equal(hf_segment_create_anonymous(&plan, seg, NULL), HF_OK);
}

static void set_state(struct hf_segment *seg, uint32_t idx, enum hf_state state)
{
    hf_store_rel_u64(&seg->slots[idx].slot_st.lo, hf_st_make(0, 0, state, 0, 0).lo);
}

/* What the daemon does when a slot is through. */
static void set_free(struct hf_segment *seg, uint32_t idx)
{
    set_state(seg, idx, HF_STATE_FREE);
    hf_chunk_freed(seg, idx);
}

/* Takes and fills all that can be had; how many. */
static uint32_t take_all(struct hf_segment *seg, struct hf_chunks *chunks, uint64_t ref, uint8_t *seen)
{
    uint32_t cnt = 0;
    uint32_t idx;

    while ((idx = hf_chunk_take(seg, chunks, ref)) != HF_SHM_NONE) {
        assert_true(idx < seg->slots_cnt);
        if (seen != NULL) {
            assert_int_equal(seen[idx], 0);
            seen[idx] = 1;
        }
        set_state(seg, idx, HF_STATE_HELD);
        cnt++;
    }
    return cnt;
}

static void small_segments_are_cut_finer(void **state)
{
    const struct {
        uint32_t slots, owners, slots_after, chunk;
    } cases[] = {
        {1, 1, 4, 4},         {64, 16, 64, 4},          {64, 2, 64, 8},       {65, 2, 72, 8},
        {1024, 16, 1024, 16}, {1024, 64, 1024, 8},      {4096, 16, 4096, 64}, {65536, 64, 65536, 64},
        {5000, 8, 5056, 64},  {65536, 65535, 65536, 4},
    };

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct hf_segment seg;

        make(&seg, cases[i].slots, cases[i].owners);
        assert_int_equal(seg.slots_cnt, cases[i].slots_after);
        assert_int_equal(seg.chunk_slots, cases[i].chunk);
        assert_int_equal(seg.chunks_cnt * seg.chunk_slots, seg.slots_cnt);
        assert_int_equal(1U << seg.chunk_shift, seg.chunk_slots);
        hf_segment_detach(&seg);
    }
}

static void every_slot_is_given_once(void **state)
{
    static const uint32_t sizes[] = {1, 64, 100, 1024, 5000};

    (void)state;
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        struct hf_segment seg;
        struct hf_chunks chunks;

        make(&seg, sizes[i], 4);
        uint8_t *seen = calloc(seg.slots_cnt, 1);
        hf_chunks_init(&chunks, 12345);
        assert_int_equal(take_all(&seg, &chunks, 77, seen), seg.slots_cnt);
        assert_int_equal(hf_chunk_take(&seg, &chunks, 77), HF_SHM_NONE);
        free(seen);
        hf_segment_detach(&seg);
    }
}

static void freed_and_untaken_slots_come_again(void **state)
{
    struct hf_segment seg;
    struct hf_chunks chunks;

    (void)state;
    make(&seg, 64, 2);
    hf_chunks_init(&chunks, 0);
    assert_int_equal(take_all(&seg, &chunks, 77, NULL), 64);
    set_free(&seg, 13);
    assert_int_equal(hf_chunk_take(&seg, &chunks, 77), 13);
    hf_chunk_untake(&seg, &chunks, 13);
    assert_int_equal(hf_chunk_take(&seg, &chunks, 77), 13);
    set_state(&seg, 13, HF_STATE_HELD);
    assert_int_equal(hf_chunk_take(&seg, &chunks, 77), HF_SHM_NONE);
    /* Untaken when another chunk is held already. */
    set_free(&seg, 5);
    set_free(&seg, 60);
    uint32_t first = hf_chunk_take(&seg, &chunks, 77);
    assert_true(first == 5 || first == 60);
    set_state(&seg, first, HF_STATE_HELD);
    uint32_t second = hf_chunk_take(&seg, &chunks, 77);
    assert_int_equal(first + second, 65);
    set_free(&seg, first);
    hf_chunk_untake(&seg, &chunks, first); /* the bit is there already */
    set_state(&seg, second, HF_STATE_HELD);
    assert_int_equal(hf_chunk_take(&seg, &chunks, 77), first);
    set_state(&seg, first, HF_STATE_HELD);
    assert_int_equal(hf_chunk_take(&seg, &chunks, 77), HF_SHM_NONE);
    hf_segment_detach(&seg);
}

/* Holds chunk 0 with all but its last slot taken, so that the next take looks ahead. */
static void take_all_but_one(struct hf_segment *seg, struct hf_chunks *chunks)
{
    hf_chunks_init(chunks, 0);
    for (uint32_t i = 0; i + 1U < seg->chunk_slots; i++) {
        uint32_t idx = hf_chunk_take(seg, chunks, 77);

        assert_int_equal(idx, i);
        set_state(seg, idx, HF_STATE_HELD);
    }
    assert_int_equal(chunks->cursor, 1);
}

static void the_last_take_of_a_chunk_finds_the_next(void **state)
{
    struct hf_segment seg;
    struct hf_chunks chunks;

    (void)state;
    make(&seg, 5000, 8);
    take_all_but_one(&seg, &chunks);
    seg.chunks[1].chunk_free = 0;
    seg.chunks[2].chunk_home = 88;
    seg.chunks[3].chunk_owner = 88;
    seg.chunks[4].chunk_free = 1ULL << 9 | 1ULL << 20;
    assert_int_equal(hf_chunk_take(&seg, &chunks, 77), 63);
    assert_int_equal(chunks.cursor, 4);
    set_state(&seg, 63, HF_STATE_HELD);
    assert_int_equal(hf_chunk_take(&seg, &chunks, 77), 4U * 64U + 9U);
    assert_int_equal(chunks.current, 4);
    hf_segment_detach(&seg);
    /* An own home is as good as nobody's. */
    make(&seg, 5000, 8);
    take_all_but_one(&seg, &chunks);
    seg.chunks[1].chunk_home = 88;
    seg.chunks[2].chunk_home = 77;
    assert_int_equal(hf_chunk_take(&seg, &chunks, 77), 63);
    assert_int_equal(chunks.cursor, 2);
    hf_segment_detach(&seg);
}

static void nobody_looks_ahead_for_long(void **state)
{
    struct hf_segment seg;
    struct hf_chunks chunks;

    (void)state;
    make(&seg, 5000, 8);
    take_all_but_one(&seg, &chunks);
    for (uint32_t i = 1; i < seg.chunks_cnt - 2U; i++)
        seg.chunks[i].chunk_free = 0;
    assert_int_equal(seg.chunks_cnt, 79);
    assert_int_equal(hf_chunk_take(&seg, &chunks, 77), 63);
    assert_int_equal(chunks.cursor, 1 + 64);
    hf_segment_detach(&seg);
    /* In a small segment once round, and no chunk twice. */
    make(&seg, 65, 2);
    take_all_but_one(&seg, &chunks);
    for (uint32_t i = 1; i < seg.chunks_cnt; i++)
        seg.chunks[i].chunk_free = 0;
    assert_int_equal(seg.chunks_cnt, 9);
    assert_int_equal(hf_chunk_take(&seg, &chunks, 77), 7);
    assert_int_equal(chunks.cursor, 1);
    hf_segment_detach(&seg);
}

/* What was freed in the chunk held comes first: no other one is looked at. */
static void the_own_chunk_comes_before_the_next(void **state)
{
    struct hf_segment seg;
    struct hf_chunks chunks;

    (void)state;
    make(&seg, 5000, 8);
    take_all_but_one(&seg, &chunks);
    seg.chunks[1].chunk_free = 0;
    set_free(&seg, 13);
    assert_int_equal(hf_chunk_take(&seg, &chunks, 77), 63);
    assert_int_equal(chunks.cursor, 1);
    set_state(&seg, 63, HF_STATE_HELD);
    assert_int_equal(hf_chunk_take(&seg, &chunks, 77), 13);
    assert_int_equal(chunks.cursor, 2);
    hf_segment_detach(&seg);
}

/* A bit can come late, after the slot was found free by another way and filled again. */
static void a_late_bit_gives_no_used_slot(void **state)
{
    struct hf_segment seg;
    struct hf_chunks chunks;

    (void)state;
    make(&seg, 64, 2);
    hf_chunks_init(&chunks, 0);
    assert_int_equal(take_all(&seg, &chunks, 77, NULL), 64);
    for (uint32_t state_no = HF_STATE_FILLING; state_no < HF_STATE_CNT; state_no++) {
        set_state(&seg, 20, (enum hf_state)state_no);
        hf_chunk_freed(&seg, 20);
        assert_int_equal(hf_chunk_take(&seg, &chunks, 77), HF_SHM_NONE);
    }
    /* Bits beyond the chunk are damage: they lead nowhere. */
    seg.chunks[0].chunk_free = ~0ULL;
    assert_int_equal(hf_chunk_take(&seg, &chunks, 77), HF_SHM_NONE);
    hf_segment_detach(&seg);
}

/* One takes everything in a burst and then sleeps for ever: all that becomes free goes to the other. */
static void an_idle_process_keeps_one_chunk_at_most(void **state)
{
    struct hf_segment seg;
    struct hf_chunks burst;
    struct hf_chunks other;

    (void)state;
    make(&seg, 1024, 4);
    hf_chunks_init(&burst, 1);
    hf_chunks_init(&other, 2);
    assert_int_equal(hf_chunk_take(&seg, &other, 88) != HF_SHM_NONE, 1); /* holds a chunk, fills nothing */
    uint32_t burst_cnt = take_all(&seg, &burst, 77, NULL);
    assert_int_equal(burst_cnt, 1024 - seg.chunk_slots);
    for (uint32_t idx = 0; idx < seg.slots_cnt; idx++) {
        if (idx >> seg.chunk_shift != other.current)
            set_free(&seg, idx);
    }
    assert_int_equal(burst.current, HF_SHM_NONE);
    uint32_t idx = hf_chunk_take(&seg, &burst, 77); /* one more, and then nothing any more */
    assert_int_not_equal(idx, HF_SHM_NONE);
    /* `other` gets all but what is left of that chunk; its own first slot was taken and not filled. */
    assert_int_equal(take_all(&seg, &other, 88, NULL), 1024 - seg.chunk_slots - 1);
    hf_segment_detach(&seg);
}

static void a_leaving_process_leaves_everything(void **state)
{
    struct hf_segment seg;
    struct hf_chunks chunks;

    (void)state;
    make(&seg, 256, 4);
    hf_chunks_init(&chunks, 9);
    uint32_t idx = hf_chunk_take(&seg, &chunks, 77);
    set_state(&seg, idx, HF_STATE_HELD);
    idx = hf_chunk_take(&seg, &chunks, 77);
    hf_chunk_untake(&seg, &chunks, idx);
    hf_chunk_leave(&seg, &chunks, 77);
    for (uint32_t i = 0; i < seg.chunks_cnt; i++) {
        assert_int_equal(seg.chunks[i].chunk_owner, 0);
        assert_int_equal(seg.chunks[i].chunk_home, 0);
    }
    hf_chunks_init(&chunks, 10);
    assert_int_equal(take_all(&seg, &chunks, 88, NULL), 255);
    hf_segment_detach(&seg);
}

static void what_a_dead_process_held_comes_back(void **state)
{
    struct hf_segment seg;
    struct hf_chunks chunks;
    struct hf_owner own;

    (void)state;
    make(&seg, 64, 2);
    /* In an anonymous segment who has left is as gone as a dead one. */
    assert_int_equal(hf_owner_join(&seg, HF_ROLE_WORKER, &own, NULL), HF_OK);
    uint64_t ref = own.ref;
    hf_chunks_init(&chunks, 0);
    uint32_t held = hf_chunk_take(&seg, &chunks, ref);
    set_state(&seg, held, HF_STATE_HELD);
    uint32_t filling = hf_chunk_take(&seg, &chunks, ref);
    set_state(&seg, filling, HF_STATE_FILLING);
    uint32_t chunk = chunks.current;
    assert_false(hf_chunk_return(&seg, chunk)); /* lives */
    hf_owner_leave(&seg, &own);
    assert_false(hf_chunk_return(&seg, chunk)); /* who was filling must be known until it is cleaned */
    assert_int_equal(seg.chunks[chunk].chunk_owner, ref);
    set_state(&seg, filling, HF_STATE_PENDING);
    assert_false(hf_chunk_return(&seg, chunk));
    set_state(&seg, filling, HF_STATE_ABANDONED);
    assert_true(hf_chunk_return(&seg, chunk));
    assert_false(hf_chunk_return(&seg, chunk)); /* twice is once */
    assert_int_equal(seg.chunks[chunk].chunk_home, 0);
    set_free(&seg, filling);
    hf_chunks_init(&chunks, 0);
    /* Its bits were in the memory of the dead: they are made again. */
    assert_int_equal(take_all(&seg, &chunks, 99, NULL), 63);
    assert_false(hf_chunk_return(&seg, seg.chunks_cnt)); /* no such chunk */
    hf_segment_detach(&seg);
}

static void a_lost_bit_is_repaired(void **state)
{
    struct hf_segment seg;
    struct hf_chunks chunks;

    (void)state;
    make(&seg, 64, 2);
    hf_chunks_init(&chunks, 0);
    assert_int_equal(take_all(&seg, &chunks, 77, NULL), 64);
    set_state(&seg, 33, HF_STATE_FREE); /* the daemon died before the bit */
    assert_int_equal(hf_chunk_take(&seg, &chunks, 77), HF_SHM_NONE);
    assert_false(hf_chunk_return(&seg, 33U >> seg.chunk_shift));
    assert_int_equal(hf_chunk_take(&seg, &chunks, 77), 33);
    hf_segment_detach(&seg);
}

/* ---- many processes, killed at random ------------------------------------------------------------------- */

#define WORKERS 3
#define KILLS   40

struct shared {
    uint64_t doubles; /* a slot given to two */
    uint64_t takes;
    uint64_t frees;
    uint64_t stop;
};

/* Takes, marks the slot as its own by CAS (which fails if anybody else has it), fills it. */
static void work(struct hf_segment *seg, struct shared *shared, uint32_t hint)
{
    struct hf_owner own;
    struct hf_chunks chunks;

    if (hf_owner_join(seg, HF_ROLE_WORKER, &own, NULL) != HF_OK)
        _exit(3);
    hf_chunks_init(&chunks, hint);
    while (hf_load_acq_u64(&shared->stop) == 0) {
        uint32_t idx = hf_chunk_take(seg, &chunks, own.ref);

        if (idx == HF_SHM_NONE) {
            hf_pause();
            continue;
        }
        struct hf_shm_slot *slot = &seg->slots[idx];
        set_state(seg, idx, HF_STATE_FILLING);
        if (!hf_cas_acqrel_u64(&slot->slot_owner, 0, own.ref))
            hf_add_acqrel_u64(&shared->doubles, 1);
        hf_add_acqrel_u64(&shared->takes, 1);
        set_state(seg, idx, HF_STATE_HELD);
    }
    hf_chunk_leave(seg, &chunks, own.ref);
    hf_owner_leave(seg, &own);
}

/* The daemon's part: frees what is held, cleans what the dead were filling, returns their chunks. */
static void serve(struct hf_segment *seg, struct shared *shared)
{
    for (uint32_t chunk = 0; chunk < seg->chunks_cnt; chunk++) {
        uint64_t owner = hf_load_acq_u64(&seg->chunks[chunk].chunk_owner);
        bool dead = owner != 0 && !hf_owner_alive(seg, owner);

        for (uint32_t i = 0; i < seg->chunk_slots; i++) {
            uint32_t idx = (chunk << seg->chunk_shift) + i;
            struct hf_shm_slot *slot = &seg->slots[idx];
            struct hf_u128 st = {.lo = hf_load_acq_u64(&slot->slot_st.lo)};

            if (hf_st_state(st) == HF_STATE_HELD || (dead && hf_st_state(st) == HF_STATE_FILLING)) {
                hf_store_rel_u64(&slot->slot_owner, 0);
                set_free(seg, idx);
                hf_add_acqrel_u64(&shared->frees, 1);
            }
        }
        (void)hf_chunk_return(seg, chunk);
    }
    (void)hf_owner_sweep(seg);
}

static pid_t start(struct hf_segment *seg, struct shared *shared, uint32_t hint)
{
    pid_t pid = fork();

    assert_true(pid >= 0);
    if (pid == 0) {
        work(seg, shared, hint);
        _exit(0);
    }
    return pid;
}

static void no_slot_is_lost_or_given_twice_under_kills(void **state)
{
    struct hf_segment_plan plan = plan_of(64, WORKERS + 2);
    struct hf_segment seg;
    struct hf_error err = {.text = ""};
    struct shared *shared =
        mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    pid_t pids[WORKERS];
    char folder[] = "/tmp/holdfast-chunk-XXXXXX";
    char path[64];
    char lock[80];
    unsigned seed = 11;

    (void)state;
    assert_ptr_not_equal(shared, MAP_FAILED);
    assert_non_null(mkdtemp(folder));
    (void)snprintf(path, sizeof path, "%s/seg", folder);
    (void)snprintf(lock, sizeof lock, "%s.lock", path);
    if (hf_segment_create(path, &plan, &seg, &err) != HF_OK)
        fail_msg("%s", err.text);
    assert_int_equal(hf_segment_publish(&seg, false, NULL), HF_OK);
    for (uint32_t i = 0; i < WORKERS; i++)
        pids[i] = start(&seg, shared, i);
    for (uint32_t kill_no = 0; kill_no < KILLS; kill_no++) {
        uint32_t who = kill_no % WORKERS;

        for (int i = rand_r(&seed) % 200; i >= 0; i--)
            serve(&seg, shared);
        assert_int_equal(kill(pids[who], SIGKILL), 0);
        assert_int_equal(waitpid(pids[who], NULL, 0), pids[who]);
        pids[who] = start(&seg, shared, kill_no);
    }
    hf_store_rel_u64(&shared->stop, 1);
    for (uint32_t i = 0; i < WORKERS; i++) {
        int status = -1;

        assert_int_equal(waitpid(pids[i], &status, 0), pids[i]);
        assert_int_equal(status, 0);
    }
    serve(&seg, shared);
    assert_int_equal(shared->doubles, 0);
    assert_true(shared->takes > 64);
    /* Everything is there again. */
    struct hf_chunks chunks;
    hf_chunks_init(&chunks, 0);
    for (uint32_t i = 0; i < seg.chunks_cnt; i++)
        assert_int_equal(seg.chunks[i].chunk_owner, 0);
    assert_int_equal(take_all(&seg, &chunks, 1, NULL), 64);
    hf_segment_detach(&seg);
    assert_int_equal(unlink(path), 0);
    assert_int_equal(unlink(lock), 0);
    assert_int_equal(rmdir(folder), 0);
    assert_int_equal(munmap(shared, sizeof *shared), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(small_segments_are_cut_finer),
        cmocka_unit_test(every_slot_is_given_once),
        cmocka_unit_test(freed_and_untaken_slots_come_again),
        cmocka_unit_test(the_last_take_of_a_chunk_finds_the_next),
        cmocka_unit_test(nobody_looks_ahead_for_long),
        cmocka_unit_test(the_own_chunk_comes_before_the_next),
        cmocka_unit_test(a_late_bit_gives_no_used_slot),
        cmocka_unit_test(an_idle_process_keeps_one_chunk_at_most),
        cmocka_unit_test(a_leaving_process_leaves_everything),
        cmocka_unit_test(what_a_dead_process_held_comes_back),
        cmocka_unit_test(a_lost_bit_is_repaired),
        cmocka_unit_test(no_slot_is_lost_or_given_twice_under_kills),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
