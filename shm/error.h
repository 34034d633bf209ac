/* An error for people: what happened, why, what to do. Owned by the caller, never allocated. */
#ifndef HF_SHM_ERROR_H
#define HF_SHM_ERROR_H

#include <stddef.h>

/* Codes of the shm layer; 0 is done. core maps them to the public HOLDFAST_* codes. */
enum hf_code {
    HF_OK = 0,
    HF_EARG = -1,     /* an argument out of range */
    HF_ESYS = -2,     /* a system call failed (the text carries errno), or this machine cannot run holdfast */
    HF_ENOSPACE = -3, /* no room in the file system of the segment */
    HF_EEXISTS = -4,  /* a segment of that name is in use */
    HF_EMISSING = -5, /* no segment of that name */
    HF_EFOREIGN = -6, /* wrong owner, wrong mode, a link, or no regular file */
    HF_EBUILD = -7,   /* made by another build: magic, version or fingerprint differ */
    HF_ENOTREADY = -8, /* being made, or superseded */
    HF_ECORRUPT = -9,  /* a value in the segment that cannot be */
    HF_EFULL = -10,    /* the owner table, or another fixed table, is full */
    HF_EBUSY = -11,    /* another live process holds it */
    HF_EFORKED = -12   /* the handle belongs to the parent: join again */
};

struct hf_error {
    enum hf_code code;
    char text[480];
};

/* Writes code and a printf-formatted sentence; returns code. err may be NULL. */
int hf_error_set(struct hf_error *err, enum hf_code code, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

#endif
