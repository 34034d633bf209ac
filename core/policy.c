#include "core/policy.h"

#include "core/policy_load.h"
#include "core/policy_report.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

void hf_policy_free(struct hf_policy *policy)
{
    if (policy == NULL) {
        return;
    }
    for (size_t i = 0; i < policy->tenant_cnt; i++) {
        struct hf_policy_tenant *tenant = &policy->tenants[i];

        for (size_t j = 0; j < tenant->team_cnt; j++) {
            free(tenant->teams[j].capabilities);
            free(tenant->teams[j].keys);
        }
        free(tenant->teams);
    }
    free(policy->tenants);
    free(policy->models);
    free(policy);
}

static int finish(int status, struct hf_policy_report *report, struct hf_policy **policy)
{
    hf_policy_report_sort(report);
    if (report->incomplete) {
        status = HF_POLICY_NO_MEMORY;
    } else if (status == HF_POLICY_LOADED && report->error_cnt > 0) {
        status = HF_POLICY_REFUSED;
    }
    if (status == HF_POLICY_NO_MEMORY) {
        report->incomplete = true;
    }
    if (status != HF_POLICY_LOADED) {
        hf_policy_free(*policy);
        *policy = NULL;
    }
    return status;
}

/* The rest of a load, after report was started. */
static int load_bytes(const char *bytes, size_t len, uint32_t flags, struct hf_policy **policy,
                      struct hf_policy_report *report)
{
    struct hf_yaml yaml = {0};
    struct hf_policy_reader *reader = NULL;
    int status;

    if (len > HF_POLICY_BYTES_MAX) {
        hf_policy_report_add(report, HF_POLICY_ERROR, 0, 0, "", "is larger than %u MiB; split the policy",
                             (unsigned)(HF_POLICY_BYTES_MAX >> 20));
        return finish(HF_POLICY_REFUSED, report, policy);
    }
    status = hf_yaml_parse(&yaml, bytes, len, report);
    if (status == HF_POLICY_LOADED) {
        reader = calloc(1, sizeof(*reader));
        *policy = calloc(1, sizeof(**policy));
        if (reader == NULL || *policy == NULL) {
            status = HF_POLICY_NO_MEMORY;
        } else {
            reader->yaml = &yaml;
            reader->report = report;
            reader->flags = flags;
            hf_policy_read(reader, *policy);
            status = reader->no_memory ? HF_POLICY_NO_MEMORY : HF_POLICY_LOADED;
        }
        free(reader);
    }
    hf_yaml_free(&yaml);
    return finish(status, report, policy);
}

int hf_policy_load_bytes(const char *name, const void *bytes, size_t len, uint32_t flags,
                         struct hf_policy **policy, struct hf_policy_report *report)
{
    *policy = NULL;
    if (!hf_policy_report_start(report, name)) {
        return HF_POLICY_NO_MEMORY;
    }
    return load_bytes(bytes, len, flags, policy, report);
}

/* Reads fd to its end, or to more than a policy may have. 0, or an errno. The bytes are the caller's. */
static int read_all(int fd, char **bytes, size_t *len)
{
    size_t cap = 0;

    *bytes = NULL;
    *len = 0;
    while (*len <= HF_POLICY_BYTES_MAX) {
        ssize_t got;

        if (*len == cap) {
            char *more = realloc(*bytes, cap * 2 + 16384);

            if (more == NULL) {
                return ENOMEM;
            }
            *bytes = more;
            cap = cap * 2 + 16384;
        }
        got = read(fd, *bytes + *len, cap - *len);
        if (got == 0) {
            break;
        }
        if (got > 0) {
            *len += (size_t)got;
        } else if (errno != EINTR) {
            return errno;
        }
    }
    return 0;
}

int hf_policy_load(const char *path, uint32_t flags, struct hf_policy **policy,
                   struct hf_policy_report *report)
{
    char reason[128];
    char *bytes = NULL;
    size_t len = 0;
    int error = 0;
    int status;
    int fd;

    *policy = NULL;
    if (!hf_policy_report_start(report, path)) {
        return HF_POLICY_NO_MEMORY;
    }
    fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) {
        error = errno;
    } else {
        error = read_all(fd, &bytes, &len);
        close(fd);
    }
    if (error == 0) {
        status = load_bytes(bytes, len, flags, policy, report);
    } else if (error == ENOMEM) {
        status = finish(HF_POLICY_NO_MEMORY, report, policy);
    } else {
        hf_policy_report_add(report, HF_POLICY_ERROR, 0, 0, "",
                             "cannot be read: %s; check the path and who may read it",
                             strerror_r(error, reason, sizeof(reason)));
        status = finish(HF_POLICY_REFUSED, report, policy);
    }
    free(bytes);
    return status;
}
