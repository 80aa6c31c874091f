/* SPDX-License-Identifier: Apache-2.0 */
/* Checks that all processes of a job see the same folder. */
#include "graph/state/state.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#include "base/base.h"
#include "io/atomic.h"
#include "io/file.h"

/* Marker of a process: the name of its file, which is also the file's content. */
typedef struct mark {
  char name[48];
} mark;

static char *path_of(const char *folder, const mark *m) {
  return sli_format("%s/%s", folder, m->name);
}

static sl_status leave_mark(const char *what, const char *folder, int process, mark *m) {
  uint64_t number[2] = {0};
  if (getrandom(number, sizeof number, 0) != sizeof number)
    return sl_fail(SL_E_IO, "no random numbers: %s", strerror(errno));
  snprintf(m->name, sizeof m->name, ".sluice-%016" PRIx64 "%08x", number[0], (unsigned)number[1]);
  char *path = path_of(folder, m);
  sl_status status = sli_atomic_text(path, m->name);
  free(path);
  return status
             ? sl_fail(SL_E_USAGE,
                       "%s: process %d cannot write there (%s): all processes need a shared folder",
                       what, process, sl_detail())
             : SL_OK;
}

static bool sees(const char *folder, const sl_blob *of) {
  mark m = {0};
  if (of->bytes != sizeof m) return false;
  memcpy(&m, of->data, sizeof m - 1);
  char *path = path_of(folder, &m), *text = NULL;
  bool there = !strchr(m.name, '/') && !sli_file_read(path, &text);
  if (there) text[strcspn(text, "\n")] = 0;
  bool same = there && !strcmp(text, m.name);
  free(text);
  free(path);
  return same;
}

sl_status sli_shared_folder(const char *what, const char *folder, sl_job *job) {
  if (sl_job_processes(job) == 1) return SL_OK;
  mark own = {0};
  sl_blob *blobs = NULL;
  sl_status status = leave_mark(what, folder, sl_job_process(job), &own);
  if (!status) status = sl_job_meet(job, "sharing", &own, sizeof own, &blobs);
  for (int i = 1; blobs && i < sl_job_processes(job) && !status; i++)
    if (!sees(folder, &blobs[i]))
      status =
          sl_fail(SL_E_USAGE,
                  "%s: process %d writes to a different folder of that name than process 0: all "
                  "processes need a shared folder",
                  what, i);
  for (int i = 0; blobs && i < sl_job_processes(job); i++) free(blobs[i].data);
  free(blobs);
  if (!status) status = sl_job_meet(job, "shared", NULL, 0, NULL);
  char *path = path_of(folder, &own);
  if (*own.name) unlink(path);
  free(path);
  return status;
}
