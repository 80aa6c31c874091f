#include "kernels/doing.h"

__thread const sli_doing *sli_doing_now;
