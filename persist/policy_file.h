/* A policy file read once: its bytes, their digest, and the policy in them. */
#ifndef HF_PERSIST_POLICY_FILE_H
#define HF_PERSIST_POLICY_FILE_H

#include "core/policy.h"
#include "persist/receipt.h"

struct hf_policy_file {
    char *path;
    char *bytes; /* NUL-terminated besides */
    size_t len;
    uint8_t digest[HF_DIGEST_BYTES]; /* SHA-256 of the bytes */
    struct hf_policy *policy;
};

/* Reads and loads. HF_POLICY_LOADED, _REFUSED (report says why), _NO_MEMORY. flags: enum hf_policy_flag. On anything but LOADED
 * *file is all-zero; else hf_policy_file_free(). */
int hf_policy_file_read(const char *path, uint32_t flags, struct hf_policy_file *file,
                        struct hf_policy_report *report);
void hf_policy_file_free(struct hf_policy_file *file);

#endif
