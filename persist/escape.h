/* A receipt's names and texts as every store takes them. The segment holds no others; should one come all the same (a damaged
 * file, a later version), it must not hold up its batch. */
#ifndef HF_PERSIST_ESCAPE_H
#define HF_PERSIST_ESCAPE_H

#include "persist/receipt.h"

/* The reason with which such a row goes to the table of conflicts. */
extern const char hf_escape_reason[];

/* Replaces what is no UTF-8 or a control character in a name by \xNN for each byte, and cuts what is then too long, with `...` at
 * its end; a text that is no UTF-8 is left out, and a note stands in its place. Amounts stay as they are. Sets row->escaped when
 * something changed; leaves it alone otherwise. */
void hf_escape_row(struct hf_receipt *row);

#endif
