/* holdfast trace-gen: prints a synthetic trace for `holdfast replay`. */
#ifndef HF_TOOLS_HOLDFAST_TRACE_GEN_H
#define HF_TOOLS_HOLDFAST_TRACE_GEN_H

/* argv[0] is the subcommand. Returns the exit status: 0, 1 when writing failed, 2 for bad arguments. */
int hf_cmd_trace_gen(int argc, char **argv);

#endif
