/* SPDX-License-Identifier: Apache-2.0 */
/* Suggestions for mistyped words. */
#include <stdio.h>
#include <string.h>

#include "base/base.h"

/* Keeps three rows of the edit-distance table. */
size_t sli_word_distance(const char *a, const char *b) {
  enum { LONGEST = 64 };
  size_t n = strlen(b), rows[3][LONGEST];
  if (n >= LONGEST) return SIZE_MAX;
  for (size_t j = 0; j <= n; j++) rows[0][j] = j;
  size_t i = 1;
  for (; a[i - 1]; i++) {
    size_t *row = rows[i % 3], *last = rows[(i + 2) % 3], *before = rows[(i + 1) % 3];
    row[0] = i;
    for (size_t j = 1; j <= n; j++) {
      row[j] = SLI_MIN(last[j - 1] + (a[i - 1] != b[j - 1]), SLI_MIN(last[j], row[j - 1]) + 1);
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
        row[j] = SLI_MIN(row[j], before[j - 2] + 1);
    }
  }
  return rows[(i - 1) % 3][n];
}

const char *sli_nearest(const char *const *words, const char *text) {
  const char *best = NULL;
  size_t least = SLI_MAX(strlen(text) / 2, (size_t)1) + 1;
  for (; *words; words++) {
    size_t d = sli_word_distance(text, *words);
    if (d < least) least = d, best = *words;
  }
  return best;
}

char *sli_meant(char out[SLI_MEANT_TEXT], const char *const *words, const char *text) {
  const char *near = *text ? sli_nearest(words, text) : NULL;
  out[0] = 0;
  if (near && *near) snprintf(out, SLI_MEANT_TEXT, "; did you mean %s?", near);
  return out;
}
