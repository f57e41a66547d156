/* Event sets. Events come through the state file, each with a serial number; a set delivers
 * those of a GPU that come after it was registered for the GPU. */

#include "call.h"

#include <stdlib.h>
#include <time.h>

#define POLL_NANOSECONDS 5000000L

struct event_set {
    unsigned long long registered[MAX_GPUS], since[MAX_GPUS], delivered;
};

static struct event_set *sets[64];

static struct event_set **find_set(nvmlEventSet_t set) {
    for (unsigned i = 0; set && i < sizeof sets / sizeof *sets; i++)
        if (sets[i] == set) return &sets[i];
    return NULL;
}

EXPORT nvmlReturn_t nvmlEventSetCreate(nvmlEventSet_t *made) {
    struct call call;
    int code = call_begin(&call, __func__);
    unsigned slot = 0;
    while (slot < sizeof sets / sizeof *sets && sets[slot]) slot++;
    if (!code && slot == sizeof sets / sizeof *sets) code = INSUFFICIENT_RESOURCES;
    if (!code) *made = sets[slot] = calloc(1, sizeof(struct event_set));
    return call_end(&call, code);
}

EXPORT nvmlReturn_t nvmlEventSetFree(nvmlEventSet_t set) {
    struct call call;
    int code = call_begin(&call, __func__);
    struct event_set **slot = find_set(set);
    if (!code && !slot) code = INVALID_ARGUMENT;
    if (!code) {
        free(*slot);
        *slot = NULL;
    }
    return call_end(&call, code);
}

EXPORT nvmlReturn_t nvmlDeviceRegisterEvents(nvmlDevice_t handle, unsigned long long types, nvmlEventSet_t set) {
    struct call call;
    struct device d;
    int code = call_begin(&call, __func__);
    if (!code && !find_set(set)) code = INVALID_ARGUMENT;
    if (!code && !(code = find_gpu(handle, &d)) && types & ~d.gpu->events) code = NOT_SUPPORTED;
    if (!code) {
        if (!set->registered[d.index])
            set->since[d.index] = state.event_count ? state.events[state.event_count - 1].serial : 0;
        set->registered[d.index] |= types;
    }
    return call_end(&call, code);
}

/* The next event for this set, or why there is none: TIMEOUT (not yet) or GPU_IS_LOST. */
static int next_event(struct event_set *set, nvmlEventData_t *data) {
    for (unsigned i = 0; i < state.event_count; i++) {
        const struct event *e = &state.events[i];
        if (e->gpu >= MAX_GPUS || e->serial <= set->delivered || e->serial <= set->since[e->gpu]) continue;
        if (!(e->type & set->registered[e->gpu])) continue;
        set->delivered = e->serial;
        *data = (nvmlEventData_t){gpu_handle(e->gpu), e->type, e->data, e->gi, e->ci};
        return SUCCESS;
    }
    for (unsigned i = 0; i < state.gpu_count; i++)
        if (set->registered[i] && state.gpus[i].lost) return GPU_IS_LOST;
    return TIMEOUT;
}

static long long now_ms(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000LL + now.tv_nsec / 1000000;
}

EXPORT nvmlReturn_t nvmlEventSetWait_v2(nvmlEventSet_t set, nvmlEventData_t *data, unsigned timeout_ms) {
    const struct timespec pause = {0, POLL_NANOSECONDS};
    const long long until = now_ms() + timeout_ms;
    for (const char *name = __func__;; name = "nvmlEventSetWait, again") {
        struct call call;
        int code = call_begin(&call, name);
        if (!code) code = find_set(set) ? next_event(set, data) : INVALID_ARGUMENT;
        code = call_end(&call, code);
        if (code != TIMEOUT || now_ms() >= until) return code;
        nanosleep(&pause, NULL);
    }
}
