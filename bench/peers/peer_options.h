/* The options that every peer program takes. */
#ifndef HF_BENCH_PEERS_PEER_OPTIONS_H
#define HF_BENCH_PEERS_PEER_OPTIONS_H

#include "bench/peers/peer.h"

/* Reads them into *options, which then points into argv. `name` is the peer's unless --name says otherwise. 0, or -1 after a sentence. */
int peer_options_read(int argc, char **argv, const char *name, struct peer_options *options);

#endif
