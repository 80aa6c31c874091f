/* SPDX-License-Identifier: Apache-2.0 */
/* Kept pages: copies of named KV cache pages in host memory or on disk, made when the pages are
 * reused. */
#ifndef SLUICE_SERVE_KEPT_H
#define SLUICE_SERVE_KEPT_H

#include "serve/serve.h"

/* Checks the options and allocates the room for kept pages. Does nothing if the options ask for
 * none. */
sl_status sli_kept_open(sl_session *s);
void sli_kept_close(sl_session *s);
/* Returns the kept page with these tokens that follows the page named `before`, or -1 if none. */
int32_t sli_kept_find(const sl_session *s, uint64_t before, const int32_t *tokens);
uint64_t sli_kept_name(const sl_session *s, int32_t kept);
/* Copies the contents of a page without holders into the room; evicts the least recently used kept
 * page if the room is full. */
void sli_kept_write(sl_session *s, int32_t page, uint64_t name, uint64_t before,
                    const int32_t *tokens);
/* Prevents eviction of kept pages while set. */
void sli_kept_hold(sl_session *s, bool hold);
/* Marks a kept page as the most recently used. */
void sli_kept_touch(sl_session *s, int32_t kept);
/* Copies a kept page back into page `page`. Returns false if the disk lost it; it is then no longer
 * kept. */
bool sli_kept_read(sl_session *s, int32_t kept, int32_t page);

#endif
