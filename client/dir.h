/* Directory batches that are kept between calls of ll_readdir. Owned by the client's loop. */
#ifndef LEAT_CLIENT_DIR_H
#define LEAT_CLIENT_DIR_H

struct client;

void dir_forget_all(struct client *c);

#endif
