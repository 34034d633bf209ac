/* A policy as loaded from its file: checked whole, with every inheritance resolved, as plain heap arrays in
 * file order.
 *
 * Loading is all or nothing: either there is a policy in which every rule holds, or a report that names every
 * problem found. A loaded policy is never changed afterwards and may be read by any number of threads. */
#ifndef HF_CORE_POLICY_H
#define HF_CORE_POLICY_H

#include "core/amount.h"
#include "core/name.h"
#include "core/price.h"
#include "core/terms.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

/* A file above these bounds is refused; they keep a hostile file from costing more memory and time than an
 * honest one. */
#define HF_POLICY_BYTES_MAX (UINT64_C(64) << 20)
#define HF_POLICY_DEPTH_MAX 32
#define HF_POLICY_ELEMENTS_MAX \
    (UINT32_C(4) << 20) /* list entries, mappings and fields; aliases at each use */
#define HF_POLICY_ANCHORS_MAX  256
#define HF_POLICY_PROBLEMS_MAX 1000 /* errors listed, and warnings; further ones are only counted */

/* HF_UNKNOWN in [window][dimension]: not limited. */
struct hf_policy_limits {
    uint64_t limits[HF_WINDOW_CNT][HF_DIM_CNT];
};

/* What happens where a limit stands in the way; never inherited. */
struct hf_policy_on_limit {
    enum hf_on_limit kind;
    uint64_t overdraft_micros;  /* HF_UNKNOWN: not told; always told with HF_ON_LIMIT_DEGRADE */
    uint64_t queue_limit;       /* tickets, >= 1; HF_UNKNOWN: not told; always told with HF_ON_LIMIT_QUEUE */
    uint64_t queue_deadline_ms; /* >= 1; as queue_limit */
};

enum hf_policy_told {
    HF_POLICY_TOLD_TTL = 1,
    HF_POLICY_TOLD_ON_EXPIRY = 2,
    HF_POLICY_TOLD_ON_OVERAGE = 4,
    HF_POLICY_TOLD_RETRY_AFTER = 8
};

/* The values in force at this element: its own where told has the bit, else what it inherits. */
struct hf_policy_modes {
    uint64_t ttl_ms;         /* >= 1 */
    uint64_t retry_after_ms; /* >= 1 */
    enum hf_on_expiry on_expiry;
    enum hf_on_overage on_overage;
    uint32_t told; /* bits of enum hf_policy_told: what this element says itself */
};

struct hf_policy_model {
    struct hf_name id;
    struct hf_price price;
};

struct hf_policy_capability {
    struct hf_name id;
    uint64_t cap_micros; /* >= 1; HF_UNKNOWN: no cap */
    uint64_t cap_tokens; /* >= 1; HF_UNKNOWN: no cap */
    enum hf_basis basis;
};

struct hf_policy_key {
    struct hf_name id;
    struct hf_policy_limits limits;
};

struct hf_policy_team {
    struct hf_name id;
    struct hf_policy_limits limits;
    struct hf_policy_on_limit on_limit;
    struct hf_policy_modes modes;
    struct hf_policy_capability *capabilities;
    size_t capability_cnt;
    struct hf_policy_key *keys;
    size_t key_cnt;
};

struct hf_policy_tenant {
    struct hf_name id;
    struct hf_policy_limits limits;
    struct hf_policy_on_limit on_limit;
    struct hf_policy_modes modes;
    bool allow_overcommit;
    struct hf_policy_team *teams;
    size_t team_cnt;
};

struct hf_policy {
    struct hf_name currency;
    struct hf_name price_revision;
    struct hf_policy_model *models;
    size_t model_cnt;
    struct hf_policy_modes defaults; /* those of the file, else the built-in ones */
    struct hf_policy_tenant *tenants;
    size_t tenant_cnt;
};

enum hf_policy_severity {
    HF_POLICY_ERROR,
    HF_POLICY_WARNING
};

struct hf_policy_problem {
    enum hf_policy_severity severity;
    uint32_t line;   /* from 1; 0: the file as a whole */
    uint32_t column; /* from 1, in characters; 0: the line as a whole */
    char *path;      /* "tenants[0].teams[2].limits[1].window"; "" for the file as a whole */
    char *message;   /* what is wrong, and what would be right; without a full stop or line feed */
};

/* Start with an all-zero struct; hf_policy_report_free makes it all-zero again. A report is of one load. */
struct hf_policy_report {
    char *file;                         /* as named to the load */
    struct hf_policy_problem *problems; /* in line order */
    size_t problem_cnt;
    size_t problem_cap;
    size_t error_cnt;   /* counted even beyond those listed */
    size_t warning_cnt; /* likewise */
    bool incomplete;    /* memory ran out while problems were noted */
};

/* Flags of a load. */
enum hf_policy_flag {
    /* Each on_limit: queue is an error at its line: for callers that cannot queue yet. */
    HF_POLICY_REFUSE_QUEUE = 1
};

enum hf_policy_load_status {
    HF_POLICY_LOADED = 0,    /* *policy is set; the report may hold warnings */
    HF_POLICY_REFUSED = 1,   /* *policy is NULL; the report says everything that was found */
    HF_POLICY_NO_MEMORY = -1 /* *policy is NULL; the report may be incomplete */
};

/* Reads and checks the policy file at path (YAML, or JSON as a part of YAML). A file that cannot be read is
 * refused with a problem of line 0. The policy is the caller's: hf_policy_free. */
int hf_policy_load(const char *path, uint32_t flags, struct hf_policy **policy,
                   struct hf_policy_report *report);

/* The same of len bytes; name stands for the file in the report. The bytes are not kept. */
int hf_policy_load_bytes(const char *name, const void *bytes, size_t len, uint32_t flags,
                         struct hf_policy **policy, struct hf_policy_report *report);

/* Frees a policy and all in it; NULL is nothing to do. */
void hf_policy_free(struct hf_policy *policy);

/* One problem a line: `file:line: path: message`, with `warning: ` before the path of a warning. */
void hf_policy_report_print(const struct hf_policy_report *report, FILE *out);

void hf_policy_report_free(struct hf_policy_report *report);

#endif
