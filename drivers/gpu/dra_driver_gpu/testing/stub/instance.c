/* What is done to a GPU instance and to its compute instances. */

#include "call.h"

#include <stdio.h>
#include <string.h>

EXPORT nvmlReturn_t nvmlGpuInstanceGetInfo(nvmlGpuInstance_t handle, nvmlGpuInstanceInfo_t *info) {
    struct call call;
    struct device d;
    int code = call_begin(&call, __func__);
    if (!code && !(code = find_gi(handle, &d)))
        *info = (nvmlGpuInstanceInfo_t){gpu_handle(d.index), d.gi_id, d.gi->profile_id, d.gi->placement};
    return call_end(&call, code);
}

static int runs(const struct device *d, int any) {
    for (unsigned i = 0; i < state.process_count; i++) {
        const struct process *p = &state.processes[i];
        if (p->gpu == d->index && p->gi == d->gi_id && (any || p->ci == d->ci_id || p->ci == WHOLE_GPU)) return 1;
    }
    return 0;
}

EXPORT nvmlReturn_t nvmlGpuInstanceDestroy(nvmlGpuInstance_t handle) {
    struct call call;
    struct device d;
    int code = call_begin_change(&call, __func__);
    if (!code && !(code = find_gi(handle, &d)) && runs(&d, 1)) code = IN_USE;
    for (unsigned i = 0; !code && i < MAX_CI; i++)
        if (d.gi->ci[i].alive) code = IN_USE;
    if (!code) {
        d.gi->alive = 0;
        call.dirty = 1;
    }
    return call_end(&call, code);
}

static int cut_of(nvmlGpuInstance_t handle, unsigned kind, unsigned engines, struct profile **profile, struct cut **cut) {
    struct device d;
    int code = find_gi(handle, &d);
    if (code) return code;
    if (kind >= MAX_CUTS || engines) return INVALID_ARGUMENT;
    *profile = profile_by_id(d.gpu, d.gi->profile_id);
    *cut = cut_by_kind(*profile, kind);
    return *cut ? SUCCESS : NOT_SUPPORTED;
}

EXPORT nvmlReturn_t nvmlGpuInstanceGetComputeInstanceProfileInfo(nvmlGpuInstance_t handle, unsigned kind,
                                                                 unsigned engines,
                                                                 nvmlComputeInstanceProfileInfo_t *info) {
    struct call call;
    struct profile *p = NULL;
    struct cut *cut = NULL;
    int code = call_begin(&call, __func__);
    if (!code && !(code = cut_of(handle, kind, engines, &p, &cut)))
        *info = (nvmlComputeInstanceProfileInfo_t){cut->id,       cut->slices,   cut->instances,
                                                   cut->multiprocessors,         p->engines[0], p->engines[1],
                                                   p->engines[2], p->engines[3], p->engines[4]};
    return call_end(&call, code);
}

EXPORT nvmlReturn_t nvmlGpuInstanceGetComputeInstanceProfileInfoV(nvmlGpuInstance_t handle, unsigned kind,
                                                                  unsigned engines,
                                                                  nvmlComputeInstanceProfileInfo_v2_t *info) {
    struct call call;
    struct profile *p = NULL;
    struct cut *cut = NULL;
    unsigned version = info->version;
    char name[NAME_BUFFER + 4];
    int code = call_begin(&call, __func__);
    if (!code && version != VERSION_OF(nvmlComputeInstanceProfileInfo_v2_t, 2)) code = ARGUMENT_VERSION_MISMATCH;
    if (!code && !(code = cut_of(handle, kind, engines, &p, &cut))) {
        *info = (nvmlComputeInstanceProfileInfo_v2_t){version, cut->id, cut->slices, cut->instances,
                                                      cut->multiprocessors, p->engines[0], p->engines[1],
                                                      p->engines[2], p->engines[3], p->engines[4], {0}};
        snprintf(name, sizeof name, "MIG %s", cut->name);
        memcpy(info->name, name, sizeof info->name - 1);
    }
    return call_end(&call, code);
}

/* Where this many slices are free side by side; the number of all slices if they are nowhere. */
static unsigned free_slices(const struct gpu_instance *gi, unsigned slices, unsigned size) {
    for (unsigned start = 0; start + size <= slices; start++) {
        int taken = 0;
        for (unsigned i = 0; i < MAX_CI; i++) {
            const nvmlPlacement_t at = gi->ci[i].placement;
            taken |= gi->ci[i].alive && at.start < start + size && start < at.start + at.size;
        }
        if (!taken) return start;
    }
    return slices;
}

static unsigned free_index(const struct gpu *gpu) {
    unsigned long taken = 0;
    for (unsigned n = 0; n < MAX_GI * MAX_CI; n++)
        if (gpu->gi[n / MAX_CI].alive && gpu->gi[n / MAX_CI].ci[n % MAX_CI].alive)
            taken |= 1ul << gpu->gi[n / MAX_CI].ci[n % MAX_CI].index;
    unsigned index = 0;
    while (taken >> index & 1) index++;
    return index;
}

