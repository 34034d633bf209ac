/* Fault points, for tests alone: with HOLDFAST_FAULTS defined, the hook is called before every access to a word that
 * processes share, by the functions of shm/atomic.h. There a test ends the process, or lets another one work. What is
 * installed is built without: nothing of this is in it. */
#ifndef HF_SHM_FAULT_H
#define HF_SHM_FAULT_H

#if defined(HOLDFAST_FAULTS)
/* NULL: none. Of the process; not to be changed by one thread while another one works. */
extern void (*hf_fault_hook)(void);
static inline void hf_fault_point(void)
{
    if (hf_fault_hook != 0) {
        hf_fault_hook();
    }
}
#else
static inline void hf_fault_point(void)
{
}
#endif

#endif
