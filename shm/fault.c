#include "shm/fault.h"

#if defined(HOLDFAST_FAULTS)
void (*hf_fault_hook)(void);
#endif
