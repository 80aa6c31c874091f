/* Connections between all members of a group, by Gloo, which is C++: this is its
 * whole face to C. Exceptions end behind it. Internal to comm. */
#ifndef SLUICE_COMM_MESH_H
#define SLUICE_COMM_MESH_H

#include <stdbool.h>
#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Where members leave their addresses for one another. */
typedef struct sli_store {
  void *ctx;
  /* False if it cannot. */
  bool (*set)(void *ctx, const char *key, const void *data, size_t bytes);
  /* Blocks until somebody has set it; free() it. NULL if nobody will. */
  void *(*get)(void *ctx, const char *key, size_t *bytes);
} sli_store;

typedef struct sli_mesh sli_mesh;

/* What went wrong. */
typedef struct sli_mesh_error {
  int member; /* with whom; -1: with nobody in particular */
  char text[400];
} sli_mesh_error;

/* What goes to and comes from a member; its own part is not looked at. */
typedef struct sli_mesh_part {
  const void *out;
  size_t out_bytes;
  void *in;
  size_t in_bytes;
} sli_mesh_part;

/* Blocks until all members have opened it. `address`: of this host, numeric. NULL,
 * and the error, if it fails. */
sli_mesh *sli_mesh_open(int self, int nmembers, const char *name, const char *address,
                        const sli_store *store, int open_ms, sli_mesh_error *error);
void sli_mesh_close(sli_mesh *mesh);

/* Blocks until all parts have gone and come. Once it failed, it always will. */
bool sli_mesh_exchange(sli_mesh *mesh, const sli_mesh_part *parts, sli_mesh_error *error);
/* Any thread: an exchange under way fails, and all that follow. */
void sli_mesh_stop(sli_mesh *mesh);

#ifdef __cplusplus
}
#endif
#endif
