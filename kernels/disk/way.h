/* What goes between a file and the host's memory, and how it goes there while one waits. */
#ifndef SLUICE_DISK_WAY_H
#define SLUICE_DISK_WAY_H

#include <sys/types.h>

#include "kernels/disk/file.h"

typedef struct sli_disk_way {
  const sli_disk_file *file;
  char *memory;
  off_t at;         /* in the file */
  size_t bytes;
  bool out;         /* from memory to the file */
  const char *name; /* of what goes, for messages; may be NULL */
} sli_disk_way;

/* The way from one to the other; its file is NULL where neither is on disk, or both are. */
sli_disk_way sli_disk_way_of(void *to, const void *from, size_t bytes);
/* Can it go as it is, without a buffer? */
bool sli_disk_way_straight(const sli_disk_way *way);
/* Goes, of any length and to any place, and waits. */
sl_status sli_disk_go(const sli_disk_way *way);

/* Takes off its front what has gone: `bytes`, or less, if the rest could not go straight then.
 * False: nothing has gone. */
bool sli_disk_way_shorten(sli_disk_way *way, size_t bytes);
/* SL_E_IO, naming the way. `error`: errno; 0: the file ended. */
sl_status sli_disk_broke(const sli_disk_way *way, int error);
/* Leaves nothing of it in the page cache. */
void sli_disk_forget(const sli_disk_way *way);

#endif
