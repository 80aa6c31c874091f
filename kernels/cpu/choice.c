/* SPDX-License-Identifier: Apache-2.0 */
/* The choice of families, and its cache. A process locks the file while it reads or measures, so
 * that others wait for its times. A damaged file, or one of another machine, is measured again. */
#include "kernels/cpu/choice.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <time.h>
#include <unistd.h>

#include "base/base.h"
#include "io/file.h"

enum { TEXT = 2048, WAITS = 100 };
static const struct timespec WAIT = {.tv_nsec = 50 * 1000 * 1000};
static const double MUCH =
    0.9; /* a family of at most this part of the default's time replaces it */

static const char *const family_names[SLI_FAMILIES] = {[SLI_FAMILY_TILES] = "tiles",
                                                       [SLI_FAMILY_LIBRARY] = "library",
                                                       [SLI_FAMILY_VECTORS] = "vectors"};
static const char *const class_names[SLI_CLASSES] = {"wide", "narrow"};

void sli_processor_name(char *name, int bytes) {
  static const char *const keys[] = {"vendor_id",  "cpu family",      "model",
                                     "model name", "CPU implementer", "CPU part"};
  FILE *f = fopen("/proc/cpuinfo", "re");
  char line[256];
  int at = snprintf(name, (size_t)bytes, "processor");
  while (f && fgets(line, sizeof line, f) && *line != '\n') {
    char *colon = strchr(line, ':');
    size_t key = strcspn(line, "\t:");
    for (int i = 0; colon && i < (int)SLI_COUNT(keys); i++)
      if (key == strlen(keys[i]) && !strncmp(line, keys[i], key) && at < bytes)
        at += snprintf(name + at, (size_t)(bytes - at), "%.*s", (int)strcspn(colon + 1, "\n"),
                       colon + 1);
  }
  if (f) fclose(f);
}

/* ---- the file's text --------------------------------------------------------------------------
 */

static void write_text(const char *machine, const sli_family_times *times, char *text) {
  int at = snprintf(text, TEXT, "sluice products 1\n%s\n", machine);
  for (int c = 0; c < SLI_CLASSES; c++) {
    at += snprintf(text + at, (size_t)(TEXT - at), "%s", class_names[c]);
    for (int f = SLI_FAMILY_TILES; f < SLI_FAMILIES; f++)
      at += snprintf(text + at, (size_t)(TEXT - at), " %s %.9f", family_names[f],
                     times[c].seconds[f]);
    at += snprintf(text + at, (size_t)(TEXT - at), "\n");
  }
  snprintf(text + at, (size_t)(TEXT - at), "%016" PRIx64 "\n",
           sli_hash(SLI_HASH_SEED, text, (size_t)at));
}

/* Reads the times from a text. Returns false unless it is exactly what write_text makes of them. */
static bool read_text(const char *machine, const char *text, sli_family_times *times) {
  char again[TEXT];
  const char *at = strchr(text, '\n');
  at = at ? strchr(at + 1, '\n') : NULL;
  for (int c = 0; at && c < SLI_CLASSES; c++) {
    double *s = times[c].seconds;
    if (sscanf(at + 1, "%*31s %*31s %lf %*31s %lf %*31s %lf", &s[SLI_FAMILY_TILES],
               &s[SLI_FAMILY_LIBRARY], &s[SLI_FAMILY_VECTORS]) != SLI_FAMILIES - 1)
      return false;
    at = strchr(at + 1, '\n');
  }
  if (!at) return false;
  write_text(machine, times, again);
  return !strcmp(text, again);
}

/* ---- the file ---------------------------------------------------------------------------------
 */

/* Waits for the lock of a file, for at most five seconds. */
static bool lock(int fd, int how) {
  for (int i = 0; i < WAITS; i++) {
    if (!flock(fd, how | LOCK_NB)) return true;
    if (errno != EWOULDBLOCK) return false;
    nanosleep(&WAIT, NULL);
  }
  return false;
}

