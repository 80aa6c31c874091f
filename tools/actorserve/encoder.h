/* A thread that makes tokens of texts: long ones take so long that everybody else would wait. */
#ifndef SLUICE_TOOLS_ACTORSERVE_ENCODER_H
#define SLUICE_TOOLS_ACTORSERVE_ENCODER_H

#include <stdatomic.h>

#include "tools/actorserve/codec.h"

typedef struct encoder encoder;

/* A text that is to become tokens; the encoder's from put until take. */
typedef struct encoding {
  char *text;
  bool whole;          /* with what the tokenizer puts around a text */
  void *user;
  sli_token_row out;
  sl_status status;
  char *failure;       /* its text; the caller's to free() */
  size_t bytes;        /* of text */
  uint64_t turn;       /* the smallest comes next */
  atomic_bool stop;    /* nobody wants it any more */
  struct encoding *next;
} encoding;

/* The codec outlives it. */
sl_status encoder_create(const codec *c, encoder **out);
void encoder_destroy(encoder *e); /* what it has is its users' again */
int encoder_fd(const encoder *e); /* readable while there is something to take */
/* Short texts go before long ones, unless those have waited for some time. */
void encoder_put(encoder *e, encoding *x);
/* It is done soon, with SL_E_STOPPED. Not of what was taken. */
void encoder_stop(encoder *e, encoding *x);
/* For how long the text that is under way has been. */
double encoder_seconds(encoder *e);
encoding *encoder_take(encoder *e); /* one that is done, or NULL */

#endif
