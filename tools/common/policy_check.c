#include "tools/common/policy_check.h"

size_t hf_policy_queue_cnt(const struct hf_policy *policy)
{
    size_t cnt = 0;

    for (size_t i = 0; i < policy->tenant_cnt; i++) {
        const struct hf_policy_tenant *tenant = &policy->tenants[i];

        cnt += tenant->on_limit.kind == HF_ON_LIMIT_QUEUE;
        for (size_t j = 0; j < tenant->team_cnt; j++) {
            cnt += tenant->teams[j].on_limit.kind == HF_ON_LIMIT_QUEUE;
        }
    }
    return cnt;
}

int hf_policy_check_file(const char *path, bool strict, FILE *err, struct hf_policy **policy)
{
    struct hf_policy_report report = {0};
    int status = hf_policy_load(path, strict ? HF_POLICY_REFUSE_QUEUE : 0, policy, &report);

    hf_policy_report_print(&report, err);
    if (status == HF_POLICY_LOADED) {
        size_t queues = hf_policy_queue_cnt(*policy);

        if (queues > 0) {
            (void)fprintf(
                err,
                "%s: warning: on_limit: queue is not built yet (%zu team%s or tenant%s): what would wait is "
                "refused with not-built\n",
                path, queues, queues == 1 ? "" : "s", queues == 1 ? "" : "s");
        }
    } else if (status == HF_POLICY_REFUSED) {
        (void)fprintf(err, "%s: refused: %zu problem%s; nothing was changed\n", path, report.error_cnt,
                      report.error_cnt == 1 ? "" : "s");
    } else {
        (void)fprintf(err, "%s: not enough memory to read it\n", path);
    }
    hf_policy_report_free(&report);
    return status == HF_POLICY_LOADED ? 0 : -1;
}
