/* SPDX-License-Identifier: Apache-2.0 */
/* Transposition of f32 matrices. */

/* Transposes LANES rows of LANES numbers. */
static inline void turn_square(const float *from, int64_t row, float *to, int64_t to_row) {
  vec v[LANES];
  for (int l = 0; l < LANES; l++) v[l] = loadu(from + l * row);
  transpose(v);
  for (int l = 0; l < LANES; l++) storeu(to + l * to_row, v[l]);
}

/* Transposes in squares of LANES by LANES, prefetching the next LANES rows. */
static void turn_chunk(void *arg, int i) {
  const sli_turn *t = arg;
  (void)i;
  for (int64_t k = 0; k < t->k; k += LANES)
    for (int64_t n = 0; n < t->n; n += LANES) {
      const float *from = t->from + k * t->row + n;
      vec v[LANES];
      for (int l = 0; l < LANES; l++) {
        if (k + LANES + l < t->k) __builtin_prefetch(from + (LANES + l) * t->row);
        v[l] = load(from + l * t->row, k + l < t->k ? t->n - n : 0);
      }
      transpose(v);
      for (int l = 0; l < LANES && n + l < t->n; l++)
        store(t->to + (n + l) * t->to_row + k, v[l], t->k - k);
    }
}
