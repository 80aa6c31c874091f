/* SPDX-License-Identifier: Apache-2.0 */
/* Positions of the largest numbers in the windows of a plane. */

enum { KEY_NAN = INT32_MAX };

/* Returns integers in the order of the numbers. Zeros are equal, and NaN is the largest. */
static inline ivec keys_of(vec x) {
  ivec bits = (ivec)(x + 0.0f), key = bits ^ ((bits >> 31) & 0x7fffffff), nan = x != x;
  return (nan & KEY_NAN) | (~nan & key);
}

/* Finds the largest numbers of some rows, column by column: their keys, and the first row that has
 * them. */
static void largest_down(const float *x, int64_t width, int64_t rows, int32_t *keys,
                         int32_t *from) {
  for (int64_t i = 0, n = width; i < width; i += LANES, n -= LANES) {
    ivec key = keys_of(load(x + i, n)), row = {0};
    for (int64_t r = 1; r < rows; r++) {
      ivec next = keys_of(load(x + r * width + i, n)), above = next > key;
      key = (above & next) | (~above & key);
      row = (above & (int32_t)r) | (~above & row);
    }
    storeu((float *)(keys + i), (vec)key);
    storeu((float *)(from + i), (vec)row);
  }
}

/* Finds the largest number of each window of a row of outputs, the first in the order of memory.
 * There is one chunk, 0. */
static void largest_positions_chunk(void *arg, int i) {
  const sli_largest *l = arg;
  int64_t width = l->width;
  (void)i;
  int64_t room = width + LANES;
  int32_t *keys = sli_room(SLI_ROOM_ROWS, (size_t)(2 * room) * sizeof *keys), *from = keys + room;
  largest_down(l->x, width, l->rows, keys, from);
  for (int64_t o = 0, first = -l->pad; o < l->outputs; o++, first += l->stride) {
    int64_t at = SLI_MAX(first, 0), end = SLI_MIN(first + l->size, width);
    for (int64_t c = at + 1; c < end; c++) {
      bool above = keys[c] > keys[at] || (keys[c] == keys[at] && from[c] < from[at]);
      at = above ? c : at;
    }
    l->at[o] = (int32_t)(from[at] * width + at);
  }
}
