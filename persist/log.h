/* Where the daemon's sentences go: one line each, for operators. Never a secret. */
#ifndef HF_PERSIST_LOG_H
#define HF_PERSIST_LOG_H

enum hf_log_level {
    HF_LOG_INFO,
    HF_LOG_WARNING,
    HF_LOG_ERROR
};

/* text: one sentence or two, without a line feed. */
typedef void hf_log_fn(void *ctx, enum hf_log_level level, const char *text);

/* Zeroed: nobody listens. */
struct hf_log {
    hf_log_fn *fn;
    void *ctx;
};

/* Formats (cut at 1,000 bytes) and hands over. Control characters become '?': ids and names come from callers. */
void hf_log_say(const struct hf_log *log, enum hf_log_level level, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

#endif