static bool read_kept(int fd, const char *machine, sli_family_times *times) {
  char text[TEXT] = {0};
  ssize_t n = pread(fd, text, sizeof text - 1, 0);
  return n > 0 && read_text(machine, text, times);
}

static bool keep(int fd, const char *machine, const sli_family_times *times) {
  char text[TEXT];
  write_text(machine, times, text);
  size_t bytes = strlen(text);
  return !ftruncate(fd, 0) && pwrite(fd, text, bytes, 0) == (ssize_t)bytes;
}

/* Reads the times from a file, or measures and keeps them. Returns NULL, or why there are none. */
static const char *find_times(const char *path, const char *machine, sli_timer *timer,
                              sli_family_times *times) {
  int flags = O_CREAT | O_CLOEXEC | O_NOFOLLOW, fd = open(path, O_RDWR | flags, 0644);
  bool writes = fd >= 0;
  const char *why = NULL;
  if (fd < 0) fd = open(path, O_RDONLY | O_CLOEXEC);
  if (fd < 0) return "cannot be written";
  if (!lock(fd, writes ? LOCK_EX : LOCK_SH)) why = "cannot be locked";
  else if (!read_kept(fd, machine, times)) {
    if (!writes) why = "cannot be written";
    else {
      timer(times);
      if (!keep(fd, machine, times)) why = "cannot be written";
    }
  }
  close(fd);
  return why;
}

/* Returns the path of a machine's file, or NULL without a cache folder; the caller frees it. */
static char *path_of(const char *machine) {
  char *folder = sli_file_cache(), *path = NULL;
  if (folder)
    path = sli_format("%s/products-%016" PRIx64, folder,
                      sli_hash(SLI_HASH_SEED, machine, strlen(machine)));
  free(folder);
  if (path) sli_file_make_folders(path);
  return path;
}

/* ---- the choice -------------------------------------------------------------------------------
 */

static sli_family fastest(const sli_family_times *times, sli_family usual) {
  sli_family best = usual;
  for (int f = SLI_FAMILY_TILES; f < SLI_FAMILIES; f++) {
    double t = times->seconds[f], most = times->seconds[best] * (best == usual ? MUCH : 1);
    if (t > 0 && t <= most) best = (sli_family)f;
  }
  return best;
}

/* Describes the times of all families: "wide: library of tiles 1.20 ms, library 1.00 ms". */
static int describe(const sli_family_choice *choice, const sli_family_times *times, char *text,
                    int room) {
  int at = 0;
  for (int c = 0; c < SLI_CLASSES; c++) {
    at += snprintf(text + at, (size_t)(room - at), "%s products by %s (", class_names[c],
                   family_names[choice->family[c]]);
    const char *between = "";
    for (int f = SLI_FAMILY_TILES; f < SLI_FAMILIES; f++)
      if (times[c].seconds[f] > 0) {
        at += snprintf(text + at, (size_t)(room - at), "%s%s %.3f ms", between, family_names[f],
                       1e3 * times[c].seconds[f]);
        between = ", ";
      }
    at += snprintf(text + at, (size_t)(room - at), "); ");
  }
  return at;
}

sli_family_choice sli_choice_make(const char *machine, const sli_family *defaults,
                                  sli_timer *timer) {
  sli_family_choice choice;
  sli_family_times times[SLI_CLASSES] = {{{0}}};
  char *path = path_of(machine);
  const char *why = path ? find_times(path, machine, timer, times) : "does not exist";
  for (int c = 0; c < SLI_CLASSES; c++)
    choice.family[c] = why ? defaults[c] : fastest(&times[c], defaults[c]);
  int room = sizeof choice.why;
  if (why)
    snprintf(choice.why, (size_t)room, "the level's default: a cache of times (%s) %s",
             path ? path : "in ~/.cache", why);
  else {
    int at = describe(&choice, times, choice.why, room);
    snprintf(choice.why + at, (size_t)(room - at), "timed once, kept in %s", path);
  }
  free(path);
  return choice;
}
