/* What a job can change of payload-init itself, which runs under the same uid and starts every process of a job. */
#pragma once

/* Notes the state of this process, before any job. */
void note_state(void);

/* Returns what a job has changed since, in one word, or NULL. */
const char *changed_state(void);
