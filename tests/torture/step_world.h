/* A real segment in a file, of which the same state is put back as often as wanted; who works on it; and what it says.
 *
 * The parent has two handles: `maker` has made what is there, `me` is the survivor. Children join for themselves. Putting
 * back copies an image over the mapping, so it costs microseconds; files, locks and lives stay real.
 */
#ifndef HF_TESTS_STEP_WORLD_H
#define HF_TESTS_STEP_WORLD_H

#include "core/client.h"
#include "persist/digest.h"
#include "tests/torture/stepper.h"

#define HF_WORLD_NOW_MS     UINT64_C(1790000000000)
#define HF_WORLD_TEXT_BYTES 16384U
#define HF_WORLD_ACTORS     3U
#define HF_WORLD_SLOTS      64U
#define HF_WORLD_TENANTS    128U
#define HF_WORLD_LONG_TTL   UINT64_C(100000000)

/* Shared with the children: what an operation answered. */
struct hf_world_page {
    char answer[HF_WORLD_ACTORS][512]; /* its first byte is not 0 once the operation is through */
};

struct hf_world {
    char folder[128];
    char path[192];
    struct holdfast_segment *shared;
    struct hf_segment *seg;
    struct holdfast *maker;
    struct holdfast *me;
    struct hf_world_page *page;
    struct hf_digest *digest;
    uint8_t *base_image; /* the segment as made */
    uint8_t *image;      /* the segment as an operation finds it */
    uint8_t *crash;      /* room for another */
    size_t image_bytes;  /* up to the descriptors of batches, which nothing here touches */
    struct holdfast base_maker, base_me;
    struct holdfast image_maker, image_me;
    struct holdfast crash_maker, crash_me;
    struct hf_u128 seen[HF_WORLD_SLOTS]; /* st of each slot when the marks were taken */
    /* The daemon's, of hf_commit_detach(). Zeroed whenever an image is put back: W goes back then. */
    uint64_t word_seqs[HF_WORLD_TENANTS];
    struct hf_lines *lines; /* room of hf_world_text */
    char retired[4096];     /* receipts of what was freed since the image was put back */
};

/* Zeroed memory, shared with children: what is written between two forks is not copied again after each. */
void *hf_world_room(size_t bytes);
void hf_world_room_free(void *room, size_t bytes);

/* Makes folder, segment and handles. Ends the program when it cannot. */
void hf_world_make(struct hf_world *world);
/* Removes all of it. */
void hf_world_free(struct hf_world *world);

/* Everything as made; then the caller prepares, and keeps that as the state an operation finds. */
void hf_world_reset(struct hf_world *world);
void hf_world_keep(struct hf_world *world);
void hf_world_restore(struct hf_world *world);

/* A second state beside that one: what a killed process has left, for another survivor. */
void hf_world_save_crash(struct hf_world *world);
void hf_world_restore_crash(struct hf_world *world);

/* The mapping, for profiles of who answers at that place of the page. */
struct hf_step_watch hf_world_watch(const struct hf_world *world, uint32_t who);

/* Tenant `t` or `z` continues at this sequence. On a segment as made only. */
void hf_world_plant_seq(struct hf_world *world, const char *tenant, uint64_t seq);

/* The slot of a known id, HF_SHM_NONE when there is none. */
uint32_t hf_world_slot(struct hf_world *world, const char *id);

/* What the daemon does for the dead and the finished: buries, frees what is abandoned or final with all its receipts marked, returns
 * chunks (after the parent's handles let go of theirs), sweeps owners. */
void hf_world_tidy(struct hf_world *world);

/* Every reservation that is not freed gets its receipts made, noted in world->retired, and marked as the daemon marks them. */
void hf_world_persist(struct hf_world *world, uint32_t slot_idx);

/* Moves the clock by ms and reaps, by `me`. */
void hf_world_reap(struct hf_world *world, uint64_t ms);

/* Takes the dirty marks as a daemon does that looks at the slots afterwards. */
void hf_world_take_marks(struct hf_world *world);
/* How many slots have changed since and are not marked: their receipts would wait for a sweep. */
uint32_t hf_world_unmarked(const struct hf_world *world);

/* All that is to be exact, as lines: reservations, receipts, buckets, credits. Returns how many rules are broken, each with a line
 * of its own: sums that differ from the slots', an id not found exactly once, links to nowhere, slots and chunks lost. */
uint32_t hf_world_text(struct hf_world *world, char text[HF_WORLD_TEXT_BYTES]);

/* The lines that only one of two texts has, with - (wanted) and +. Static text. */
const char *hf_world_diff(const char *wanted, const char *found);

#endif
