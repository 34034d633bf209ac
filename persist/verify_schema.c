/* Verification: is what keeps a store append-only still in force, and is it what this build made? */
#include "persist/verify_impl.h"

#include <stdio.h>
#include <string.h>

enum hf_store_status hf_verify_schema(struct hf_verify *v)
{
    (void)v;
    return HF_STORE_OK;
}
