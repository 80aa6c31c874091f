/* SPDX-License-Identifier: Apache-2.0 */
/* Files that grow during a run, record by record. A record is in the file whole or not at all, and
 * none follows one that was lost: a file on a full disk ends after its last whole record. */
#ifndef SLUICE_IO_JOURNAL_H
#define SLUICE_IO_JOURNAL_H

#include <stdint.h>
#include <stdio.h>

#include <sluice/status.h>

typedef struct sli_journal sli_journal;

/* Opens a file and empties it. SL_E_IO names the file. */
sl_status sli_journal_create(const char *path, sli_journal **out);
/* Opens a file to append to it, and cuts an incomplete last line that a killed process left. */
sl_status sli_journal_append(const char *path, sli_journal **out);
/* Opens a file to append after its first `bytes` bytes. */
sl_status sli_journal_continue(const char *path, int64_t bytes, sli_journal **out);

/* Returns the length of the file. */
int64_t sli_journal_bytes(const sli_journal *j);
/* Appends to an open descriptor, such as standard error, which stays open. */
sl_status sli_journal_to(int fd, const char *name, sli_journal **out);

/* The stream for printing the next record. */
FILE *sli_journal_stream(sli_journal *j);
/* Writes the record. SL_E_IO names the file, also for every record after a lost one. */
sl_status sli_journal_end(sli_journal *j);
/* Forgets a lost record, so that the next one is tried. The loss is still reported at the end. */
void sli_journal_retry(sli_journal *j);

/* Syncs and closes the file, and ends a begun record. SL_E_IO if any record was lost. */
sl_status sli_journal_close(sli_journal *j);
/* Closes the file of an option at the end of a run with this status: an error of the run counts
 * more than one of the file, which names the option. */
sl_status sli_journal_finish(sli_journal *j, const char *option, sl_status status);

#endif
