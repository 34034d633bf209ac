/* Scripts of the servers that peers talk to lie beside the sources. */
#ifndef HF_BENCH_PEERS_PEER_FILE_H
#define HF_BENCH_PEERS_PEER_FILE_H

/* The text of bench/peers/<name>, to be freed, or NULL after a sentence. */
char *peer_file_read(const char *name);

#endif
