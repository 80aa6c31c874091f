/* What a run can be asked about. */
#include "tools/actorrun/ctl/server.h"

const topic control_topics[] = {{&question_quota, "quota", request_quota},
                                {&question_look, "status", request_status},
                                {NULL, NULL, NULL}};
