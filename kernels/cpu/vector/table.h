/* SPDX-License-Identifier: Apache-2.0 */
/* Table lookups and the gradients of tables. The forward pass has chunks of rows. Gradients have
 * chunks of columns, so that one thread adds all rows with the same id, in order. */

static void embedding_chunk(void *arg, int i) {
  const sl_call *call = arg;
  const int32_t *ids = call->in[0]; /* [R] */
  const float *table = call->in[1]; /* [V, C] */
  float *y = call->out[0];          /* [R, C] */
  int64_t vocab = call->in_type[1].dim[0], width = call->in_type[1].dim[1];
  float other = call->attrs->place.partial ? 0 : NAN;
  sli_range rows = sli_rows(&call->out_type[0], i);
  for (int64_t r = rows.begin; r < rows.end; r++) {
    int64_t id = ids[r] - call->attrs->place.first;
    if (id >= 0 && id < vocab) memcpy(y + r * width, table + id * width, (size_t)width * sizeof *y);
    else
      for (int64_t c = 0; c < width; c++) y[r * width + c] = other;
  }
}

static inline void add_columns(float *to, const float *from, sli_range columns) {
  for (int64_t c = columns.begin; c < columns.end; c += LANES) {
    int64_t n = columns.end - c;
    store(to + c, load(to + c, n) + load(from + c, n), n);
  }
}

static void embedding_w_chunk(void *arg, int i) {
  const sl_call *call = arg;
  const int32_t *ids = call->in[0]; /* [R] */
  const float *dy = call->in[1];    /* [R, C] */
  float *dtable = call->out[0];     /* [V, C] */
  int64_t vocab = call->out_type[0].dim[0], width = call->out_type[0].dim[1];
  int64_t rows = sl_type_elements(&call->in_type[0]);
  sli_range columns = sli_columns(&call->out_type[0], i);
  for (int64_t r = 0; r < rows; r++) {
    int64_t id = ids[r] - call->attrs->place.first;
    if (id >= 0 && id < vocab) add_columns(dtable + id * width, dy + r * width, columns);
  }
}

static void position_chunk(void *arg, int i) {
  const sl_call *call = arg;
  const float *x = call->in[0], *table = call->in[1]; /* [B, T, C], [P, C] */
  float *y = call->out[0];                            /* [B, T, C] */
  int64_t length = call->in_type[0].dim[1], width = call->in_type[0].dim[2];
  sli_range rows = sli_rows(&call->in_type[0], i);
  for (int64_t r = rows.begin; r < rows.end; r++) {
    const float *xr = x + r * width, *tr = table + sli_position(call, r % length) * width;
    float *yr = y + r * width;
    for (int64_t c = 0, n = width; n > 0; c += LANES, n -= LANES)
      store(yr + c, load(xr + c, n) + load(tr + c, n), n);
  }
}

static void position_w_chunk(void *arg, int i) {
  const sl_call *call = arg;
  const float *dy = call->in[0]; /* [B, T, C] */
  float *dtable = call->out[0];  /* [P, C] */
  int64_t length = call->in_type[0].dim[1], width = call->in_type[0].dim[2];
  int64_t rows = sl_type_rows(&call->in_type[0]);
  sli_range columns = sli_columns(&call->out_type[0], i);
  for (int64_t r = 0; r < rows; r++)
    add_columns(dtable + sli_position(call, r % length) * width, dy + r * width, columns);
}