/* The same MIG device has the same UUID each time, as with the driver: two FNV-1a sums of its numbers. */
static void make_uuid(const struct device *d, unsigned id, char *uuid, unsigned size) {
    char who[128];
    unsigned long long sums[2] = {0xcbf29ce484222325ull, 0x84222325cbf29ce4ull};
    snprintf(who, sizeof who, "%s/%u/%u", d->gpu->uuid, d->gi_id, id);
    for (unsigned i = 0; who[i]; i++)
        for (unsigned n = 0; n < 2; n++) sums[n] = (sums[n] ^ (unsigned char)who[i]) * 0x100000001b3ull;
    snprintf(uuid, size, "MIG-%08x-%04x-5%03x-8%03x-%012llx", (unsigned)(sums[0] >> 32), (unsigned)(sums[0] >> 16 & 0xFFFF),
             (unsigned)(sums[0] & 0xFFF), (unsigned)(sums[1] >> 52), sums[1] & 0xFFFFFFFFFFFFull);
}

static int create(struct device *d, unsigned profile_id, nvmlComputeInstance_t *made) {
    struct profile *p = profile_by_id(d->gpu, d->gi->profile_id);
    struct cut *cut = NULL;
    for (unsigned i = 0; i < p->cut_count; i++)
        if (p->cuts[i].id == profile_id) cut = &p->cuts[i];
    if (!cut) return NOT_SUPPORTED;
    unsigned id = 0, start = free_slices(d->gi, p->slices, cut->slices);
    if (start == p->slices) return INSUFFICIENT_RESOURCES;
    while (d->gi->ci[id].alive) id++;
    struct compute_instance ci = {.alive = 1, .kind = cut->kind, .index = free_index(d->gpu)};
    ci.placement = (nvmlPlacement_t){start, cut->slices};
    make_uuid(d, id, ci.uuid, sizeof ci.uuid);
    d->gi->ci[id] = ci;
    *made = ci_handle(d->index, d->gi_id, id);
    return SUCCESS;
}

EXPORT nvmlReturn_t nvmlGpuInstanceCreateComputeInstance(nvmlGpuInstance_t handle, unsigned profile_id,
                                                         nvmlComputeInstance_t *made) {
    struct call call;
    struct device d;
    int code = call_begin_change(&call, __func__);
    if (!code && !(code = find_gi(handle, &d)) && !(code = create(&d, profile_id, made))) call.dirty = 1;
    return call_end(&call, code);
}

EXPORT nvmlReturn_t nvmlGpuInstanceGetComputeInstances(nvmlGpuInstance_t handle, unsigned profile_id,
                                                       nvmlComputeInstance_t *found, unsigned *count) {
    struct call call;
    struct device d;
    struct cut *cut = NULL;
    int code = call_begin_change(&call, __func__);
    if (!code) code = find_gi(handle, &d);
    struct profile *p = code ? NULL : profile_by_id(d.gpu, d.gi->profile_id);
    for (unsigned i = 0; p && i < p->cut_count; i++)
        if (p->cuts[i].id == profile_id) cut = &p->cuts[i];
    if (!code && !cut) code = NOT_SUPPORTED;
    if (!code) *count = 0;
    for (unsigned i = 0; !code && i < MAX_CI; i++)
        if (d.gi->ci[i].alive && d.gi->ci[i].kind == cut->kind) found[(*count)++] = ci_handle(d.index, d.gi_id, i);
    return call_end(&call, code);
}

EXPORT nvmlReturn_t nvmlGpuInstanceGetComputeInstanceById(nvmlGpuInstance_t handle, unsigned id,
                                                          nvmlComputeInstance_t *found) {
    struct call call;
    struct device d;
    int code = call_begin_change(&call, __func__);
    if (!code && !(code = find_gi(handle, &d))) code = id < MAX_CI && d.gi->ci[id].alive ? SUCCESS : NOT_FOUND;
    if (!code) *found = ci_handle(d.index, d.gi_id, id);
    return call_end(&call, code);
}

EXPORT nvmlReturn_t nvmlComputeInstanceGetInfo_v2(nvmlComputeInstance_t handle, nvmlComputeInstanceInfo_t *info) {
    struct call call;
    struct device d;
    int code = call_begin(&call, __func__);
    if (!code) code = find_ci(handle, &d);
    struct profile *p = code ? NULL : profile_by_id(d.gpu, d.gi->profile_id);
    struct cut *cut = p ? cut_by_kind(p, d.ci->kind) : NULL;
    if (!code && !cut) code = INVALID_ARGUMENT;
    if (!code)
        *info = (nvmlComputeInstanceInfo_t){mig_handle(d.index, d.gi_id, d.ci_id), gi_handle(d.index, d.gi_id), d.ci_id,
                                            cut->id, d.ci->placement};
    return call_end(&call, code);
}

EXPORT nvmlReturn_t nvmlComputeInstanceDestroy(nvmlComputeInstance_t handle) {
    struct call call;
    struct device d;
    int code = call_begin_change(&call, __func__);
    if (!code && !(code = find_ci(handle, &d)) && runs(&d, 0)) code = IN_USE;
    if (!code) {
        d.ci->alive = 0;
        call.dirty = 1;
    }
    return call_end(&call, code);
}
