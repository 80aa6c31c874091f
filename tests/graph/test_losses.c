/* Cross entropy of targets that count more or less is what PyTorch's is, by reference/losses.txt, and
 * so is its gradient.
 * labels: unthreaded */
#include <string.h>

#include <sluice/sluice.h>

#include "tests/support/graph_interp.h"
#include "tests/support/reference_file.h"

/* ---- PyTorch's figures ------------------------------------------------------------------- */

enum { MOST = 256 };

typedef struct torch_case {
  char name[32];
  int rows, classes, ignore, nweights;
  float smoothing, weights[MOST], logits[MOST];
  int32_t targets[MOST];
  double loss, grad[MOST];
} torch_case;

static double next(char **at) { return strtod(*at, at); }

static torch_case read_case(char *line) {
  torch_case c = {0};
  int skip = 0;
  CHECK(sscanf(line, "%31s %n", c.name, &skip) == 1, "a line without a name");
  char *at = line + skip;
  c.rows = (int)next(&at), c.classes = (int)next(&at), c.ignore = (int)next(&at);
  c.smoothing = (float)next(&at), c.nweights = (int)next(&at);
  int n = c.rows * c.classes;
  for (int i = 0; i < c.nweights; i++) c.weights[i] = (float)next(&at);
  for (int i = 0; i < n; i++) c.logits[i] = (float)next(&at);
  for (int i = 0; i < c.rows; i++) c.targets[i] = (int32_t)next(&at);
  c.loss = next(&at);
  for (int i = 0; i < n; i++) c.grad[i] = next(&at);
  return c;
}

static void fill(void *ctx, const sl_tick *tick, void *const *out) {
  const torch_case *c = ctx;
  (void)tick;
  if (out[0]) memcpy(out[0], c->targets, (size_t)c->rows * sizeof *c->targets);
}

static void is_near(const torch_case *c, const char *what, double got, double want) {
  CHECK(fabs(got - want) <= 1e-6 * (1e-1 + fabs(want)), "%s: %s is %.9g, of PyTorch %.9g", c->name, what,
        got, want);
}

/* The logits are a parameter: their gradient is a copy of the loss's. */
static void check_case(char *line) {
  torch_case c = read_case(line);
  sl_type type = SL_TYPE(SL_I32, c.rows);
  const sl_source source = {.nout = 1, .types = &type, .fill = fill, .ctx = &c};
  sl_graph *g = sl_graph_create(NULL);
  sl_tensor *targets, *logits = sl_param(g, SL_TYPE(SL_F32, c.rows, c.classes), SL_CONSTANT(0), "logits");
  sl_data(g, &source, &targets);
  const sl_loss loss = {.ignore = SL_IGNORE(c.ignore), .smoothing = c.smoothing,
                        .weights = c.nweights ? c.weights : NULL};
  sl_train(g, sl_cross_entropy_with(g, logits, targets, &loss), NULL);
  CHECK(!sli_pass_gradients(g), "%s: %s", c.name, sl_detail());
  interp in = interp_create(g, 3);
  memcpy(interp_data(&in, logits), c.logits, sl_type_bytes(sl_tensor_type(logits)));
  is_near(&c, "the loss", interp_backward(&in, 0), c.loss);
  const float *grad = interp_data(&in, logits->grads[0]);
  for (int i = 0; i < c.rows * c.classes; i++) is_near(&c, "a gradient", (double)grad[i], c.grad[i]);
  interp_destroy(&in);
  sl_graph_destroy(g);
}

static void it_is_what_pytorch_finds(void) {
  char path[512];
  const char *source = getenv("SLUICE_SOURCE");
  snprintf(path, sizeof path, "%s/tests/reference/losses.txt", source ? source : ".");
  CHECK(reference_lines(path, check_case) == 12, "a line a case");
}

/* ---- where no row counts ------------------------------------------------------------------- */

static void where_no_row_counts_all_is_zero(void) {
  char line[] = "none 2 3 -100 0.5 0  1 2 3 4 5 6  -100 -100  0  0 0 0 0 0 0";
  check_case(line);
  char weightless[] = "weightless 2 3 -100 0 3  0 1 1  1 2 3 4 5 6  0 0  0  0 0 0 0 0 0";
  check_case(weightless);
}

/* ---- what is refused ----------------------------------------------------------------------- */

static void refuse(sl_loss loss, const char *text) {
  sl_graph *g = sl_graph_create(NULL);
  static const sl_type type = {SL_I32, 1, {4}};
  static const sl_source source = {.nout = 1, .types = &type, .fill = fill};
  sl_tensor *targets, *logits = sl_param(g, SL_TYPE(SL_F32, 4, 3), SL_CONSTANT(0), "logits");
  sl_data(g, &source, &targets);
  CHECK(!sl_cross_entropy_with(g, logits, targets, &loss), "refused");
  CHECK(strstr(sl_detail(), text) && strstr(sl_detail(), "test_losses.c:"), "%s", sl_detail());
  sl_graph_destroy(g);
}

static void what_makes_no_sense_is_refused(void) {
  refuse((sl_loss){.smoothing = 1.5f}, "smoothing must be from 0 to 1, not 1.5");
  refuse((sl_loss){.smoothing = NAN}, "smoothing must be from 0 to 1, not nan");
  refuse((sl_loss){.weights = (const float[]){1, -2, 1}}, "class 1 weighs -2");
  refuse((sl_loss){.weights = (const float[]){1, 2, INFINITY}}, "class 2 weighs inf");
}

int main(void) {
  it_is_what_pytorch_finds();
  where_no_row_counts_all_is_zero();
  what_makes_no_sense_is_refused();
  return 0;
}
