/* SPDX-License-Identifier: Apache-2.0 */
/* Figures in SVG 1.1: text, rectangles and the frame of a page. Lengths are in user units, y grows
 * downwards. `attributes` are the element's others, as in a file: `class="end"`. */
#ifndef SLUICE_TOOLS_SVG_SVG_H
#define SLUICE_TOOLS_SVG_SVG_H

#include <stdio.h>

#include "base/base.h"

/* Begins a figure on a white page. `inside` is written below the title: a style, or "". */
void svg_begin(FILE *out, double width, double height, const char *attributes, const char *title,
               const char *inside);
void svg_end(FILE *out);

/* Writes text with its markup escaped, without control characters. */
void svg_text(FILE *out, double x, double y, const char *attributes, const char *format, ...)
    __attribute__((format(printf, 5, 6)));
void svg_rect(FILE *out, double x, double y, double width, double height, const char *attributes);
/* Returns 1, 2 or 5 times a power of ten, so that about `count` ticks of an axis fit in `range`. */
double svg_tick_step(double range, double count);
void svg_circle(FILE *out, double x, double y, double radius, const char *attributes);

#endif
