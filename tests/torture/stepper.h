/* A child process that is run one instruction at a time: stopped, killed or let go after any of them.
 *
 * The child prepares itself, stops at a mark, does its operation, stops at a second mark. The parent moves it from the first
 * mark by single steps of ptrace, so that number n is the same instruction in every run from the same state; its
 * address is compared to be sure. Steps are dear on some machines; so with a
 * profile of the operation the child runs freely to a breakpoint close before the instruction wanted.
 *
 * For x86-64 alone: elsewhere hf_step_possible() says so.
 */
#ifndef HF_TESTS_STEPPER_H
#define HF_TESTS_STEPPER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define HF_STEP_MOST 32768U /* instructions of one operation: more is an endless loop */

/* What the child does. prepare may use system calls; act is what is stepped. Both run in the child. */
struct hf_step_body {
    void (*prepare)(void *arg);
    void (*act)(void *arg);
    void *arg;
};

struct hf_step_proc {
    pid_t pid;
    uint32_t steps; /* instructions since the first mark */
    bool over;      /* act is through: it stands at the second mark */
};

/* One instruction of a profile. */
struct hf_step_at {
    uint64_t rip;    /* where the child stands before it */
    bool accesses;   /* it reads or writes the watched memory */
    bool changes;    /* ... and the memory is another after it */
    uint32_t anchor; /* the last instruction up to this one that the operation had not come by before */
    uint32_t times;  /* how often it came by this one since the anchor */
};

/* An operation's instructions, in order: at[0] is the first after the mark. */
struct hf_step_profile {
    struct hf_step_at at[HF_STEP_MOST];
    uint32_t cnt;
    uint32_t first; /* the first and the last that access the memory */
    uint32_t last;
    uint32_t accesses_cnt;
    uint32_t changes_cnt;
};

/* Memory whose accesses and changes a profile notes. Page-aligned; compared: the bytes that count as changes. told: in memory
 * shared with the child; not 0 once the operation is through and the rest need not be looked at. */
struct hf_step_watch {
    uint8_t *base;
    size_t bytes;
    size_t compared;
    const uint8_t *told;
};

/* NULL, or why nothing can be stepped here: tests skip then, with this sentence. */
const char *hf_step_possible(void);

/* Starts a child and brings it to the first mark. Ends the program when the system does not let it. */
void hf_step_start(struct hf_step_proc *proc, const struct hf_step_body *body);

/* Moves it by up to n instructions; fewer when act ends. */
void hf_step_run(struct hf_step_proc *proc, uint32_t n);

/* From the mark to where it stands before instruction n of the profile: by a breakpoint at its anchor, then by steps. False: it did
 * not come there. */
bool hf_step_run_to(struct hf_step_proc *proc, const struct hf_step_profile *profile, uint32_t n);

/* The address of its next instruction. */
uint64_t hf_step_rip(const struct hf_step_proc *proc);

/* Lets it run to the second mark. False: it did not get there within a minute, or died. */
bool hf_step_finish(struct hf_step_proc *proc);

/* SIGKILL, and waits until it is gone with all it held. */
void hf_step_kill(struct hf_step_proc *proc);

/* Runs a child through act and notes what each instruction does. The child is at its second mark afterwards. */
void hf_step_profile(struct hf_step_proc *proc, const struct hf_step_body *body,
                     const struct hf_step_watch *watch, struct hf_step_profile *profile);

/* The same from where the child stands now (after hf_step_start and hf_step_run). */
void hf_step_profile_on(struct hf_step_proc *proc, const struct hf_step_watch *watch,
                        struct hf_step_profile *profile);

#endif
