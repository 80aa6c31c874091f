/* SPDX-License-Identifier: Apache-2.0 */
/* Kept pages: contents of named pages of the KV cache, in host memory or on disk, when others need
 * their own memory. */
#ifndef SLUICE_KEPT_H
#define SLUICE_KEPT_H

#include "serve/serve.h"

/* Checks the options, and makes room for the pages. Without the option there is nothing. */
sl_status sli_kept_open(sl_session *s);
void sli_kept_close(sl_session *s);
/* Returns the kept page with these tokens behind the page named `before`; -1: there is none. */
int32_t sli_kept_find(const sl_session *s, uint64_t before, const int32_t *tokens);
uint64_t sli_kept_name(const sl_session *s, int32_t kept);
/* Keeps the contents of a page that nobody uses, in the place of that unused for longest. */
void sli_kept_write(sl_session *s, int32_t page, uint64_t name, uint64_t before,
                    const int32_t *tokens);
/* Lets no kept page go as long as it is set. */
void sli_kept_hold(sl_session *s, bool hold);
/* Makes a kept page the one used last. */
void sli_kept_touch(sl_session *s, int32_t kept);
/* Copies a kept page into a page that a request begins with. */
void sli_kept_read(sl_session *s, int32_t kept, int32_t page);

#endif
